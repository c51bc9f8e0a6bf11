"""Trainers of frameworks in scripts that know nothing of tputui, as `tputui run --` launches them."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli import helpers
from tests.observers.observed import installed
from tests.test_huggingface import logged_by_trainer, logged_in
from tests.test_reporter_api import of_type, read_events
from tputui.telemetry import events as ev

pytestmark = pytest.mark.xla
ROOT = Path(__file__).parents[2]


class Reported(NamedTuple):
    """What a script computed, what its run has, and what it printed."""

    truth: Any
    shown: dict[str, Any]
    events: list[ev.Event]
    out: str

    def losses(self) -> dict[int, float]:
        """The losses by step, as `tputui export` writes them."""
        return {row["step"]: row["value"] for row in self._rows if row["metric"] == "loss"}

    @property
    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.shown["_rows"])
        return rows


Launch = Callable[..., Reported]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Runs a script that writes what it computed to `truth.json`."""

    def run(text: str, *arguments: str, **environ: str) -> Reported:
        path = os.pathsep.join([str(installed(tmp_path)), str(ROOT)])
        words = ("--no-ui", "--", sys.executable, helpers.script(tmp_path, text), *arguments)
        done = helpers.run(tmp_path, *words, PYTHONPATH=path, USE_TORCH_XLA="0", **environ)
        assert done.code == 0, done.out + done.err
        run_dir = helpers.only_run(tmp_path)
        tables = tmp_path / "tables"
        exported = helpers.tputui("export", run_dir, "--to", "jsonl", "--out", tables)
        assert exported.code == 0, exported.err
        shown = helpers.shown(run_dir)
        shown["_rows"] = "[" + ",".join((tables / "steps.jsonl").read_text().splitlines()) + "]"
        truth = json.loads((tmp_path / "truth.json").read_text())
        return Reported(truth, shown, read_events(run_dir / "worker-0.jsonl"), done.out)

    return run


LIGHTNING = """
import json, sys
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

class Line(LightningModule):
    def __init__(self, fails_at=None):
        super().__init__()
        self.layer, self.fails_at = torch.nn.Linear(4, 1), fails_at
        self.losses, self.valid, self.lrs, self.test = [], [], [], []
    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
    def training_step(self, batch, batch_idx):
        if self.global_step == self.fails_at:
            raise ValueError("left by the user")
        loss = self.loss(batch)
        self.losses.append(loss.item())
        return loss
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))
    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.valid.append(self.trainer.callback_metrics["val_loss"].item())
    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.loss(batch))
    def on_before_optimizer_step(self, optimizer):
        self.lrs.append(optimizer.param_groups[0]["lr"])
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

torch.manual_seed(0)
x = torch.randn(64, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)

def fit(module, epochs, **given):
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, **given)
    trainer.fit(module, loader, loader)
    return trainer
"""
_FITS = """
first, second = Line(), Line()
trainer = fit(first, 3, limit_train_batches=6, accumulate_grad_batches=2)
test = trainer.test(first, loader)[0]["test_loss"]
try:
    fit(Line(fails_at=0), 1)
except ValueError as error:
    print(error)
fit(second, 5, callbacks=[EarlyStopping("val_loss", patience=0, mode="max")])
json.dump({"losses": first.losses, "valid": first.valid + second.valid, "lr": second.lrs[-1], "test": test,
           "later": second.losses}, open("truth.json", "w"))
"""


