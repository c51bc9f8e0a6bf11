"""Losses per example, float32 [n]. Not averaged over the examples: the engine does that.

Can be traced on any device, and are computed in float32 also under autocast. The mask `valid` excludes elements: where
it is False, values have no effect, even NaN, and an example without valid elements has loss 0 and no gradient.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

SSIM_WINDOW = 11
SSIM_SIGMA = 1.5
# The constants of Wang et al. 2004, as shares of the value range.
SSIM_K1, SSIM_K2 = 0.01, 0.03


def bce_with_logits(
    logits: torch.Tensor,
    targets: torch.Tensor,
    valid: torch.Tensor | None = None,
    *,
    pos_weight: torch.Tensor | float = 1.0,
) -> torch.Tensor:
    """Binary cross-entropy of logits [n, ...] and targets [n, ...] from 0 to 1: float32 [n], the mean over valid
    elements.

    `pos_weight` multiplies the loss of positives; a tensor is broadcast against the targets, such as [labels] for [n,
    labels]. `valid` has the shape of the targets.
    """
    logits, targets = _known(logits.float(), valid), _known(targets.float(), valid)
    # log(1 + exp(-x)) is the loss of a positive, and x more that of a negative.
    positive = functional.softplus(-logits)
    return _mean(pos_weight * targets * positive + (1 - targets) * (positive + logits), valid)


def dice(
    logits: torch.Tensor, targets: torch.Tensor, valid: torch.Tensor | None = None, *, smooth: float = 1.0
) -> torch.Tensor:
    """Dice loss: 1 minus the Dice overlap of sigmoid(logits) [n, ...] and targets [n, ...] of 0 or 1; float32 [n].

    `smooth` elements, more than 0, are added to the overlap: an example without foreground, predicted as such, has loss
    0. Only `valid` [n, ...] elements count.
    """
    shares = _known(logits.float(), valid).sigmoid() * _weights(logits, valid)
    targets = _known(targets.float(), valid)
    both = _sum(shares * targets)
    return 1 - (2 * both + smooth) / (_sum(shares) + _sum(targets) + smooth)


def l1(predicted: torch.Tensor, targets: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Mean absolute error over an example's valid elements: [n, ...] each -> float32 [n]."""
    return _mean((_known(predicted.float(), valid) - _known(targets.float(), valid)).abs(), valid)


def ssim(
    predicted: torch.Tensor, targets: torch.Tensor, valid: torch.Tensor | None = None, *, value_range: float = 1.0
) -> torch.Tensor:
    """1 minus the mean structural similarity of images [n, c, h, w]: float32 [n], 0 for equal images and at most 2.

    `value_range` is the difference between the largest and the smallest possible value. Only `valid` [n, 1 or c, h, w]
    pixels count.
    """
    return _mean(1 - ssim_map(predicted, targets, valid, value_range=value_range), valid)


def ssim_map(
    predicted: torch.Tensor, targets: torch.Tensor, valid: torch.Tensor | None = None, *, value_range: float = 1.0
) -> torch.Tensor:
    """Structural similarity around each pixel, float32 [n, c, h, w], with a Gaussian window of 11 pixels, sigma 1.5.

    Pixels outside of the image or not valid are excluded from the window, whose weights are rescaled to a sum of 1.
    """
    x, y = _known(predicted.float(), valid), _known(targets.float(), valid)
    here = _weights(x, valid)
    blurred = _blurred(torch.stack((here, x, y, x * x, y * y, x * y)))
    # The result is not used where no pixel of a window counts; the sum must only not be 0.
    weight = torch.where(blurred[0] > 0, blurred[0], 1)
    mean_x, mean_y, xx, yy, xy = (blurred[1:] / weight).unbind()
    c1, c2 = (SSIM_K1 * value_range) ** 2, (SSIM_K2 * value_range) ** 2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x * mean_x + mean_y * mean_y + c1)
    variances = xx - mean_x * mean_x + yy - mean_y * mean_y
    return luminance * (2 * (xy - mean_x * mean_y) + c2) / (variances + c2)


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    valid: torch.Tensor | None = None,
    *,
    class_weights: torch.Tensor | None = None,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Cross-entropy of logits [n, classes, ...] and labels int64 [n, ...]: float32 [n], the mean over valid elements.

    Valid labels must be in range: the device clamps others, so the data reader checks them. `class_weights` [classes]
    multiplies the loss of each class.
    """
    kept = valid if valid is None else valid.unsqueeze(1)
    labels = labels if valid is None else torch.where(valid.bool(), labels, 0)
    each = functional.cross_entropy(
        _known(logits.float(), kept), labels, class_weights, reduction="none", label_smoothing=label_smoothing
    )
    return _mean(each, valid)


def combine(terms: Mapping[str, torch.Tensor], weights: Mapping[str, float]) -> torch.Tensor:
    """The weighted sum of the terms, float32 [n] each, by name.

    Raises `ValueError` if the names differ or a weight is negative or not finite.
    """
    if not terms or set(terms) != set(weights):
        raise ValueError(f"the weights are {sorted(weights)}, but the losses are {sorted(terms)}")
    wrong = [name for name, weight in weights.items() if not 0 <= weight < math.inf]
    if wrong:
        raise ValueError(f"the weight of {wrong[0]} is {weights[wrong[0]]}; it must be finite and not negative")
    return torch.stack([weights[name] * term for name, term in terms.items()]).sum(dim=0)


def _known(values: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """The values with 0 where not valid: multiplying by 0 would keep NaN."""
    return values if valid is None else torch.where(valid.bool(), values, 0.0)


def _weights(like: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    ones = torch.ones_like(like, dtype=torch.float32)
    return ones if valid is None else ones * valid.float()


def _sum(values: torch.Tensor) -> torch.Tensor:
    return values.flatten(1).sum(dim=1) if values.dim() > 1 else values


def _mean(values: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """The mean of each example's valid elements: [n, ...] -> [n]."""
    weights = _weights(values, valid)
    return _sum(torch.where(weights > 0, values, 0.0)) / _sum(weights).clamp(min=1)


def _blurred(maps: torch.Tensor) -> torch.Tensor:
    """Convolves [..., h, w] with the Gaussian, 0 outside of the image.

    By shifts and sums in both directions: a matrix product or a convolution is rounded to bfloat16 on a TPU and under
    autocast, and the variances, which are small differences, would be lost.
    """
    half = SSIM_WINDOW // 2
    window = [math.exp(-0.5 * (place / SSIM_SIGMA) ** 2) for place in range(-half, half + 1)]
    total = sum(window)
    for dim, padding in ((-1, (half, half)), (-2, (0, 0, half, half))):
        size: Any = maps.shape[dim]
        padded = functional.pad(maps, padding)
        shifted = (weight / total * padded.narrow(dim, start, size) for start, weight in enumerate(window))
        maps = functools.reduce(torch.add, shifted)
    return maps
