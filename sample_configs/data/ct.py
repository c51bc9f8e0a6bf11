"""CT slices as JPEG images whose red, green and blue are three CT windows, with two tables of ten binary labels.

train.csv    id, image, study, slab, ten organs: the slices of one abdomen, and what its segmentation shows in each.
tissues.csv  id, image, study, slab, ten tissues: the slices of four patients, with labels computed from the Hounsfield
             units of the slice, not by a radiologist.

Neighbouring slices look alike, so folds must keep a slab, or better a study, together. Apache-2.0 and BSD-3-Clause; not
for diagnosis.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fetch import main, write_table
from packages import needed

with needed():
    import nibabel
    import numpy as np
    import numpy.typing as npt
    from PIL import Image

SIDE_PX = 256
SLAB_SLICES = 12
"""Neighbouring slices that share the group `slab`."""
ORGANS = {
    **{"spleen": 1, "kidney_right": 2, "kidney_left": 3, "liver": 5, "stomach": 6, "pancreas": 7},
    **{"small_bowel": 18, "urinary_bladder": 21, "sacrum": 25, "aorta": 52},
}
"""The organs by their number in the segmentation, numbered as in task `total` of TotalSegmentator."""
WINDOWS = ((-600, 1500), (100, 700), (40, 400))
"""Centre and width in HU of what is black to white in red, green and blue: lung, vessels with contrast, mediastinum."""
TISSUES = {
    "lung": (-980, -600, 0.08),
    "lung_wide": (-980, -600, 0.25),
    "gas": (-1100, -980, 0.004),
    "fat_rich": (-150, -30, 0.35),
    "fluid": (-10, 15, 0.07),
    "soft_rich": (20, 80, 0.20),
    "enhanced": (80, 130, 0.03),
    "contrast": (130, 250, 0.03),
    "bone": (250, 4000, 0.03),
    "bone_dense": (700, 4000, 0.005),
}
"""The label is 1 if voxels from the first to below the second HU make up at least this share of the body in a slice."""
_BODY_HU = -300
_COLUMNS = ("id", "image", "study", "slab")


def prepare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Writes the images of all slices and both tables."""
    (segmentator,) = sources["totalsegmentator"].glob("*/LICENSE")
    (radiomics,) = sources["pyradiomics"].glob("*/LICENSE.txt")
    reference = segmentator.parent / "tests/reference_files"
    organs = read_nifti(reference / "example_seg_fast_force_split.nii.gz")
    volumes = {
        "abdomen": read_nifti(reference / "example_ct.nii.gz"),
        "thorax": read_nifti(reference / "aorta_report/example_ct.nii.gz"),
        "lung1": read_nrrd(radiomics.parent / "data/lung1_image.nrrd"),
        "lung2": read_nrrd(radiomics.parent / "data/lung2_image.nrrd"),
    }
    (into / "images").mkdir()
    train: list[tuple[Any, ...]] = []
    tissues: list[tuple[Any, ...]] = []
    for study, voxels in volumes.items():
        for number, plane in enumerate(voxels):
            name = f"{study}-{number:03}"
            _write_image(plane, into / f"images/{name}.jpg")
            row = (name, f"images/{name}.jpg", study, f"{study}-slab-{number // SLAB_SLICES:02}")
            tissues.append((*row, *tissue_labels(plane)))
            if study == "abdomen":
                train.append((*row, *(int((organs[number] == code).any()) for code in ORGANS.values())))
    shutil.copy(segmentator, into / "LICENSE-totalsegmentator.txt")
    shutil.copy(radiomics, into / "LICENSE-pyradiomics.txt")
    ranges = ", ".join(f"{name} {low}..{high} HU {share:g}" for name, (low, high, share) in TISSUES.items())
    return [
        write_table(into / "train.csv", (*_COLUMNS, *ORGANS), train),
        write_table(into / "tissues.csv", (*_COLUMNS, *TISSUES), tissues),
        f"images: red, green and blue are the windows (centre, width in HU) {', '.join(map(str, WINDOWS))}",
        "organs: at least one voxel of the organ in the slice, by the reference segmentation that the package ships",
        f"tissues: share of the body's voxels in this slice at least: {ranges}",
        f"slab: {SLAB_SLICES} neighbouring slices of a study",
    ]


def read_nifti(path: Path) -> npt.NDArray[Any]:
    """A NIfTI volume [slice, row, column]: upwards, to the back, to the left."""
    image: Any = nibabel.load(path)
    to_the_right = np.asarray(nibabel.as_closest_canonical(image).dataobj)
    return np.ascontiguousarray(to_the_right[::-1, ::-1].transpose(2, 1, 0)).astype(np.int16)


def read_nrrd(path: Path) -> npt.NDArray[Any]:
    """A volume of pyradiomics, in the same orientation: int16, gzip."""
    head, _, body = path.read_bytes().partition(b"\n\n")
    sizes = re.findall(rb"^sizes: (\d+) (\d+) (\d+)", head, re.M)[0]
    return np.frombuffer(gzip.decompress(body), "<i2").reshape([int(size) for size in sizes[::-1]])


def tissue_labels(plane: npt.NDArray[Any]) -> list[int]:
    """The ten labels of a slice in HU [row, column]."""
    body = plane > _BODY_HU
    # A voxel is inside if the body lies in all four directions: includes lungs and bowel gas, excludes the room.
    inside = np.ones_like(body)
    for axis in (0, 1):
        inside &= np.logical_or.accumulate(body, axis)
        inside &= np.flip(np.logical_or.accumulate(np.flip(body, axis), axis), axis)
    found, total = plane[inside], max(inside.sum(), 1)
    shares = [((found >= low) & (found < high)).sum() / total for low, high, _ in TISSUES.values()]
    return [int(share >= least) for share, (_, _, least) in zip(shares, TISSUES.values(), strict=True)]


def _write_image(plane: npt.NDArray[Any], path: Path) -> None:
    """A slice through the three windows, padded with air to a square first to keep the aspect ratio."""
    side = max(plane.shape)
    square = np.full((side, side), -1024, np.float32)
    top, left = (side - plane.shape[0]) // 2, (side - plane.shape[1]) // 2
    square[top : top + plane.shape[0], left : left + plane.shape[1]] = plane
    shades = [np.clip((square - centre) / width + 0.5, 0, 1) * 255 for centre, width in WINDOWS]
    image = Image.fromarray(np.stack(shades, axis=-1).round().astype(np.uint8))
    # Full colour resolution: the channels are three windows, not the colours of a photograph.
    image.resize((SIDE_PX, SIDE_PX), Image.Resampling.BILINEAR).save(path, quality=92, subsampling=0)


if __name__ == "__main__":
    sys.exit(main({"ct": prepare}))
