"""The metrics that the user chooses: by a search in their names, and by pinning them and folding their groups, which is
kept for each folder of runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from tputui.ui.base.preferences import Views
from tputui.ui.charts.metric_layout import Choice
from tputui.ui.widgets.typed_search import TypedSearch, compile_search

PINNED_MAX = 24
FOLDERS_MAX = 8
"""Folders whose choice is kept."""
_CHARS_MAX = 2_000
"""Characters of the names that are kept of a folder: the file of the settings is small."""
_PINNED, _FOLDED = "metrics.pinned:", "metrics.folded:"


def kept_choice(views: Views, folder: str) -> Choice:
    """The choice of the user for the runs of a folder."""
    folded = views.get(_FOLDED + folder, list[str]())
    return Choice(tuple(views.get(_PINNED + folder, list[str]())[:PINNED_MAX]), frozenset(folded))


def keep_choice(views: Views, folder: str, choice: Choice) -> None:
    """Remembers a choice, in place of that of another folder if there are many."""
    for prefix, names in ((_PINNED, choice.pinned), (_FOLDED, sorted(choice.folded))):
        if kept := _few(names):
            views.set(prefix + folder, kept)
        else:
            views.remove(prefix + folder)
        others = [name for name in views.names(prefix) if name != prefix + folder]
        for name in others[FOLDERS_MAX - 1 :]:
            views.remove(name)


def _few(names: Iterable[str]) -> list[str]:
    kept: list[str] = []
    left = _CHARS_MAX
    for name in names:
        left -= len(name)
        if left >= 0:
            kept.append(name)
    return kept


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
