"""Where alerts go: the targets of `[alerts]`, how they are written, and one attempt to deliver to each.

No shell reads a command of a target: its words are split once, and a word that is exactly `$TPUTUI_ALERT` or another
variable of the alert is replaced. So the text of an alert, which contains names from the logs of a script, can never
become part of a command.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from tputui import __version__
from tputui.formatting import inert
from tputui.telemetry import redaction
from tputui.telemetry.codec import spell_non_finite
from tputui.telemetry.rundir import RUN_DIR_VARIABLE

FORMS = "bell, command:PROGRAM ARGUMENTS, https://..., env:NAME, apprise:env:NAME"
PAYLOAD_VERSION = 1
COMMAND_TIMEOUT_S = 30.0
WEBHOOK_TIMEOUT_S = 10.0
OUTPUT_BYTES_MAX = 4_096
"""Output of a command that is written to the log of the supervisor."""
TARGETS_MAX = 16
_TEXT_CHARS_MAX = 2_000
_WHY_CHARS_MAX = 300
_POLL_S = 0.05
_PREFIX = "TPUTUI_ALERT"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VARIABLE = re.compile(rf"\$(?:\{{({_PREFIX}\w*)\}}|({_PREFIX}\w*))", re.ASCII)
_RETRIED = frozenset({408, 425, 429})
"""Answers of the class "your fault" after which another attempt may succeed."""


class InvalidTarget(ValueError):
    """A text is not a target, or it cannot work; the message is one sentence."""


class DeliveryError(Exception):
    """An attempt failed; the message is one sentence without secrets."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        """`is_final`: another attempt would fail in the same way."""
        super().__init__(why)
        self.is_final = is_final


class AlertMessage(NamedTuple):
    """The content of an alert."""

    t: float
    run: str
    run_dir: str
    host: str
    condition: str
    text: str
    state: str
    """State of the run, as in `tputui show`."""
    step: int
    epoch: int
    metrics: Mapping[str, float]
    """Newest values by `train.NAME` and `valid.NAME`."""

    def payload(self) -> bytes:
        """The JSON object that webhooks receive. Non-finite values are "NaN", "Infinity" and "-Infinity"."""
        fields = {"version": PAYLOAD_VERSION, **self._asdict(), "metrics": dict(self.metrics)}
        return msgspec.json.encode(spell_non_finite(fields))

    def variables(self) -> dict[str, str]:
        """The environment variables that commands receive."""
        values = {
            "": self.text,
            "_RUN": self.run,
            "_RUN_DIR": self.run_dir,
            "_CONDITION": self.condition,
            "_STATE": self.state,
            "_STEP": str(self.step),
            "_EPOCH": str(self.epoch),
            "_JSON": self.payload().decode(),
        }
        return {_PREFIX + name: value.replace("\0", "")[: 64 * _TEXT_CHARS_MAX] for name, value in values.items()}


class Target(NamedTuple):
    """A target. `kind` is what events and messages call it; they never contain its address."""

    kind: str
    """`bell`, `command`, `webhook` or `apprise`."""
    words: tuple[str, ...] = ()
    """The command, or the address of the webhook."""
    variable: str = ""
    """The environment variable with the address, if it is not in `words`."""

    def problem(self, environ: Mapping[str, str]) -> str | None:
        """Why it cannot work in this environment; None if it may."""
        if self.kind == "command":
            program = self.words[0]
            found = shutil.which(program, path=environ.get("PATH", os.defpath))
            return None if found else f'the program "{program}" is not in PATH, or not executable'
        if self.kind == "apprise" and importlib.util.find_spec("apprise") is None:
            return "the package apprise is not installed; pip install 'tputui[alerts]'"
        if self.variable:
            if not environ.get(self.variable):
                return f"the environment variable {self.variable} is not set"
            if self.kind == "webhook" and not _is_address(environ[self.variable]):
                return f"the environment variable {self.variable} does not contain an http or https address"
        return None

    def secrets(self, environ: Mapping[str, str]) -> list[str]:
        """Texts that must not appear in any message about it."""
        return [environ[self.variable]] if environ.get(self.variable) else []

    def deliver(
        self, message: AlertMessage, environ: Mapping[str, str], log: Callable[[str], None], stop: Event
    ) -> None:
        """Makes one attempt. Raises `DeliveryError`. `log` takes the output of a command; `stop` ends one."""
        try:
            if (why := self.problem(environ)) is not None:
                raise DeliveryError(why)
            if self.kind == "command":
                _run(self.words, message, environ, log, stop)
            elif self.kind == "webhook":
                _post(environ[self.variable] if self.variable else self.words[0], message)
            elif self.kind == "apprise":
                _notify(environ[self.variable], message)
        except DeliveryError as error:
            raise DeliveryError(self._without_secrets(str(error), environ), is_final=error.is_final) from None
        except Exception as error:  # whatever a library or the network does
            raise DeliveryError(self._without_secrets(f"{type(error).__name__}: {error}", environ)) from None

    def _without_secrets(self, text: str, environ: Mapping[str, str]) -> str:
        for secret in self.secrets(environ):
            # Messages of libraries may quote only a part of the address.
            for part in {secret, *(each for each in re.split(r"[/?&=@]", secret) if len(each) >= 8)}:
                text = text.replace(part, redaction.MASK)
        return inert(redaction.masked_text(text))[:_WHY_CHARS_MAX]


def parse(text: str) -> Target:
    """Parses a target. Raises `InvalidTarget`; its message does not repeat a secret."""
    text = text.strip()
    if text == "bell":
        return Target("bell")
    if looks_secret(text):
        raise InvalidTarget(
            "this looks like a secret, and a run stores its configuration and command line; put the address into an "
            "environment variable and write env:NAME"
        )
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "command":
        return Target("command", _words_of(rest))
    if colon and scheme == "env":
        return Target("webhook", variable=_variable_of(rest))
    if colon and scheme == "apprise":
        if not rest.startswith("env:"):
            raise InvalidTarget(
                "addresses of apprise contain secrets; put it into a variable and write apprise:env:NAME"
            )
        return Target("apprise", variable=_variable_of(rest.removeprefix("env:")))
    if colon and scheme.lower() in ("http", "https"):
        if not _is_address(text):
            raise InvalidTarget(f'"{inert(text)}" is not a valid address')
        return Target("webhook", (text,))
    raise InvalidTarget(f'"{inert(text)}" is not a target; targets are {FORMS}')


def looks_secret(text: str) -> bool:
    """Whether a target contains a secret: a known token, credentials, or a part of an address that looks random."""
    if redaction.masked_text(text) != text:
        return True
    return "://" in text and any(redaction.looks_random(part) for part in re.split(r"[/?&=:@]", text))


def _words_of(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidTarget(f'"command:{inert(text)}": {str(error).lower()}') from None
    if not words or not words[0]:
        raise InvalidTarget('"command:" needs a program, such as command:notify-send tputui "$TPUTUI_ALERT"')
    return words


def _variable_of(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise InvalidTarget("env: must be followed by the name of an environment variable, such as env:ALERT_URL")
    return text


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    is_plain = all("!" <= letter <= "~" for letter in text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain


def _run(
    words: tuple[str, ...], message: AlertMessage, environ: Mapping[str, str], log: Callable[[str], None], stop: Event
) -> None:
    """Runs a command in a session of its own, which is killed when its time is over or `stop` is set."""
    variables = message.variables()
    own = {name: value for name, value in environ.items() if name != RUN_DIR_VARIABLE}
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [_filled(word, variables) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**own, **variables},
                start_new_session=True,
            )
        except OSError as error:
            raise DeliveryError(f"{words[0]}: {error.strerror or error}") from None
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline and not stop.is_set():
            stop.wait(_POLL_S)
        is_late = process.poll() is None
        if is_late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0, os.SEEK_END)
        output.seek(max(0, output.tell() - OUTPUT_BYTES_MAX))
        printed = output.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace").strip()
    for line in redaction.masked_lines(printed.splitlines()):
        log(inert(line))
    if is_late:
        raise DeliveryError(f"the command did not end within {COMMAND_TIMEOUT_S:g} s and was killed")
    if process.returncode < 0:
        raise DeliveryError(f"the command was ended by signal {-process.returncode}")
    if process.returncode:
        last = printed.splitlines()[-1] if printed else "no output"
        raise DeliveryError(f"the command ended with exit code {process.returncode}: {last}")


def _filled(word: str, variables: Mapping[str, str]) -> str:
    found = _VARIABLE.fullmatch(word)
    return variables.get(found[1] or found[2], "") if found else word


def _post(address: str, message: AlertMessage) -> None:
    """Sends the alert as JSON. Redirects are not followed: they would send it to another server."""
    # Imported when the first alert is sent, so that supervisors start faster.
    from http.client import HTTPException
    from urllib import error, request

    opener = request.OpenerDirector()
    handlers = (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
    )
    for handler in handlers:
        opener.add_handler(handler())
    headers = {"Content-Type": "application/json", "User-Agent": f"tputui/{__version__}"}
    try:
        with opener.open(request.Request(address, message.payload(), headers), timeout=WEBHOOK_TIMEOUT_S):
            return
    except error.HTTPError as answer:
        code, reason = answer.code, str(answer.reason)
        answer.close()
        why = f"the server answered {code} {reason}"
        if 300 <= code < 400:
            why = f"the server answered {code}, a redirect, which is not followed; use the new address"
        raise DeliveryError(why, is_final=300 <= code < 500 and code not in _RETRIED) from None
    except error.URLError as failed:
        cause = failed.reason.strerror if isinstance(failed.reason, OSError) else None
        raise DeliveryError(f"no connection: {cause or failed.reason}") from None
    except TimeoutError:
        raise DeliveryError(f"no answer within {WEBHOOK_TIMEOUT_S:g} s") from None
    except HTTPException as failed:
        raise DeliveryError(f"not an HTTP answer ({type(failed).__name__})") from None


def _notify(address: str, message: AlertMessage) -> None:
    """Sends the alert by apprise."""
    import apprise

    sender = apprise.Apprise()
    if not sender.add(address):
        raise DeliveryError("apprise does not know this kind of address", is_final=True)
    if not sender.notify(title=f"tputui {message.run}", body=message.text):
        raise DeliveryError("apprise reported that the alert was not sent")
