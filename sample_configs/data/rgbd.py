"""Crops with a foreground mask and depth, of stereo pairs and a depth camera: `frames.csv` and PNG files.

Columns: id, image (RGB), mask (0 or 255), depth (16-bit), valid (0 or 255), group, split. Depth is nearness, that is
inverse depth: 0 unknown or far, 65535 the nearest of its scene; stereo disparity is nearness up to an offset.
Foreground is nearer than Otsu's threshold of its scene. No pixel belongs to two groups, so none is in both splits.
BSD-3-Clause, Apache-2.0, GPL-2. Without apt-get only scikit-image's stereo pair is prepared.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from packages import DataSet, Package, main, write_table

if TYPE_CHECKING:
    import numpy.typing as npt

METRES_PER_COUNT = 0.000124986647
"""Unit of the depth camera's counts, from ViSP's examples for these files."""
CASTLE_NEAREST_M = 0.18
CROP_PX = 96
NUM_BANDS = 4
"""Number of column bands of a stereo image, each a group; the last is held out."""
FULL = 65_535
_MIN_VALID = 0.5
"""Minimum share of known depth in a crop."""


class Scene(NamedTuple):
    """One image with its depth, all arrays of the same height and width."""

    name: str
    image: npt.NDArray[Any]
    """[row, column, 3] red, green, blue."""
    nearness: npt.NDArray[Any]
    """[row, column] 0 to 1, 0 where unknown."""
    valid: npt.NDArray[Any]
    """[row, column] whether nearness is known."""
    foreground_from: float
    """Nearness threshold of the foreground."""


class Region(NamedTuple):
    """The columns from `left` to below `right` of a scene; its crops form one group."""

    scene: Scene
    group: str
    split: str
    left: int
    right: int


def prepare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Writes the crops of every scene whose package was downloaded."""
    stereo = [motorcycle(), *([aloe(sources["opencv-doc"])] if "opencv-doc" in sources else [])]
    cut = [bands(scene) for scene in stereo]
    notes = [_describe_bands(regions) for regions in cut]
    strides = [(region, (24, 16)) for regions in cut for region in regions]
    if "visp-images-data" in sources:
        frames = castle(sources["visp-images-data"])
        size = len(frames) // (NUM_BANDS + 1)
        last = len(frames) - size
        for number, frame in enumerate(frames):
            split = "valid" if number >= last else "train"
            region = Region(frame, f"castle-{number // size}", split, 0, frame.nearness.shape[1])
            strides.append((region, (72, 72)))
        notes.append(
            f"castle: groups are {size} frames each; frames {last}..{len(frames) - 1} are split valid; foreground is "
            f"nearness from {frames[0].foreground_from:.3f}"
        )
    splits = [row[-1] for row in write(strides, into)]
    for split in ("train", "valid"):
        notes.append(f"frames.csv: {splits.count(split)} crops of {CROP_PX} pixels in split {split}")
    return [*notes, "depth: nearness (inverse depth), 65535 the nearest of its scene, 0 where valid is 0"]


def motorcycle() -> Scene:
    """The left image of scikit-image's stereo pair, 741 x 500."""
    import numpy as np
    from skimage.data import stereo_motorcycle

    left, _, disparity = stereo_motorcycle()
    return _of_disparity("motorcycle", left, disparity.astype(np.float32), np.isfinite(disparity))


