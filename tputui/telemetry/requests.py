"""Requests to a run and their receipts, as files beside the journals.

A viewer writes `requests/ID.json`, whole or not at all; the processes of the run look there and answer in their
journals with receipts: seen, then applied or refused. Nothing here waits for an answer.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tputui.telemetry.events import RequestKind
from tputui.telemetry.rundir import REQUESTS, write_atomically
from tputui.telemetry.safe_open import read_small

REQUEST_BYTES_MAX = 64 << 10
"""A longer file is no request."""
STRENGTH: dict[RequestKind, int] = {"stacks": 0, "checkpoint": 0, "stop_after_epoch": 1, "stop": 2, "stop_now": 3}
"""Of several requests to stop the strongest counts."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asked of a run."""

    id: str
    """Sorts by time; unique within the run."""
    kind: RequestKind
    """What is asked."""
    t: float
    """Unix time in seconds."""
    by: str
    """Who asks: a command, the screen, a signal."""


def submit(run_dir: Path, kind: RequestKind, *, by: str, now: float) -> Request:
    """Writes a request. Raises `OSError`, for instance where the directory is another user's."""
    request = Request(id=f"{int(now * 1e6):016d}-{os.getpid()}", kind=kind, t=now, by=by)
    write_atomically(run_dir / REQUESTS / f"{request.id}.json", msgspec.json.encode(request))
    return request


def read_all(run_dir: Path) -> list[Request]:
    """Every request of the run, oldest first. A file that is no request is passed over."""
    return [request for name in _names(run_dir) if (request := _read(run_dir, name)) is not None]


class Inbox:
    """The requests of a run that were not handed out yet."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._handed_out: set[str] = set()

    def poll(self) -> list[Request]:
        """Requests that came since the last call, oldest first."""
        fresh = [name for name in _names(self._run_dir) if name not in self._handed_out]
        self._handed_out.update(fresh)
        return [request for name in fresh if (request := _read(self._run_dir, name)) is not None]


def _names(run_dir: Path) -> list[str]:
    """Names of the requests there are; none where the directory cannot be read, which must not end training."""
    try:
        names = os.listdir(run_dir / REQUESTS)
    except OSError:
        return []
    return sorted(name for name in names if name.endswith(".json") and not name.startswith("."))


def _read(run_dir: Path, name: str) -> Request | None:
    try:
        return msgspec.json.decode(read_small(run_dir / REQUESTS / name, REQUEST_BYTES_MAX), type=Request)
    except (OSError, ValueError, RecursionError):
        return None
