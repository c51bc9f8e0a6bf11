"""Encoding of states: a decoded state continues like the original, and forged bytes are refused."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import T0, opened, steps_recorded
from tests.state.test_reducer import AROUND, EXPECTED, IN_TURN, Entry, interleavings, snapshot_text
from tests.telemetry.hostile import hostile_run
from tputui.cache.state_codec import NotCacheable, decode, encode
from tputui.state import core_series as cols
from tputui.state.process_history import PaceHistory
from tputui.state.process_log import Marks, ProcessLog
from tputui.state.process_state import ProcessState, Receipts
from tputui.state.reducer import RunState
from tputui.state.series import Series
from tputui.state.snapshot_builder import build_snapshot
from tputui.state.state_struct import Downsampled, Recent
from tputui.state.step_values import StepValues
from tputui.telemetry import events as ev
from tputui.telemetry.merge import Merge


def through_bytes(state: RunState) -> RunState:
    """The same state, written and read back."""
    other = RunState()
    other.processes = {name: decode(name, encode(writer)) for name, writer in state.processes.items()}
    return other


@given(interleavings(), st.integers(0, 400))
@settings(max_examples=40)
def test_decoded_state_continues_to_the_same_snapshot(entries: list[Entry], cut: int) -> None:
    state = RunState()
    for entry in entries[:cut]:
        state.apply(*entry)
    back = through_bytes(state)
    assert snapshot_text(build_snapshot(back, AROUND)) == snapshot_text(build_snapshot(state, AROUND))
    for entry in entries[cut:]:
        back.apply(*entry)
    assert snapshot_text(build_snapshot(back, AROUND)) == EXPECTED


@given(interleavings(), st.integers(0, 400))
@settings(max_examples=40)
def test_same_events_give_the_same_bytes(entries: list[Entry], cut: int) -> None:
    """However they came, and whether the state was read back on the way."""
    straight, stopped = RunState(), RunState()
    for entry in IN_TURN:
        straight.apply(*entry)
    for entry in entries[:cut]:
        stopped.apply(*entry)
    stopped = through_bytes(stopped)
    for entry in entries[cut:]:
        stopped.apply(*entry)
    assert {name: encode(writer) for name, writer in stopped.processes.items()} == {
        name: encode(writer) for name, writer in straight.processes.items()
    }


FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
ROWS = st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=1, max_size=9)


@pytest.mark.parametrize("whole", [30, cols.WHOLE_VALUES_MAX])
@given(st.lists(ROWS, min_size=1, max_size=60), st.integers(0, 60))
@settings(max_examples=40)
def test_step_values_round_trip_bit_for_bit(whole: int, blocks: list[list[list[float]]], cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cols, "WHOLE_VALUES_MAX", whole)
        _round_trip(blocks, cut)


def _round_trip(blocks: list[list[list[float]]], cut: int) -> None:
    events: list[ev.Event] = [opened(T0, "worker")]
    first = 1
    for number, rows in enumerate(blocks):
        events.append(steps_recorded(T0 + number, first, rows))
        first += len(rows)
    straight, stopped = ProcessState("worker-0"), ProcessState("worker-0")
    for seq, event in enumerate(events):
        straight.apply(seq, event)
        stopped.apply(seq, event)
        if seq == cut:
            stopped = decode("worker-0", encode(stopped))
    assert encode(stopped) == encode(straight)
    assert repr(stopped.values.series["loss"].segments) == repr(straight.values.series["loss"].segments)
    assert repr(stopped.values.columns.views) == repr(straight.values.columns.views)
    assert repr(stopped.values.newest_row()) == repr(straight.values.newest_row())
    assert repr(stopped.values.recent_rows()) == repr(straight.values.recent_rows())


@pytest.mark.parametrize("num_reports", [3_000, 20_000])
def test_downsampled_long_run_round_trips(num_reports: int) -> None:
    straight, stopped = ProcessState("worker-0"), ProcessState("worker-0")
    for seq in range(num_reports):
        t, step = T0 + seq, 4 * seq + 1
        event: ev.Event = steps_recorded(t, step, [[math.sin(step), 1.0 + seq % 7]] * 4)
        if seq % 3 == 1:
            event = ev.ProgressReported(
                t=t, epoch=1, epoch_step=step, step=step, step_s=0.01 * (1 + seq % 5), examples_per_s=640.0, lr=0.1,
                report_steps=4,
            )  # fmt: skip
        elif seq % 3 == 2:
            event = ev.LogWritten(t=t, line=f"line {seq}")
        straight.apply(seq, event)
        stopped.apply(seq, event)
        if seq in (num_reports // 3, num_reports - 100):
            stopped = decode("worker-0", encode(stopped))
    assert encode(stopped) == encode(straight)


@pytest.mark.parametrize("seed", range(40))
def test_hostile_run_round_trips_or_is_not_written(tmp_path: Path, seed: int) -> None:
    merge = Merge(hostile_run(tmp_path, seed))
    straight, stopped = RunState(), RunState()
    entries, _ = merge.poll(budget_s=5.0)
    merge.close()
    cut = random.Random(seed).randrange(len(entries) + 1)
    for number, entry in enumerate(entries):
        straight.apply(*entry)
        stopped.apply(*entry)
        if number == cut:
            stopped.processes = {name: _kept_if_it_can_be(name, writer) for name, writer in stopped.processes.items()}
    assert snapshot_text(build_snapshot(stopped, AROUND)) == snapshot_text(build_snapshot(straight, AROUND))


def _kept_if_it_can_be(name: str, writer: ProcessState) -> ProcessState:
    try:
        content = encode(writer)
    except NotCacheable:
        return writer
    return decode(name, content)


@pytest.mark.parametrize(
    ("thing", "derived"),
    [
        (ProcessState("worker-0"), set()),
        (StepValues(), {"topology", "_row", "_values", "_pending", "_pending_rows"}),
        (Series(), {"_segments", "ahead"}),
        (cols.AllCoreSeries(), {"_views", "_held_chars", "_highest", "_lowest", "ahead"}),
        (ProcessLog(), {"name", "printed_by", "lines_max"}),
        (Marks(), set()),
        (ProcessState("worker-0").pace, set()),
        (ProcessState("worker-0").usage, set()),
        (Receipts(), set()),
        (Downsampled(), set()),
        (Recent(64), set()),
    ],
    ids=lambda value: "" if isinstance(value, set) else type(value).__name__,
)
def test_every_field_of_the_state_is_encoded(thing: object, derived: set[str]) -> None:
    assert getattr(thing, "__dict__", {}).keys() == derived


def _state() -> ProcessState:
    state = ProcessState("worker-0")
    for name, seq, event in IN_TURN:
        if name == "worker-0":
            state.apply(seq, event)
    return state


GOOD = encode(_state())


@given(st.data())
@settings(max_examples=300)
def test_changed_bytes_are_rejected_or_still_usable(data: st.DataObject) -> None:
    key = data.draw(st.integers(0, len(GOOD) - 1))
    content = bytearray(GOOD)
    content[key] = data.draw(st.integers(0, 255))
    _refused_or_goes_on(
        bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    )


def _refused_or_goes_on(content: bytes) -> None:
    try:
        state = decode("worker-0", content)
    except NotCacheable:
        return
    run = RunState()
    run.processes = {"worker-0": state}
    for number, event in enumerate([steps_recorded(T0 + 50, 67, [[1.0] * 8] * 3), ev.LogWritten(t=T0, line="a")]):
        run.apply("worker-0", state.last_seq + 1 + number, event)
    build_snapshot(run, AROUND)


LIES: dict[str, dict[str, Any]] = {
    "a stride of nothing": {"values.series.loss.stride": 0},
    "a series without end": {"values.series.loss.pieces_max": 1 << 40},
    "a series with no room": {"values.series.loss.pieces_max": 0},
    "columns with no room": {"values.columns.most": 0},
    "columns without end": {"values.columns.most": 1 << 40},
    "steps that took no time": {"pace.seconds": {0: 0.0}},
    "a time that is none": {"newest_t": math.nan},
    "a number beyond all": {"last_seq": -1},
    "more lines than were logged": {"log.num_logs": 0},
    "a stride of marks": {"epoch_starts.stride": -1},
    "a value of core 1,000": {"values.non_finite": [{"core": 1000, "step": 1, "metric": "loss", "value": math.nan}]},
    "another metric's newest": {"values.series": {}},
    "a form too long": {"num_senseless": None},
}


def _with(content: bytes, changes: dict[str, Any]) -> bytes:
    """The bytes with the values at dotted keys replaced."""
    root = msgspec.msgpack.decode(content)
    for key, value in changes.items():
        form: Any = ProcessState
        at = root
        *path, last = key.split(".")
        kinds = {"values": StepValues, "columns": cols.AllCoreSeries, "pace": PaceHistory,
                 "log": ProcessLog, "epoch_starts": Downsampled, "loss": Series}  # fmt: skip
        for name in path:
            at = at[name] if isinstance(at, dict) else at[form.__struct_fields__.index(name)]
            form = kinds.get(name, form)
        at[form.__struct_fields__.index(last)] = value
    return msgspec.msgpack.encode(root)


@pytest.mark.parametrize("changes", LIES.values(), ids=list(LIES))
def test_contradictory_state_is_rejected(changes: dict[str, Any]) -> None:
    assert decode("worker-0", _with(GOOD, {})).last_seq == _state().last_seq
    with pytest.raises(NotCacheable):
        decode("worker-0", _with(GOOD, changes))


@pytest.mark.parametrize("deep", [70, 100_000])
def test_endlessly_nested_config_is_rejected(deep: int) -> None:
    state = ProcessState("supervisor-0")
    config: dict[str, Any] = {}
    for _ in range(deep):
        config = {"a": config}
    state.apply(0, ev.RunStarted(t=T0, run="a", config=config, argv=[]))
    with pytest.raises(NotCacheable, match=r"deep|recursion"):
        encode(state)
    while config:
        config = config.pop("a")  # piece by piece, since freeing it all at once would call as deep


@pytest.mark.parametrize(
    "content", [b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000, b"\xdc\xff\xff" + bytes(9)], ids=range(5)
)
def test_false_counts_allocate_no_memory(content: bytes) -> None:
    with pytest.raises(NotCacheable):
        decode("worker-0", content)


def test_non_json_values_in_config_are_rejected() -> None:
    state = ProcessState("supervisor-0")
    state.apply(0, ev.RunStarted(t=T0, run="a", config={"a": msgspec.msgpack.Ext(3, b"x")}, argv=[]))
    with pytest.raises(NotCacheable, match="none that JSON has"):
        encode(state)
