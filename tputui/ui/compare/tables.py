"""The tables of the comparison: metrics of the runs, and differences between their configurations.

Each run is a column. If the columns do not fit, further tables below repeat the names and the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.compare.table import BEST, FigureRow, figure_rows, notes, raw_rows
from tputui.compare.verdict import METHOD
from tputui.config_diff import DiffRow
from tputui.ui.base.export import Figure, Figures
from tputui.ui.compare.compare_view import TONES, ComparedPart
from tputui.ui.render.lines import Cell, Line, Span, Tone, cells_of, clean, crop, fit, wrap
from tputui.ui.widgets.panel import Drawing, Panel

_GAP = 2
_MARGIN = 1


class GridRow(NamedTuple):
    """A row: its name and one cell per run."""

    name: Cell
    cells: Sequence[Cell]


def grid(titles: Sequence[Cell], rows: Sequence[GridRow], width: int) -> list[Line]:
    """Draws a table, with titles, in `width` cells; the first column is the base."""
    if not titles or width < 1:
        return []
    names = min(max((cells_of(row.name.text) for row in rows), default=0), max(width // 2, 6))
    room = width - _MARGIN - names
    most = max((room - 2 * _GAP) // 2, 1)
    widths = [
        min(max([cells_of(title.text), *(cells_of(row.cells[index].text) for row in rows)]), most)
        for index, title in enumerate(titles)
    ]
    lines: list[Line] = []
    for columns in _tables(widths, room):
        lines += [[]] if lines else []
        lines.append(_line(Cell(""), titles, columns, widths, names, width))
        lines += [_line(row.name, row.cells, columns, widths, names, width) for row in rows]
    return lines


def _tables(widths: Sequence[int], room: int) -> list[list[int]]:
    """The columns of each table; the base is in all of them."""
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
    line: Line = [Span(" " * _MARGIN), Span(text + " " * (names - cells_of(text)), name.tone)]
    for column in columns:
        text = crop(cells[column].text, widths[column])
        line += [Span(" " * (_GAP + widths[column] - cells_of(text))), Span(text, cells[column].tone)]
    return fit(line, width)


VALUE_WIDTH = 40
"""Maximum cells of a configuration value; exports are not cut."""

CHANGED = "\u2260"
"""Marks a value that differs from the base."""


class ComparedFiguresPanel(Panel[ComparedPart]):
    """Metrics of the runs."""

    key = "3"
    name_shown = "metrics"
    what = (
        "metrics of the runs, the base first: speed after warm-up, compile time, peak memory, final and best metrics; "
        f"speed is compared by the {METHOD}"
    )

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The table, and below it why values are missing."""
        rows = [GridRow(Cell(clean(row.name), "label"), _figures(row, part)) for row in figure_rows(part.comparison)]
        return Drawing([*grid(_titles(part), rows, width), *_notes(notes(part.comparison), width)])

    def figures(self) -> Figures:
        """The same values, not rounded."""
        if self._part is None:
            return Figures(("figure",), [])
        comparison = self._part.comparison
        rows: list[tuple[Figure, ...]] = [(name, *cells) for name, cells in raw_rows(comparison)]
        return Figures(("figure", *(run.run for run in comparison.runs)), rows)


class ComparedConfigPanel(Panel[ComparedPart]):
    """Configuration keys whose values differ, and what differs in the code."""

    key = "4"
    name_shown = "configuration"
    what = "configuration and code where they differ, the base first; \u2260 marks values that differ from the base"

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The configured keys, then the derived values and the code."""
        config = part.comparison.config
        number = len(config.rows)
        note = f"{number} of {number + config.num_equal} keys differ{'s' if number == 1 else ''}"
        rows: list[Line] = []
        if not config.rows:
            equal = f" all {config.num_equal} keys are equal" if config.num_equal else " no configuration was recorded"
            rows.append([Span(equal, "label")])
        rows += grid(_titles(part), [_keyed(row, part) for row in config.rows], width) if config.rows else []
        for title, found in (("Derived", part.comparison.plan), ("Code", part.comparison.code)):
            if found.rows:
                rows += [[], [Span(f" {title}", "title")]]
                rows += grid(_titles(part), [_keyed(row, part) for row in found.rows], width)
        return Drawing(rows, note=note)

    def figures(self) -> Figures:
        """The keys whose values differ, and what differs in the code."""
        if self._part is None:
            return Figures(("key",), [])
        comparison = self._part.comparison
        found = (*comparison.config.rows, *comparison.code.rows)
        rows: list[tuple[Figure, ...]] = [(row.key, *row.values) for row in found]
        return Figures(("key", *(run.run for run in comparison.runs)), rows)


def _titles(part: ComparedPart) -> list[Cell]:
    return [Cell(part.comparison.runs[run].label, TONES[run]) for run in part.view.order]


def _figures(row: FigureRow, part: ComparedPart) -> list[Cell]:
    cells = []
    for run in part.view.order:
        text = part.pretty(row.cells[run])
        if row.best == run:
            cells.append(Cell(f"{BEST} {text}", "good"))
        else:
            cells.append(Cell(text, _tone(text, run, part)))
    return cells


def _tone(text: str, run: int, part: ComparedPart) -> Tone:
    return "dim" if text == fmt.UNKNOWN else "strong" if run == part.view.chosen else "plain"


def _keyed(row: DiffRow, part: ComparedPart) -> GridRow:
    cells = []
    for run in part.view.order:
        changed = row.changed[run]
        text = crop(clean(row.values[run]), VALUE_WIDTH)
        cells.append(Cell(f"{CHANGED} {text}", "strong") if changed else Cell(text, "dim"))
    return GridRow(Cell(clean(row.key), "label"), cells)


def _notes(sentences: Sequence[str], width: int) -> list[Line]:
    pieces = [piece for sentence in sentences for piece in wrap(clean(sentence), max(width - 2, 1))]
    return [[], *([Span(f" {piece}", "dim")] for piece in pieces)] if pieces else []
