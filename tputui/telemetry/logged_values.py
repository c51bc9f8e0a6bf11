"""Values that a script logged, packed into `ValuesLogged` events and unpacked: exact float64, bounded in number.

A column of 64-bit numbers is `r`, `z` or `d` followed by base64. `r` contains the little-endian numbers, `z` the same
bytes regrouped by significance and deflated. `d` is like `z`, but contains the first number and the differences between
neighbours, all of them as int64: regular steps take almost no space, and float64 times, whose bits are taken as int64,
about half. Pure, and without numpy.
"""

from __future__ import annotations

import binascii
import itertools
import math
import operator
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from tputui.telemetry import float_blocks
from tputui.telemetry.events import Split, ValuesLogged
from tputui.telemetry.float_blocks import BlockError

CONSOLE = "console"
"""Source of values that were read from printed text."""
VALUES_MAX = 1 << 16
"""Maximum number of values in one event; larger ones are not decoded."""
VALUES_PER_EVENT = 4_096
"""Values per event that writers aim at."""
_WIDTH = 8
_LEVEL = 1
_FORMS = ("r", "z", "d")

ENCODING = (
    "'r' + base64(numbers), 'z' + base64(zlib(numbers regrouped by byte significance)), or 'd', which is 'z' of the "
    "first number and the differences between neighbours, as int64; numbers are little-endian and 64 bits wide"
)
"""Description of the encoding, for the page about the journal format."""


class LoggedColumns(NamedTuple):
    """The values of one event, in the order of the log; each column has one entry per value."""

    values: Sequence[float]
    steps: Sequence[int]
    times: Sequence[float] | None
    """Unix times, NaN if unknown; None if all are unknown."""
    epochs: Sequence[float] | None
    """Epochs as logged, NaN if unknown; None if all are unknown."""


def values_logged(
    t: float,
    name: str,
    split: Split,
    tag: str,
    source: str,
    columns: LoggedColumns,
    *,
    counted: bool = False,
    x: str = "",
) -> ValuesLogged:
    """An event with the values of one metric, at least one and at most `VALUES_MAX`, at the unix time `t`; `counted`:
    their steps only count them; `x`: the x axis that the author chose."""
    values, steps, times, epochs = columns
    num_values = len(values)
    if not 1 <= num_values <= VALUES_MAX or len(steps) != num_values:
        raise ValueError(f"{num_values} values with {len(steps)} steps; 1 to {VALUES_MAX} with a step each are allowed")
    event = ValuesLogged(
        t=t,
        name=name,
        split=split,
        tag=tag,
        source=source,
        n=num_values,
        step=steps[-1],
        value=values[-1],
        value_t=times[-1] if times is not None else math.nan,
        epoch=epochs[-1] if epochs is not None else math.nan,
        counted=counted,
        x=x,
    )
    if num_values == 1:
        return event
    mean, least, greatest, bad = float_blocks.summarise(values)
    return msgspec.structs.replace(
        event,
        first_step=min(steps),
        last_step=max(steps),
        mean=mean,
        min=least,
        max=greatest,
        bad=bad,
        values=_pack(array("d", values).tobytes()),
        steps=_pack_differences(array("q", steps)),
        times=_pack_known(times),
        epochs=_pack_known(epochs),
    )


def unpack(event: ValuesLogged) -> LoggedColumns:
    """The values of an event. Raises `BlockError`."""
    if event.n == 1:
        times = None if math.isnan(event.value_t) else [event.value_t]
        epochs = None if math.isnan(event.epoch) else [event.epoch]
        return LoggedColumns([event.value], [event.step], times, epochs)
    values = array("d", _unpack(event.values, event.n))
    steps = array("q", _unpack(event.steps, event.n))
    return LoggedColumns(values, steps, _unpack_known(event.times, event.n), _unpack_known(event.epochs, event.n))


def with_times(event: ValuesLogged, correct: Callable[[float], float]) -> ValuesLogged:
    """The event with the unix times of its values changed by `correct`; unknown ones stay so. A damaged column stays as
    it is, and is reported when it is decoded."""
    if not math.isnan(event.value_t):
        event = msgspec.structs.replace(event, value_t=correct(event.value_t))
    if event.n == 1 or not event.times:
        return event
    try:
        times = _unpack_known(event.times, event.n) or ()
    except BlockError:
        return event
    packed = _pack_known([t if math.isnan(t) else correct(t) for t in times])
    return msgspec.structs.replace(event, times=packed)


