"""Whether a viewer names the faults of simulated pods, and nothing else.

Each seed plants a host that is 10 % slower, a core whose loss becomes NaN, clocks that are off, a host whose journals
do not arrive for a while, and a restart. The run is written and read in the time of the simulation; after every second
the snapshot is examined. A host must be named as slow, with the right part of its steps, from some time on until the
end, and the core with NaN as well; whatever else is named is an error.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.pod_journals import Pod, create
from benchmarks.pod_model import CORES_PER_HOST, Faults, planted
from tests.recorded import T0
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot

LOOK_S = 1.0


class Verdict(NamedTuple):
    """What was named in the run of one seed."""

    seed: int
    slow_after_s: float | None
    """Seconds from the first slow step until the host was named for good; None if it was not."""
    nan_after_s: float | None
    """Seconds from the first NaN until its core was named."""
    errors: tuple[str, ...]
    """What was named although it was not planted, or not named although it was."""


def judge(seed: int, num_hosts: int, seconds: float) -> Verdict:
    """Writes and reads the run of a seed."""
    faults = planted(seed, num_hosts, seconds)
    with tempfile.TemporaryDirectory() as name:
        run_dir, pod = create(Path(name), num_hosts, seed, faults, T0)
        try:
            return _watch(seed, run_dir, pod, faults, seconds)
        finally:
            pod.close(ended=False)


def _watch(seed: int, run_dir: Path, pod: Pod, faults: Faults, seconds: float) -> Verdict:
    now_s = 0.0
    session = Session.live(run_dir, lambda: T0 + now_s)
    session.disable_cache()
    slow_since: float | None = None
    nan_since: float | None = None
    errors: set[str] = set()
    try:
        while now_s < seconds:
            now_s += LOOK_S
            pod.write_until(now_s)
            session.read_all()
            snapshot = session.snapshot(may_defer=True)
            errors.update(_false_names(snapshot, faults))
            named = snapshot.slow_host is not None and snapshot.slow_host.index == faults.straggler
            slow_since = (now_s if slow_since is None else slow_since) if named else None
            bad = {each.core for each in snapshot.non_finite}
            nan_since = (now_s if nan_since is None else nan_since) if faults.nan_core in bad else None
    finally:
        session.close()
    if slow_since is None and faults.straggler is not None:
        errors.add(f"host {faults.straggler} is not named as slow at the end")
    if nan_since is None and faults.nan_core is not None:
        errors.add(f"core {faults.nan_core} is not named for its NaN")
    return Verdict(
        seed,
        None if slow_since is None else slow_since - faults.straggler_from_s,
        None if nan_since is None else nan_since - faults.nan_from_s,
        tuple(sorted(errors)),
    )


def _false_names(snapshot: Snapshot, faults: Faults) -> list[str]:
    """What a snapshot names although it was not planted."""
    found: list[str] = []
    slow = snapshot.slow_host
    if slow is not None and slow.index != faults.straggler:
        found.append(f"host {slow.index} is named as slow")
    elif slow is not None and slow.part != faults.part:
        found.append(f"the slow part of host {slow.index} is {slow.part}, not {faults.part}")
    bad = {each.core for each in snapshot.non_finite} - {faults.nan_core}
    hosts = {host.index for host in snapshot.hosts if host.loss is not None and host.loss != host.loss}
    if faults.nan_core is not None:
        hosts -= {faults.nan_core // CORES_PER_HOST}
    found += [f"core {core} is named for a NaN" for core in bad] + [f"host {host} has a NaN" for host in hosts]
    if snapshot.outlier is not None:
        found.append(f"core {snapshot.outlier.core} is named for its loss")
    if snapshot.slow_core is not None:
        found.append(f"core {snapshot.slow_core.core} is named as slow")
    return found


def report(verdicts: Sequence[Verdict]) -> str:
    """The errors by seed, and how soon the faults were named."""
    lines = [f"seed {each.seed}: {error}" for each in verdicts for error in each.errors]
    right = sum(not each.errors for each in verdicts)
    lines.append(f"{right} of {len(verdicts)} seeds: the slow host and the NaN are named, and nothing else")
    for label, delays in (
        ("slow host", [each.slow_after_s for each in verdicts if each.slow_after_s is not None]),
        ("NaN", [each.nan_after_s for each in verdicts if each.nan_after_s is not None]),
    ):
        if delays:
            lines.append(f"{label} named after {statistics.median(delays):.1f} s (median), {max(delays):.1f} s at most")
    return "\n".join(lines)
