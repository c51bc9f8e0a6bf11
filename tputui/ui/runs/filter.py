"""Which runs are shown: words and comparisons, all of which a run must meet. Pure.

digits done          both words stand in name, task or state
-ct                  the word does not stand there
lr>=0.001            a key of the configuration, by its last part or in full (`optim.lr`), compared
cores=8 state=done   besides them: run, task, state, step, epoch, loss, best, cores
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tputui.ui.runs.rows import RunRow

_TERM = re.compile(r"([A-Za-z_][\w.]*)(>=|<=|!=|==|=|>|<)(.*)")


class Term(NamedTuple):
    """A condition on a run."""

    key: str
    """Empty for a word."""
    operator: str
    """`has`, `lacks`, or a comparison."""
    value: str


class RunFilter(NamedTuple):
    """Conditions that a run must meet, all of them."""

    text: str = ""
    terms: tuple[Term, ...] = ()
    problem: str = ""
    """Why the text is no filter, and what would be; empty where it is one."""

    def keeps(self, row: RunRow) -> bool:
        """Whether the run is shown. What is no filter keeps every run."""
        return bool(self.problem) or all(_holds(term, row) for term in self.terms)


def parse_filter(text: str) -> RunFilter:
    """The filter that a text says."""
    terms = []
    for word in text.split():
        found = _TERM.fullmatch(word)
        if found is None:
            lacks = word.startswith("-") and len(word) > 1
            terms.append(Term("", "lacks" if lacks else "has", (word[1:] if lacks else word).lower()))
            continue
        key, operator, value = found.groups()
        if not value:
            return RunFilter(text, (), f"{word}: a value is missing, as in {key}{operator}0.001")
        if operator in (">=", "<=", ">", "<") and _number(value) is None:
            return RunFilter(text, (), f"{word}: {operator} needs a number, as in {key}{operator}0.001")
        terms.append(Term(key.lower(), operator, value))
    return RunFilter(text, tuple(terms))


def unknown_keys(found: RunFilter, rows: Sequence[RunRow]) -> list[str]:
    """Keys that none of the runs has, which is why none is shown."""
    return [term.key for term in found.terms if term.key and not any(_values(term.key, row) for row in rows)]


def _holds(term: Term, row: RunRow) -> bool:
    if not term.key:
        there = any(term.value in text.lower() for text in (row.path.name, row.task, row.state))
        return there is (term.operator == "has")
    values = _values(term.key, row)
    if term.operator == "!=":
        return bool(values) and not any(_compare(value, "=", term.value) for value in values)
    return any(_compare(value, term.operator, term.value) for value in values)


def _values(key: str, row: RunRow) -> list[Any]:
    """What a key means for a run: its figure, else keys of the configuration of that name."""
    own: dict[str, Any] = {
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
    if own.get(key) is not None:
        return [own[key]]
    return [
        value
        for name, value in row.config.items()
        if value is not None and (name.lower() == key or name.lower().endswith(f".{key}"))
    ]


def _compare(value: Any, operator: str, wanted: str) -> bool:
    number, limit = _number(value), _number(wanted)
    if number is None or limit is None:
        same = _shown(value).lower() == wanted.lower()
        return same if operator in ("=", "==") else False
    return {
        "=": number == limit,
        "==": number == limit,
        ">": number > limit,
        "<": number < limit,
        ">=": number >= limit,
        "<=": number <= limit,
    }[operator]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
