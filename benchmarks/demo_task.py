"""The task of the recordings that `tputui demo` replays: handwritten digits, with faults that a user could make.

Each fault is off by default and is planted by keys of `[model]`, so what the recordings show of them was measured.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from engine.task import Options, Picture
from engine.tasks.digits import Digits

if TYPE_CHECKING:
    import torch


class DemoModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    hidden: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Features of the hidden layer."""
    gamma_steps: int = 0
    """Steps after which the exponent of the focal loss falls: each exponent is another program. 0 for never."""
    slow_core: int = -1
    """The core whose process waits in each step; -1 for none."""
    slow_from_step: int = 1
    """The first step in which it waits."""
    slow_s: float = 0.0
    """How long it waits, in seconds."""
    weighted_from_step: int = 0
    """The first step whose loss has weights of 9 classes where there are 10; 0 for none."""


class DemoDigits(Digits):
    """Classifies digits with a focal loss."""

    model_options: ClassVar[type[Options]] = DemoModel

    def model(self, options: Any, data: Any) -> torch.nn.Module:
        """Two linear layers, which compile fast: [n, 1, 8, 8] -> logits [n, 10]."""
        from torch import nn

        self._options, self._step = options, 0
        return nn.Sequential(nn.Flatten(), nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10))

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logits` float32 [n, 10]."""
        self._trains = model.training
        if self._trains:
            self._step += 1
            if self._options.slow_core == _own_rank() and self._step >= self._options.slow_from_step:
                time.sleep(self._options.slow_s)
        return super().predict(model, batch)

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Focal loss and `accuracy`, float32 [n] each."""
        outcomes = super().outcomes(predictions, batch)
        missed = 1 - (-outcomes["loss"]).exp()
        return {**outcomes, "loss": outcomes["loss"] * missed ** self._gamma() * self._weights(batch)}

    def _gamma(self) -> float:
        """The exponent, which falls from 2 to 0.4 in training."""
        steps = self._options.gamma_steps
        falls = (self._step - 1) // steps if steps and self._trains else 0
        return max(2.0 - 0.4 * falls, 0.4)

    def _weights(self, batch: dict[str, torch.Tensor]) -> torch.Tensor | float:
        """The weight of each example by its class."""
        if not self._trains or not 0 < self._options.weighted_from_step <= self._step:
            return 1.0
        import torch

        weights = torch.linspace(0.5, 1.5, steps=9, device=batch["labels"].device)
        one_hot = torch.nn.functional.one_hot(batch["labels"], 10).float()
        return one_hot @ weights

    def pictures(self, batch: dict[str, Any], predictions: dict[str, Any]) -> list[Picture]:
        """The images, each with its digit and the predicted one."""
        return [
            Picture("predicted", f"{picture.example}, predicted {digit}", picture.pixels)
            for picture, digit in zip(self.examples(batch), predictions["logits"].argmax(axis=1), strict=True)
        ]


def _own_rank() -> int:
    """The rank of this process, by its command line."""
    if "--ranks" not in sys.argv:
        return 0
    return int(sys.argv[sys.argv.index("--ranks") + 1].partition("-")[0])
