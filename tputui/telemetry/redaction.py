"""Masks secrets: passwords, tokens and keys, detected by name, by shape and in addresses.

Runs are copied and sent to colleagues, so secrets are masked before they are written. The patterns cannot find every
secret; `docs/security.md` lists what they cover.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MASK = "[redacted]"
"""Replaces a secret."""

_NAMES = (
    *("password", "passwd", "passphrase", "secret", "credential", "credentials", "authorization", "apikey"),
    *("accesskey", "secretkey", "privatekey", "sessionkey", "apitoken", "accesstoken", "authtoken"),
    *("bearertoken", "refreshtoken", "webhookurl", "connectionstring"),
)
"""A name that ends like this, with its words joined, always has a secret value: `PGPASSWORD`, `wandb_api_key`."""

_VAGUE_NAMES = {"token": 1, "pat": 1, "pwd": 1, "auth": 3, "key": 3, "pass": 3}
"""A name with this last word has a secret value only if the value looks random: long, with at least this many changes
between letters and digits. `pad_token = "<pad>"` and `label_key = "diagnosis_code_2019"` are not secrets."""

_RANDOM = re.compile(r"[A-Za-z0-9_\-.+/=~]{16,}")
_CHANGES = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")

_SCHEME = r"(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{0,20}://"
_TEXT_CHARS_MAX = 1 << 20
"""Longer texts are searched in pieces of this size, so that no search takes long."""

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"hf_[A-Za-z0-9]{16,200}"
    r"|gh[pousr]_[A-Za-z0-9]{20,300}|github_pat_[A-Za-z0-9_]{20,300}|glpat-[A-Za-z0-9_\-]{16,200}"
    r"|sk-(?=[A-Za-z_\-]{0,40}[0-9])[A-Za-z0-9_\-]{16,300}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,300}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_\-]{30,100}|ya29\.[A-Za-z0-9_\-.]{20,2000}"
    r"|xox[abeoprs]-[A-Za-z0-9\-]{10,300}|pypi-[A-Za-z0-9_\-]{16,400}|npm_[A-Za-z0-9]{30,100}"
    r"|eyJ[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{8,8000}\.[A-Za-z0-9_\-]{1,2000}"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
    r")"
)
"""Tokens with a known prefix (of model hubs, code hosts, clouds and chats), JWTs and PEM keys."""

_IN_ADDRESS = re.compile(rf"({_SCHEME})(?:[^\s/@:]{{0,200}}:[^\s/?#\"'<>]{{1,500}}|[^\s/@:]{{16,500}})@")
"""`scheme://user:password@` up to the last `@` of the host part; also a long user name alone, which is a token."""

_IN_QUERY = re.compile(
    r"([?&](?:[A-Za-z0-9_\-]{0,40}(?:token|secret|password|api_?key|signature|credential)|sig)=)[^&\s#'\"]+",
    re.IGNORECASE,
)
"""`?token=...` and similar query parameters, including those of signed cloud URLs."""

_IN_HEADER = re.compile(
    r"(?P<name>authorization\W{1,6})?(?P<kind>(?<![A-Za-z])(?:bearer|basic)[ \t]{1,4})"
    r"(?P<value>[A-Za-z0-9_\-.+/=~]{16,})",
    re.IGNORECASE,
)

_COLOURS = r"(?:\x1b\[[0-9;]{0,20}m){0,4}"
_BLANKS = rf"{_COLOURS}[ \t]{{0,4}}{_COLOURS}"
_ASSIGNED = re.compile(
    r"(?:(?<![A-Za-z0-9_.\-])|(?<=\x1b\[m)|(?<=[0-9;]m))(?P<name>[A-Za-z_][A-Za-z0-9_.\-]{0,80})"
    rf"(?P<mark>\\{{0,8}}[\"']?\]?{_BLANKS}(?:=>|:=|==?|:){_BLANKS})(?=[^ \t\r\n])"
)
"""A name and an assignment: `NAME=`, `NAME: `, `'NAME': `, `\\"NAME\\": `, coloured or not. The value follows."""

_VALUE = re.compile(
    r"(?P<before>[bBrRuUfF]{0,2})(?:"
    r"(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n]){0,10000}(?P=quote)?"
    r"|(?P<escaped>\\{1,8}[\"'])(?:(?!(?P=escaped)).){0,10000}(?P=escaped)?)"
    r"|(?P<bare>[^\s\"',;&\x1b]{1,10000})"
)
"""The value of an assignment: a quoted text, or everything up to a blank. An unclosed quote ends with the line."""

_MAY_BE_SECRET = re.compile(rf"(?:{'|'.join([*_NAMES, *_VAGUE_NAMES])})$")

_NO_SECRETS = frozenset({"true", "false", "none", "null", "str", "bytes", "int", "float", "bool", "optional"})
"""Unquoted values that are never secrets: flags, and types in lines of code."""

_HINTS = (
    *("pass", "secret", "token", "key", "auth", "cred", "bearer", "basic", "://", "pwd", "webhook", "connection"),
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "_pat", "glpat", "sk-", "k_live", "k_test", "akia", "asia"),
    *("aiza", "ya29", "xox", "pypi-", "npm_", "eyj", "sig="),
)
"""Only texts that contain one of these, in lower case, are searched further; most contain none."""


def names_secret(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name."""
    if not value or value == MASK:
        return False
    words = [part.lower() for part in _words(name)]
    if "".join(words).endswith(_NAMES):
        return True
    if len(words) > 1 and words[-1] == "pwd":  # `MYSQL_PWD`, but not the shell's `PWD` and `OLD_PWD`
        return not value.startswith(("/", "~"))
    least = _VAGUE_NAMES.get(words[-1]) if words else None
    return least is not None and _RANDOM.fullmatch(value) is not None and len(_CHANGES.findall(value)) >= least


