"""The worker process on virtual cores: training, reports and requests."""

from __future__ import annotations

import itertools
import math
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.engine.workers import BETWEEN_CLOCKS_S, HERE, LINE, Run, make, runs_to_end
from tputui.state.time_spent import SILENT_S
from tputui.telemetry import events as ev
from tputui.telemetry import layer_table
from tputui.telemetry import requests as control

pytestmark = pytest.mark.xla

ONE_CORE = ["data.batch_per_core=64", "optim.lr_scaling=none", "optim.lr=0.004"]
"""The sample's global batch and learning rate on one core."""
STEPS_PER_EPOCH = 22


def test_the_sample_reaches_95_percent_on_8_cores(whole: Run) -> None:
    epochs = whole.all(ev.EpochEnded)
    assert len(epochs) == whole.one(ev.TrainingPlanned).num_epochs
    assert epochs[-1].valid["accuracy"].avg >= 0.95
    assert epochs[-1].valid["accuracy"].count == 360
    assert epochs[-1].train["loss"].count == STEPS_PER_EPOCH * 64
    assert whole.one(ev.TrainingEnded).outcome == "done"


def test_data_is_reported_before_the_first_step(whole: Run) -> None:
    topology, plan = whole.one(ev.TopologyDeclared), whole.one(ev.TrainingPlanned)
    assert (topology.strategy, topology.num_cores, topology.cores) == ("spmd", 8, list(range(8)))
    assert topology.device == "CPU"
    assert topology.device_reason
    assert (plan.batch_per_core, plan.global_batch, plan.steps_per_epoch) == (8, 64, STEPS_PER_EPOCH)
    assert plan.lr == pytest.approx(8 * 0.0005)
    assert "8 cores" in plan.lr_rule
    memory = whole.one(ev.MemorySampled)
    assert memory.hbm is None
    assert memory.hbm_reason


def test_layer_table_has_the_shapes_of_a_step(whole: Run) -> None:
    table = layer_table.read(whole.dir)
    assert table.batch == whole.one(ev.TrainingPlanned).global_batch
    assert table.trainable == whole.one(ev.TrainingPlanned).num_parameters
    assert table.layers[0].shapes == [[64, 32, 8, 8]]
    assert table.layers[-1].shapes == [[64, 10]]


def test_training_examples_are_drawn_before_the_first_step(whole: Run) -> None:
    kept = whole.all(ev.PicturesKept)[0]
    assert (kept.epoch, kept.step, len(kept.pictures)) == (0, 0, 8)
    assert kept.t < whole.all(ev.EpochStarted)[0].t
    assert all((whole.dir / picture.path).read_bytes().startswith(b"\x89PNG") for picture in kept.pictures)


def test_predictions_are_drawn_after_each_evaluation(whole: Run) -> None:
    kept = whole.all(ev.PicturesKept)[1:]
    assert [(pictures.epoch, pictures.step) for pictures in kept] == [
        (epoch.epoch, epoch.step) for epoch in whole.all(ev.EpochEnded)
    ]
    assert len({tuple(picture.example for picture in pictures.pictures) for pictures in kept}) == 1
    assert all(picture.name.startswith("predicted ") for pictures in kept for picture in pictures.pictures)


def test_nothing_is_compiled_after_warm_up(whole: Run) -> None:
    last = whole.all(ev.XlaMetricsRead)[-1]
    assert last.recompiles == 0
    assert last.compiles == 3, "the step without and with optimizer state, the evaluation"
    assert last.fallbacks == {}
    assert whole.all(ev.WarningRaised) == []
    after_first = whole.all(ev.EpochEnded)[1:]
    assert all(epoch.sections_s["compile"] == 0 for epoch in after_first)


def test_one_transfer_per_report_and_per_save(whole: Run) -> None:
    reports = saves = evaluations = others = 0
    # The inputs and the predictions of the six evaluation batches, each of which has an example with a picture.
    of_pictures = 2 * whole.one(ev.TrainingPlanned).valid_steps
    for event in whole.events():
        if isinstance(event, ev.MetersReported):
            reports += 1
        elif isinstance(event, ev.CheckpointSaved):
            saves += 1
        elif isinstance(event, ev.XlaMetricsRead):
            others = event.transfers_from_device - reports - saves
            assert 0 <= others - of_pictures * evaluations <= of_pictures
        elif isinstance(event, ev.PicturesKept) and event.epoch:
            evaluations += 1
    assert others == of_pictures * evaluations == of_pictures * len(whole.all(ev.EpochEnded))


