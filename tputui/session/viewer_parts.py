"""What a viewer knows of a run besides its events, as parts of a snapshot: manifest, requests, damage, a full disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tputui import formatting as fmt
from tputui.remote.link import Links
from tputui.state.liveness import Liveness
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import RequestView, RunDetails, Snapshot
from tputui.telemetry import requests, rundir
from tputui.telemetry.files import FULL_BYTES, free_bytes

FULL_DISK_S = 600.0
"""Seconds after the newest event in which a full disk may be the reason that a run looks lost."""


def details(manifest: rundir.Manifest) -> RunDetails:
    """Where a run comes from, by its manifest."""
    return RunDetails(
        argv=manifest.argv,
        cwd=manifest.cwd or None,
        config_path=manifest.config_path or None,
        host=manifest.host,
        versions=manifest.versions or {"tputui": manifest.version},
        git=manifest.git,
        resumed_from=manifest.resume_from,
    )


def request_view(request: requests.Request) -> RequestView:
    """A request as it was made, without the answers of the run."""
    return RequestView(id=request.id, kind=request.kind, state="requested", t=request.t, by=request.by)


def full_disk(run_dir: Path, liveness: Liveness, silent_s: float) -> str | None:
    """A sentence if the disk of a run that has not ended is full. `silent_s`: seconds since its newest event."""
    if liveness.condition in ENDED and not (liveness.condition == "lost" and silent_s < FULL_DISK_S):
        return None
    free = free_bytes(run_dir)
    return fmt.full_disk(run_dir.resolve(), free) if free is not None and free < FULL_BYTES else None


def with_links(snapshot: Snapshot, links: Links, clock_t: float) -> Snapshot:
    if not links.hosts or not snapshot.hosts:
        return snapshot
    link_states = {index: link.words(clock_t) for link in links.hosts for index in link.indexes}
    hosts = [msgspec.structs.replace(host, link=link_states.get(host.index)) for host in snapshot.hosts]
    return msgspec.structs.replace(snapshot, hosts=hosts)
