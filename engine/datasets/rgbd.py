"""Image crops with a foreground mask and depth, from stereo pairs and a depth camera: `frames.csv` and PNG files.

Columns: id, image (RGB), mask (0 or 255), depth (16-bit), valid (0 or 255), group, split. Depth is nearness, that is
inverse depth: 0 unknown or far, 65535 the nearest of its scene; stereo disparity is nearness up to an offset.
Foreground is nearer than a threshold of its scene. No pixel belongs to two groups, so none is in both splits. Needs
numpy and Pillow.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
import xml.etree.ElementTree
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEVELS = 256
"""Number of nearness levels that the threshold search compares."""
METRES_PER_COUNT = 0.000124986647
"""Unit of the depth camera's counts, from ViSP's examples for these files."""
CASTLE_NEAREST_M = 0.18


class Scene(NamedTuple):
    """One image with its depth, all arrays of the same height and width."""

    name: str
    image: npt.NDArray[np.uint8]
    """[row, column, 3] red, green, blue."""
    nearness: npt.NDArray[np.float32]
    """[row, column] 0 to 1, 0 where unknown."""
    valid: npt.NDArray[np.bool_]
    """[row, column] whether nearness is known."""
    foreground_from: float
    """Nearness threshold of the foreground."""


class Camera(NamedTuple):
    """A pinhole camera, in pixels."""

    fx: float
    fy: float
    cx: float
    cy: float


def motorcycle(left: Path, disparity: Path) -> Scene:
    """The left image of scikit-image's stereo pair, 741 x 500."""
    import numpy as np

    with np.load(disparity) as file:
        found = file["arr_0"].astype(np.float32)
    return _of_disparity("motorcycle", _read(left), found, np.isfinite(found))


