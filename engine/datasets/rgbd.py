"""Crops of pictures with a foreground mask and depth: `frames.csv` and PNG files.

Columns: id, image (RGB), mask (0 or 255), depth (16-bit), valid (0 or 255), group, split. Depth is nearness, that is
inverse depth: 0 unknown or far, 65535 the nearest of its scene; stereo disparity is that already, up to an offset.
Foreground is nearer than a threshold of its scene. No pixel lies in two groups, so none lies in both splits. Needs
numpy and Pillow.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.datasets import scenes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CROP_PX = 96
NUM_BANDS = 4
"""Bands of columns that a stereo picture is cut into, each a group; the last is held out."""
FULL = 65_535
_MIN_VALID = 0.5
"""Share of known depth that a crop must have."""


class Stride(NamedTuple):
    """How far apart crops start, in pixels."""

    rows: int
    columns: int


class Region(NamedTuple):
    """Columns `left` to below `right` of a scene, from which crops of one group are cut."""

    scene: scenes.Scene
    group: str
    split: str
    left: int
    right: int


def prepare(sources: Mapping[str, Path], into: Path, crop_px: int = CROP_PX) -> list[str]:
    """The crops of every scene whose package is there."""
    stereo = [scenes.motorcycle(sources["motorcycle_left.png"], sources["motorcycle_disp.npz"])]
    if "opencv-doc" in sources:
        stereo.append(scenes.aloe(sources["opencv-doc"]))
    cut = [bands(scene) for scene in stereo]
    notes = [_tell_bands(regions) for regions in cut]
    strides = [(region, Stride(24, 16)) for regions in cut for region in regions]
    if "visp-images-data" in sources:
        frames = scenes.castle(sources["visp-images-data"])
        strides += [(region, Stride(72, 72)) for region in _frames(frames, notes)]
    rows = write(strides, into, crop_px)
    for split in ("train", "valid"):
        notes.append(f"frames.csv: {sum(row[-1] == split for row in rows)} crops of {crop_px} pixels in split {split}")
    return [*notes, "depth: nearness (inverse depth), 65535 the nearest of its scene, 0 where valid is 0"]


def write(regions: list[tuple[Region, Stride]], into: Path, crop_px: int) -> list[tuple[str, ...]]:
    """Cuts the crops and writes pictures and table; returns the table's rows."""
    from PIL import Image

    rows = []
    for kind in ("images", "masks", "depths", "valids"):
        (into / kind).mkdir()
    for region, stride in regions:
        for name, layers in _crops(region, stride, crop_px):
            files = []
            for kind, pixels in layers.items():
                files.append(f"{kind}/{name}.png")
                Image.fromarray(pixels).save(into / files[-1])
            rows.append((name, *files, region.group, region.split))
    with (into / "frames.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "image", "mask", "depth", "valid", "group", "split"))
        writer.writerows(rows)
    return rows


def _crops(region: Region, stride: Stride, crop_px: int) -> Iterator[tuple[str, dict[str, npt.NDArray[np.generic]]]]:
    """Crops of enough known depth, as the layers that are written."""
    import numpy as np

    scene = region.scene
    for top in range(0, scene.nearness.shape[0] - crop_px + 1, stride.rows):
        for left in range(region.left, region.right - crop_px + 1, stride.columns):
            window = np.s_[top : top + crop_px, left : left + crop_px]
            valid = scene.valid[window]
            if valid.mean() < _MIN_VALID:
                continue
            near = np.where(valid, scene.nearness[window], 0)
            mask = valid & (near >= scene.foreground_from)
            yield (
                f"{scene.name}-{top:04}-{left:04}",
                {
                    "images": np.ascontiguousarray(scene.image[window]),
                    "masks": mask.astype(np.uint8) * np.uint8(255),
                    "depths": (near * FULL).round().astype(np.uint16),
                    "valids": valid.astype(np.uint8) * np.uint8(255),
                },
            )


def bands(scene: scenes.Scene) -> list[Region]:
    """A stereo picture as bands of columns, each a group; the last is held out."""
    width = scene.nearness.shape[1]
    edges = [width * band // NUM_BANDS for band in range(NUM_BANDS + 1)]
    last = NUM_BANDS - 1
    return [
        Region(scene, f"{scene.name}-{band}", "valid" if band == last else "train", edges[band], edges[band + 1])
        for band in range(NUM_BANDS)
    ]


def _tell_bands(regions: list[Region]) -> str:
    scene = regions[0].scene
    columns = ", ".join(f"{region.left}..{region.right - 1}" for region in regions)
    return (
        f"{scene.name}: groups are columns {columns} of {scene.nearness.shape[1]}; the last is split valid; "
        f"foreground is nearness from {scene.foreground_from:.3f}"
    )


def _frames(frames: list[scenes.Scene], notes: list[str]) -> list[Region]:
    """Frames of a video, in groups of neighbours; the last group is held out."""
    size = len(frames) // (NUM_BANDS + 1)
    held_out = len(frames) - size
    notes.append(
        f"castle: groups are {size} frames each; frames {held_out}..{len(frames) - 1} are split valid; foreground is "
        f"nearness from {frames[0].foreground_from:.3f}"
    )
    return [
        Region(
            frame,
            f"castle-{number // size}",
            "valid" if number >= held_out else "train",
            0,
            frame.nearness.shape[1],
        )
        for number, frame in enumerate(frames)
    ]
