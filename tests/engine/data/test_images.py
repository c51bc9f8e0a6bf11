"""Images, masks and depths decoded to tensors of one shape."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from engine.data import images
from engine.data.batch_reader import BadExampleBudget, BadExamples, Reader
from engine.data.feed import Feed
from engine.data.images import Images
from engine.data.options import ImageData
from engine.data.sampler import valid_shares
from engine.errors import BadExample
from tests.engine.data.files import write_table

COUNT = 12


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """Twelve JPEG images of several sizes with masks and 16-bit depths."""
    rng = np.random.default_rng(0)
    for name in ("image", "mask", "depth"):
        (tmp_path / name).mkdir()
    for number in range(COUNT):
        high, wide = 20 + number, 30 - number
        Image.fromarray(rng.integers(0, 255, (high, wide, 3), dtype=np.uint8)).save(
            tmp_path / "image" / f"{number}.jpg", quality=95
        )
        Image.fromarray((rng.random((high, wide)) > 0.5).astype(np.uint8) * 255).save(
            tmp_path / "mask" / f"{number}.png"
        )
        depth = rng.integers(1000, 60000, (high, wide), dtype=np.uint16)
        depth[:4] = 0
        Image.fromarray(depth).save(tmp_path / "depth" / f"{number}.png")
    write_table(tmp_path / "t.csv", "n,kind", *(f"{number},{number % 3}" for number in range(COUNT)))
    return tmp_path


def options(scene: Path, **keys: Any) -> ImageData:
    keys = {
        "image": "image/{n}.jpg",
        "mask": "mask/{n}.png",
        "depth": "depth/{n}.png",
        "depth_scale": 0.001,
        "label": "kind",
        "size": (16, 24),
        **keys,
    }
    return ImageData(source=str(scene / "t.csv"), **keys)


def train(wanted: ImageData) -> Images:
    found = images.load(wanted, 0).train
    assert isinstance(found, Images)
    return found


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_every_tensor_has_its_static_shape_and_type(scene: Path) -> None:
    batch = train(options(scene)).fetch(np.array([4, 0, 4]))
    kinds = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in batch.items()}
    assert kinds == {
        "image": ((3, 3, 16, 24), torch.uint8),
        "mask": ((3, 1, 16, 24), torch.uint8),
        "depth": ((3, 1, 16, 24), torch.float32),
        "depth_valid": ((3, 1, 16, 24), torch.uint8),
        "label": ((3,), torch.int64),
    }
    assert all(tensor.is_contiguous() for tensor in batch.values())
    assert set(batch["mask"].flatten().tolist()) == {0, 1}
    assert batch["depth"].max() < 60
    assert torch.equal(batch["depth_valid"] == 0, batch["depth"] == 0)
    assert (batch["depth_valid"] == 0).any()


def test_cache_and_number_of_threads_change_nothing(scene: Path) -> None:
    order = np.array([3, 1, 8, 3, 0])
    plain = train(options(scene, cache_mb=0)).fetch(order)
    for workers in (1, 2, 5):
        cached = train(options(scene))
        assert cached.store.caches
        with closing(Reader(cached, workers)) as reader:
            assert equal(reader.read(order), plain)
            assert equal(reader.read(order), plain), "from memory"
        with closing(Reader(train(options(scene, cache_mb=0)), workers)) as reader:
            assert equal(reader.read(order), plain)


def test_cached_epoch_does_not_read_files(scene: Path) -> None:
    kept = train(options(scene))
    first = kept.fetch(np.arange(len(kept)))
    for path in (scene / "image").iterdir():
        path.unlink()
    assert equal(kept.fetch(np.arange(len(kept))), first)


def test_caching_depends_on_image_bytes_only(scene: Path) -> None:
    wanted = options(scene, mask="", depth="", size=(512, 512), cache_mb=9)
    store = train(wanted).store
    assert store.needed_bytes == COUNT * 3 * 512 * 512 == 9 * 2**20
    assert store.caches
    assert not train(options(scene, mask="", depth="", size=(512, 512), cache_mb=8)).store.caches


def test_resizing_matches_pillow_within_a_level(scene: Path) -> None:
    with Image.open(scene / "image" / "0.jpg") as opened:
        expected = np.array(opened.resize((24, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    found = images.inputs(options(scene, mask="", depth=""), scene / "image" / "0.jpg").fetch(np.array([0]))
    assert np.abs(found["image"][0].numpy().astype(int) - expected).max() <= 1


def test_a_camera_image_is_turned_upright(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), dtype=np.uint8)
    pixels[:, :8] = 255
    turned = Image.Exif()
    turned[0x0112] = 6
    for suffix in ("jpg", "png", "webp", "tiff"):
        Image.fromarray(pixels).save(tmp_path / f"a.{suffix}", exif=turned)
        given = images.inputs(ImageData(size=(16, 8), channels=1), tmp_path / f"a.{suffix}").fetch(np.array([0]))
        assert given["image"][0, 0, 2, 4] > 200, suffix
        assert given["image"][0, 0, 13, 4] < 50, suffix


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_kind_of_png_becomes_rgb_and_gray(tmp_path: Path, mode: str) -> None:
    level = 200
    if mode == "I;16":
        made = Image.fromarray(np.full((6, 6), level * 256, dtype=np.uint16))
    else:
        made = Image.new("L", (6, 6), 255 if mode == "1" else level).convert(mode)
    made.save(tmp_path / "a.png")
    for channels in (1, 3):
        given = images.inputs(ImageData(size=(6, 6), channels=channels), tmp_path / "a.png").fetch(np.array([0]))
        assert given["image"].shape == (1, channels, 6, 6)
        assert abs(int(given["image"].float().mean()) - (255 if mode == "1" else level)) <= 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"hello", "unknown image format"),
        (b"\xff\xd8\xff\xe0cut", "the image cannot be decoded"),
    ],
)
def test_unreadable_image_names_row_column_and_file(scene: Path, content: bytes, message: str) -> None:
    (scene / "image" / "5.jpg").write_bytes(content)
    _raises_for_row_5(scene, "column n", message, "5.jpg")


def test_truncated_image_is_named(scene: Path) -> None:
    whole = (scene / "image" / "5.jpg").read_bytes()
    (scene / "image" / "5.jpg").write_bytes(whole[: len(whole) // 2])
    _raises_for_row_5(scene, "column n", "the image cannot be decoded", "5.jpg")


def bomb(kind: str) -> bytes:
    """A small file whose header claims billions of pixels."""
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, kind)
    data, side = bytearray(out.getvalue()), 60_000
    at = data.index(b"\xff\xc0") + 5 if kind == "JPEG" else 16
    struct.pack_into(">HH" if kind == "JPEG" else ">II", data, at, side, side)
    if kind == "PNG":
        struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    return bytes(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_decompression_bomb_is_not_decoded(scene: Path, kind: str) -> None:
    (scene / "image" / "5.jpg").write_bytes(bomb(kind))
    _raises_for_row_5(scene, "column n", "the image has 60,000 x 60,000 pixels; at most 89,478,485", "5.jpg")


def test_array_claiming_more_than_memory_is_rejected(scene: Path) -> None:
    (scene / "depth").rename(scene / "old")
    (scene / "depth").mkdir()
    for number in range(COUNT):
        np.save(scene / "depth" / f"{number}.npy", np.ones((4, 4)))
    with (scene / "depth" / "5.npy").open("wb") as file:
        head = {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)}
        np.lib.format.write_array_header_1_0(file, head)
    splits = images.load(options(scene, depth="depth/{n}.npy"), 0)
    _fetch_fails(splits, "column n", "the array cannot be read", "5.npy")


def test_invalid_image_data_is_named(scene: Path) -> None:
    Image.new("LAB", (8, 8)).save(scene / "image" / "5.jpg", "TIFF")
    _fetch_fails(images.load(options(scene, channels=1), 0), "column n", "cannot be converted", "5.jpg")
    Image.new("RGB", (8, 8)).save(scene / "image" / "5.jpg", "EPS")
    _raises_for_row_5(scene, "column n", "PostScript is a program", "5.jpg")


def test_path_to_endless_device_is_not_read(scene: Path) -> None:
    (scene / "image" / "5.jpg").unlink()
    (scene / "image" / "5.jpg").symlink_to("/dev/zero")
    _raises_for_row_5(scene, "column n", "not a regular file", "5.jpg")
    (scene / "image" / "5.jpg").unlink()
    os.mkfifo(scene / "image" / "5.jpg")
    _raises_for_row_5(scene, "column n", "not a regular file", "5.jpg")


def test_unreadable_mask_or_depth_is_named(scene: Path) -> None:
    (scene / "depth" / "5.png").write_bytes(b"nothing")
    _raises_for_row_5(scene, "column n", "unknown image format", "depth/5.png")


def test_file_removed_after_the_check_is_named(scene: Path) -> None:
    splits = images.load(options(scene), 0)
    (scene / "mask" / "5.png").unlink()
    _fetch_fails(splits, "column n", "the file cannot be read: No such file or directory", "mask/5.png")


def _raises_for_row_5(scene: Path, column: str, message: str, file: str) -> None:
    for cache_mb in (0, 64):
        _fetch_fails(images.load(options(scene, cache_mb=cache_mb), 0), column, message, file)


def _fetch_fails(splits: Any, column: str, message: str, file: str) -> None:
    failed: list[tuple[Images, BadExample]] = []
    for split in (splits.train, splits.valid):
        try:
            split.fetch(np.arange(len(split))[::-1].copy())
        except BadExample as raised:
            failed.append((split, raised))
    assert len(failed) == 1
    split, bad = failed[0]
    assert split.which[bad.index] == 5
    assert f"t.csv row 7, {column}" in bad.where
    assert file in bad.where
    assert message in bad.why


def test_feed_skips_bad_images_up_to_the_limit(scene: Path) -> None:
    (scene / "image" / "5.jpg").write_bytes(b"nothing")
    reasons: list[str] = []
    seen = 0
    splits = images.load(options(scene), 0)
    budget = BadExampleBudget(1, lambda split, bad, spent, limit: reasons.append(bad.why))
    train_skips, valid_skips = (
        BadExamples("train", len(splits.train), budget),
        BadExamples("valid", len(splits.valid), budget),
    )
    for split, skips in ((splits.train, train_skips), (splits.valid, valid_skips)):
        with Feed(split, valid_shares(len(split), 2, 2), lambda tensors: tensors, 2, skips) as feed:
            seen += sum(int(batch.counts.sum()) for batch in feed)
    assert reasons == ["unknown image format"]
    assert seen == COUNT - 1


def test_dataset_can_be_pickled(scene: Path) -> None:
    kept = train(options(scene))
    before = kept.fetch(np.array([2, 1]))
    again: Images = pickle.loads(pickle.dumps(kept))
    assert equal(again.fetch(np.array([2, 1])), before)


def test_a_validity_image_and_an_array_of_depths(scene: Path) -> None:
    (scene / "known").mkdir()
    for number in range(COUNT):
        high, wide = 20 + number, 30 - number
        depth = np.full((high, wide), 2.0, dtype=np.float32)
        depth[:, 0] = np.nan
        np.save(scene / "depth" / f"{number}.npy", depth)
        known = np.zeros((high, wide), dtype=np.uint8)
        known[: high // 2] = 255
        Image.fromarray(known).save(scene / "known" / f"{number}.png")
    batch = train(options(scene, depth="depth/{n}.npy", depth_valid="known/{n}.png", depth_scale=2.0)).fetch(
        np.array([0])
    )
    assert set(batch["depth"].flatten().tolist()) == {0, 4}
    assert batch["depth_valid"][0, 0, 0, 0] == 0
    assert batch["depth_valid"][0, 0, 2, 5] == 1
    assert batch["depth_valid"][0, 0, 14].sum() == 0


def test_images_for_a_prediction_need_no_labels(scene: Path) -> None:
    plain = options(scene, mask="", depth="")
    folder = images.inputs(plain, scene / "image")
    assert len(folder) == COUNT
    assert folder.fetch(np.array([0])).keys() == {"image"}
    write_table(scene / "new.csv", "n", "3", "4")
    table = images.inputs(options(scene), scene / "new.csv")
    assert table.fetch(np.array([1, 0])).keys() == {"image", "mask", "depth", "depth_valid"}
    assert table.name(1).endswith("new.csv row 3")
    for name in ("mask", "depth"):
        (scene / name).rename(scene / f"no-{name}")
    table = images.inputs(options(scene), scene / "new.csv")
    assert table.fetch(np.array([1, 0])).keys() == {"image"}
