"""The task of `benchmarks.many_steps`: fits a plane to noisy points. Imports no torch, as the check before a run."""

from __future__ import annotations

from typing import Any, ClassVar

from engine.task import Options, Sizes, Splits, Task

EPOCHS, BATCH, WIDTH, NUM_VALID = 100, 4, 4, 8
GAMMA = 1e-4
"""Factor of StepLR in each epoch: in double precision the learning rate is 0 from epoch 82 on."""


class PlaneData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    num_train: int
    """Points to train on."""


class PlaneModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`: none."""


class Points:
    """Noisy points of a plane, in memory."""

    def __init__(self, seed: int, size: int) -> None:
        import torch

        random = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, WIDTH, generator=random)
        self.y = self.x.sum(dim=1) + torch.randn(size, generator=random)

    def __len__(self) -> int:
        return len(self.y)

    def fetch(self, indices: Any) -> dict[str, Any]:
        """`x` [n, WIDTH] and `y` [n]."""
        return {"x": self.x[indices], "y": self.y[indices]}


class Plane(Task):
    """Fits the plane."""

    data_options: ClassVar[type[Options]] = PlaneData
    model_options: ClassVar[type[Options]] = PlaneModel
    meters: ClassVar[tuple[str, ...]] = ("loss",)

    def sizes(self, data: PlaneData, seed: int) -> Sizes:
        return Sizes(data.num_train, NUM_VALID)

    def load(self, data: PlaneData, seed: int) -> Splits:
        return Splits(Points(0, data.num_train), Points(1, NUM_VALID))

    def model(self, options: PlaneModel, data: PlaneData) -> Any:
        import torch

        return torch.nn.Linear(WIDTH, 1)

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": model(batch["x"]).squeeze(1)}

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        return {"loss": (predictions["y"] - batch["y"]).square()}
