"""All strategies must give the same data, loss curve and metrics.

Curves agree to 1e-5: sums are taken in another order (float32, about 2e-7 of a value), and Adam's first steps, which
divide by the size of the gradient, amplify the difference.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
import torch

from engine.data.sampler import cut, permutation, valid_shares
from engine.process import hardware
from tests.engine.curve_task import LOG, NUM_TRAIN, NUM_VALID, STOP_AT, STOP_RUN
from tests.engine.workers import Run, make
from tests.supervise.harness import wait_for
from tputui import config
from tputui.state.liveness import assess
from tputui.state.reducer import RunState
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.journal import Tail

pytestmark = pytest.mark.xla

BATCH = 32
STEPS = 8
"""Steps of an epoch."""
TOLERANCE = 1e-5
HERE = Path(__file__).parent
CURVE = f"""
task = "tests.engine.curve_task:CurveTask"
epochs = 2
[data]
global_batch = {BATCH}
[optim]
lr = 0.01
lr_scaling = "none"
[device]
cores = 1
"""
REPLICA = ["device.cores=2", "device.strategy=replica"]
SETUPS = {
    "single": ["device.cores=1"],
    "spmd-2": ["device.cores=2", "device.strategy=spmd"],
    "spmd-4": ["device.cores=4", "device.strategy=spmd"],
    "replica-2": REPLICA,
}
SCHEDULED = [
    "optim.schedule=cosine",
    "optim.warmup_steps=3",
    "optim.accumulate=2",
    "optim.clip_norm=0.5",
    "non_finite.policy=stop",
]
"""Updates of two batches each, with clipped gradients and a learning rate that changes at each."""
MANY = [name for name in SETUPS if name != "single"]


class Fetched(NamedTuple):
    """The batches that the processes of a run fetched, by process id."""

    train: dict[int, list[list[int]]]
    valid: dict[int, list[list[int]]]


def new(parent: Path, name: str, overrides: list[str], resume_from: Path | None = None) -> Run:
    """A run of the task, not started."""
    return make(parent, name, overrides, text=CURVE, cwd=HERE.parents[1], resume_from=resume_from)


def train(runs: dict[str, Run], environ: Callable[[Run], dict[str, str]] = lambda run: {}) -> None:
    """Trains several runs at a time, since most of the time of a short run is its start. `stopped` must be stopped."""
    try:
        for run in runs.values():
            run.start(environ(run))
        for name, run in runs.items():
            assert run.finish() == (4 if name == "stopped" else 0), run.log.read_text()
    finally:
        for run in runs.values():
            run.stop_if_alive()


def fetched(run: Run) -> Fetched:
    """Reads the fetched batches from the logs of a run."""
    found: dict[str, dict[int, list[list[int]]]] = {"train": {}, "valid": {}}
    for path in (run.dir / "log").iterdir():
        split, _, pid = path.stem.partition("-")
        batches = [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
        # One row alone is the look at an example from which the memory of a step is predicted.
        found[split][int(pid)] = batches[1:] if len(batches[0]) == 1 else batches
    return Fetched(found["train"], found["valid"])


def rank_events(run: Run, rank: int = 1) -> list[ev.Event]:
    """Events in the journal of a rank other than the first."""
    path = run.dir / f"rank-{rank}.jsonl"
    if not path.exists():
        return []
    tail, events = Tail(path), list[ev.Event]()
    while records := tail.read():
        events += [record.event for record in records]
    tail.close()
    return events


def process_of_rank(run: Run, rank: int = 1) -> rundir.ProcessId:
    """The process that a rank's journal names."""
    opened = next(event for event in rank_events(run, rank) if isinstance(event, ev.JournalOpened))
    return rundir.ProcessId(host=opened.host, host_id=opened.host_id, pid=opened.pid, pid_started=opened.pid_started)


