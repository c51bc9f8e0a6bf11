"""NaN and infinity in losses, gradients and weights, under every policy and strategy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import non_finite
from engine.non_finite import NonFiniteDetector
from tests.engine.non_finite_task import STEPS, late
from tests.engine.test_strategies import CURVE, HERE, rank_events
from tests.engine.workers import Run, make
from tputui.telemetry import events as ev

NAN, INF = math.nan, math.inf
REPLICA = ["device.cores=2", "device.strategy=replica"]
SPMD = ["device.cores=2"]
SETUPS = {
    "continue": [*SPMD, "epochs=3", f"data.at={late(2).example}"],
    "stop": [*SPMD, f"data.at={late(2).example}", "data.how=endless", "non_finite.policy=stop"],
    "save-stop": [*REPLICA, f"data.at={late(2).example}", "non_finite.policy=save-stop"],
    "apart": [*SPMD, f"data.at={late(2).example}", "data.how=apart", "non_finite.policy=save-stop"],
    "steep": [f"data.at={late(1).example}", "data.how=steep", "non_finite.policy=stop"],
    "valid": ["data.at=5", "data.split=valid", "data.how=apart", "non_finite.policy=stop"],
}


def found(*blocks: tuple[list[list[float]], list[float]], cores: int = 2) -> list[ev.NonFiniteFound]:
    """The events for consecutive reports of losses and gradient norms."""
    emitted: list[ev.Event] = []
    detector, step = NonFiniteDetector("train", range(cores), "stop", emitted.append), 1
    for losses, norms in blocks:
        detector.look(step, np.array(losses, dtype=np.float32), norms)
        step += len(losses)
    return [event for event in emitted if isinstance(event, ev.NonFiniteFound)]


def test_finite_values_are_not_reported() -> None:
    assert found(([[1, 2], [3, 4]], [1, 2])) == []


def test_first_core_is_reported_with_lead_and_earlier_norms() -> None:
    (event,) = found(([[1, 2]], [0.5]), ([[1, 2], [1, INF], [1, NAN], [NAN, NAN]], [3, 40, NAN, NAN]))
    assert (event.metric, event.step, event.cores, event.value) == ("loss", 3, [1], INF)
    assert (event.others_step, event.until_step) == (5, 5)
    assert event.gradient_norms == [0.5, 3, 40]
    assert event.text == (
        "the loss became inf on core 1 at step 3, 2 steps before any other core; "
        "gradient norms up to that step: 0.5, 3, 40"
    )


def test_single_affected_core_is_stated() -> None:
    (event,) = found(([[1, NAN], [1, 1]], []))
    assert event.others_step is None
    assert event.text == "the loss became nan on core 1 at step 1, and on no other core up to step 2"


def test_simultaneous_and_single_core_are_distinguished() -> None:
    assert found(([[NAN, NAN]], []))[0].text == "the loss became nan on all cores at step 1"
    assert found(([[NAN]], []), cores=1)[0].text == "the loss became nan at step 1"


def test_infinite_gradient_before_loss_is_reported() -> None:
    (event,) = found(([[1, 1], [1, 1], [NAN, NAN]], [7, INF, NAN]))
    assert (event.metric, event.step, event.cores, event.value) == ("gradient norm", 2, [], INF)


def test_ongoing_nan_is_reported_once_restart_again() -> None:
    block: tuple[list[list[float]], list[float]] = ([[NAN, NAN]], [NAN])
    assert [event.step for event in found(block, block, ([[1, 1]], [1]), block)] == [1, 4]


def test_infinite_mask_is_fine_but_nan_buffer_is_not() -> None:
    weights = {
        "mask": torch.tensor([0.0, -INF]),
        "mean": torch.tensor([NAN]),
        "w": torch.tensor([1.0, INF]),
        "b": torch.tensor([1.0]),
        "count": torch.tensor(3),
    }
    assert non_finite.unfit(weights, {"mask", "mean", "count"}) == ["mean", "w"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run under each setup."""
    parent = tmp_path_factory.mktemp("nonfinite")
    text = CURVE.replace("tests.engine.curve_task:CurveTask", "tests.engine.non_finite_task:NonFiniteTask")
    made = {
        name: make(parent, name, ["report.every_batches=2", *overrides], text=text, cwd=HERE.parents[1])
        for name, overrides in SETUPS.items()
    }
    try:
        for run in made.values():
            run.start()
        for run in made.values():
            assert run.finish() == 3, run.log.read_text()
    finally:
        for run in made.values():
            run.stop_if_alive()
    return made


def step_of(path: Path) -> int:
    """Step of the weights in a checkpoint."""
    step: int = torch.load(path, weights_only=True)["position"]["step"]
    return step


def kept(run: Run) -> dict[str, int]:
    """Step by name of the checkpoints, finite and not finite."""
    return {
        path.stem: step_of(path) for path in (run.dir / "checkpoints").glob("*.pt") if not path.name.startswith("step-")
    }


