"""CT slices as JPEG images with tables of ten binary labels, from the test volumes of two packages.

`train.csv` has the slices of one abdomen, labelled with the organs of its segmentation. `tissues.csv` has the slices of
four patients with ten labels computed from the Hounsfield units of the slice, not by a radiologist. Neighbouring slices
look alike, so folds must keep a slab, or better a study, together. Needs numpy, Pillow and nibabel.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
import gzip
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_TO_LPS = ((0, -1), (1, -1), (2, 1))
"""For each of the axes R, A, S: its index and sign in left, posterior, superior."""


def read_nifti(path: Path) -> npt.NDArray[np.int16]:
    """A NIfTI volume."""
    import nibabel
    import numpy as np

    image: Any = nibabel.load(path)
    orientations: Any = nibabel.orientations
    turned = orientations.ornt_transform(orientations.io_orientation(image.affine), np.array(_TO_LPS, dtype=float))
    voxels = orientations.apply_orientation(np.asarray(image.dataobj), turned)
    return np.ascontiguousarray(voxels.transpose(2, 1, 0)).astype(np.int16)


def read_nrrd(path: Path) -> npt.NDArray[np.int16]:
    """A packaged NRRD volume: int16, gzip, axes left, posterior, superior. Raises `ValueError`."""
    import numpy as np

    head, _, body = path.read_bytes().partition(b"\n\n")
    fields = dict(line.split(": ", 1) for line in head.decode("ascii").splitlines() if ": " in line)
    known = {"type": "short", "encoding": "gzip", "endian": "little", "space": "left-posterior-superior"}
    for key, value in known.items():
        if fields.get(key) != value:
            raise ValueError(f"{path.name}: {key} is {fields.get(key)}, expected {value}")
    sizes = [int(word) for word in fields["sizes"].split()]
    return np.frombuffer(gzip.decompress(body), "<i2").reshape(sizes[::-1])


SIDE_PX = 256
SLAB_SLICES = 12
"""Neighbouring slices that share the group `slab`."""
ORGANS = {
    "spleen": 1,
    "kidney_right": 2,
    "kidney_left": 3,
    "liver": 5,
    "stomach": 6,
    "pancreas": 7,
    "small_bowel": 18,
    "urinary_bladder": 21,
    "sacrum": 25,
    "aorta": 52,
}
"""The organs by their number in the segmentation, numbered as in task `total` of TotalSegmentator."""


class Window(NamedTuple):
    """The range of Hounsfield units that maps to black to white."""

    centre_hu: int
    width_hu: int


WINDOWS = (Window(-600, 1500), Window(100, 700), Window(40, 400))
"""Lung, vessels with contrast, mediastinum: the red, green and blue channel."""


class Tissue(NamedTuple):
    """A label: whether voxels from `low_hu` to below `high_hu` make up at least `share` of the body in the slice."""

    low_hu: int
    high_hu: int
    share: float


TISSUES = {
    "lung": Tissue(-980, -600, 0.08),
    "lung_wide": Tissue(-980, -600, 0.25),
    "gas": Tissue(-1100, -980, 0.004),
    "fat_rich": Tissue(-150, -30, 0.35),
    "fluid": Tissue(-10, 15, 0.07),
    "soft_rich": Tissue(20, 80, 0.20),
    "enhanced": Tissue(80, 130, 0.03),
    "contrast": Tissue(130, 250, 0.03),
    "bone": Tissue(250, 4000, 0.03),
    "bone_dense": Tissue(700, 4000, 0.005),
}
_BODY_HU = -300


class Slice(NamedTuple):
    """One row of both tables."""

    id: str
    image: str
    study: str
    slab: str
    tissues: list[int]
    organs: list[int] | None
    """None if the study has no segmentation."""


def prepare(sources: Mapping[str, Path], into: Path, side_px: int = SIDE_PX) -> list[str]:
    """Writes the images of all slices and both tables."""
    reference = _only(sources["totalsegmentator"], "*/tests/reference_files")
    nrrd = _only(sources["pyradiomics"], "*/data")
    organs = read_nifti(reference / "example_seg_fast_force_split.nii.gz")
    (into / "images").mkdir()
    slices = write_study(into, "abdomen", read_nifti(reference / "example_ct.nii.gz"), organs, side_px)
    slices += write_study(into, "thorax", read_nifti(reference / "aorta_report/example_ct.nii.gz"), None, side_px)
    for name in ("lung1", "lung2"):
        slices += write_study(into, name, read_nrrd(nrrd / f"{name}_image.nrrd"), None, side_px)
    (into / "LICENSE-totalsegmentator.txt").write_bytes(_only(sources["totalsegmentator"], "*/LICENSE").read_bytes())
    (into / "LICENSE-pyradiomics.txt").write_bytes(_only(sources["pyradiomics"], "*/LICENSE.txt").read_bytes())
    return [
        _write_organs(into, slices),
        _write_tissues(into, slices),
        f"images/*.jpg: {side_px} x {side_px} pixels, red, green and blue are the windows (centre, width in HU) "
        + ", ".join(f"({window.centre_hu}, {window.width_hu})" for window in WINDOWS),
        "organs: at least one voxel of the organ in the slice, by the reference segmentation that the package ships",
        "tissues: share of the body's voxels in this slice at least: "
        + ", ".join(f"{name} {kind.low_hu}..{kind.high_hu} HU {kind.share:g}" for name, kind in TISSUES.items()),
        f"slab: {SLAB_SLICES} neighbouring slices of a study",
    ]


def write_study(
    into: Path, study: str, voxels: npt.NDArray[np.int16], organs: npt.NDArray[np.int16] | None, side_px: int
) -> list[Slice]:
    """Writes the images of a volume in HU [slice, row, column] into `images`; returns their rows."""
    rows = []
    for number, plane in enumerate(voxels):
        name = f"{study}-{number:03}"
        _write_picture(plane, into / f"images/{name}.jpg", side_px)
        shown = None if organs is None else [int((organs[number] == code).any()) for code in ORGANS.values()]
        slab = f"{study}-slab-{number // SLAB_SLICES:02}"
        rows.append(Slice(name, f"images/{name}.jpg", study, slab, tissue_labels(plane), shown))
    return rows


def tissue_labels(plane: npt.NDArray[np.int16]) -> list[int]:
    """The ten labels of a slice in HU [row, column]."""
    import numpy as np

    body = plane > _BODY_HU
    # A voxel is inside if the body lies in all four directions: includes lungs and bowel gas, excludes the room.
    inside = np.ones_like(body)
    for axis in (0, 1):
        inside &= np.logical_or.accumulate(body, axis)
        inside &= np.flip(np.logical_or.accumulate(np.flip(body, axis), axis), axis)
    found = plane[inside]
    total = max(found.size, 1)
    return [
        int(np.count_nonzero((found >= kind.low_hu) & (found < kind.high_hu)) / total >= kind.share)
        for kind in TISSUES.values()
    ]


def _write_picture(plane: npt.NDArray[np.int16], path: Path, side_px: int) -> None:
    """A slice through the three windows, padded with air to a square first to keep the aspect ratio."""
    import numpy as np
    from PIL import Image

    side = max(plane.shape)
    square = np.full((side, side), -1024, np.float32)
    top, left = (side - plane.shape[0]) // 2, (side - plane.shape[1]) // 2
    square[top : top + plane.shape[0], left : left + plane.shape[1]] = plane
    shades = [np.clip((square - window.centre_hu) / window.width_hu + 0.5, 0, 1) * 255 for window in WINDOWS]
    picture = Image.fromarray(np.stack(shades, axis=-1).round().astype(np.uint8))
    # Full colour resolution: the channels are three windows, not the colours of a photograph.
    picture.resize((side_px, side_px), Image.Resampling.BILINEAR).save(path, quality=92, subsampling=0)


def _write_organs(into: Path, slices: list[Slice]) -> str:
    rows = [(row, row.organs) for row in slices if row.organs is not None]
    return _write_table(into / "train.csv", list(ORGANS), rows)


def _write_tissues(into: Path, slices: list[Slice]) -> str:
    return _write_table(into / "tissues.csv", list(TISSUES), [(row, row.tissues) for row in slices])


def _write_table(path: Path, labels: list[str], rows: list[tuple[Slice, list[int]]]) -> str:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "image", "study", "slab", *labels))
        writer.writerows((row.id, row.image, row.study, row.slab, *values) for row, values in rows)
    studies, slabs = {row.study for row, _ in rows}, {row.slab for row, _ in rows}
    shares = ", ".join(f"{name} {sum(v[at] for _, v in rows) / len(rows):.2f}" for at, name in enumerate(labels))
    return f"{path.name}: {len(rows)} slices, {len(studies)} studies, {len(slabs)} slabs; share of positives: {shares}"


def _only(root: Path, pattern: str) -> Path:
    """The only path of an unpacked package that matches. Raises `FileNotFoundError`."""
    for path in root.glob(pattern):
        return path
    raise FileNotFoundError(2, "no such file in the package", str(root / pattern))
