"""Small images of ten classes: handwritten digits as a table with PNG files, clothes as `.npy` arrays.

Needs numpy, and Pillow for the digits.
"""

from __future__ import annotations

import csv
import gzip
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DIGIT_PX = 8
_DIGIT_WHITE = 16
_IDX_UINT8 = 8
"""The code of unsigned bytes in the header of an idx file."""


def prepare_digits(sources: Mapping[str, Path], into: Path) -> list[str]:
    """scikit-learn's digits: `digits.csv` with id, image and label, and one gray PNG each."""
    import numpy as np
    from PIL import Image

    with gzip.open(sources["digits.csv.gz"], "rt", newline="") as file:
        table = np.array([[int(cell) for cell in row] for row in csv.reader(file)])
    pixels = (table[:, :-1] * 255 / _DIGIT_WHITE).round().astype(np.uint8).reshape(-1, DIGIT_PX, DIGIT_PX)
    (into / "images").mkdir()
    with (into / "digits.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "image", "label"))
        for number, (image, label) in enumerate(zip(pixels, table[:, -1].tolist(), strict=True)):
            name = f"digit-{number:04}"
            Image.fromarray(image).save(into / f"images/{name}.png")
            writer.writerow((name, f"images/{name}.png", label))
    return [f"digits.csv: {len(pixels)} rows; columns id, image, label; images of {DIGIT_PX} x {DIGIT_PX} gray pixels"]


def prepare_fashion(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Fashion-MNIST: images uint8 [rows, 28, 28] and labels int64 [rows] of its training and its test part."""
    import numpy as np

    root = next(sources["dataset-fashion-mnist"].glob("**/fashion-mnist/train-images-idx3-ubyte.gz")).parent
    notes = []
    for part, prefix in (("train", ""), ("t10k", "test-")):
        images = read_idx(root / f"{part}-images-idx3-ubyte.gz")
        labels = read_idx(root / f"{part}-labels-idx1-ubyte.gz").astype(np.int64)
        np.save(into / f"{prefix}images.npy", images)
        np.save(into / f"{prefix}labels.npy", labels)
        notes.append(f"{prefix}images.npy, {prefix}labels.npy: {len(labels)} rows")
    shutil.copy(next(sources["dataset-fashion-mnist"].glob("**/copyright")), into / "LICENSE.txt")
    return notes


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array of a gzipped idx file of bytes. Raises `ValueError`."""
    import numpy as np

    body = gzip.decompress(path.read_bytes())
    if body[:3] != bytes([0, 0, _IDX_UINT8]):
        raise ValueError(f"{path.name} is not an idx file of bytes")
    num_axes = body[3]
    shape = np.frombuffer(body, ">u4", num_axes, offset=4)
    return np.frombuffer(body, np.uint8, offset=4 + 4 * num_axes).reshape(shape)
