"""LightningModules for the tests, some with mistakes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from engine.tasks.lit_digits import DigitsDataModule, LitDigits
from tputui.integrations.lightning import TputuiCallback
from tputui.telemetry import requests

WIDTH = 8


class Tied(LightningModule):
    """Encoder and decoder share their weights; has its own loaders, and returns the mean loss only."""

    def __init__(self, lr: float = 0.01) -> None:
        super().__init__()
        self.lr = lr
        self.encoder = nn.Linear(WIDTH, WIDTH, bias=False)
        self.decoder = nn.Linear(WIDTH, WIDTH, bias=False)
        self.decoder.weight = self.encoder.weight

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        (numbers,) = batch
        loss: torch.Tensor = ((self.decoder(torch.tanh(self.encoder(numbers))) - numbers) ** 2).mean()
        return loss

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self._loss(batch)

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", self._loss(batch))

    def on_train_end(self) -> None:
        assert self.decoder.weight is self.encoder.weight

    def configure_callbacks(self) -> list[Any]:
        return [TputuiCallback()]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def train_dataloader(self) -> DataLoader[Any]:
        return _loader(64, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return _loader(24, shuffle=False)


class Falling(Tied):
    """Logs by default, and its learning rate falls to 0 before its end, step by step."""

    def __init__(self, lr: float = 0.01, optimizer: str = "Adam") -> None:
        super().__init__(lr)
        self.optimizer = optimizer

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        made = getattr(torch.optim, self.optimizer)(self.parameters(), lr=self.lr)
        fall = torch.optim.lr_scheduler.LambdaLR(made, lambda step: max(0.0, 1 - step / 9))
        return {"optimizer": made, "lr_scheduler": {"scheduler": fall, "interval": "step"}}


class Untied(Tied):
    """Breaks its tied weights in `configure_model`."""

    def configure_model(self) -> None:
        self.decoder.weight = nn.Parameter(self.decoder.weight.detach().clone())


class NonFiniteTask(Tied):
    """Its sixth loss is NaN, and everything after it."""

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self._loss(batch) * (float("nan") if self.global_step == 5 else 1.0)


class Tested(DigitsDataModule):
    """Has a test split, which is the validation split once more."""

    def test_dataloader(self) -> DataLoader[Any]:
        return self.val_dataloader()


class Stopping(LitDigits):
    """Requests a stop of its own run before the step that an environment variable names."""

    def test_step(self, batch: Any, batch_idx: int) -> None:
        pixels, labels = batch
        logits = self.net(pixels)
        self.log("test_loss", cross_entropy(logits, labels))
        self.log("test_accuracy", (logits.argmax(dim=1) == labels).float().mean())

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if os.environ.get("STOP_AT") != str(self.global_step):
            return
        run_dir = Path(os.environ["TPUTUI_RUN_DIR"])
        requests.submit(run_dir, "stop", by="test", now=time.time())
        while b"RequestSeen" not in (run_dir / "worker-0.jsonl").read_bytes():
            threading.Event().wait(0.05)


def _loader(size: int, *, shuffle: bool) -> DataLoader[Any]:
    numbers = torch.randn(size, WIDTH, generator=torch.Generator().manual_seed(size))
    return DataLoader(TensorDataset(numbers), batch_size=16, shuffle=shuffle)
