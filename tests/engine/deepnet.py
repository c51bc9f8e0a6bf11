"""The network of `deeptask`."""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Module):
    """Convolution, norm, ReLU, dropout, twice, added to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*self._half(channels), *self._half(channels))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """[n, channels, side, side], unchanged in shape."""
        result: torch.Tensor = x + scale * self.body(x)
        return result

    @staticmethod
    def _half(channels: int) -> list[nn.Module]:
        return [
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Dropout(0.2),
        ]


def make(blocks: int, channels: int) -> nn.Sequential:
    """[n, 1, side, side] -> [n, 1]."""
    stages = nn.Sequential(*(Residual(channels) for _ in range(blocks)))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1))
    return nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), stages, head)
