"""Random augmentation treats all maps of an example alike, and changes only the pixels."""

from __future__ import annotations

import torch

from engine.data import images


def test_all_maps_are_mirrored_together_half_of_the_time() -> None:
    torch.manual_seed(0)
    image = torch.arange(200 * 3 * 2 * 4).reshape(200, 3, 2, 4)
    batch = {"image": image, "mask": image[:, :1].clone(), "id": torch.arange(200)}
    changed = images.random_mirror(batch, ["image", "mask"], 3)
    turned = [not torch.equal(one, other) for one, other in zip(changed["image"], image, strict=True)]
    assert 60 < sum(turned) < 140
    for row, is_turned in enumerate(turned):
        expected = image[row].flip(2) if is_turned else image[row]
        assert torch.equal(changed["image"][row], expected)
        assert torch.equal(changed["mask"][row], expected[:1])
    assert changed["id"] is batch["id"]


def test_brightness_varies_within_share_and_byte_range() -> None:
    torch.manual_seed(0)
    flat = torch.full((300, 3, 2, 2), 100, dtype=torch.uint8)
    light = images.random_light(flat, 0.3)[:, 0, 0, 0].float() / 100
    assert light.min() >= 0.69
    assert light.max() <= 1.3
    assert light.std() > 0.1
    white = images.random_light(torch.full((50, 3, 2, 2), 255, dtype=torch.uint8), 0.3)
    assert white.dtype == torch.uint8
    assert white.max() == 255
    steps = torch.tensor([80, 120], dtype=torch.uint8).expand(300, 3, 2, 2)
    contrast = (lambda pixels: pixels[..., 1] - pixels[..., 0])(images.random_light(steps, 0.3).float())[:, 0, 0] / 40
    assert contrast.min() >= 0.65
    assert contrast.max() <= 1.35
    assert contrast.std() > 0.1
