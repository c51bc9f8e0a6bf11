"""A task with blocks that are worth recomputing: convolutions, running statistics and dropout, on made-up images."""

from __future__ import annotations

from typing import Any, ClassVar

from engine.task import Options, Sizes, Splits, Task


class DeepData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""


class DeepModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    blocks: int = 4
    """Blocks of the network."""
    channels: int = 8
    """Channels of each."""


class Noise:
    """Images of noise, whose label is whether they are bright."""

    def __len__(self) -> int:
        return 64

    def fetch(self, indices: Any) -> dict[str, Any]:
        """`pixels` [n, 1, 16, 16] and `labels` [n]."""
        import torch

        pixels = torch.stack(
            [torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(int(index))) for index in indices]
        )
        return {"pixels": pixels, "labels": (pixels.mean(dim=(1, 2, 3)) > 0.5).float()}


class Deep(Task):
    """Classifies noise as bright or dark."""

    data_options: ClassVar[type[Options]] = DeepData
    model_options: ClassVar[type[Options]] = DeepModel
    meters: ClassVar[tuple[str, ...]] = ("loss",)

    def sizes(self, data: DeepData, seed: int) -> Sizes:
        """Always the same."""
        return Sizes(64, 64)

    def load(self, data: DeepData, seed: int) -> Splits:
        """Both splits are the same images."""
        return Splits(Noise(), Noise())

    def model(self, options: DeepModel, data: DeepData) -> Any:
        """Residual blocks in a row."""
        from tests.engine import deepnet

        return deepnet.make(options.blocks, options.channels)

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`logit` [examples]."""
        return {"logit": model(batch["pixels"]).squeeze(1)}

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Binary cross-entropy."""
        from torch.nn.functional import binary_cross_entropy_with_logits as loss

        return {"loss": loss(predictions["logit"], batch["labels"], reduction="none")}
