"""Crops with a foreground mask and depth, of stereo pairs and a depth camera: `frames.csv` and PNG files.

Columns: id, image (RGB), mask (0 or 255), depth (16-bit), valid (0 or 255), group, split. Depth is nearness, that is
inverse depth: 0 unknown or far, 65535 the nearest of its scene; stereo disparity is nearness up to an offset.
Foreground is nearer than Otsu's threshold of its scene. No pixel belongs to two groups, so none is in both splits.
BSD-3-Clause, Apache-2.0, GPL-2. Without apt-get only scikit-image's stereo pair is prepared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from fetch import main, write_table
from packages import needed

with needed():
    import numpy as np
    import numpy.typing as npt
    from PIL import Image
    from skimage.data import stereo_motorcycle
    from skimage.filters import threshold_otsu
    from skimage.transform import downscale_local_mean

METRES_PER_COUNT = 0.000124986647
"""Unit of the depth camera's counts, from ViSP's examples for these files."""
CASTLE_NEAREST_M = 0.18
CROP_PX = 96
NUM_BANDS = 4
"""Number of column bands of a stereo image, each a group; the last is held out."""
FULL = 65_535
_MIN_KNOWN = 0.5
"""Minimum share of known depth in a crop."""


class Scene(NamedTuple):
    """One image with its depth, of the same height and width."""

    name: str
    image: npt.NDArray[Any]
    """[row, column, 3] red, green, blue."""
    nearness: npt.NDArray[Any]
    """[row, column] 0 to 1, 0 where unknown."""
    foreground_from: float
    """Nearness threshold of the foreground."""


class Region(NamedTuple):
    """The columns from `left` to below `right` of a scene; its crops form one group."""

    scene: Scene
    group: str
    split: str
    left: int
    right: int
    stride_px: tuple[int, int]
    """Rows and columns from one crop to the next."""


def prepare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Writes the crops of every scene whose package was downloaded."""
    scenes = [motorcycle(), *([aloe(sources["opencv-doc"])] if "opencv-doc" in sources else [])]
    regions = [region for scene in scenes for region in bands(scene)]
    if "visp-images-data" in sources:
        frames = castle(sources["visp-images-data"])
        size = len(frames) // (NUM_BANDS + 1)
        for number, frame in enumerate(frames):
            split = "valid" if number >= len(frames) - size else "train"
            regions.append(Region(frame, f"castle-{number // size}", split, 0, frame.nearness.shape[1], (72, 72)))
        scenes.append(frames[0])
    return [
        write(regions, into),
        *(f"{scene.name}: foreground is nearness from {scene.foreground_from:.3f}" for scene in scenes),
        "depth: nearness (inverse depth), 65535 the nearest of its scene, 0 where valid is 0",
    ]


def motorcycle() -> Scene:
    """The left image of scikit-image's stereo pair, 741 x 500."""
    left, _, disparity = stereo_motorcycle()
    return _of_disparity("motorcycle", left, np.where(np.isfinite(disparity), disparity, 0))


def aloe(root: Path) -> Scene:
    """The left image of OpenCV's sample pair at half its size, 641 x 555."""
    folder = next(root.glob("**/aloeGT.png")).parent
    disparity = _read(folder / "aloeGT.png")[..., 0].astype(np.float32)
    image = _halved(_read(folder / "aloeL.jpg"))
    # Nearest, not averaged: a mean over an edge would be a distance at which there is nothing.
    return _of_disparity("aloe", image, disparity[::2, ::2][: image.shape[0], : image.shape[1]])


def castle(root: Path) -> list[Scene]:
    """The frames of ViSP's depth camera at half their size, 320 x 240: gray, with the depth projected to the image."""
    folder = next(root.glob("**/depth_M_color.txt")).parent
    pose = np.loadtxt(folder / "depth_M_color.txt")
    cameras = _camera(folder / "chateau_depth.xml"), _camera(folder / "chateau.xml")
    found = {}
    for path in sorted((folder / "castel").glob("image_*.pgm")):
        # Height and width as 32-bit integers, then the counts.
        body = path.with_name(f"depth_{path.stem}.bin").read_bytes()
        counts = np.frombuffer(body, "<u2", offset=8).reshape(np.frombuffer(body, "<u4", 2))
        found[path] = _registered(counts * METRES_PER_COUNT, pose, *cameras)
    start = foreground_from(np.stack(list(found.values())))
    return [
        Scene(f"castle-{path.stem.removeprefix('image_')}", _halved(_read(path)), near, start)
        for path, near in found.items()
    ]


