"""How well an entry of the help or of the palette is what somebody typed: whole words before parts of words. Pure."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")

BEST = 6


def grade(wanted: str, word: str, named: str, told: str = "") -> int:
    """From 0, where a word of `wanted` is nowhere, to `BEST`, where it is the one `word` of the entry; between them
    whole words of what the entry is `named`, those of what is `told` of it, beginnings of words, parts of words."""
    parts = wanted.lower().split()
    if parts and " ".join(parts) == word.lower():
        return BEST
    named = f"{word} {named}"
    return min((_of_part(part, named.lower(), told.lower()) for part in parts), default=BEST)


def _of_part(part: str, named: str, told: str) -> int:
    for points, text in ((5, named), (4, told)):
        if part in _WORD.findall(text) or part in text.split():
            return points
    for points, text in ((3, named), (2, told)):
        if any(word.startswith(part) for word in _WORD.findall(text)):
            return points
    return 1 if part in named or part in told else 0
