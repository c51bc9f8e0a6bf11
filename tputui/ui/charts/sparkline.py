"""A series in one line of text: eighths of a cell for the mean, a sign for NaN or inf."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

from tputui.ui.charts.columns import ChartColumn
from tputui.ui.charts.plot import NON_FINITE_MARK
from tputui.ui.render.lines import Line, Span, joined

BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


def sparkline(columns: Sequence[ChartColumn], num_columns: int, width: int) -> Line:
    """Draw columns with `x` in [0, `num_columns`) in `width` cells; gaps between the first and last are filled."""
    if not columns or width < 1:
        return [Span(" " * max(width, 0))]
    sums: dict[int, list[float]] = {}
    bad: set[int] = set()
    for column in columns:
        cell = min(column.x * width // max(num_columns, 1), width - 1)
        if math.isfinite(column.mean):
            sums.setdefault(cell, []).append(column.mean)
        if column.bad:
            bad.add(cell)
    return _line(sums, bad, width)


def evenly(values: Sequence[float], width: int) -> Line:
    """Values in order, spread evenly over `width` cells, the newest at the right."""
    if not values or width < 1:
        return [Span(" " * max(width, 0))]
    last, across = max(len(values) - 1, 1), max(width - 1, 1)
    starts = [-(-cell * last // across) for cell in range(width)]
    parts = (values[start:stop] for start, stop in itertools.pairwise([*starts, len(values)]))
    finite = ([value for value in part if value - value == 0.0] for part in parts)
    return _line({cell: part for cell, part in enumerate(finite) if part}, set(), width)


def _line(sums: Mapping[int, Sequence[float]], bad: Collection[int], width: int) -> Line:
    """One character per cell for its mean; `bad` are the cells with a NaN or infinite value."""
    means = _means(sums, width)
    finite = [mean for mean in means if mean is not None]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    line: Line = []
    for cell in range(width):
        mean = means[cell]
        if cell in bad:
            line.append(Span(NON_FINITE_MARK, "bad"))
        elif mean is None:
            line.append(Span(" "))
        else:
            line.append(Span(BLOCKS[_level(mean, low, high)], "accent"))
    return joined(line)


def _means(sums: Mapping[int, Sequence[float]], width: int) -> list[float | None]:
    """The mean of each cell; gaps repeat the cell to the left."""
    means: list[float | None] = []
    newest: float | None = None
    last = max(sums, default=-1)
    for cell in range(width):
        if cell in sums:
            # Shares are summed, so that no sum of large values overflows.
            count = len(sums[cell])
            newest = math.fsum([value / count for value in sums[cell]])
        means.append(newest if cell <= last else None)
    return means


def _level(value: float, low: float, high: float) -> int:
    span = high / 2 - low / 2
    if span <= 0 or not math.isfinite(span):
        return 0
    return min(int((value / 2 - low / 2) / span * len(BLOCKS)), len(BLOCKS) - 1)