def means(run: Run) -> dict[int, float]:
    """Mean loss over the cores by step."""
    return {step: math.fsum(row) / len(row) for step, row in run.losses().items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A complete run under each strategy."""
    parent = tmp_path_factory.mktemp("strategies")
    made: dict[str, Run] = {}
    for name, overrides in SETUPS.items():
        made[name] = new(parent, name, overrides)
        (parent / name / "log").mkdir()
    train(made, lambda run: {LOG: str(run.dir / "log")})
    return made


@pytest.fixture(scope="module")
def bf16(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """An epoch in bf16."""
    parent = tmp_path_factory.mktemp("bf16")
    setups = {name: SETUPS[name] for name in ("single", "spmd-2", "replica-2")}
    made = {name: new(parent, name, ["device.precision=bf16", "epochs=1", *o]) for name, o in setups.items()}
    train(made)
    return made


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Accumulated and clipped gradients under a schedule."""
    parent = tmp_path_factory.mktemp("scheduled")
    made = {name: new(parent, name, [*SETUPS[name], *SCHEDULED]) for name in ("single", "spmd-2", "replica-2")}
    train(made)
    return made


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory, runs: dict[str, Run]) -> dict[str, Run]:
    """Resumed runs: under another strategy from the end of an epoch, and with BatchNorm in the middle of one."""
    parent = tmp_path_factory.mktemp("resumed")
    normed = [*REPLICA, "model.norm=true", *SCHEDULED]
    made = {
        name: new(parent, name, SETUPS[name], resume_from=runs[source].dir / "checkpoints" / f"step-{STEPS:08d}.pt")
        for name, source in (("spmd-2", "replica-2"), ("replica-2", "spmd-2"))
    }
    made |= {name: new(parent, name, normed) for name in ("whole", "stopped")}
    train(made, lambda run: {STOP_AT: "6", STOP_RUN: str(run.dir)} if run.dir.name == "stopped" else {})
    again = new(parent, "again", normed, resume_from=made["stopped"].dir / "checkpoints" / "last.pt")
    train({"again": again})
    return {**made, "again": again}


@pytest.mark.parametrize("name", SETUPS)
def test_strategy_is_reported(runs: dict[str, Run], name: str) -> None:
    topology = runs[name].one(ev.TopologyDeclared)
    strategy, _, cores = name.partition("-")
    assert topology.strategy == strategy
    assert topology.cores == list(range(int(cores or 1)))
    plan = runs[name].one(ev.TrainingPlanned)
    assert (plan.global_batch, plan.steps_per_epoch) == (BATCH, STEPS)


@pytest.mark.parametrize("name", MANY)
def test_loss_curve_matches_one_core(runs: dict[str, Run], name: str) -> None:
    reference, found = means(runs["single"]), means(runs[name])
    assert sorted(found) == list(range(1, 2 * STEPS + 1))
    assert found == pytest.approx(reference, rel=TOLERANCE)
    assert found[2 * STEPS] < found[1], "it learns"


@pytest.mark.parametrize("name", SETUPS)
def test_each_core_has_its_own_loss(runs: dict[str, Run], name: str) -> None:
    for row in runs[name].losses().values():
        assert len(set(row)) == len(runs[name].one(ev.TopologyDeclared).cores)


def test_per_core_losses_are_equal_under_every_strategy(runs: dict[str, Run]) -> None:
    spmd, replica = runs["spmd-2"].losses(), runs["replica-2"].losses()
    for step, row in spmd.items():
        assert replica[step] == pytest.approx(row, rel=TOLERANCE), step


@pytest.mark.parametrize("name", SETUPS)
def test_meters_and_scores_match_one_core(runs: dict[str, Run], name: str) -> None:
    for reference, epoch in zip(runs["single"].all(ev.EpochEnded), runs[name].all(ev.EpochEnded), strict=True):
        assert epoch.train["loss"].count == STEPS * BATCH
        assert epoch.valid["loss"].count == NUM_VALID, "every example once"
        assert epoch.scores["in_order"] == 1
        assert epoch.scores["worst"] == pytest.approx(reference.scores["worst"], rel=1e-4)
        assert epoch.best == reference.best
        for split, expected in ((epoch.train, reference.train), (epoch.valid, reference.valid)):
            assert split["loss"].avg == pytest.approx(expected["loss"].avg, rel=1e-4)
            assert split["far"].sum == expected["far"].sum


