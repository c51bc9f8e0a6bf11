"""The reducer: its state depends only on the events of each writer."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import T0, opened, steps_recorded, supervisor_events, worker_events, write_journal
from tputui.state.process_log import LOG_LINES_MAX, WARNINGS_MAX
from tputui.state.process_state import UNKNOWN_KINDS_MAX
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.state.step_values import NON_FINITE_MAX
from tputui.telemetry import events as ev
from tputui.telemetry.journal import Tail

AROUND = ViewerContext(now=T0 + 12, run="digits-1", dir="runs/digits-1")

Entry = tuple[str, int, ev.Event]


def journals() -> dict[str, list[ev.Event]]:
    """A run of two hosts with receipts, values that are not finite, a stall, memory, a warning of a supervisor."""
    bad = [[1.0, math.nan, 3.0, math.inf, 1.0, 1.0, 1.0, 1.0]]
    requested = [
        ev.RequestSeen(t=T0 + 6, request="1", kind="checkpoint", phase="executing", step=30),
        ev.RequestApplied(t=T0 + 6.1, request="1", kind="checkpoint", step=31, path="checkpoints/a.pt"),
        steps_recorded(T0 + 7, 67, bad),
        ev.MemorySampled(t=T0 + 8, hbm=[ev.HbmReading(core=9, used_bytes=5, limit_bytes=9, peak_bytes=7)]),
        ev.HeartbeatSent(t=T0 + 30, phase="executing", phase_s=0.2, step=67, epoch=3),
    ]
    second = [opened(T0 + 0.5, "worker", host_index=1, pid=7), *worker_events()[2:-1], *requested]
    return {
        "worker-0": worker_events(),
        "worker-1": second,
        "supervisor-0": [*supervisor_events(T0 + 11), ev.WarningRaised(t=T0 + 9, text="the disk is nearly full")],
    }


def reduced(entries: list[Entry]) -> Snapshot:
    state = RunState()
    for entry in entries:
        state.apply(*entry)
    return build_snapshot(state, AROUND)


def in_turn() -> list[Entry]:
    return [(name, seq, event) for name, events in journals().items() for seq, event in enumerate(events)]


def snapshot_text(snapshot: Snapshot) -> str:
    """A snapshot as text, so that NaN is equal to NaN."""
    return repr(snapshot)


IN_TURN = in_turn()
EXPECTED = snapshot_text(reduced(IN_TURN))


@st.composite
def interleavings(draw: st.DrawFn) -> list[Entry]:
    """The events interleaved in each writer's order, with some repeated later."""
    waiting = {name: [entry for entry in IN_TURN if entry[0] == name] for name in journals()}
    given_out: list[Entry] = []
    while any(waiting.values()):
        name = draw(st.sampled_from([name for name, entries in waiting.items() if entries]))
        size = draw(st.integers(1, 20))
        given_out += waiting[name][:size]
        del waiting[name][:size]
        if draw(st.booleans()):
            start = draw(st.integers(0, len(given_out) - 1))
            given_out += given_out[start : start + draw(st.integers(1, 10))]
    return given_out


@given(interleavings())
@settings(max_examples=50)
def test_interleaving_and_duplicates_change_nothing(entries: list[Entry]) -> None:
    assert snapshot_text(reduced(entries)) == EXPECTED


def test_recorded_run_has_every_event_type() -> None:
    snapshot = reduced(IN_TURN)
    assert {mark.kind for mark in snapshot.marks} >= {"epoch", "compile", "best", "request", "stall", "warning", "end"}
    assert snapshot.core_columns
    assert snapshot.memory_history
    assert snapshot.meter_history


@given(interleavings(), st.integers(0, 200))
@settings(max_examples=25)
def test_fork_is_independent_of_the_original(entries: list[Entry], cut: int) -> None:
    first, straight = RunState(), RunState()
    for entry in entries[:cut]:
        first.apply(*entry)
        straight.apply(*entry)
    fork = RunState()
    fork.processes = {name: writer.fork() for name, writer in first.processes.items()}
    for entry in entries[cut:]:
        fork.apply(*entry)
    assert snapshot_text(build_snapshot(fork, AROUND)) == EXPECTED
    assert snapshot_text(build_snapshot(first, AROUND)) == snapshot_text(build_snapshot(straight, AROUND))


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=8))
@settings(max_examples=30)
def test_how_the_bytes_are_cut_changes_nothing(sizes: list[int]) -> None:
    state = RunState()
    with tempfile.TemporaryDirectory() as folder:
        for name, events in journals().items():
            whole, growing = Path(folder, name), Path(folder, f"{name}.growing")
            write_journal(whole, events)
            content = whole.read_bytes()
            growing.touch()
            tail = Tail(growing)
            turn = 0
            while content:
                size = sizes[turn % len(sizes)]
                with growing.open("ab") as file:
                    file.write(content[:size])
                content, turn = content[size:], turn + 1
                for numbered in tail.read():
                    state.apply(name, numbered.seq, numbered.event)
            while rest := tail.read():
                for numbered in rest:
                    state.apply(name, numbered.seq, numbered.event)
            tail.close()
    assert snapshot_text(build_snapshot(state, AROUND)) == EXPECTED


def test_every_prefix_of_a_run_can_be_shown() -> None:
    state = RunState()
    for entry in IN_TURN:
        state.apply(*entry)
        snapshot = build_snapshot(state, AROUND)
        assert msgspec.convert(msgspec.to_builtins(snapshot, enc_hook=list), Snapshot, strict=False).run == "digits-1"