def test_each_step_runs_one_program(whole: Run) -> None:
    last = whole.all(ev.XlaMetricsRead)[-1]
    steps = whole.all(ev.ProgressReported)[-1].step
    evaluations = len(whole.all(ev.EpochEnded)) * whole.one(ev.TrainingPlanned).valid_steps
    assert last.executes == steps + evaluations, "a report runs nothing"
    assert last.steps == ev.StepPrograms(
        steps=steps - 2, executes=steps - 2, expected_executes=steps - 2, scalar_reads=0
    )
    assert (last.scalar_reads, last.engine_reads) == (0, last.transfers_from_device)


def test_recorded_losses_agree_with_the_meters(whole: Run) -> None:
    losses = whole.losses()
    assert sorted(losses) == list(range(1, 12 * STEPS_PER_EPOCH + 1))
    assert all(len(row) == 8 and all(math.isfinite(loss) for loss in row) for row in losses.values())
    assert len({loss for loss in losses[5]}) == 8, "each core trains on a share of its own"
    for epoch in whole.all(ev.EpochEnded):
        rows = [losses[step] for step in range(epoch.step - STEPS_PER_EPOCH + 1, epoch.step + 1)]
        mean = math.fsum(loss for row in rows for loss in row) / (8 * len(rows))
        assert epoch.train["loss"].avg == pytest.approx(mean, rel=1e-6)
        assert epoch.train["loss"].val == pytest.approx(math.fsum(rows[-1]) / 8, rel=1e-6)


def test_the_sections_of_an_epoch_add_up_to_its_wall_time(whole: Run) -> None:
    for begun, ended in zip(whole.all(ev.EpochStarted), whole.all(ev.EpochEnded), strict=True):
        assert min(ended.sections_s.values()) >= 0
        wall = ended.t - begun.t
        assert sum(ended.sections_s.values()) == pytest.approx(wall, rel=0.01, abs=BETWEEN_CLOCKS_S)
        assert ended.train_s + ended.valid_s <= wall + BETWEEN_CLOCKS_S
        assert ended.sections_s["save"] > 0


def test_learning_rate_follows_step_lr(whole: Run) -> None:
    rates = [epoch.lr for epoch in whole.all(ev.EpochEnded)]
    assert rates == pytest.approx([0.004] * 5 + [0.002] * 5 + [0.001] * 2)


def test_best_and_last_weights_are_saved(whole: Run) -> None:
    epochs = whole.all(ev.EpochEnded)
    lowest = min(epochs, key=lambda epoch: epoch.valid["loss"].avg)
    directory = whole.dir / "checkpoints"
    assert (directory / "best.pt").samefile(directory / f"step-{lowest.step:08d}.pt")
    assert (directory / "last.pt").samefile(directory / f"step-{epochs[-1].step:08d}.pt")
    assert [epoch.best for epoch in epochs].count(True) >= 1
    assert next(epoch for epoch in reversed(epochs) if epoch.best) == lowest


def test_heartbeats_continue_during_compile(whole: Run) -> None:
    beats = whole.all(ev.HeartbeatSent)
    assert beats[0].phase == "starting"
    # Before the plan is reported the runtime's libraries are loaded, as long as the disk takes, with the interpreter
    # locked: no thread of this process can beat then.
    planned_at = whole.one(ev.TrainingPlanned).t
    gaps = [late.t - early.t for early, late in itertools.pairwise(beats) if early.t >= planned_at]
    assert max(gaps) < SILENT_S, "it would be called silent"
    compiled = whole.all(ev.XlaMetricsRead)[-1]
    seen = [beat for beat in beats if beat.phase == "compiling"]
    # A compilation that is shorter than the time between two beats may pass unseen.
    assert seen or compiled.compile_s / compiled.compiles <= 1
    assert all(0 <= beat.phase_s <= compiled.compile_s for beat in seen)


def test_request_is_seen_while_compiling_and_applied_next_step(interrupted: Run) -> None:
    seen = {event.request: event for event in interrupted.all(ev.RequestSeen)}
    checkpoint, stop = interrupted.all(ev.RequestApplied)
    assert seen[checkpoint.request].phase == "compiling"
    assert (checkpoint.kind, stop.kind) == ("checkpoint", "stop")
    assert checkpoint.path is not None
    assert (interrupted.dir / checkpoint.path).stat().st_size == checkpoint.bytes
    assert checkpoint.seconds is not None
    assert checkpoint.seconds > 0


def test_a_stop_finishes_the_step_saves_and_ends(interrupted: Run) -> None:
    ended = interrupted.one(ev.TrainingEnded)
    stop = interrupted.all(ev.RequestApplied)[-1]
    assert ended.outcome == "stopped"
    assert ended.step == stop.step
    assert max(interrupted.losses()) == stop.step, "everything up to the stop is reported"
    assert stop.path == f"checkpoints/step-{stop.step:08d}.pt"
    assert (interrupted.dir / "checkpoints" / "last.pt").samefile(interrupted.dir / stop.path)