def aloe(root: Path) -> Scene:
    """The left image of OpenCV's sample pair at half its size, 641 x 555."""
    import numpy as np

    folder = next(root.glob("**/aloeGT.png")).parent
    # Nearest, not averaged: a mean over an edge would be a distance at which there is nothing.
    truth = _read(folder / "aloeGT.png")[..., 0].astype(np.float32)
    disparity = truth[: len(truth) // 2 * 2 : 2, : truth.shape[1] // 2 * 2 : 2]
    return _of_disparity("aloe", _halved(_read(folder / "aloeL.jpg")), disparity, disparity > 0)


def castle(root: Path) -> list[Scene]:
    """The frames of ViSP's depth camera at half their size, 320 x 240: gray, with the depth projected to the image."""
    import numpy as np

    folder = next(root.glob("**/depth_M_color.txt")).parent
    pose = np.loadtxt(folder / "depth_M_color.txt")
    cameras = _camera(folder / "chateau_depth.xml"), _camera(folder / "chateau.xml")
    found = {}
    for path in sorted((folder / "castel").glob("image_*.pgm")):
        # Height and width as 32-bit integers, then the counts.
        body = path.with_name(f"depth_{path.stem}.bin").read_bytes()
        counts = np.frombuffer(body, "<u2", offset=8).reshape(np.frombuffer(body, "<u4", 2))
        found[path] = _registered(counts * METRES_PER_COUNT, pose, *cameras)
    start = foreground_from(np.concatenate([near[near > 0] for near in found.values()]))
    return [
        Scene(f"castle-{path.stem.removeprefix('image_')}", _halved(_read(path)), near, near > 0, start)
        for path, near in found.items()
    ]


def _of_disparity(name: str, image: npt.NDArray[Any], disparity: npt.NDArray[Any], valid: npt.NDArray[Any]) -> Scene:
    import numpy as np

    near = np.where(valid, disparity / disparity[valid].max(), 0).astype(np.float32)
    return Scene(name, image, near, valid, foreground_from(near[valid]))


def foreground_from(nearness: npt.NDArray[Any]) -> float:
    """The nearness that best separates known pixels (0 to 1) into near and far."""
    import numpy as np
    from skimage.filters import threshold_otsu

    counts, edges = np.histogram(nearness, 256, (0, 1))
    # By the upper edges of the bins: the threshold is between two bins.
    return float(threshold_otsu(hist=(counts, edges[1:])))


def _registered(
    metres: npt.NDArray[Any], pose: npt.NDArray[Any], depth: tuple[float, ...], color: tuple[float, ...]
) -> npt.NDArray[Any]:
    """Nearness [row, column] as seen by the image's camera, at half its size; 0 if unknown.

    `pose` maps the image camera's coordinates to the depth camera's. Of several points on one pixel the nearest wins.
    """
    import numpy as np

    rows, columns = np.nonzero(metres > 0)
    z = metres[rows, columns]
    fx, fy, cx, cy = depth
    x, y, z = pose[:3, :3].T @ (np.stack([(columns - cx) / fx * z, (rows - cy) / fy * z, z]) - pose[:3, 3:])
    fx, fy, cx, cy = color
    u = ((x / z * fx + cx) / 2).round().astype(int)
    v = ((y / z * fy + cy) / 2).round().astype(int)
    near = np.zeros((metres.shape[0] // 2, metres.shape[1] // 2), np.float32)
    seen = (z > 0) & (u >= 0) & (v >= 0) & (u < near.shape[1]) & (v < near.shape[0])
    np.maximum.at(near, (v[seen], u[seen]), np.minimum(CASTLE_NEAREST_M / z[seen], 1).astype(np.float32))
    return near


def _camera(path: Path) -> tuple[float, ...]:
    """Focal lengths and centre of a pinhole camera, in pixels: fx, fy, cx, cy."""
    root = ElementTree.parse(path).getroot()
    return tuple(float(root.findtext(f"camera/{key}", "nan")) for key in ("px", "py", "u0", "v0"))


def _read(path: Path) -> npt.NDArray[Any]:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))


def _halved(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    rows, columns = image.shape[0] // 2, image.shape[1] // 2
    blocks = image[: rows * 2, : columns * 2].reshape(rows, 2, columns, 2, 3)
    halves: npt.NDArray[Any] = blocks.mean((1, 3)).round().astype(image.dtype)
    return halves


def bands(scene: Scene) -> list[Region]:
    """A stereo image as bands of columns, each a group; the last is held out."""
    width, last = scene.nearness.shape[1], NUM_BANDS - 1
    return [
        Region(
            scene,
            f"{scene.name}-{band}",
            "valid" if band == last else "train",
            width * band // NUM_BANDS,
            width * (band + 1) // NUM_BANDS,
        )
        for band in range(NUM_BANDS)
    ]


def _describe_bands(regions: list[Region]) -> str:
    scene = regions[0].scene
    columns = ", ".join(f"{region.left}..{region.right - 1}" for region in regions)
    return (
        f"{scene.name}: groups are columns {columns} of {scene.nearness.shape[1]}; the last is split valid; "
        f"foreground is nearness from {scene.foreground_from:.3f}"
    )


def write(regions: list[tuple[Region, tuple[int, int]]], into: Path, crop_px: int = CROP_PX) -> list[tuple[str, ...]]:
    """Cuts crops at strides of rows and columns, and writes images and table; returns the rows of the table."""
    from PIL import Image

    for kind in ("images", "masks", "depths", "valids"):
        (into / kind).mkdir()
    rows = []
    for region, (down, right) in regions:
        for top in range(0, region.scene.nearness.shape[0] - crop_px + 1, down):
            for left in range(region.left, region.right - crop_px + 1, right):
                layers = _crop(region.scene, top, left, crop_px)
                if not layers:
                    continue
                name = f"{region.scene.name}-{top:04}-{left:04}"
                files = [f"{kind}/{name}.png" for kind in layers]
                for file, pixels in zip(files, layers.values(), strict=True):
                    Image.fromarray(pixels).save(into / file)
                rows.append((name, *files, region.group, region.split))
    write_table(into / "frames.csv", ("id", "image", "mask", "depth", "valid", "group", "split"), rows)
    return rows


def _crop(scene: Scene, top: int, left: int, crop_px: int) -> dict[str, npt.NDArray[Any]]:
    """The images of a crop by kind; empty if too little of its depth is known."""
    import numpy as np

    window = np.s_[top : top + crop_px, left : left + crop_px]
    valid = scene.valid[window]
    if valid.mean() < _MIN_VALID:
        return {}
    near = np.where(valid, scene.nearness[window], 0)
    return {
        "images": np.ascontiguousarray(scene.image[window]),
        "masks": (valid & (near >= scene.foreground_from)).astype(np.uint8) * np.uint8(255),
        "depths": (near * FULL).round().astype(np.uint16),
        "valids": valid.astype(np.uint8) * np.uint8(255),
    }


SETS = (
    DataSet(
        name="rgbd",
        what="96 px crops with foreground mask and depth, of stereo pairs and a depth camera",
        num_examples=1_081,
        table="frames.csv",
        licence="scikit-image: BSD-3-Clause; opencv-doc: Apache-2.0 and BSD-3-Clause; visp-images-data: GPL-2",
        restrictions="The stereo scenes come from the Middlebury benchmarks: cite their papers.",
        packages=(
            Package("installed", "scikit-image>=0.25"),
            Package(
                "apt",
                "opencv-doc=4.6.0+dfsg-12",
                "4b12681df35878207ac7097dc66184b2ae552e4bf4ddd2af04a0f03ed0b8682a",
                95_715_012,
                ("*/examples/data/aloeL.jpg", "*/examples/data/aloeGT.png"),
                optional=True,
            ),
            Package(
                "apt",
                "visp-images-data=3.5.0-1",
                "8d78de2b5d0ff5536ae5c281b11a5011fd6e95cd717c2e0ebf38bacf57723a9d",
                74_583_096,
                ("*/mbt-depth/castel/*",),
                optional=True,
            ),
        ),
        prepare=prepare,
        needs=("numpy", "pillow"),
        recipe=2,
    ),
)

if __name__ == "__main__":
    sys.exit(main(SETS))
