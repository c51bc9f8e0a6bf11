"""The search for metrics, by words of their names."""

from __future__ import annotations

import re
from functools import lru_cache

from tputui.ui.widgets.typed_search import TypedSearch, compile_search


class MetricSearch(TypedSearch):
    """Chooses the metrics whose names have all words of an expression, each a regular expression: `layer3 norm$`."""

    def __init__(self) -> None:
        super().__init__()
        self._words: list[re.Pattern[str]] = []

    def apply(self, text: str) -> str | None:
        """Takes the words; returns why one of them cannot be used."""
        words = [compile_search(word) for word in text.split()]
        problem = next((problem for _, problem in words if problem is not None), None)
        if problem is None:
            self._words = [pattern for pattern, _ in words if pattern is not None]
        return problem

    def chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The metrics that are shown."""
        return _matching(names, tuple(self._words))


@lru_cache(maxsize=4)
def _matching(names: tuple[str, ...], words: tuple[re.Pattern[str], ...]) -> tuple[str, ...]:
    """The names that have all words; kept since a page of thousands is drawn ten times a second."""
    return tuple(name for name in names if all(word.search(name) for word in words))
