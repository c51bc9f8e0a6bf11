"""Images a second from JPEG files to batches: every stage, and the whole feed compared with a hand-written loop.

    python -m benchmarks.input_pipeline [--images 600] [--rounds 3]

The hand-written loop is the usual one: a `Dataset` with Pillow or with torchvision's decoder, in a `DataLoader` with 0
or 2 workers; the fastest of these four is the rival. Both sides decode the same files to the same size, alternately
within each round. "Cold" is the first epoch, "warm" every later one. The JPEG files are generated: a gradient with
noise, 512 x 512, quality 90.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg

from engine.data.batch_reader import BadExampleBudget, BadExamples
from engine.data.feed import Feed
from engine.data.images import Images, Shape, image, load, resized
from engine.data.options import ImageData
from engine.data.sampler import train_shares

SIDE, SIZE, BATCH = 512, 256, 32
WORKERS = 2
"""Threads on our side, processes of the rivals."""


class ByHand(Dataset[tuple[torch.Tensor, int]]):
    """The dataset of a plain training script."""

    def __init__(self, paths: list[str], labels: list[int], pillow: bool) -> None:
        self._paths = paths
        self._labels = labels
        self._pillow = pillow

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        data = Path(self._paths[index]).read_bytes()
        if self._pillow:
            with Image.open(self._paths[index]) as opened:
                small = opened.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
            return torch.from_numpy(np.array(small)).permute(2, 0, 1), self._labels[index]
        pixels = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        small_pixels = interpolate(pixels[None], (SIZE, SIZE), mode="bilinear", align_corners=False, antialias=True)
        return small_pixels[0], self._labels[index]


def make_files(folder: Path, count: int) -> None:
    """Writes `count` JPEG files in two folders, for two classes."""
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 200, SIDE)[None, :, None] * np.ones((SIDE, 1, 3))
    for place in range(count):
        parent = folder / f"class{place % 2}"
        parent.mkdir(parents=True, exist_ok=True)
        noisy = ramp + rng.integers(0, 40, (SIDE, SIDE, 3))
        Image.fromarray(noisy.astype(np.uint8)).save(parent / f"{place:05d}.jpg", quality=90)


def rate(count: int, work: Callable[[], Any]) -> float:
    """Returns the images a second of `work`, which processes `count` images."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def stages(paths: list[str], images: Images) -> dict[str, float]:
    """Returns the images a second of each stage alone, in one thread, and of cached rows."""
    data = [Path(path).read_bytes() for path in paths]
    full = Shape(3, SIDE, SIDE, "bilinear")
    pixels = [image(item, full) for item in data]
    indices = np.arange(len(images), dtype=np.int64)
    images.fetch(indices)
    small = full._replace(height=SIZE, width=SIZE)
    return {
        "read": rate(len(paths), lambda: [Path(path).read_bytes() for path in paths]),
        "decode": rate(len(paths), lambda: [image(item, full) for item in data]),
        "resize": rate(len(paths), lambda: [resized(item, small) for item in pixels]),
        "cache": rate(
            len(images), lambda: [images.fetch(part) for part in np.array_split(indices, len(indices) // BATCH)]
        ),
    }


def ours(images: Images, epoch: int) -> int:
    """Runs one epoch of the feed without moving tensors to a device. Returns the number of images."""
    shares = train_shares(len(images), 1, BATCH, seed=0, epoch=epoch)
    skips = BadExamples("train", len(images), BadExampleBudget(0, lambda *_: None))
    with Feed(images, shares, lambda tensors: tensors, 4, skips, WORKERS) as feed:
        return sum(len(batch.tensors["image"]) for batch in feed)


def by_hand(loader: DataLoader[Any]) -> int:
    """Runs one epoch of the plain loop. Returns the number of images."""
    return sum(len(images) for images, _ in loader)


def loaders(paths: list[str], labels: list[int]) -> Iterator[tuple[str, DataLoader[Any]]]:
    """Yields the rival loaders by name."""
    for pillow in (True, False):
        for workers in (0, WORKERS):
            dataset = ByHand(paths, labels, pillow)
            name = f"{'Pillow' if pillow else 'torchvision'}, num_workers={workers}"
            yield (
                name,
                DataLoader(
                    dataset,
                    BATCH,
                    shuffle=True,
                    drop_last=True,
                    num_workers=workers,
                    persistent_workers=workers > 0,
                ),
            )


def compare(options: ImageData, count: int, rounds: int) -> dict[str, list[float]]:
    """Returns the images a second of both sides, alternating epochs."""
    rates: dict[str, list[float]] = {}

    def add(name: str, work: Callable[[], int]) -> None:
        start = time.perf_counter()
        seen = work()
        rates.setdefault(name, []).append(seen / (time.perf_counter() - start))

    first = load(options, seed=0).train
    assert isinstance(first, Images)
    store = first.store
    paths = [store.rows.files["image"][row] for row in first.which]
    labels = [int(store.rows.labels[row]) for row in first.which] if store.rows.labels is not None else []
    plain = list(loaders(paths, labels))
    uncached = Images(type(store)(store.rows, msgspec.structs.replace(options, cache_mb=0)), first.which)
    for round_number in range(rounds):
        images = load(options, seed=0).train
        assert isinstance(images, Images)
        add("ours cold", lambda images=images: ours(images, 1))  # type: ignore[misc]
        for name, loader in plain:
            add(name, lambda loader=loader: by_hand(loader))  # type: ignore[misc]
        add("ours without cache", lambda epoch=round_number: ours(uncached, epoch))  # type: ignore[misc]
        add("ours warm", lambda images=images: ours(images, 2))  # type: ignore[misc]
    rates["stages"] = list(stages(paths[: min(200, count)], first).values())
    return rates


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=600, help="number of JPEG files")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each side")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), arguments.images)
        options = ImageData(source=folder, size=(SIZE, SIZE), cache_mb=4096)
        rates = compare(options, arguments.images, arguments.rounds)
    for name, value in zip(("read", "decode", "resize", "cache"), rates.pop("stages"), strict=True):
        print(f"stage {name:<8} {value:>10,.0f} images/s")
    print()
    for name, values in rates.items():
        print(f"{name:<36} {statistics.median(values):>8,.0f} images/s   best {max(values):>8,.0f}")
    # Per round, because the speed of a shared machine varies.
    rivals = [max(each) for each in zip(*(rates[name] for name in rates if not name.startswith("ours")), strict=True)]
    print()
    for name in ("ours cold", "ours without cache", "ours warm"):
        ratio = statistics.median(mine / best for mine, best in zip(rates[name], rivals, strict=True))
        print(f"ratio {name:<20} {ratio:>8.2f} x the best hand-written loop")


if __name__ == "__main__":
    main()
