"""The filter of the run list.

A filter consists of words and comparisons, all of which a run must match:

digits done          both words occur in the name, task, state, tags or note
-ct                  the word does not occur there
lr>=0.001            compares a configuration key, given by its last part or in full (`optim.lr`)
best.auc>0.9         compares a metric: `best.NAME`, `valid.NAME` or `train.NAME`
cores=8 state=done   compares a column: run, task, state, step, epoch, loss, best, cores
state=log format=csv logs of other programs, or those of a format: TensorBoard, W&B, CSV, JSON lines, parquet
tag:paper note:seed  the run has the tag, or its note contains the word; also `tag=paper`, `tag!=paper`

The sort order of the run list: the column, the direction, and the values that are compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from tputui.ui.runs.rows import RunRow, value_at

_TERM = re.compile(r"([A-Za-z_][\w.]*)(>=|<=|!=|==|=|>|<)(.*)|(tags?|note)(:)(.*)", re.IGNORECASE)


class Term(NamedTuple):
    """One condition on a run."""

    key: str
    """Key of a comparison; empty for a word."""
    operator: str
    """`has`, `lacks`, or a comparison."""
    value: str


class RunFilter(NamedTuple):
    """A parsed filter."""

    text: str = ""
    terms: tuple[Term, ...] = ()
    error: str | None = None
    """Why the text is invalid, with an example of a valid one."""

    def matches(self, row: RunRow) -> bool:
        """Whether the run is shown. An invalid filter matches every run."""
        return self.error is not None or all(_matches(term, row) for term in self.terms)


def parse_filter(text: str) -> RunFilter:
    """Parses the text of a filter; never raises."""
    terms = []
    for word in text.split():
        match = _TERM.fullmatch(word)
        if match is None:
            lacks = word.startswith("-") and len(word) > 1
            terms.append(Term("", "lacks" if lacks else "has", (word[1:] if lacks else word).lower()))
            continue
        key, operator, value = match.groups()[:3] if match[1] else match.groups()[3:]
        if not value:
            example = "paper" if key.lower() in ("note", *_TAGS) else "0.001"
            return RunFilter(text, (), f"{word}: missing value; example: {key}{operator}{example}")
        if operator in (">=", "<=", ">", "<") and _number(value) is None:
            return RunFilter(text, (), f"{word}: {operator} needs a number; example: {key}{operator}0.001")
        terms.append(Term(key.lower(), operator, value))
    return RunFilter(text, tuple(terms))


def unknown_keys(run_filter: RunFilter, rows: Sequence[RunRow]) -> list[str]:
    """Keys of the filter that no run has."""
    labels = ("note", *_TAGS)
    keys = [term.key for term in run_filter.terms if term.key and term.key not in labels]
    return [key for key in keys if not any(_values(key, row) for row in rows)]


def _matches(term: Term, row: RunRow) -> bool:
    if not term.key:
        texts = (row.name, row.task, row.form, row.state, *row.labels.tags, row.labels.note)
        contains = any(term.value in text.lower() for text in texts)
        return contains is (term.operator == "has")
    if term.key == "note":
        return (term.value.lower() in row.labels.note.lower()) is (term.operator != "!=")
    values = _values(term.key, row)
    if term.operator == "!=":
        # A run without tags lacks the tag; a run without a configuration key has no value to compare.
        return (bool(values) or term.key in _TAGS) and not any(_compare(value, "=", term.value) for value in values)
    return any(_compare(value, "=" if term.operator == ":" else term.operator, term.value) for value in values)


_TAGS = ("tag", "tags")


def _values(key: str, row: RunRow) -> list[Any]:
    """The values of a key: the column or metric of that name, else configuration keys that end in it."""
    if key in _TAGS:
        return list(row.labels.tags)
    columns: dict[str, Any] = {
        "run": row.name,
        "name": row.name,
        "format": row.form or None,
        "state": row.state,
        "task": row.task,
        "step": row.steps,
        "epoch": row.epoch,
        "loss": row.loss,
        "best": row.best,
        "cores": row.num_cores,
        "pinned": row.labels.pinned,
        "archived": row.labels.archived,
    }
    if columns.get(key) is not None:
        return [columns[key]]
    metrics = [value for name, value in row.metrics.items() if name.lower() == key]
    return metrics or [
        value
        for name, value in row.config.items()
        if value is not None and (name.lower() == key or name.lower().endswith(f".{key}"))
    ]


def _compare(value: Any, operator: str, operand: str) -> bool:
    number, limit = _number(value), _number(operand)
    if number is None or limit is None:
        same = _as_text(value).lower() == operand.lower()
        return same if operator in ("=", "==") else False
    return {
        "=": number == limit,
        "==": number == limit,
        ">": number > limit,
        "<": number < limit,
        ">=": number >= limit,
        "<=": number <= limit,
    }[operator]


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


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
