"""Pictures of training examples with their labels, before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import run_plan
from engine.loop.artifacts import training_examples
from engine.process import hardware
from engine.task import Picture, Plan
from tests.engine.workers import LINE
from tputui import config

CT = Path(__file__).parents[1] / "fixtures" / "ct"
TEXT = f"""
task = "image_labels"
epochs = 1
[data]
source = "{CT / "train.csv"}"
image = "image"
label = ["liver", "aorta", "spleen", "stomach", "pancreas", "sacrum"]
label_kind = "binary"
size = [16, 16]
flips = "both"
batch_per_core = 8
[model]
net = "thin"
width = 0.1
[device]
cores = 1
[report]
pictures = 6
"""


def planned(text: str, *overrides: str) -> Plan:
    return run_plan.make(
        config.parse(text, "t.toml", list(overrides)), hardware.Machine("CPU", 0, 0, "a test"), "t.toml"
    )


def drawn(text: str, *overrides: str) -> list[Picture]:
    made = planned(text, *overrides)
    return training_examples(made, made.task.load(made.data, 0).train)


def test_images_are_drawn_with_their_labels() -> None:
    pictures = drawn(TEXT)
    assert len(pictures) == 6
    assert all(picture.pixels.shape == (16, 16, 3) for picture in pictures)
    words = [picture.example.partition(" label ")[2] for picture in pictures]
    assert all(set(text.partition(" and ")[0].split(", ")) <= {*CT_LABELS, "none"} for text in words)
    assert len(set(words)) > 1
    assert len(drawn(TEXT, "report.pictures=2")) == 2
    assert drawn(TEXT, "report.pictures=0") == []


CT_LABELS = ("liver", "aorta", "spleen", "stomach", "pancreas", "sacrum")


def test_samples_match_a_step_and_leave_random_state() -> None:
    plain = {picture.pixels.tobytes() for picture in drawn(TEXT, "data.flips=none")}
    torch.manual_seed(3)
    flipped = drawn(TEXT)
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(1))
    assert any(picture.pixels.tobytes() not in plain for picture in flipped)
    turned = {np.flip(p.pixels, axis).tobytes() for p in flipped for axis in ((), 0, 1, (0, 1))}
    assert plain <= turned


def test_unreadable_example_is_omitted(tmp_path: Path) -> None:
    rows = "".join(f"images/{name}.jpg,{place % 2}\n" for place, name in enumerate("abcdefghij"))
    (tmp_path / "t.csv").write_text(f"image,liver\n{rows}")
    (tmp_path / "images").mkdir()
    good = next((CT / "images").iterdir()).read_bytes()
    for place, name in enumerate("abcdefghij"):
        (tmp_path / "images" / f"{name}.jpg").write_bytes(good if place < 5 else b"none")
    one = ["data.label=liver", f"data.source={tmp_path / 't.csv'}", "data.max_bad_rows=5", "report.pictures=10"]
    chosen = drawn(TEXT, *one)
    assert 0 < len(chosen) <= 5
    assert {picture.example.partition(" label ")[2] for picture in chosen} <= {"liver 0", "liver 1"}


def test_predictions_are_drawn_above_image_and_label() -> None:
    made = planned(TEXT.replace('label_kind = "binary"', 'label_kind = "class"'), "data.label=study")
    batch = made.task.load(made.data, 0).valid.fetch(np.array([0, 1]))
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in batch.items()}
    names = made.task._names  # type: ignore[attr-defined]
    logits = np.eye(len(names), dtype=np.float32)[[0, 0]] * 9
    first, second = made.task.pictures(arrays, {"logits": logits})
    assert first.name.startswith(f"predicted {names[0]} ")
    assert first.example == f"#1 label {names[int(arrays['label'][0])]}"
    assert second.example.startswith("#2 label ")


def test_digits_are_drawn_with_different_labels_and_predictions() -> None:
    text = 'task = "digits"\nepochs = 1\n[data]\nbatch_per_core = 8\n[optim]\nlr = 0.001\n'
    assert len({picture.example.partition(" label ")[2] for picture in drawn(text)}) == 8

    made = planned(text)
    batch = made.task.load(made.data, 0).valid.fetch(np.array([0, 1]))
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in batch.items()}
    pictures = made.task.pictures(arrays, {"logits": np.eye(10, dtype=np.float32)[[7, 1]]})
    assert [picture.name for picture in pictures] == ["predicted 7", "predicted 1"]
    labels = [int(label) for label in arrays["labels"]]
    assert [picture.example for picture in pictures] == [f"#1 label {labels[0]}", f"#2 label {labels[1]}"]
    assert pictures[0].pixels.shape == (8, 8, 3)


def test_a_task_without_pictures_draws_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert drawn(LINE) == []
