"""Where words go: data to stdout, narration to stderr, and what ends a command with words.

Everything that a user, a task or a log wrote is made inert first, so that no escape sequence reaches the terminal.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import signal
import sys
from typing import Any

import msgspec

from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.telemetry.codec import escape_surrogates

_WEB_DRIVER = "web_driver"
_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG."""

_RESTORE = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m"
"""Leaves the alternate screen, shows the cursor, ends mouse reports and bracketed paste, resets colours."""


_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")


DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of a stdout that takes nothing more, and of which the command is not to blame."""


class CommandError(Exception):
    """A command that cannot do what it was asked; the text is one sentence for a person."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def say(text: str) -> None:
    """Writes lines of data to stdout, at once, with control and invisible characters, and those that the encoding of
    stdout lacks, escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    shown = "\n".join(map(inert, text.split("\n")))
    sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def say_json(value: Any, *, indent: int = 0) -> None:
    """Writes a JSON value to stdout: on one line, or indented for a person who reads it in a terminal."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Names of files that are not UTF-8.
        encoded = msgspec.json.encode(escape_surrogates(msgspec.to_builtins(value)))
    text = (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    say(_NOT_ASCII.sub(_json_escaped, text))


def _json_escaped(found: re.Match[str]) -> str:
    """The character, or its JSON escape if a terminal obeys it or does not show it."""
    character = found[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


def narrate(text: str) -> None:
    """Writes a line about what is going on to stderr; a closed stderr must not end a command."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("\n".join(map(inert, f"tputui: {text}".split("\n"))) + "\n")
        sys.stderr.flush()


def has_screen() -> bool:
    """Whether a live screen can be drawn: the standard streams are a terminal that knows escape sequences.

    stderr is among them, since that is what Textual draws on. Under `tputui serve` a browser takes their place.
    """
    if in_browser():
        return True
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    return terminal and os.environ.get("TERM") not in (None, "", "dumb")


def in_browser() -> bool:
    """Whether this process draws a page of `tputui serve`."""
    return _WEB_DRIVER in os.environ.get("TEXTUAL_DRIVER", "")


def end_with_parent() -> None:
    """From now on the end of the parent, even by SIGKILL, is the end of this process."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() == 1:
        sys.exit(ExitCode.DONE)


def restore_terminal() -> None:
    """Gives a terminal back to the shell after a crash of the screen."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout.isatty():
            sys.stdout.write(_RESTORE)
            sys.stdout.flush()


def open_missing_streams() -> None:
    """Opens the null device in place of standard streams that are closed, as after `>&-`.

    Otherwise the next file that is opened, perhaps a journal, would be the standard output.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def drop_stdout() -> None:
    """After the reader of stdout went away: nothing more is to be written there, at exit neither."""
    fd = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(fd, sys.stdout.fileno())
    os.close(fd)
