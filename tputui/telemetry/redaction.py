"""Masks secrets: passwords, tokens and keys, detected by name, by shape and in addresses.

Runs are copied and sent to colleagues, so secrets are masked before they are written. The patterns cannot find every
secret; `docs/security.md` lists what they cover.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

MASK = "[redacted]"
"""Replaces a secret."""

_NAMES = (
    *("password", "passwd", "passphrase", "secret", "credential", "credentials", "authorization", "apikey"),
    *("accesskey", "secretkey", "privatekey", "sessionkey", "apitoken", "accesstoken", "authtoken"),
    *("bearertoken", "refreshtoken", "webhookurl", "connectionstring"),
)
"""A name that ends like this, with its words joined, always has a secret value: `PGPASSWORD`, `wandb_api_key`, also in
the plural or with a number behind it."""

_VAGUE_NAMES = {"token": 1, "pat": 1, "pwd": 1, "auth": 3, "key": 3, "pass": 3, "login": 3}
"""A name with this last word has a secret value only if the value looks random: long, with at least this many changes
between letters and digits. `pad_token = "<pad>"` and `label_key = "diagnosis_code_2019"` are not secrets."""

_RANDOM = re.compile(r"[A-Za-z0-9_\-.+/=~]{16,}")
_CHANGES = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")

_SCHEME = r"(?<![A-Za-z0-9+.\-])[A-Za-z][A-Za-z0-9+.\-]{0,20}://"
_TEXT_CHARS_MAX = 1 << 20
"""Longer texts are searched in pieces of this size, so that no search takes long."""

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"hf_[A-Za-z0-9]{16,200}|hf_(?:oauth|jwt)_[A-Za-z0-9_\-.]{16,8000}|api_org_[A-Za-z0-9]{16,200}"
    r"|gh[pousr]_[A-Za-z0-9]{20,300}|github_pat_[A-Za-z0-9_]{20,300}"
    r"|gl(?:pat|dt|rt|ptt|cbt|soat)-[A-Za-z0-9_\-.]{16,200}|wandb_v1_[A-Za-z0-9_\-]{20,300}"
    r"|(?:gsk_|xai-|pplx-|r8_)[A-Za-z0-9]{30,200}|nvapi-[A-Za-z0-9_\-]{40,200}|dapi[0-9a-f]{32}(?:-\d)?"
    r"|do[opr]_v1_[0-9a-f]{64}|dckr_pat_[A-Za-z0-9_\-]{20,100}|hvs\.[A-Za-z0-9_\-]{20,300}"
    r"|GOCSPX-[A-Za-z0-9_\-]{20,100}|SG\.[A-Za-z0-9_\-]{16,100}\.[A-Za-z0-9_\-]{16,100}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,100}"
    r"|sk-(?=[A-Za-z_\-]{0,40}[0-9])[A-Za-z0-9_\-]{16,300}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,300}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_\-]{30,100}|ya29\.[A-Za-z0-9_\-.]{20,2000}"
    r"|xox[abeoprs]-[A-Za-z0-9\-]{10,300}|pypi-[A-Za-z0-9_\-]{16,400}|npm_[A-Za-z0-9]{30,100}"
    r"|eyJ[A-Za-z0-9_\-]{8,4000}\.[A-Za-z0-9_\-]{8,8000}\.[A-Za-z0-9_\-]{1,2000}"
    r")"
)
"""Tokens with a known prefix (of model hubs and services, code hosts, clouds and chats), and JWTs."""

_KEY_MARK = "PRIVATE KEY"
_KEY_BEGIN = re.compile(rf"-{{4,5}} ?BEGIN [A-Z0-9 ]{{0,40}}{_KEY_MARK}(?: BLOCK)? ?-{{4,5}}")
_KEY_END = re.compile(rf"-{{4,5}} ?END [A-Z0-9 ]{{0,40}}{_KEY_MARK}(?: BLOCK)? ?-{{4,5}}")
_OPEN_KEY = re.compile(rf"{_KEY_BEGIN.pattern}[A-Za-z0-9+/=\s\\]*")
_KEY_LINE = re.compile(r"[^A-Za-z0-9+/=\[{<]*(?P<value>=?[A-Za-z0-9+/]+={0,2})(?:\\+[nrt])*[^A-Za-z0-9+/=:.!?]*")
"""A line of a key: one word of base64, perhaps in quotes, as in a list of JSON or in source code; not `[0]:`."""
_KEY_WORD = re.compile(r"(?<![A-Za-z0-9+/=_.\-])[A-Za-z0-9+][A-Za-z0-9+/]{23,}={0,2}(?![A-Za-z0-9+/=_.\-])")
"""A part of a key that is not alone on its line."""
KEY_LINES_MAX = 300
"""Lines after the beginning of a private key in which its lines are masked if its end is missing. The longest RSA key
has 200."""
_KEYS_MAX = 32
"""Private keys that several processes print at the same time."""
_BEFORE_KEY_CHARS_MAX = 200
_KEY_WORD_CHARS_MIN = 16
"""Shorter words are masked only if nothing is before them, or exactly what was before the beginning of the key."""

_IN_ADDRESS = re.compile(rf"({_SCHEME})(?:[^\s/@:]{{0,200}}:[^\s/?#\"'<>]{{1,500}}|[^\s/@:]{{16,500}})@")
"""`scheme://user:password@` up to the last `@` of the host part; also a long user name alone, which is a token."""

_IN_QUERY = re.compile(
    r"([?&](?:[A-Za-z0-9_\-]{0,40}(?:token|secret|password|api_?key|signature|credential)|sig)=)[^&\s#'\"]+",
    re.IGNORECASE,
)
"""`?token=...` and similar query parameters, including those of signed cloud URLs."""

_IN_PATH = re.compile(
    r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|api\.telegram\.org/bot)"
    r"[^\s'\"?#]+",
    re.IGNORECASE,
)
"""Addresses of webhooks and bots, whose path is the secret."""

_IN_COOKIE = re.compile(r"((?<![A-Za-z])cookie[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?)[^\s\"'][^\r\n\"']*", re.IGNORECASE)

_IN_HEADER = re.compile(
    r"(?P<name>authorization\W{1,6})?(?P<kind>(?<![A-Za-z])(?:bearer|basic|(?(name)token|basic))[ \t]{1,4})"
    r"(?P<value>(?(name)[^\s\"'<>]{1,500}|[A-Za-z0-9_\-.+/=~]{16,}))",
    re.IGNORECASE,
)

_COLOURS = r"(?:\x1b\[[0-9;]{0,20}m){0,4}"
_BLANKS = rf"{_COLOURS}[ \t\xa0]{{0,4}}{_COLOURS}"
_ASSIGNED = re.compile(
    r"(?:(?<![A-Za-z0-9_.\-])|(?<=\x1b\[m)|(?<=[0-9;]m))(?P<name>[A-Za-z_][A-Za-z0-9_.\-]{0,80})"
    rf"(?P<mark>\\{{0,8}}[\"']?\]?{_BLANKS}(?:=>|:=|==?|[:\uff1a]){_BLANKS})(?=[^ \t\xa0\r\n])"
)
"""A name and an assignment: `NAME=`, `NAME: `, `'NAME': `, `\\"NAME\\": `, coloured or not. The value follows."""

_VALUE = re.compile(
    r"(?P<before>[bBrRuUfF]{0,2})(?:"
    r"(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n]){0,10000}(?P=quote)?"
    r"|(?P<escaped>\\{1,8}[\"'])(?:(?!(?P=escaped)).){0,10000}(?P=escaped)?)"
    r"|(?P<bare>[^\s\"',;&\x1b]{1,10000})"
)
"""The value of an assignment: a quoted text, or everything up to a blank. An unclosed quote ends with the line."""

_ITEMS = re.compile(
    r"[\[({](?:[\w\s.,:\[({-]{1,20}|'(?:\\.|[^'\\\n]){0,10000}'?|\"(?:\\.|[^\"\\\n]){0,10000}\"?){0,200}"
)
"""The value of an assignment if it is a list or a dictionary with quoted texts."""
_ITEM = re.compile(r"(?P<quote>[\"'])(?P<value>(?:\\.|(?!(?P=quote))[^\\\n]){1,10000})(?P<end>(?P=quote)?)")
_MAY_BE_RANDOM = re.compile(r"[\[({]{0,3}[bBrRuUfF]{0,2}(?:\\{0,8}[\"'])?[A-Za-z0-9_\-.+/~]{15}")
"""With what a value begins that looks random: a cheap test, since a value may be long."""

_BESIDE = re.compile(
    r"(?<![A-Za-z0-9_.\-])(?P<name>[A-Za-z_][A-Za-z0-9_.\-]{0,80})"
    r"(?:[\"'`]?[ \t]{0,80}(?:[,|\u2502\u2503]|->|\u2192)[ \t]{0,80}|[ \t]{1,80}(?:(?:is|was)[ \t]{1,4})?)[\"'`]?"
    r"(?=[A-Za-z0-9_\-+=~][A-Za-z0-9_\-+/=~]{15})"
)
"""A name beside a long word: in a column of a table, in a pair, in a sentence. The word follows."""
_BESIDE_VALUE = re.compile(r"[A-Za-z0-9_\-+/=~]{16,10000}(?![A-Za-z0-9.(])")

_IN_OPTION = re.compile(
    r"(?<![A-Za-z0-9_.\-])(?P<name>--?[A-Za-z][A-Za-z0-9_.\-]{0,80})(?P<mark>=|[ \t]{1,4})"
    r"(?P<quote>[\"']?)(?P<value>[^\s\"'\-$][^\s\"']{0,10000})"
)
"""An option of a command line with its value: `--api-key X`, `--password=X`."""
_PLACEHOLDER = re.compile(r"[A-Za-z]+[.,:;]?|[A-Z_]+\W{0,2}|[<\[{(].*")
"""What follows the name of an option in a help text or a sentence: `--password PASSWORD`, `--api-key is missing`."""

_MAY_BE_SECRET = re.compile(rf"(?:{'|'.join([*_NAMES, *_VAGUE_NAMES])})s?[0-9]*$")

_NO_SECRETS = frozenset({"true", "false", "none", "null", "str", "bytes", "int", "float", "bool", "optional"})
"""Unquoted values that are never secrets: flags, and types in lines of code."""

_HINTS = (
    *("pass", "secret", "token", "key", "auth", "cred", "bearer", "basic", "://", "pwd", "webhook", "connection"),
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "_pat", "glpat", "sk-", "k_live", "k_test", "akia", "asia"),
    *("aiza", "ya29", "xox", "pypi-", "npm_", "eyj", "sig=", "api_org"),
    *("gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-"),
    *("gsk_", "xai-", "pplx-", "r8_", "nvapi-", "dapi", "_v1_", "hvs.", "gocspx-", "sg.", "cookie", "login"),
)
"""Only texts that contain one of these, in lower case, are searched further; most contain none."""


def names_secret(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name."""
    if not value or value == MASK:
        return False
    words = [part.lower() for part in _words(name)]
    while len(words) > 1 and words[-1].isdecimal():
        del words[-1]
    joined = "".join(words)
    if joined.endswith(_NAMES) or joined.removesuffix("s").endswith(_NAMES):
        return True
    if len(words) > 1 and words[-1] == "pwd":  # `MYSQL_PWD`, but not the shell's `PWD` and `OLD_PWD`
        return not value.startswith(("/", "~"))
    least = _VAGUE_NAMES.get(words[-1]) if words else None
    return least is not None and _RANDOM.fullmatch(value) is not None and len(_CHANGES.findall(value)) >= least


