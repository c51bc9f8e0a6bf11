"""The state of the connections behind a mirror, in its `link.json`, for the process that shows the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from tputui.remote.mirror import LINK_FILE, is_mirror
from tputui.telemetry import rundir
from tputui.telemetry.safe_open import read_small

BYTES_MAX = 8 << 20

LinkState = Literal["waiting", "connecting", "connected", "reconnecting"]


class HostLink(msgspec.Struct, kw_only=True):
    """The connection to a host."""

    host: str
    """As the user wrote it."""
    state: LinkState = "waiting"
    heard: float | None = None
    """Unix time of the viewer at which the host was heard last, as of the last change of the state."""
    reason: str | None = None
    """Why it is not connected, in one sentence."""
    indexes: list[int] = []
    """Numbers of the hosts of the run whose journals come over this connection."""
    clock_offset_s: float | None = None
    """Clock of the host minus that of the viewer; None until it was measured."""
    clock_error_s: float | None = None
    """Greatest error of that: half of the time that the measurement took."""

    @property
    def is_connected(self) -> bool:
        """Whether the host is connected."""
        return self.state == "connected"

    def words(self, now: float) -> str:
        """The state in words: `connected`, or since when it is not, and why."""
        if self.state == "connected":
            return self.state
        silent = f", last heard {max(0, round(now - self.heard))} s ago" if self.heard is not None else ""
        return f"{self.state}{silent}{f': {self.reason}' if self.reason else ''}"


class Links(msgspec.Struct, kw_only=True):
    """The connections of the process that writes a mirror."""

    process: rundir.ProcessId
    address: str
    synced: bool = False
    """Whether the mirror had everything that the hosts had at one time."""
    hosts: list[HostLink] = []


def write(run_dir: Path, links: Links) -> None:
    """Stores the state. Raises `OSError`."""
    rundir.write_atomically(run_dir / LINK_FILE, msgspec.json.encode(links))


def read(run_dir: Path) -> Links | None:
    """The connections of a mirror; None if it is no mirror, or no process writes it."""
    if run_dir.absolute().parent.name != "mirrors" or not is_mirror(run_dir, os.environ):
        return None
    try:
        links = msgspec.json.decode(read_small(run_dir / LINK_FILE, BYTES_MAX), type=Links)
    except (OSError, ValueError, RecursionError):
        return None
    return links if rundir.is_alive(links.process) else None
