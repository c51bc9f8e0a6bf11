"""The capabilities of the terminal, read from its environment: colours, and characters beyond ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

_ASCII_TERMINALS = frozenset({"dumb", "linux", "vt100", "vt102", "vt220"})
"""Terminals whose font holds neither braille nor most signs."""
_COERCED = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
"""What Python puts into LC_CTYPE by itself, in the C locale and in one that is not installed: the user said LANG."""


_ARROWS = str.maketrans({"\u2190": "left", "\u2192": "right", "\u2191": "up", "\u2193": "down"})


class Capabilities(NamedTuple):
    """How the screen is to be drawn."""

    ascii_only: bool = False
    colour: bool = True


@runtime_checkable
class HasCapabilities(Protocol):
    """The application, as screens see it that draw pictures."""

    ascii_only: bool

    @property
    def without_colour(self) -> bool: ...


def draws_characters(app: object) -> bool:
    """Whether pictures and maps are to be made of characters, since there is no colour, or no half block."""
    return isinstance(app, HasCapabilities) and (app.ascii_only or app.without_colour)


def keys_told(app: object, text: str) -> str:
    """Keys as a person reads them: arrows in words where there is ASCII alone, since `<`, `>` and `v` are keys."""
    return text.translate(_ARROWS) if isinstance(app, HasCapabilities) and app.ascii_only else text


def looks_of(environ: Mapping[str, str], *, ascii_only: bool = False) -> Capabilities:
    """How to draw in this environment; `ascii_only` is what the user asked for."""
    return Capabilities(ascii_only or not knows_unicode(environ), "NO_COLOR" not in environ)


def knows_unicode(environ: Mapping[str, str]) -> bool:
    """Whether the terminal shows characters beyond ASCII. Where nothing is said it does; a browser always does."""
    if "web_driver" in environ.get("TEXTUAL_DRIVER", ""):
        return True
    if environ.get("TERM", "") in _ASCII_TERMINALS:
        return False
    locale = _locale(environ)
    return not locale or locale.partition("@")[0].lower().replace("-", "").endswith("utf8")


def _locale(environ: Mapping[str, str]) -> str:
    """The locale that says which characters there are; empty where nothing does."""
    ctype, lang = environ.get("LC_CTYPE", ""), environ.get("LANG", "")
    if ctype in _COERCED and lang:
        ctype = ""
    return environ.get("LC_ALL", "") or ctype or lang
