"""Canvases that lie over each other, as lines of spans. Pure.

A cell has one colour in a terminal, so it shows the topmost layer that has dots in it. A band gives way around a line:
beside the line its dots stand only where its edge is in the same cell, so that the line stays thin and no edge hides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tputui.ui.render.braille import ABOVE, BELOW, Canvas, text_of
from tputui.ui.render.lines import Line, Span, Tone

GUIDE = "\u250a"
"""Stands in the empty cells of a guide."""

_RUN = re.compile(rb"(.)\1*", re.DOTALL)


class Layer(NamedTuple):
    """A canvas and what it means."""

    canvas: Canvas
    tone: Tone


def compose(layers: Sequence[Layer], *, band: Layer | None = None, guide: int | None = None) -> list[Line]:
    """The layers as lines, lowest first, over the band; `guide` is a cell column that is shown where it is empty."""
    tones: list[Tone] = ["plain"]
    rows, owners = _blank(band, layers)
    if band is not None:
        tones.append(band.tone)
        for row, cells in enumerate(band.canvas.cells()):
            rows[row][:] = cells
            owners[row][:] = bytes(map(bool, cells))
    under = [bytes(row) for row in rows]
    for layer in layers:
        tones.append(layer.tone)
        _lay(layer.canvas, rows, owners, under, len(tones) - 1)
    return [_line(cells, owner, tones, guide) for cells, owner in zip(rows, owners, strict=True)]


def _blank(band: Layer | None, layers: Sequence[Layer]) -> tuple[list[bytearray], list[bytearray]]:
    canvas = band.canvas if band is not None else layers[0].canvas
    return tuple([bytearray(canvas.width) for _ in range(canvas.height)] for _ in range(2))  # type: ignore[return-value]


def _lay(canvas: Canvas, rows: list[bytearray], owners: list[bytearray], under: Sequence[bytes], owner: int) -> None:
    """Lays a canvas on top."""
    last = len(rows) - 1
    for row, cells in enumerate(canvas.cells()):
        if not any(cells):
            continue
        its_rows, its_owners = rows[row], owners[row]
        for column, bits in enumerate(cells):
            if not bits:
                continue
            behind = under[row][column]
            if behind and row and under[row - 1][column]:
                behind &= ~ABOVE[bits]
            if behind and row < last and under[row + 1][column]:
                behind &= ~BELOW[bits]
            its_rows[column] = bits | behind
            its_owners[column] = owner


def _line(cells: bytearray, owner: bytearray, tones: Sequence[Tone], guide: int | None) -> Line:
    """A row of cells, neighbours of one tone in one span."""
    text = text_of(cells)
    if guide is not None and 0 <= guide < len(cells) and not cells[guide]:
        owner[guide], tones = len(tones), [*tones, "label"]
        text = f"{text[:guide]}{GUIDE}{text[guide + 1 :]}"
    runs = [run.span() for run in _RUN.finditer(owner)]
    return [Span(text[start:end], tones[owner[start]]) for start, end in runs]
