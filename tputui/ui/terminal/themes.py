"""The themes: dark, light, colour-blind safe, and one without colours.

A meaning never rests on a colour alone: there is always a word or a sign too.

The colours of terminals with a palette of 256, which ssh and tmux show since they do not pass COLORTERM on.

Rich rounds each channel by itself, so a dark bluish ground becomes black or navy, and light grey text lavender. Here a
colour becomes the one of the palette that looks nearest, by its distance in CIELAB.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping
from typing import NamedTuple

from rich.color import Color as RichColor
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, rgb_to_lab
from textual.filter import LineFilter
from textual.theme import Theme

from tputui.ui.render.lines import Ramp
from tputui.ui.terminal.picture_protocol import Pictures

VARIABLES: dict[str, str] = {
    "faint": "42%",
    "soft": "65%",
    "faint-style": "none",
    "title-style": "bold",
    "info-style": "none",
    "hit-style": "bold",
    "hit-ground": "#5b4a12",
    "chosen-ground": "#24405c",
    "chosen-style": "none",
    "band-ground": "#203a4e",
}
"""Variables that the style sheet of the tones needs besides colours, with the values of the dark theme."""

DARK = Theme(
    name="tputui-dark",
    primary="#5ab4f0",
    secondary="#7fd1c7",
    accent="#5ab4f0",
    success="#3ecf9b",
    warning="#f0b429",
    error="#ff7a5c",
    foreground="#dfe6ee",
    background="#0e1218",
    surface="#161c25",
    panel="#1c2430",
    dark=True,
    variables=VARIABLES,
)

LIGHT = Theme(
    name="tputui-light",
    primary="#0a5fb4",
    secondary="#0b7285",
    accent="#0a5fb4",
    success="#16703c",
    warning="#8a5a00",
    error="#b3261e",
    foreground="#1a2330",
    background="#fbfbf8",
    surface="#efefe9",
    panel="#e6e6df",
    dark=False,
    variables={
        **VARIABLES,
        "faint": "62%",
        "soft": "78%",
        "hit-ground": "#ffe58a",
        "chosen-ground": "#cfe3f7",
        "band-ground": "#c6d9e9",
    },
)

COLOUR_BLIND = Theme(
    name="tputui-colour-blind",
    primary="#8fd3ff",
    secondary="#b9c7d6",
    accent="#8fd3ff",
    success="#4aa3ff",
    warning="#f6f0a0",
    error="#ff7a1a",
    foreground="#e8edf3",
    background="#0b0e14",
    surface="#141a24",
    panel="#1a2230",
    dark=True,
    variables={**VARIABLES, "faint": "50%", "band-ground": "#2c3f4f"},
)
"""Only blue, yellow and orange, which also differ in lightness: distinguishable with every colour blindness."""

MONO = Theme(
    name="tputui-mono",
    primary="#ffffff",
    secondary="#ffffff",
    accent="#ffffff",
    success="#ffffff",
    warning="#ffffff",
    error="#ffffff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    dark=True,
    variables={
        **VARIABLES,
        "faint": "100%",
        "soft": "100%",
        "faint-style": "dim",
        "title-style": "none",
        "hit-style": "bold underline",
        "hit-ground": "#000000",
        "chosen-ground": "#000000",
        "chosen-style": "reverse",
        "band-ground": "#000000",
        **{f"block-cursor-{part}background": "#ffffff" for part in ("", "blurred-")},
        **{f"block-cursor-{part}foreground": "#000000" for part in ("", "blurred-")},
        "input-cursor-background": "#ffffff",
        "input-cursor-foreground": "#000000",
        "input-selection-background": "#000000",
        "block-hover-background": "#000000",
    },
)
"""The terminal's own two colours, with bold, dim and reverse: the output filter removes colours and turns a white
background into reverse video."""

THEMES: dict[str, Theme] = {"dark": DARK, "light": LIGHT, "colour-blind safe": COLOUR_BLIND, "mono": MONO}
"""By the name shown to the user, in the order of the theme key."""


@functools.lru_cache(maxsize=16)
def _ramp(below: str, middle: str, above: str, text: str) -> Ramp:
    return Ramp(*(Color.parse(colour).rgb for colour in (below, middle, above, text)))


def ramp_of(theme: Theme) -> Ramp:
    """The colours of maps: the primary colour below the median, the background at it, the colour of errors above."""
    background = theme.background or "#000000"
    return _ramp(theme.primary, background, theme.error or theme.primary, theme.foreground or "#ffffff")


def title_of(name: str) -> str:
    """The name of a theme shown to the user."""
    return next((title for title, theme in THEMES.items() if theme.name == name), name)


def after(name: str) -> Theme:
    """The theme after the one of this name."""
    themes = list(THEMES.values())
    indices = [index for index, theme in enumerate(themes) if theme.name == name]
    return themes[(indices[0] + 1) % len(themes)] if indices else DARK


_ASCII_TERMINALS = frozenset({"dumb", "linux", "vt100", "vt102", "vt220"})
"""Terminals whose font has neither braille nor most signs."""
_COERCED = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
"""Values of LC_CTYPE that Python itself sets for the C locale and for missing ones; then LANG is the user's choice."""


