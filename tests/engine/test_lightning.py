"""LightningModules in the worker process: Lightning's own Trainer on virtual cores, reported like any run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import forked
from tests.cli.helpers import tputui
from tests.engine.workers import BETWEEN_CLOCKS_S, HERE, Run, make, runs_to_end
from tputui.telemetry import events as ev
from tputui.telemetry import layer_table

pytestmark = pytest.mark.xla

SAMPLE = (HERE.parents[1] / "sample_configs" / "lightning_digits.toml").read_text()
THIN = ["model.module=mylit:Stopping", "data.module=mylit:Tested", "model.arguments.channels=8", "epochs=2"]
STEPS_PER_EPOCH = 22
STOP_AT = 30
TIED = """
task = "lightning"
epochs = 2
[data]
global_batch = 16
[model]
module = "mylit:Tied"
[optim]
lr = 0.01
[device]
cores = 1
"""


@pytest.fixture(scope="module")
def lit(runs_dir: Path) -> Run:
    """The sample with a smaller network, on 8 cores."""
    return runs_to_end(make(runs_dir, "lit", THIN, text=SAMPLE))


@pytest.fixture(scope="module")
def stopped(runs_dir: Path) -> Run:
    """The same run, stopped in its second epoch."""
    run = make(runs_dir, "lit-stopped", THIN, text=SAMPLE)
    try:
        run.start({"STOP_AT": str(STOP_AT)})
        assert run.finish() == 4, run.log.read_text()
    finally:
        run.stop_if_alive()
    return run


def test_layer_table_of_module_has_step_shapes(lit: Run) -> None:
    table = layer_table.read(lit.dir)
    assert table.trainable == lit.one(ev.TrainingPlanned).num_parameters
    assert [64, 8, 8, 8] in (table.layers[0].shapes or [])
    assert [64, 10] in [shape for layer in table.layers for shape in layer.shapes or []]


def test_lightning_trains_over_8_cores_and_learns(lit: Run) -> None:
    topology, plan = lit.one(ev.TopologyDeclared), lit.one(ev.TrainingPlanned)
    assert (topology.strategy, topology.num_cores, topology.cores) == ("spmd", 8, list(range(8)))
    assert (plan.steps_per_epoch, plan.valid_steps, plan.global_batch) == (STEPS_PER_EPOCH, 6, 64)
    assert (plan.train_examples, plan.valid_examples) == (1438, 359)
    assert plan.lr == pytest.approx(8 * 0.0005)
    assert lit.all(ev.EpochEnded)[-1].valid["accuracy"].avg > 0.8
    assert lit.one(ev.TrainingEnded).outcome == "done"


def test_per_core_losses_are_recorded_if_returned(lit: Run) -> None:
    losses = lit.losses()
    assert sorted(losses) == list(range(1, 2 * STEPS_PER_EPOCH + 1))
    assert all(len(set(row)) == 8 for row in losses.values()), "each core trains on a share of its own"
    for epoch in lit.all(ev.EpochEnded):
        rows = [losses[step] for step in range(epoch.step - STEPS_PER_EPOCH + 1, epoch.step + 1)]
        mean = math.fsum(loss for row in rows for loss in row) / (8 * len(rows))
        assert epoch.train["loss"].avg == pytest.approx(mean, rel=1e-6)


def test_logged_values_become_meters_of_their_split(lit: Run) -> None:
    epoch = lit.all(ev.EpochEnded)[0]
    assert set(epoch.train) == {"loss", "accuracy"}
    assert set(epoch.valid) == {"loss", "accuracy"}
    # Each of the 359 examples counts once: with padding or a dropped last batch this would not be an integer.
    right = epoch.valid["accuracy"].avg * 359
    assert right == pytest.approx(round(right), abs=1e-3)
    (reading,) = [event for event in lit.all(ev.MetersReported) if event.split == "valid" and event.epoch == 1]
    assert "Lightning" in reading.reduced


def test_no_compile_after_warm_up_and_ragged_batch_reported(lit: Run) -> None:
    assert lit.all(ev.XlaMetricsRead)[-1].recompiles == 0
    (warning,) = lit.all(ev.WarningRaised)
    assert "last validation batch holds 39 examples" in warning.text


def test_the_sections_of_an_epoch_add_up(lit: Run) -> None:
    for begun, ended in zip(lit.all(ev.EpochStarted), lit.all(ev.EpochEnded), strict=True):
        assert min(ended.sections_s.values()) >= 0
        assert sum(ended.sections_s.values()) == pytest.approx(ended.t - begun.t, rel=0.01, abs=BETWEEN_CLOCKS_S)
        assert {"data", "trace", "execute", "evaluate"} <= {name for name, spent in ended.sections_s.items() if spent}


def test_the_checkpoints_are_lightnings_own(lit: Run) -> None:
    directory = lit.dir / "checkpoints"
    last = torch.load(directory / "last.pt", weights_only=True)
    assert last["global_step"] == 2 * STEPS_PER_EPOCH
    assert last["hyper_parameters"]["channels"] == 8
    assert all(tensor.device.type == "cpu" for tensor in last["state_dict"].values())
    best = torch.load(directory / "best.pt", weights_only=True)
    assert best["best"] == min(epoch.valid["loss"].avg for epoch in lit.all(ev.EpochEnded))


def test_epoch_losses_are_files_and_end_names_the_best(lit: Run) -> None:
    epochs = lit.all(ev.EpochEnded)
    assert np.load(lit.dir / "trn_losses.npy").tolist() == [epoch.train["loss"].avg for epoch in epochs]
    assert np.load(lit.dir / "val_losses.npy").tolist() == [epoch.valid["loss"].avg for epoch in epochs]
    best = [epoch for epoch in epochs if epoch.best][-1]
    words = f"2 epochs trained; best validation loss: {best.valid['loss'].avg:.6g} (epoch {best.epoch})"
    assert lit.one(ev.TrainingEnded).reason == words


PREDICTS = """
import json, os, sys
from pathlib import Path
from engine.errors import Refused
from engine.commands.predict import PredictRequest, predict
from engine.commands.protocol import ProgressWriter
run_dir, code = map(Path, sys.argv[1:])
best, writer = run_dir / "checkpoints" / "best.pt", ProgressWriter(2)
requests = [(None, split, None) for split in ("valid", "test", "train")]
for source, split, out in [*requests, (Path("mine.csv"), None, None), (None, "valid", "x.csv")]:
    try:
        result = predict(PredictRequest(best, run_dir, source, split, out, "csv", 64, code), writer)
        print(json.dumps([result["figures"], result["rows"], result["out"]]))
    except Refused as refused:
        print(json.dumps(str(refused)))
