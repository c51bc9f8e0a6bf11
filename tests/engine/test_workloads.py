"""The shipped tasks on real data through the real engine, on two virtual cores: thin networks, few steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.engine.workers import Run, make, runs_to_end
from tests.fixtures import rgbd
from tputui.telemetry import events as ev

pytestmark = pytest.mark.xla

FIXTURES = Path(__file__).parents[1] / "fixtures"
SAMPLES = Path(__file__).parents[2] / "sample_configs"
TWO_CORES = ["device.cores=2", "report.every_batches=4"]


def train(parent: Path, sample: str, *overrides: str) -> Run:
    """Trains a thin variant of a sample configuration to the end."""
    text = (SAMPLES / f"{sample}.toml").read_text()
    return runs_to_end(make(parent, sample, [*TWO_CORES, *overrides], text=text))


def learns(run: Run) -> list[ev.EpochEnded]:
    """The epochs of a run; checks that the loss fell and that nothing compiled after warm-up."""
    epochs = run.all(ev.EpochEnded)
    assert epochs[-1].train["loss"].avg < epochs[0].train["loss"].avg
    assert all(np.isfinite(list(losses)).all() for losses in run.losses().values())
    read = run.all(ev.XlaMetricsRead)[-1]
    assert (read.recompiles, read.fallbacks) == (0, {})
    return epochs


@pytest.mark.slow
def test_unet_learns_mask_and_depth_with_pictures(tmp_path: Path) -> None:
    (tmp_path / "rgbd").mkdir()
    rgbd.write_crops(tmp_path / "rgbd", crop_px=32, stride_px=60)
    run = train(
        tmp_path,
        "mask_depth_unet",
        f"data.source={tmp_path / 'rgbd' / 'frames.csv'}",
        "data.size=[32, 32]",
        "model.encoder=thin",
        "model.width=8",
        "optim.lr=0.003",
        "epochs=6",
        "report.pictures=2",
    )
    epochs = learns(run)
    assert set(epochs[-1].valid) == {"loss", "mask_loss", "depth_loss", "iou", "depth_mae"}
    for name in ("mask_loss", "depth_loss"):
        assert epochs[-1].train[name].avg < epochs[0].train[name].avg
    kept = run.all(ev.PicturesKept)[-1].pictures
    assert [picture.name for picture in kept[:5]] == ["input", "mask", "true mask", "depth", "true depth"]
    with Image.open(run.dir / kept[0].path) as image:
        assert image.size == (32, 32)


@pytest.mark.slow
def test_a_resnet_learns_ten_labels_with_folds_by_group(tmp_path: Path) -> None:
    run = train(
        tmp_path,
        "ct_embolism_resnet",
        f"data.source={FIXTURES / 'ct' / 'train.csv'}",
        "data.label=" + str(labels(FIXTURES / "ct" / "train.csv")),
        "data.image=image",
        "data.group=slab",
        "data.folds=3",
        "data.size=[32, 32]",
        "data.batch_per_core=4",
        "data.batches_per_epoch=5",
        "model.net=thin",
        "model.width=0.25",
        "optim.lr=0.002",
        "epochs=3",
    )
    epochs = learns(run)
    assert 0 <= epochs[-1].scores["auc"] <= 1
    assert len([name for name in epochs[-1].scores if name.startswith("auc ")]) == 10
    assert run.one(ev.TrainingPlanned).steps_per_epoch == 5
    assert "best validation loss:" in run.one(ev.TrainingEnded).reason
    assert np.load(run.dir / "val_losses.npy").shape == (3,)


@pytest.mark.slow
def test_efficientnet_learns_a_rare_label_in_bf16(tmp_path: Path) -> None:
    run = train(
        tmp_path,
        "lesion_efficientnet",
        f"data.source={FIXTURES / 'ct' / 'train.csv'}",
        "data.image=image",
        f"data.label={labels(FIXTURES / 'ct' / 'train.csv')[0]}",
        "data.group=slab",
        "data.folds=2",
        "data.size=[32, 32]",
        "data.batch_per_core=4",
        "model.net=efficientnet-b0",
        "model.width=0.25",
        "model.depth=0.1",
        "optim.lr=0.004",
        "epochs=3",
    )
    epochs = learns(run)
    assert run.one(ev.TrainingPlanned).precision == "bf16"
    assert "auc" in epochs[-1].scores
    best = max(range(3), key=lambda place: epochs[place].scores["auc"])
    assert epochs[best].best


def test_an_lstm_learns_the_sentiment_of_sentences(tmp_path: Path) -> None:
    run = train(
        tmp_path,
        "imdb_lstm",
        f"data.source={FIXTURES / 'sentences' / 'reviews.csv'}",
        "data.length=24",
        "data.max_words=2000",
        "data.batch_per_core=50",
        "model.embedding=16",
        "model.hidden=16",
        "optim.lr=0.01",
        "epochs=6",
    )
    epochs = learns(run)
    assert epochs[-1].train["accuracy"].avg > 0.7
    warned = [event.text for event in run.all(ev.WarningRaised)]
    assert any("50 is no multiple of 8" in text for text in warned)


def labels(table: Path) -> list[str]:
    """The label columns of the CT fixture."""
    return table.read_text().partition("\n")[0].split(",")[4:]
