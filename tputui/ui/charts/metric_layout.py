"""The layout of the charts of metrics: one page if they fit, else several, in groups by the prefix of their names.

A group has the metrics whose names begin with the same text up to the first `/`, as W&B and TensorBoard group them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

LEAST_WIDTH, LEAST_HEIGHT = 36, 7
"""Smallest useful chart in cells, including its title and axes."""
_SHAPE = 4.5
"""Preferred ratio of width to height in cells."""

PINNED = "pinned"
"""Name of the group of pinned metrics; other names of groups end with `/`."""


class Choice(NamedTuple):
    """How the user arranged the metrics."""

    pinned: tuple[str, ...] = ()
    """Metrics of the first page, in this order."""
    folded: frozenset[str] = frozenset()
    """Groups of which only the heading is shown."""

    def with_pin(self, metric: str) -> Choice:
        """The metric is pinned, or not pinned any more."""
        pinned = tuple(name for name in self.pinned if name != metric)
        return self._replace(pinned=pinned if metric in self.pinned else (*pinned, metric))


class Heading(NamedTuple):
    """The line above the charts of a group, or in place of them."""

    group: str
    num_metrics: int
    is_folded: bool = False


Row = Heading | tuple[str, ...]
"""A heading, or the metrics whose charts stand side by side."""


class PageLayout(NamedTuple):
    """What a page shows, and the size of its charts in cells."""

    rows: list[Row]
    width: int
    height: int

    @property
    def items(self) -> list[str]:
        """What can be selected: metrics, and the groups that are folded."""
        of_rows = ((row.group,) if isinstance(row, Heading) else row for row in self.rows if not _is_open(row))
        return [name for names in of_rows for name in names]

    @property
    def metrics(self) -> list[str]:
        """The metrics that have a chart."""
        return [name for row in self.rows if not isinstance(row, Heading) for name in row]

    @property
    def num_folded(self) -> int:
        """Number of metrics in the folded groups."""
        return sum(row.num_metrics for row in self.rows if isinstance(row, Heading) and row.is_folded)

    @property
    def shape(self) -> list[int]:
        """The number of charts in each row, 0 for a heading."""
        return [0 if isinstance(row, Heading) else len(row) for row in self.rows]

    def selected(self, at: str) -> str:
        """What is selected on this page at a metric or a group: the metric, its folded group, or the first metric of
        the group; empty if the page has none of them."""
        if at in self.items:
            return at
        for row, below in zip(self.rows, (*self.rows[1:], ()), strict=True):
            if isinstance(row, Heading) and row.is_folded and row.group == group_of(at):
                return row.group
            if isinstance(row, Heading) and row.group == at and not isinstance(below, Heading):
                return below[0]
        return ""

    def group_of(self, metric: str) -> str:
        """The group in which a metric of this page stands and which can be folded; empty without one."""
        group = ""
        for row in self.rows:
            if isinstance(row, Heading):
                group = row.group if row.group != PINNED else ""
            elif metric in row:
                return group
        return ""

    def item_at(self, x: int, y: int) -> str:
        """The chart or folded group in a cell of the page; empty without one."""
        for row in self.rows:
            height = 1 if isinstance(row, Heading) else self.height
            if 0 <= y < height:
                if isinstance(row, Heading):
                    return row.group if row.is_folded else ""
                return row[x // self.width] if 0 <= x < self.width * len(row) else ""
            y -= height
        return ""


def _is_open(row: Row) -> bool:
    return isinstance(row, Heading) and not row.is_folded


def group_of(metric: str) -> str:
    """The prefix of a name up to its first `/`; empty without one."""
    prefix, slash, rest = metric.partition("/")
    return prefix + slash if prefix and rest else ""


@lru_cache(maxsize=8)
def pages(metrics: tuple[str, ...], choice: Choice, width: int, height: int) -> list[PageLayout]:
    """The pages of metrics in their order, after those that are pinned. Metrics that fit on one page have no headings,
    unless a group is folded."""
    pinned, others, sections = _sectioned(metrics, choice)
    tiles = tiling(len(metrics), width, height)
    is_folded = any(heading is not None and heading.is_folded for heading, _ in sections)
    if (tiles.room >= len(metrics) and not is_folded) or len(sections) < 2:
        # The loss has a chart of its own before these pages.
        names = [name for name in (*pinned, *others) if tiles.room > 1 or name != "loss"]
        filled = [names[first : first + tiles.room] for first in range(0, len(names), tiles.room)]
        return [PageLayout(list[Row](_beside(page, tiles.across)), tiles.width, tiles.height) for page in filled]
    return _paged(sections, max(width // LEAST_WIDTH, 1), width, height)


def groups_of(metrics: Sequence[str], pinned: Sequence[str]) -> frozenset[str]:
    """The groups of the metrics that are not pinned."""
    sizes = Counter(group_of(name) for name in metrics if name not in pinned)
    return frozenset(group for group, size in sizes.items() if group and size > 1)


Section = tuple[Heading | None, list[str]]
"""A group and its metrics; without a heading those that have no group."""


@lru_cache(maxsize=4)
def _sectioned(metrics: tuple[str, ...], choice: Choice) -> tuple[list[str], list[str], list[Section]]:
    """The pinned metrics, the others, and all of them in sections, whatever the size of the page."""
    known, ahead = set(metrics), set(choice.pinned)
    pinned = [name for name in choice.pinned if name in known]
    others = [name for name in metrics if name not in ahead]
    return pinned, others, _sections(pinned, others, choice.folded)


def _sections(pinned: list[str], others: list[str], folded: frozenset[str]) -> list[Section]:
    """Pinned metrics, those without a group, then the groups in the order of their first metrics. A prefix of a single
    name makes no group."""
    groups = groups_of(others, ())
    by_group: dict[str, list[str]] = {"": []}
    for name in others:
        group = group_of(name)
        by_group.setdefault(group if group in groups else "", []).append(name)
    sections: list[Section] = [(Heading(PINNED, len(pinned)), pinned)] if pinned else []
    for group, names in by_group.items():
        if names:
            sections.append((Heading(group, len(names), group in folded) if group else None, names))
    return sections


def _paged(sections: Sequence[Section], across: int, width: int, height: int) -> list[PageLayout]:
    """Fills pages with headings and rows of the smallest charts; then all charts grow as far as the pages allow."""
    filled: list[list[Row]] = [[]]
    left = height
    for heading, names in sections:
        rows: list[Row] = [] if heading is not None and heading.is_folded else list[Row](_beside(names, across))
        needed = (heading is not None) + (LEAST_HEIGHT if rows else 0)
        if needed > left and filled[-1]:
            filled.append([])
            left = height
        if heading is not None:
            filled[-1].append(heading)
            left -= 1
        for row in rows:
            if left < LEAST_HEIGHT and any(not isinstance(above, Heading) for above in filled[-1]):
                filled.append([heading] if heading is not None else [])
                left = height - len(filled[-1])
            filled[-1].append(row)
            left -= LEAST_HEIGHT
    heights = [_chart_height(page, height) for page in filled]
    return [PageLayout(page, width // across, min(heights)) for page in filled]


def _chart_height(page: Sequence[Row], height: int) -> int:
    num_headings = sum(isinstance(row, Heading) for row in page)
    return (height - num_headings) // max(len(page) - num_headings, 1)


def _beside(names: Sequence[str], across: int) -> list[tuple[str, ...]]:
    return [tuple(names[first : first + across]) for first in range(0, len(names), across)]


class Tiling(NamedTuple):
    """How charts share a page."""

    across: int
    down: int
    width: int
    height: int

    @property
    def room(self) -> int:
        """Number of charts."""
        return self.across * self.down


def tiling(count: int, width: int, height: int) -> Tiling:
    """The grid for `count` charts: all of them if they fit, else as many as do."""
    most_across, most_down = max(width // LEAST_WIDTH, 1), max(height // LEAST_HEIGHT, 1)
    if most_across * most_down < count:
        return Tiling(most_across, most_down, width // most_across, height // most_down)
    grids = [
        Tiling(across, down, width // across, height // down)
        for across in range(1, min(most_across, max(count, 1)) + 1)
        if (down := math.ceil(max(count, 1) / across)) <= most_down
    ]
    return min(grids, key=lambda grid: (abs(math.log(grid.width / max(grid.height, 1) / _SHAPE)), grid.room))