def test_lightning_is_reported_through_several_fits(launch: Launch) -> None:
    reported = launch(LIGHTNING + _FITS, PJRT_DEVICE="CPU")
    truth, shown = reported.truth, reported.shown
    pairs = [sum(truth["losses"][at : at + 2]) / 2 for at in range(0, len(truth["losses"]), 2)]
    assert list(reported.losses()) == list(range(1, 10 + len(truth["later"])))
    assert list(reported.losses().values()) == pytest.approx([*pairs, *truth["later"]])
    assert (shown["state"], shown["warnings"]) == ("done", [])
    assert "left by the user" in reported.out
    assert shown["lr"] == pytest.approx(truth["lr"])
    assert (shown["loss_named"]["name"], shown["loss_named"]["source"]) == ("loss", "Line.training_step")
    # The second epoch of the last fit is the first one without improvement; neither sanity checks nor the test are one.
    epochs = of_type(reported.events, ev.EpochEnded)
    assert [(epoch.epoch, epoch.step) for epoch in epochs] == [(1, 3), (2, 6), (3, 9), (5, 17), (6, 25)]
    assert [epoch.valid["loss"].avg for epoch in epochs] == pytest.approx(truth["valid"])
    assert [(plan.num_epochs, plan.steps_per_epoch, plan.global_batch) for plan in plans(reported)] == [
        (3, 3, 16),
        (4, 8, 8),
        (9, 8, 8),
    ]
    [(step, test, _)] = logged_in(reported.events)["test_loss"]
    assert step == 9
    assert test == pytest.approx(truth["test"])


_MANUAL_OPTIMIZATION = """
class Two(Line):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        first.zero_grad()
        self.manual_backward(self.loss(batch))
        first.step()
        second.zero_grad()
        doubled = self.loss(batch) * 2
        self.manual_backward(doubled)
        second.step()
        self.losses.append(doubled.item())
        self.log("train_loss", doubled, on_epoch=True)
        self.log("norm", self.layer.weight.detach().norm())
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch), on_step=True, on_epoch=True)
    def configure_optimizers(self):
        return [torch.optim.SGD([parameter], lr=0.02) for parameter in self.layer.parameters()]

module = Two()
fit(module, -1, max_steps=44, check_val_every_n_epoch=2, limit_val_batches=3)
json.dump({"losses": module.losses, "valid": module.valid}, open("truth.json", "w"))
"""


def test_lightning_without_automatic_optimization_is_reported(launch: Launch) -> None:
    reported = launch(LIGHTNING + _MANUAL_OPTIMIZATION, PJRT_DEVICE="CPU")
    truth, shown = reported.truth, reported.shown
    assert list(reported.losses().values()) == pytest.approx(truth["losses"])
    assert shown["loss_named"]["name"] == "doubled"
    # `max_steps` counts the steps of both optimizers.
    [plan] = plans(reported)
    assert (plan.num_epochs, plan.steps_per_epoch, plan.num_steps, plan.valid_examples) == (3, 8, 22, 24)
    epochs = of_type(reported.events, ev.EpochEnded)
    # The third epoch has no evaluation, though Trainer still has the results of the second one.
    assert [sorted(epoch.valid) for epoch in epochs] == [[], ["loss"], []]
    assert epochs[1].valid["loss"].avg == pytest.approx(truth["valid"][0])
    assert [sorted(epoch.train) for epoch in epochs] == [["loss", "norm"]] * 3


def plans(reported: Reported) -> list[ev.TrainingPlanned]:
    return of_type(reported.events, ev.TrainingPlanned)


_OWN_CALLBACK = """
from tputui.integrations import lightning
def fault(self, *given):
    raise RuntimeError("a fault of the callback")
lightning.AttachedCallback._report_plan = fault
before, module = Line(), Line()
fit(before, 1)
fit(module, 2, callbacks=[lightning.TputuiCallback()])
json.dump([*before.losses, *module.losses], open("truth.json", "w"))
"""
_OWN_STEPS = """
import tputui
run = tputui.start()
module = Line()
fit(module, 1)
for step in range(3):
    run.step(float(step))
json.dump([0.0, 1.0, 2.0], open("truth.json", "w"))
"""


@pytest.mark.parametrize("source", [_OWN_CALLBACK, _OWN_STEPS], ids=["callback", "start"])
def test_a_source_in_the_script_is_the_only_one(launch: Launch, source: str) -> None:
    reported = launch(LIGHTNING + source, PJRT_DEVICE="CPU")
    losses = reported.losses()
    assert losses == pytest.approx(dict(enumerate(reported.truth, start=1)))
    assert (reported.shown["state"], reported.shown["steps"]) == ("done", len(reported.truth))
    assert ["a fault of the callback" in warning for warning in reported.shown["warnings"]] == [True] * (
        source is _OWN_CALLBACK
    )


