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

from packages import DataSet, Package, main, write_table

_DIGIT_WHITE = 16


def prepare_digits(sources: Mapping[str, Path], into: Path) -> list[str]:
    """The digits that scikit-learn ships, one PNG each."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    images, labels = load_digits().images, load_digits().target
    (into / "images").mkdir()
    rows = []
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        name = f"digit-{number:04}"
        Image.fromarray((image * 255 / _DIGIT_WHITE).round().astype(np.uint8)).save(into / f"images/{name}.png")
        rows.append((name, f"images/{name}.png", label))
    write_table(into / "digits.csv", ("id", "image", "label"), rows)
    return [f"digits.csv: {len(rows)} rows; columns id, image, label; images of 8 x 8 gray pixels"]


def prepare_fashion(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Fashion-MNIST: images uint8 [rows, 28, 28] and labels int64 [rows] of its training and its test part."""
    import numpy as np

    root = next(sources["dataset-fashion-mnist"].glob("**/fashion-mnist/train-images-idx3-ubyte.gz")).parent
    notes = []
    for part, prefix in (("train", ""), ("t10k", "test-")):
        # Bytes after a head of 4 bytes, and of 4 for each axis.
        images = np.frombuffer(gzip.decompress((root / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
        labels = np.frombuffer(gzip.decompress((root / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
        np.save(into / f"{prefix}images.npy", images.reshape(-1, 28, 28))
        np.save(into / f"{prefix}labels.npy", labels.astype(np.int64))
        notes.append(f"{prefix}images.npy, {prefix}labels.npy: {len(labels)} rows")
    shutil.copy(next(sources["dataset-fashion-mnist"].glob("**/copyright")), into / "LICENSE.txt")
    return notes


SETS = (
    DataSet(
        name="digits",
        what="handwritten digits of 8 x 8 pixels",
        num_examples=1_797,
        table="digits.csv",
        licence="BSD-3-Clause",
        restrictions="The digits come from the UCI repository (Alpaydin and Kaynak, 1998): name it where you show "
        "results.",
        packages=(Package("installed", "scikit-learn>=1.5"),),
        prepare=prepare_digits,
        needs=("numpy", "pillow"),
    ),
    DataSet(
        name="fashion-mnist",
        what="clothes of 28 x 28 pixels in ten classes, as arrays",
        num_examples=70_000,
        table="images.npy",
        licence="MIT",
        restrictions="",
        packages=(
            Package(
                "apt",
                "dataset-fashion-mnist=0.0~git20200523.55506a9-1",
                "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                30_900_652,
                ("*/fashion-mnist/*-ubyte.gz", "*/copyright"),
            ),
        ),
        prepare=prepare_fashion,
        needs=("numpy",),
    ),
)

if __name__ == "__main__":
    sys.exit(main(SETS))
