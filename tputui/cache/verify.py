"""Whether the places on disk say what the journals say: every record is reduced once more, and compared to the byte.

For `check`, which reads everything always. Whoever opens a run believes a place that fits its journal; one that only
looks so is found here.
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
    """What was found of a place."""

    place: str
    """File, relative to the run's directory."""
    bytes: int
    why_not: str
    """Why nobody should go on from it; empty where it says what its journal says."""
    is_outdated: bool
    """Whether that is only that another version of tputui wrote it, or that its journal was sealed since."""


class _Waiting(NamedTuple):
    """A place that looks sound, whose journal has not been read so far."""

    path: Path
    digest: bytes
    """Of its state: a run may hold more of them than fit into memory."""


class CacheVerifier:
    """Takes in every record of a run, those of each writer in their order."""

    def __init__(self, run_dir: Path) -> None:
        self._findings: list[CacheFinding] = []
        self._waiting: dict[str, dict[int, _Waiting]] = {}
        self._states: dict[str, ProcessState] = {}
        for path in cache_file.listed(run_dir):
            self._look(run_dir, path)

    def take(self, writer: str, seq: int, event: Event) -> None:
        """Takes a record in."""
        waiting = self._waiting.get(writer)
        if not waiting:
            return
        state = self._states.setdefault(writer, ProcessState(writer))
        state.apply(seq, event)
        place = waiting.pop(seq, None)
        if place is not None:
            self._compare(place, state)

    def findings(self) -> list[CacheFinding]:
        """What was found, by the names of the places, once every record was taken in."""
        for waiting in self._waiting.values():
            for place in waiting.values():
                self._tell(place.path, "the journal has no record where it was kept")
            waiting.clear()
        return sorted(self._findings)

    def _look(self, run_dir: Path, path: Path) -> None:
        try:
            head = cache_file.read_head(path)
            cache_file.check_fit(run_dir, head)
            _, content = cache_file.read_state(path, head)
        except Outdated as error:
            self._tell(path, str(error), is_outdated=True)
        except CacheRefused as error:
            self._tell(path, str(error))
        except FileNotFoundError:
            # The supervisor of a run that goes on has dropped it since.
            return
        except OSError as error:
            self._tell(path, f"it cannot be read: {error.strerror}")
        else:
            self._waiting.setdefault(head.writer, {})[head.last_seq] = _Waiting(path, _digest(content))

    def _compare(self, place: _Waiting, state: ProcessState) -> None:
        try:
            same = _digest(state_codec.encode(state)) == place.digest
        except state_codec.NotCacheable:
            same = False
        self._tell(place.path, "" if same else "it does not say what its journal says")

    def _tell(self, path: Path, why_not: str, *, is_outdated: bool = False) -> None:
        size = path.stat().st_size if path.is_file() else 0
        self._findings.append(CacheFinding(f"{CACHE_DIR}/{path.name}", size, why_not, is_outdated))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