def test_nothing_is_attached_if_the_user_disabled_it(launch: Launch, tmp_path: Path) -> None:
    path = os.pathsep.join([str(installed(tmp_path)), str(ROOT)])
    text = LIGHTNING + "print([type(callback).__name__ for callback in fit(Line(), 1).callbacks])"
    words = ("--no-ui", "--", sys.executable, helpers.script(tmp_path, text))
    done = helpers.run(tmp_path, *words, PYTHONPATH=path, PJRT_DEVICE="CPU", TPUTUI_OBSERVE_OFF="1")
    assert done.code == 0, done.out + done.err
    assert "AttachedCallback" not in done.out
    assert not list(helpers.only_run(tmp_path).glob("worker-*.jsonl"))


TRAINER = """
import json, sys
import torch
from transformers import Trainer, TrainingArguments

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        predicted = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(predicted, labels), "logits": predicted}

torch.manual_seed(0)
x = torch.randn(64, 4)
data = [{"x": row, "labels": row.sum(0, keepdim=True)} for row in x]

class Summed(Trainer):
    def training_step(self, *given):
        loss, step = super().training_step(*given), self.state.global_step
        self.sums[step] = self.sums.get(step, 0.0) + loss.item()
        return loss

def train(epochs, callbacks=None, model=None, kind=Summed, resume=None, data=data, **given):
    given = {"logging_steps": 2, "save_strategy": "no", **given}
    arguments = TrainingArguments("saved", num_train_epochs=epochs, per_device_train_batch_size=4, use_cpu=True,
                                  gradient_accumulation_steps=2, learning_rate=0.1, optim="sgd",
                                  eval_strategy="epoch", report_to=[], disable_tqdm=True, **given)
    trainer = kind(model or Line(), arguments, train_dataset=data, eval_dataset=data, callbacks=callbacks)
    trainer.sums = {}
    trainer.train(resume_from_checkpoint=resume)
    return trainer
"""
_TRAININGS = """
callbacks = None
if sys.argv[1:]:
    from tputui.integrations.huggingface import TputuiCallback
    callbacks = [TputuiCallback()]
trainer = train(2, callbacks)
trainer.evaluate()
json.dump(trainer.state.log_history, open("history.json", "w"))

from transformers.trainer_callback import CallbackHandler
call = CallbackHandler.call_event
def call_of_4_49(self, event, args, state, control, **given):
    state.optimizer, state.train_dataloader = kept = self.optimizer, self.train_dataloader
    self.optimizer = self.train_dataloader = None
    control = call(self, event, args, state, control, **given)
    self.optimizer, self.train_dataloader = kept
    return control
CallbackHandler.call_event = call_of_4_49

later = train(1, callbacks)
steps = [*trainer.sums.values(), *later.sums.values()]
json.dump([trainer.state.log_history, later.state.log_history, steps], open("truth.json", "w"))
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("own", [False, True], ids=["attached", "with-callback"])
def test_the_trainer_of_transformers_is_reported_once(launch: Launch, tmp_path: Path, own: bool) -> None:
    reported = launch(TRAINER + _TRAININGS, *["callback"] * own, HF_HUB_OFFLINE="1")
    first, later, steps = reported.truth
    by_step = {row["step"]: row["loss"] for row in first if "loss" in row}
    by_step |= {16 + row["step"]: row["loss"] for row in later if "loss" in row}
    shown, logged = reported.shown, logged_in(reported.events)
    assert (shown["state"], shown["steps"], shown["warnings"]) == ("done", 24, [])
    epochs = of_type(reported.events, ev.EpochEnded)
    assert [(epoch.epoch, epoch.step) for epoch in epochs] == [(1, 8), (2, 16), (3, 24)]
    if own:
        assert reported.losses() == pytest.approx(by_step)
        assert shown["loss_named"]["source"] == "Trainer.log"
    else:
        assert reported.losses() == pytest.approx(dict(enumerate(steps, start=1)))
        assert shown["loss_named"]["source"].startswith("train.py:")
        assert [epoch.train["loss"].avg for epoch in epochs] == pytest.approx(
            [sum(steps[at : at + 8]) / 8 for at in (0, 8, 16)]
        )
        assert {event.name for event in of_type(reported.events, ev.ValuesLogged) if event.tag == "loss"} == {
            "loss (Trainer.log)"
        }
    assert {step: value for step, value, _ in logged["loss"]} == by_step
    assert [(plan.num_epochs, plan.steps_per_epoch) for plan in plans(reported)] == [(2, 8), (3, 8)]
    assert shown["lr"] == pytest.approx(0.1 / 8), "of the last step"
    history = logged_by_trainer(tmp_path / "history.json")
    # The evaluation after the training is there too.
    assert [value for _, value, _ in logged["eval_loss"]][:3] == [value for _, value, _ in history["eval_loss"]]


_RESUMED = """
first = train(1, save_strategy="epoch", logging_steps=1)
later = train(2, resume="saved/checkpoint-8", logging_steps=1)
json.dump([*first.sums.values(), *later.sums.values()], open("truth.json", "w"))
"""
_SHARES_OF_TOKENS = """
class Words(Line):
    def forward(self, x, labels, num_items_in_batch=None, **given):
        scores = self.layer(x.reshape(-1, 4)).expand(-1, 3)
        sum_or_mean = "mean" if num_items_in_batch is None else "sum"
        loss = torch.nn.functional.cross_entropy(scores * 2, labels.reshape(-1), reduction=sum_or_mean)
        return {"loss": loss if num_items_in_batch is None else loss / num_items_in_batch}

