"""Looks up the cached states of a run on disk. Only reads files.

Heads are read once, at the first lookup; a state only when it is used. A file that was refused is not tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tputui.state.process_state import ProcessState
from tputui.telemetry.journal import Bookmark
from tputui.telemetry.rundir import CACHE_DIR

if TYPE_CHECKING:
    from tputui.cache.cache_file import Head


class CachedState(NamedTuple):
    """The state of a process after the events before a bookmark. Fork it before applying events."""

    bookmark: Bookmark
    state: ProcessState
    newest_t: float
    """Newest unix time of those events."""


class _CacheFile(NamedTuple):
    path: Path
    head: Head


class StateCache:
    """The cached states of one run."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._kept: dict[str, list[_CacheFile]] | None = None

    def before(self, t: float, beyond: Mapping[str, int]) -> dict[str, CachedState]:
        """The newest cached state of each process whose events are not newer than the unix time `t`.

        A process is left out unless that state contains events after the number in `beyond`.
        """
        if self._kept is None:
            self._kept = _heads(self._run_dir)
        found: dict[str, CachedState] = {}
        for writer, kept in self._kept.items():
            cached_state = self._newest(kept, t, beyond.get(writer, -1))
            if cached_state is not None:
                found[writer] = cached_state
        return found

    def _newest(self, kept: list[_CacheFile], t: float, beyond: int) -> CachedState | None:
        from tputui.cache import cache_file

        for one in reversed(kept.copy()):
            if one.head.newest_t > t:
                continue
            if one.head.last_seq <= beyond:
                return None
            try:
                cache_file.check_fit(self._run_dir, one.head)
                state, _ = cache_file.read_state(one.path, one.head)
            except (cache_file.CacheRefused, OSError):
                kept.remove(one)
                continue
            head = one.head
            bookmark = Bookmark(head.journal, head.offset, head.next_seq, journal_id=head.journal_id)
            return CachedState(bookmark, state, head.newest_t)
        return None


def _heads(run_dir: Path) -> dict[str, list[_CacheFile]]:
    """Readable cache files by process, in order of their events."""
    if not (run_dir / CACHE_DIR).is_dir():
        return {}
    # Imported only if there are cache files: the import takes longer than reading a short run.
    from tputui.cache import cache_file

    found: dict[str, list[_CacheFile]] = {}
    for path in cache_file.listed(run_dir):
        try:
            head = cache_file.read_head(path)
        except (cache_file.CacheRefused, OSError):
            continue
        found.setdefault(head.writer, []).append(_CacheFile(path, head))
    return {writer: sorted(kept, key=lambda one: one.head.last_seq) for writer, kept in found.items()}