@pytest.mark.xla
@pytest.mark.parametrize("name", ["continue", "stop", "save-stop"])
def test_origin_core_and_lead_are_reported(runs: dict[str, Run], name: str) -> None:
    place, (event, *later) = late(2), runs[name].all(ev.NonFiniteFound)
    assert [again.split for again in later] == (["valid"] if name == "continue" else [])
    assert (event.split, event.metric, event.step, event.cores) == ("train", "loss", place.step, [place.core])
    assert event.others_step in (place.step + 1, None)
    assert not math.isfinite(event.value)
    norms = event.gradient_norms
    assert len(norms) == (non_finite.MAX_NORMS if name != "continue" else 0)
    assert all(math.isfinite(norm) and norm > 0 for norm in norms[:-1])
    assert not any(math.isfinite(norm) for norm in norms[-1:])
    losses = runs[name].losses()
    assert math.isfinite(losses[place.step][1 - place.core])
    assert not math.isfinite(losses[place.step][place.core])


@pytest.mark.xla
def test_continued_run_saves_bad_weights_separately(runs: dict[str, Run]) -> None:
    run = runs["continue"]
    assert kept(run) == {"last": STEPS, "best": STEPS, "non-finite": 3 * STEPS}
    saves = [(saved.step, saved.reason, saved.best) for saved in run.all(ev.CheckpointSaved)]
    assert saves == [(8, "epoch", True), (16, "non-finite", False), (24, "non-finite", False)]
    assert [epoch.best for epoch in run.all(ev.EpochEnded)] == [True, False, False]
    warnings = [warning.text for warning in run.all(ev.WarningRaised) if "checkpoint of step" in warning.text]
    assert len(warnings) == 1
    assert run.all(ev.XlaMetricsRead)[-1].recompiles == 0
    ended = run.one(ev.TrainingEnded)
    assert ended.outcome == "failed"
    assert ended.reason.startswith("the final weights are NaN or infinite (")
    assert "3 epochs trained" in ended.reason
    assert "checkpoints/last.pt contains step 8" in ended.reason


@pytest.mark.xla
def test_stop_policy_fails_without_saving(runs: dict[str, Run]) -> None:
    run = runs["stop"]
    failure, ended = run.one(ev.FailureRaised), run.one(ev.TrainingEnded)
    assert (failure.error, failure.kind, failure.traceback) == ("NotFinite", "non_finite", "")
    assert ended.outcome == "failed"
    assert ended.reason == failure.message
    assert "(non_finite.policy = stop) without a save" in ended.reason
    assert "checkpoints/last.pt contains step 8" in ended.reason
    assert ended.step <= late(2).step + 4, "at the next report"
    assert kept(run) == {"last": STEPS, "best": STEPS}
    assert failure.message in run.log.read_text()


@pytest.mark.xla
def test_save_stop_on_several_ranks_separates_bad_weights(runs: dict[str, Run]) -> None:
    run = runs["save-stop"]
    failure, (saved,) = run.one(ev.FailureRaised), [s for s in run.all(ev.CheckpointSaved) if s.reason != "epoch"]
    assert failure.kind == "non_finite"
    assert "rank" not in failure.message, "it is of no rank alone"
    assert (saved.path, saved.reason) == ("checkpoints/non-finite.pt", "non-finite")
    assert (
        f"saved as {saved.path}; it contains NaN/inf weights (0.weight, 0.bias, 2.weight and 1 more)" in failure.message
    )
    assert kept(run) == {"last": STEPS, "best": STEPS, "non-finite": saved.step}
    others = rank_events(run)
    ended = others[-1]
    assert isinstance(ended, ev.TrainingEnded)
    assert (ended.outcome, ended.step) == ("failed", run.one(ev.TrainingEnded).step)
    assert not any(isinstance(event, ev.FailureRaised) for event in others)
    assert run.all(ev.RankExited) == []


@pytest.mark.xla
def test_save_stop_with_finite_weights_saves_last(runs: dict[str, Run]) -> None:
    run = runs["apart"]
    saved = run.all(ev.CheckpointSaved)[-1]
    assert (saved.path, saved.reason) == (f"checkpoints/step-{saved.step:08d}.pt", "non-finite")
    assert saved.step >= late(2).step
    assert kept(run) == {"last": saved.step, "best": STEPS}
    assert run.one(ev.TrainingEnded).reason.endswith(f"saved as {saved.path}")


@pytest.mark.xla
def test_infinite_gradient_is_reported_before_bad_loss(runs: dict[str, Run]) -> None:
    event = runs["steep"].one(ev.NonFiniteFound)
    assert (event.metric, event.step, event.cores) == ("gradient norm", late(1).step, [])
    assert all(math.isfinite(loss) for loss in runs["steep"].losses()[event.step])


@pytest.mark.xla
def test_evaluation_is_checked_too(runs: dict[str, Run]) -> None:
    run = runs["valid"]
    event = run.one(ev.NonFiniteFound)
    assert (event.split, event.step) == ("valid", STEPS)
    assert "in the evaluation after step 8" in run.one(ev.TrainingEnded).reason
    assert "this run has no checkpoint" in run.one(ev.TrainingEnded).reason