@pytest.mark.parametrize("name", MANY)
def test_each_process_takes_its_rows_of_the_global_batch(runs: dict[str, Run], name: str) -> None:
    pids = [runs[name].one(ev.JournalOpened).pid]
    if name.startswith("replica"):
        pids.append(process_of_rank(runs[name]).pid)
    train_rows, valid_rows = fetched(runs[name])
    assert sorted(train_rows) == sorted(valid_rows) == sorted(pids)
    order = np.concatenate([permutation(NUM_TRAIN, 0, epoch)[: STEPS * BATCH] for epoch in (1, 2)]).tolist()
    share = BATCH // len(pids)
    for place, pid in enumerate(pids):
        expected = [order[first : first + share] for first in range(place * share, len(order), BATCH)]
        assert train_rows[pid] == expected, "its own rows, and no others"
        validated = set(itertools.chain.from_iterable(valid_rows[pid]))
        assert len(validated) <= NUM_VALID / len(pids) + BATCH


@pytest.mark.parametrize("name", MANY)
def test_nothing_is_compiled_after_warm_up(runs: dict[str, Run], name: str) -> None:
    last = runs[name].all(ev.XlaMetricsRead)[-1]
    assert (last.recompiles, last.fallbacks) == (0, {})
    assert runs[name].all(ev.WarningRaised) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spmd-2", "replica-2"])
def test_bf16_loss_curve_is_close(bf16: dict[str, Run], runs: dict[str, Run], name: str) -> None:
    assert means(bf16[name]) == pytest.approx(means(bf16["single"]), rel=0.02)
    assert means(bf16[name]) != pytest.approx(means(runs["single"]), rel=TOLERANCE), "it is another number format"


def test_every_rank_appears_in_the_run(runs: dict[str, Run]) -> None:
    run = runs["replica-2"]
    events = rank_events(run)
    beats = [event for event in events if isinstance(event, ev.HeartbeatSent)]
    assert {"compiling", "starting"} & {beat.phase for beat in beats}
    topology = next(event for event in events if isinstance(event, ev.TopologyDeclared))
    assert topology.cores == [1]
    ended = [event for event in events if not isinstance(event, ev.HeartbeatSent)][-1]
    assert isinstance(ended, ev.TrainingEnded), "its last words were waited for"
    assert (ended.outcome, ended.step) == ("done", 2 * STEPS)
    assert not any(isinstance(event, ev.StepsRecorded | ev.EpochEnded) for event in events), "the first rank only"


def test_only_replica_records_the_compute_time_of_each_core(runs: dict[str, Run]) -> None:
    times = runs["replica-2"].steps(ev.COMPUTE_METRIC)
    assert times.keys() == runs["replica-2"].losses().keys()
    epochs_s = sum(event.train_s for event in runs["replica-2"].all(ev.EpochEnded))
    for core in (0, 1):
        assert all(row[core] > 0 for row in times.values())
        assert sum(row[core] for row in times.values()) < epochs_s, "without waiting, compiling and exchanging"
    for name in ("single", "spmd-2", "spmd-4"):
        assert not runs[name].steps(ev.COMPUTE_METRIC)