def _of_disparity(name: str, image: npt.NDArray[Any], disparity: npt.NDArray[Any]) -> Scene:
    """The scene of a stereo pair, whose disparity is 0 where it is unknown."""
    near = disparity / disparity.max()
    return Scene(name, image, near, foreground_from(near))


def foreground_from(nearness: npt.NDArray[Any]) -> float:
    """The nearness that best separates known pixels (above 0, up to 1) into near and far."""
    counts, edges = np.histogram(nearness[nearness > 0], 256, (0, 1))
    # By the upper edges of the bins: the threshold is between two bins.
    return float(threshold_otsu(hist=(counts, edges[1:])))


def _registered(
    metres: npt.NDArray[Any], pose: npt.NDArray[Any], depth: tuple[float, ...], color: tuple[float, ...]
) -> npt.NDArray[Any]:
    """Nearness [row, column] as seen by the image's camera, at half its size; 0 if unknown.

    `pose` maps the image camera's coordinates to the depth camera's. Of several points on one pixel the nearest wins.
    """
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
    return np.asarray(Image.open(path).convert("RGB"))


def _halved(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The means of 2 x 2 pixels; an odd last row or column is left out."""
    means = downscale_local_mean(image, (2, 2, 1))[: image.shape[0] // 2, : image.shape[1] // 2]
    return np.asarray(means.round(), np.uint8)


def bands(scene: Scene, stride_px: tuple[int, int] = (24, 16)) -> list[Region]:
    """A stereo image as bands of columns, each a group; the last is held out."""
    edges = [scene.nearness.shape[1] * band // NUM_BANDS for band in range(NUM_BANDS + 1)]
    splits = ["train"] * (NUM_BANDS - 1) + ["valid"]
    return [
        Region(scene, f"{scene.name}-{band}", split, edges[band], edges[band + 1], stride_px)
        for band, split in enumerate(splits)
    ]


def write(regions: Iterable[Region], into: Path, crop_px: int = CROP_PX) -> str:
    """Cuts crops, and writes images and table; returns what was done."""
    for kind in ("images", "masks", "depths", "valids"):
        (into / kind).mkdir()
    rows = []
    for region in regions:
        for name, layers in _crops(region, crop_px):
            files = [f"{kind}/{name}.png" for kind in layers]
            for file, pixels in zip(files, layers.values(), strict=True):
                Image.fromarray(pixels).save(into / file)
            rows.append((name, *files, region.group, region.split))
    return write_table(into / "frames.csv", ("id", "image", "mask", "depth", "valid", "group", "split"), rows)


def _crops(region: Region, crop_px: int) -> Iterator[tuple[str, dict[str, npt.NDArray[Any]]]]:
    """The crops in which enough depth is known: the name of each, and its images by kind."""
    scene = region.scene
    for top in range(0, len(scene.nearness) - crop_px + 1, region.stride_px[0]):
        for left in range(region.left, region.right - crop_px + 1, region.stride_px[1]):
            window = np.s_[top : top + crop_px, left : left + crop_px]
            near = scene.nearness[window]
            if (near > 0).mean() >= _MIN_KNOWN:
                yield (
                    f"{scene.name}-{top:04}-{left:04}",
                    {
                        "images": np.ascontiguousarray(scene.image[window]),
                        "masks": (near >= scene.foreground_from).astype(np.uint8) * np.uint8(255),
                        "depths": (near * FULL).round().astype(np.uint16),
                        "valids": (near > 0).astype(np.uint8) * np.uint8(255),
                    },
                )


if __name__ == "__main__":
    sys.exit(main({"rgbd": prepare}))
