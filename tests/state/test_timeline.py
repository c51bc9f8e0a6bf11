"""Timeline marks: each event once, at its time and step."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import pytest

from tests.recorded import T0, losses, opened, steps_recorded, supervisor_events, worker_events
from tests.state.test_snapshot_builder import around, of, run_until, seen
from tputui.state.chart_data import Mark, MarkKind
from tputui.state.process_log import OF_A_KIND_MAX
from tputui.state.reducer import RunState
from tputui.state.snapshot import RequestView, Snapshot
from tputui.state.snapshot_builder import build_snapshot
from tputui.state.state_struct import POINTS_MAX
from tputui.telemetry import events as ev


def marks_of(snapshot: Snapshot, kind: str) -> list[tuple[float, int, str]]:
    return [(round(mark.t - T0, 2), mark.step, mark.text) for mark in snapshot.marks if mark.kind == kind]


def said_by_a_worker(*events: ev.Event, now: float = 100) -> Snapshot:
    return seen({"worker-0": [opened(T0, "worker"), *events]}, around(T0 + now))


def test_a_whole_run_has_its_marks_in_order_of_time() -> None:
    snapshot = run_until(12)
    assert [mark.t for mark in snapshot.marks] == sorted(mark.t for mark in snapshot.marks)
    assert snapshot.num_marks == len(snapshot.marks) == 11
    assert marks_of(snapshot, "epoch") == [
        (4.7, 1, "epoch 1 began"), (6.7, 23, "epoch 2 began"), (8.7, 45, "epoch 3 began")]  # fmt: skip
    assert marks_of(snapshot, "compile") == [(5.25, 11, "4 programs compiled in 3.5 s")]
    assert marks_of(snapshot, "checkpoint")[0] == (
        6.25, 22, "saved 353 KiB in 50.0 ms, the best so far: checkpoints/step-00000022.pt")  # fmt: skip
    assert marks_of(snapshot, "best")[0][:2] == (6.2, 22)
    assert marks_of(snapshot, "end") == [(11.1, 66, "run done: 3 epochs trained")]
    assert [(start.epoch, start.first_step) for start in snapshot.epoch_starts] == [(1, 1), (2, 23), (3, 45)]


def test_a_moment_has_no_mark_from_later() -> None:
    for t in (1, 4.5, 5.5, 6.3, 8, 11):
        assert all(mark.t <= T0 + t for mark in run_until(t).marks)


def test_programs_that_are_compiled_later_are_recompiles() -> None:
    [last] = of(worker_events(), ev.XlaMetricsRead)[-1:]
    again = msgspec.structs.replace(last, t=T0 + 11, compiles=6, compile_s=5.0, recompiles=2)
    same = msgspec.structs.replace(again, t=T0 + 12)
    snapshot = seen({"worker-0": [*worker_events()[:-1], again, same]}, around(T0 + 13))
    text = "2 programs compiled after warm-up in 1.5 s"
    assert marks_of(snapshot, "recompile") == [(11.0, 66, text)]
    assert len(marks_of(snapshot, "compile")) == 1


def beat(t: float, phase: ev.Phase = "executing", step: int = 1) -> ev.HeartbeatSent:
    return ev.HeartbeatSent(t=T0 + t, phase=phase, phase_s=0.1, step=step, epoch=1)


def test_silence_is_a_stall_from_its_start() -> None:
    snapshot = said_by_a_worker(beat(1), beat(2), beat(36.0), beat(37.0))
    assert marks_of(snapshot, "stall") == [(2.0, 0, "worker-0: no output for 34 s")]


def test_heartbeats_without_steps_mark_a_stall_afterwards() -> None:
    first = steps_recorded(T0 + 1, 1, [losses(1)])
    beats = [beat(t) for t in range(1, 61)]
    assert marks_of(said_by_a_worker(first, *beats), "stall") == []
    snapshot = said_by_a_worker(first, *beats, beat(61, step=2))
    assert marks_of(snapshot, "stall") == [(1.0, 1, "worker-0: executing for 1 min 00 s without a step")]


def test_long_wait_before_first_step_is_not_a_stall() -> None:
    beats = [beat(t, "data", step=0) for t in range(1, 61)]
    assert marks_of(said_by_a_worker(*beats, beat(61, step=1), steps_recorded(T0 + 62, 1, [losses(1)])), "stall") == []


def test_long_compile_with_heartbeats_is_not_a_stall() -> None:
    beats = [beat(t, "compiling") for t in range(1, 400)]
    assert marks_of(said_by_a_worker(*beats, beat(400, step=2), now=401), "stall") == []


def test_non_finite_values_are_marked_at_their_start() -> None:
    rows = [losses(step) for step in range(1, 12)]
    bad = [[*row[:3], math.nan, *row[4:]] for row in rows]
    events: list[ev.Event] = [
        steps_recorded(T0 + 1, 1, rows),
        steps_recorded(T0 + 2, 12, rows[:4] + bad[4:]),
        steps_recorded(T0 + 3, 23, bad),
        steps_recorded(T0 + 4, 34, rows),
        steps_recorded(T0 + 5, 45, bad[:1]),
    ]
    snapshot = said_by_a_worker(*events)
    assert marks_of(snapshot, "non_finite") == [
        (2.0, 16, "loss NaN on core 3, one of 7 values in steps 12 to 22"),
        (5.0, 45, "loss NaN on core 3"),
    ]
    assert {mark.core for mark in snapshot.marks if mark.kind == "non_finite"} == {3}


def test_resumed_run_names_its_checkpoint() -> None:
    [start] = [event for event in supervisor_events(None) if isinstance(event, ev.RunStarted)]
    resumed = msgspec.structs.replace(start, resumed_from="checkpoints/last.pt")
    planned = msgspec.structs.replace(of(worker_events(), ev.TrainingPlanned)[0], first_step=45)
    snapshot = seen({"supervisor-0": [resumed], "worker-0": [planned]}, around(T0 + 6))
    assert marks_of(snapshot, "resume") == [(0.0, 44, "resumed from checkpoints/last.pt")]


def test_supervisor_warning_is_at_the_step_of_its_time() -> None:
    warned = [*supervisor_events(None), ev.WarningRaised(t=T0 + 7.3, text="the disk is nearly full")]
    snapshot = seen({"worker-0": worker_events(), "supervisor-0": warned}, around(T0 + 12))
    assert marks_of(snapshot, "warning") == [(7.3, 33, "the disk is nearly full")]


def test_failure_and_lost_run_are_marked() -> None:
    broke = ev.FailureRaised(
        t=T0 + 6, error="ValueError", message="bad\npage", traceback="...", phase="tracing", step=7
    )  # fmt: skip
    snapshot = said_by_a_worker(broke)
    assert marks_of(snapshot, "failure") == [(6.0, 7, "training failed in step 7 while tracing: ValueError: bad")]
    gone = seen({"worker-0": worker_events()[:-1]}, around(T0 + 999, alive={"worker-0": False}))
    [(t, step, _)] = marks_of(gone, "end")
    assert (t, step) == (10.25, 66)


def test_request_is_marked_when_made_and_answered() -> None:
    view = RequestView(
        id="1", kind="checkpoint", state="requested", t=T0 + 5, by="screen", seen_phase=None, applied_step=None,
        path=None, why=None)  # fmt: skip
    answers: list[ev.Event] = [
        ev.RequestSeen(t=T0 + 6, request="1", kind="checkpoint", phase="compiling", step=30),
        ev.RequestApplied(t=T0 + 7, request="1", kind="checkpoint", step=31, path="checkpoints/a.pt"),
    ]
    snapshot = seen({"worker-0": answers}, around(T0 + 9, requests=[view]))
    assert [(t, text) for t, _, text in marks_of(snapshot, "request")] == [
        (5.0, "request to save a checkpoint, by screen"),
        (7.0, "request to save a checkpoint: applied after step 31: checkpoints/a.pt"),
    ]
    refused: list[ev.Event] = [ev.RequestRefused(t=T0 + 8, request="1", kind="checkpoint", why="the run ended")]
    snapshot = seen({"worker-0": refused}, around(T0 + 9, requests=[view]))
    assert marks_of(snapshot, "request")[1][2] == "request to save a checkpoint: refused: the run ended"


def test_same_event_of_several_hosts_is_one_mark() -> None:
    second = [opened(T0, "worker", host_index=1, pid=7), *worker_events()[1:]]
    alone, both = ({"worker-0": worker_events()}, {"worker-0": worker_events(), "worker-1": second})
    snapshots = [
        seen({**workers, "supervisor-0": supervisor_events(T0 + 11)}, around(T0 + 12)) for workers in (alone, both)
    ]
    assert snapshots[0].marks == snapshots[1].marks
    assert snapshots[0].num_marks == snapshots[1].num_marks
    assert snapshots[0].epoch_starts == snapshots[1].epoch_starts


def test_frequent_events_are_counted_and_downsampled() -> None:
    number = 5_000
    events: list[ev.Event] = []
    for k in range(number):
        events += [
            ev.WarningRaised(t=T0 + k, text=f"warning {k}"),
            ev.EpochStarted(t=T0 + k, epoch=k + 1, first_step=10 * k + 1),
        ]
    snapshot = said_by_a_worker(*events, now=number)
    warnings = marks_of(snapshot, "warning")
    assert snapshot.num_marks >= 2 * number
    assert len(snapshot.marks) <= len(get_args(MarkKind)) * 2 * OF_A_KIND_MAX
    assert [text for _, _, text in warnings][:1] == ["warning 0"]
    assert [text for _, _, text in warnings][-OF_A_KIND_MAX:] == [
        f"warning {k}" for k in range(number - OF_A_KIND_MAX, number)
    ]
    assert (len(snapshot.epoch_starts) <= POINTS_MAX, snapshot.epoch_starts[0].epoch) == (True, 1)


@pytest.mark.parametrize("t", [math.nan, math.inf])
def test_event_without_time_is_not_on_the_timeline(t: float) -> None:
    events: list[ev.Event] = [
        ev.WarningRaised(t=t, text="when?"),
        ev.EpochStarted(t=t, epoch=1, first_step=1),
        steps_recorded(t, 1, [[math.nan] * 8]),
        ev.MemorySampled(t=t, hbm=[ev.HbmReading(core=0, used_bytes=1, limit_bytes=2, peak_bytes=1)]),
    ]
    snapshot = said_by_a_worker(*events)
    assert [mark.kind for mark in snapshot.marks] == ["non_finite"]
    assert (snapshot.epoch_starts, snapshot.memory_history) == ([], [])
    assert snapshot.loss[0].t == T0


def test_unchanged_parts_are_shared_between_snapshots() -> None:
    state = RunState()
    for seq, event in enumerate(worker_events()[:-1]):
        state.apply("worker-0", seq, event)
    first, second = build_snapshot(state, around(T0 + 11)), build_snapshot(state, around(T0 + 11.1))
    assert first.marks is second.marks
    assert first.loss is second.loss
    assert first.core_columns is second.core_columns
    assert first.memory_history is second.memory_history


def test_every_kind_of_mark_is_known() -> None:
    assert len(get_args(MarkKind)) == 13
    assert isinstance(run_until(12).marks[0], Mark)
