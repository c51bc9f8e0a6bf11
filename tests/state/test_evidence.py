"""The evidence of a run: bounded, the same in whatever order journals are read, and restored from a cache."""

from __future__ import annotations

from itertools import permutations

from tests.diagnosis.runs import change, compiled, counters, fell_back, frame, snapshot_of, synced, window
from tests.recorded import T0
from tputui.cache import state_codec
from tputui.state import evidence
from tputui.state.process_state import ProcessState
from tputui.telemetry import events as ev

ONE: list[ev.Event] = [compiled(30, 2.0), synced(), fell_back(), window(), counters(t=T0 + 1), counters(recompiles=2)]
PHASES: list[tuple[int, ev.Phase, float]] = [(1, "executing", 0.5), (2, "data", 0.25), (3, "executing", 1.0)]
TWO: list[ev.Event] = [compiled(30, 3.0), compiled(31, 1.0, user_frame=frame(7)), synced(waited_s=0.1)]


def test_processes_are_combined_in_any_order() -> None:
    journals: dict[str, list[ev.Event]] = {"worker-0": ONE, "rank-1": TWO, "rank-2": [compiled(8, 0.1)]}
    made = [snapshot_of({name: journals[name] for name in order}).evidence for order in permutations(journals)]
    assert all(view == made[0] for view in made)
    # The same seconds pass in all processes, so the longest ones count, not their sum.
    assert [(group.line.line, group.seconds) for group in made[0].compiles] == [(41, 3.0), (7, 1.0)]
    assert made[0].syncs[0].waited_s == 0.5
    assert (made[0].late_compiles, made[0].late_compile_s) == (2, 2.0)


def test_compilations_of_a_line_are_counted_together() -> None:
    first, second = change("f32[8]", "f32[7]"), change("f32[7]", "f32[6]")
    view = snapshot_of(
        {"worker-0": [compiled(30, 2.0, changed_inputs=first), compiled(35, None, changed_inputs=second)]}
    ).evidence
    (group,) = view.compiles
    assert (group.count, group.seconds, group.num_timed) == (2, 2.0, 1)
    assert (group.first_step, group.last_step) == (30, 35)
    assert group.changes == [*second, *first]


def test_many_lines_stay_bounded() -> None:
    events = [compiled(step, 1.0, user_frame=frame(step), program=f"p{step}") for step in range(1, 500)]
    view = snapshot_of({"worker-0": events}).evidence
    assert len(view.compiles) == evidence.GROUPS_MAX + 1
    assert sum(group.count for group in view.compiles) == 499
    assert view.compiles[0].line.reason == "too many different lines"


def test_long_texts_are_shortened() -> None:
    long = compiled(30, program="x" * 10_000, changed_inputs=change("a" * 999, "b"))
    view = snapshot_of({"worker-0": [long]}).evidence
    (group,) = view.compiles
    assert len(group.program) == 200
    assert group.changes is not None
    assert len(group.changes[0].before) == 200


def test_impossible_events_are_counted() -> None:
    bad = [
        compiled(3, -1.0),
        compiled(3, float("nan")),
        synced(count=0),
        synced(waited_s=float("inf")),
        window(steps=-1),
    ]
    snapshot = snapshot_of({"worker-0": bad})
    assert snapshot.num_senseless == len(bad)
    assert snapshot.evidence == evidence.Evidence()


def test_evidence_continues_from_a_cached_state() -> None:
    stages = ev.InputStagesMeasured(t=T0, stages_s={"read": 1.0}, batches=3, threads=2, waited_s=0.5)
    events: list[ev.Event] = [*ONE, stages, *TWO]
    straight, stopped = ProcessState("worker-0"), ProcessState("worker-0")
    for seq, event in enumerate(events):
        straight.apply(seq, event)
        stopped.apply(seq, event)
        stopped = state_codec.decode("worker-0", state_codec.encode(stopped))
    assert stopped.evidence == straight.evidence
    assert straight.evidence.compiles
    assert straight.evidence.input is not None


def test_a_fork_is_independent() -> None:
    state = ProcessState("worker-0")
    for seq, event in enumerate(ONE):
        state.apply(seq, event)
    fork = state.fork()
    fork.apply(len(ONE), compiled(90, 4.0))
    assert [group.count for group in state.evidence.compiles] == [1]
    assert [group.count for group in fork.evidence.compiles] == [2]


def test_heartbeats_sample_the_phases() -> None:
    beats = [
        ev.HeartbeatSent(t=T0 + t, phase=phase, phase_s=phase_s, step=t, epoch=1)
        for t, phase, phase_s in PHASES
    ]  # fmt: skip
    view = snapshot_of({"worker-0": beats}).evidence
    assert view.phases_s == {"executing": 1.75, "data": 0.25}
