"""Scales uint8 pixels to the inputs of a network by a mean and a standard deviation per channel.

Importing this module does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec

from engine.errors import Problem
from engine.task import Options

if TYPE_CHECKING:
    import torch

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Of red, green and blue, from 0 to 1, as used by networks trained on ImageNet."""

Means = tuple[Annotated[float, msgspec.Meta(ge=0, le=1)], ...]
Spreads = tuple[Annotated[float, msgspec.Meta(gt=0, le=1)], ...]


class Scaling(NamedTuple):
    """`(pixels / 255 - mean) / std`, with one value per channel or one for all."""

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 images [n, channels, height, width] as float32 of the same shape; runs on the device, inside the step's
        program."""
        shares = pixels.float() / 255
        return (shares - _by_channel(self.mean, shares)) / _by_channel(self.std, shares)


class ScaledModel(Options, frozen=True, kw_only=True):
    """Options of `[model]` for a network that takes images."""

    mean: Means | Literal["imagenet"] = (0.5,)
    """Subtracted from the pixels, which are from 0 to 1: a number per channel, one for all, or `imagenet`. The default
    scales them to -1 to 1; pretrained weights need the mean and std of their training."""
    std: Spreads | Literal["imagenet"] = (0.5,)
    """Divisor after the mean is subtracted: a number per channel, one for all, or `imagenet`."""


def of(options: ScaledModel) -> Scaling:
    """The scaling set by the options."""
    mean = IMAGENET_MEAN if options.mean == "imagenet" else tuple(options.mean)
    std = IMAGENET_STD if options.std == "imagenet" else tuple(options.std)
    return Scaling(mean, std)


def problems(options: ScaledModel, channels: int) -> list[Problem]:
    """Problems with `mean` and `std` that do not have one number per channel."""
    return [
        Problem(
            f"model.{key}",
            f"it has {len(values)} numbers for {channels} channels; give {channels}, or one for all channels",
        )
        for key, values in of(options)._asdict().items()
        if len(values) not in (1, channels)
    ]


def _by_channel(values: tuple[float, ...], like: torch.Tensor) -> torch.Tensor | float:
    """[channels, 1, 1], created on the device: a host tensor would be transferred at every step."""
    import torch

    if len(set(values)) == 1:
        return values[0]
    return torch.stack([torch.full((1, 1), value, device=like.device) for value in values])
