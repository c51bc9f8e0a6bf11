"""A sparkline of the loss of each core: all of them on one scale, each cell the highest loss of its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tputui.state.chart_data import CoreColumn
from tputui.ui.charts.axis import NON_FINITE_MARK
from tputui.ui.charts.series_chart import BLOCKS
from tputui.ui.render.lines import Span, Tone

_LOG_FROM = 8.0
"""Ratio of the highest loss to the lowest one from which the scale is logarithmic: a loss falls fast at first."""

Cell = tuple[tuple[float, ...], frozenset[int]]
"""The highest finite loss of each core over the steps of a cell, NaN without one; and the cores with NaN or inf."""


class CoreHistory:
    """Draws the sparklines. Cells are kept between drawings, so that a new report changes the newest cell only."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int, int], Cell] = {}

    def sparklines(
        self, columns: Sequence[CoreColumn], cores: Sequence[int], width: int, height: int
    ) -> dict[int, list[list[Span]]]:
        """`height` lines of at most `width` cells for each core, top line first; empty without a finite loss."""
        cells = self._of(columns, width)
        known = [loss for highest, _ in cells for loss in highest if not math.isnan(loss)]
        if not known:
            return {}
        scale = _Scale(min(known), max(known), height * len(BLOCKS))
        return {core: _lines(cells, core, scale, height) for core in cores}

    def _of(self, columns: Sequence[CoreColumn], width: int) -> list[Cell]:
        # A power of two, so that the columns of a cell change rarely.
        group = 1 << (max(math.ceil(len(columns) / max(width, 1)), 1) - 1).bit_length()
        kept: dict[tuple[int, int, int], Cell] = {}
        for first in range(0, len(columns), group):
            members = columns[first : first + group]
            key = (members[0].first_step, members[-1].last_step, sum(column.num_steps for column in members))
            kept[key] = self._cells.get(key) or _cell(members)
        self._cells = kept
        return list(kept.values())


class _Scale:
    """Maps a loss to a level."""

    def __init__(self, low: float, high: float, levels: int) -> None:
        self._log = low > 0 and high / low >= _LOG_FROM
        self._low, self._levels = (math.log(low) if self._log else low), levels
        self._size = (math.log(high) if self._log else high) - self._low

    def level(self, loss: float) -> int:
        """1 for the lowest loss, up to the number of levels."""
        if not 0 < self._size < math.inf:
            return 1
        share = ((math.log(loss) if self._log else loss) - self._low) / self._size
        return 1 + min(int(share * self._levels), self._levels - 1)


def _cell(members: Sequence[CoreColumn]) -> Cell:
    bad = frozenset(core for column in members for core in column.bad_cores)
    if len(members) == 1:
        return tuple(members[0].means), bad
    by_core = zip(*(column.means for column in members), strict=False)
    highest = (max((loss for loss in losses if not math.isnan(loss)), default=math.nan) for losses in by_core)
    return tuple(highest), bad


def _lines(cells: Sequence[Cell], core: int, scale: _Scale, height: int) -> list[list[Span]]:
    rows = ["" for _ in range(height)]
    for highest, bad in cells:
        loss = highest[core] if core < len(highest) else math.nan
        missing = core in bad or math.isnan(loss)
        level = 0 if missing else scale.level(loss)
        for row in range(height):
            filled = min(max(level - (height - 1 - row) * len(BLOCKS), 0), len(BLOCKS))
            mark = BLOCKS[filled - 1] if filled else " "
            rows[row] += NON_FINITE_MARK if core in bad and row == height - 1 else mark
    return [_spans(row) for row in rows]


def _spans(row: str) -> list[Span]:
    tone: Tone = "band"
    parts = row.split(NON_FINITE_MARK)
    line = [Span(parts[0], tone)]
    for part in parts[1:]:
        line += [Span(NON_FINITE_MARK, "bad"), Span(part, tone)]
    return [span for span in line if span.text]
