"""Texts with labels as a task's datasets: words as numbers, all of one static length.

The vocabulary is made from the training texts alone. The top of this module is torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data import identity
from engine.data.options import TextData
from engine.data.place import located
from engine.data.rows import Ints, Rows
from engine.data.sources import cut, open_inputs, open_test
from engine.data.vocabulary import PADDING, Vocabulary
from engine.task import Splits

if TYPE_CHECKING:
    import torch


class Encoded(NamedTuple):
    """Texts as numbers."""

    words: npt.NDArray[np.int32]
    """[texts, length] numbers of the words, padded with 0."""
    lengths: Ints
    """[texts] how many of them are words, at most `length`."""


def encode(texts: Sequence[str], vocabulary: Vocabulary, length: int, pad: str = "right") -> Encoded:
    """The first `length` words of each text, padded on the side `pad`."""
    words = np.full((len(texts), length), PADDING, dtype=np.int32)
    lengths = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        numbers = vocabulary.numbers(text)[:length]
        lengths[row] = len(numbers)
        start = length - len(numbers) if pad == "left" else 0
        words[row, start : start + len(numbers)] = numbers
    return Encoded(words, lengths)


class Texts:
    """Encoded texts held in memory, four bytes a word."""

    def __init__(self, encoded: Encoded, rows: Rows, which: Ints, vocabulary: Vocabulary) -> None:
        """`encoded` holds the texts `which` of `rows`, in that order."""
        self.vocabulary = vocabulary
        """What the numbers mean."""
        self._encoded = encoded
        self.rows = rows
        """All rows, those of the other split too."""
        self.which = which
        """[examples] row of each example in `rows`."""
        self._labels: npt.NDArray[Any] | None = None if rows.labels is None else rows.labels[which]
        self._texts: list[str] = [rows.texts[row] for row in which] if rows.texts is not None else []

    def __len__(self) -> int:
        return len(self._encoded.lengths)

    def fetch(self, indices: Ints) -> dict[str, torch.Tensor]:
        """`words` int64 [n, length], `length` int64 [n] and, where there are labels, `label`."""
        import torch

        tensors = {
            "words": torch.from_numpy(self._encoded.words[indices].astype(np.int64)),
            "length": torch.from_numpy(self._encoded.lengths[indices]),
        }
        if self._labels is not None:
            tensors["label"] = torch.from_numpy(self._labels[indices])
        return tensors

    def identities(self, indices: Ints) -> dict[str, npt.NDArray[Any]]:
        """Columns by which a user knows these examples again."""
        return self.rows.identities(self.which[indices])

    def name(self, index: int) -> str:
        """The beginning of a text."""
        return self._texts[index][:60]


def load(options: TextData, seed: int) -> Splits:
    """The splits of the options, encoded by `vocabulary_of` them. Raises `ValueError` or `OSError`."""
    parts = cut(options, seed)
    vocabulary = _vocabulary(options, parts.rows, parts.train)
    halves = [_texts(options, parts.rows, which, vocabulary) for which in (parts.train, parts.valid)]
    of = identity.of(parts, vocabulary=vocabulary.words)
    return Splits(halves[0], halves[1], parts.rows.dropped, parts.notes, of)


def inputs(options: TextData, source: Path, vocabulary: Vocabulary, classes: Sequence[str] | None = None) -> Texts:
    """Texts of a user's table for predictions, with labels if it has them. Raises as `load` does."""
    return _all(options, open_inputs(options, source, classes), vocabulary)


def load_test(options: TextData, vocabulary: Vocabulary, classes: Sequence[str] | None = None) -> Texts:
    """The test split of the options' source. Raises as `load` does, also if there is none."""
    return _all(options, open_test(options, classes), vocabulary)


def vocabulary_of(options: TextData, seed: int) -> Vocabulary:
    """The vocabulary in the options' file, or that of the training texts. Raises as `load` does."""
    if options.vocabulary:
        return Vocabulary.load(Path(located(options.vocabulary)).expanduser())
    parts = cut(options, seed)
    return _vocabulary(options, parts.rows, parts.train)


def _vocabulary(options: TextData, rows: Rows, train: Ints) -> Vocabulary:
    if options.vocabulary:
        return Vocabulary.load(Path(located(options.vocabulary)).expanduser())
    assert rows.texts is not None
    return Vocabulary.of((rows.texts[row] for row in train), options.max_words, options.min_count)


def _all(options: TextData, rows: Rows, vocabulary: Vocabulary) -> Texts:
    return _texts(options, rows, np.arange(len(rows), dtype=np.int64), vocabulary)


def _texts(options: TextData, rows: Rows, which: Ints, vocabulary: Vocabulary) -> Texts:
    assert rows.texts is not None
    encoded = encode([rows.texts[row] for row in which], vocabulary, options.length, options.pad)
    return Texts(encoded, rows, which, vocabulary)
