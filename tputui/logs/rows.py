"""Rows with names, as CSV, JSON lines and parquet have them: which names are step, epoch and time, and the values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from tputui.logs.number_forms import printed_number
from tputui.logs.tags import EPOCH_NAMES as EPOCH_NAMES
from tputui.logs.tags import STEP_NAMES as STEP_NAMES
from tputui.logs.tags import TIME_NAMES as TIME_NAMES
from tputui.logs.tags import in_words


class LoggedValue(NamedTuple):
    tag: str
    """Name of the metric in the log: `train/loss`, `loss_rank3`."""
    step: int | None
    """Step; None if the log has none."""
    t: float | None
    """Unix time in seconds; None if the log has none."""
    value: float
    """May be NaN or infinite. A float32 of the log is widened exactly."""
    epoch: float | None = None
    """Epoch, possibly fractional; None if the log has none."""
    x: str = ""
    """The x axis that the author chose: the tag of another metric, `epoch`, or `time`; empty for steps."""


class UnknownLog(Exception):
    """A path is not a log in a known format; the message names the path, and what was expected."""


class LogReader(Protocol):
    """Reads a log file or directory from its beginning, and what is appended to it later."""

    form: str
    """Name of the format, for messages: `TensorBoard event file`."""

    @property
    def damage(self) -> list[str]:
        """Unreadable parts found so far, one sentence each, with the file and the offset or line."""

    @property
    def incomplete(self) -> str:
        """A sentence about a last record that is not complete, so that it was not returned; empty if there is none."""
        return ""

    @property
    def config(self) -> dict[str, Any]:
        """Configuration that the log contains, such as hyperparameters; empty if it contains none."""
        return {}

    def read(self) -> list[LoggedValue]:
        """Values since the last call, in the order of the log, at most a bounded number; empty if there are none yet.

        An incomplete last record is left for the next call. Raises `OSError` if the log cannot be read any more.
        """

    def close(self) -> None:
        """Closes the files, unless they are closed between reads."""
        return


TAG_CHARS_MAX = 512
"""Values with a longer name are left out."""
STEP_MAX = 2**63 - 1
_EARLIEST_S, _LATEST_S = 5e8, 5e9
"""Years 1985 to 2128. A number outside is not a Unix time, but a duration, for example."""
_TIME_UNITS = (1.0, 1e3, 1e6, 1e9)
"""Units of Unix time per second: s, ms, us, ns."""
_LIST_MAX = 4_096
_DEPTH_MAX = 16
_SPELLED = {
    "nan": math.nan, "inf": math.inf, "infinity": math.inf, "+inf": math.inf, "+infinity": math.inf, "-inf": -math.inf,
    "-infinity": -math.inf,
}  # fmt: skip
"""Non-finite numbers as strings, which writers of strict JSON use."""


_PRINTED_CHARS_MAX = 400
"""Longer text is not a number."""


class RowContext(NamedTuple):
    """The names in a row that are not metrics."""

    step: str | None = None
    epoch: str | None = None
    time: str | None = None


@lru_cache(maxsize=64)
def context_of(names: tuple[str, ...]) -> RowContext:
    """The names of step, epoch and time among the names of a row."""
    by_form = {form(name): name for name in reversed(names)}

    def first(accepted: tuple[str, ...]) -> str | None:
        return next((by_form[name] for name in accepted if name in by_form), None)

    return RowContext(first(STEP_NAMES), first(EPOCH_NAMES), first(TIME_NAMES))


def form(name: str) -> str:
    """A name in the form in which names are compared."""
    return in_words(name)


def number(value: Any) -> float | None:
    """A number as a float, None for anything else; booleans are not numbers, `"NaN"` and `"tensor(0.5)"` are."""
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return None
    if type(value) is not str or len(value) > _PRINTED_CHARS_MAX:
        return None
    return _SPELLED[value.lower()] if value.lower() in _SPELLED else printed_number(value)


def step_number(value: Any) -> int | None:
    """A step: a whole number in the range of int64, also as `120.0` or `"120"`."""
    if type(value) is str:
        value = _whole(value)
    if type(value) is float:
        value = int(value) if value.is_integer() else None
    return value if type(value) is int and -STEP_MAX <= value <= STEP_MAX else None


def _whole(text: str) -> float | None:
    """A number, exact also beyond 2**53 if it is whole; Python accepts `1_000`, which no log means as a number."""
    try:
        return int(text) if "_" not in text else None
    except ValueError:
        return decimal(text)


def epoch_number(value: Any) -> float | None:
    """An epoch, possibly fractional; None if it is not finite."""
    epoch = decimal(value) if type(value) is str else number(value)
    return epoch if epoch is not None and math.isfinite(epoch) else None


def unix_time_s(value: Any) -> float | None:
    """Unix time in seconds, of a number (also in ms, us or ns), or of ISO 8601 text; None for anything else."""
    if type(value) is str:
        parsed = decimal(value)
        if parsed is None:
            return _iso_time_s(value)
        value = parsed
    timestamp = number(value)
    if timestamp is None:
        return None
    return next((timestamp / unit for unit in _TIME_UNITS if _EARLIEST_S <= timestamp / unit <= _LATEST_S), None)


def _iso_time_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def decimal(text: str) -> float | None:
    """The number that a text is, as CSV cells are, also as `tensor(0.5)`; None for any other text."""
    try:
        # Python accepts `1_000`, which no log means as a number.
        return None if "_" in text else float(text)
    except ValueError:
        if text.endswith("%"):
            return decimal(text[:-1])
        # A printed number ends with a bracket; text such as `train` is the usual case.
        return None if text[-1:].isalnum() or len(text) > _PRINTED_CHARS_MAX else printed_number(text)


def encodable(names: Any) -> Any:
    """A JSON value whose keys can be written as UTF-8: half of a surrogate pair, as `\\ud800` is, becomes a `?`."""
    if type(names) is list:
        return [encodable(item) for item in names]
    if type(names) is not dict:
        return names
    return {key.encode("utf-8", "replace").decode(): encodable(value) for key, value in names.items()}


def flattened(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the keys of nested objects and lists joined by `/`: `{"train": {"loss": 1}}` has `train/loss`."""
    if not any(type(value) in (dict, list) for value in row.values()):
        return dict(row)
    return dict(_leaves(row, "", 0))


def _leaves(row: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{prefix}{key}"
        if type(value) is dict:
            if {"mean", "std"} <= value.keys() <= {"mean", "std", "num"}:
                yield name, value["mean"]  # A metric of StyleGAN, with the number of its values.
            elif depth < _DEPTH_MAX:
                yield from _leaves(value, f"{name}/", depth + 1)
        elif type(value) is list:
            if len(value) <= _LIST_MAX:
                yield from ((f"{name}/{index}", item) for index, item in enumerate(value) if number(item) is not None)
        else:
            yield name, value


def values_of(row: Mapping[str, Any]) -> list[LoggedValue]:
    """The metrics of a row, nested or not, with its step, epoch and time."""
    flat = flattened(row)
    context = context_of(tuple(flat))
    step = step_number(flat[context.step]) if context.step is not None else None
    epoch = epoch_number(flat[context.epoch]) if context.epoch is not None else None
    t = unix_time_s(flat[context.time]) if context.time is not None else None
    left_out = {context.step if step is not None else None, context.epoch, context.time if t is not None else None}
    return [
        LoggedValue(tag, step, t, value, epoch)
        for tag, raw_value in flat.items()
        if tag not in left_out and (value := number(raw_value)) is not None and 0 < len(tag) <= TAG_CHARS_MAX
    ]
