"""Conditions on a run in words, such as `valid.loss < 0.5 or ended`: for `tputui wait` and for alerts.

    condition   = all {"or" all}
    all         = one {"and" one}
    one         = "not" one | "(" condition ")" | STATE | METRIC OPERATOR NUMBER | "no improvement for" N "epochs"

`STATE` is a state of the run, `ended`, or `non-finite`. `METRIC` is `train.NAME` or `valid.NAME`, `NAME` alone, `step`,
`epoch`, or a duration: `elapsed`, `eta`. Pure.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, get_args

from tputui.state.logged_series import SPLITS
from tputui.state.metric_series import Metrics, MetricSeries, MetricSource, metric_series
from tputui.state.run_condition import ENDED, RunCondition
from tputui.state.snapshot import Snapshot, best_epoch
from tputui.telemetry.events import Split

STATES: tuple[str, ...] = (*get_args(RunCondition), "ended", "non-finite")
DURATIONS = ("elapsed", "eta")
FORMS = "valid.loss < 0.5, train.accuracy >= 0.9, step > 1000, elapsed > 2h, no improvement for 5 epochs, " + ", ".join(
    STATES
)
"""Examples for help and errors."""
TEXT_CHARS_MAX = 1_000
DEPTH_MAX = 32

_ALWAYS = ("step", "epoch", *DURATIONS)
"""Names that every run has."""
_NAMES_KNOWN_S = 60.0
"""Seconds after which a run without epochs is expected to have logged each of its metrics once."""
_NAMED_MAX = 6
_CLOSE = 0.75
"""Similarity of two names from which one may be a misspelling of the other."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TOKEN = re.compile(r"\s*(<=|>=|==|!=|[<>=!()]|[^\s<>=!()]+)")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([smhd])?", re.ASCII | re.IGNORECASE)

Test = Callable[[Snapshot], bool]


class InvalidCondition(ValueError):
    """A text is not a condition; the message is one sentence that quotes the wrong part."""


class Condition(NamedTuple):
    """A condition on a run."""

    text: str
    """As the user wrote it, with single blanks."""
    holds: Test
    """Whether it holds for a snapshot. A comparison with a value that is missing or NaN does not hold."""
    metrics: tuple[str, ...] = ()
    """The metrics that it compares, as the user wrote them."""


def parse(text: str, named: Mapping[str, Test] = MappingProxyType({})) -> Condition:
    """Parses a condition; `named` are further ones by their names. Raises `InvalidCondition`."""
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidCondition(f"the condition is longer than {TEXT_CHARS_MAX:,} characters")
    tokens = _TOKEN.findall(text)
    if not tokens:
        raise InvalidCondition(f"the condition is empty; for example: {FORMS}")
    parser = _Parser(tokens, named)
    test = parser.any_of(0)
    if (unparsed := parser.peek()) is not None:
        raise InvalidCondition(f'unexpected "{unparsed}" in "{text.strip()}"; conditions are joined by `and` and `or`')
    return Condition(" ".join(text.split()), test, tuple(dict.fromkeys(parser.metrics)))


def value(name: str, snapshot: Snapshot) -> float | None:
    """The newest value of a metric of a run: of `valid.NAME`, `train.NAME`, `step`, `epoch`, `elapsed` or `eta`.

    A name alone is the training value, or the validation value of a metric that has no training value. Durations are
    seconds. None if there is none yet.
    """
    if name in ("step", "epoch"):
        return float(snapshot.steps if name == "step" else snapshot.epoch)
    if name == "elapsed":
        until = snapshot.ended if snapshot.ended is not None else snapshot.now
        return until - snapshot.started if snapshot.started is not None else None
    if name == "eta":
        return snapshot.eta_s
    split, wanted = split_of(name)
    series = Metrics(MetricSource.of(snapshot)).get(wanted)
    return _newest(series, split if wanted != name else "") if series is not None else None


def newest_values(snapshot: Snapshot) -> Iterator[tuple[str, Split, float]]:
    """The newest values of all metrics, with their names and splits."""
    named = ((series, split) for series in metric_series(MetricSource.of(snapshot)) for split in SPLITS)
    values = ((series.name, split, _newest(series, split)) for series, split in named)
    return ((name, split, value) for name, split, value in values if value is not None)


def _newest(series: MetricSeries, split: str) -> float | None:
    """The newest value of a split; without one that of training, else that of validation."""
    valid, train = series.newest("valid"), series.newest("train")
    point = valid if split == "valid" else train if split else train or valid
    if point is None:
        return None
    return series.newest_train if point is train and series.newest_train is not None else point.value


def split_of(name: str) -> tuple[str, str]:
    """The split of the name of a metric, empty if it has none, and the rest of the name."""
    split, _, metric = name.partition(".")
    return (split, metric) if split in ("train", "valid") and metric else ("", name)