def looks_random(word: str) -> bool:
    """Whether a word looks like a generated key: long, with several changes between letters and digits."""
    return _RANDOM.fullmatch(word) is not None and len(_CHANGES.findall(word)) >= _VAGUE_NAMES["key"]


def masked_text(text: str) -> str:
    """The text with its secrets masked: tokens, PEM keys, credentials in URLs, `password=...`."""
    small = text.lower()
    if not any(hint in small for hint in _HINTS):
        return text
    if len(text) > _TEXT_CHARS_MAX:
        offsets = range(0, len(text), _TEXT_CHARS_MAX)
        return "".join(masked_text(text[offset : offset + _TEXT_CHARS_MAX]) for offset in offsets)
    text = _SHAPES.sub(MASK, text)
    text = _IN_ADDRESS.sub(rf"\1{MASK}@", text)
    text = _IN_QUERY.sub(rf"\1{MASK}", text)
    text = _IN_HEADER.sub(_masked_header, text)
    return _masked_assignments(text)


def masked(value: Any, name: str = "") -> Any:
    """A plain value, possibly nested, with its secrets masked."""
    if isinstance(value, dict):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [masked(item, name) for item in value]
        # It may be a command line.
        return masked_argv(items) if all(isinstance(item, str) for item in items) else items
    if isinstance(value, str):
        return MASK if names_secret(name, value) else masked_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and names_secret(name, str(value)):
        return MASK
    return value


def masked_argv(words: Iterable[str]) -> list[str]:
    """A command line with its secrets masked: `--password X`, `--set data.token=X`, `NAME=X`, URLs."""
    found: list[str] = []
    name = ""
    for word in words:
        if name and not word.startswith("-"):
            found.append(MASK if names_secret(name, word) else masked_text(word))
            name = ""
            continue
        option, mark, value = word.partition("=")
        if mark and names_secret(option, value.strip("\"'")):
            found.append(f"{option}={MASK}")
        else:
            found.append(masked_text(word))
        name = word if word.startswith("-") and not mark else ""
    return found


def secret_keys(value: Any, name: str = "") -> list[str]:
    """Dotted names of the values in a configuration that would be masked."""
    if isinstance(value, dict):
        return [
            key for inner, item in value.items() for key in secret_keys(item, f"{name}.{inner}" if name else str(inner))
        ]
    if isinstance(value, list | tuple):
        return [key for index, item in enumerate(value) for key in secret_keys(item, f"{name}[{index}]")]
    return [name] if masked(value, name) != value else []


def _words(name: str) -> list[str]:
    """The words of a name, from `data.apiKey`, `--api-key`, `API_KEY` or `tokens[0]` alike."""
    last = re.sub(r"\[\d+\]", "", name).rpartition(".")[2]
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)
    return [word for word in re.split(r"[^A-Za-z0-9]+", parted) if word]


def _masked_header(found: re.Match[str]) -> str:
    """`Bearer TOKEN` with the token masked; unchanged if it looks like a word and no header is named."""
    value = found["value"]
    if not (found["name"] or _CHANGES.search(value) or value.endswith("=")):
        return found[0]
    return f"{found['name'] or ''}{found['kind']}{MASK}"


def _masked_assignments(text: str) -> str:
    """The text with the values of secret names masked. Values of other names are searched like any text."""
    parts: list[str] = []
    done = offset = 0
    while (found := _ASSIGNED.search(text, offset)) is not None:
        offset = found.end()
        # Check the name first: matching every value would be slow for nested assignments.
        may_be = _MAY_BE_SECRET.search("".join(_words(found["name"])).lower())
        value = _VALUE.match(text, offset) if may_be else None
        if value is not None and (masked := _masked_value(found["name"], value)) is not None:
            parts += [text[done:offset], masked]
            done = offset = value.end()
    return "".join([*parts, text[done:]])


def _masked_value(name: str, found: re.Match[str]) -> str | None:
    """The masked value; None if it is not a secret."""
    if bare := found["bare"]:
        is_secret = bare.lower() not in _NO_SECRETS and not bare.startswith("//") and names_secret(name, bare)
        return MASK if is_secret else None
    before, quote = found["before"], found["quote"] or found["escaped"]
    inner = found[0][len(before) + len(quote) :]
    closing = quote if inner.endswith(quote) else ""
    inner = inner.removesuffix(quote)
    return f"{before}{quote}{MASK}{closing}" if names_secret(name, inner) else None