def test_resumed_run_equals_uninterrupted_bit_for_bit(whole: Run, interrupted: Run, resumed: Run) -> None:
    first, second, uninterrupted = interrupted.losses(), resumed.losses(), whole.losses()
    assert resumed.one(ev.TrainingPlanned).first_step == max(first) + 1
    assert min(second) == max(first) + 1
    together = first | second
    assert together == {step: uninterrupted[step] for step in together}
    expected = {epoch.epoch: epoch for epoch in whole.all(ev.EpochEnded)}
    for epoch in resumed.all(ev.EpochEnded):
        assert epoch.train == expected[epoch.epoch].train, "the meters cover the whole epoch"
        assert epoch.valid == expected[epoch.epoch].valid
        assert epoch.best == expected[epoch.epoch].best


def test_resumed_run_inherits_best_weights(interrupted: Run, resumed: Run) -> None:
    epochs = interrupted.all(ev.EpochEnded) + resumed.all(ev.EpochEnded)
    best = [epoch for epoch in epochs if epoch.best][-1]
    content = torch.load(resumed.dir / "checkpoints" / "best.pt", weights_only=True)
    assert content["position"]["step"] == best.step
    assert content["best"] == min(epoch.valid["loss"].avg for epoch in epochs)


@pytest.mark.slow
def test_resume_with_changed_settings_reports_them(runs_dir: Path, interrupted: Run) -> None:
    saved = [event for event in interrupted.all(ev.CheckpointSaved) if event.reason == "stop"][-1]
    options = ["device.cores=4", "optim.lr=0.002", "checkpoint.monitor=accuracy", "checkpoint.mode=max"]
    options.append(f"epochs={saved.epoch}")
    changed = runs_to_end(make(runs_dir, "changed", options, resume_from=interrupted.dir / saved.path))
    plan, epoch = changed.one(ev.TrainingPlanned), changed.one(ev.EpochEnded)
    batch = saved.step - (saved.epoch - 1) * STEPS_PER_EPOCH
    assert plan.lr == pytest.approx(4 * 0.002)
    assert {report.lr for report in changed.all(ev.ProgressReported)} == {plan.lr}
    assert plan.first_step == 2 * (saved.epoch - 1) * STEPS_PER_EPOCH + 2 * batch + 1, "as many examples, in halves"
    assert epoch.train["loss"].count == 2 * STEPS_PER_EPOCH * 32, "each example of the epoch once, in either run"
    assert epoch.valid["loss"].avg < 1.0, "the weights went on"
    warnings = [warning.text for warning in changed.all(ev.WarningRaised)]
    for words in ("optim.lr 0.0005 -> 0.002", f"step {saved.step} counts as", "checkpoint.monitor was loss (min)"):
        assert sum(words in text for text in warnings) == 1
    assert epoch.best, "no epoch was the best by this figure yet"
    content = torch.load(changed.dir / "checkpoints" / "best.pt", weights_only=True)
    assert content["best"] == epoch.valid["accuracy"].avg <= 1.0
    assert f"best validation accuracy: {content['best']:.6g}" in changed.one(ev.TrainingEnded).reason


def test_epoch_with_failed_save_is_not_the_best(runs_dir: Path) -> None:
    run = make(runs_dir, "unkept", ["data.num_train=64"], text=LINE)
    in_the_way = run.dir / "checkpoints" / "step-00000004.pt" / "in the way"
    in_the_way.mkdir(parents=True)
    runs_to_end(run)
    first, second = run.all(ev.EpochEnded)
    assert (first.best, second.best) == (False, True)
    assert any("step-00000004.pt could not be written" in warning.text for warning in run.all(ev.WarningRaised))
    directory = run.dir / "checkpoints"
    assert (directory / "best.pt").samefile(directory / "step-00000008.pt")


def test_run_stopped_in_evaluation_evaluates_again(runs_dir: Path) -> None:
    place = runs_dir / "evaluating"
    options = [f"data.stop_in_evaluation={place}", "data.num_train=64"]
    stopped = runs_to_end(make(runs_dir, "evaluating", options, text=LINE), exit_code=4)
    applied = stopped.one(ev.RequestApplied)
    assert applied.step == 4, "all steps of the first epoch are done"
    # Batches are fetched ahead, so the first ones of the evaluation may be compiled, executed or reported by then.
    assert stopped.one(ev.RequestSeen).phase in ("evaluating", "compiling", "reporting")
    assert stopped.all(ev.EpochEnded) == []
    assert applied.path is not None
    resumed = runs_to_end(make(runs_dir, "evaluated", options, text=LINE, resume_from=place / applied.path))
    first, second = resumed.all(ev.EpochEnded)
    assert (first.epoch, first.step, first.train["loss"].count) == (1, 4, 64)
    assert first.valid["loss"].count == 40
    assert (second.epoch, second.step) == (2, 8)
    assert "lr_scheduler" not in resumed.log.read_text(), "the optimizer was stepped, in the run before"


