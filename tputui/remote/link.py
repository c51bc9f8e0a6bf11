"""The state of the connections behind a mirror, in its `link.json`, for the process that shows the run."""

from __future__ import annotations

import math
import os
import re
import shlex
from pathlib import Path
from typing import Literal

import msgspec

from tputui import user_cache
from tputui.formatting import inert
from tputui.remote.address import parse_host
from tputui.remote.mirror import LINK_FILE
from tputui.telemetry import rundir
from tputui.telemetry.files import read_small

BYTES_MAX = 8 << 20
NAMED = 3
"""Hosts that are named in a sentence."""

_HOST_OF_PATH = re.compile(r"-host-([0-9]{1,5})$")
LinkState = Literal["waiting", "connecting", "connected", "reconnecting"]


class HostLink(msgspec.Struct, kw_only=True):
    host: str
    """As the user wrote it."""
    state: LinkState = "waiting"
    heard: float | None = None
    """Unix time of the viewer at which the host was heard last; None while it is heard, and before the first
    connection."""
    reason: str | None = None
    """Why it is not connected, in one sentence; while it is connected, why a request could not be written there."""
    indexes: list[int] = []
    """Numbers of the hosts of the run whose journals come over this connection."""
    directory: str | None = None
    """Directory of the run there; None before the first connection."""
    clock_offset_s: float | None = None
    """Clock of the host minus that of the viewer; None until it was measured."""

    @property
    def is_connected(self) -> bool:
        return self.state == "connected"

    @property
    def is_heard(self) -> bool:
        """Whether the host is connected and answers."""
        return self.is_connected and self.heard is None

    def copy_command(self, path: str) -> str | None:
        """The command that copies a file or folder of the run to the current directory; None before the first
        connection."""
        if self.directory is None:
            return None
        host = parse_host(self.host)
        place = f"{msgspec.structs.replace(host, port=None)}:{self.directory}/{path}"
        return " ".join(["scp", "-r", *host.port_words("-P"), shlex.quote(inert(place)), "."])

    def words(self, now: float) -> str:
        """The state in words: `connected`, or since when it is not, and why."""
        if self.is_heard:
            return self.state
        silent = f", last heard {max(0, round(now - self.heard))} s ago" if self.heard is not None else ""
        if self.is_connected:
            return f"it does not answer{silent}"
        return f"{self.state}{silent}{f'; {self.reason_alone}' if self.reason else ''}"

    @property
    def reason_alone(self) -> str:
        """The reason without the name of the host."""
        return (self.reason or "").removeprefix(f"{self.host}: ")


class Links(msgspec.Struct, kw_only=True):
    """The connections of the process that writes a mirror."""

    process: rundir.ProcessId
    address: str
    synced: bool = False
    """Whether the mirror had everything that the hosts had at one time."""
    gave_up: bool = False
    """Whether nothing is written any more, because the disk is full for example."""
    hosts: list[HostLink] = []
    unsent: list[str] = []
    """Ids of requests that a host has not confirmed."""

    @property
    def heard(self) -> float | None:
        """Unix time of the viewer up to which the run is known, if no host is heard; None if one is."""
        if any(host.is_heard for host in self.hosts):
            return None
        return max((host.heard for host in self.hosts if host.heard is not None), default=None)

    @property
    def lost(self) -> str | None:
        """A sentence if hosts were lost, or could not be connected to; it does not change with the time."""
        lost = [host for host in self.hosts if not host.is_heard and (host.reason or host.heard is not None)]
        if not lost:
            return None
        why = lost[0].reason_alone or "it does not answer"
        return f"{self._named(lost)}: {why}"

    @property
    def known_until(self) -> dict[int, float]:
        """By number of a host of the run that is not heard, the unix time of the viewer at which it was."""
        return {index: host.heard for host in self.hosts if host.heard is not None for index in host.indexes}

    @property
    def clock_offset_s(self) -> float | None:
        """Clock of the first host of the run, which all its times follow, minus that of the viewer; of another host if
        that one was not measured, and None if none was."""
        measured = [host for host in self.hosts if host.clock_offset_s is not None]
        first = min(measured, key=lambda host: min(host.indexes, default=math.inf), default=None)
        return first.clock_offset_s if first is not None else None

    def copy_command(self, path: str) -> str | None:
        """The command that copies a file or folder of the run from the host that has it; None if it is not known.

        Hosts after the first one name theirs by their index, such as `traces/step-7-host-2`.
        """
        named = _HOST_OF_PATH.search(path)
        index = int(named[1]) if named else 0
        host = next((host for host in self.hosts if index in host.indexes), self.hosts[0] if self.hosts else None)
        return host.copy_command(path) if host is not None else None

    def trouble(self, now: float) -> str | None:
        """A sentence about the hosts that are not heard, or that could not write a request; None if all is well."""
        lost = [host for host in self.hosts if not host.is_heard]
        if not lost:
            # A connected host has a reason only if it could not write a request.
            return next((host.reason for host in self.hosts if host.reason), None)
        if len(lost) == 1:
            return f"{lost[0].host}: {lost[0].words(now)}"
        return f"{self._named(lost)}; {lost[0].words(now)}"

    def _named(self, lost: list[HostLink]) -> str:
        if len(lost) == 1:
            return lost[0].host
        names = ", ".join(host.host for host in lost[:NAMED]) + (", ..." if len(lost) > NAMED else "")
        return f"{len(lost)} of {len(self.hosts)} hosts are not connected: {names}"


NO_LINKS = Links(process=rundir.ProcessId(host="", host_id="", pid=0, pid_started=0), address="", synced=True)
"""Those of a run of this machine."""


def write(run_dir: Path, links: Links) -> None:
    """Stores the state. Raises `OSError`."""
    rundir.write_atomically(run_dir / LINK_FILE, msgspec.json.encode(links))


def unsent_before(run_dir: Path) -> list[str]:
    """Ids of the requests that the process that wrote the mirror last has not sent to all hosts."""
    try:
        return msgspec.json.decode(read_small(run_dir / LINK_FILE, BYTES_MAX), type=Links).unsent
    except (OSError, ValueError, RecursionError):
        return []


class LinkReader:
    """Reads the connections of a mirror, when they change."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LINK_FILE if user_cache.holds(run_dir, "mirrors", os.environ) else None
        self._modified: int | None = None
        self._links: Links | None = None

    def read(self) -> Links | None:
        """The connections; None if the run is no mirror, or no process writes it."""
        if self._path is None:
            return None
        try:
            modified = self._path.stat().st_mtime_ns
            if modified != self._modified:
                self._links = msgspec.json.decode(read_small(self._path, BYTES_MAX), type=Links)
                self._modified = modified
        except (OSError, ValueError, RecursionError):
            return None
        return self._links if self._links is not None and rundir.is_alive(self._links.process) else None


def read(run_dir: Path) -> Links | None:
    """The connections of a mirror; None if it is no mirror, or no process writes it."""
    return LinkReader(run_dir).read()
