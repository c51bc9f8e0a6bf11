"""The filter of the run list.

A filter consists of words and comparisons, all of which a run must match:

digits done          both words occur in the name, task, state, tags or note
-ct                  the word does not occur there
lr>=0.001            compares a configuration key, given by its last part or in full (`optim.lr`)
best.auc>0.9         compares a metric: `best.NAME`, `valid.NAME` or `train.NAME`
cores=8 state=done   compares a column: run, task, state, step, epoch, loss, best, cores
state=log format=csv logs of other programs, or those of a format: TensorBoard, W&B, CSV, JSON lines, parquet
tag:paper note:seed  the run has the tag, or its note contains the word; also `tag=paper`, `tag!=paper`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tputui.ui.runs.rows import RunRow

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
