"""Training scripts as people write them, unmodified under `tputui run --`: real frameworks, real subprocesses."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import only_run, run, script, shown, tputui
from tests.supervise.harness import wait_for
from tputui.session import session as sessions
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import unpack
from tputui.telemetry.merge import events_of, open_tail

UNTIL_SHOWN = """
import os, pathlib, time

def until_shown(journal="logs-0.jsonl"):
    journal = pathlib.Path(os.environ["TPUTUI_RUN_DIR"], journal)
    while b'"ValuesLogged"' not in journal.read_bytes():
        time.sleep(0.02)
"""
"""Waits until values of the script are in the journal: it trains longer than the supervisor needs for a look."""

BAR = """
import sys, time
from pathlib import Path
for step in range(1, 4):
    sys.stderr.write(f"\\rEpoch 1:  {step * 25}%|##   | {step}/4 [00:01<00:03,  1.00it/s, loss={1 / step:.3f}]")
    sys.stderr.flush()
    time.sleep(0.3)
while not Path("go").exists():
    time.sleep(0.05)
sys.stderr.write("\\rEpoch 1: 100%|#####| 4/4 [00:04<00:00,  1.00it/s, loss=0.250]\\n")
"""


def test_progress_bar_is_read_while_its_line_is_incomplete(tmp_path: Path) -> None:
    script(tmp_path, BAR)
    assert run(tmp_path, "--detach", "--name", "bar", "--", sys.executable, "train.py").code == 0
    run_dir = tmp_path / "runs" / "bar"
    wait_for(lambda: sessions.load(run_dir).steps == 3, "step 3 of the bar")
    before = sessions.load(run_dir)
    (tmp_path / "go").touch()
    assert tputui("wait", run_dir).code == 0
    after = sessions.load(run_dir)

    assert before.condition == "running"
    assert before.newest_loss == pytest.approx(0.333)
    assert (after.steps, after.newest_loss) == (4, 0.25)
    (view,) = after.logged
    assert (view.source, view.num_values) == ("console", 4)


STEPS = """
import time, tputui
run = tputui.start(total_steps=6)
for epoch in range(3):
    with run.epoch(epoch):
        for _ in range(2):
            run.step(loss=0.5)
run.close()
"""


def test_a_script_that_names_only_its_steps_has_no_number_of_epochs(tmp_path: Path) -> None:
    script(tmp_path, STEPS)
    result = run(tmp_path, "--no-ui", "--", sys.executable, "train.py")
    page = tputui("show", only_run(tmp_path)).out

    assert result.code == 0
    assert "epoch 3  step 6/6" in page
    assert "1 core, device unknown" in page
    assert result.out.count("training done at step 6") == 1


SUMMARY_WRITER = f"""{UNTIL_SHOWN}
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("logs/first", flush_secs=1)
for step in range(60):
    writer.add_scalar("Loss/train", 1 / (1 + step), step)
    if step % 20 == 19:
        writer.add_scalar("Accuracy/valid", step / 60, step)
    if step == 50:
        writer.flush()
        until_shown()
writer.close()
"""

WANDB = """
import time, wandb
wandb.init(project="demo", mode="offline", config={"lr": 0.1})
for step in range(60):
    wandb.log({"train/loss": 1 / (1 + step)}, step=step)
    time.sleep(0.02)
wandb.finish()
"""

LIGHTNING = """
import torch, lightning
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

class Fit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", (self.layer(batch[0]) - batch[1]).square().mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

