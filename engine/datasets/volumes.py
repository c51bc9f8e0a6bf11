"""Reads CT volumes in Hounsfield units from NIfTI and NRRD files. Needs numpy, and nibabel for NIfTI.

An array is int16 [slice, row, column]: slices from the feet up, rows from the front of the body to its back, columns
from its right side to its left, as radiologists look at a slice.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_TO_LPS = ((0, -1), (1, -1), (2, 1))
"""For each axis of R, A, S: its place and sign in what `nibabel` calls left, posterior, superior."""


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
    """An NRRD volume as the sets have them: int16, gzip, axes along left, posterior, superior. Raises `ValueError`."""
    import numpy as np

    head, _, body = path.read_bytes().partition(b"\n\n")
    fields = dict(line.split(": ", 1) for line in head.decode("ascii").splitlines() if ": " in line)
    known = {"type": "short", "encoding": "gzip", "endian": "little", "space": "left-posterior-superior"}
    for key, value in known.items():
        if fields.get(key) != value:
            raise ValueError(f"{path.name}: {key} is {fields.get(key)}, expected {value}")
    sizes = [int(word) for word in fields["sizes"].split()]
    return np.frombuffer(gzip.decompress(body), "<i2").reshape(sizes[::-1])
