"""Places in a run's journals from which a reader goes on without reading what came before; kept beside them on disk."""

from __future__ import annotations

from typing import NamedTuple

from tputui.model.writer import WriterState
from tputui.telemetry.journal import Bookmark


class Place(NamedTuple):
    """A writer's state after the records before a bookmark. Not to be changed: fork it."""

    bookmark: Bookmark
    state: WriterState
    newest_t: float
    """No record before it is newer."""
