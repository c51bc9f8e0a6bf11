"""The filter of the run list: words and comparisons, all of which a run must match.

digits done          both words occur in the name, task or state
-ct                  the word does not occur there
lr>=0.001            compares a configuration key, given by its last part or in full (`optim.lr`)
cores=8 state=done   compares a column: run, task, state, step, epoch, loss, best, cores
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tputui.ui.runs.rows import RunRow

_TERM = re.compile(r"([A-Za-z_][\w.]*)(>=|<=|!=|==|=|>|<)(.*)")


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
        key, operator, value = match.groups()
        if not value:
            return RunFilter(text, (), f"{word}: missing value; example: {key}{operator}0.001")
        if operator in (">=", "<=", ">", "<") and _number(value) is None:
            return RunFilter(text, (), f"{word}: {operator} needs a number; example: {key}{operator}0.001")
        terms.append(Term(key.lower(), operator, value))
    return RunFilter(text, tuple(terms))


def unknown_keys(run_filter: RunFilter, rows: Sequence[RunRow]) -> list[str]:
    """Keys of the filter that no run has."""
    return [term.key for term in run_filter.terms if term.key and not any(_values(term.key, row) for row in rows)]


def _matches(term: Term, row: RunRow) -> bool:
    if not term.key:
        found = any(term.value in text.lower() for text in (row.path.name, row.task, row.state))
        return found is (term.operator == "has")
    values = _values(term.key, row)
    if term.operator == "!=":
        return bool(values) and not any(_compare(value, "=", term.value) for value in values)
    return any(_compare(value, term.operator, term.value) for value in values)


def _values(key: str, row: RunRow) -> list[Any]:
    """The values of a key: the column of that name, else configuration keys that end in it."""
    columns: dict[str, Any] = {
        "run": row.path.name,
        "name": row.path.name,
        "state": row.state,
        "task": row.task,
        "step": row.steps,
        "epoch": row.epoch,
        "loss": row.loss,
        "best": row.best,
        "cores": row.num_cores,
    }
    if columns.get(key) is not None:
        return [columns[key]]
    return [
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
