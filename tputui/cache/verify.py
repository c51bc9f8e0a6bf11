"""Verifies cache files for `tputui check`: reduces every event once more and compares the states byte by byte.

Opening a run trusts a cache file that matches its journal; forged states are found here.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from tputui.cache import cache_file, state_codec
from tputui.cache.cache_file import CacheRefused, Outdated
from tputui.state.process_state import ProcessState
from tputui.telemetry.events import Event
from tputui.telemetry.rundir import CACHE_DIR


class CacheFinding(NamedTuple):
    """The result for one cache file."""

    place: str
    """File, relative to the run's directory."""
    bytes: int
    why_not: str
    """Why it cannot be used; empty if it agrees with its journal."""
    is_outdated: bool
    """Whether the only reason is another version of tputui, or that its journal was sealed since."""


class _Waiting(NamedTuple):
    """A valid cache file whose events have not been reduced yet."""

    path: Path
    digest: bytes
    """Digest of its state; all states together may not fit into memory."""


class CacheVerifier:
    """Reduces every event of a run, in order for each process."""

    def __init__(self, run_dir: Path) -> None:
        self._findings: list[CacheFinding] = []
        self._waiting: dict[str, dict[int, _Waiting]] = {}
        self._states: dict[str, ProcessState] = {}
        for path in cache_file.listed(run_dir):
            self._look(run_dir, path)

    def take(self, writer: str, seq: int, event: Event) -> None:
        """Applies an event."""
        waiting = self._waiting.get(writer)
        if not waiting:
            return
        state = self._states.setdefault(writer, ProcessState(writer))
        state.apply(seq, event)
        place = waiting.pop(seq, None)
        if place is not None:
            self._compare(place, state)

    def findings(self) -> list[CacheFinding]:
        """The results by file name, after all events were applied."""
        for waiting in self._waiting.values():
            for place in waiting.values():
                self._report(place.path, "the journal has no event with its number")
            waiting.clear()
        return sorted(self._findings)

    def _look(self, run_dir: Path, path: Path) -> None:
        try:
            head = cache_file.read_head(path)
            cache_file.check_fit(run_dir, head)
            _, content = cache_file.read_state(path, head)
        except Outdated as error:
            self._report(path, str(error), is_outdated=True)
        except CacheRefused as error:
            self._report(path, str(error))
        except FileNotFoundError:
            # The supervisor of a running run has removed it since.
            return
        except OSError as error:
            self._report(path, f"it cannot be read: {error.strerror}")
        else:
            self._waiting.setdefault(head.writer, {})[head.last_seq] = _Waiting(path, _digest(content))

    def _compare(self, place: _Waiting, state: ProcessState) -> None:
        try:
            same = _digest(state_codec.encode(state)) == place.digest
        except state_codec.NotCacheable:
            same = False
        self._report(place.path, "" if same else "it differs from its journal")

    def _report(self, path: Path, why_not: str, *, is_outdated: bool = False) -> None:
        size = path.stat().st_size if path.is_file() else 0
        self._findings.append(CacheFinding(f"{CACHE_DIR}/{path.name}", size, why_not, is_outdated))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
