"""Tables with a column a run: where they do not all fit, further tables below, each with the names and the base again.

Pure. A cell is cut only where the names, the base and one more column would not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tputui.ui.render.lines import Line, Span, crop, fit
from tputui.ui.render.table import Cell

_GAP = 2
_MARGIN = 1


class GridRow(NamedTuple):
    """A name and a cell a column."""

    name: Cell
    cells: Sequence[Cell]


def grid(titles: Sequence[Cell], rows: Sequence[GridRow], width: int) -> list[Line]:
    """The table in `width` cells, the first column being the base, heads included."""
    if not titles or width < 1:
        return []
    names = min(max((cell_len(row.name.text) for row in rows), default=0), max(width // 2, 6))
    room = width - _MARGIN - names
    most = max((room - 2 * _GAP) // 2, 1)
    widths = [
        min(max([cell_len(title.text), *(cell_len(row.cells[index].text) for row in rows)]), most)
        for index, title in enumerate(titles)
    ]
    lines: list[Line] = []
    for columns in _tables(widths, room):
        lines += [[]] if lines else []
        lines.append(_line(Cell(""), titles, columns, widths, names, width))
        lines += [_line(row.name, row.cells, columns, widths, names, width) for row in rows]
    return lines


def _tables(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns of each table; the first column is in all of them."""
    tables: list[list[int]] = [[0]]
    left = room - widths[0] - _GAP
    for column in range(1, len(widths)):
        if widths[column] + _GAP > left and len(tables[-1]) > 1:
            tables.append([0])
            left = room - widths[0] - _GAP
        tables[-1].append(column)
        left -= widths[column] + _GAP
    return tables


def _line(
    name: Cell, cells: Sequence[Cell], columns: Sequence[int], widths: Sequence[int], names: int, width: int
) -> Line:
    text = crop(name.text, names)
    line: Line = [Span(" " * _MARGIN), Span(text + " " * (names - cell_len(text)), name.tone)]
    for column in columns:
        text = crop(cells[column].text, widths[column])
        line += [Span(" " * (_GAP + widths[column] - cell_len(text))), Span(text, cells[column].tone)]
    return fit(line, width)
