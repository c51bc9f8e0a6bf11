"""Journals of hosts whose clocks differ: times are corrected to the first host, and no event changes its place."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import recorded
from tests.recorded import T0
from tputui.cache import cache_file
from tputui.cache.cache_writer import CacheWriter
from tputui.session import session
from tputui.session.player import spans
from tputui.session.session import Session
from tputui.telemetry import events as ev
from tputui.telemetry.compressed import seal
from tputui.telemetry.journal import SUFFIX, JournalWriter
from tputui.telemetry.logged_values import LoggedColumns, unpack, values_logged
from tputui.telemetry.merge import HostClock, JournalEvent, Merge

ERROR_S = 0.005
SKEWS = st.lists(st.floats(-300.0, 300.0), min_size=1, max_size=3)


def measured(t: float, offset_s: float) -> ev.ClockMeasured:
    return ev.ClockMeasured(t=t, offset_s=offset_s, error_s=ERROR_S, reference="tpu-vm-0")


def beat(t: float, step: int) -> ev.HeartbeatSent:
    return ev.HeartbeatSent(t=t, phase="executing", phase_s=0.0, step=step, epoch=1)


def on_clock(events: list[ev.Event], ahead_s: float) -> list[ev.Event]:
    """Events of a host whose clock is ahead."""
    return [msgspec.structs.replace(event, t=event.t + ahead_s) for event in events]


def write_run(run_dir: Path, skews: list[float], drift_s: float = 0.0) -> None:
    """Hosts that finish a step every second at the same time, and measure their clocks twice; the first has no skew."""
    for host, skew in enumerate([0.0, *skews]):
        steps: list[ev.Event] = [beat(T0 + step, step) for step in range(1, 60)]
        worker = [recorded.opened(T0, "worker", host), *steps]
        clocks: list[ev.Event] = [measured(T0 + 5, skew), measured(T0 + 30, skew + drift_s)] if host else []
        late = [msgspec.structs.replace(event, t=event.t + drift_s * (event.t > T0 + 40)) for event in worker]
        recorded.write_journal(run_dir / f"worker-{host}{SUFFIX}", on_clock(late, skew))
        supervisor = [recorded.opened(T0, "supervisor", host), *clocks]
        recorded.write_journal(run_dir / f"supervisor-{host}{SUFFIX}", on_clock(supervisor, skew))


def everything(run_dir: Path) -> list[JournalEvent]:
    merge = Merge(run_dir)
    found: list[JournalEvent] = []
    is_through = False
    while not is_through:
        events, is_through = merge.poll()
        found += events
    merge.close()
    return found


@given(skews=SKEWS, drift_s=st.floats(-ERROR_S, ERROR_S))
@settings(max_examples=25, deadline=None)
def test_synchronous_events_agree_and_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, skews: list[float], drift_s: float
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    write_run(run_dir, skews, drift_s)
    events = everything(run_dir)
    times: dict[int, list[float]] = {}
    newest: dict[str, tuple[int, float]] = {}
    for writer, seq, event in events:
        before_seq, before_t = newest.get(writer, (-1, 0.0))
        assert seq == before_seq + 1
        assert event.t >= before_t - ERROR_S
        newest[writer] = seq, event.t
        if isinstance(event, ev.HeartbeatSent):
            times.setdefault(event.step, []).append(event.t)
    assert {len(each) for each in times.values()} == {len(skews) + 1}
    assert all(max(each) - min(each) <= 2 * ERROR_S for each in times.values())
    in_order = [event.t for _, _, event in events]
    assert all(after >= before - 2 * ERROR_S for before, after in itertools.pairwise(in_order))


def test_times_of_logged_values_are_corrected_with_their_event(tmp_path: Path) -> None:
    times, one = [T0 + 1.0, math.nan, T0 + 3.0], LoggedColumns([0.25], [7], [T0 + 4.0], None)
    several = LoggedColumns([0.5, math.inf, 0.1], [1, 2, 3], [t + 90.0 for t in times], None)
    logged = [
        values_logged(T0 + 95, "loss", "train", "train/loss", "console", columns)
        for columns in (several, one._replace(times=[T0 + 94.0]), one._replace(times=None))
    ]
    damaged = msgspec.structs.replace(logged[0], times="z!")
    recorded.write_journal(tmp_path / "logs-1.jsonl", [recorded.opened(T0 + 90, "logs", 1), *logged, damaged])
    clocks = [recorded.opened(T0 + 90, "supervisor", 1), measured(T0 + 91, 90.0)]
    recorded.write_journal(tmp_path / "supervisor-1.jsonl", clocks)

    found = [event for _, _, event in everything(tmp_path) if isinstance(event, ev.ValuesLogged)]

    assert [event.t for event in found] == [T0 + 5] * 4
    assert [unpack(event).values[0] for event in found[:3]] == [0.5, 0.25, 0.25]
    assert repr(list(unpack(found[0]).times or ())) == repr(times)
    assert (found[0].value_t, list(unpack(found[1]).times or ()), unpack(found[2]).times) == (T0 + 3, [T0 + 4], None)
    assert (found[3].value_t, found[3].times) == (T0 + 3, "z!")


def test_times_stay_as_they_are_without_a_measurement(tmp_path: Path) -> None:
    recorded.write_journal(tmp_path / "worker-1.jsonl", [recorded.opened(T0 + 90, "worker", 1), beat(T0 + 91, 1)])
    recorded.write_journal(tmp_path / "supervisor-1.jsonl", [recorded.opened(T0 + 90, "supervisor", 1)])
    assert [event.t for _, _, event in everything(tmp_path)] == [T0 + 90, T0 + 90, T0 + 91]


def test_clock_that_is_set_forward_is_right_again_after_the_next_measurement(tmp_path: Path) -> None:
    recorded.write_journal(
        tmp_path / "worker-0.jsonl", [recorded.opened(T0, "worker"), *(beat(T0 + step, step) for step in range(1, 150))]
    )
    behind_s, set_at, again_at = -57.0, 20, 30
    ahead_s = [behind_s if step < set_at else 0.0 for step in range(150)]
    beats = [beat(T0 + step + ahead_s[step], step) for step in range(1, 150)]
    recorded.write_journal(tmp_path / "worker-1.jsonl", [recorded.opened(T0 + behind_s, "worker", 1), *beats])
    clocks = [measured(T0 + 5 + behind_s, behind_s), measured(T0 + again_at, 0.0), measured(T0 + 60, 0.0)]
    recorded.write_journal(tmp_path / "supervisor-1.jsonl", [recorded.opened(T0, "supervisor", 1), *clocks])
    of_host = [event for writer, _, event in everything(tmp_path) if writer == "worker-1"]
    found = {event.step: event.t - T0 for event in of_host if isinstance(event, ev.HeartbeatSent)}
    assert [found[step] for step in (1, set_at - 1, 100, 149)] == [1.0, set_at - 1.0, 100.0, 149.0]
    assert all(after >= before for before, after in itertools.pairwise(found.values()))
    opened = Session.live(tmp_path, lambda: T0 + 150)
    opened.read_all()
    snapshot = opened.snapshot()
    opened.close()
    assert not [text for text in snapshot.warnings if "set back" in text]
    assert snapshot.newest_fact == T0 + 149


def test_measurements_are_read_as_the_journal_grows(tmp_path: Path) -> None:
    with_clocks = JournalWriter(tmp_path / "supervisor-1.jsonl")
    with_clocks.append([recorded.opened(T0, "supervisor", 1), measured(T0, 2.0), beat(T0 + 1, 1)])
    clock = HostClock(tmp_path, 1)
    clock.refresh(T0 + 5)
    with_clocks.append([measured(T0 + 100, 3.0), beat(T0 + 101, 2)])
    clock.refresh(T0 + 8)
    assert clock.corrected(T0 + 200) == T0 + 198
    clock.refresh(T0 + 200)
    assert clock.corrected(T0 + 200) == T0 + 197
    with_clocks.close()


def test_measurement_without_a_sensible_value_is_ignored(tmp_path: Path) -> None:
    wrong = [measured(T0, value) for value in (float("nan"), float("inf"), 1e300)]
    recorded.write_journal(tmp_path / "worker-1.jsonl", [recorded.opened(T0, "worker", 1)])
    recorded.write_journal(tmp_path / "supervisor-1.jsonl", [recorded.opened(T0, "supervisor", 1), *wrong])
    assert {event.t for _, _, event in everything(tmp_path)} == {T0}


def test_view_that_was_open_before_the_clock_was_measured_shows_the_same_as_a_later_one(
    recorded_run: Path,
) -> None:
    writers = {name: JournalWriter(recorded_run / f"{name}{SUFFIX}") for name in ("worker-1", "rank-9", "supervisor-1")}
    rank = msgspec.structs.replace(recorded.opened(T0 + 90, "rank", 9), host_index=1)
    writers["worker-1"].append([recorded.opened(T0 + 90, "worker", 1), beat(T0 + 91, 1)])
    writers["rank-9"].append([rank, beat(T0 + 91, 1)])
    writers["supervisor-1"].append([recorded.opened(T0 + 90, "supervisor", 1)])
    followed = Session.live(recorded_run, lambda: T0 + 12)
    early = [event for event in followed.poll() if event.writer.endswith("-1")]
    assert len(early) == 3
    writers["supervisor-1"].append([measured(T0 + 92, 90.0)])
    writers["worker-1"].append([beat(T0 + 93, 2)])
    writers["rank-9"].append([beat(T0 + 93, 2)])
    late = [event for event in followed.poll() if event.writer.endswith("-1")]
    # An event is returned once, although the journals are read again.
    assert sorted((event.writer, event.seq) for event in late) == [("supervisor-1", 1), ("worker-1", 2)]
    for writer in writers.values():
        writer.close()
    opened = Session.live(recorded_run, lambda: T0 + 12)
    opened.read_all()
    assert followed.snapshot() == opened.snapshot()
    host = opened.snapshot().hosts[1]
    assert (host.clock_offset_s, host.clock_error_s) == (90.0, ERROR_S)
    followed.close()
    opened.close()


def test_range_of_a_replay_is_that_of_the_first_host(tmp_path: Path) -> None:
    write_run(tmp_path, [90.0])
    for path in sorted(tmp_path.glob("*-1.jsonl")):
        seal(path)
    found = {span.writer: (span.start - T0, span.end - T0) for span in spans(tmp_path)}
    assert found["worker-1"] == pytest.approx(found["worker-0"])


def test_cached_states_of_a_corrected_host_agree_with_its_journals(tmp_path: Path) -> None:
    write_run(tmp_path, [-40.0], drift_s=0.001)
    CacheWriter(tmp_path, spacing_bytes=500, spacing_share=0).finish()
    assert any(path.name.startswith("worker-1-") for path in cache_file.listed(tmp_path))
    verifier = cache_file.CacheVerifier(tmp_path)
    for event in session.read_events(tmp_path):
        verifier.take(*event)
    assert {finding.why_not for finding in verifier.findings()} == {""}
