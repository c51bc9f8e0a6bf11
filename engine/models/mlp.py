"""A multilayer perceptron over feature rows, which it standardises itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn


class Mlp(nn.Module):
    """Features [n, ...] -> float32 logits [n, num_logits].

    Mean and standard deviation of the features are part of its state, so that saved weights take raw features.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, num_features: int, hidden: Sequence[int], num_logits: int, dropout: float = 0.0) -> None:
        """`hidden` are the widths of the hidden layers; each is followed by `dropout`."""
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
        """Sets mean and standard deviation [num_features] of the features. A constant feature is only shifted."""
        # A deviation below the float32 resolution of the mean is a rounding error of 0.
        changes = std > np.finfo(np.float32).eps * np.abs(mean)
        self.mean.copy_(torch.from_numpy(mean))
        self.std.copy_(torch.from_numpy(np.where(changes, std, 1.0)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """float32 logits [n, num_logits] of features [n, ...] with `num_features` values per row."""
        logits: torch.Tensor = self.head(self.layers((features.float().flatten(1) - self.mean) / self.std))
        return logits.float()