_ARROWS = str.maketrans({"\u2190": "<-", "\u2192": "->", "\u2191": "up", "\u2193": "down"})


class Capabilities(NamedTuple):
    """What the terminal can show."""

    ascii_only: bool = False
    colour: bool = True
    pictures: Pictures = Pictures("blocks", "not requested")


def shows_no_colour(app: object) -> bool:
    """Whether a curve and a ground look alike, because colours are missing."""
    return bool(getattr(app, "without_colour", False))


def draws_characters(app: object) -> bool:
    """Whether pictures must be drawn with ASCII characters, because colours or half blocks are missing."""
    return bool(getattr(app, "ascii_only", False)) or shows_no_colour(app)


def paints_grounds(app: object) -> bool:
    """Whether backgrounds in shades of a colour can be drawn; 16 colours are not enough."""
    return bool(getattr(app, "has_many_colours", False)) and not draws_characters(app)


def key_names(app: object, text: str) -> str:
    """Key names for the user: arrows in words if only ASCII is available, since `<`, `>` and `v` are keys."""
    return text.translate(_ARROWS) if getattr(app, "ascii_only", False) else text


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


_LEVELS = (0, 95, 135, 175, 215, 255)
"""Values of a channel in the cube of 6 x 6 x 6 colours, the numbers 16 to 231."""
_GREYS = tuple(range(8, 248, 10))
"""The greys, the numbers 232 to 255."""


class PaletteFilter(LineFilter):
    """Replaces the colours of a line by those of the palette."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments in colours of the palette."""
        return [
            Segment(text, None if style is None else _in_palette(style), control) for text, style, control in segments
        ]


@functools.lru_cache(maxsize=4_096)
def _in_palette(style: Style) -> Style:
    colour, ground = (of and _numbered(of) for of in (style.color, style.bgcolor))
    return style + Style.from_color(colour, ground)


def _numbered(colour: RichColor) -> RichColor:
    return colour if colour.triplet is None else RichColor.from_ansi(nearest(colour.triplet))


@functools.lru_cache(maxsize=16_384)
def nearest(colour: ColorTriplet) -> int:
    """The number of the colour of the palette that looks nearest."""
    wanted = _lab(colour)
    grey = bisect.bisect_left(_GREYS, round(sum(colour) / 3))
    candidates = {232 + at: ColorTriplet(*[_GREYS[at]] * 3) for at in (grey - 1, grey) if 0 <= at < len(_GREYS)}
    red, green, blue = (_levels_around(channel) for channel in colour)
    for r in red:
        for g in green:
            for b in blue:
                candidates[16 + 36 * r + 6 * g + b] = ColorTriplet(_LEVELS[r], _LEVELS[g], _LEVELS[b])
    return min(
        candidates, key=lambda number: sum((a - b) ** 2 for a, b in zip(_lab(candidates[number]), wanted, strict=True))
    )


def _levels_around(channel: int) -> range:
    above = bisect.bisect_left(_LEVELS, channel)
    return range(max(above - 1, 0), above + 1)


def _lab(colour: ColorTriplet) -> tuple[float, float, float]:
    lab = rgb_to_lab(Color(*colour))
    return lab.L, lab.a, lab.b
