"""Input normalisation of pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.commands.describe import check
from engine.models.unet import Scaling
from engine.process import hardware
from engine.task import Task
from engine.tasks.image_labels import ImageLabels, ImageLabelsData, ImageLabelsModel
from engine.tasks.mask_depth import MaskDepth, MaskDepthData, MaskDepthModel
from tputui import config

CT = Path(__file__).parents[1] / "fixtures" / "ct"
PIXELS = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8))
THIN: dict[str, Any] = {"encoder": "thin", "width": 4}


def seen(task: Task, options: Any, data: Any) -> torch.Tensor:
    """The network's input for the pixels."""
    given: list[torch.Tensor] = []
    model = task.model(options, data)
    model.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    with torch.no_grad():
        task.predict(model.eval(), {"image": PIXELS})
    return given[0]


def labels(**options: Any) -> torch.Tensor:
    data = ImageLabelsData(source="unread", label=["a", "b"], label_kind="binary")
    return seen(ImageLabels(), ImageLabelsModel(net="thin", width=0.1, **options), data)


def test_pixels_scale_to_minus_1_to_1_without_mean() -> None:
    assert torch.equal(labels(), PIXELS.float() / 127.5 - 1) or torch.allclose(labels(), PIXELS.float() / 127.5 - 1)
    assert torch.equal(labels(), seen(MaskDepth(), MaskDepthModel(**THIN), MaskDepthData(source="unread")))


def test_each_channel_has_its_own_mean_and_std() -> None:
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    wanted = (PIXELS.float() / 255 - torch.tensor(mean).reshape(3, 1, 1)) / torch.tensor(std).reshape(3, 1, 1)
    torch.testing.assert_close(labels(mean=mean, std=std), wanted)
    depth = MaskDepthModel(mean=mean, std=std, **THIN)
    torch.testing.assert_close(seen(MaskDepth(), depth, MaskDepthData(source="unread")), wanted)


def test_imagenet_names_the_numbers_of_published_weights() -> None:
    named = labels(mean="imagenet", std="imagenet")
    torch.testing.assert_close(named, labels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)))
    assert Scaling((0.5,), (0.5,))(PIXELS).abs().max() <= 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.mean=[0.1, 0.2]", "model.mean: it has 2 numbers for 3 channels; give 3, or one for all"),
        ("model.std=[0.0, 0.2, 0.1]", "model.std"),
        ("model.mean=[124.0, 117.0, 104.0]", "model.mean"),
        ("model.mean=image_net", "model.mean"),
    ],
)
def test_wrong_mean_or_std_is_rejected_before_start(override: str, message: str) -> None:
    text = (
        f'task = "image_labels"\nepochs = 1\n[data]\nsource = "{CT / "train.csv"}"\nimage = "image"\n'
        'label = ["liver", "aorta"]\nlabel_kind = "binary"\nbatch_per_core = 8\n[device]\ncores = 1\n'
    )
    parsed = config.parse(text, "t.toml", [override])
    (problem,) = check(parsed, hardware.Machine("CPU", 0, 0, "a test"), "t.toml").problems
    assert message in problem.sentence
