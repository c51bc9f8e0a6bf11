"""A network of plain layers over a row of numbers, which it standardises itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn


class Mlp(nn.Module):
    """Features [n, ...] -> float32 logits [n, num_logits].

    Mean and spread of the features are part of its state, so that saved weights take features as they stand in a file.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, num_features: int, hidden: Sequence[int], num_logits: int, dropout: float = 0.0) -> None:
        """`hidden` are the widths of the layers between; `dropout` acts behind each of them."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", torch.ones(num_features))
        layers: list[nn.Module] = []
        wide = num_features
        for width in hidden:
            layers += [nn.Linear(wide, width), nn.ReLU(), nn.Dropout(dropout)]
            wide = width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(wide, num_logits)

    def standardise(self, mean: npt.NDArray[np.float64], std: npt.NDArray[np.float64]) -> None:
        """Takes mean and spread [num_features] of the features; one that never changes is only shifted."""
        # A spread that float32 cannot tell beside the mean is what rounding leaves of none.
        changes = std > np.finfo(np.float32).eps * np.abs(mean)
        self.mean.copy_(torch.from_numpy(mean))
        self.std.copy_(torch.from_numpy(np.where(changes, std, 1.0)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Logits of features of any shape that holds `num_features` numbers a row."""
        logits: torch.Tensor = self.head(self.layers((features.float().flatten(1) - self.mean) / self.std))
        return logits.float()
