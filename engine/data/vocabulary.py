"""Words of a text and their numbers: the tokenizer and the vocabulary. Pure but for its JSON file; no torch.

A word is a run of letters, digits and underscores of any script, with apostrophes inside it, in lower case; all else
separates words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from engine.data.row_errors import refuse

WORD = re.compile(r"\w+(?:'\w+)*")
PADDING, UNKNOWN = 0, 1
FIRST_WORD = 2
"""Numbers below it are reserved."""


def tokens(text: str) -> list[str]:
    """The words of a text, in lower case; a typographic apostrophe counts as a plain one."""
    return WORD.findall(text.lower().replace("\u2019", "'"))


class Vocabulary:
    """Which number each word has: 2 and upwards, the most frequent word first."""

    def __init__(self, words: Iterable[str]) -> None:
        """`words` in the order of their numbers."""
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(self.words, start=FIRST_WORD)}

    def __len__(self) -> int:
        """How many numbers there are, the reserved ones too: rows of an embedding."""
        return len(self.words) + FIRST_WORD

    @classmethod
    def of(cls, texts: Iterable[str], max_words: int, min_count: int = 1) -> Vocabulary:
        """The most frequent words of the texts, at most `max_words` numbers; equally frequent ones by the alphabet."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokens(text))
        ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls(word for _, word in ranked[: max(0, max_words - FIRST_WORD)])

    def numbers(self, text: str) -> list[int]:
        """The number of each word of a text; 1 for a word that is not in the vocabulary."""
        known = self._numbers
        return [known.get(word, UNKNOWN) for word in tokens(text)]

    def text(self, numbers: Iterable[int]) -> str:
        """The words of the numbers, padding left away, `?` for an unknown word."""
        found = (number for number in numbers if number != PADDING)
        return " ".join(self.words[number - FIRST_WORD] if number >= FIRST_WORD else "?" for number in found)

    def save(self, path: Path) -> None:
        """Writes JSON: the list of the words in the order of their numbers."""
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(json.dumps({"first": FIRST_WORD, "words": self.words}, ensure_ascii=False), "utf-8")
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Reads what `save` wrote. Raises `ValueError` or `OSError`."""
        try:
            held = json.loads(path.read_text("utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            refuse(f"{path} is no vocabulary: {error}")
        words = held.get("words") if isinstance(held, dict) and held.get("first") == FIRST_WORD else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            refuse(f'{path} is no vocabulary: it must hold {{"first": {FIRST_WORD}, "words": [...]}}')
        if len(set(words)) < len(words):
            refuse(f"{path} is no vocabulary: a word stands there twice")
        return cls(words)
