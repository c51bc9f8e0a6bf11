"""Tables as lines of spans: columns are as wide as their content, the last ones are omitted if there is no room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tputui.ui.render.lines import Line, Span, Tone, crop

GAPS = (2, 1)
"""Cells between two columns: the smaller gap is used if more columns fit."""


class Cell(NamedTuple):
    """A text in a table."""

    text: str
    tone: Tone = "plain"


class Table(NamedTuple):
    """A head, rows below it, and the number of omitted columns."""

    head: Line
    rows: list[Line]
    num_hidden: int


def align(titles: Sequence[str], rows: Sequence[Sequence[Cell]], width: int, *, left: frozenset[int]) -> Table:
    """Align cells to the right, or to the left in the columns `left`; last columns that do not fit are omitted."""
    widths = [
        max([cell_len(title), *(cell_len(row[index].text) for row in rows)]) for index, title in enumerate(titles)
    ]
    shown, gap = max((_that_fit(widths, width, gap), gap) for gap in GAPS)
    head = _line([Cell(title, "label") for title in titles[:shown]], widths, left, gap)
    return Table(head, [_line(row[:shown], widths, left, gap) for row in rows], len(titles) - shown)


def stack(titles: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[Table]:
    """As many tables as needed to show every column; each begins with the first column, aligned to the left."""
    first = align(titles, rows, width, left=frozenset({0}))
    tables, shown = [first], len(titles) - first.num_hidden
    while shown < len(titles):
        rest = [[row[0], *row[shown:]] for row in rows]
        more = align([titles[0], *titles[shown:]], rest, width, left=frozenset({0}))
        tables.append(more)
        shown = len(titles) - more.num_hidden if more.num_hidden < len(titles) - shown else len(titles)
    return tables


def _that_fit(widths: Sequence[int], width: int, gap: int) -> int:
    used = 1
    for index, each in enumerate(widths):
        used += each
        if used > width and index:
            return index
        used += gap
    return len(widths)


def _line(cells: Sequence[Cell], widths: Sequence[int], left: frozenset[int], gap: int) -> Line:
    line: Line = [Span(" ")]
    for index, cell in enumerate(cells):
        text = crop(cell.text, widths[index])
        pad = " " * (widths[index] - cell_len(text))
        line.append(Span(text + pad if index in left else pad + text, cell.tone))
        line.append(Span(" " * gap))
    return line[:-1]