print(json.dumps("torch_xla" in sys.modules))
"""


@pytest.mark.slow
def test_predict_prints_logged_values_of_a_split(lit: Run, tmp_path: Path) -> None:
    best = [epoch for epoch in lit.all(ev.EpochEnded) if epoch.best][-1]
    wanted = pytest.approx({name: reading.avg for name, reading in best.valid.items()}, rel=1e-4)
    command = [sys.executable, "-c", PREDICTS, str(lit.dir), str(HERE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    valid, test, train, file, out, runtime = map(json.loads, done.stdout.splitlines())
    assert valid == test == [wanted, 359, None]
    assert "is evaluated on valid or test, by its own loaders; not on train" in train
    assert "predict cannot pass your files to a LightningModule; --split valid and --split test" in file
    assert "no rows are written for a LightningModule" in out
    assert runtime is False, "the runtime was imported to look for a device"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_exported_module_weights_evaluate_without_the_run(lit: Run, tmp_path: Path) -> None:
    done = tputui("export", lit.dir, "--to", "mine.pt", cwd=tmp_path)
    assert done.code == 0, done.err
    state = torch.load(tmp_path / "mine.pt", weights_only=True)
    best = torch.load(lit.dir / "checkpoints" / "best.pt", weights_only=True)["state_dict"]
    assert state.keys() == best.keys()
    assert all(torch.equal(state[name], best[name]) for name in state)
    alone = tputui("predict", "mine.pt", "--split", "valid", "--code", HERE, cwd=tmp_path)
    assert alone.code == 0, alone.err
    count, weights, figures, own = alone.out.splitlines()
    assert count.startswith("359 examples in ")
    assert weights.endswith("mine.pt")
    assert figures.split()[::2] == ["loss", "accuracy"]
    assert own.startswith("validation of the run: loss ")


@pytest.mark.slow
def test_a_stop_is_served_at_the_next_step_and_answered(stopped: Run) -> None:
    applied, ended = stopped.one(ev.RequestApplied), stopped.one(ev.TrainingEnded)
    assert (applied.kind, applied.step) == ("stop", STOP_AT + 1)
    assert (ended.outcome, ended.step) == ("stopped", STOP_AT + 1)
    assert max(stopped.losses()) == applied.step
    assert applied.path is not None
    assert (stopped.dir / applied.path).stat().st_size == applied.bytes


@pytest.mark.slow
def test_resumed_run_equals_uninterrupted_bit_for_bit(lit: Run, stopped: Run, runs_dir: Path) -> None:
    source = stopped.dir / "checkpoints" / "last.pt"
    resumed = runs_to_end(make(runs_dir, "lit-resumed", THIN, text=SAMPLE, resume_from=source))
    assert resumed.one(ev.TrainingPlanned).first_step == STOP_AT + 2
    assert stopped.losses() | resumed.losses() == lit.losses()
    (epoch,) = resumed.all(ev.EpochEnded)
    expected = lit.all(ev.EpochEnded)[-1]
    assert epoch.train["loss"] == expected.train["loss"], "the meter covers the whole epoch"
    assert epoch.valid == expected.valid
    assert epoch.best == expected.best


@pytest.mark.slow
def test_tied_weights_stay_tied_on_one_core(runs_dir: Path) -> None:
    run = runs_to_end(make(runs_dir, "tied", text=TIED))
    topology, plan = run.one(ev.TopologyDeclared), run.one(ev.TrainingPlanned)
    assert (topology.strategy, topology.cores) == ("single", [0])
    assert plan.num_parameters == 64
    first, second = run.all(ev.EpochEnded)
    assert second.valid["loss"].avg < first.valid["loss"].avg
    assert sorted(run.losses()) == list(range(1, 9))
    journals = [path.name for path in run.dir.glob("*.jsonl")]
    assert journals == ["worker-0.jsonl"], "the module's own TputuiCallback makes no second run"
    assert run.all(ev.WarningRaised) == []


@pytest.mark.slow
def test_broken_weight_tie_ends_training_and_names_pair(runs_dir: Path) -> None:
    run = runs_to_end(make(runs_dir, "untied", ["model.module=mylit:Untied"], text=TIED), exit_code=3)
    message = run.one(ev.FailureRaised).message
    assert message.startswith("encoder.weight and decoder.weight were one parameter and are two now")
    assert "64 parameters before the move to the device, 128 after it" in message


@pytest.mark.slow
def test_nan_loss_ends_training_by_policy(runs_dir: Path) -> None:
    options = ["model.module=mylit:NonFiniteTask", "non_finite.policy=save-stop", "report.every_batches=1"]
    run = runs_to_end(make(runs_dir, "lit-non_finite", options, text=TIED), exit_code=3)
    found, failure = run.one(ev.NonFiniteFound), run.one(ev.FailureRaised)
    assert (found.metric, found.step, found.cores, found.gradient_norms) == ("loss", 6, [], [])
    assert failure.kind == "non_finite"
    names = "it contains NaN/inf weights (encoder.weight, decoder.weight)"
    assert f"saved as checkpoints/non-finite.pt; {names}" in failure.message
    assert "checkpoints/last.pt contains step 4" in failure.message
    steps = {
        name: torch.load(run.dir / "checkpoints" / name, weights_only=True)["global_step"]
        for name in ("last.pt", "best.pt", "non-finite.pt")
    }
    assert (steps["last.pt"], steps["best.pt"]) == (4, 4)
    assert 6 <= steps["non-finite.pt"] <= 8, "a report is read at most a step late"


@pytest.mark.slow
def test_precision_16_on_core_5_trains_in_bf16_with_warning(runs_dir: Path) -> None:
    run = runs_to_end(make(runs_dir, "lit-five", ["device.cores=[5]", "device.precision=16"], text=TIED))
    topology = run.one(ev.TopologyDeclared)
    assert (topology.strategy, topology.num_cores, topology.cores) == ("single", 1, [5])
    assert run.one(ev.TrainingPlanned).precision == "bf16"
    (warning,) = run.all(ev.WarningRaised)
    assert "bf16" in warning.text
    assert "in this process it is given" in run.log.read_text()


REFUSED = {
    "model.module=mylit:Nobody": '"mylit:Nobody" cannot be imported',
    "model.module=fractions:Fraction": "is not a subclass of lightning.pytorch.LightningModule",
    "model.module=": "missing: name your LightningModule",
    "data.arguments.rows=3": "there is no data.module that could take them",
    "optim.step_size=3": "Tied configures its own optimizer",
    "model.arguments.widht=3": "Tied has no such argument; it takes lr",
}


def test_untrainable_module_is_one_sentence_with_key() -> None:
    done = forked.run("tests.engine.litchecks", *REFUSED, cwd=HERE, env={"PYTHONPATH": str(HERE)}, stdin=TIED)
    assert done.returncode == 0, done.stderr
    for (override, sentence), line in zip(REFUSED.items(), done.stdout.splitlines(), strict=True):
        key = override.partition("=")[0].removesuffix(".rows")
        assert line.startswith(f"{key}: ")
        assert sentence in line


@pytest.mark.slow
def test_wrong_arguments_are_rejected_before_start(tmp_path: Path) -> None:
    (tmp_path / "tied.toml").write_text(TIED)
    options = ["--set", "model.arguments.widht=3", "--no-ui", "--runs-dir", str(tmp_path / "runs")]
    result = tputui("run", tmp_path / "tied.toml", *options, cwd=HERE)
    assert result.code == 2
    assert "model.arguments.widht: Tied has no such argument; it takes lr" in result.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_mean_only_loss_is_one_column_with_explanation(runs_dir: Path) -> None:
    run = runs_to_end(make(runs_dir, "mean", ["device.cores=8", "epochs=1"], text=TIED))
    assert run.one(ev.TopologyDeclared).num_cores == 8
    losses = run.losses()
    assert sorted(losses) == [1, 2, 3, 4]
    assert all(len(row) == 1 for row in losses.values())
    (epoch,) = run.all(ev.EpochEnded)
    assert epoch.train["loss"].avg == pytest.approx(math.fsum(row[0] for row in losses.values()) / 4, rel=1e-6)
    why = [warning.text for warning in run.all(ev.WarningRaised)]
    assert any(text.startswith("one loss is shown for all cores") for text in why)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["Adam", "NAdam"], ids=["covered", "not covered"])
def test_zero_learning_rate_and_logging_do_not_recompile(runs_dir: Path, optimizer: str) -> None:
    overrides = ["model.module=mylit:Falling", f"model.arguments.optimizer={optimizer}", "epochs=4"]
    run = runs_to_end(make(runs_dir, f"lit-falling-{optimizer}", overrides, text=TIED))
    assert run.all(ev.EpochEnded)[-1].lr == 0
    last = run.all(ev.XlaMetricsRead)[-1]
    assert last.recompiles == 0
    assert "optimizer.step" not in run.log.read_text(), "no scheduler thinks that it came first"
