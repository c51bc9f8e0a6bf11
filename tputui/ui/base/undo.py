"""Undo for changes of the view. Changes of a run are never undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

CHANGES_MAX = 50
"""Maximum number of changes that can be undone."""


class Change(NamedTuple):
    what: str
    """Name of the change for the user: `theme light`."""
    take_back: Callable[[], None]
    """Restores the previous state; must not push a change itself."""


class Undo:
    """A stack of changes."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)

    def push(self, what: str, take_back: Callable[[], None], *, joins: bool = False) -> None:
        """Store a change. With `joins`, a change of the same name as the newest one is undone together with it."""
        if joins and self._changes and self._changes[-1].what == what:
            return
        self._changes.append(Change(what, take_back))

    def undo(self) -> str | None:
        """Undo the newest change and return its name; None if there is none."""
        if not self._changes:
            return None
        change = self._changes.pop()
        change.take_back()
        return change.what

    def __len__(self) -> int:
        return len(self._changes)
