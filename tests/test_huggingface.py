"""Callbacks on the Trainer of transformers and on accelerate: the runs that they record. No network, tiny networks."""

from __future__ import annotations

import importlib.util
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.test_reporter_api import of_type, read_events, show
from tputui.telemetry import events as ev
from tputui.telemetry import logged_values, rundir

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
]

TRAINER = """
import json, sys, threading, time
import tputui.integrations.accelerate, tputui.integrations.huggingface
assert not {"transformers", "accelerate"} & set(sys.modules), "only the classes import the frameworks"
import torch
from transformers import Trainer, TrainingArguments
from tputui.integrations.huggingface import TputuiCallback
from tputui.telemetry import requests

class Net(torch.nn.Module):
    def __init__(self, fails=False):
        super().__init__()
        self.layer, self.fails = torch.nn.Linear(4, 2), fails
    def forward(self, x, labels=None):
        if self.fails and self.training:
            raise ValueError("the user's own mistake")
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

data = [{"x": x, "labels": (x.sum() > 0).long()} for x in torch.randn(30, 4)]

def train(name, callback, fails=False, **given):
    arguments = TrainingArguments(name, num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True,
                                  disable_tqdm=True, optim="sgd", learning_rate=0.1, **given)
    score = lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}
    trainer = Trainer(Net(fails), arguments, train_dataset=data, eval_dataset=data[:20], compute_metrics=score,
                      callbacks=[callback])
    trainer.train()
    json.dump(trainer.state.log_history, open(f"{name}.json", "w"))

train("whole", TputuiCallback("metrics"), logging_steps=3, eval_strategy="steps", eval_steps=4,
      save_strategy="epoch", save_total_limit=1)

class Asking(TputuiCallback):
    def on_step_end(self, args, state, control, **given):
        for step, kind in ((3, "checkpoint"), (5, "stop")):
            if state.global_step == step:
                requests.submit(self._run.dir, kind, by="test", now=time.time())
                while (self._run.dir / "worker-0.jsonl").read_bytes().count(b"RequestSeen") < step // 2:
                    threading.Event().wait(0.05)
        super().on_step_end(args, state, control, **given)

train("asked", Asking("requests"), save_strategy="no", logging_steps=1)

import tputui
try:
    with tputui.start(runs_dir="failures"):
        train("failed", TputuiCallback(), fails=True)
except ValueError:
    print("the exception arrived")

class Odd(TputuiCallback):
    def _enter_next(self, control):
        raise RuntimeError("a fault of the callback")
train("odd", Odd("odd-runs"), save_strategy="no")
train("short", TputuiCallback("short-runs"), save_strategy="no", max_steps=11)
"""


def the_run(folder: Path) -> Path:
    (run_dir,) = rundir.listing(folder)
    return run_dir


def logged_in(events: list[ev.Event]) -> dict[str, list[tuple[int, float, float]]]:
    """Step, value and epoch of every logged value, by tag."""
    found: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for event in of_type(events, ev.ValuesLogged):
        columns = logged_values.unpack(event)
        found[event.tag] += zip(
            columns.steps, columns.values, columns.epochs or [math.nan] * len(columns.steps), strict=True
        )
    return found