def aloe(root: Path) -> Scene:
    """The left image of OpenCV's sample pair at half its size, 641 x 555."""
    import numpy as np

    folder = next(root.glob("**/aloeGT.png")).parent
    image = _read(folder / "aloeL.jpg")
    found = _read(folder / "aloeGT.png")[..., 0].astype(np.float32)
    half = np.s_[: found.shape[0] // 2 * 2 : 2, : found.shape[1] // 2 * 2 : 2]
    rows, columns = found[half].shape
    small = image[: rows * 2, : columns * 2].reshape(rows, 2, columns, 2, 3).mean((1, 3)).round().astype(np.uint8)
    # Nearest, not averaged: a mean over an edge would be a distance at which there is nothing.
    return _of_disparity("aloe", small, found[half], found[half] > 0)


def castle(root: Path) -> list[Scene]:
    """The frames of ViSP's depth camera at half their size, 320 x 240: gray, with the depth projected to the image."""
    import numpy as np

    folder = next(root.glob("**/depth_M_color.txt")).parent
    pose = np.loadtxt(folder / "depth_M_color.txt")
    cameras = _camera(folder / "chateau_depth.xml"), _camera(folder / "chateau.xml")
    found = []
    for path in sorted((folder / "castel").glob("image_*.pgm")):
        counts = _read_counts(path.with_name(f"depth_{path.stem}.bin"))
        near = _registered(counts * METRES_PER_COUNT, pose, *cameras)
        image = _read(path)
        rows, columns = near.shape
        small = image.reshape(rows, 2, columns, 2, 3).mean((1, 3)).round().astype(np.uint8)
        found.append((path.stem.removeprefix("image_"), small, near))
    known = np.concatenate([near[near > 0] for _, _, near in found])
    start = otsu_threshold(known)
    return [Scene(f"castle-{number}", image, near, near > 0, start) for number, image, near in found]


def _of_disparity(
    name: str, image: npt.NDArray[np.uint8], disparity: npt.NDArray[np.float32], valid: npt.NDArray[np.bool_]
) -> Scene:
    import numpy as np

    near = np.where(valid, disparity / disparity[valid].max(), 0).astype(np.float32)
    return Scene(name, image, near, valid, otsu_threshold(near[valid]))


def otsu_threshold(nearness: npt.NDArray[np.float32]) -> float:
    """The nearness threshold that best separates known pixels (0 to 1) into near and far (Otsu, 1979)."""
    import numpy as np

    counts, edges = np.histogram(nearness, LEVELS, (0, 1))
    far = np.cumsum(counts)[:-1]
    near = len(nearness) - far
    sums = np.cumsum(counts * (edges[:-1] + edges[1:]) / 2)
    gap = sums[:-1] / np.maximum(far, 1) - (sums[-1] - sums[:-1]) / np.maximum(near, 1)
    return float(edges[1:-1][np.argmax(far * near * gap**2)])


def _registered(metres: npt.NDArray[Any], pose: npt.NDArray[Any], depth: Camera, color: Camera) -> npt.NDArray[Any]:
    """Nearness [row, column] as seen by the image's camera, at half its size; 0 if unknown.

    `pose` maps the image camera's coordinates to the depth camera's. Of several points on one pixel the nearest wins.
    """
    import numpy as np

    rows, columns = np.nonzero(metres > 0)
    z = metres[rows, columns]
    points = np.stack([(columns - depth.cx) / depth.fx * z, (rows - depth.cy) / depth.fy * z, z])
    x, y, z = pose[:3, :3].T @ (points - pose[:3, 3:])
    u = ((x / z * color.fx + color.cx) / 2).round().astype(int)
    v = ((y / z * color.fy + color.cy) / 2).round().astype(int)
    near = np.zeros((metres.shape[0] // 2, metres.shape[1] // 2), np.float32)
    seen = (z > 0) & (u >= 0) & (v >= 0) & (u < near.shape[1]) & (v < near.shape[0])
    np.maximum.at(near, (v[seen], u[seen]), np.minimum(CASTLE_NEAREST_M / z[seen], 1).astype(np.float32))
    return near


def _read(path: Path) -> npt.NDArray[np.uint8]:
    import numpy as np
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def _read_counts(path: Path) -> npt.NDArray[np.uint16]:
    """A depth frame: height and width as 32-bit integers, then the counts."""
    import numpy as np

    body = path.read_bytes()
    height, width = np.frombuffer(body, "<u4", 2)
    return np.frombuffer(body, "<u2", offset=8).reshape(height, width)


def _camera(path: Path) -> Camera:
    found = xml.etree.ElementTree.parse(path).find("camera")
    if found is None:
        raise ValueError(f"{path.name}: it has no camera parameters")
    fx, fy, cx, cy = (float(found.findtext(key, "nan")) for key in ("px", "py", "u0", "v0"))
    return Camera(fx, fy, cx, cy)


CROP_PX = 96
NUM_BANDS = 4
"""Number of column bands of a stereo image, each a group; the last is held out."""
FULL = 65_535
_MIN_VALID = 0.5
"""Minimum share of known depth in a crop."""


class Stride(NamedTuple):
    """Distance between the starts of crops, in pixels."""

    rows: int
    columns: int


class Region(NamedTuple):
    """The columns from `left` to below `right` of a scene; its crops form one group."""

    scene: Scene
    group: str
    split: str
    left: int
    right: int


def prepare(sources: Mapping[str, Path], into: Path, crop_px: int = CROP_PX) -> list[str]:
    """Writes the crops of every scene whose package was downloaded."""
    stereo = [motorcycle(sources["motorcycle_left.png"], sources["motorcycle_disp.npz"])]
    if "opencv-doc" in sources:
        stereo.append(aloe(sources["opencv-doc"]))
    cut = [bands(scene) for scene in stereo]
    notes = [_describe_bands(regions) for regions in cut]
    strides = [(region, Stride(24, 16)) for regions in cut for region in regions]
    if "visp-images-data" in sources:
        frames = castle(sources["visp-images-data"])
        strides += [(region, Stride(72, 72)) for region in _frames(frames, notes)]
    rows = write(strides, into, crop_px)
    for split in ("train", "valid"):
        notes.append(f"frames.csv: {sum(row[-1] == split for row in rows)} crops of {crop_px} pixels in split {split}")
    return [*notes, "depth: nearness (inverse depth), 65535 the nearest of its scene, 0 where valid is 0"]


def write(regions: list[tuple[Region, Stride]], into: Path, crop_px: int) -> list[tuple[str, ...]]:
    """Cuts the crops and writes images and table; returns the rows of the table."""
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
    """Crops with enough known depth, as the images that are written."""
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


def bands(scene: Scene) -> list[Region]:
    """A stereo image as bands of columns, each a group; the last is held out."""
    width = scene.nearness.shape[1]
    edges = [width * band // NUM_BANDS for band in range(NUM_BANDS + 1)]
    last = NUM_BANDS - 1
    return [
        Region(scene, f"{scene.name}-{band}", "valid" if band == last else "train", edges[band], edges[band + 1])
        for band in range(NUM_BANDS)
    ]


def _describe_bands(regions: list[Region]) -> str:
    scene = regions[0].scene
    columns = ", ".join(f"{region.left}..{region.right - 1}" for region in regions)
    return (
        f"{scene.name}: groups are columns {columns} of {scene.nearness.shape[1]}; the last is split valid; "
        f"foreground is nearness from {scene.foreground_from:.3f}"
    )


def _frames(frames: list[Scene], notes: list[str]) -> list[Region]:
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
