"""Random changes of training images, made on the device inside the step. Must not change what is told of them.

Shapes stay, so that nothing is compiled anew; the draws are tied to the number of the step by the engine's seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

BYTE_MAX = 255.0


def mirrored(batch: dict[str, torch.Tensor], names: Sequence[str], dim: int) -> dict[str, torch.Tensor]:
    """The batch with each example mirrored in a dimension or not, with equal chances; all of `names`, each
    [examples, channels, height, width], alike."""
    first = batch[names[0]]
    coins = torch.rand(len(first), 1, 1, 1, device=first.device) < 0.5
    return {**batch, **{name: torch.where(coins, batch[name].flip(dim), batch[name]) for name in names}}


def relit(images: torch.Tensor, share: float) -> torch.Tensor:
    """uint8 images [examples, channels, height, width], each brighter or darker, and of more or less contrast, by up to
    `share`."""
    pixels = images.float()
    light, contrast = (1 + share * (2 * torch.rand(2, len(images), 1, 1, 1, device=images.device) - 1)).unbind()
    middle = pixels.mean(dim=(1, 2, 3), keepdim=True)
    return ((pixels - middle) * contrast + middle * light).clamp(0, BYTE_MAX).to(images.dtype)