def logged_by_trainer(path: Path) -> dict[str, list[tuple[int, float, float]]]:
    """The same of the history that the Trainer keeps."""
    found: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for entry in json.loads(path.read_text()):
        for tag in set(entry) - {"step", "epoch"}:
            found[tag].append((entry["step"], entry[tag], entry["epoch"]))
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of the Trainer, all made by one process."""
    folder = tmp_path_factory.mktemp("trainer")
    (folder / "train.py").write_text(TRAINER)
    done = forked.run("train", cwd=folder, env={"PYTHONPATH": str(folder), "USE_TORCH_XLA": "0", "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr
    assert "the exception arrived" in done.stdout
    assert done.stderr.count("a fault of the callback; training continues") == 1
    return folder


def test_trainer_metrics_equal_its_history(trained: Path) -> None:
    run_dir = the_run(trained / "metrics")
    events, history = read_events(run_dir / "worker-0.jsonl"), logged_by_trainer(trained / "whole.json")
    assert logged_in(events) == history
    shown = show(run_dir)
    assert (shown["state"], shown["steps"], shown["warnings"]) == ("done", 16, [])
    assert shown["cores"][0]["loss"] == pytest.approx(history["loss"][-1][1])
    steps = {event.first: event.mean for event in of_type(events, ev.StepsRecorded)}
    assert steps == pytest.approx({step: loss for step, loss, _ in history["loss"]})
    (plan,) = of_type(events, ev.TrainingPlanned)
    assert (plan.num_epochs, plan.steps_per_epoch, plan.global_batch, plan.num_parameters) == (2, 8, 4, 10)
    epochs = of_type(events, ev.EpochEnded)
    assert [(epoch.epoch, epoch.step) for epoch in epochs] == [(1, 8), (2, 16)]
    valid = {step: loss for step, loss, _ in history["eval_loss"]}
    assert [epoch.valid["loss"].avg for epoch in epochs] == [valid[8], valid[16]]
    assert set(epochs[0].valid) == {"loss", "accuracy"}
    # Losses of steps 9, 12 and 15; that of steps 7 to 9 counts 10 examples, since the last batch of an epoch has 2.
    assert epochs[1].train["loss"].count == 10 + 12 + 12
    saved = of_type(events, ev.CheckpointSaved)
    assert [(Path(event.path).name, event.step) for event in saved] == [("checkpoint-8", 8), ("checkpoint-16", 16)]
    assert [Path(event.path).name for event in of_type(events, ev.CheckpointDropped)] == ["checkpoint-8"]


def test_trainer_that_ends_within_an_epoch_has_the_steps_that_it_plans(trained: Path) -> None:
    run_dir = the_run(trained / "short-runs")
    (plan,) = of_type(read_events(run_dir / "worker-0.jsonl"), ev.TrainingPlanned)
    assert (plan.num_epochs, plan.steps_per_epoch, plan.num_steps) == (2, 8, 11)


def test_trainer_serves_requests_to_save_and_to_stop(trained: Path) -> None:
    events = read_events(the_run(trained / "requests") / "worker-0.jsonl")
    applied = of_type(events, ev.RequestApplied)
    assert [(event.kind, event.step) for event in applied] == [("checkpoint", 3), ("stop", 5)]
    saved = {event.step: Path(event.path) for event in of_type(events, ev.CheckpointSaved)}
    assert list(saved) == [3, 5]
    assert all((trained / path / "model.safetensors").is_file() for path in saved.values())
    assert applied[0].path == str(saved[3])
    assert events[-1].outcome == "stopped"  # type: ignore[attr-defined]  # TrainingEnded, which ends every journal
    assert [step for step, _, _ in logged_by_trainer(trained / "asked.json")["loss"]] == [1, 2, 3, 4, 5]


def test_failures_and_faults_of_the_trainer_callback_are_reported(trained: Path) -> None:
    shown = show(the_run(trained / "failures"))
    assert shown["state"] == "failed"
    assert shown["failure"]["message"] == "the user's own mistake"
    shown = show(the_run(trained / "odd-runs"))
    assert (shown["state"], shown["steps"], len(shown["warnings"])) == ("done", 16, 1)


TRACKED = """
import torch
from accelerate import Accelerator
from accelerate.tracking import register_tracker_class
from tputui.integrations.accelerate import TputuiTracker

def train(accelerator, **given):
    accelerator.init_trackers("tracked", **given)
    for epoch in range(2):
        for batch in range(5):
            step = 5 * epoch + batch + 1
            accelerator.log({"epoch": epoch, "train_loss": torch.tensor(1.0 / step), "lr": 0.1, "note": "text"}, step)
        accelerator.log({"eval_loss": 0.5 - 0.1 * epoch}, step=step)
    run = accelerator.get_tracker("tputui", unwrap=True)
    print("stop asked:", run.should_stop())
    accelerator.end_training()

train(Accelerator(cpu=True, log_with=TputuiTracker(runs_dir="given")), config={"lr": 0.1})
register_tracker_class(TputuiTracker)
train(Accelerator(cpu=True, log_with="tputui"))
"""


def test_accelerate_tracker_reports_what_is_logged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRACKED)
    done = forked.run("train", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "USE_TORCH_XLA": "0"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stop asked: False") == 2
    run_dir = the_run(tmp_path / "given")
    shown: dict[str, Any] = show(run_dir)
    assert (shown["state"], shown["steps"], shown["warnings"]) == ("done", 10, [])
    assert shown["config"]["lr"] == 0.1
    assert shown["cores"][0]["loss"] == pytest.approx(0.1)
    logged = logged_in(read_events(run_dir / "worker-0.jsonl"))
    assert set(logged) == {"train_loss", "lr", "eval_loss"}
    assert [value for _, value, _ in logged["eval_loss"]] == [0.5, 0.4]
    assert logged["lr"][-1] == (10, 0.1, 1.0)
    assert all(math.isclose(value, 1.0 / step, rel_tol=1e-6) for step, value, _ in logged["train_loss"])
    assert show(the_run(tmp_path / "runs"))["steps"] == 10
    assert "tracked" in the_run(tmp_path / "runs").name
