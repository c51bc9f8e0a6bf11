"""The simulated pod: its journals are those of a run on many hosts, and the faults of its seed are in them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import pod_journals, pod_judge
from benchmarks.pod_model import CORES_PER_HOST, Faults, planted
from tests.recorded import T0
from tputui.session import session
from tputui.telemetry.merge import JournalEvent

HOSTS = 6
SECONDS = 12.0


def events_of(parent: Path, seed: int, faults: Faults) -> list[JournalEvent]:
    """The events of a pod that was written as fast as possible."""
    run_dir, made = pod_journals.create(parent, HOSTS, seed, faults, T0)
    made.write_until(SECONDS)
    made.close()
    return sorted(session.read_events(run_dir), key=lambda each: (each.writer, each.seq))


def test_the_seed_alone_decides_what_is_written(tmp_path: Path) -> None:
    faults = planted(3, HOSTS, SECONDS)
    first, again = events_of(tmp_path / "a", 3, faults), events_of(tmp_path / "b", 3, faults)
    assert repr(first) == repr(again)
    other = events_of(tmp_path / "c", 4, planted(4, HOSTS, SECONDS))
    assert repr(first) != repr(other)


def test_a_pod_is_read_as_one_run_with_its_planted_nan(tmp_path: Path) -> None:
    faults = planted(3, HOSTS, SECONDS)
    run_dir, made = pod_journals.create(tmp_path, HOSTS, 3, faults, T0)
    made.write_until(SECONDS)
    made.close()
    snapshot = session.load(run_dir)
    assert snapshot.condition == "done"
    assert [core.core for core in snapshot.cores] == list(range(HOSTS * CORES_PER_HOST))
    assert snapshot.damage.regions == []
    assert {bad.core for bad in snapshot.non_finite} == {faults.nan_core}
    assert [core.core for core in snapshot.cores if math.isnan(core.loss or 0.0)] == [faults.nan_core]


@pytest.mark.parametrize("until_s", [30.0, 130.0])
def test_a_missing_host_is_reported_by_the_others_after_each_minute(tmp_path: Path, until_s: float) -> None:
    run_dir, made = pod_journals.create(tmp_path, 2, 1, Faults(missing=1), T0)
    made.write_until(until_s)
    made.close(ended=False)
    awaited = [each for each in session.read_events(run_dir) if type(each.event).__name__ == "HostsAwaited"]
    assert len(awaited) == int(until_s // 60)
    assert not (run_dir / "worker-1.jsonl").exists()


def test_slow_host_and_nan_are_named_and_nothing_else() -> None:
    verdicts = [pod_judge.judge(seed, 8, 20.0) for seed in (1, 2)]
    assert [verdict.errors for verdict in verdicts] == [(), ()]
    assert all(verdict.slow_after_s is not None and verdict.nan_after_s is not None for verdict in verdicts)


@pytest.mark.slow
def test_slow_host_and_nan_of_a_pod_are_named_for_every_seed() -> None:
    verdicts = [pod_judge.judge(seed, 32, 20.0) for seed in range(1, 13)]
    assert [verdict for verdict in verdicts if verdict.errors] == []
