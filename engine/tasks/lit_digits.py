"""The handwritten digits as a LightningModule and a LightningDataModule, as a Lightning user would write them.

Independent of tputui, cores and XLA; `sample_configs/lightning_digits.toml` trains it. Imports torch at the top, as
users' modules do, so no module of the engine may import it.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split

from engine.tasks.digits import PIXEL_MAX, convnet

Pair = tuple[torch.Tensor, torch.Tensor]


class LitDigits(LightningModule):
    """A small convnet that classifies 0 to 9."""

    def __init__(self, channels: int = 32, dropout: float = 0.1, lr: float = 1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net: nn.Module = convnet(channels, dropout)
        self.lr = lr

    def training_step(self, batch: Pair, batch_idx: int) -> dict[str, torch.Tensor]:
        """`losses` [n] lets tputui report the loss of each core; Lightning itself needs `loss` only."""
        pixels, labels = batch
        logits = self.net(pixels)
        losses = cross_entropy(logits, labels, reduction="none")
        self.log("train_accuracy", (logits.argmax(dim=1) == labels).float().mean(), on_step=False, on_epoch=True)
        return {"loss": losses.mean(), "losses": losses}

    def validation_step(self, batch: Pair, batch_idx: int) -> None:
        """Lightning averages over the split, weighted by batch size."""
        pixels, labels = batch
        logits = self.net(pixels)
        self.log("val_loss", cross_entropy(logits, labels))
        self.log("val_accuracy", (logits.argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class DigitsDataModule(LightningDataModule):
    """scikit-learn's 1,797 images of 8 x 8 pixels."""

    def __init__(self, batch_size: int = 64, valid_fraction: float = 0.2) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.valid_fraction = valid_fraction
        self._splits: list[Any] = []

    def setup(self, stage: str) -> None:
        """Loads and splits, the same way each time."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        pixels = torch.from_numpy(digits.images / PIXEL_MAX).float().unsqueeze(1)
        dataset = TensorDataset(pixels, torch.from_numpy(digits.target).long())
        shares = [1 - self.valid_fraction, self.valid_fraction]
        self._splits = list(random_split(dataset, shares, generator=torch.Generator().manual_seed(0)))

    def train_dataloader(self) -> DataLoader[Pair]:
        """Shuffled, with the default sampler."""
        return DataLoader(self._splits[0], batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Pair]:
        """In order; the last batch may be partial."""
        return DataLoader(self._splits[1], batch_size=self.batch_size)
