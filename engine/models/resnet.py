"""ResNets of any width: a classifier, and the encoder of the U-Net. Must not download anything.

Parameter names are torchvision's, so that weights trained elsewhere can be loaded from a file; a test compares the
outputs with torchvision's.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from engine.errors import Refused

STRIDE = 32
"""Downsampling factor of the last stage."""


class StageLayout(NamedTuple):
    """Blocks of the four stages, and their kind."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool


LAYOUTS = {
    "thin": StageLayout((1, 1, 1, 1), bottleneck=False),
    "resnet18": StageLayout((2, 2, 2, 2), bottleneck=False),
    "resnet34": StageLayout((3, 4, 6, 3), bottleneck=False),
    "resnet50": StageLayout((3, 4, 6, 3), bottleneck=True),
}


class Block(nn.Module):
    """Two 3 x 3 convolutions with a shortcut: [n, inputs, h, w] -> [n, channels, h / stride, w / stride]."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _downsample(inputs, channels, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out))
        around = x if self.downsample is None else self.downsample(x)
        return torch.relu(out + around)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions with a shortcut: [n, inputs, h, w] -> [n, 4 * channels, h / stride, w /
    stride]."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * self.expansion
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _downsample(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        around = x if self.downsample is None else self.downsample(x)
        return torch.relu(out + around)


class Encoder(nn.Module):
    """The convolutions of a ResNet. `channels` are the channels of each output of `features`."""

    def __init__(self, name: str, width: int = 64) -> None:
        """`name` is a key of `LAYOUTS`, `width` the channels of the first stage: 64 is the published size.

        Raises `Refused` for another name.
        """
        super().__init__()
        layout = LAYOUTS.get(name)
        if layout is None:
            raise Refused.of("model", f'there is no ResNet "{name}"; there are {", ".join(LAYOUTS)}')
        kind = Bottleneck if layout.bottleneck else Block
        self.channels = [width, *(width * 2**stage * kind.expansion for stage in range(4))]
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        for stage, blocks in enumerate(layout.blocks):
            inputs, channels = self.channels[stage], width * 2**stage
            first = kind(inputs, channels, stride=1 if stage == 0 else 2)
            rest = [kind(channels * kind.expansion, channels, stride=1) for _ in range(blocks - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))
        self.apply(_initialize)

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Feature maps of [n, 3, h, w] at strides 2, 4, 8, 16 and 32: [n, channels[i], h / stride, w / stride] each."""
        seen = [self.bn1(self.conv1(images)).relu()]
        x = self.maxpool(seen[0])
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
            seen.append(x)
        return seen


class ResNet(Encoder):
    """A classifier: [n, 3, h, w] -> float32 logits [n, num_logits], for images of any size."""

    def __init__(self, name: str, num_logits: int, width: int = 64, dropout: float = 0.0) -> None:
        """As `Encoder`; `dropout` is the share of features dropped before the last layer in training."""
        super().__init__(name, width)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(self.channels[-1], num_logits)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """float32 logits [n, num_logits] of images [n, 3, h, w]."""
        # A mean: adaptive pooling of odd sizes compiles to many small programs.
        pooled = self.features(images)[-1].mean(dim=(2, 3))
        logits: torch.Tensor = self.fc(self.dropout(pooled))
        return logits.float()


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    """The shortcut, which matches the input to the output if their shapes differ."""
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def _initialize(module: nn.Module) -> None:
    """He initialisation, which keeps the variance through ReLU."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
