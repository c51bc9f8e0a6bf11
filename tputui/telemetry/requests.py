"""Requests to a run, as files in its directory.

A viewer writes `requests/ID.json` atomically. The processes of the run poll that directory and answer with events in
their journals: seen, then applied or refused. Nothing here waits for an answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tputui.telemetry.events import RequestApplied, RequestKind, RequestRefused, StacksTaken
from tputui.telemetry.files import read_small
from tputui.telemetry.journal import LineSearch
from tputui.telemetry.rundir import REQUESTS, write_atomically
from tputui.telemetry.secrecy import Exact, Text

REQUEST_BYTES_MAX = 64 << 10
"""Maximum size of a request file."""
STRENGTH: dict[RequestKind, int] = {
    "stacks": 0,
    "trace": 0,
    "checkpoint": 0,
    "stop_after_epoch": 1,
    "stop": 2,
    "stop_now": 3,
}
"""Of several requests to stop, the strongest one counts; training goes on after the others."""
STOPS = frozenset(kind for kind, strength in STRENGTH.items() if strength)
"""The requests to stop."""
BY_SIGTERM = "SIGTERM"
"""Origin of the request that SIGTERM makes."""
_SUFFIX = ".json"
_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,10}")
TRACE_STEPS_DEFAULT = 20
TRACE_STEPS_MAX = 1_000
"""Maximum number of steps in a profile."""
TRACE_SECONDS_MAX = 120.0
"""A profile ends with the step in which it reaches this time."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    id: Exact
    """Sorts by time; unique within the run."""
    kind: RequestKind
    t: float
    """Unix time in seconds."""
    by: Text
    """Origin of the request: a command, the screen, a signal."""
    steps: int | None = None
    """Number of steps of a profile."""


def submit(run_dir: Path, kind: RequestKind, *, by: str, now: float, steps: int | None = None) -> Request:
    """Writes a request. Raises `OSError`, for example if the directory belongs to another user."""
    request = Request(id=f"{int(now * 1e6):016d}-{os.getpid()}", kind=kind, t=now, by=by, steps=steps)
    _write(run_dir / REQUESTS / f"{request.id}{_SUFFIX}", request)
    return request


def decode(content: bytes) -> Request:
    """A request as it is stored. Raises `ValueError`, also if its id, of which a path is made, is not valid."""
    try:
        request = msgspec.json.decode(content, type=Request)
    except RecursionError:
        raise ValueError("a request is nested too deeply") from None
    if not _ID.fullmatch(request.id):
        raise ValueError("a request has no valid id")
    return request


def pass_on(run_dir: Path, request: Request) -> None:
    """Writes a request that was submitted elsewhere, unless it is there. Raises `OSError`."""
    path = run_dir / REQUESTS / f"{request.id}{_SUFFIX}"
    if not path.exists():
        _write(path, request)


def _write(path: Path, request: Request) -> None:
    from tputui.telemetry.masking import FieldMasker  # By writers alone, as in `journal`.

    write_atomically(path, msgspec.json.encode(FieldMasker().masked(request)))


def read_all(run_dir: Path) -> list[Request]:
    """Every request of the run, oldest first. Invalid files are ignored."""
    return [request for name in _names(run_dir) if (request := _read(run_dir, name)) is not None]


class Inbox:
    """Returns each request to a run once."""

    def __init__(self, run_dir: Path, answered: Iterable[str] = ()) -> None:
        """`answered`: ids of requests that are not returned."""
        self._run_dir = run_dir
        self._handed_out = {f"{request}{_SUFFIX}" for request in answered}

    def poll(self) -> list[Request]:
        """The requests since the last call, oldest first."""
        fresh = [name for name in _names(self._run_dir) if name not in self._handed_out]
        self._handed_out.update(fresh)
        return [request for name in fresh if (request := _read(self._run_dir, name)) is not None]


def answered_in(journal: Path) -> set[str]:
    """Ids of the requests that the processes of a journal have answered: one that takes the place of a process that has
    ended must not carry them out again. Empty if the journal cannot be read."""
    try:
        events = LineSearch(journal, RequestApplied, RequestRefused, StacksTaken).fresh()
    except OSError:
        return set()
    return {event.request for event in events if isinstance(event, RequestApplied | RequestRefused | StacksTaken)}


def _names(run_dir: Path) -> list[str]:
    """Names of the request files; empty if the directory cannot be read, which must not stop training."""
    try:
        names = os.listdir(run_dir / REQUESTS)
    except OSError:
        return []
    return sorted(name for name in names if name.endswith(_SUFFIX) and not name.startswith("."))


def _read(run_dir: Path, name: str) -> Request | None:
    try:
        return decode(read_small(run_dir / REQUESTS / name, REQUEST_BYTES_MAX))
    except (OSError, ValueError):
        return None
