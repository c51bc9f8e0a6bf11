"""The capabilities of the terminal, read from its environment: colours, and characters beyond ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from tputui.ui.terminal.picture_protocol import Pictures

_ASCII_TERMINALS = frozenset({"dumb", "linux", "vt100", "vt102", "vt220"})
"""Terminals whose font has neither braille nor most signs."""
_COERCED = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
"""Values of LC_CTYPE that Python itself sets for the C locale and for missing ones; then LANG is the user's choice."""


_ARROWS = str.maketrans({"\u2190": "left", "\u2192": "right", "\u2191": "up", "\u2193": "down"})


class Capabilities(NamedTuple):
    """What the terminal can show."""

    ascii_only: bool = False
    colour: bool = True
    pictures: Pictures = Pictures("blocks", "not requested")


@runtime_checkable
class HasCapabilities(Protocol):
    """An application that knows the capabilities of its terminal."""

    ascii_only: bool

    @property
    def without_colour(self) -> bool: ...

    @property
    def has_many_colours(self) -> bool: ...


def draws_characters(app: object) -> bool:
    """Whether pictures must be drawn with ASCII characters, because colours or half blocks are missing."""
    return isinstance(app, HasCapabilities) and (app.ascii_only or app.without_colour)


def paints_grounds(app: object) -> bool:
    """Whether backgrounds in shades of a colour can be drawn; 16 colours are not enough."""
    return isinstance(app, HasCapabilities) and app.has_many_colours and not draws_characters(app)


def key_names(app: object, text: str) -> str:
    """Key names for the user: arrows in words if only ASCII is available, since `<`, `>` and `v` are keys."""
    return text.translate(_ARROWS) if isinstance(app, HasCapabilities) and app.ascii_only else text


def capabilities_of(environ: Mapping[str, str], *, ascii_only: bool = False) -> Capabilities:
    """The capabilities by the environment variables; `ascii_only` is the option of the user."""
    return Capabilities(ascii_only or not supports_unicode(environ), "NO_COLOR" not in environ)


def supports_unicode(environ: Mapping[str, str]) -> bool:
    """Whether the terminal shows characters beyond ASCII. True if no variable is set, and always in a browser."""
    if "web_driver" in environ.get("TEXTUAL_DRIVER", ""):
        return True
    if environ.get("TERM", "") in _ASCII_TERMINALS:
        return False
    locale = _locale(environ)
    return not locale or locale.partition("@")[0].lower().replace("-", "").endswith("utf8")


def _locale(environ: Mapping[str, str]) -> str:
    """The locale of the character encoding; empty if no variable is set."""
    ctype, lang = environ.get("LC_CTYPE", ""), environ.get("LANG", "")
    if ctype in _COERCED and lang:
        ctype = ""
    return environ.get("LC_ALL", "") or ctype or lang