def test_core_shows_the_phase_of_its_process(runs: dict[str, Run]) -> None:
    state = RunState()
    for rank, name in ((0, "worker-0"), (1, "rank-1")):
        events = runs["replica-2"].events() if rank == 0 else rank_events(runs["replica-2"])
        first_beat = next(place for place, event in enumerate(events) if isinstance(event, ev.HeartbeatSent))
        for seq, event in enumerate(events[: first_beat + 1]):
            state.apply(name, seq, event)
    topology = runs["replica-2"].one(ev.TopologyDeclared)
    state.apply("worker-0", 90, topology)
    state.apply("rank-1", 90, msgspec.structs.replace(topology, cores=[1]))
    beat = ev.HeartbeatSent(t=time.time(), phase="compiling", phase_s=3, step=0, epoch=1)
    state.apply("rank-1", 91, beat)
    alive = {"worker-0": True, "rank-1": True}
    around = ViewerContext(now=beat.t + 1, run="r", dir="r", alive=alive)
    cores = build_snapshot(state, around, assess(state, alive, beat.t + 1)).cores
    assert [core.phase for core in cores] == ["starting", "compiling"]
    assert cores[1].phase_s == pytest.approx(4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spmd-2", "replica-2"])
def test_accumulated_clipped_gradients_match_one_core(scheduled: dict[str, Run], name: str) -> None:
    assert means(scheduled[name]) == pytest.approx(means(scheduled["single"]), rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single", "spmd-2", "replica-2"])
def test_learning_rate_per_step_does_not_recompile(scheduled: dict[str, Run], name: str) -> None:
    run = scheduled[name]
    assert run.all(ev.XlaMetricsRead)[-1].recompiles == 0
    updates, warm_up = STEPS, 3

    def expected(step: int) -> float:
        update = (step - 1) // 2
        fall = 0.5 * (1 + math.cos(math.pi * max(0, update - warm_up) / (updates - warm_up)))
        return 0.01 * fall * min(1, (update + 1) / warm_up)

    rates = [(event.step, event.lr) for event in run.all(ev.ProgressReported)]
    rates += [(event.step, event.lr) for event in run.all(ev.EpochEnded)]
    for step, lr in rates:
        assert lr == pytest.approx(expected(step)), step
    assert run.one(ev.TrainingPlanned).lr_rule == "0.01, linear warm-up over 3 updates, cosine down to 0"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spmd-2", "replica-2"])
def test_checkpoint_resumes_under_another_strategy(resumed: dict[str, Run], runs: dict[str, Run], name: str) -> None:
    found, reference = means(resumed[name]), means(runs["single"])
    assert sorted(found) == list(range(STEPS + 1, 2 * STEPS + 1))
    assert found == pytest.approx({step: reference[step] for step in found}, rel=TOLERANCE)
    (epoch,) = resumed[name].all(ev.EpochEnded)
    assert epoch.best == runs["single"].all(ev.EpochEnded)[1].best


@pytest.mark.slow
def test_resumed_ranks_equal_uninterrupted_bit_for_bit(
    resumed: dict[str, Run],
) -> None:
    whole, first, second = (resumed[name].losses() for name in ("whole", "stopped", "again"))
    assert 0 < max(first) < STEPS, "it was stopped in the middle of an epoch"
    assert max(first) % 2 == 0, "no gradient waited for its update"
    assert min(second) == max(first) + 1
    assert first | second == whole
    expected = resumed["whole"].all(ev.EpochEnded)
    for epoch, other in zip(resumed["again"].all(ev.EpochEnded), expected, strict=True):
        assert (epoch.train, epoch.valid, epoch.scores) == (other.train, other.valid, other.scores)
    last = [torch.load(resumed[n].dir / "checkpoints" / "last.pt", weights_only=True) for n in ("whole", "again")]
    for key, value in last[0]["learner"]["model"].items():
        assert torch.equal(value, last[1]["learner"]["model"][key]), key


@pytest.mark.slow
def test_stop_saves_once_and_ends_every_rank(resumed: dict[str, Run]) -> None:
    run = resumed["stopped"]
    applied = run.one(ev.RequestApplied)
    assert applied.kind == "stop"
    (saved,) = run.all(ev.CheckpointSaved)
    assert (saved.step, saved.reason) == (applied.step, "stop")
    ended = rank_events(run)[-1]
    assert isinstance(ended, ev.TrainingEnded)
    assert (ended.outcome, ended.step) == ("stopped", applied.step)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs that fail."""
    parent = tmp_path_factory.mktemp("broken")
    in_the_second_half = int(permutation(NUM_TRAIN, 0, 1)[2 * BATCH + BATCH // 2])
    long = [*REPLICA, "epochs=1000000", "checkpoint.every_epochs=1000000"]
    made = {
        "example": new(parent, "example", [*REPLICA, f"data.break_at={in_the_second_half}"]),
        "weights": new(parent, "weights", [*REPLICA, "model.own_way=true"]),
        "killed": new(parent, "killed", long),
        "orphaned": new(parent, "orphaned", long),
        "ended": new(parent, "ended", long),
    }
    try:
        for run in made.values():
            run.start()
        for name in ("killed", "orphaned", "ended"):
            made[name].wait_for(ev.MetersReported)
        os.kill(process_of_rank(made["killed"]).pid, 9)
        made["orphaned"].kill(9)
        requests.submit(made["ended"].dir, "stop_now", by="test", now=time.time())
        codes = {name: run.finish() for name, run in made.items()}
        assert codes == {"example": 3, "weights": 3, "killed": 3, "orphaned": -9, "ended": 4}
    finally:
        for run in made.values():
            run.stop_if_alive()
    return made


@pytest.mark.slow
def test_exception_in_one_rank_ends_the_run_as_its_own(broken: dict[str, Run]) -> None:
    run = broken["example"]
    failure, (own,) = run.one(ev.FailureRaised), [e for e in rank_events(run) if isinstance(e, ev.FailureRaised)]
    assert failure.error == own.error == "DatasetError"
    assert failure.message.startswith("rank 1 (core 1, pid ")
    assert own.message in failure.message
    assert "the file is cut short" in own.message
    assert "curve_task.py" in failure.traceback
    assert run.one(ev.TrainingEnded).outcome == "failed"


@pytest.mark.slow
def test_killed_rank_ends_the_run_and_is_named(broken: dict[str, Run]) -> None:
    run = broken["killed"]
    failure, ended = run.one(ev.FailureRaised), run.one(ev.TrainingEnded)
    pid = process_of_rank(run).pid
    assert failure.error == "RankLost"
    assert failure.message.startswith(f"rank 1 (core 1, pid {pid}) was ended by SIGKILL")
    assert (ended.outcome, ended.reason) == ("failed", failure.message)
    last_beat = [event.t for event in rank_events(run) if isinstance(event, ev.HeartbeatSent)][-1]
    assert ended.t - last_beat < 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["example", "weights", "killed", "orphaned", "ended"])
def test_no_rank_outlives_its_run(broken: dict[str, Run], name: str) -> None:
    rank = process_of_rank(broken[name])
    wait_for(lambda: not rundir.is_alive(rank), "the end of the rank")


@pytest.mark.slow
def test_ranks_with_different_initial_weights_are_rejected(broken: dict[str, Run]) -> None:
    failure = broken["weights"].one(ev.FailureRaised)
    assert "the weights of core 1 differ from those of core 0" in failure.message


def test_replica_uses_one_process_per_core_or_chip() -> None:
    cpu = hardware.Machine("CPU", 0, 0, "made up")
    tpu_v3, tpu_v5e = hardware.Machine("TPU", 4, 2, None), hardware.Machine("TPU", 8, 1, None)
    for cores, on, expected in (("1", cpu, 1), ("[5]", cpu, 1), ("4", cpu, 4), ("8", tpu_v3, 4), ("8", tpu_v5e, 8)):
        checked = config.parse(CURVE, "test.toml", ["device.strategy=replica", f"device.cores={cores}"])
        assert hardware.num_processes(checked, on) == expected
    four = config.parse(CURVE, "test.toml", ["device.strategy=replica", "device.cores=4"])
    assert hardware.environment(four, cpu)["CPU_NUM_DEVICES"] == "1"


def test_part_of_a_tpu_is_rejected() -> None:
    checked = config.parse(CURVE, "test.toml", ["device.strategy=replica", "device.cores=4"])
    (problem,) = hardware.core_problems(checked, hardware.Machine("TPU", 4, 2, None))
    assert problem.sentence == (
        "device.cores: 4 is not possible: a process on every chip drives all 8 TPU cores or one; "
        'write 8, "all", 1 or [k] with k from 0 to 7'
    )


def test_a_rank_gets_its_own_rows_of_every_share() -> None:
    shares = list(cut(valid_shares(10, 4, 3), range(3, 4)))
    (share,) = shares
    assert share.indices.tolist() == [9, 0, 0]
    assert share.real is not None
    assert share.real.tolist() == [1, 0, 0]
    assert share.counts.tolist() == [1]