def missing_metrics(condition: Condition, snapshot: Snapshot) -> str:
    """A phrase about metrics of a condition that the run does not have, and those that it has; empty if there are none.

    While the run goes on, it is also empty until the names of its metrics are known: at the end of its first epoch, or
    earlier if a name looks misspelt. The phrase then says that the metric may still come.
    """
    if not condition.metrics:
        return ""
    values = [(name, split) for name, split, _ in newest_values(snapshot)]
    names = dict.fromkeys(name for name, _ in values)
    has_ended = snapshot.condition in ENDED
    if not names and snapshot.condition != "done":
        return ""
    is_known = has_ended or bool(snapshot.epochs) or (value("elapsed", snapshot) or 0.0) >= _NAMES_KNOWN_S
    yet = "" if has_ended else " yet"
    phrases = []
    for name in condition.metrics:
        split, wanted = split_of(name)
        near = difflib.get_close_matches(wanted, names, n=1, cutoff=_CLOSE) if wanted not in names else []
        has_value = (wanted, split) in values if split else wanted in names
        if not has_value and (is_known or near):
            hint = f" (did you mean {name.removesuffix(wanted)}{near[0]}?)" if near else ""
            phrases.append(f"no {'value of' if wanted in names else 'metric'} {name}{yet}{hint}")
    return f"{', '.join(phrases)}; there are {_listed(values)}" if phrases else ""


def _listed(values: Sequence[tuple[str, Split]]) -> str:
    names = [f"{split}.{name}" for name, split in values]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}" if names else "no metrics"


class _Parser:
    """A recursive parser over the words of a condition."""

    def __init__(self, tokens: list[str], named: Mapping[str, Test]) -> None:
        self._words = tokens
        self._tests = named
        self._place = 0
        self.metrics: list[str] = []

    def peek(self) -> str | None:
        """The next word; None at the end."""
        return self._words[self._place] if self._place < len(self._words) else None

    def any_of(self, depth: int) -> Test:
        """Conditions joined by `or`."""
        tests = [self._all_of(depth)]
        while self._skip("or"):
            tests.append(self._all_of(depth))
        return tests[0] if len(tests) == 1 else lambda snapshot: any(test(snapshot) for test in tests)

    def _all_of(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._skip("and"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda snapshot: all(test(snapshot) for test in tests)

    def _one(self, depth: int) -> Test:
        if depth > DEPTH_MAX:
            raise InvalidCondition(f"the condition is nested more than {DEPTH_MAX} deep")
        if self._skip("not"):
            test = self._one(depth + 1)
            return lambda snapshot: not test(snapshot)
        if self._skip("("):
            test = self.any_of(depth + 1)
            if not self._skip(")"):
                raise InvalidCondition('a "(" is not closed')
            return test
        if self._skip("no"):
            return self._no_improvement()
        return self._named(self._next("a condition"))

    def _named(self, word: str) -> Test:
        """A state, or a comparison."""
        if self.peek() not in _OPERATORS:
            return self._tests.get(word.lower().replace("-", "_")) or _state(word)
        compare = _OPERATORS[self._next("an operator")]
        limit = _number(self._next("a number"), word)
        if word not in _ALWAYS:
            self.metrics.append(word)

        def test(snapshot: Snapshot) -> bool:
            number = value(word, snapshot)
            return number is not None and not math.isnan(number) and compare(number, limit)

        return test

    def _no_improvement(self) -> Test:
        for expected in ("improvement", "for"):
            if not self._skip(expected):
                raise InvalidCondition(f'"no" must be followed by "improvement for N epochs", not by "{self.peek()}"')
        word = self._next("a number of epochs")
        if not (word.isascii() and word.isdecimal() and int(word) > 0):
            raise InvalidCondition(f'"no improvement for" needs a whole number of epochs, not "{word}"')
        if not (self._skip("epochs") or self._skip("epoch")):
            raise InvalidCondition(f'"no improvement for {word}" must be followed by "epochs"')
        epochs = int(word)
        return lambda snapshot: _epochs_without_improvement(snapshot) >= epochs

    def _skip(self, word: str) -> bool:
        token = self.peek()
        if token is None or token.lower() != word:
            return False
        self._place += 1
        return True

    def _next(self, expected: str) -> str:
        word = self.peek()
        if word is None:
            raise InvalidCondition(f"the condition ends where {expected} is expected; for example: {FORMS}")
        self._place += 1
        return word


def _state(word: str) -> Test:
    name = word.lower()
    if name not in STATES:
        raise InvalidCondition(f'"{word}" is neither a state nor followed by a comparison; for example: {FORMS}')
    if name == "ended":
        return lambda snapshot: snapshot.condition in ENDED
    if name == "non-finite":
        return lambda snapshot: bool(snapshot.non_finite)
    return lambda snapshot: snapshot.condition == name


def _number(word: str, name: str) -> float:
    match = _NUMBER.fullmatch(word)
    if match is None:
        raise InvalidCondition(f'"{name}" is compared with "{word}", which is not a number')
    number, unit = float(match[1]), match[2]
    if unit is None:
        return number
    if name not in DURATIONS:
        raise InvalidCondition(f'"{word}" is a duration, but "{name}" is not; durations are {" and ".join(DURATIONS)}')
    return number * _UNITS_S[unit.lower()]


def _epochs_without_improvement(snapshot: Snapshot) -> int:
    """Number of finished epochs since the best one by the monitored metric; 0 before the first."""
    best = best_epoch(snapshot.epochs)
    return snapshot.epochs[-1].epoch - best.epoch if best is not None and snapshot.epochs else 0
