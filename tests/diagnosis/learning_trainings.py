"""Trains small networks, healthy ones and with a fault in the code, and stores their curves.

    python -m tests.diagnosis.learning_trainings [RUN_DIRECTORY ...]

trains for a minute and writes `tests/fixtures/learning_curves.json`. Finished runs of sample configurations are added.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from tests.diagnosis.curves import RECORDED, Training
from tputui.session import session


class Recipe(NamedTuple):
    """What is trained, and what is wrong with it."""

    name: str
    fault: str
    """The rules of which one should find it."""
    bug: str = ""
    epochs: int = 12
    examples: int = 1200
    batch: int = 64
    hidden: int = 64
    lr: float = 1e-3
    optimizer: str = "adam"
    dropout: float = 0.0
    smoothing: float = 0.0
    schedule: str = "constant"
    task: str = "classes"


RECIPES = (
    Recipe("mlp", ""),
    Recipe("mlp_sgd", "", optimizer="sgd", lr=0.1, epochs=15),
    Recipe("mlp_cosine", "", schedule="cosine", lr=3e-3),
    Recipe("mlp_dropout", "", dropout=0.5, epochs=20),
    Recipe("mlp_smoothing", "", smoothing=0.1, epochs=15),
    Recipe("mlp_small_batch", "", batch=8, epochs=3),
    Recipe("autoencoder", "", task="pixels", epochs=10),
    Recipe("regression", "", task="number", epochs=12),
    Recipe("shuffled_labels", "guessing overfitting", bug="labels"),
    Recipe("shuffled_labels_small", "guessing overfitting", bug="labels", hidden=8, epochs=15),
    Recipe("lr_0", "learning_rate", bug="lr"),
    Recipe("no_parameters", "learning_rate guessing gradient_norm", bug="parameters"),
    Recipe("no_zero_grad", "divergence gradient_norm", bug="zero_grad", optimizer="sgd", lr=0.3, epochs=15),
    Recipe("no_shuffle", "epoch_jump", bug="sorted", epochs=10),
    Recipe("valid_not_normalised", "validation_gap", bug="normalisation"),
    Recipe("lr_too_high", "divergence guessing", optimizer="sgd", lr=60.0, bug="high"),
    Recipe("adam_too_high", "divergence guessing", lr=3.0, bug="high"),
    Recipe("tiny_set", "overfitting", examples=60, epochs=150, batch=20, lr=3e-3, hidden=256, bug="tiny"),
    Recipe("dropout_in_eval", "validation_gap", dropout=0.9, bug="dropout", epochs=15, lr=3e-3, hidden=256),
    Recipe("constant_input", "guessing", bug="input"),
    Recipe("detached", "learning_rate guessing gradient_norm", bug="detached"),
)
SEEDS = (0, 1, 2)


def _data(recipe: Recipe) -> tuple[torch.Tensor, ...]:
    digits = load_digits()
    order = np.random.default_rng(7).permutation(len(digits.target))
    x = torch.tensor(digits.data[order], dtype=torch.float32)
    y = torch.tensor(digits.target[order])
    scale = 16.0
    if recipe.bug == "tiny":
        x = x + 6 * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    x_train, y_train, x_valid, y_valid = x[: recipe.examples] / scale, y[: recipe.examples], x[1200:] / scale, y[1200:]
    if recipe.bug == "labels":
        y_train = y_train[torch.randperm(len(y_train))]
    if recipe.bug == "normalisation":
        x_train, x_valid = (x_train - 0.3) / 0.4, x_valid * 255
    if recipe.bug == "sorted":
        order_of = torch.argsort(y_train)
        x_train, y_train = x_train[order_of], y_train[order_of]
    if recipe.bug == "input":
        x_train, x_valid = torch.ones_like(x_train), torch.ones_like(x_valid)
    return x_train, y_train, x_valid, y_valid


def _loss(recipe: Recipe, out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, smoothing: float) -> torch.Tensor:
    if recipe.task == "pixels":
        return F.mse_loss(out, x)
    if recipe.task == "number":
        return F.mse_loss(out[:, 0], y.float())
    return F.cross_entropy(out, y, label_smoothing=smoothing)


def train(recipe: Recipe, seed: int) -> Training:
    """One training of a recipe."""
    torch.manual_seed(seed)
    x, y, x_valid, y_valid = _data(recipe)
    size = 64 if recipe.task == "pixels" else 10
    dropped = nn.Dropout(recipe.dropout)
    model = nn.Sequential(nn.Linear(64, recipe.hidden), nn.ReLU(), dropped, nn.Linear(recipe.hidden, size))
    other = nn.Linear(64, 10)
    lr = 0.0 if recipe.bug == "lr" else recipe.lr
    kind: Any = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.SGD
    optimizer = kind((other if recipe.bug == "parameters" else model).parameters(), lr=lr)
    steps = len(x) // recipe.batch
    losses: list[float] = []
    curves: dict[str, list[float]] = {"train": [], "valid": [], "lr": [], "accuracy": [], "norm": []}
    for _ in range(recipe.epochs):
        model.train()
        order = torch.arange(len(x)) if recipe.bug == "sorted" else torch.randperm(len(x))
        for at in range(steps):
            rows = order[at * recipe.batch : (at + 1) * recipe.batch]
            share = len(losses) / (steps * recipe.epochs)
            rate = lr * 0.5 * (1 + np.cos(np.pi * share)) if recipe.schedule == "cosine" else lr
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = _loss(recipe, model(x[rows]), x[rows], y[rows], recipe.smoothing)
            if recipe.bug != "zero_grad":
                optimizer.zero_grad()
            if recipe.bug == "detached":
                (loss.detach() + 0.0 * sum(one.sum() for one in model.parameters())).backward()  # type: ignore[no-untyped-call]
            else:
                loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.stack([one.grad.norm() for one in model.parameters() if one.grad is not None]).norm()
            optimizer.step()
            losses.append(loss.item())
            curves["norm"].append(norm.item())
            curves["lr"].append(float(rate))
        if recipe.bug != "dropout":
            model.eval()
        with torch.no_grad():
            out = model(x_valid)
            curves["valid"].append(_loss(recipe, out, x_valid, y_valid, 0.0).item())
            curves["accuracy"].append((out.argmax(1) == y_valid).float().mean().item())
        curves["train"].append(float(np.mean(losses[-steps:])))
    metrics = {"grad_norm": curves["norm"][:: max(1, len(losses) // 100)]}
    if recipe.task == "classes":
        metrics["valid.accuracy"] = curves["accuracy"]
    return Training(f"{recipe.name}-{seed}", recipe.fault, losses, 1, steps, curves["train"], curves["valid"],
                    curves["lr"] if recipe.schedule != "constant" else [lr], metrics)  # fmt: skip


def of_run(run_dir: Path) -> Training:
    """The curves of a finished run of a sample configuration."""
    found = session.load(run_dir)
    rates = found.throughput.history if found.throughput is not None else []
    accuracy = [epoch.valid["accuracy"].avg for epoch in found.epochs if "accuracy" in epoch.valid]
    return Training(
        f"sample_{run_dir.name}", "", [one.mean for one in found.loss], 1, found.epochs[0].step,
        [one.train["loss"].avg for one in found.epochs], [one.valid["loss"].avg for one in found.epochs],
        [one.lr for one in rates if one.lr == one.lr], {"valid.accuracy": accuracy} if accuracy else {},
    )  # fmt: skip


def _short(value: Any) -> Any:
    """Numbers with as many digits as the rules need."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [_short(one) for one in value]
    return {name: _short(one) for name, one in value.items()} if isinstance(value, dict) else value


def main() -> None:
    """Entry point."""
    trained = [train(recipe, seed) for recipe in RECIPES for seed in SEEDS]
    trained += [of_run(Path(name)) for name in sys.argv[1:]]
    lines = []
    for run in trained:
        exact = {name: [float(f"{value:.8g}") for value in getattr(run, name)] for name in ("train", "valid")}
        fields = {name: _short(value) for name, value in run._asdict().items() if value} | {"fault": run.fault} | exact
        lines.append(json.dumps(fields))
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