x = torch.randn(320, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
trainer = lightning.Trainer(
    max_epochs=3, accelerator="cpu", devices=1, logger=CSVLogger("logs", flush_logs_every_n_steps=1),
    log_every_n_steps=1, enable_checkpointing=False, enable_model_summary=False,
)
trainer.fit(Fit(), data, data)
"""

TRAINER = f"""{UNTIL_SHOWN}
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __init__(self, count):
        self.num_read = 0
        self.x = torch.randint(0, 60, (count, 12))
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        self.num_read += 1
        if self.num_read == 700:  # in its third epoch
            until_shown("worker-0.jsonl")
        return dict(input_ids=self.x[index], labels=(self.x[index].sum() > 360).long())

config = BertConfig(
    vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=16,
)
arguments = TrainingArguments(
    "out", num_train_epochs=3, per_device_train_batch_size=16, logging_steps=5, eval_strategy="epoch",
    save_strategy="epoch", report_to=[], optim="adamw_torch", use_cpu=True,
)
Trainer(
    BertForSequenceClassification(config), arguments, train_dataset=Rows(320), eval_dataset=Rows(64)
).train()
"""

LAUNCHED = """
import torch
import torch_xla
import torch_xla.runtime as xr
import tputui

def train(index):
    device = torch_xla.device()
    torch.manual_seed(xr.global_ordinal())
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(16, 8).to(device)
    run = tputui.start(total_steps=30)
    for step in range(30):
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        run.step(loss=loss.detach(), examples=16)

if __name__ == "__main__":
    torch_xla.launch(train)
"""

INSPECTED = """
import torch
import torch_xla
import tputui

def train(index):
    device = torch_xla.device()
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    run = tputui.start()
    for step in range(20):
        # Compiles again in each step, so that the programs are inspected.
        loss = model(torch.randn(16 + step, 64).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        run.step(loss=loss.detach())

if __name__ == "__main__":
    torch_xla.launch(train)
"""

RANKS = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 31):
    x = torch.randn(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # In one write: a line that another rank interrupts is none.
    sys.stdout.write(f"[rank{rank}] step {step} loss {loss.item():.5f}\\n")
    sys.stdout.flush()
    if step == 20:
        # Both have printed it.
        dist.barrier()
        if rank == 1:
            raise ValueError("bad batch")
"""


def needs(*packages: str) -> None:
    """Skips the test without the packages. They are not imported here: some change the environment."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")


def trained(folder: Path, text: str, *words: str, code: int = 0, **env: str) -> dict[str, Any]:
    """What `show --json` prints of a script that ran under `tputui run --`."""
    script(folder, text)
    result = run(folder, "--no-ui", "--", sys.executable, *words, "train.py", **env)
    assert result.code == code, result.out + result.err
    return shown(only_run(folder))


def was_shown_live(folder: Path, journal: str = "logs-0.jsonl") -> bool:
    """Whether values were in the journal before the script wrote its last one."""
    written: list[float] = []
    recorded: list[float] = []
    for numbered in events_of(open_tail(only_run(folder) / journal)):
        if isinstance(numbered.event, ev.ValuesLogged):
            recorded.append(numbered.event.t)
            written += unpack(numbered.event).times or ()
    return min(recorded) < max(written)


@pytest.mark.slow
def test_summary_writer_of_torch(tmp_path: Path) -> None:
    needs("tensorboard", "torch")
    page = trained(tmp_path, SUMMARY_WRITER)
    found = {(view["name"], view["split"]): view for view in page["logged"]}

    assert (page["state"], page["steps"]) == ("done", 59)
    assert page["cores"][0]["loss"] == pytest.approx(1 / 60)
    assert {view["source"] for view in page["logged"]} == {"logs/first"}
    assert found["Accuracy", "valid"]["num_values"] == 3
    assert was_shown_live(tmp_path)


@pytest.mark.slow
def test_wandb_offline(tmp_path: Path) -> None:
    needs("wandb")
    page = trained(tmp_path, WANDB)

    assert (page["state"], page["steps"]) == ("done", 59)
    (view,) = page["logged"]
    assert (view["name"], view["num_values"], view["value"]) == ("loss", 60, 1 / 60)
    assert view["source"].endswith(".wandb")


@pytest.mark.slow
def test_csv_logger_of_lightning(tmp_path: Path) -> None:
    needs("lightning")
    page = trained(tmp_path, LIGHTNING)
    found = {view["split"]: view for view in page["logged"] if view["source"].endswith("metrics.csv")}

    # The attached callback counts from 1, the logger from 0.
    assert (page["state"], page["steps"], page["epoch"]) == ("done", 60, 3)
    assert (found["train"]["num_values"], found["valid"]["num_values"]) == (60, 3)
    assert [epoch["valid"]["loss"]["count"] for epoch in page["epochs"]] == [1, 1, 1]


@pytest.mark.slow
def test_trainer_of_hugging_face_is_one_curve_over_all_checkpoints(tmp_path: Path) -> None:
    needs("transformers", "accelerate")
    page = trained(tmp_path, TRAINER, USE_TORCH_XLA="0")
    found = {(view["name"], view["split"]): view for view in page["logged"]}

    assert (page["state"], page["steps"], page["epoch"]) == ("done", 60, 3)
    # The loss is that of each step; the Trainer logs its mean over 5 of them.
    means = found["loss (Trainer.log)", "train"]
    assert (means["num_values"], found["loss", "valid"]["num_values"]) == (12, 3)
    assert [epoch["train"]["loss"]["count"] for epoch in page["epochs"]] == [320] * 3
    assert ("loss (console)", "train") not in found
    assert not [name for name, _ in found if "checkpoint" in name]
    assert was_shown_live(tmp_path, "worker-0.jsonl")


@pytest.mark.slow
def test_first_exception_of_the_ranks_of_torchrun_is_reported(tmp_path: Path) -> None:
    needs("torch")
    page = trained(tmp_path, RANKS, "-m", "torch.distributed.run", "--nproc_per_node=2", code=3)

    assert (page["state"], page["steps"], len(page["cores"])) == ("failed", 20, 2)
    assert (page["failure"]["error"], page["failure"]["message"]) == ("ValueError", "bad batch")
    assert page["failure"]["frames"][0]["file"].endswith("train.py")


@pytest.mark.slow
@pytest.mark.xla
def test_cores_of_a_launched_script_have_their_own_losses(tmp_path: Path) -> None:
    page = trained(tmp_path, LAUNCHED, PJRT_DEVICE="CPU", CPU_NUM_DEVICES="8")
    losses = [core["loss"] for core in page["cores"]]

    assert (page["state"], page["steps"], page["topology"]["device"]) == ("done", 30, "CPU")
    assert len(losses) == 8
    assert all(0 < loss < 20 for loss in losses)
    assert len(set(losses)) > 1


@pytest.mark.slow
@pytest.mark.xla
def test_programs_are_inspected_while_other_threads_train(tmp_path: Path) -> None:
    trained(tmp_path, INSPECTED, PJRT_DEVICE="CPU", CPU_NUM_DEVICES="8")
    found = events_of(open_tail(only_run(tmp_path) / "worker-0.jsonl"))
    assert [each.event for each in found if isinstance(each.event, ev.WarningRaised)] == []
