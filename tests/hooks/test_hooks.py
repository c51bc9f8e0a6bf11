"""What is told of scripts that report nothing: losses, steps, epochs and learning rates from inside their process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests import forked
from tests.deadline import DEADLINE_S
from tests.diagnosis.runs import by_rule
from tests.observers.observed import environment
from tputui.diagnosis.diagnose import diagnose
from tputui.exports.rows import EventRow, MetricRow, RunRows, StepRow
from tputui.hooks.call_sites import CallSite
from tputui.hooks.notes import LOSSES_MAX, LossesOnDevice
from tputui.hooks.steps import BackwardPass
from tputui.session.session import load
from tputui.state.snapshot import Snapshot
from tputui.text import show_page, verdict_lines

pytest.importorskip("torch")
MODULE = "tests.hooks.scripts"
STEPS = 12
WITH_EQUAL_LOSSES = (
    "plain", "accumulated", "shares", "scaled", "closure", "by_hand", "thread", "adversaries", "checkpointed", "asked",
    "branches", "remainders",
)  # fmt: skip


class Told(NamedTuple):
    """What a script printed, and what tputui tells of it."""

    printed: dict[str, list[float]]
    """The true values by name."""
    losses: list[float]
    steps: list[int]
    metrics: dict[str, list[float]]
    snapshot: Snapshot
    code: int


def told(folder: Path, way: str) -> Told:
    done = forked.run(MODULE, way, cwd=folder, env=environment(folder), timeout=DEADLINE_S)
    return _told(folder, done)


def told_alone(folder: Path, way: str) -> Told:
    """As `told`, of a process of its own, as a user starts it: an error of a copy is caught by the template."""
    done = subprocess.run(
        [sys.executable, "-m", MODULE, way],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    return _told(folder, done)


def _told(folder: Path, done: subprocess.CompletedProcess[str]) -> Told:
    printed: dict[str, list[float]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("true "):
            _, name, value = line.split()
            printed.setdefault(name, []).append(float(value))
    assert printed, done.stderr
    rows = [*RunRows(folder / "run")]
    steps = [row for row in rows if isinstance(row, StepRow)]
    metrics: dict[str, list[float]] = {}
    for row in rows:
        if isinstance(row, MetricRow) and row.kind not in ("report", "epoch", "progress"):
            metrics.setdefault(row.name, []).append(row.value)
    return Told(
        printed,
        [row.value for row in steps],
        [row.step for row in steps],
        metrics,
        load(folder / "run"),
        done.returncode,
    )


@pytest.mark.parametrize("way", WITH_EQUAL_LOSSES)
def test_losses_are_those_of_the_script_in_each_step(tmp_path: Path, way: str) -> None:
    script = told(tmp_path, way)
    assert script.code == 0
    assert script.steps == [*range(1, 13)]
    # A mean of parts is computed in another order.
    np.testing.assert_allclose(script.losses, np.array(script.printed["loss"], np.float32), rtol=1e-6)


def test_other_losses_are_metrics_with_their_lines(tmp_path: Path) -> None:
    script = told(tmp_path, "adversaries")
    assert script.metrics["errD"] == script.printed["errD"]
    [metric] = [logged for logged in script.snapshot.logged if logged.name == "errD"]
    assert metric.source.startswith("scripts.py:")
    named = script.snapshot.loss_named
    assert named is not None
    assert (named.name, named.source.partition(":")[0]) == ("errG", "scripts.py")


def test_losses_of_two_branches_of_a_step_are_one_series(tmp_path: Path) -> None:
    assert not told(tmp_path, "branches").metrics


def test_two_losses_of_one_name_in_a_step_stay_two_series(tmp_path: Path) -> None:
    script = told(tmp_path, "sums")
    assert script.losses == [np.float32(value) for value in script.printed["loss"]]
    assert script.metrics["loss"] == script.printed["beside"]


def test_losses_of_one_name_beside_that_of_the_training_are_told_apart_by_their_lines(tmp_path: Path) -> None:
    script = told(tmp_path, "critics")
    assert script.losses == [np.float32(value) for value in script.printed["loss"]]
    (first, first_values), (second, second_values) = script.metrics.items()
    assert (first, second.rpartition(":")[0]) == ("loss", "loss scripts.py")
    assert (first_values, second_values) == (script.printed["first"], script.printed["second"])


def test_epochs_are_those_of_the_loader_and_of_the_loop(tmp_path: Path) -> None:
    snapshot = told_alone(tmp_path, "epochs").snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 4), (2, 8), (3, 12)]
    assert [epoch.lr for epoch in snapshot.epochs] == [0.1, 0.05, 0.025]
    assert [epoch.train["loss"].count for epoch in snapshot.epochs] == [60, 60, 60], "examples, none of an evaluation"
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (3, 12)
    assert (snapshot.plan.global_batch, snapshot.plan.train_examples) == (16, 60)
    assert {"data", "evaluate"} <= snapshot.epochs[0].sections_s.keys()


@pytest.mark.parametrize(("way", "steps"), [("parts", 8), ("previewed", 6)])
def test_steps_of_an_epoch_are_planned_from_the_first_report_on(tmp_path: Path, way: str, steps: int) -> None:
    snapshot = told(tmp_path, way).snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, steps), (2, 2 * steps)]
    events = [row for row in RunRows(tmp_path / "run") if isinstance(row, EventRow)]
    planned = [event.fields for event in events if event.kind == "TrainingPlanned"]
    assert {(plan["num_epochs"], plan["steps_per_epoch"]) for plan in planned} == {(2, steps)}


def test_the_examples_of_sequences_and_an_index_beside_the_epochs_are_no_other_numbers(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "sequences").snapshot
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps, snapshot.plan.global_batch) == (3, 6, 8)
    assert [epoch.train["loss"].count for epoch in snapshot.epochs] == [16, 16, 16]


def test_epochs_that_take_the_first_batches_of_a_loader_are_planned_so_from_the_first_step_on(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "sliced").snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 6), (2, 12)]
    events = [row for row in RunRows(tmp_path / "run") if isinstance(row, EventRow)]
    planned = [event.fields for event in events if event.kind == "TrainingPlanned"]
    assert {(plan["num_epochs"], plan["steps_per_epoch"]) for plan in planned} == {(2, 6)}


def test_evaluations_after_every_step_are_told_if_they_fetch_batches(tmp_path: Path) -> None:
    told(tmp_path, "often")
    events = [row for row in RunRows(tmp_path / "run") if isinstance(row, EventRow)]
    assert [event.fields["step"] for event in events if event.kind == "EvaluationStarted"] == [*range(1, STEPS + 1)]


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("left", "model(batch)"),
        pytest.param("one", "model(batch)", id="one batch"),
        ("inner", "losses.append((self.body(batch) - 1).square().mean().item())"),
    ],
)
def test_a_model_that_evaluates_in_training_mode_is_found_with_its_line(tmp_path: Path, mode: str, line: str) -> None:
    snapshot = told_alone(tmp_path, f"mode_{mode}").snapshot
    verdicts = diagnose(snapshot)
    (verdict,) = by_rule(verdicts, "evaluation_mode")
    assert verdict.text == "the model evaluates in training mode, with Dropout as in training"
    assert verdict.code == line
    printed = "\n".join(verdict_lines.blocks([verdict]))
    assert "scripts.py:" in printed.splitlines()[0]
    assert "fix: call model.eval() before the evaluation" in printed


@pytest.mark.parametrize("mode", ["right", "each", "statistics"])
def test_evaluations_in_the_right_mode_raise_no_alarm(tmp_path: Path, mode: str) -> None:
    """Nor does a pass over the training data in training mode, as for the statistics of BatchNorm."""
    verdicts = diagnose(told_alone(tmp_path, f"mode_{mode}").snapshot)
    assert by_rule(verdicts, "evaluation_mode") == []
    unanswered = by_rule(verdicts, "evaluation_mode", "not available")
    assert [verdict.text for verdict in unanswered] == ([] if mode == "right" else ["no evaluation seen from inside"])


def test_an_evaluation_on_the_batches_of_the_training_is_a_part_of_its_epoch(tmp_path: Path) -> None:
    epochs = told(tmp_path, "mode_statistics").snapshot.epochs
    assert ["evaluate" in epoch.sections_s for epoch in epochs] == [True, True, True]


def test_of_evaluations_in_each_short_epoch_those_that_print_are_told(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    log = tmp_path / "run" / "worker-0.log"
    with log.open("w") as output:
        command = [sys.executable, "-m", MODULE, "briefly"]
        subprocess.run(command, env=variables, cwd=tmp_path, stdout=output, timeout=DEADLINE_S, check=True)
    events = [row for row in RunRows(tmp_path / "run") if isinstance(row, EventRow)]
    evaluations = [event.fields for event in events if event.kind == "EvaluationStarted"]
    lines = log.read_text().splitlines(keepends=True)
    before = [sum(map(len, lines[: lines.index(line)])) for line in lines if line.startswith("epoch")]
    assert [evaluation["step"] for evaluation in evaluations] == [4, 8, 12]
    assert [evaluation["printed_bytes"] for evaluation in evaluations] == before
    plan = load(tmp_path / "run").plan
    assert plan is not None
    assert (plan.num_epochs, plan.total_steps) == (STEPS, STEPS)


def test_a_batch_fetched_before_the_step_that_needs_it_is_of_that_step(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "ahead").snapshot
    assert [epoch.train["loss"].count for epoch in snapshot.epochs] == [60, 60, 60]
    assert snapshot.plan is not None
    assert snapshot.plan.train_examples == 60, "the last batch has 12"


def test_a_batch_fetched_for_a_step_that_is_not_made_is_of_none(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "ahead_and_left").snapshot
    assert [epoch.train["loss"].count for epoch in snapshot.epochs] == [32, 32, 32]


def test_a_loader_that_begins_again_in_a_loop_of_steps_ends_epochs_and_not_the_training(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "cycled").snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs][:2] == [(1, 4), (2, 8)]
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (0, 10)


@pytest.mark.parametrize("way", ["counted", "rounds", "endless", "left"])
def test_a_loop_without_epochs_has_its_limit_as_total(tmp_path: Path, way: str) -> None:
    snapshot = told(tmp_path, way).snapshot
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (0, 12)
    assert snapshot.plan.train_examples == (4 * 12 * 8 if way == "endless" else 0), way
    assert not snapshot.epochs


def test_steps_of_passes_that_become_longer_are_planned_no_more(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "varied").snapshot
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (0, 0)
    planned = [
        row.fields["num_steps"] or row.fields["steps_per_epoch"]
        for row in RunRows(tmp_path / "run")
        if isinstance(row, EventRow) and row.kind == "TrainingPlanned"
    ]
    assert planned == [20, 0]


def test_epochs_of_a_script_that_updates_its_weights_itself_end_at_their_last_steps(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "by_hand").snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 4), (2, 8), (3, 12)]
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (3, 12)


def test_what_a_script_has_not_is_no_number_in_its_epochs(tmp_path: Path) -> None:
    """Neither a learning rate nor an evaluation."""
    snapshot = told(tmp_path, "by_hand").snapshot
    assert [epoch["lr"] for epoch in show_page.to_show(snapshot)["epochs"]] == [None] * 3
    [row] = [line for line in show_page.show_text(snapshot).splitlines() if line.startswith("epoch 1 ")]
    assert row.split()[3] == "-"


def test_the_last_of_epochs_too_short_to_be_told_apart_is_exact(tmp_path: Path) -> None:
    script = told(tmp_path, "swiftly")
    last = script.snapshot.epochs[-1]
    assert (last.epoch, last.step, script.snapshot.epoch) == (9 * STEPS, 9 * STEPS, 9 * STEPS)
    assert last.train["loss"].avg == pytest.approx(script.printed["loss"][-1])
    assert script.snapshot.step_s is not None
    assert script.snapshot.step_s > 1e-5
    # Those before have the numbers of all epochs that they contain.
    assert sum(epoch.num_epochs for epoch in script.snapshot.epochs) == 9 * STEPS
    assert all(epoch.epoch + epoch.num_epochs - 1 == epoch.step for epoch in script.snapshot.epochs)


@pytest.mark.parametrize(("way", "plans"), [("folds", {(6, 3)}), ("search", {(2, 3), (4, 3), (6, 3)})])
def test_trainings_one_after_the_other_count_on(tmp_path: Path, way: str, plans: set[tuple[int, int]]) -> None:
    script = told(tmp_path, way)
    assert script.losses == [np.float32(value) for value in script.printed["loss"]]
    assert [(epoch.epoch, epoch.step) for epoch in script.snapshot.epochs] == [(n, 3 * n) for n in range(1, 7)]
    np.testing.assert_allclose([epoch.lr for epoch in script.snapshot.epochs], [0.1, 0.1, 0.2, 0.2, 0.3, 0.3])
    events = [row for row in RunRows(tmp_path / "run") if isinstance(row, EventRow)]
    planned = [event.fields for event in events if event.kind == "TrainingPlanned"]
    assert {(plan["num_epochs"], plan["steps_per_epoch"]) for plan in planned} == plans


def test_epochs_of_a_loader_that_keeps_its_iterator_have_its_length(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "lasting").snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 4), (2, 8), (3, 12)]
    assert [epoch.train["loss"].count for epoch in snapshot.epochs] == [16, 16, 16]


def test_loaders_of_one_epoch_each_show_the_epochs_and_their_loop_how_many(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "renewed").snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 4), (2, 8), (3, 12)]
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (3, 12)


def test_loaders_of_one_part_of_an_epoch_each_begin_none(tmp_path: Path) -> None:
    snapshot = told(tmp_path, "both").snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 6), (2, 12)]
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (2, 12)


def test_optimizers_that_take_turns_lose_no_loss_of_the_training(tmp_path: Path) -> None:
    script = told(tmp_path, "turns")
    assert [value for value in script.losses if value == value] == [np.float32(v) for v in script.printed["loss"]]
    assert script.metrics["loss_v"] == script.printed["loss_v"]
    snapshot = script.snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 6), (2, 12), (3, 18)]
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (3, 18)


def test_optimizers_with_one_line_for_all_losses_that_take_turns_count_their_steps(tmp_path: Path) -> None:
    script = told(tmp_path, "shifts")
    assert script.losses == [np.float32(value) for value in script.printed["loss"]]
    snapshot = script.snapshot
    assert [(epoch.epoch, epoch.step) for epoch in snapshot.epochs] == [(1, 9), (2, 18)]
    assert [epoch.train["loss"].count for epoch in snapshot.epochs] == [24, 24]
    assert snapshot.plan is not None
    assert (snapshot.plan.num_epochs, snapshot.plan.total_steps) == (2, 18)


def test_an_optimizer_that_steps_between_those_of_another_from_the_same_line_makes_no_step(tmp_path: Path) -> None:
    script = told(tmp_path, "team")
    assert script.steps == [int(step) for step in script.printed["loss"]]


def test_the_error_that_ends_a_script_is_the_failure_with_its_step(tmp_path: Path) -> None:
    script = told_alone(tmp_path, "failing")
    assert script.code == 1
    failure = script.snapshot.failure
    assert failure is not None
    assert (failure.error, failure.step) == ("ValueError", 12)
    assert script.losses == [np.float32(value) for value in script.printed["loss"]]


def test_import_of_torch_hooks_the_script_and_prints_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "weight = torch.nn.Parameter(torch.ones(1))\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for step in range(3):\n"
        "    loss = (weight * 2).square().sum()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    print('true loss', loss.item())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stderr == ""
    script_told = _told(tmp_path, done)
    assert script_told.losses == [np.float32(value) for value in script_told.printed["loss"]]
    named = script_told.snapshot.loss_named
    assert named is not None
    assert (named.name, named.source) == ("loss", "train.py:6")


def test_losses_on_a_device_are_read_in_parts_and_each_once() -> None:
    torch = pytest.importorskip("torch")
    held, passes = LossesOnDevice(torch, "cpu"), []
    loss = torch.zeros(1, requires_grad=True)
    for number in range(3 * LOSSES_MAX):
        passes.append(BackwardPass(CallSite("loss", "train.py:1"), 0.0, 1))
        held.keep(passes[-1], loss + number)
        if number % 700 == 699:
            held.read(2)
            assert [one.value for one in passes[-3:]] == [number - 2, None, None]
    held.read(0)
    assert [one.value for one in passes] == [*range(3 * LOSSES_MAX)]


def test_nothing_is_hooked_without_a_run_or_if_it_is_disabled(tmp_path: Path) -> None:
    code = "import torch; print(hasattr(torch.autograd.backward, '__wrapped__'))"
    for variables in ({"TPUTUI_RUN_DIR": ""}, {"TPUTUI_DISABLED": "1"}):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment(tmp_path, **variables),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        assert done.stdout == "False\n"
