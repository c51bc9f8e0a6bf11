"""Which protocol for pictures the terminal has: by its environment, or by a query with a bounded wait.

The query must run before Textual reads the terminal. Only a terminal that may well have a protocol is queried, because
an answer that comes too late would be read as keys.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

PictureProtocol = Literal["blocks", "kitty", "iterm", "sixel"]
PICTURE_MODES = ("auto", "kitty", "iterm", "sixel", "blocks")
"""The values of `--pictures`."""
PICTURES_HELP = "how the terminal shows pictures (default auto: its own protocol if known, else half blocks)"

QUERY_S = 0.5
"""Maximum wait for the answer of a terminal: more than a round trip around the world."""
TMUX_S = 1.0
"""Maximum wait for the answer of tmux."""
ANSWER_BYTES_MAX = 4096

_QUERY = b"\x1b[>q\x1b[c"
"""Requests the name of the terminal, then its features. Every terminal answers the second request."""
_FEATURES = re.compile(rb"\x1b\[\?([0-9;]+)c")
_NAME = re.compile(rb"\x1bP>\|([^\x1b]{1,200})\x1b\\")
_SIXEL_FEATURE = b"4"
_TMUX_FORMAT = "#{client_termname} #{client_termfeatures} #{allow-passthrough}"

_BY_PROGRAM: dict[str, PictureProtocol] = {"ghostty": "kitty", "iTerm.app": "iterm", "WezTerm": "iterm"}
"""By TERM_PROGRAM. WezTerm has kitty's protocol too, but not its placeholders."""
_WITH_PLACEHOLDERS = frozenset({"xterm-kitty", "xterm-ghostty"})
"""TERM of terminals with kitty's placeholders."""
_KITTY_VERSION = re.compile(rb"kitty\((\d{1,4})\.(\d{1,4})")
_KITTY_FIRST = (0, 28)
"""The first version of kitty with placeholders; distributions still ship older ones."""
_BY_NAME: dict[bytes, PictureProtocol] = {
    b"ghostty": "kitty",
    b"iterm2": "iterm",
    b"wezterm": "iterm",
}
"""By the start of the name that a terminal answers."""
_QUERIED_PROGRAMS = frozenset({"vscode", "mintty", "contour", "rio", "WarpTerminal"})
_QUERIED_TERMS = ("xterm-kitty", "foot", "mlterm", "contour", "yaft", "xterm-direct", "vt340")
_QUERIED_VARIABLES = (
    "KITTY_WINDOW_ID",
    "XTERM_VERSION",
    "VTE_VERSION",
    "KONSOLE_VERSION",
    "WT_SESSION",
    "SSH_CONNECTION",
    "SSH_TTY",
)


class Pictures(NamedTuple):
    """How pictures are shown."""

    protocol: PictureProtocol
    why: str
    """The reason, for `tputui doctor`."""
    in_tmux: bool = False
    """Whether sequences must be passed through tmux."""


def terminal_fd() -> int | None:
    """The terminal that Textual reads from, None unless it also writes to one."""
    if sys.__stdin__ is None or sys.__stderr__ is None:
        return None
    try:
        return sys.__stdin__.fileno() if sys.__stdin__.isatty() and sys.__stderr__.isatty() else None
    except (OSError, ValueError):
        return None


def detect(
    mode: str,
    environ: Mapping[str, str],
    *,
    fd: int | None,
    ask_tmux: Callable[[], str] | None = None,
) -> Pictures:
    """The protocol to use. `fd` is the terminal, None if there is none; `mode` is one of `PICTURE_MODES`."""
    if fd is None:
        return Pictures("blocks", "no terminal")
    if "web_driver" in environ.get("TEXTUAL_DRIVER", ""):
        return Pictures("blocks", "in a browser")
    if environ.get("TERM", "") in ("", "dumb", "linux"):
        return Pictures("blocks", f"TERM={environ.get('TERM') or 'unset'}")
    if "NO_COLOR" in environ:
        return Pictures("blocks", "NO_COLOR is set")
    in_tmux = bool(environ.get("TMUX"))
    for protocol in ("kitty", "iterm", "sixel", "blocks"):
        if mode == protocol:
            return Pictures(protocol, "as requested by --pictures", in_tmux)
    if in_tmux:
        return _inside_tmux((ask_tmux or _tmux_answer)())
    if environ.get("STY") or environ["TERM"].startswith(("screen", "tmux")):
        return Pictures("blocks", "screen and tmux pass no pictures on")
    return _by_environment(environ) or _by_query(environ, fd)


