"""The condition of a run: a table of events, processes alive, and the expected condition."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.recorded import T0, opened, steps_recorded, supervisor_events, worker_events
from tputui.state.liveness import Liveness, assess
from tputui.state.reducer import RunState
from tputui.telemetry import events as ev

WORKER, SUPERVISOR = "worker-0", "supervisor-0"


def state_of(**journals: list[ev.Event]) -> RunState:
    state = RunState()
    for name, events in journals.items():
        for seq, event in enumerate(events):
            state.apply(name.replace("_", "-"), seq, event)
    return state


def beat(t: float, phase: ev.Phase, step: int = 0) -> ev.HeartbeatSent:
    return ev.HeartbeatSent(t=t, phase=phase, phase_s=0.1, step=step, epoch=1)


def stepping(t: float, phase: ev.Phase = "executing", step_s: float = 0.05) -> list[ev.Event]:
    """A worker that reported eleven steps at `t`."""
    return [
        opened(t - 5, "worker", pid=4243),
        steps_recorded(t, 1, [[1.0] * 8] * 11),
        ev.ProgressReported(
            t=t, epoch=1, epoch_step=11, step=11, step_s=step_s, examples_per_s=1.0, lr=0.1, report_steps=11
        ),
        beat(t, phase, step=11),
    ]


def kept_alive(t: float, seconds: int, phase: ev.Phase, step: int = 11) -> list[ev.Event]:
    return [beat(t + second, phase, step) for second in range(1, seconds + 1)]


SUPERVISED = [opened(T0, "supervisor"), ev.WorkerStarted(t=T0, pid=4243, argv=[])]
TRAINING_DONE = ev.TrainingEnded(t=T0 + 1, outcome="done", step=11, reason="3 epochs trained")
RUN_FAILED = ev.RunEnded(t=T0 + 2, outcome="failed", exit_code=3, reason="the worker was killed by SIGKILL")


def compiled(before_s: float, phase: ev.Phase = "compiling") -> list[ev.Event]:
    """A worker that has been in a phase for 70 s, and has compiled before, or has not."""
    read = ev.XlaMetricsRead(
        t=T0,
        compiles=1 if before_s else 0,
        compile_s=before_s,
        recompiles=0,
        executes=0,
        execute_s=0.0,
        transfers_to_device=0,
        transfers_from_device=0,
        bytes_to_device=0,
        bytes_from_device=0,
        fallbacks={},
    )
    beating = ev.HeartbeatSent(t=T0 + 71, phase=phase, phase_s=70.0, step=11, epoch=1)
    return [*stepping(T0), read, beating]


def configured(**stall: object) -> list[ev.Event]:
    """A supervisor whose configuration sets the limits of a stall."""
    return [*SUPERVISED, ev.RunStarted(t=T0, run="r", config={"stall": stall}, argv=[])]


def saved(t: float, seconds: float) -> list[ev.Event]:
    """The events of a worker about a requested save of that length, up to `t`."""
    beats = [
        ev.HeartbeatSent(t=t - seconds + s, phase="saving", phase_s=s, step=11, epoch=1) for s in range(int(seconds))
    ]
    done = ev.CheckpointSaved(
        t=t, path="checkpoints/step-11.pt", step=11, epoch=1, bytes=1, seconds=seconds, reason="request", best=False
    )
    return [*beats, done, ev.RequestApplied(t=t, request="1", kind="checkpoint", step=11)]


class Case(NamedTuple):
    what: str
    worker: list[ev.Event]
    supervisor: list[ev.Event]
    alive: tuple[bool | None, bool | None]
    """Of the worker and of the supervisor."""
    now: float
    condition: str
    words: str
    """Part of the reason."""


CASES = [
    Case("steps go by", stepping(T0), SUPERVISED, (True, True), T0 + 1, "running", "executing"),
    Case("before the first word", [], SUPERVISED, (None, True), T0 + 40, "starting", "the training process"),
    Case("importing", [opened(T0, "worker"), beat(T0 + 1, "starting")], SUPERVISED, (True, True), T0 + 2, "starting",
         "no step yet: starting"),
    Case("a long import before the first heartbeat", [opened(T0, "worker")], SUPERVISED, (True, True), T0 + 50,
         "starting", "no step yet"),
    Case("an end event", [*stepping(T0), TRAINING_DONE], [*SUPERVISED, RUN_FAILED], (False, False), T0 + 9e9, "failed",
         "killed by SIGKILL"),
    Case("the worker's own end, supervisor gone", [*stepping(T0), TRAINING_DONE], SUPERVISED, (False, False), T0 + 9e9,
         "done", "3 epochs trained"),
    Case("both killed", stepping(T0), SUPERVISED, (False, False), T0 + 95, "lost", "worker-0 (pid 4243) gone for 1"),
    Case("worker just killed", stepping(T0), SUPERVISED, (False, True), T0 + 5, "running", "waiting for the report"),
    Case("worker killed, supervisor mute", stepping(T0), SUPERVISED, (False, True), T0 + 15, "lost", "no report from"),
    Case("supervisor killed", stepping(T0), SUPERVISED, (True, False), T0 + 1, "running",
         "its supervisor supervisor-0 (pid 4242) is gone"),
    Case("no word", stepping(T0), SUPERVISED, (True, True), T0 + 11, "stalled", "sent nothing for 11 s"),
    Case("stuck in data", stepping(T0) + kept_alive(T0, 40, "data"), SUPERVISED, (True, True), T0 + 41, "stalled",
         "waiting for data for 41 s without a step"),
    Case("not stuck yet", stepping(T0) + kept_alive(T0, 25, "data"), SUPERVISED, (True, True), T0 + 26, "running",
         "waiting for data"),
    Case("steps that take long", stepping(T0, step_s=10.0) + kept_alive(T0, 100, "executing"), SUPERVISED, (True, True),
         T0 + 101, "running", "executing"),
    Case("a long compile", stepping(T0) + kept_alive(T0, 400, "compiling"), SUPERVISED, (True, True), T0 + 401,
         "running", "compiling"),
    Case("a compile that exceeds what it took before", compiled(3.0), SUPERVISED, (True, True), T0 + 71, "stalled",
         "has been compiling for 1 min 10 s; none before took longer than 3.0 s"),
    Case("a compile that takes as long as before", compiled(30.0), SUPERVISED, (True, True), T0 + 71, "running",
         "compiling"),
    Case("user code that hangs while it is traced", compiled(3.0, "tracing"), SUPERVISED, (True, True), T0 + 71,
         "stalled", "has been tracing for 1 min 10 s without a step"),
    Case("a long trace", compiled(20.0, "tracing"), SUPERVISED, (True, True), T0 + 71, "running", "tracing"),
    Case("a first trace", [opened(T0 - 5, "worker", pid=4243), *kept_alive(T0, 400, "tracing", 0)], SUPERVISED,
         (True, True), T0 + 401, "starting", "tracing"),
    Case("a first batch that takes long", [opened(T0 - 5, "worker", pid=4243), *kept_alive(T0, 90, "data", 0)],
         SUPERVISED, (True, True), T0 + 91, "starting", "no step yet: waiting for data"),
    Case("a first step that takes long", [opened(T0 - 5, "worker", pid=4243), *kept_alive(T0, 90, "executing", 1)],
         SUPERVISED, (True, True), T0 + 91, "starting", "no step yet: executing"),
    Case("a first compile", compiled(0.0), SUPERVISED, (True, True), T0 + 71, "running", "compiling"),
    Case("stuck by the run's own measure", stepping(T0) + kept_alive(T0, 5, "data"), configured(after_s=3.0),
         (True, True), T0 + 5, "stalled", "waiting for data for 5 s without a step"),
    Case("as slow as the run is configured to be", stepping(T0) + kept_alive(T0, 80, "data"), configured(after_s=90.0),
         (True, True), T0 + 81, "running", "waiting for data"),
    Case("a senseless measure", stepping(T0) + kept_alive(T0, 40, "data"), configured(after_s="no", after_steps=-1),
         (True, True), T0 + 41, "stalled", "waiting for data for 41 s without a step"),
    Case("data after a long evaluation", [*stepping(T0), *kept_alive(T0, 90, "evaluating"), beat(T0 + 91, "data", 11)],
         SUPERVISED, (True, True), T0 + 92, "running", "waiting for data"),
    Case("a request does not clear a stall",
         [*stepping(T0), *kept_alive(T0, 40, "data"), beat(T0 + 41, "saving", 11), *saved(T0 + 41.2, 0.1),
          beat(T0 + 41.5, "data", 11)],
         SUPERVISED, (True, True), T0 + 42, "stalled", "waiting for data for 41 s without a step"),
    Case("a save is no wait for data", [*stepping(T0), *saved(T0 + 40, 39.0), beat(T0 + 40.1, "data", 11)], SUPERVISED,
         (True, True), T0 + 41, "running", "waiting for data"),
    Case("silent for long, then killed, its supervisor about to report it",
         stepping(T0), [*SUPERVISED, ev.WarningRaised(t=T0 + 39, text="still there")], (False, True), T0 + 40,
         "running", "waiting for the report"),
    Case("far away and fresh", stepping(T0), SUPERVISED, (None, None), T0 + 5, "running", "executing"),
    Case("far away and silent", stepping(T0), SUPERVISED, (None, None), T0 + 30, "stalled", "sent nothing for 30 s"),
    Case("a copied run", stepping(T0), SUPERVISED, (None, None), T0 + 90_000, "lost",
         "no heartbeat for 1 d 1 h; its processes ran on tpu-vm-0, not visible from here"),
    Case("a copied run that ended", [*stepping(T0), TRAINING_DONE], SUPERVISED, (None, None), T0 + 90_000, "done",
         "3 epochs"),
    Case("nothing readable", [], [], (None, None), T0 + 90_000, "lost", "no process left a readable event"),
    Case("asked for a moment ago", [], [], (None, None), T0 + 1, "starting", "no process has written anything"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_condition_matches_the_evidence(case: Case) -> None:
    found = verdict(case)
    assert (found.condition, case.words in found.reason) == (case.condition, True), found.reason


def verdict(case: Case) -> Liveness:
    journals = {"worker_0": case.worker, "supervisor_0": case.supervisor}
    state = state_of(**{name: events for name, events in journals.items() if events})
    alive = {WORKER: case.alive[0], SUPERVISOR: case.alive[1]}
    return assess(state, alive, case.now, created=T0)


def test_supervisor_report_overrides_the_workers() -> None:
    state = state_of(worker_0=[*stepping(T0), TRAINING_DONE], supervisor_0=[*SUPERVISED, RUN_FAILED])
    found = assess(state, {WORKER: False, SUPERVISOR: False}, T0 + 3)
    assert (found.condition, found.exit_code, found.ended_t) == ("failed", 3, RUN_FAILED.t)


def test_one_dead_host_of_two_stalls_the_run_and_is_named() -> None:
    other = [opened(T0 - 5, "worker", host_index=1, pid=99), *stepping(T0)[1:]]
    state = state_of(worker_0=stepping(T0) + kept_alive(T0, 30, "executing"), worker_1=other)
    found = assess(state, {WORKER: True, "worker-1": False}, T0 + 20)
    assert found.condition == "stalled"
    assert "worker-1 (pid 99) exited 20 s ago" in found.reason


def test_a_lost_run_names_the_signal_that_ended_it() -> None:
    exited = ev.WorkerExited(t=T0 + 1, pid=4243, exit_code=None, signal="SIGKILL")
    state = state_of(worker_0=stepping(T0), supervisor_0=[*SUPERVISED, exited])
    found = assess(state, {WORKER: False, SUPERVISOR: False}, T0 + 20)
    assert found.condition == "lost"
    assert "ended by SIGKILL" in found.reason


def test_recorded_runs_have_their_recorded_condition() -> None:
    events: dict[str, Any] = {"worker_0": worker_events(), "supervisor_0": supervisor_events(T0 + 11)}
    assert assess(state_of(**events), {}, T0 + 12).condition == "done"
