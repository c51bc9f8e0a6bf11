"""Names that do not fit, shortened so that different ones stay different: `layer3/…_4/grad_norm`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

from tputui.ui.render.lines import crop

_TOKEN = re.compile(r"\d+|[^\W\d_]+|.", re.DOTALL)
_ELLIPSIS = "\u2026"
_PART_LEAST = 3
"""Characters that are left of a part, with the ellipsis."""


def shortened(names: tuple[str, ...], room: int) -> dict[str, str]:
    """Each name in at most `room` cells. Of names with the same separators, what they have in common is cut: parts in
    the middle first, then the end, then the beginning."""
    return {name: shortened_one(name, names, room) for name in names}


def shortened_one(name: str, names: tuple[str, ...], room: int) -> str:
    """One of the names, of which there may be thousands, shortened so that it differs from the others."""
    runs, longest = _divided(names)[name]
    return crop("".join(_cut(runs, longest - room)) if longest > room else name, room)


@lru_cache(maxsize=16)
def _divided(names: tuple[str, ...]) -> dict[str, tuple[list[tuple[bool, str]], int]]:
    """The parts of each name, and the length of the longest name with the same separators."""
    forms: dict[tuple[str, ...], list[str]] = {}
    tokens = {name: _TOKEN.findall(name) for name in names}
    for name, parts in tokens.items():
        forms.setdefault(tuple("" if part.isalnum() else part for part in parts), []).append(name)
    divided: dict[str, tuple[list[tuple[bool, str]], int]] = {}
    for alike in forms.values():
        rows = [tokens[name] for name in alike]
        is_common = [len(set(column)) == 1 for column in zip(*rows, strict=True)]
        longest = max(map(len, alike))
        divided |= {name: (_runs(row, is_common), longest) for name, row in zip(alike, rows, strict=True)}
    return divided


def _runs(tokens: Sequence[str], is_common: Sequence[bool]) -> list[tuple[bool, str]]:
    """The parts of a name that it has in common with others, and those between them."""
    runs = groupby(zip(is_common, tokens, strict=True), key=lambda pair: pair[0])
    return [(common, "".join(token for _, token in run)) for common, run in runs]


def _cut(runs: list[tuple[bool, str]], excess: int) -> list[str]:
    """The parts without `excess` characters of the common ones."""
    last = len(runs) - 1
    order = sorted(range(len(runs)), key=lambda place: (place == 0, place == last, -len(runs[place][1])))
    parts = [text for _, text in runs]
    for place in order:
        common, text = runs[place]
        if (length := max(_PART_LEAST, len(text) - excess)) < len(text) and common:
            head = length - 1 if place == last and place else length // 2
            parts[place] = text[:head] + _ELLIPSIS + text[len(text) - (length - head - 1) :]
            excess -= len(text) - length
    return parts
