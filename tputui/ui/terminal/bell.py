"""The bell and the notification of a terminal, as control sequences. They reach the user's own terminal through ssh.

OSC 9 and OSC 777 are the two common forms of notifications; a terminal ignores the one that it does not know. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from tputui.formatting import inert

BEL = "\x07"
CHARS_MAX = 200
FRESH_S = 10.0
"""An alert that is older when a viewer reads it rings no bell: the viewer was opened later, or reads a recording."""
_PLAIN = frozenset({"", "dumb", "linux", "vt100", "vt102", "vt220"})
"""Terminals that would show such sequences as text."""
_BY_9 = ("kitty", "wezterm", "ghostty", "iterm")
_BY_777 = ("rxvt", "foot")
"""Terminals known to have one of the forms; both would be two notifications."""


def notification(text: str, environ: Mapping[str, str]) -> str:
    """The sequences that ring the bell and show a notification, as far as the terminal can."""
    term = environ.get("TERM", "").lower()
    if term in _PLAIN:
        return BEL
    names = f"{term} {environ.get('TERM_PROGRAM', '').lower()}"
    by_9, by_777 = (any(name in names for name in programs) for programs in (_BY_9, _BY_777))
    text = _plain(text)
    forms = "" if by_777 else f"\x1b]9;tputui: {text}{BEL}"
    forms += "" if by_9 else f"\x1b]777;notify;tputui;{text}{BEL}"
    if environ.get("TMUX"):
        # tmux rings by itself; it passes the rest on if its option allow-passthrough is on.
        forms = f"\x1bPtmux;{forms.replace(chr(27), chr(27) * 2)}\x1b\\"
    return BEL + forms


def is_fresh(t: float, now: float) -> bool:
    """Whether an alert of the unix time `t` may ring at `now`."""
    return abs(now - t) <= FRESH_S


def _plain(text: str) -> str:
    """The text without control characters and without semicolons, which separate the parts of a sequence."""
    return inert(text).replace(";", ",")[:CHARS_MAX]
