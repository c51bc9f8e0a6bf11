"""Every value of a snapshot agrees with the raw events."""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec
import pytest

from tests.recorded import (
    CONFIG,
    EPOCH_S,
    NUM_CORES,
    STEP_S,
    STEPS_PER_EPOCH,
    T0,
    losses,
    opened,
    reading,
    steps_recorded,
    supervisor_events,
    worker_events,
)
from tputui.state.liveness import assess
from tputui.state.reducer import RunState
from tputui.state.snapshot import RequestView, Snapshot
from tputui.state.snapshot_builder import ViewerContext, at_later_moment, build_snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.codec import Damage

E = TypeVar("E", bound=ev.Event)


def of(events: list[ev.Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def around(now: float, **more: object) -> ViewerContext:
    alive = {"worker-0": True, "supervisor-0": True}
    fields: dict[str, object] = {"now": now, "run": "digits-1", "dir": "runs/digits-1", "alive": alive, **more}
    return msgspec.convert(fields, ViewerContext)


def seen(journals: dict[str, list[ev.Event]], surroundings: ViewerContext) -> Snapshot:
    state = RunState()
    for name, events in journals.items():
        for seq, event in enumerate(events):
            state.apply(name, seq, event)
    return build_snapshot(state, surroundings)


def run_until(t: float) -> Snapshot:
    """The recorded run as it stood at `T0 + t`."""
    journals = {"worker-0": worker_events(), "supervisor-0": supervisor_events(T0 + 11)}
    emitted = {name: [event for event in events if event.t <= T0 + t] for name, events in journals.items()}
    return seen(emitted, around(T0 + t))


def test_a_whole_run() -> None:
    snapshot, events = run_until(12), worker_events()
    assert (snapshot.condition, snapshot.exit_code, snapshot.ended) == ("done", 0, T0 + 11.1)
    assert (snapshot.epoch, snapshot.epoch_step, snapshot.steps) == (3, STEPS_PER_EPOCH, 66)
    assert (snapshot.started, snapshot.newest_fact) == (T0, T0 + 11.1)
    assert snapshot.eta_s is None
    assert snapshot.config == CONFIG
    [last] = of(events, ev.XlaMetricsRead)[-1:]
    assert snapshot.xla is not None
    assert msgspec.to_builtins(snapshot.xla) == {"late_compiles": 0} | {
        name: value for name, value in msgspec.to_builtins(last).items() if name != "k"
    }
    assert [view.epoch for view in snapshot.epochs] == [1, 2, 3]
    for view, ended in zip(snapshot.epochs, of(events, ev.EpochEnded), strict=True):
        assert (view.train, view.valid, view.train_s, view.valid_s) == (
            ended.train, ended.valid, ended.train_s, ended.valid_s)  # fmt: skip
        assert (view.sections_s, view.lr, view.best) == (ended.sections_s, ended.lr, ended.best)
    assert [(saved.path, saved.step) for saved in snapshot.checkpoints] == [
        (f"checkpoints/step-{step:08d}.pt", step) for step in (22, 44, 66)
    ]


def test_the_losses_are_the_raw_ones() -> None:
    snapshot = run_until(12)
    assert [core.loss for core in snapshot.cores] == losses(66)
    assert [core.core for core in snapshot.cores] == list(range(NUM_CORES))
    assert {(core.host, core.step, core.condition) for core in snapshot.cores} == {("tpu-vm-0", 66, "ended")}
    for step, segment in enumerate(snapshot.loss, start=1):
        raw = losses(step)
        assert (segment.first_step, segment.last_step, segment.num_values) == (step, step, NUM_CORES)
        assert (segment.min, segment.max) == (min(raw), max(raw))
        assert segment.mean == pytest.approx(math.fsum(raw) / NUM_CORES, rel=1e-12)
    assert len(snapshot.loss) == 66


def test_running_epoch_shows_own_train_last_valid_meters() -> None:
    snapshot = run_until(7.5)
    assert (snapshot.condition, snapshot.epoch, snapshot.epoch_step, snapshot.steps) == ("running", 2, 11, 33)
    values = [value for step in range(23, 34) for value in losses(step)]
    assert [(meter.name, meter.split, meter.epoch, meter.reading) for meter in snapshot.meters] == [
        ("loss", "train", 2, reading(values)),
        ("loss", "valid", 1, reading([0.4] * 45)),
        ("accuracy", "valid", 1, reading([0.9] * 45)),
    ]


def test_new_epoch_shows_meters_of_the_previous_one() -> None:
    snapshot = run_until(6.75)
    assert (snapshot.epoch, snapshot.epoch_step) == (2, 0)
    assert [(meter.split, meter.epoch) for meter in snapshot.meters] == [("train", 1), ("valid", 1), ("valid", 1)]


def test_remaining_time_counts_steps_and_epoch_ends() -> None:
    assert run_until(5).eta_s is None
    assert run_until(4.2 + EPOCH_S + 0.5 + 11 * STEP_S).eta_s == pytest.approx(33 * STEP_S + 2 * 0.45, abs=0.01)


def test_remaining_time_excludes_one_time_work() -> None:
    """GIVEN a first step of 2 s, then steps of 10 ms, and an evaluation with 20 s of compiling in it."""
    t0 = T0 + 5
    worker = [event for event in worker_events() if event.t <= t0 and not isinstance(event, ev.ProgressReported)]
    slow, quick, quicker = (
        ev.ProgressReported(
            t=t0 + step, epoch=1, epoch_step=step, step=step, step_s=step_s, examples_per_s=1.0, lr=0.1, report_steps=7
        )
        for step, step_s in ((1, 2.0), (8, 0.01), (15, 0.012))
    )

    def eta_s(*more: ev.Event) -> float | None:
        return seen({"worker-0": [*worker, *more], "supervisor-0": supervisor_events(None)}, around(more[-1].t)).eta_s

    assert eta_s(slow) is None
    assert eta_s(slow, quick) == pytest.approx(58 * 0.01)
    assert eta_s(slow, quick, quicker) == pytest.approx(51 * 0.011)
    ended = next(event for event in worker_events() if isinstance(event, ev.EpochEnded))
    ended = msgspec.structs.replace(
        ended, t=t0 + 40, valid_s=20.4, sections_s={**ended.sections_s, "compile": 20.0, "evaluate": 0.4, "save": 0.05}
    )
    assert eta_s(slow, quick, ended) == pytest.approx(44 * 0.01 + 2 * 0.45)


def test_remaining_time_decreases_between_reports() -> None:
    early, late = run_until(7.5).eta_s, run_until(7.7).eta_s
    assert early is not None
    assert late is not None
    assert early - late == pytest.approx(0.2, abs=1e-3)


def test_remaining_time_pauses_during_compile() -> None:
    worker = [event for event in worker_events() if event.t <= T0 + 7.7]
    beat = ev.HeartbeatSent(t=T0 + 59, phase="compiling", phase_s=50.0, step=33, epoch=2)
    journals = {"worker-0": [*worker, beat], "supervisor-0": supervisor_events(None)}
    snapshot = seen(journals, around(T0 + 59))
    assert snapshot.condition == "running"
    assert snapshot.eta_s, "33 steps are left, however long ago the newest report came"


def test_the_phase_gets_older_while_its_process_lives() -> None:
    early, late = run_until(4.6), run_until(4.7)
    assert (early.phase, early.condition) == ("starting", "starting")
    assert late.phase_s - early.phase_s == pytest.approx(0.1, abs=1e-3)
    assert {(core.phase, core.phase_s) for core in late.cores} == {("starting", late.phase_s)}


def test_the_age_of_a_phase_counts_from_the_newest_step() -> None:
    worker = [event for event in worker_events() if event.t <= T0 + 7.7]
    beat = ev.HeartbeatSent(t=T0 + 7.75, phase="executing", phase_s=5.0, step=33, epoch=2)
    snapshot = seen({"worker-0": [*worker, beat], "supervisor-0": supervisor_events(None)}, around(T0 + 7.8))
    assert snapshot.phase == "executing"
    assert snapshot.phase_s < 1, "it steps in one phase"


def test_recompiles_of_another_rank_count() -> None:
    counters = msgspec.structs.replace(of(worker_events(), ev.XlaMetricsRead)[-1], recompiles=5)
    rank = [opened(T0, "rank", 1), counters]
    alone = run_until(10)
    both = seen({"worker-0": [e for e in worker_events() if e.t <= T0 + 10], "rank-1": rank}, around(T0 + 10))
    assert alone.xla is not None
    assert both.xla is not None
    assert (alone.xla.recompiles, both.xla.recompiles) == (0, 5)
    assert both.xla.compiles == alone.xla.compiles, "the other counters are those of the first process"


def test_empty_run_invents_no_values() -> None:
    snapshot = seen({}, around(T0))
    figures = (snapshot.topology, snapshot.plan, snapshot.phase, snapshot.step_s, snapshot.eta_s, snapshot.xla)
    assert figures == (None,) * 6
    assert (snapshot.cores, snapshot.meters, snapshot.loss) == ([], [], [])
    assert snapshot.memory.hbm is None
    assert snapshot.memory.hbm_reason is not None


def test_memory_has_samples_or_reason() -> None:
    memory = run_until(12).memory
    assert (memory.hbm, memory.hbm_reason) == (None, "the CPU device does not tell its memory")
    assert (memory.host_cpu_percent, memory.host_used_bytes, memory.host_total_bytes) == (87.5, 3 << 30, 24 << 30)
    assert [(process.role, process.pid) for process in memory.processes] == [("worker", 4243), ("supervisor", 4242)]


def test_memory_of_an_ended_run_is_its_last_reading() -> None:
    emitted = supervisor_events(T0 + 11)
    sampled = of(emitted, ev.HostSampled)[0]
    ended = [msgspec.structs.replace(process, rss_bytes=0, cpu_percent=0.0) for process in sampled.processes[:1]]
    for processes in ([*ended, sampled.processes[1]], sampled.processes[1:], []):
        later = msgspec.structs.replace(sampled, t=T0 + 10.8, cpu_percent=3.0, processes=processes)
        memory = seen({"supervisor-0": [*emitted[:-2], later, *emitted[-2:]]}, around(T0 + 12)).memory
        assert memory.processes == sampled.processes
        assert memory.host_cpu_percent == 3.0


def saved(path: str, step: int, t: float) -> ev.CheckpointSaved:
    return ev.CheckpointSaved(t=T0 + t, path=path, step=step, epoch=1, bytes=int(t), seconds=0.1, reason="epoch")


def test_removed_checkpoint_is_listed_after_saved_again() -> None:
    emitted: list[ev.Event] = [
        saved("a.pt", 1, 1),
        saved("b.pt", 2, 2),
        ev.CheckpointDropped(t=T0 + 3, path="a.pt"),
    ]
    assert [view.path for view in seen({"worker-0": emitted}, around(T0 + 9)).checkpoints] == ["b.pt"]
    elsewhere: list[ev.Event] = [saved("a.pt", 1, 1.1), saved("c.pt", 3, 3)]
    both = seen({"worker-0": emitted, "worker-1": elsewhere}, around(T0 + 9)).checkpoints
    assert [view.path for view in both] == ["b.pt", "c.pt"]
    again = seen({"worker-0": [*emitted, saved("a.pt", 1, 4)]}, around(T0 + 9)).checkpoints
    assert [(view.path, view.t) for view in again] == [("a.pt", T0 + 4), ("b.pt", T0 + 2)]


def test_later_of_two_saves_at_one_step_wins() -> None:
    emitted: list[ev.Event] = [saved("a.pt", 1, 1), saved("a.pt", 1, 5)]
    [view] = seen({"worker-0": emitted, "worker-1": [saved("a.pt", 1, 2)]}, around(T0 + 9)).checkpoints
    assert (view.t, view.bytes) == (T0 + 5, 5)


def test_hosts_are_summed() -> None:
    first, second = worker_events(), [opened(T0, "worker", host_index=1, pid=7), *worker_events()[1:]]
    declared = of(first, ev.TopologyDeclared)[0]
    there = msgspec.structs.replace(declared, num_cores=16, num_hosts=2, host_index=1, cores=list(range(8, 16)))
    second = [there if isinstance(event, ev.TopologyDeclared) else event for event in second]
    reading_of = ev.HbmReading(core=9, used_bytes=1, limit_bytes=2, peak_bytes=0)
    second.append(ev.MemorySampled(t=T0 + 10, hbm=[reading_of]))
    snapshot = seen({"worker-0": first, "worker-1": second}, around(T0 + 12))
    assert [core.core for core in snapshot.cores] == list(range(16))
    assert [core.host for core in snapshot.cores] == ["tpu-vm-0"] * 8 + ["tpu-vm-1"] * 8
    last = of(first, ev.XlaMetricsRead)[-1]
    assert snapshot.xla is not None
    assert (snapshot.xla.executes, snapshot.xla.bytes_to_device) == (2 * last.executes, 2 * last.bytes_to_device)
    assert (snapshot.memory.hbm, snapshot.memory.hbm_reason) == ([reading_of], None)
    assert [segment.num_values for segment in snapshot.loss] == [16] * 66
    assert [view.epoch for view in snapshot.epochs] == [1, 2, 3]
    assert len(snapshot.checkpoints) == 3
    ends = [line.text for line in snapshot.logs if line.text.startswith("epoch 1 ended")]
    assert len(ends) == 1


def test_non_finite_values_name_core_step_and_value() -> None:
    rows = [losses(step) for step in range(1, 12)]
    rows[4][3], rows[7][0] = math.nan, -math.inf
    declared = msgspec.structs.replace(of(worker_events(), ev.TopologyDeclared)[0], cores=list(range(8, 16)))
    events: list[ev.Event] = [opened(T0, "worker"), declared, steps_recorded(T0 + 5, 1, rows)]
    snapshot = seen({"worker-0": events}, around(T0 + 6))
    assert [(bad.core, bad.step, bad.metric, str(bad.value)) for bad in snapshot.non_finite] == [
        (11, 5, "loss", "nan"),
        (8, 8, "loss", "-inf"),
    ]
    assert snapshot.num_non_finite == 2
    assert [segment.first_step for segment in snapshot.loss if segment.num_bad] == [5, 8]


def requested(request: str, kind: ev.RequestKind = "checkpoint") -> RequestView:
    return RequestView(
        id=request, kind=kind, state="requested", t=T0 + 5, by="screen", seen_phase=None, applied_step=None, path=None,
        why=None)  # fmt: skip


SEEN = ev.RequestSeen(t=T0 + 6, request="1", kind="checkpoint", phase="compiling", step=30)
APPLIED = ev.RequestApplied(t=T0 + 7, request="1", kind="checkpoint", step=31, path="checkpoints/a.pt")
REFUSED = ev.RequestRefused(t=T0 + 8, request="1", kind="checkpoint", why="the run ended")


@pytest.mark.parametrize(
    ("receipts", "state", "seen_phase", "applied_step", "why"),
    [
        ([], "requested", None, None, None),
        ([SEEN], "seen", "compiling", None, None),
        ([SEEN, APPLIED], "applied", "compiling", 31, None),
        ([SEEN, REFUSED], "refused", "compiling", None, "the run ended"),
        ([REFUSED], "refused", None, None, "the run ended"),
        ([APPLIED, SEEN, REFUSED], "applied", "compiling", 31, None),
    ],
)
def test_a_request_has_the_receipts_of_any_writer(
    receipts: list[ev.Event], state: str, seen_phase: str | None, applied_step: int | None, why: str | None
) -> None:
    journals: dict[str, list[ev.Event]] = {"worker-0": receipts[:1], "supervisor-0": receipts[1:]}
    [view] = seen(journals, around(T0 + 9, requests=[requested("1")])).requests
    assert (view.state, view.seen_phase, view.applied_step, view.why) == (state, seen_phase, applied_step, why)
    assert (view.by, view.t) == ("screen", T0 + 5)
    times = {"requested": None, "seen": SEEN.t, "applied": APPLIED.t, "refused": REFUSED.t}
    assert view.answered_t == times[state]


def test_a_receipt_without_its_request_file_is_shown_too() -> None:
    [view] = seen({"worker-0": [SEEN, APPLIED]}, around(T0 + 9)).requests
    assert (view.id, view.state, view.by, view.t, view.path) == ("1", "applied", None, T0 + 6, "checkpoints/a.pt")


def test_failure_includes_its_traceback() -> None:
    broke = ev.FailureRaised(
        t=T0 + 6, error="ValueError", message="bad", traceback="Traceback ...", phase="tracing", step=7
    )  # fmt: skip
    snapshot = seen({"worker-0": [opened(T0, "worker"), broke]}, around(T0 + 7))
    assert snapshot.failure is not None
    assert (snapshot.failure.writer, snapshot.failure.traceback) == ("worker-0", "Traceback ...")
    assert [(line.level, line.source) for line in snapshot.logs] == [("error", "tputui")]


def test_the_log_is_in_order_of_time_over_all_writers() -> None:
    lines = run_until(12).logs
    assert [line.t for line in lines] == sorted(line.t for line in lines)
    assert (lines[0].source, lines[0].text) == ("worker-0", "digits: 1437 images to train on, 360 to validate")
    assert "checkpoint of step 22 saved" in "\n".join(line.text for line in lines if line.source == "tputui")


def test_damage_is_summed_up() -> None:
    regions = [
        Damage(journal="worker-0.jsonl", start=1, end=9, reason="cut", lost_records=lost) for lost in (2, None, 3)
    ]
    damage = seen({}, around(T0, damage=regions)).damage
    assert (damage.regions, damage.lost_records) == (regions, 5)


def test_a_resumed_run_counts_the_steps_before() -> None:
    planned = msgspec.structs.replace(of(worker_events(), ev.TrainingPlanned)[0], first_step=45)
    events: list[ev.Event] = [opened(T0, "worker"), planned, ev.EpochStarted(t=T0 + 5, epoch=3, first_step=50)]
    snapshot = seen({"worker-0": events}, around(T0 + 6))
    assert (snapshot.steps, snapshot.epoch, snapshot.epoch_step) == (44, 3, 5)


def test_recorded_config_overrides_the_manifest() -> None:
    assert seen({"supervisor-0": supervisor_events(None)}, around(T0)).config == CONFIG
    assert seen({"supervisor-0": supervisor_events(None)}, around(T0, config={"task": "x"})).config == CONFIG
    assert seen({}, around(T0, config={"task": "x"})).config == {"task": "x"}
    assert seen({}, around(T0)).config == {}


def test_a_snapshot_of_a_later_moment_equals_one_built_then() -> None:
    for t in (0.5, 2.0, 5.0, 9.0, 12.0):
        state = RunState()
        for name, events in {"worker-0": worker_events(), "supervisor-0": supervisor_events(T0 + 11)}.items():
            for seq, event in enumerate(event for event in events if event.t <= T0 + t):
                state.apply(name, seq, event)
        first, second = around(T0 + t), around(T0 + t + 3)
        liveness = assess(state, second.alive, second.now)
        assert at_later_moment(build_snapshot(state, first), state, liveness, second.now) == build_snapshot(
            state, second
        )


def test_the_mean_loss_waits_for_all_cores_for_five_seconds() -> None:
    def replica(rank: int, start: float) -> list[ev.Event]:
        topology = ev.TopologyDeclared(
            t=T0,
            strategy="replica",
            device="CPU",
            device_reason=None,
            num_cores=4,
            num_hosts=1,
            host_index=0,
            cores=[rank],
        )
        step = msgspec.structs.replace(steps_recorded(start, 1, [[float(rank)]]), cores=1)
        return [msgspec.structs.replace(opened(T0, "worker", rank), writer=f"worker-{rank}"), topology, step]

    three = {f"worker-{rank}": replica(rank, T0 + rank / 10) for rank in range(3)}
    alive = {name: True for name in three}
    assert [seen(three, around(T0 + after, alive=alive)).newest_loss for after in (4.9, 5.3)] == [None, 1.0]
    whole = three | {"worker-3": replica(3, T0 + 4)}
    assert seen(whole, around(T0 + 4, alive={name: True for name in whole})).newest_loss == 1.5
