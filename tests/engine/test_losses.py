"""Losses compared with torch's and scikit-image's, and the mask of valid elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from skimage import metrics
from torch.nn import functional

from engine import losses

# It is not annotated.
structural_similarity: Any = metrics.structural_similarity
PIXEL_LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "bce": losses.bce_with_logits,
    "dice": losses.dice,
    "l1": losses.l1,
    "ssim": losses.ssim,
}
each_loss = pytest.mark.parametrize("name", PIXEL_LOSSES)


def pictures(seed: int = 0, shape: tuple[int, ...] = (3, 1, 24, 20)) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Predictions, targets of 0 or 1, and valid pixels."""
    drawn = torch.Generator().manual_seed(seed)
    predicted = torch.rand(shape, generator=drawn)
    return predicted, torch.rand(shape, generator=drawn).round(), torch.rand(shape, generator=drawn) > 0.3


def test_binary_cross_entropy_matches_torch() -> None:
    logits, targets, _ = pictures()
    logits = (logits - 0.5) * 200
    ours = losses.bce_with_logits(logits, targets, pos_weight=3.0)
    theirs = functional.binary_cross_entropy_with_logits(
        logits, targets, reduction="none", pos_weight=torch.tensor(3.0)
    )
    torch.testing.assert_close(ours, theirs.mean(dim=(1, 2, 3)))


def test_each_label_has_its_own_weight() -> None:
    logits, targets = torch.tensor([[0.3, -2.0], [1.0, 4.0]]), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    weight = torch.tensor([2.0, 30.0])
    theirs = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none", pos_weight=weight)
    torch.testing.assert_close(losses.bce_with_logits(logits, targets, pos_weight=weight), theirs.mean(dim=1))


def test_one_logit_per_example_gives_one_loss_each() -> None:
    logits, targets = torch.tensor([0.3, -2.0]), torch.tensor([1.0, 0.0])
    theirs = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    torch.testing.assert_close(losses.bce_with_logits(logits, targets), theirs)


def test_dice_is_0_for_exact_and_near_1_for_inverse_mask() -> None:
    _, targets, _ = pictures()
    logits = (targets - 0.5) * 100
    torch.testing.assert_close(losses.dice(logits, targets), torch.zeros(3))
    assert (losses.dice(-logits, targets) > 0.99).all()


def test_dice_of_correct_empty_mask_is_0() -> None:
    empty = torch.zeros(2, 1, 8, 8)
    torch.testing.assert_close(losses.dice(empty - 100, empty), torch.zeros(2))


def test_ssim_matches_scikit_image_inside_border() -> None:
    x, _, _ = pictures(shape=(2, 1, 40, 32))
    y = (x + 0.2 * torch.rand(x.shape, generator=torch.Generator().manual_seed(1))) / 1.2
    ours = losses.ssim_map(x, y, value_range=0.8).numpy()[:, 0, 5:-5, 5:-5]
    for example in range(2):
        _, theirs = structural_similarity(
            x[example, 0].double().numpy(),
            y[example, 0].double().numpy(),
            data_range=0.8,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            full=True,
        )
        np.testing.assert_allclose(ours[example], theirs[5:-5, 5:-5], atol=2e-5)


def test_ssim_of_equal_images_is_1_up_to_border() -> None:
    x, _, valid = pictures(shape=(2, 3, 9, 16))
    torch.testing.assert_close(losses.ssim(x, x, valid), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(losses.ssim_map(x, x), torch.ones(2, 3, 9, 16))


@each_loss
def test_invalid_pixels_are_ignored_even_if_nan(name: str) -> None:
    predicted, targets, valid = pictures()
    loss = PIXEL_LOSSES[name]
    expected = loss(predicted, targets, valid)
    damaged, wrong = predicted.clone(), targets.clone()
    damaged[~valid], wrong[~valid] = math.inf, math.nan
    damaged.requires_grad_()
    found = loss(damaged, wrong, valid)
    torch.testing.assert_close(found, expected)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert damaged.grad is not None
    assert (damaged.grad[~valid] == 0).all()
    assert damaged.grad[valid].isfinite().all()
    assert damaged.grad[valid].abs().sum() > 0


@each_loss
def test_example_without_valid_pixels_has_zero_gradient(name: str) -> None:
    predicted, targets, valid = pictures()
    valid[1] = False
    predicted.requires_grad_()
    found = PIXEL_LOSSES[name](predicted, targets, valid)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert found[1] == 0
    assert predicted.grad is not None
    assert (predicted.grad[1] == 0).all()
    assert found[0] > 0
    assert predicted.grad.isfinite().all()


@each_loss
def test_a_loss_goes_down_along_its_gradient(name: str) -> None:
    predicted, targets, valid = pictures()
    loss = PIXEL_LOSSES[name]
    predicted.requires_grad_()
    before = loss(predicted, targets, valid)
    (gradient,) = torch.autograd.grad(before.sum(), predicted)
    after = loss(predicted - 1e-2 * gradient / gradient.norm(), targets, valid)
    assert after.sum() < before.sum()


@each_loss
def test_low_precision_input_gives_accurate_float32_loss(name: str) -> None:
    predicted, targets, valid = pictures()
    low = predicted.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = PIXEL_LOSSES[name](low, targets, valid)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, PIXEL_LOSSES[name](low.float(), targets, valid))


def test_cross_entropy_matches_torch() -> None:
    drawn = torch.Generator().manual_seed(2)
    for shape in ((6,), (6, 4, 5)):
        logits = torch.randn((6, 7, *shape[1:]), generator=drawn)
        labels = torch.randint(0, 7, shape, generator=drawn)
        theirs = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=0.1)
        ours = losses.cross_entropy(logits, labels, label_smoothing=0.1)
        torch.testing.assert_close(ours, theirs.flatten(1).mean(dim=1) if theirs.dim() > 1 else theirs)


def test_ignore_label_need_not_be_a_class() -> None:
    logits = torch.randn((2, 3, 4), generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([[0, 1, 2, 255], [255, 255, 255, 255]])
    found = losses.cross_entropy(logits, labels, labels != 255)
    expected = functional.cross_entropy(logits[:1, :, :3], labels[:1, :3])
    torch.testing.assert_close(found, torch.stack([expected, torch.tensor(0.0)]))


def test_terms_are_summed_by_their_weights() -> None:
    terms = {"bce": torch.tensor([1.0, 2.0]), "dice": torch.tensor([0.5, 0.25])}
    torch.testing.assert_close(losses.combine(terms, {"dice": 4.0, "bce": 0.5}), torch.tensor([2.5, 2.0]))


@pytest.mark.parametrize(
    ("weights", "words"),
    [({"bce": 1.0, "ssim": 1.0}, "ssim"), ({"bce": -1.0}, "weight of bce is -1.0"), ({"bce": math.nan}, "nan")],
)
def test_mismatched_weights_are_named(weights: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        losses.combine({"bce": torch.ones(2)}, weights)
