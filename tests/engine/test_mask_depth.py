"""Pixels of unknown depth: they may be ignored in the mask as well, and then affect neither loss nor scores."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

from engine.tasks.mask_depth import CHECKS, MaskDepth, MaskDepthData, MaskDepthModel


def outcomes(where: Literal["everywhere", "depth_known"], logit_of_the_unknown: float) -> dict[str, torch.Tensor]:
    """Outcomes of an image whose left half is known and correctly predicted, foreground above background."""
    task = MaskDepth()
    task.model(MaskDepthModel(encoder="thin", width=8), MaskDepthData(source="unread", mask_where=where))
    mask = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    mask[..., :16, :] = 1
    known = torch.zeros_like(mask)
    known[..., :16] = 1
    logits = mask.float() * 20 - 10
    logits[..., 16:] = logit_of_the_unknown
    nothing = torch.zeros(1, 1, 32, 32)
    return task.outcomes(
        {"mask": logits, "depth": nothing}, {"mask": mask, "depth": nothing, "depth_valid": known.to(torch.uint8)}
    )


def test_mask_from_depth_counts_where_depth_is_known() -> None:
    one, other = (outcomes("depth_known", logit) for logit in (-10.0, 10.0))
    assert one["iou"].item() == 1
    assert other["iou"].item() == 1
    assert one["mask_loss"].item() == pytest.approx(0, abs=1e-3)
    assert torch.equal(one["mask_loss"], other["mask_loss"])


def test_any_other_mask_counts_everywhere() -> None:
    found = outcomes("everywhere", 10.0)
    assert found["iou"].item() == pytest.approx(2 / 3)
    assert found["mask_loss"].item() > 1


def drawn(where: Literal["everywhere", "depth_known"]) -> dict[str, np.ndarray[Any, np.dtype[np.uint8]]]:
    """Pictures of an example whose depth is known only in its left half."""
    task = MaskDepth()
    task.model(MaskDepthModel(encoder="thin", width=8), MaskDepthData(source="unread", mask_where=where))
    depth = np.zeros((1, 1, 32, 32), np.float32)
    depth[..., :16] = 0.5
    batch: dict[str, Any] = {
        "image": np.zeros((1, 3, 32, 32), np.uint8),
        "mask": np.zeros((1, 1, 32, 32), np.uint8),
        "depth": depth,
        "depth_valid": (depth > 0).astype(np.uint8),
    }
    predictions = {"mask": np.ones_like(depth), "depth": depth}
    return {picture.name: picture.pixels for picture in task.pictures(batch, predictions)}


def test_unknown_depth_is_not_drawn_as_depth() -> None:
    pictures = drawn("everywhere")
    assert set(np.unique(pictures["true depth"][:, 16:])) == set(CHECKS)
    assert (pictures["true depth"][:, :16] == [253, 231, 37]).all()
    assert not np.isin(pictures["depth"], CHECKS).all(axis=2).any()
    assert "checks: unknown" in MaskDepth.pictures_legend


def test_true_mask_picture_is_unknown_with_its_depth() -> None:
    assert not drawn("everywhere")["true mask"].any()
    unknown = drawn("depth_known")["true mask"]
    assert set(np.unique(unknown[:, 16:])) == set(CHECKS)
    assert not unknown[:, :16].any()
