"""In which order runs stand: by one of their columns, runs without that figure last. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, get_args

from tputui.ui.runs.rows import RunRow

SortKey = Literal["start", "run", "state", "step", "loss", "best", "age", "took", "cores", "task"]
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)

_STATES = ("running", "starting", "stalled", "reading", "failed", "lost", "stopped", "done", "unreadable")
"""What is to be looked at first."""

_GREATEST_FIRST: frozenset[SortKey] = frozenset({"start", "step", "cores", "took"})
"""Where more is usually looked for."""

_WORDS: dict[SortKey, tuple[str, str]] = {
    "start": ("oldest first", "newest first"),
    "run": ("by name", "by name, backwards"),
    "state": ("by state, living first", "by state, living last"),
    "step": ("by step, least first", "by step, most first"),
    "loss": ("by loss, least first", "by loss, greatest first"),
    "best": ("by best, least first", "by best, greatest first"),
    "age": ("by age, freshest first", "by age, oldest first"),
    "took": ("by time taken, shortest first", "by time taken, longest first"),
    "cores": ("by cores, fewest first", "by cores, most first"),
    "task": ("by task", "by task, backwards"),
}


class Order(NamedTuple):
    """A column, and whether its greatest come first."""

    key: SortKey = "start"
    backwards: bool = True

    def next(self) -> Order:
        """The next column, in the direction that is usual for it."""
        key = SORT_KEYS[(SORT_KEYS.index(self.key) + 1) % len(SORT_KEYS)]
        return Order(key, key in _GREATEST_FIRST)

    def reversed(self) -> Order:
        """The other direction."""
        return Order(self.key, not self.backwards)

    @property
    def words(self) -> str:
        """The order in words."""
        return _WORDS[self.key][self.backwards]

    @property
    def text(self) -> str:
        """The order as it is kept, such as `-loss`."""
        return "-" * self.backwards + self.key


def parse(text: str) -> Order:
    """The order that was kept; the usual one where it is none of ours."""
    key = text.removeprefix("-")
    return next((Order(known, text != key) for known in SORT_KEYS if known == key), Order())


def ordered(rows: Iterable[RunRow], order: Order, now: float) -> list[RunRow]:
    """The rows in order; those without the figure last, equal ones newest first."""
    newest_first = sorted(rows, key=lambda row: row.path.name, reverse=True)
    figure_of = _FIGURES[order.key]
    figures = [(figure_of(row, now), row) for row in newest_first]
    with_figure = [pair for pair in figures if pair[0] is not None]
    with_figure.sort(key=lambda pair: pair[0], reverse=order.backwards)
    return [*(row for _, row in with_figure), *(row for figure, row in figures if figure is None)]


_FIGURES: dict[SortKey, Callable[[RunRow, float], Any]] = {
    "start": lambda row, now: row.created,
    "run": lambda row, now: row.path.name.lower(),
    "state": lambda row, now: _STATES.index(row.state),
    "step": lambda row, now: row.steps,
    "loss": lambda row, now: _finite(row.loss),
    "best": lambda row, now: _finite(row.best),
    "age": lambda row, now: row.age_s(now),
    "took": lambda row, now: row.took_s(now),
    "cores": lambda row, now: row.num_cores,
    "task": lambda row, now: row.task.lower() or None,
}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