def test_stop_now_works_inside_the_compiler(runs_dir: Path) -> None:
    run = make(runs_dir, "now")
    try:
        run.start()
        run.wait_for(ev.HeartbeatSent, lambda beat: beat.phase == "compiling")
        control.submit(run.dir, "stop", by="test", now=time.time())
        control.submit(run.dir, "stop_now", by="test", now=time.time())
        assert run.finish() == 4
        ended = run.wait_for(ev.TrainingEnded)
    finally:
        run.stop_if_alive()
    assert ended.outcome == "stopped"
    assert ended.step == 0
    assert run.one(ev.RequestApplied).kind == "stop_now"
    assert run.one(ev.RequestRefused).kind == "stop"
    assert [event.kind for event in run.all(ev.RequestSeen)] == ["stop", "stop_now"]


def test_sigterm_saves_and_stops_and_bf16_trains(runs_dir: Path) -> None:
    run = make(runs_dir, "sigterm", ["device.precision=bf16"])
    try:
        run.start()
        run.wait_for(ev.EpochEnded, lambda epoch: epoch.epoch == 2)
        run.kill(signal.SIGHUP)
        run.kill(signal.SIGTERM)
        assert run.finish() == 4, run.log.read_text()
    finally:
        run.stop_if_alive()
    applied = run.one(ev.RequestApplied)
    assert applied.kind == "stop"
    assert applied.path is not None
    assert (run.dir / applied.path).is_file()
    assert run.one(ev.TrainingPlanned).precision == "bf16"
    assert run.all(ev.EpochEnded)[1].valid["accuracy"].avg > 0.9
    assert run.all(ev.XlaMetricsRead)[-1].recompiles == 0


@pytest.mark.slow
def test_core_5_alone_trains_and_stops_after_epoch(runs_dir: Path) -> None:
    run = make(runs_dir, "five", [*ONE_CORE, "device.cores=[5]"])
    control.submit(run.dir, "stop_after_epoch", by="test", now=time.time())
    runs_to_end(run, exit_code=4)
    topology = run.one(ev.TopologyDeclared)
    assert (topology.strategy, topology.num_cores, topology.cores) == ("single", 1, [5])
    assert [epoch.epoch for epoch in run.all(ev.EpochEnded)] == [1]
    applied = run.one(ev.RequestApplied)
    assert (applied.kind, applied.step) == ("stop_after_epoch", STEPS_PER_EPOCH)
    assert run.one(ev.TrainingEnded).outcome == "stopped"


def test_one_core_has_the_same_loss_curve(whole: Run, runs_dir: Path) -> None:
    one = runs_to_end(make(runs_dir, "one", [*ONE_CORE, "device.cores=1", "epochs=1"]))
    losses, reference = one.losses(), whole.losses()
    assert sorted(losses) == list(range(1, STEPS_PER_EPOCH + 1))
    for step, (loss,) in losses.items():
        # Sums are taken in another order, and training makes more of it as it goes.
        assert loss == pytest.approx(math.fsum(reference[step]) / 8, rel=1e-3), step


def test_an_unreadable_example_ends_training_and_is_named(runs_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mytask.py").write_text((HERE / "mytask.py").read_text())
    (tmp_path / "engine.py").write_text("raise SystemExit('the wrong engine')")
    run = make(runs_dir, "unreadable", ["data.break_at=37"], text=LINE, cwd=tmp_path)
    control.submit(run.dir, "stop_after_epoch", by="test", now=time.time())
    runs_to_end(run, exit_code=3)
    failure = run.one(ev.FailureRaised)
    assert failure.error == "DatasetError"
    assert failure.message == "training example 37 cannot be read: ValueError: the file is cut short"
    assert "mytask.py" in failure.traceback
    assert failure.traceback in run.log.read_text()
    assert isinstance(run.events()[-1], ev.TrainingEnded)
    assert run.one(ev.TrainingEnded).outcome == "failed"
    assert "failed" in run.one(ev.RequestRefused).why


def test_worker_also_rejects_untrainable_config(runs_dir: Path) -> None:
    run = runs_to_end(make(runs_dir, "refused", ["data.batch_per_core=1000"]), exit_code=2)
    assert "data.batch_per_core" in run.one(ev.TrainingEnded).reason


def test_wrong_runtime_version_is_an_environment_error(runs_dir: Path, tmp_path: Path) -> None:
    info = tmp_path / "torch_xla-2.8.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.8.0\n")
    run = make(runs_dir, "versions")
    try:
        run.start({"PYTHONPATH": str(tmp_path)})
        assert run.finish() == 7, run.log.read_text()
        reason = run.wait_for(ev.TrainingEnded).reason
    finally:
        run.stop_if_alive()
    assert "torch_xla 2.8.0 does not match: both must be 2.9" in reason
    assert "pip install" in reason
