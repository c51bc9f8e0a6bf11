"""Standard streams of a command: data to stdout, messages to stderr, and the error that ends a command.

Control characters in text from users, tasks and logs are escaped, so that no escape sequence reaches the terminal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from types import FrameType
from typing import Any, TextIO

import msgspec

from tputui import formatting as fmt
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.telemetry.codec import escape_surrogates

_WEB_DRIVER = "web_driver"

_RESTORE = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m"
"""Leaves the alternate screen, shows the cursor, ends mouse reports and bracketed paste, resets colours."""


_NOT_ASCII = re.compile("[^\x00-\x7e]")
"""Also matches DEL. Negated, because compiling a range up to the last character takes milliseconds at every start."""


GAP = "  "
"""Between two columns of a table."""
DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a full or broken disk behind stdout, which are not bugs."""


class CommandError(Exception):
    """Ends a command with an exit code; the text is one sentence for the user."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class UsageError(CommandError):
    """The command line, or what it names, cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.USAGE, message)


@contextlib.contextmanager
def usage_errors(*kinds: type[Exception], prefix: str = "", has_lines: bool = False) -> Iterator[None]:
    """A context in which errors of these kinds, whose texts are sentences for the user, are errors of use. `has_lines`:
    a text has a line per sentence; any other line end in one is escaped."""
    try:
        yield
    except kinds as error:
        raise UsageError(prefix + (str(error) if has_lines else inert(str(error)))) from None


def say(text: str) -> None:
    """Writes lines of data to stdout and flushes them.

    Control and invisible characters are escaped, and characters that the encoding of stdout lacks.
    """
    encoding = sys.stdout.encoding or "utf-8"
    shown = "\n".join(map(inert, text.split("\n")))
    sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def say_json(value: Any, *, indent: int = 0) -> None:
    """Writes a JSON value to stdout: on one line, or indented."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Names of files that are not UTF-8.
        encoded = msgspec.json.encode(escape_surrogates(msgspec.to_builtins(value)))
    text = (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    say(_NOT_ASCII.sub(_json_escaped, text))


def _json_escaped(match: re.Match[str]) -> str:
    """The character, or its JSON escape if it is not printable."""
    character = match[0]
    if character.isprintable():
        return character
    # Imported here so that other commands start faster.
    import json

    return json.dumps(character)[1:-1]


def table_lines(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> Iterator[str]:
    """The lines of a table; columns are aligned to the left, those in `right` to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(range(len(row)), row, widths, strict=True)
        yield GAP.join(cell.rjust(w) if at in right else cell.ljust(w) for at, cell, w in cells).rstrip()


def narrate(text: str) -> None:
    """Writes a message to stderr; a closed stderr must not end a command, nor change its exit code."""
    try:
        sys.stderr.write("\n".join(map(inert, f"tputui: {text}".split("\n"))) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        _drop(sys.stderr)


class ProgressLine:
    """One line on stderr that says what happens: rewritten in a terminal, else printed when it changes."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""
        self._began = time.monotonic()

    def show(self, text: str, newest: str | None = None) -> None:
        """Shows what happens; in a terminal, where the line can be rewritten, `newest` in its place."""
        if not self._is_terminal:
            if text != self._shown:
                narrate(text)
                self._shown = text
            return
        seconds = fmt.duration(time.monotonic() - self._began)
        columns = shutil.get_terminal_size().columns
        self.rewrite(f"{newest or text} ({seconds})"[: max(columns - 1, 1)])

    def rewrite(self, line: str = "") -> None:
        """Puts a text in place of the line in a terminal; without one, removes the line."""
        if self._is_terminal and line != self._shown:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"\r\x1b[K{inert(line)}")
                sys.stderr.flush()
            self._shown = line


def has_screen() -> bool:
    """Whether the live screen can be drawn: the standard streams are a terminal that supports escape sequences.

    stderr too, because Textual draws on it. Under `tputui serve` a browser takes the place of the terminal.
    """
    if in_browser():
        return True
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    return terminal and os.environ.get("TERM") not in (None, "", "dumb")


def in_browser() -> bool:
    """Whether this process draws a page of `tputui serve`."""
    return _WEB_DRIVER in os.environ.get("TEXTUAL_DRIVER", "")


def restore_terminal() -> None:
    """Restores the terminal after a crash of the screen."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout.isatty():
            sys.stdout.write(_RESTORE)
            sys.stdout.flush()


def open_missing_streams() -> None:
    """Opens the null device for standard streams that are closed, as after `>&-`.

    Otherwise the next file that is opened, perhaps a journal, would become the standard output.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], object] | signal.Handlers, *numbers: int) -> Iterator[None]:
    """A context in which these signals have a handler. Only in the main thread."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def drop_stdout() -> None:
    """Redirects stdout to the null device after its reader is gone, so that nothing fails at exit."""
    _drop(sys.stdout)


def _drop(stream: TextIO) -> None:
    fd = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(fd, stream.fileno())
    os.close(fd)