padded = [{"x": torch.randn(6, 4), "labels": torch.tensor([0] * (1 + i % 3) + [-100] * (5 - i % 3))} for i in range(64)]
trained = train(2, model=Words(), data=padded, logging_steps=1000)
json.dump(list(trained.sums.values()), open("truth.json", "w"))
"""
_GRADIENTS_WITHOUT_BACKWARD = """
class Unseen(Trainer):
    def training_step(self, model, inputs, *given):
        loss = self.compute_loss(model, inputs) / 2
        for one, gradient in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
            one.grad = gradient if one.grad is None else one.grad + gradient
        return loss.detach()

trained = train(2, kind=Unseen)
json.dump({row["step"]: row["loss"] for row in trained.state.log_history if "loss" in row}, open("truth.json", "w"))
"""


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("trainings", [_RESUMED, _SHARES_OF_TOKENS], ids=["resumed", "shares-of-tokens"])
def test_losses_of_a_trainer_are_those_of_its_steps_however_often_it_logs(launch: Launch, trainings: str) -> None:
    reported = launch(TRAINER + trainings, HF_HUB_OFFLINE="1")
    assert reported.losses() == pytest.approx(dict(enumerate(reported.truth, start=1)))
    assert (reported.shown["state"], reported.shown["steps"], reported.shown["warnings"]) == ("done", 16, [])
    # What it logged of each step is the loss of the step.
    assert "loss" not in logged_in(reported.events)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_the_loss_of_a_trainer_whose_backward_passes_are_not_seen_is_what_it_logs(launch: Launch) -> None:
    reported = launch(TRAINER + _GRADIENTS_WITHOUT_BACKWARD, HF_HUB_OFFLINE="1")
    assert reported.losses() == pytest.approx({int(step): loss for step, loss in reported.truth.items()})
    assert (reported.shown["steps"], reported.shown["loss_named"]["source"]) == (16, "Trainer.log")


KERAS = """
import json, os, sys
os.environ["KERAS_BACKEND"] = sys.argv[1]
import keras
import numpy as np

class Means(keras.callbacks.Callback):
    losses = []
    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))

