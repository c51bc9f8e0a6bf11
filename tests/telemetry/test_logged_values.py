"""Values that a script logged, as columns of an event: exact and bounded."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost import num_calls
from tputui.telemetry import events as ev
from tputui.telemetry import logged_values
from tputui.telemetry.codec import decode, encode
from tputui.telemetry.float_blocks import BlockError
from tputui.telemetry.logged_values import VALUES_MAX, LoggedColumns, makes_sense, unpack, values_logged

ANY = st.floats(allow_nan=True, allow_infinity=True)
STEPS = st.integers(-ev.INT_MAX, ev.INT_MAX)
T0 = 1_790_000_000.0


def event_of(columns: LoggedColumns) -> ev.ValuesLogged:
    return values_logged(T0, "loss", "train", "train/loss", "runs/events.out.tfevents.1", columns)


def bits(values: Sequence[float] | None) -> bytes:
    """Float64 values as bytes; all NaN are equal to no values."""
    if values is None or all(map(math.isnan, values)):
        return b""
    return struct.pack(f"<{len(values)}d", *values)


@given(st.lists(st.tuples(ANY, STEPS, ANY, ANY), min_size=1, max_size=200))
def test_every_column_round_trips_bit_for_bit(rows: list[tuple[float, int, float, float]]) -> None:
    values, steps, times, epochs = (list(column) for column in zip(*rows, strict=True))
    event = event_of(LoggedColumns(values, steps, times, epochs))
    assert makes_sense(event)
    read = decode(encode(event, 0)).event
    assert isinstance(read, ev.ValuesLogged)
    found = unpack(read)
    assert repr(list(found.values)) == repr(values)
    assert list(found.steps) == steps
    assert bits(found.times) == bits(times)
    assert bits(found.epochs) == bits(epochs)
    finite = [value for value in values if math.isfinite(value)]
    if len(rows) > 1:
        assert (read.first_step, read.last_step, read.bad) == (min(steps), max(steps), len(values) - len(finite))
        assert not finite or (read.min, read.max) == (min(finite), max(finite))


def test_single_value_is_a_short_line_that_jq_can_read() -> None:
    line = encode(event_of(LoggedColumns([0.1], [7], [T0], None)), 3, "abcdef01")
    assert len(line) < 220
    fields = json.loads(line)
    assert (fields["value"], fields["step"], fields["value_t"]) == (0.1, 7, T0)
    assert not fields.keys() & {"values", "steps", "times", "epochs", "mean", "n"}


def test_regular_steps_and_widened_float32_take_little_space() -> None:
    rows = range(4_096)
    losses = struct.unpack("<4096f", struct.pack("<4096f", *(2.3 * math.exp(-row / 1_000) for row in rows)))
    columns = LoggedColumns(losses, [10 * row for row in rows], [T0 + 0.013 * row for row in rows], None)
    event = event_of(columns)
    assert len(event.steps) < 300
    assert len(encode(event, 0)) < 7 * len(rows)


def test_values_are_coded_without_a_call_for_each() -> None:
    rows = range(4_096)
    columns = LoggedColumns([math.sin(row) for row in rows], list(rows), [T0 + 0.01 * row for row in rows], None)
    assert num_calls(lambda: unpack(event_of(columns))) < 0.1 * len(rows)


@pytest.mark.parametrize("num_values", [0, -1, VALUES_MAX + 1, 10**12])
@pytest.mark.parametrize("form", ["r", "z", "d"])
def test_absurd_number_of_values_is_not_decoded(num_values: int, form: str) -> None:
    event = ev.ValuesLogged(
        t=T0, name="a", tag="a", source="a", n=num_values, step=1, value=1.0, values=form + "AAAA", steps=form + "AAAA"
    )
    assert not makes_sense(event)
    with pytest.raises(BlockError, match="are allowed"):
        unpack(event)


@given(st.sampled_from(["values", "steps", "times", "epochs"]), st.text(max_size=40) | st.binary(max_size=60))
def test_garbage_in_a_column_is_rejected_with_a_message(column: str, garbage: Any) -> None:
    good = event_of(LoggedColumns([0.5, 0.25, 0.5], [1, 2, 3], [T0, T0, T0], [0.1, 0.2, 0.3]))
    block = garbage if isinstance(garbage, str) else "z" + garbage.hex()
    if column in ("times", "epochs") and not block:
        return
    with pytest.raises(BlockError):
        unpack(msgspec.structs.replace(good, **{column: block}))


def test_differences_beyond_64_bits_are_rejected() -> None:
    raw = struct.pack("<99q", *([2**62] * 99))
    event = event_of(LoggedColumns([0.5] * 99, [2**62] * 99, None, None))
    with pytest.raises(BlockError, match="64 bits"):
        unpack(msgspec.structs.replace(event, steps=logged_values._pack(raw, form="d")))


def test_code_of_the_documentation_reads_the_columns() -> None:
    page = (Path(__file__).parents[2] / "docs" / "journal-format.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def column" in block)
    scope: dict[str, Any] = {}
    exec(code, scope)
    values, steps = [0.5, math.inf, 0.1] * 50, [3 * row - 7 for row in range(150)]
    event = event_of(LoggedColumns(values, steps, [T0 + row for row in range(150)], None))
    assert scope["column"](event.values, "<f8").tolist() == values
    assert scope["column"](event.steps, "<i8").tolist() == steps
    assert scope["column"](event.times, "<f8").tolist() == [T0 + row for row in range(150)]
