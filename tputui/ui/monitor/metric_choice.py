"""Which metrics are pinned and which groups are folded, kept for each folder of runs."""

from __future__ import annotations

from collections.abc import Iterable

from tputui.ui.base.preferences import Views
from tputui.ui.charts.metric_layout import Choice

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
