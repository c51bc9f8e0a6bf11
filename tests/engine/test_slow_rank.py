"""A rank that is slowed down is named within seconds; no rank of a healthy run is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.slow_rank_task import TIMES
from tests.engine.workers import Run, make
from tputui.state.outlier import NAMED
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev

SLOW_RANK_RUN = """
task = "tests.engine.slow_rank_task:SlowRank"
epochs = 2
[data]
batch_per_core = 4
num_train = 800
[optim]
name = "sgd"
lr = 0.01
lr_scaling = "none"
[device]
cores = 4
strategy = "replica"
"""
"""50 steps an epoch on 4 ranks."""
SLOW_RANK, FROM_STEP, DELAY_S = 2, 61, 0.1


def trained(parent: Path, name: str, overrides: list[str]) -> Run:
    run = make(parent, name, overrides, text=SLOW_RANK_RUN, cwd=Path(__file__).parents[2])
    try:
        run.start({TIMES: str(parent / name / "times")})
        assert run.finish() == 0, run.log.read_text()
    finally:
        run.stop_if_alive()
    return run


def snapshots(run: Run) -> list[Snapshot]:
    """The snapshot after every event."""
    state, found = RunState(), []
    for seq, event in enumerate(run.events()):
        state.apply("worker-0", seq, event)
        found.append(build_snapshot(state, ViewerContext(now=event.t, run=run.dir.name, dir=str(run.dir))))
    return found


@pytest.mark.slow
def test_slow_rank_is_named_soon_after_its_20th_slow_step(tmp_path: Path) -> None:
    settings = [f"model.rank={SLOW_RANK}", f"model.from_step={FROM_STEP}", f"model.delay_s={DELAY_S}"]
    run = trained(tmp_path, "slow", settings)
    times = {int(step): float(t) for step, t in map(str.split, (run.dir / "times").read_text().splitlines())}
    due = times[FROM_STEP + NAMED - 1]
    found = snapshots(run)
    first = next(snapshot for snapshot in found if snapshot.slow_core is not None)
    assert -DELAY_S * 5 < first.now - due < 20.0
    last = found[-1].slow_core
    assert last is not None
    assert last.core == SLOW_RANK
    assert last.share > 1.0, "a step takes a few milliseconds"
    assert abs(last.first_step - FROM_STEP) <= 5
    slowest = max(found[-1].cores, key=lambda core: core.compute_s or 0.0)
    assert slowest.core == SLOW_RANK
    assert slowest.compute_s is not None
    assert slowest.compute_s > DELAY_S
    warnings = [mark.text for mark in found[-1].marks if "slower" in mark.text]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"core {SLOW_RANK} is ")


@pytest.mark.slow
def test_healthy_ranks_that_share_two_processors_are_not_named(tmp_path: Path) -> None:
    run = trained(tmp_path, "healthy", ["epochs=4"])
    assert run.all(ev.TrainingEnded)[-1].step == 200
    found = snapshots(run)
    assert [snapshot.slow_core for snapshot in found if snapshot.slow_core is not None] == []
    assert all(core.compute_s is not None and core.compute_s > 0 for core in found[-1].cores)
