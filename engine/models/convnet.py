"""A small convolutional network for 8 x 8 images."""

from __future__ import annotations

import torch
from torch import nn

SIDE = 8


class ConvNet(nn.Module):
    """Two blocks of convolution, batch norm, ReLU and pooling, then a linear layer: [n, 1, 8, 8] -> [n, classes]."""

    def __init__(self, channels: int, dropout: float, num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*_block(1, channels), *_block(channels, channels))
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(channels * (SIDE // 4) ** 2, num_classes)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Class logits [n, classes] of images [n, 1, 8, 8]."""
        scores: torch.Tensor = self.head(self.features(images))
        return scores


def _block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
