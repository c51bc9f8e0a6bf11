"""EfficientNet b0 to b7 of torchvision, with a head of any number of logits. Must not download anything.

Parameter names are torchvision's, so that weights trained elsewhere can be loaded from a file.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torchvision.models.efficientnet import EfficientNet as Layers
from torchvision.models.efficientnet import MBConvConfig

from engine.errors import Refused

# Tan and Le 2019: expansion, kernel, stride, input channels, output channels, layers of the stages of b0.
STAGES = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
LAST_EXPANSION = 4
STOCHASTIC_DEPTH = 0.2


class FamilyScale(NamedTuple):
    """How a member of the family differs from b0."""

    width: float
    depth: float
    dropout: float
    slow_norm: bool = False
    """Whether its batch norms use a tenth of the momentum, as published for the large networks."""


SCALES = {
    "b0": FamilyScale(1.0, 1.0, 0.2),
    "b1": FamilyScale(1.0, 1.1, 0.2),
    "b2": FamilyScale(1.1, 1.2, 0.3),
    "b3": FamilyScale(1.2, 1.4, 0.3),
    "b4": FamilyScale(1.4, 1.8, 0.4),
    "b5": FamilyScale(1.6, 2.2, 0.4, slow_norm=True),
    "b6": FamilyScale(1.8, 2.6, 0.5, slow_norm=True),
    "b7": FamilyScale(2.0, 3.1, 0.5, slow_norm=True),
}


class EfficientNet(Layers):  # type: ignore[misc]  # torchvision ships no types
    """A classifier: [n, 3, h, w] -> float32 logits [n, num_logits], for images of any size."""

    def __init__(
        self,
        name: str = "b0",
        num_logits: int = 1,
        *,
        dropout: float | None = None,
        width: float = 1.0,
        depth: float = 1.0,
        stem_stride: int = 2,
    ) -> None:
        """`name` is `b0` to `b7`.

        `dropout` is the share of features dropped before the last layer in training; None takes the published one.
        `width` and `depth` multiply channels and layers: b0 at 0.25 and 0.3 has 0.17 million parameters. `stem_stride`
        1 keeps the resolution of images of 64 pixels and less. Raises `Refused` for another name.
        """
        scale = SCALES.get(name)
        if scale is None:
            raise Refused.of("model", f'there is no EfficientNet "{name}"; there are {", ".join(SCALES)}')
        stages = [
            MBConvConfig(*stage, width_mult=scale.width * width, depth_mult=scale.depth * depth) for stage in STAGES
        ]
        super().__init__(
            stages,
            dropout=scale.dropout if dropout is None else dropout,
            stochastic_depth_prob=STOCHASTIC_DEPTH,
            num_classes=num_logits,
            norm_layer=partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01) if scale.slow_norm else None,
            last_channel=LAST_EXPANSION * stages[-1].out_channels,
        )
        stem = self.get_submodule("features.0.0")
        assert isinstance(stem, nn.Conv2d)
        stem.stride = (stem_stride, stem_stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """float32 logits [n, num_logits] of images [n, 3, h, w]."""
        logits: torch.Tensor = super().forward(images)
        return logits.float()
