"""A task whose loss or gradient becomes NaN or infinite, on one core or in the evaluation."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

from engine.data.sampler import permutation
from engine.task import Options, Splits
from tests.engine.curve_task import NUM_TRAIN, NUM_VALID, Curve, CurveData, CurveTask

BATCH = 32
STEPS = NUM_TRAIN // BATCH
"""Steps of an epoch."""
INPUTS = {"nothing": math.nan, "endless": math.inf}


class NonFiniteData(CurveData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    at: int = -1
    """Index of the bad example."""
    split: str = "train"
    """Split of the bad example."""
    how: str = "nothing"
    """`nothing`, `endless`: its input is NaN or infinite, and so are the loss and all gradients. `apart`: only its loss
    is NaN, on which no weight depends. `steep`: its loss is finite and its gradient is not."""


class Place(NamedTuple):
    """The step and core that an example is trained on."""

    example: int
    step: int
    core: int


def late(num_cores: int) -> Place:
    """An example that the first epoch leaves out and the second does not."""
    first, second = (permutation(NUM_TRAIN, 0, epoch)[: STEPS * BATCH].tolist() for epoch in (1, 2))
    place = next(place for place, example in enumerate(second) if example not in first)
    step, row = divmod(place, BATCH)
    return Place(second[place], STEPS + step + 1, row * num_cores // BATCH)


class NonFiniteCurve(Curve):
    """Points of a curve, one of which is marked."""

    def __init__(self, split: str, first: int, size: int, data: NonFiniteData) -> None:
        super().__init__(split, first, size, data)
        self._at = data.at if split == data.split else -1
        self._how = data.how

    def fetch(self, indices: Any) -> dict[str, Any]:
        """The points, with a value that is added to the loss of each."""
        import torch

        batch = super().fetch(indices)
        here = torch.from_numpy(indices == self._at)
        if self._how in INPUTS:
            batch["x"][here] = INPUTS[self._how]
        batch["apart"] = torch.where(here & (self._how == "apart"), float("nan"), 0.0)
        batch["steep"] = (here & (self._how == "steep")).float()
        return batch


class NonFiniteTask(CurveTask):
    """Fits a curve until a value is not finite."""

    data_options: ClassVar[type[Options]] = NonFiniteData

    def load(self, data: CurveData, seed: int) -> Splits:
        """Neighbouring points for training and validation."""
        assert isinstance(data, NonFiniteData)
        return Splits(NonFiniteCurve("train", 0, NUM_TRAIN, data), NonFiniteCurve("valid", NUM_TRAIN, NUM_VALID, data))

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`y` [examples], with an infinite gradient at the marked example."""
        import torch

        predicted = super().predict(model, batch)["y"]
        steep = batch["steep"] > 0
        # The square root of 0 is 0, and its gradient there is infinite.
        root = torch.where(steep, predicted - predicted.detach(), 1.0).sqrt()
        return {"y": predicted + torch.where(steep, root, 0.0)}

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """The outcomes of `CurveTask`, with the added values."""
        outcomes = super().outcomes(predictions, batch)
        return {**outcomes, "loss": outcomes["loss"] + batch["apart"]}
