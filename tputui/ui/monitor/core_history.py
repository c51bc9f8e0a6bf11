"""A sparkline of the loss of each core: all of them on one scale, each cell the highest loss of its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tputui.state.chart_data import CoreColumn, share_between
from tputui.ui.charts.axis import NON_FINITE_MARK
from tputui.ui.charts.series_chart import BLOCKS
from tputui.ui.render.lines import Span

_LOG_FROM = 8.0
"""Ratio of the highest loss to the lowest one from which the scale is logarithmic: a loss falls fast at first."""

Key = tuple[int, int, int]
"""First and last step of a cell, and the number of its steps that were sampled."""


class _Cell(NamedTuple):
    """The losses of a few consecutive columns."""

    highest: tuple[float, ...]
    """The highest finite loss of each core, NaN without one."""
    bad: frozenset[int]
    """Cores with NaN or inf."""
    low: float
    high: float
    """Bounds of `highest`; infinite without a finite loss."""


class _Scale(NamedTuple):
    """Maps a loss to a level."""

    low: float
    high: float
    log: bool
    levels: int

    @classmethod
    def of(cls, low: float, high: float, levels: int) -> _Scale:
        """The scale of losses between two bounds. A logarithmic one begins at a power of two, so that it changes
        rarely while the loss falls."""
        if low > 0 and high / low >= _LOG_FROM:
            return cls(math.floor(math.log2(low)), math.log2(high), log=True, levels=levels)
        return cls(low, high, log=False, levels=levels)

    def level(self, loss: float) -> int:
        """1 for the lowest loss, up to the number of levels."""
        if not self.low < self.high:
            return 1
        share = share_between(math.log2(loss) if self.log else loss, self.low, self.high)
        return 1 + min(int(share * self.levels), self.levels - 1)


class CoreHistory:
    """Draws the sparklines. Cells are kept between drawings, so that a new report changes the newest cell only."""

    def __init__(self) -> None:
        self._cells: dict[Key, _Cell] = {}
        self._scale: _Scale | None = None
        self._blocks: dict[Key, list[str]] = {}
        """Each cell as drawn with the scale: for each core one block per line, the top one first."""

    def sparklines(
        self, columns: Sequence[CoreColumn], cores: Sequence[int], width: int, height: int
    ) -> dict[int, list[list[Span]]]:
        """`height` lines of at most `width` cells for each core, top line first; empty without a finite loss."""
        self._cells = self._of(columns, width)
        low = min((cell.low for cell in self._cells.values()), default=math.inf)
        high = max((cell.high for cell in self._cells.values()), default=-math.inf)
        if low > high:
            return {}
        scale = _Scale.of(low, high, height * len(BLOCKS))
        known = self._blocks if scale == self._scale else {}
        self._scale = scale
        self._blocks = {
            key: known.get(key) or [_block(cell, core, scale, height) for core in range(len(cell.highest))]
            for key, cell in self._cells.items()
        }
        drawn = list(self._blocks.values())
        return {core: _lines([blocks[core] for blocks in drawn if core < len(blocks)], height) for core in cores}

    def _of(self, columns: Sequence[CoreColumn], width: int) -> dict[Key, _Cell]:
        # A power of two, so that the columns of a cell change rarely.
        group = 1 << (max(math.ceil(len(columns) / max(width, 1)), 1) - 1).bit_length()
        cells: dict[Key, _Cell] = {}
        for first in range(0, len(columns), group):
            members = columns[first : first + group]
            key = (members[0].first_step, members[-1].last_step, sum([column.num_steps for column in members]))
            cells[key] = self._cells.get(key) or _cell(members)
        return cells


def _cell(members: Sequence[CoreColumn]) -> _Cell:
    by_core = zip(*(column.means for column in members), strict=False)
    highest = tuple(max((loss for loss in losses if not math.isnan(loss)), default=math.nan) for losses in by_core)
    finite = [loss for loss in highest if math.isfinite(loss)]
    bad = frozenset(core for column in members for core in column.bad_cores)
    return _Cell(highest, bad, min(finite, default=math.inf), max(finite, default=-math.inf))


def _block(cell: _Cell, core: int, scale: _Scale, height: int) -> str:
    """The column of blocks of a core, the top one first."""
    if core in cell.bad:
        return " " * (height - 1) + NON_FINITE_MARK
    loss = cell.highest[core]
    level = scale.level(loss) if math.isfinite(loss) else 0
    full, rest = divmod(level, len(BLOCKS))
    blocks = BLOCKS[-1] * full + (BLOCKS[rest - 1] if rest else "")
    return blocks[::-1].rjust(height)


def _lines(blocks: Sequence[str], height: int) -> list[list[Span]]:
    rows = ["".join(blocks)] if height == 1 else ["".join(row) for row in zip(*blocks, strict=True)]
    return [_spans(row) for row in rows]


def _spans(row: str) -> list[Span]:
    if NON_FINITE_MARK not in row:
        return [Span(row, "band")]
    first, *parts = row.split(NON_FINITE_MARK)
    line = [Span(first, "band")]
    for part in parts:
        line += [Span(NON_FINITE_MARK, "bad"), Span(part, "band")]
    return [span for span in line if span.text]
