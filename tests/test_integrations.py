"""Callbacks in scripts of users, on the CPU: the runs that they record, and that they do no harm."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from tests import forked
from tests.cli import helpers
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import Tail

pytestmark = pytest.mark.xla

SCRIPT = """
import sys
import torch
from {package} import LightningModule, Trainer
from tputui.integrations.lightning import TputuiCallback

EXAMPLES = 30

class Line(LightningModule):
    def __init__(self, fails_at=None):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.fails_at = fails_at
    def training_step(self, batch, batch_idx):
        if self.global_step == self.fails_at:
            raise ValueError("the user's own mistake")
        loss = self.layer(batch[0]).square().mean()
        self.log("train_half", loss / 2, on_step=False, on_epoch=True)
        return loss
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch[0]).square().mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(EXAMPLES, 2)), batch_size=4)
    def val_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 2)), batch_size=4)

def fit(callback, **given):
    trainer = Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, callbacks=[callback])
    trainer.fit(Line(**given))
    print("trained", trainer.global_step)
"""
STEPS = 16


def run_script(folder: Path, body: str, package: str = "lightning.pytorch") -> subprocess.CompletedProcess[str]:
    """Runs the script in a folder of its own."""
    (folder / "train.py").write_text(SCRIPT.format(package=package) + body)
    return forked.run("train", cwd=folder, env={"PYTHONPATH": str(folder)})


def the_run(folder: Path) -> Path:
    (run_dir,) = rundir.listing(folder / "runs")
    return run_dir


def read_events(run_dir: Path) -> list[ev.Event]:
    tail = Tail(run_dir / "worker-0.jsonl")
    numbered_events = tail.read()
    tail.close()
    return [numbered.event for numbered in numbered_events]


def tputui(*argv: str, cwd: Path) -> str:
    done = helpers.tputui(*argv, cwd=cwd)
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_script_run_can_be_shown_checked_and_replayed(tmp_path: Path, package: str) -> None:
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    done = run_script(tmp_path, "fit(TputuiCallback())", package)
    assert f"trained {STEPS}" in done.stdout, done.stderr
    name = the_run(tmp_path).name
    shown = json.loads(tputui("show", name, "--json", cwd=tmp_path))
    assert shown["state"] == "done"
    assert "Line" in tputui("runs", cwd=tmp_path)
    assert "no damage" in tputui("check", name, cwd=tmp_path)
    assert "epoch 2 ended" in tputui("replay", name, "--no-ui", cwd=tmp_path)
    assert "state: done" in tputui("attach", name, "--no-ui", cwd=tmp_path)
    events = read_events(the_run(tmp_path))
    epochs = [event for event in events if isinstance(event, ev.EpochEnded)]
    assert [set(epoch.train) for epoch in epochs] == [{"loss", "half"}] * 2
    # The last of eight batches of 4 has 2 examples: the average that Lightning computes counts each example once.
    loss = epochs[0].train["loss"]
    assert loss.count == 30
    assert loss.sum == pytest.approx(30 * loss.avg)
    assert epochs[0].train["half"].avg == pytest.approx(loss.avg / 2, rel=1e-5)
    assert epochs[1].valid["loss"].avg < epochs[0].valid["loss"].avg
    assert sum(event.n for event in events if isinstance(event, ev.StepsRecorded)) == STEPS


def test_callback_errors_are_reported_once(tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("where the folder of the runs would be")
    body = """
class Odd(TputuiCallback):
    def _examples(self, batch):
        raise RuntimeError("a fault of the callback")
fit(Odd())
fit(TputuiCallback(runs_dir="a-file"))
"""
    done = run_script(tmp_path, body)
    assert done.stdout.count(f"trained {STEPS}") == 2, done.stderr
    assert done.stderr.count("RuntimeError: a fault of the callback; training continues") == 1
    assert done.stderr.count("nothing is reported to tputui: NotADirectoryError: [Errno 20] Not a directory") == 1
    warnings = [event.text for event in read_events(the_run(tmp_path)) if isinstance(event, ev.WarningRaised)]
    assert len(warnings) == 1
    assert "a fault of the callback" in warnings[0]


def test_requests_are_served_between_two_batches(tmp_path: Path) -> None:
    body = """
import threading
import time
from tputui.telemetry import requests
class Asking(TputuiCallback):
    def on_train_batch_end(self, trainer, module, *given):
        super().on_train_batch_end(trainer, module, *given)
        for step, kind in ((3, "checkpoint"), (5, "stop")):
            if trainer.global_step == step:
                requests.submit(self._run.dir, kind, by="test", now=time.time())
                while (self._run.dir / "worker-0.jsonl").read_bytes().count(b"RequestSeen") < step // 2:
                    threading.Event().wait(0.05)
fit(Asking())
"""
    done = run_script(tmp_path, body)
    assert "trained 6" in done.stdout, done.stderr
    events = read_events(the_run(tmp_path))
    applied = [event for event in events if isinstance(event, ev.RequestApplied)]
    assert [(event.kind, event.step) for event in applied] == [("checkpoint", 4), ("stop", 6)]
    assert (the_run(tmp_path) / "checkpoints" / "step-4.ckpt").stat().st_size == applied[0].bytes
    ended = events[-1]
    assert isinstance(ended, ev.TrainingEnded)
    assert ended.outcome == "stopped"


def test_failed_training_is_reported_with_its_traceback(tmp_path: Path) -> None:
    done = run_script(tmp_path, "fit(TputuiCallback(), fails_at=3)")
    assert done.returncode == 1
    events = read_events(the_run(tmp_path))
    (failure,) = [event for event in events if isinstance(event, ev.FailureRaised)]
    assert failure.message == "the user's own mistake"
    assert "training_step" in failure.traceback
    ended = events[-1]
    assert isinstance(ended, ev.TrainingEnded)
    assert ended.outcome == "failed"