def test_a_snapshot_after_others_equals_one_built_at_once() -> None:
    more: list[ev.Event] = [
        ev.CheckpointDropped(t=T0 + 40, path="checkpoints/a.pt"),
        ev.UnknownEvent(t=T0 + 41, kind="CoreMelted", fields={}),
        ev.AlertRaised(t=T0 + 42, condition="loss > 9", text="loss is 9.1", step=67),
        ev.ExampleSkipped(t=T0 + 43, split="train", where="row 7", why="no label", skipped=1, limit=5),
    ]
    first = len(journals()["worker-1"])
    entries = [*IN_TURN, *(("worker-1", first + number, event) for number, event in enumerate(more))]
    state = RunState()
    for number, entry in enumerate(entries):
        state.apply(*entry)
        snapshot = build_snapshot(state, AROUND)
        if number % 5 == 0 or number >= len(IN_TURN):
            assert snapshot_text(snapshot) == snapshot_text(reduced(entries[: number + 1]))


def said_by_a_worker(*events: ev.Event) -> Snapshot:
    entries: list[ev.Event] = [opened(T0, "worker"), *events]
    return reduced([("worker-0", seq, event) for seq, event in enumerate(entries)])


def test_phases_are_those_of_the_first_worker_that_beats_later_than_others() -> None:
    """Both workers send the same number of heartbeats, and a snapshot is built when only the second one has."""
    state = RunState()
    for entry in IN_TURN:
        if entry[0] != "worker-0" or entry[1] < 3:
            state.apply(*entry)
    build_snapshot(state, AROUND)
    for entry in IN_TURN:
        state.apply(*entry)
    assert snapshot_text(build_snapshot(state, AROUND)) == EXPECTED


def test_events_of_a_newer_version_are_counted() -> None:
    unknown = [ev.UnknownEvent(t=T0, kind=kind, fields={}) for kind in ("CoreMelted", "CoreMelted", "TeaMade")]
    snapshot = said_by_a_worker(*unknown)
    assert snapshot.newer_format is not None
    assert "CoreMelted (2), TeaMade (1)" in snapshot.newer_format


def test_an_event_that_only_a_supervisor_needs_is_of_this_version() -> None:
    assert said_by_a_worker(ev.RequestHandlingDeclared(t=T0, kinds=["stop"])).newer_format is None


def test_newer_format_is_reported() -> None:
    newer = msgspec.structs.replace(opened(T0, "worker"), format=ev.FORMAT_VERSION + 1)
    snapshot = reduced([("worker-0", 0, newer)])
    assert snapshot.newer_format is not None
    assert f"format {ev.FORMAT_VERSION + 1}" in snapshot.newer_format


def test_a_run_of_this_version_is_not_called_newer() -> None:
    assert reduced(IN_TURN).newer_format is None


def test_contradictory_events_are_ignored() -> None:
    good = steps_recorded(T0, 1, [[1.0] * 8])
    senseless = [
        msgspec.structs.replace(good, n=-5),
        msgspec.structs.replace(good, cores=0),
        msgspec.structs.replace(good, bad=900),
        msgspec.structs.replace(good, n=2**60, cores=2**60, bad=1),
        msgspec.structs.replace(good, mean=math.nan, first=2),
    ]
    snapshot = said_by_a_worker(good, *senseless)
    assert [(s.first_step, s.num_values) for s in snapshot.loss] == [(1, 8), (2, 0)]


def test_undecodable_block_is_damage_but_its_summary_counts() -> None:
    good = steps_recorded(T0, 1, [[1.0, 2.0], [3.0, 4.0]])
    snapshot = said_by_a_worker(msgspec.structs.replace(good, block="z" + good.block[1:9]))
    [region] = snapshot.damage.regions
    assert region.journal == "worker-0"
    assert "steps 1 to 2" in region.reason
    assert [(s.first_step, s.last_step, s.min, s.max) for s in snapshot.loss] == [(1, 2, 1.0, 4.0)]
    assert [core.loss for core in snapshot.cores] == [None, None]


def test_missing_events_are_reported_at_their_position() -> None:
    snapshot = reduced([("worker-0", 0, opened(T0, "worker")), ("worker-0", 5, ev.WarningRaised(t=T0 + 1, text="w"))])
    texts = [line.text for line in snapshot.logs]
    assert texts == ["worker-0: 4 events before this are missing from its journal", "w"]


def test_state_size_does_not_grow_with_the_run() -> None:
    state = RunState()
    nan = [[math.nan] * 8]
    events: list[ev.Event] = [opened(T0, "worker")]
    for number in range(5_000):
        events += [
            ev.LogWritten(t=T0 + number, line="x" * 10_000),
            ev.WarningRaised(t=T0 + number, text=f"warning {number}"),
            ev.UnknownEvent(t=T0, kind=f"Kind{number}", fields={}),
            steps_recorded(T0 + number, number + 1, nan),
        ]
    for seq, event in enumerate(events):
        state.apply("worker-0", seq, event)
    writer = state.processes["worker-0"]
    assert len(writer.log.logs) == LOG_LINES_MAX
    assert max(len(line.text) for line in writer.log.logs) < 5_000
    assert len(writer.log.warnings) == WARNINGS_MAX
    assert len(writer.unknown) == UNKNOWN_KINDS_MAX
    assert (len(writer.values.non_finite), writer.values.num_non_finite) == (NON_FINITE_MAX, 40_000)
    assert len(writer.values.series["loss"].pieces) <= 2_048
