"""Saved reducer states, so that a long run opens without reading its journals from the start."""

from __future__ import annotations

from typing import NamedTuple

from tputui.state.process_state import ProcessState
from tputui.telemetry.journal import Bookmark


class CachedState(NamedTuple):
    """A writer's state after the records before a bookmark. Not to be changed: fork it."""

    bookmark: Bookmark
    state: ProcessState
    newest_t: float
    """No record before it is newer."""
