"""A U-Net on a ResNet encoder that predicts a mask and a depth per pixel. Must not download anything.

Upsampling repeats pixels before a convolution: static shapes and two cheap operations on every core, where bilinear and
adaptive resizing are slow.

Importing this module does not import torch.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec
import torch
from torch import nn

from engine.errors import Problem, Refused
from engine.models.resnet import STRIDE, Encoder
from engine.task import Options

DECODER = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Channels of the decoder's stages as multiples of `width`: 256, 128, 64, 32, 16 at 64."""
LEAST_CHANNELS = 4


class Maps(NamedTuple):
    mask: torch.Tensor
    """Logits, float32 [n, 1, h, w]: above 0 is foreground."""
    depth: torch.Tensor
    """float32 [n, 1, h, w], in the unit of the target."""


class UNet(nn.Module):
    """Images [n, 3, h, w] -> mask and depth [n, 1, h, w]; h and w must be multiples of 32."""

    def __init__(self, encoder: str = "resnet50", width: int = 64) -> None:
        """`encoder` is a key of `engine.models.resnet.LAYOUTS`, `width` the channels of its first stage.

        At width 64, resnet50 has 32.5 million parameters and resnet34 24.4; `thin` at 8 has 0.13.
        """
        super().__init__()
        self.encoder = Encoder(encoder, width)
        outputs = [max(LEAST_CHANNELS, round(width * factor)) for factor in DECODER]
        inputs = [self.encoder.channels[-1], *outputs[:-1]]
        skips = [*reversed(self.encoder.channels[:-1]), outputs[-1]]
        # The encoder starts at half the resolution: without this layer, edges would be two pixels wide.
        self.full = nn.Sequential(*_conv(3, outputs[-1]))
        self.decoder = nn.ModuleList(Up(*sizes) for sizes in zip(inputs, skips, outputs, strict=True))
        self.mask = nn.Conv2d(outputs[-1], 1, 3, padding=1)
        self.depth = nn.Conv2d(outputs[-1], 1, 3, padding=1)

    def forward(self, images: torch.Tensor) -> Maps:
        """Mask logits and depth, float32 [n, 1, h, w] each, of images [n, 3, h, w]. Raises `Refused` if h or w is not a
        multiple of 32."""
        check_sides(images.shape[2], images.shape[3])
        *skips, x = self.encoder.features(images)
        for up, skip in zip(self.decoder, [*reversed(skips), self.full(images)], strict=True):
            x = up(x, skip)
        return Maps(self.mask(x).float(), self.depth(x).float())


class Up(nn.Module):
    """Upsamples, concatenates the encoder's features of that size, and convolves twice."""

    def __init__(self, inputs: int, skips: int, outputs: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(*_conv(inputs + skips, outputs), *_conv(outputs, outputs))

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] and [n, skips, 2h, 2w] -> [n, outputs, 2h, 2w]."""
        result: torch.Tensor = self.convs(torch.cat((upsample(x), skip), dim=1))
        return result


def upsample(x: torch.Tensor) -> torch.Tensor:
    """Repeats each pixel 2 x 2: [n, c, h, w] -> [n, c, 2h, 2w]."""
    n, c, h, w = x.shape
    return x[:, :, :, None, :, None].expand(n, c, h, 2, w, 2).reshape(n, c, 2 * h, 2 * w)


def check_sides(height: int, width: int) -> None:
    """Raises `Refused` for images that cannot be halved five times."""
    if height % STRIDE or width % STRIDE or not height or not width:
        fits = [max(STRIDE, round(side / STRIDE) * STRIDE) for side in (height, width)]
        message = f"images of {height} x {width} pixels do not fit the U-Net, whose sides are multiples of {STRIDE}; "
        raise Refused.of("data", f"{message}resize or pad them to {fits[0]} x {fits[1]}")


def _conv(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


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
