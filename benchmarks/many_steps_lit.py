"""The LightningModule of `benchmarks.many_steps`: a plane with noise, with torch's own optimizers and schedulers."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.many_steps_task import BATCH, EPOCHS, GAMMA, NUM_VALID, WIDTH, Points

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.01}),
}


class Plane(LightningModule):
    """Fits the plane; its loss is logged by default."""

    def __init__(self, optimizer: str, schedule: str, steps: int, lr: float) -> None:
        super().__init__()
        self.optimizer, self.schedule, self.steps, self.lr = optimizer, schedule, steps, lr
        self.line = torch.nn.Linear(WIDTH, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", self._loss(batch))

    def configure_optimizers(self) -> Any:
        """A cosine reaches 0 when 9 of 10 steps are done, and rises again after it, as torch's does."""
        cls, options = OPTIMIZERS[self.optimizer]
        made = cls(self.parameters(), lr=self.lr, **options)  # type: ignore[call-arg]  # every subclass takes lr
        if self.schedule == "constant":
            return made
        if self.schedule == "step":
            return [made], [torch.optim.lr_scheduler.StepLR(made, 1, GAMMA)]
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(made, self.steps * 9 // 10)
        return {"optimizer": made, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def train_dataloader(self) -> DataLoader[Any]:
        return _loader(0, self.steps // EPOCHS * BATCH, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return _loader(1, NUM_VALID, shuffle=False)

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        x, y = batch
        loss: torch.Tensor = (self.line(x).squeeze(1) - y).square().mean()
        return loss


def _loader(seed: int, size: int, *, shuffle: bool) -> DataLoader[Any]:
    points = Points(seed, size)
    return DataLoader(TensorDataset(points.x, points.y), batch_size=BATCH, shuffle=shuffle)
