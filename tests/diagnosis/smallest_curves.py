"""For each rule about learning a curve of few values that shows it, as docs/diagnosis.md prints them."""

from __future__ import annotations

import math

from tests.diagnosis.curves import Training
from tputui.diagnosis.verdict import LearningRule

_RIPPLE = (0.02, -0.03, 0.01, 0.03, -0.02, -0.01, 0.0, 0.02)


def _noisy(values: list[float]) -> list[float]:
    """The values with a small noise, the same each time."""
    return [round(value + _RIPPLE[(at * at + 3 * at) % 8], 3) for at, value in enumerate(values)]


_FALLS = _noisy([2.3 * 0.93**at + 0.2 for at in range(60)])
_BLOWS_UP = _noisy([2.0 * 0.9**at + 0.3 for at in range(30)] + [0.4 * 1.4**at for at in range(10)])
_FLAT = _noisy([2.3] * 60)
_VALID = [1.2, 0.8, 0.6, 0.65, 0.75, 0.84, 0.92, 1.0, 1.07, 1.13]
_EPOCHS = [2.3 * 0.99**at + 0.6 * (1 - at % 10 / 10) for at in range(80)]

SMALLEST: dict[LearningRule, Training] = {
    "divergence": Training("", "", _BLOWS_UP, lr=[0.5]),
    "learning_rate": Training("", "", _FLAT, lr=[0.0]),
    "guessing": Training("", "", _noisy([math.log(10)] * 60), lr=[0.001], config={"classes": 10}),
    "overfitting": Training("", "", _FALLS, epoch_steps=6, valid=_VALID, lr=[0.001]),
    "plateau": Training("", "", _noisy([1.4 + 0.9 * 0.5**at for at in range(60)]), lr=[0.1]),
    "gradient_norm": Training("", "", _noisy([2.3 * 0.995**at for at in range(60)]), lr=[0.1],
                              metrics={"grad_norm": [round(0.2 * 1.12**at, 3) for at in range(60)]}),
    "constant_metric": Training("", "", _FALLS, lr=[0.001], metrics={"valid.accuracy": [0.913] * 6}),
    "epoch_jump": Training("", "", _noisy(_EPOCHS), epoch_steps=10, lr=[0.001]),
    "validation_gap": Training("", "", _FALLS, epoch_steps=10, valid=[3.1, 2.9, 3.4, 3.0, 3.3, 3.2], lr=[0.001]),
    "core_loss": Training("", "", [], lr=[0.001], cores=[
        [round(value * (1.5 if core == 2 else 1) + _RIPPLE[(at + 3 * core) % 8], 3) for core in range(4)]
        for at, value in enumerate(_FALLS)
    ]),
    "lr_scaling": Training("", "", [], lr=[0.004], cores=[[value] * 4 for value in _FALLS],
                           config={"data": {"global_batch": 64}, "optim": {"lr": 0.001, "lr_scaling": "linear"}}),
}  # fmt: skip
"""By rule. Other curves are healthy."""


def shown(run: Training) -> list[tuple[str, str]]:
    """The curves of a training as text, each with its name."""
    rows = [("loss", run.loss)] if run.loss else []
    if run.cores and len(set(run.cores[0])) > 1:
        rows += [(f"core {core}", [row[core] for row in run.cores]) for core in range(len(run.cores[0]))]
    elif run.cores:
        rows.append(("loss", [row[0] for row in run.cores]))
    rows += [("valid loss", run.valid)] if run.valid else []
    rows += [(name.replace(".", " "), values) for name, values in run.metrics.items()]
    rows += [("lr", run.lr)] if run.lr else []
    return [(name, " ".join(f"{value:g}" for value in values)) for name, values in rows]
