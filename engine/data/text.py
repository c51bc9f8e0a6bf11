"""Datasets of texts with labels: tokenizer, vocabulary, and texts encoded to one static length.

A word is a run of letters, digits and underscores of any script, with apostrophes inside, in lower case. The vocabulary
is built from the training texts only. Importing this module does not import torch.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.file_readers import source_path
from engine.data.options import TextData
from engine.data.rows import Ints, RowDataset, Rows, refuse
from engine.data.sources import open_inputs, open_test, split_rows
from engine.task import Splits
from tputui.engine_api import expanded
from tputui.reporting import write_file

if TYPE_CHECKING:
    import torch


WORD = re.compile(r"\w+(?:'\w+)*")
PADDING, UNKNOWN = 0, 1
FIRST_WORD = 2
"""Numbers below are reserved."""


def tokens(text: str) -> list[str]:
    """The words of a text, in lower case; a typographic apostrophe counts as a plain one."""
    return WORD.findall(text.lower().replace("\u2019", "'"))


class Vocabulary:
    """The number of each word: 2 and upwards, the most frequent word first."""

    def __init__(self, words: Iterable[str]) -> None:
        """`words` in the order of their numbers."""
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words, start=FIRST_WORD)}

    def __len__(self) -> int:
        """Number of rows of an embedding, including the reserved numbers."""
        return len(self.words) + FIRST_WORD

    @classmethod
    def of(cls, texts: Iterable[str], max_words: int, min_count: int = 1) -> Vocabulary:
        """The most frequent words of the texts, at most `max_words` numbers; ties in alphabetical order."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokens(text))
        ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls(word for _, word in ranked[: max(0, max_words - FIRST_WORD)])

    def numbers(self, text: str) -> list[int]:
        """The number of each word of a text; 1 for an unknown word."""
        numbers = self._numbers
        return [numbers.get(word, UNKNOWN) for word in tokens(text)]

    def text(self, numbers: Iterable[int]) -> str:
        """The words of the numbers, without padding, `?` for an unknown word."""
        unpadded = (number for number in numbers if number != PADDING)
        return " ".join(self.words[number - FIRST_WORD] if number >= FIRST_WORD else "?" for number in unpadded)

    def save(self, path: Path) -> None:
        """Writes the words as a JSON list in the order of their numbers."""
        text = json.dumps({"first": FIRST_WORD, "words": self.words}, ensure_ascii=False)
        write_file(path, lambda file: file.write(text.encode()), only_owner=False)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Reads a file that `save` wrote. Raises `ValueError` or `OSError`."""
        try:
            held = json.loads(path.read_text("utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            refuse(f"{path} is not a vocabulary: {error}")
        words = held.get("words") if isinstance(held, dict) and held.get("first") == FIRST_WORD else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            refuse(f'{path} is not a vocabulary: it must hold {{"first": {FIRST_WORD}, "words": [...]}}')
        if len(set(words)) < len(words):
            refuse(f"{path} is not a vocabulary: a word occurs twice")
        return cls(words)


class Encoded(NamedTuple):
    """Texts as word numbers."""

    words: npt.NDArray[np.int32]
    """[texts, length] word numbers, padded with 0."""
    lengths: Ints
    """[texts] number of words without padding, at most `length`."""


def encode(texts: Sequence[str], vocabulary: Vocabulary, length: int, pad: str = "right") -> Encoded:
    """The first `length` words of each text, padded on the side `pad`."""
    padded = np.full((len(texts), length), PADDING, dtype=np.int32)
    lengths = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        numbers = vocabulary.numbers(text)[:length]
        lengths[row] = len(numbers)
        start = length - len(numbers) if pad == "left" else 0
        padded[row, start : start + len(numbers)] = numbers
    return Encoded(padded, lengths)


class Texts(RowDataset):
    """A dataset of encoded texts, held in memory with four bytes per word."""

    def __init__(self, encoded: Encoded, rows: Rows, which: Ints, vocabulary: Vocabulary) -> None:
        """`encoded` holds the texts `which` of `rows`, in that order."""
        super().__init__(rows, which)
        self.vocabulary = vocabulary
        """Maps words to numbers."""
        self._encoded = encoded
        self._texts: list[str] = [rows.texts[row] for row in which] if rows.texts is not None else []

    def fetch(self, indices: Ints) -> dict[str, torch.Tensor]:
        """`words` int64 [n, length], `length` int64 [n], and `label` if there are labels."""
        import torch

        tensors = {
            "words": torch.from_numpy(self._encoded.words[indices].astype(np.int64)),
            "length": torch.from_numpy(self._encoded.lengths[indices]),
        }
        return self._with_labels(tensors, indices)

    def name(self, index: int) -> str:
        """The first 60 characters of a text."""
        return self._texts[index][:60]


def load(options: TextData, seed: int) -> Splits:
    """The training and validation splits, encoded with the options' vocabulary. Raises `ValueError` or `OSError`."""
    parts = split_rows(options, seed)
    vocabulary = _vocabulary(options, parts.rows, parts.train)
    return parts.splits(lambda which: _texts(options, parts.rows, which, vocabulary), vocabulary=vocabulary.words)


def inputs(options: TextData, source: Path, vocabulary: Vocabulary, classes: Sequence[str] | None = None) -> Texts:
    """The texts of a user's table for predictions, with labels if it has them. Raises as `load` does."""
    return _texts(options, open_inputs(options, source, classes), None, vocabulary)


def load_test(options: TextData, vocabulary: Vocabulary, classes: Sequence[str] | None = None) -> Texts:
    """The test split of the options' source. Raises as `load` does, also if there is none."""
    return _texts(options, open_test(options, classes), None, vocabulary)


def _vocabulary(options: TextData, rows: Rows, train: Ints) -> Vocabulary:
    if options.vocabulary:
        return Vocabulary.load(expanded(source_path(options.vocabulary)))
    assert rows.texts is not None
    return Vocabulary.of((rows.texts[row] for row in train), options.max_words, options.min_count)


def _texts(options: TextData, rows: Rows, which: Ints | None, vocabulary: Vocabulary) -> Texts:
    assert rows.texts is not None
    which = rows.every if which is None else which
    encoded = encode([rows.texts[row] for row in which], vocabulary, options.length, options.pad)
    return Texts(encoded, rows, which, vocabulary)
