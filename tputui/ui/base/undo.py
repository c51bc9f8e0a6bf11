"""Undo of changes of the view, the newest first. Changes of a run are never undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

CHANGES_MAX = 50
"""Changes that are remembered; older ones stay as they are."""


class Change(NamedTuple):
    """A change of the view."""

    what: str
    """What it was, as a person says it: `theme light`."""
    take_back: Callable[[], None]
    """Brings back what was before; must not push a change itself."""


class Undo:
    """A stack of changes."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=CHANGES_MAX)

    def push(self, what: str, take_back: Callable[[], None], *, joins: bool = False) -> None:
        """Remembers a change that was made; one that joins the newest of its name is taken back with that one."""
        if joins and self._changes and self._changes[-1].what == what:
            return
        self._changes.append(Change(what, take_back))

    def undo(self) -> str | None:
        """Takes the newest change back and says what it was; None where there is none."""
        if not self._changes:
            return None
        change = self._changes.pop()
        change.take_back()
        return change.what

    def __len__(self) -> int:
        return len(self._changes)
