"""The family of a run: the runs that it continues, and earlier attempts to continue them."""

from __future__ import annotations

from pathlib import Path

from tputui.diagnosis.goodput import Goodput, TimeOfRun, goodput, goodput_of, run_time
from tputui.session import session
from tputui.state.snapshot import Snapshot
from tputui.telemetry import rundir

RUNS_MAX = 200
"""Runs of a family that are read; older ones are left out."""


def family(run_dir: Path) -> list[Path]:
    """The other runs of the family that are older than this one, oldest first, as far as their directories exist."""
    own_manifest = rundir.manifest_if_readable(run_dir)
    chain = _chain(run_dir)
    if own_manifest is None or not chain:
        return []
    created: dict[Path, float] = {}
    for path in dict.fromkeys(path for parent in {run.parent for run in chain} for path in rundir.listing(parent)):
        manifest = rundir.manifest_if_readable(path)
        if path == run_dir or manifest is None or manifest.created >= own_manifest.created:
            continue
        # An attempt that ended before its first checkpoint continued a run of the chain, and nothing continues it.
        if path in chain or _source(manifest) in chain:
            created[path] = manifest.created
    return sorted(created, key=created.__getitem__)[-RUNS_MAX:]


def family_goodput(run_dir: Path, snapshot: Snapshot) -> Goodput:
    """The goodput of a run and its family; without parts and with a reason if they are not known.

    `snapshot` is that of the run itself. Reads the journals of the other runs.
    """
    own_time = run_time(snapshot)
    if own_time is None:
        return goodput_of(snapshot)
    others: list[TimeOfRun] = []
    for path in family(run_dir):
        time_of_run = run_time(session.load(path))
        others = [*others, time_of_run] if time_of_run is not None else others
    return goodput([*others, own_time])


def _chain(run_dir: Path) -> list[Path]:
    """The runs that a run continues, newest first."""
    chain: list[Path] = []
    here = run_dir
    while len(chain) < RUNS_MAX:
        manifest = rundir.manifest_if_readable(here)
        source = _source(manifest) if manifest is not None else None
        if source is None or source == run_dir or source in chain or not rundir.is_run(source):
            break
        chain.append(source)
        here = source
    return chain


def _source(manifest: rundir.Manifest) -> Path | None:
    """The run whose checkpoint a run resumes."""
    checkpoint = manifest.resume_path
    return checkpoint.parents[1] if checkpoint is not None and len(checkpoint.parents) > 1 else None