def looks_random(word: str) -> bool:
    """Whether a word looks like a generated key: long, with several changes between letters and digits."""
    return _RANDOM.fullmatch(word) is not None and len(_CHANGES.findall(word)) >= _VAGUE_NAMES["key"]


def masked_text(text: str) -> str:
    """The text with its secrets masked: tokens, private keys, credentials in URLs, `password=...`."""
    small = text.lower()
    if not any(hint in small for hint in _HINTS):
        return text
    if _KEY_MARK in text:
        text = "\n".join(KeyMasker().masked(text.split("\n")))
    if len(text) > _TEXT_CHARS_MAX:
        offsets = range(0, len(text), _TEXT_CHARS_MAX)
        return "".join(masked_text(text[offset : offset + _TEXT_CHARS_MAX]) for offset in offsets)
    text = _SHAPES.sub(MASK, text)
    text = _IN_ADDRESS.sub(rf"\1{MASK}@", text)
    text = _IN_QUERY.sub(rf"\1{MASK}", text)
    text = _IN_PATH.sub(rf"\1{MASK}", text)
    text = _IN_COOKIE.sub(rf"\1{MASK}", text)
    text = _IN_HEADER.sub(_masked_header, text)
    return _masked_beside(_IN_OPTION.sub(_masked_option, _masked_assignments(text)))


