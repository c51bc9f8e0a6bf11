"""The colours of terminals with a palette of 256, which ssh and tmux show since they do not pass COLORTERM on.

Rich rounds each channel by itself, so a dark bluish ground becomes black or navy, and light grey text lavender. Here a
colour becomes the one of the palette that looks nearest, by its distance in CIELAB.
"""

from __future__ import annotations

import bisect
import functools

from rich.color import Color as RichColor
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.color import Color, rgb_to_lab
from textual.filter import LineFilter

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
