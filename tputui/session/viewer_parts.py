"""What a viewer knows of a run besides its events, as parts of a snapshot: manifest, requests, damage, a full disk."""

from __future__ import annotations

from pathlib import Path

from tputui import formatting as fmt
from tputui.state.liveness import Liveness
from tputui.state.run_details import GitView, RunDetails
from tputui.state.snapshot import ENDED, DamageRegion, RequestView
from tputui.telemetry import requests, rundir
from tputui.telemetry.disk_space import FULL_BYTES, free_bytes
from tputui.telemetry.journal import Damage

FULL_DISK_S = 600.0
"""Seconds after the newest event in which a full disk may be the reason that a run looks lost."""


def details(manifest: rundir.Manifest) -> RunDetails:
    """Where a run comes from, by its manifest."""
    git = manifest.git
    return RunDetails(
        argv=manifest.argv,
        cwd=manifest.cwd or None,
        config_path=manifest.config_path or None,
        host=manifest.host,
        versions=manifest.versions or {"tputui": manifest.version},
        git=GitView(commit=git.commit, branch=git.branch, dirty=git.dirty, why=git.why) if git else None,
        resumed_from=manifest.resume_from,
    )


def request_view(request: requests.Request) -> RequestView:
    """A request as it was made, without the answers of the run."""
    return RequestView(
        id=request.id,
        kind=request.kind,
        state="requested",
        t=request.t,
        by=request.by,
        seen_phase=None,
        applied_step=None,
        path=None,
        why=None,
    )


def region(damage: Damage) -> DamageRegion:
    """A damaged region of a journal."""
    return DamageRegion(
        journal=damage.journal,
        start=damage.start,
        end=damage.end,
        reason=damage.reason,
        lost_records=damage.lost_records,
    )


def full_disk(run_dir: Path, liveness: Liveness, silent_s: float) -> str | None:
    """A sentence if the disk of a run that has not ended is full. `silent_s`: seconds since its newest event."""
    if liveness.condition in ENDED and not (liveness.condition == "lost" and silent_s < FULL_DISK_S):
        return None
    free = free_bytes(run_dir)
    return fmt.full_disk(run_dir.resolve(), free) if free is not None and free < FULL_BYTES else None