class KeyMasker:
    """Masks private keys in the lines of one stream, in which several processes may print at the same time.

    A key may begin in one call and end in a later one. If its beginning is missing, the lines before its end are masked
    as far as they belong to the same call; if its end is missing, those of the next `KEY_LINES_MAX` that look like
    parts of a key.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        """What is before the beginning on its line, such as `[rank0]: `, of each key that has not ended."""
        self._lines_left = 0

    def masked(self, lines: Sequence[str]) -> list[str]:
        """The next lines of the stream, masked."""
        if not self._open and not any(_KEY_MARK in line for line in lines):
            return list(lines)
        shown: list[str] = []
        for line in lines:
            shown.append(self._masked_line(line, shown))
        return shown

    def masked_line(self, line: str) -> str:
        """The next line of the stream, masked."""
        return self._masked_line(line, []) if self._open or _KEY_MARK in line else line

    def _masked_line(self, line: str, before: list[str]) -> str:
        """The line masked; masks lines `before` it that belong to a key which ends here."""
        if _KEY_MARK in line:
            line = _whole_keys_masked(line)
            if (end := _KEY_END.search(line)) is not None:
                line = self._ended(line, end, before)
            if (begin := _KEY_BEGIN.search(line)) is not None:
                prefix = line[: begin.start()]
                self._open = [*self._open, prefix if len(prefix) <= _BEFORE_KEY_CHARS_MAX else ""][-_KEYS_MAX:]
                self._lines_left = KEY_LINES_MAX
                return _OPEN_KEY.sub(MASK, line)
        if not self._open:
            return line
        self._lines_left -= 1
        masked = _part_of_key_masked(line, self._open) or line
        if self._lines_left <= 0:
            self._open = []
        return masked

    def _ended(self, line: str, end: re.Match[str], before: list[str]) -> str:
        """The line with the end of a key masked; without a beginning, also the lines `before` it."""
        start = line[: end.start()]
        if self._open:
            self._open.remove(next((prefix for prefix in self._open if start.startswith(prefix)), self._open[-1]))
        else:
            for index in range(len(before) - 1, max(-1, len(before) - 1 - KEY_LINES_MAX), -1):
                masked = _part_of_key_masked(before[index], [start])
                if masked is None:
                    break
                before[index] = masked
        start = _KEY_WORD.sub(MASK, start)
        return f"{start}{MASK}{_KEY_END.sub(MASK, line[end.end() :])}"


def masked_lines(lines: Sequence[str]) -> list[str]:
    """Consecutive lines of output with their secrets masked."""
    return [masked_text(line) for line in KeyMasker().masked(lines)]


def masked(value: Any, name: str = "") -> Any:
    """A plain value, possibly nested, with its secrets masked."""
    if isinstance(value, dict):
        return {
            masked_text(key) if isinstance(key, str) else key: masked(item, str(key)) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        items = [masked(item, name) for item in value]
        # It may be a command line.
        return masked_argv(items) if all(isinstance(item, str) for item in items) else items
    if isinstance(value, str):
        return MASK if names_secret(name, value) else masked_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and names_secret(name, str(value)):
        return MASK
    return value


def masked_argv(arguments: Iterable[str]) -> list[str]:
    """A command line with its secrets masked: `--password X`, `--set data.token=X`, `NAME=X`, URLs."""
    shown: list[str] = []
    name = ""
    for argument in arguments:
        if name and not argument.startswith("-"):
            shown.append(MASK if names_secret(name, argument) else _masked_word(argument))
            name = ""
            continue
        option, mark, value = argument.partition("=")
        if mark and names_secret(option, value.strip("\"'")):
            shown.append(f"{option}={MASK}")
        else:
            shown.append(_masked_word(argument))
        name = argument if (argument.startswith("-") and not mark) or argument == "login" else ""
    return shown


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


def _whole_keys_masked(line: str) -> str:
    """The line with the private keys masked that begin and end in it."""
    parts: list[str] = []
    offset = 0
    while (begin := _KEY_BEGIN.search(line, offset)) and (end := _KEY_END.search(line, begin.end())):
        parts += [line[offset : begin.start()], MASK]
        offset = end.end()
    return "".join([*parts, line[offset:]])


def _part_of_key_masked(line: str, prefixes: Sequence[str]) -> str | None:
    """The line masked, if it looks like a part of a private key; else None. `prefixes`: what may be before it."""
    if MASK in line:
        return None
    for prefix in dict.fromkeys(prefixes):
        start = _shared_start(line, prefix)
        match = _KEY_LINE.fullmatch(line, start)
        if match and (line[:start] == prefix[:start] or len(match["value"]) >= _KEY_WORD_CHARS_MIN):
            return f"{line[: match.start('value')]}{MASK}{line[match.end('value') :]}"
    masked = _KEY_WORD.sub(lambda match: MASK if _CHANGES.search(match[0]) else match[0], line)
    return masked if masked != line else None


def _shared_start(line: str, prefix: str) -> int:
    """The number of characters with which a line and a prefix begin alike, without a part of a word. Digits are alike:
    those of two times or two ranks."""
    start = 0
    for sign, prefix_sign in zip(line, prefix, strict=False):
        if sign != prefix_sign and not (sign.isdigit() and prefix_sign.isdigit()):
            break
        start += 1
    while 0 < start < len(prefix) and prefix[start - 1].isalnum():
        start -= 1
    return start


def _masked_word(word: str) -> str:
    """A word of a command line with its secrets masked. It may be a command line itself: `sh -c "..."`."""
    return _IN_OPTION.sub(functools.partial(_masked_option, is_command=True), masked_text(word))


def _masked_option(match: re.Match[str], *, is_command: bool = False) -> str:
    """The option with its value masked if it is a secret. `is_command`: the text is known to be a command line."""
    value, is_assigned = match["value"], match["mark"] == "="
    is_placeholder = not (is_assigned or is_command) and not match["quote"] and _PLACEHOLDER.fullmatch(value)
    if value.lower() in _NO_SECRETS or is_placeholder or not names_secret(match["name"], value):
        return match[0]
    return f"{match['name']}{match['mark']}{match['quote']}{MASK}"


def _masked_header(match: re.Match[str]) -> str:
    """`Bearer TOKEN` with the token masked; unchanged if it looks like a word and no header is named."""
    value = match["value"]
    if not (match["name"] or _CHANGES.search(value) or value.endswith("=")):
        return match[0]
    return f"{match['name'] or ''}{match['kind']}{MASK}"


def _masked_assignments(text: str) -> str:
    """The text with the values of secret names masked. Values of other names are searched like any text."""
    parts: list[str] = []
    done = offset = 0
    while (match := _ASSIGNED.search(text, offset)) is not None:
        offset = match.end()
        # Check the name first: matching every value would be slow for nested assignments.
        may_be = _may_name_secret(match["name"])
        may_be = may_be and (names_secret(match["name"], "x") or _MAY_BE_RANDOM.match(text, offset) is not None)
        items = _ITEMS.match(text, offset) if may_be else None
        if items is not None and _ITEM.search(items[0]) is not None:
            parts += [text[done:offset], _ITEM.sub(functools.partial(_masked_item, match["name"]), items[0])]
            done = offset = items.end()
            continue
        value = _VALUE.match(text, offset) if may_be else None
        if value is not None and (masked := _masked_value(match["name"], value)) is not None:
            parts += [text[done:offset], masked]
            done = offset = value.end()
    return "".join([*parts, text[done:]])


def _may_name_secret(name: str) -> bool:
    """Whether the value of the name may be a secret: a cheap test that most names fail."""
    return _MAY_BE_SECRET.search("".join(_words(name)).lower()) is not None


def _masked_item(name: str, match: re.Match[str]) -> str:
    return f"{match['quote']}{MASK}{match['end']}" if names_secret(name, match["value"]) else match[0]


def _masked_beside(text: str) -> str:
    """The text with random words masked that follow a secret name without an assignment."""
    parts: list[str] = []
    done = offset = 0
    while (match := _BESIDE.search(text, offset)) is not None:
        offset = match.end()
        if not _may_name_secret(match["name"]):
            continue
        # A word such as `key` alone is followed by the names of layers, too.
        is_sure = len(_words(match["name"])) > 1 or match["name"].lower() == "login" or names_secret(match["name"], "x")
        value = _BESIDE_VALUE.match(text, offset)
        if is_sure and value is not None and looks_random(value[0]) and names_secret(match["name"], value[0]):
            parts += [text[done:offset], MASK]
            done = offset = value.end()
    return "".join([*parts, text[done:]])


def _masked_value(name: str, match: re.Match[str]) -> str | None:
    """The masked value; None if it is not a secret."""
    if bare := match["bare"]:
        is_secret = bare.lower() not in _NO_SECRETS and not bare.startswith("//") and names_secret(name, bare)
        return MASK if is_secret else None
    before, quote = match["before"], match["quote"] or match["escaped"]
    inner = match[0][len(before) + len(quote) :]
    closing = quote if inner.endswith(quote) else ""
    inner = inner.removesuffix(quote)
    return f"{before}{quote}{MASK}{closing}" if names_secret(name, inner) else None