def makes_sense(event: ValuesLogged) -> bool:
    """Whether the counts of an event are consistent and within the limits."""
    if event.n == 1:
        return True
    return 1 < event.n <= VALUES_MAX and event.first_step <= event.last_step and 0 <= event.bad <= event.n


def _pack_known(numbers: Sequence[float] | None) -> str:
    """A column of floats; empty if all are NaN."""
    if numbers is None or all(map(math.isnan, numbers)):
        return ""
    return _pack_differences(array("q", array("d", numbers).tobytes()))


def _unpack_known(block: str, num_values: int) -> Sequence[float] | None:
    return array("d", _unpack(block, num_values)) if block else None


def _pack_differences(numbers: array[int]) -> str:
    """A column of int64 as differences, unless one of them has more than 64 bits."""
    try:
        differences = array("q", numbers[:1])
        differences.extend(map(operator.sub, numbers[1:], numbers[:-1]))
    except OverflowError:
        return _pack(numbers.tobytes())
    return _pack(differences.tobytes(), form="d", plain=numbers.tobytes())


def _pack(raw: bytes, form: str = "z", plain: bytes | None = None) -> str:
    """A column from its bytes in the order of this machine; `plain` are those without differences."""
    raw, plain = _swapped(raw), _swapped(plain if plain is not None else raw)
    body = zlib.compress(float_blocks.shuffle(raw, _WIDTH), _LEVEL)
    if len(body) >= len(plain):
        form, body = "r", plain
    return form + binascii.b2a_base64(body, newline=False).decode("ascii")


def _unpack(block: str, num_values: int) -> bytes:
    """The bytes of a column in the order of this machine. Raises `BlockError`."""
    form, raw = float_blocks.stored(block, num_values, _WIDTH, forms=_FORMS, least=1, most=VALUES_MAX)
    if form == "r":
        return _swapped(raw)
    raw = _swapped(float_blocks.unshuffle(raw, _WIDTH))
    if form == "z":
        return raw
    try:
        return array("q", itertools.accumulate(array("q", raw))).tobytes()
    except OverflowError:
        raise BlockError("a number has more than 64 bits") from None


def _swapped(raw: bytes) -> bytes:
    """The bytes; swapped on a big-endian machine, since columns are little-endian."""
    if sys.byteorder == "little":
        return raw
    numbers = array("q", raw)
    numbers.byteswap()
    return numbers.tobytes()


LOSS = "loss"
LOSS_NAMES = (
    "loss", "loss_step", "step_loss", "batch_loss", "loss_batch", "total_loss", "loss_total", "global_avg_loss",
    "avg_loss", "loss_avg", "mean_loss", "loss_mean", "lm_loss", "nll_loss", "ce_loss", "cross_entropy_loss",
    "cross_entropy", "crossentropyloss", "xent", "loss_epoch", "epoch_loss",
)  # fmt: skip
"""Names of the training loss, the preferred one first."""
NUM_CLASSES = 3
_WORDS = re.compile(r"[^a-z0-9]+")

T = TypeVar("T")


def in_form(name: str) -> str:
    """A name in the form in which names of losses are compared."""
    return name.lower().replace(" ", "_").replace("-", "_").replace(".", "_")


@lru_cache(maxsize=1 << 14)
def class_of(name: str, split: Split) -> int:
    """0 for a loss of `LOSS_NAMES`, 1 for other losses and for validation values, 2 for other metrics."""
    if in_form(name) in LOSS_NAMES:
        return 0
    form = name.lower()
    is_loss = LOSS in _WORDS.split(form) or form.rpartition("/")[2] in LOSS_NAMES
    return 1 if is_loss or split == "valid" else 2


def first_of(candidates: Sequence[T], most: int, class_of_one: Callable[[T], int]) -> list[T]:
    """At most so many, those of the lowest classes first, in their order."""
    if len(candidates) <= most:
        return list(candidates)
    places = sorted(range(len(candidates)), key=lambda place: class_of_one(candidates[place]))[:most]
    return [candidates[place] for place in sorted(places)]
