"""Small images of ten classes.

digits         1,797 handwritten digits, 8 x 8 gray pixels: `digits.csv` with id, image, label. BSD-3-Clause.
fashion-mnist  60,000 clothes, 28 x 28 gray pixels, and 10,000 to test: images.npy, labels.npy, test-images.npy,
               test-labels.npy. MIT.
"""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from fetch import main, write_table
from packages import needed

with needed():
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

_DIGIT_WHITE = 16


def prepare_digits(sources: Mapping[str, Path], into: Path) -> list[str]:
    """The digits that scikit-learn ships, one PNG each."""
    (into / "images").mkdir()
    rows = []
    for number, (image, label) in enumerate(zip(load_digits().images, load_digits().target, strict=True)):
        name = f"digit-{number:04}"
        Image.fromarray((image * 255 / _DIGIT_WHITE).round().astype(np.uint8)).save(into / f"images/{name}.png")
        rows.append((name, f"images/{name}.png", label))
    return [write_table(into / "digits.csv", ("id", "image", "label"), rows)]


def prepare_fashion(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Fashion-MNIST: images uint8 [rows, 28, 28] and labels int64 [rows] of its training and its test part."""
    package = sources["dataset-fashion-mnist"]
    root = next(package.glob("**/fashion-mnist/train-images-idx3-ubyte.gz")).parent
    for part, prefix in (("train", ""), ("t10k", "test-")):
        # Bytes after a head of 4 bytes, and of 4 for each axis.
        images = np.frombuffer(gzip.decompress((root / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
        labels = np.frombuffer(gzip.decompress((root / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
        np.save(into / f"{prefix}images.npy", images.reshape(-1, 28, 28))
        np.save(into / f"{prefix}labels.npy", labels.astype(np.int64))
    shutil.copy(next(package.glob("**/copyright")), into / "LICENSE.txt")
    return ["images.npy, labels.npy: the training part; test-images.npy, test-labels.npy: the test part"]


if __name__ == "__main__":
    sys.exit(main({"digits": prepare_digits, "fashion-mnist": prepare_fashion}))
