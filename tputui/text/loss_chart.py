"""The loss as a chart of text: the mean, in a band from the minimum to the maximum over the cores. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tputui import formatting as fmt
from tputui.state.chart_data import Segment, share_between

BAND, MEAN, BAD = ":", "*", "!"
_LABEL_WIDTH = 9


def loss_chart(segments: Sequence[Segment], width: int = 100, height: int = 12) -> list[str]:
    """Lines of at most `width` characters: the mean, in a band from the minimum to the maximum over the cores.

    Below the chart are the steps, and marks for NaN or infinite values. No lines if there is nothing to draw.
    """
    columns = _columns(segments, width - _LABEL_WIDTH - 2)
    present = [column for column in columns if column is not None and column.num_values]
    if not present:
        return []
    low, high = min(column.min for column in present), max(column.max for column in present)
    rows = [[" "] * len(columns) for _ in range(height)]
    for index, column in enumerate(columns):
        if column is None or not column.num_values:
            continue
        for row in range(_chart_row(column.max, low, high, height), _chart_row(column.min, low, high, height) + 1):
            rows[row][index] = BAND
        rows[_chart_row(column.mean, low, high, height)][index] = MEAN
    labels = {0: fmt.number(high), height - 1: fmt.number(low)}
    lines = [f"{labels.get(row, ''):>{_LABEL_WIDTH}} |{''.join(cells)}".rstrip() for row, cells in enumerate(rows)]
    bad = "".join(BAD if column is not None and column.num_bad else " " for column in columns)
    if bad.strip():
        lines.append(f"{'not finite':>{_LABEL_WIDTH + 1}}|{bad}".rstrip())
    least, greatest = _ends(segments)
    first, last = f"step {fmt.count(least)}", fmt.count(greatest)
    gap = max(1, len(columns) - len(first) - len(last))
    return [*lines, f"{'':>{_LABEL_WIDTH}}  {first}{' ' * gap}{last}"]


def _columns(segments: Sequence[Segment], width: int) -> list[Segment | None]:
    """The segment of each column of the chart; None if there is none."""
    if not segments:
        return []
    first, last = _ends(segments)
    width = min(width, last - first + 1)
    columns: list[Segment | None] = [None] * width
    for segment in segments:
        index = min(width - 1, (segment.first_step - first) * width // (last - first + 1))
        before = columns[index]
        columns[index] = segment if before is None else _joined(before, segment)
    return columns


def _ends(segments: Sequence[Segment]) -> tuple[int, int]:
    """The first and the last step; segments may be in any order."""
    return min(segment.first_step for segment in segments), max(segment.last_step for segment in segments)


def _joined(left: Segment, right: Segment) -> Segment:
    finite = [segment for segment in (left, right) if segment.num_values]
    num_values = left.num_values + right.num_values
    # Weights first, so that no sum of large values overflows.
    mean = math.fsum(segment.mean * (segment.num_values / num_values) for segment in finite)
    return Segment(
        first_step=left.first_step,
        last_step=right.last_step,
        mean=mean if num_values else math.nan,
        min=min((segment.min for segment in finite), default=math.nan),
        max=max((segment.max for segment in finite), default=math.nan),
        num_values=num_values,
        num_bad=left.num_bad + right.num_bad,
        t=right.t,
    )


def _chart_row(value: float, low: float, high: float, height: int) -> int:
    if not high > low or math.isnan(value):
        return height // 2
    # A forged mean may lie outside of its minimum and maximum.
    share = min(max(share_between(value, low, high), 0.0), 1.0)
    return round((1.0 - share) * (height - 1))