class Model(keras.Sequential):
    of_steps = []
    def compute_loss(self, *args, training=True, **given):
        loss = super().compute_loss(*args, training=training, **given)
        if training and sys.argv[1] == "torch" and not loss.is_meta:
            self.of_steps.append(loss.item())
        return loss

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(250, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = Model([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
schedule = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=1, decay_rate=0.9, staircase=True)
model.compile(optimizer=keras.optimizers.Adam(schedule), loss="mse", metrics=["mae"])
callbacks = [Means(), keras.callbacks.EarlyStopping("val_loss", mode="max")]
if sys.argv[2:]:
    from tputui.integrations.keras import TputuiCallback
    callbacks.append(TputuiCallback())
first = model.fit(x, y, epochs=4, batch_size=32, validation_split=0.2, verbose=0, callbacks=callbacks)
test = model.evaluate(x, y, verbose=0)
# Without other callbacks Keras calls ours in threads.
later = model.fit(x, y, epochs=3, initial_epoch=2, batch_size=50, validation_data=(x, y), verbose=0,
                  callbacks=callbacks[2:])
json.dump([first.history, later.history, Means.losses, test, Model.of_steps], open("truth.json", "w"))
"""


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="keras is not installed")
@pytest.mark.parametrize("own", [False, True], ids=["attached", "with-callback"])
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit_of_keras_is_reported(launch: Launch, tmp_path: Path, backend: str, own: bool) -> None:
    reported = launch(KERAS, backend, *["callback"] * own, JAX_PLATFORMS="cpu", KERAS_HOME=str(tmp_path))
    first, later, means, test, of_steps = reported.truth
    losses, shown = reported.losses(), reported.shown
    assert list(losses) == list(range(1, 20))
    if backend == "torch" and not own:
        assert [losses[step] for step in range(1, 20)] == pytest.approx(of_steps)
        assert [value for _, value, _ in logged_in(reported.events)["loss"]][:14] == pytest.approx(means)
    else:
        assert [losses[step] for step in range(1, 15)] == pytest.approx(means)
    assert (shown["state"], shown["steps"], shown["warnings"]) == ("done", 19, [])
    epochs = of_type(reported.events, ev.EpochEnded)
    assert [(epoch.epoch, epoch.step) for epoch in epochs] == [(1, 7), (2, 14), (3, 19)]
    assert [epoch.train["loss"].avg for epoch in epochs] == pytest.approx(first["loss"] + later["loss"])
    assert [epoch.train["mae"].avg for epoch in epochs] == pytest.approx(first["mae"] + later["mae"])
    assert [epoch.valid["loss"].avg for epoch in epochs] == pytest.approx(first["val_loss"] + later["val_loss"])
    evaluated = [event.step for event in of_type(reported.events, ev.EvaluationStarted)]
    assert evaluated == [7, 14, *[14] * (not own), 19], "after all steps of the epoch have ended"
    planned = [(plan.num_epochs, plan.steps_per_epoch, plan.train_examples) for plan in plans(reported)]
    assert planned == [(4, 7, 200), (3, 5, 250)]
    assert [plan.lr for plan in plans(reported)] == pytest.approx([0.01, 0.01 * 0.9**14])
    assert [value for _, value, _ in logged_in(reported.events)["test_loss"]] == pytest.approx([] if own else test[:1])


JAX = """
import json
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def train_step(w, x):
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((x @ w - 1) ** 2))(w)
    return w - 0.05 * slope, loss

def rows(seed):
    return np.random.default_rng(seed).normal(size=(8, 4)).astype("float32")

w, truth = jnp.zeros(4), {}
"""
_READS_OF_STEPS = """
per_epoch, count = 25, 0
for epoch in range(1, 4):
    for i in range(per_epoch):
        w, loss = train_step(w, rows(i))
        count += 1
        if i % 10 == 0:
            truth[count] = loss.item()
    val_loss = train_step(w, rows(99))[1]
    truth[f"valid {epoch}"] = float(val_loss)
json.dump(truth, open("truth.json", "w"))
"""
_READS_OF_EVERY_TENTH_STEP = """
history = {"train_loss": []}
for epoch in range(3):
    for i in range(25):
        w, loss = train_step(w, rows(i))
        if (i + 1) % 10 == 0:
            history["train_loss"].append(loss)
            del loss
            truth[25 * epoch + i + 1] = float(history["train_loss"][-1])
json.dump(truth, open("truth.json", "w"))
"""
_READS_OF_FIRST_STEPS = """
for epoch in range(3):
    for i in range(25):
        w, loss = train_step(w, rows(i))
        if i == 0:
            truth[25 * epoch + 1] = loss.item()
    truth[f"valid {epoch + 1}"] = float(val_loss := train_step(w, rows(99))[1])
json.dump(truth, open("truth.json", "w"))
"""
_READS_OF_LOOPS_LEFT_EARLY = """
for epoch in range(3):
    for i in range(25):
        w, loss = train_step(w, rows(i))
        if i % 5 == 0:
            truth[11 * epoch + i + 1] = loss.item()
        if i in {13}:
            break
json.dump(truth, open("truth.json", "w"))
"""
_READS_OF_FIRST_BATCHES = _READS_OF_LOOPS_LEFT_EARLY.replace("11 * epoch", "14 * epoch").replace("in {13}", "== 13")
_READS_OF_GENERATORS = """
for epoch in range(3):
    for i, x in enumerate(map(rows, range(25))):
        w, loss = train_step(w, x)
        if i % 10 == 0:
            truth[25 * epoch + i + 1] = loss.item()
    for x in map(rows, range(90, 95)):
        val_loss = train_step(w, x)[1]
        truth[f"valid {epoch + 1}"] = float(val_loss)
json.dump(truth, open("truth.json", "w"))
"""
_READS_OF_EPOCHS = """
for epoch in range(5):
    for i in range(7):
        w, loss = train_step(w, rows(i))
    print(f"Epoch {epoch}: training loss {loss}")
    truth[f"epoch {epoch + 1}"] = float(loss)
json.dump(truth, open("truth.json", "w"))
"""
_READS_OF_BATCHES = """
def batches():
    yield from map(rows, range(9))

def evaluate(w):
    total = 0.0
    for i, x in enumerate(batches()):
        loss = train_step(w, x)[1]
        total += float(loss)
    return total

for epoch in range(2):
    for x in batches():
        w, loss = train_step(w, x)
        truth[len(truth) + 1] = float(loss)
    evaluate(w)
json.dump(truth, open("truth.json", "w"))
"""
_READS_OF_LISTS = """
def evaluate(w):
    losses = []
    for i in range(3):
        losses.append(train_step(w, rows(i))[1])
    return np.mean(losses)

def train_epoch(w):
    losses = []
    for x in map(rows, range(9)):
        w, loss = train_step(w, x)
        losses.append(loss)
    return w, losses, np.mean(losses)

kept = []
for epoch in range(3):
    evaluate(w)
    w, losses, mean_loss = train_epoch(w)
    kept += losses
truth = {step: float(kept[step - 1]) for step in range(1, 28)}
json.dump(truth, open("truth.json", "w"))
"""


@pytest.mark.parametrize(
    ("reads", "ends", "per_epoch"),
    [
        (_READS_OF_STEPS, [25, 50, 75], 25),
        (_READS_OF_EVERY_TENTH_STEP, [25, 50, 75], 25),
        (_READS_OF_FIRST_STEPS, [25, 50, 75], 25),
        # What the counter is after the last epoch, the script does not overwrite.
        (_READS_OF_LOOPS_LEFT_EARLY, [11, 22, 36], 25),
        (_READS_OF_FIRST_BATCHES, [14, 28, 42], 14),
        (_READS_OF_GENERATORS, [25, 50, 75], 25),
        (_READS_OF_EPOCHS, [None] * 5, 0),
        (_READS_OF_BATCHES, [9, 18], 9),
        (_READS_OF_LISTS, [9, 18, 27], 9),
    ],
    ids=[
        "steps",
        "tenth-steps",
        "first-steps",
        "left-early",
        "first-batches",
        "generators",
        "epochs",
        "batches",
        "lists",
    ],
)
def test_values_that_a_jax_script_reads_have_their_names_and_places(
    launch: Launch, reads: str, ends: list[int], per_epoch: int
) -> None:
    reported = launch(JAX + reads, JAX_PLATFORMS="cpu")
    truth, shown = reported.truth, reported.shown
    assert reported.losses() == pytest.approx({int(step): truth[step] for step in truth if step.isdigit()})
    assert (shown["state"], shown["steps"], shown["warnings"]) == ("done", ends[-1], [])
    assert shown["loss_named"]["name"] in {"loss", "train_loss"}
    steps = f"{ends[-1]} steps trained"
    assert shown["state_reason"].startswith((steps, f"at least {steps}") if ends[-1] else f"{len(ends)} epochs")
    epochs = of_type(reported.events, ev.EpochEnded)
    assert [(epoch["epoch"], epoch["step"]) for epoch in shown["epochs"]] == list(enumerate(ends, start=1))
    planned = plans(reported)[-1]
    assert (planned.num_epochs, planned.steps_per_epoch) == (len(ends), per_epoch)
    for epoch in epochs:
        if f"valid {epoch.epoch}" in truth:
            assert epoch.valid["loss"].avg == pytest.approx(truth[f"valid {epoch.epoch}"])
        if f"epoch {epoch.epoch}" in truth:
            assert epoch.train["loss"].avg == pytest.approx(truth[f"epoch {epoch.epoch}"])


def test_trainings_of_a_jax_script_one_after_the_other_count_on(launch: Launch) -> None:
    loops = """
def fit(w, epochs):
    for epoch in range(epochs):
        for i in range(5):
            w, loss = train_step(w, rows(i))
            truth[len(truth) + 1] = loss.item()

fit(w, 2)
fit(w, 3)
for epoch in range(1, 3):
    for i in range(4):
        w, fine_loss = train_step(w, rows(i))
        truth[len(truth) + 1] = fine_loss.item()
json.dump(truth, open("truth.json", "w"))
"""
    reported = launch(JAX + loops, JAX_PLATFORMS="cpu")
    assert reported.losses() == pytest.approx({int(step): loss for step, loss in reported.truth.items()})
    epochs = [(epoch.epoch, epoch.step) for epoch in of_type(reported.events, ev.EpochEnded)]
    assert epochs == [(1, 5), (2, 10), (3, 15), (4, 20), (5, 25), (6, 29), (7, 33)]
    assert [plan.num_epochs for plan in plans(reported) if plan.steps_per_epoch] == [2, 5, 7]


def test_steps_of_a_jax_script_are_those_of_its_loop_that_a_break_ends(launch: Launch) -> None:
    loop = """
last_step = 29
for step in range(1000):
    w, loss = train_step(w, rows(step))
    if step % 7 == 0:
        truth[step + 1] = float(loss)
    if step >= last_step:
        break
    if step == -1:
        break
json.dump(truth, open("truth.json", "w"))
"""
    reported = launch(JAX + loop, JAX_PLATFORMS="cpu")
    assert reported.losses() == pytest.approx({int(step): loss for step, loss in reported.truth.items()})
    shown = reported.shown
    assert (shown["plan"]["total_steps"], shown["steps"], shown["epoch"]) == (30, 30, 0)
    assert not of_type(reported.events, ev.EpochStarted)
    assert "\nstep 30/30  " in reported.out


def test_steps_that_a_jax_script_does_not_show_are_not_counted(launch: Launch) -> None:
    loops = """
def train(w):
    for epoch in range(3):
        for i, x in enumerate(map(rows, range(25))):
            w, loss = train_step(w, x)
            if i % 10 == 0:
                truth[21 * epoch + i + 1] = loss.item()

train(w)
json.dump(truth, open("truth.json", "w"))
"""
    reported = launch(JAX + loops, JAX_PLATFORMS="cpu")
    shown = reported.shown
    assert reported.losses() == pytest.approx({int(step): loss for step, loss in reported.truth.items()})
    assert (shown["state_reason"], shown["eta_s"]) == ("at least 63 steps trained", None)
    assert {(plan.num_epochs, plan.steps_per_epoch) for plan in plans(reported)} == {(3, 0)}
    assert "eta" not in reported.out


@pytest.mark.parametrize("where", ["before", "after"])
def test_comparisons_of_a_jax_loss_count_the_steps_of_its_loop(launch: Launch, where: str) -> None:
    loop = """
count = 0
def train(w):
    global count
    loss = jnp.inf
    for step in range(1000):
        BEFORE
        w, loss = train_step(w, rows(0))
        count += 1
        AFTER
        if step % 10 == 0:
            truth[step + 1] = float(loss)
    truth["steps"] = count

train(w)
json.dump(truth, open("truth.json", "w"))
"""
    test = "if loss < 0.71: break"
    loop = loop.replace(where.upper(), test).replace("BEFORE", "").replace("AFTER", "")
    reported = launch(JAX + loop, JAX_PLATFORMS="cpu")
    steps = reported.truth.pop("steps")
    assert steps % 10 > 1
    assert reported.losses() == pytest.approx({int(step): loss for step, loss in reported.truth.items()})
    assert reported.shown["steps"] == steps


def test_steps_inside_a_compiled_loop_of_jax_are_not_known(launch: Launch) -> None:
    loop = """
train_epoch = jax.jit(lambda w, xs: jax.lax.scan(train_step, w, xs))
xs = np.stack([rows(seed) for seed in range(20)])
for epoch in range(1, 6):
    w, losses = train_epoch(w, xs)
    mean_loss = losses.mean()
    truth[epoch] = float(mean_loss)
json.dump(truth, open("truth.json", "w"))
"""
    reported = launch(JAX + loop, JAX_PLATFORMS="cpu")
    shown = reported.shown
    assert [epoch["train"]["loss"]["avg"] for epoch in shown["epochs"]] == pytest.approx(list(reported.truth.values()))
    assert (shown["steps"], shown["epoch_step"], [epoch["step"] for epoch in shown["epochs"]]) == (
        None,
        None,
        [None] * 5,
    )
    assert shown["state_reason"] == "5 epochs, the number of steps is not known"
    assert (shown["goodput"]["share"], shown["goodput"]["reason"]) == (None, "the number of steps is not known")
    assert "0 steps" not in reported.out


def test_values_in_dictionaries_of_a_jax_script_are_those_of_training_or_evaluation(launch: Launch) -> None:
    loops = """
def train_and_evaluate(w):
    for epoch in range(1, 4):
        for x in map(rows, range(9)):
            w, loss = train_step(w, x)
        train_metrics = {"loss": loss}
        test_metrics = {"loss": train_step(w, rows(99))[1]}
        del loss
        print("%d: %.4f, %.4f" % (epoch, train_metrics["loss"], test_metrics["loss"]))
        truth[epoch] = [float(train_metrics["loss"]), float(test_metrics["loss"])]

train_and_evaluate(w)
json.dump(truth, open("truth.json", "w"))
"""
    reported = launch(JAX + loops, JAX_PLATFORMS="cpu")
    shown, truth = reported.shown, list(reported.truth.values())
    assert shown["steps"] is None
    assert [epoch["train"]["loss"]["avg"] for epoch in shown["epochs"]] == pytest.approx([train for train, _ in truth])
    assert [epoch["valid"]["test_loss"]["avg"] for epoch in shown["epochs"]] == pytest.approx(
        [test for _, test in truth]
    )


def test_a_loop_of_a_jax_script_counts_on_after_the_last_step_of_the_one_before(launch: Launch) -> None:
    loops = """
def fit(w, steps):
    for i in range(steps):
        w, loss = train_step(w, rows(i))
        if i % 10 == 0:
            truth[len(steps_of) + i + 1] = float(loss)
    steps_of.extend(range(steps))

steps_of = []
fit(w, 25)
fit(w, 38)
json.dump(truth, open("truth.json", "w"))
"""
    reported = launch(JAX + loops, JAX_PLATFORMS="cpu")
    assert reported.losses() == pytest.approx({int(step): loss for step, loss in reported.truth.items()})
    assert reported.shown["state_reason"] == "63 steps trained"
