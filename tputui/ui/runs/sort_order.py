"""The sort order of the run list: the column, the direction, and the values that are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from tputui.ui.runs.rows import RunRow, value_at

SortKey = Literal["start", "run", "state", "step", "loss", "best", "age", "took", "cores", "task"]
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)

_STATES = ("running", "starting", "stalled", "reading", "failed", "lost", "stopped", "done", "log", "unreadable")
"""States that need attention come first."""

_DESCENDING_FIRST: frozenset[SortKey | str] = frozenset({"start", "step", "cores", "took"})
"""Columns whose largest values are shown first unless reversed."""

_LABELS: dict[SortKey | str, tuple[str, str]] = {
    "start": ("oldest first", "newest first"),
    "run": ("by name", "by name, reversed"),
    "state": ("by state, active first", "by state, active last"),
    "step": ("by step, lowest first", "by step, highest first"),
    "loss": ("by loss, lowest first", "by loss, highest first"),
    "best": ("by best, lowest first", "by best, highest first"),
    "age": ("by age, newest first", "by age, oldest first"),
    "took": ("by duration, shortest first", "by duration, longest first"),
    "cores": ("by cores, fewest first", "by cores, most first"),
    "task": ("by task", "by task, reversed"),
}


class SortOrder(NamedTuple):
    """The sort column and direction."""

    key: SortKey | str = "start"
    """A standard column, or the key of a chosen one."""
    descending: bool = True

    def next(self, chosen: Sequence[str] = ()) -> SortOrder:
        """The next column in its usual direction; the `chosen` columns follow the standard ones."""
        keys = list(dict.fromkeys((*SORT_KEYS, *chosen)))
        key = keys[(keys.index(self.key) + 1) % len(keys)] if self.key in keys else keys[0]
        return SortOrder(key, key in _DESCENDING_FIRST)

    def reversed(self) -> SortOrder:
        """The same column in the other direction."""
        return SortOrder(self.key, not self.descending)

    @property
    def label(self) -> str:
        """The order in words, such as `by loss, lowest first`."""
        labels = _LABELS.get(self.key) or (f"by {self.key}, lowest first", f"by {self.key}, highest first")
        return labels[self.descending]

    @property
    def text(self) -> str:
        """The order as it is stored in the preferences, such as `-loss`."""
        return "-" * self.descending + self.key


def parse_sort_order(text: str, chosen: Sequence[str] = ()) -> SortOrder:
    """The order of a stored text; the default if the text is invalid. `chosen` are the keys of the chosen columns."""
    key = text.removeprefix("-")
    return SortOrder(key, text != key) if key in (*SORT_KEYS, *chosen) else SortOrder()


def sort_rows(rows: Iterable[RunRow], order: SortOrder, now: float) -> list[RunRow]:
    """Sorts the rows: pinned ones first, rows without a value last, equal ones newest first."""
    newest_first = sorted(rows, key=lambda row: row.name, reverse=True)
    value_of = _SORT_VALUES.get(order.key) or (lambda row, _: _comparable(value_at(row, order.key)))
    pairs = [(value_of(row, now), row) for row in newest_first]
    with_value = [pair for pair in pairs if pair[0] is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=order.descending)
    ordered = [*(row for _, row in with_value), *(row for value, row in pairs if value is None)]
    return sorted(ordered, key=lambda row: not row.labels.pinned)


def _comparable(value: Any) -> Any:
    """A value that can be compared with those of other runs: numbers first, then texts."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (False, float(value), "") if math.isfinite(value) else None
    return True, 0.0, str(value).lower()


_SORT_VALUES: dict[SortKey | str, Callable[[RunRow, float], Any]] = {
    "start": lambda row, now: row.created,
    "run": lambda row, now: row.name.lower(),
    "state": lambda row, now: _STATES.index(row.state),
    "step": lambda row, now: row.steps,
    "loss": lambda row, now: _finite(row.loss),
    "best": lambda row, now: _finite(row.best),
    "age": lambda row, now: row.age_s(now),
    "took": lambda row, now: row.duration_s(now),
    "cores": lambda row, now: row.num_cores,
    "task": lambda row, now: row.task.lower() or None,
    "tags": lambda row, now: " ".join(row.labels.tags).lower() or None,
}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
