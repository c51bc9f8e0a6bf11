"""Pixels as text: a half block in every cell, its upper pixel the foreground and its lower one the background.

A cell is about twice as high as wide, so half of one is about square and a picture keeps its shape. Where there is no
colour, a cell is a character as dense as its two pixels are bright. Pure; must know neither files nor terminals.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from tputui.ui.render.lines import RGB, Colours, Line, Span

UPPER_HALF = "\u2580"
RAMP = " .:-=+*#%@"
"""From black to white, for light text on a dark ground."""
ENLARGED_PX = 32
"""A small picture is enlarged by a whole factor, to no more than about this many pixels."""


class Pixels(NamedTuple):
    """A picture."""

    width: int
    height: int
    rgb: bytes
    """Three bytes a pixel, row by row from the top."""


def fitted(width: int, height: int, room_width: int, room_height: int) -> tuple[int, int]:
    """The size in pixels at which a picture is shown in a room: shrunk with its shape kept, or enlarged by a whole
    factor; at least one pixel."""
    if width <= room_width and height <= room_height:
        factor = min(room_width // width, room_height // height, max(ENLARGED_PX // max(width, height), 1))
        return width * factor, height * factor
    share = min(room_width / width, room_height / height)
    return max(round(width * share), 1), max(round(height * share), 1)


def coloured(pixels: Pixels) -> list[Line]:
    """A line for every two rows of pixels; equal neighbours share a span."""
    lines: list[Line] = []
    for y in range(0, pixels.height, 2):
        upper, lower = _row(pixels, y), _row(pixels, y + 1)
        pairs = zip(upper, lower, strict=True) if lower else [(colour, None) for colour in upper]
        lines.append([_span(colours, len(list(equal))) for colours, equal in groupby(pairs)])
    return lines


def grey(pixels: Pixels) -> list[Line]:
    """The same lines without colour."""
    lines: list[Line] = []
    for y in range(0, pixels.height, 2):
        upper = _row(pixels, y)
        lower = _row(pixels, y + 1) or upper
        text = "".join(_character(pair) for pair in zip(upper, lower, strict=True))
        lines.append([Span(text)])
    return lines


def _row(pixels: Pixels, y: int) -> list[RGB]:
    """The colours of a row; none below the last one."""
    row = pixels.rgb[3 * pixels.width * y : 3 * pixels.width * (y + 1)]
    return list(zip(row[0::3], row[1::3], row[2::3], strict=True))


def _span(colours: Colours, count: int) -> Span:
    return Span(UPPER_HALF * count, "plain", colours)


def _character(pair: tuple[RGB, RGB]) -> str:
    light = sum(_luminance(colour) for colour in pair) / len(pair)
    return RAMP[min(int(light / 256 * len(RAMP)), len(RAMP) - 1)]


def _luminance(colour: RGB) -> float:
    """How bright a colour is to the eye, 0 to 255, by the weights of Rec. 709."""
    red, green, blue = colour
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