def _by_environment(environ: Mapping[str, str]) -> Pictures | None:
    program = environ.get("TERM_PROGRAM", "")
    if environ["TERM"] == "xterm-ghostty":
        return Pictures("kitty", "TERM=xterm-ghostty")
    if program in _BY_PROGRAM:
        return Pictures(_BY_PROGRAM[program], f"TERM_PROGRAM={program}")
    if environ.get("LC_TERMINAL") == "iTerm2":
        return Pictures("iterm", "LC_TERMINAL=iTerm2")
    return None


def _by_query(environ: Mapping[str, str], fd: int) -> Pictures:
    is_candidate = (
        environ.get("TERM_PROGRAM", "") in _QUERIED_PROGRAMS
        or environ["TERM"].startswith(_QUERIED_TERMS)
        or any(environ.get(name) for name in _QUERIED_VARIABLES)
    )
    if not is_candidate:
        return Pictures("blocks", "unknown terminal; --pictures chooses a protocol")
    return by_answer(query(fd, QUERY_S))


def by_answer(answer: bytes) -> Pictures:
    """The protocol by the answer to the query."""
    features = _FEATURES.search(answer)
    if features is None:
        return Pictures("blocks", f"the terminal did not answer within {QUERY_S:g} s")
    name = _NAME.search(answer)
    if name is not None:
        if version := _KITTY_VERSION.match(name.group(1)):
            major, minor = (int(part) for part in version.groups())
            if (major, minor) < _KITTY_FIRST:
                return Pictures("blocks", f"kitty {major}.{minor} is older than {_KITTY_FIRST[0]}.{_KITTY_FIRST[1]}")
            return Pictures("kitty", f"the terminal is kitty {major}.{minor}")
        for start, protocol in _BY_NAME.items():
            if name.group(1).lower().startswith(start):
                return Pictures(protocol, f"the terminal is {start.decode()}")
    if _SIXEL_FEATURE in features.group(1).split(b";")[1:]:
        return Pictures("sixel", "the terminal reports sixel")
    return Pictures("blocks", "the terminal reports no protocol for pictures")


def query(fd: int, timeout_s: float) -> bytes:
    """The answer of the terminal, without echo; incomplete if it takes too long."""
    # Needed only here: every command imports this module for its options.
    import select
    import termios
    import tty

    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        return b""
    answer = b""
    try:
        tty.setcbreak(fd, termios.TCSANOW)
        os.write(fd, _QUERY)
        deadline = time.monotonic() + timeout_s
        while not _FEATURES.search(answer) and len(answer) < ANSWER_BYTES_MAX:
            if not select.select([fd], [], [], max(deadline - time.monotonic(), 0))[0]:
                break
            piece = os.read(fd, 1024)
            if not piece:
                break
            answer += piece
    except OSError:
        return b""
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
    return answer


def _inside_tmux(answer: str) -> Pictures:
    """By what tmux reports of the terminal around it: `xterm-kitty RGB,title on`."""
    term, _, answered = answer.partition(" ")
    features, _, passthrough = answered.partition(" ")
    if term in _WITH_PLACEHOLDERS:
        if passthrough in ("on", "all", "1"):
            return Pictures("kitty", f"tmux passes pictures on to {term}", in_tmux=True)
        return Pictures(
            "blocks", f"tmux inside {term} passes no pictures on: set -g allow-passthrough on", in_tmux=True
        )
    if "sixel" in features.split(","):
        return Pictures("sixel", "tmux and the terminal around it have sixel", in_tmux=True)
    return Pictures("blocks", "tmux reports no pictures for the terminal around it", in_tmux=True)


def _tmux_answer() -> str:
    import subprocess  # not needed outside tmux

    try:
        asked = subprocess.run(
            ["tmux", "display-message", "-p", _TMUX_FORMAT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TMUX_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return asked.stdout.strip()
