"""What a viewer of a mirror knows of the connections to the hosts, as parts of a snapshot."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tputui.remote.link import LinkReader, Links
from tputui.state.snapshot import Snapshot


class RemoteLink:
    """The connections behind a run directory; those of a run of this machine are always up."""

    def __init__(self, run_dir: Path) -> None:
        self._reader = LinkReader(run_dir)
        self._links: Links | None = None

    def update(self) -> None:
        """Reads the state of the connections, if it changed."""
        self._links = self._reader.read()

    @property
    def heard(self) -> float | None:
        """Time of the viewer up to which the run is known, if no host is connected: then silence means nothing."""
        return self._links.heard if self._links is not None else None

    @property
    def known_until(self) -> dict[int, float]:
        """The same for each host of the run that is not heard, by its number."""
        return self._links.known_until if self._links is not None else {}

    @property
    def clock_offset_s(self) -> float | None:
        """Clock of the hosts minus that of the viewer; None if it is not known."""
        return self._links.clock_offset_s if self._links is not None else None

    @property
    def is_behind(self) -> bool:
        """Whether the mirror does not have yet what the hosts had when they were connected."""
        return self._links is not None and not self._links.synced

    def trouble(self, clock_t: float) -> str | None:
        """A sentence if hosts are not connected."""
        return self._links.trouble(clock_t) if self._links is not None else None

    @property
    def lost(self) -> str | None:
        """A sentence if hosts were lost, or could not be connected to; it does not change with the time."""
        return self._links.lost if self._links is not None else None

    def shown(self, snapshot: Snapshot, clock_t: float) -> Snapshot:
        """The snapshot with the connection of each host."""
        if self._links is None or not snapshot.hosts:
            return snapshot
        words = {index: link.words(clock_t) for link in self._links.hosts for index in link.indexes}
        hosts = [msgspec.structs.replace(host, link=words.get(host.index)) for host in snapshot.hosts]
        return msgspec.structs.replace(snapshot, hosts=hosts)
