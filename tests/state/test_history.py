"""How a run went over time: the figures are those of the reports, however many there were."""

from __future__ import annotations

import itertools
import math
import random

import msgspec
import pytest

from tests.diagnosis.runs import compiled
from tests.recorded import STEP_S, T0, opened, reading, supervisor_events, worker_events
from tests.state.test_snapshot_builder import around, of, run_until, seen
from tputui.state.chart_data import MemoryPoint, ThroughputView
from tputui.state.history import combined_memory, eta_s
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.state_struct import POINTS_MAX, Downsampled
from tputui.telemetry import events as ev


def throughput(snapshot: Snapshot) -> ThroughputView:
    assert snapshot.throughput is not None
    return snapshot.throughput


def report(t: float, step: int, step_s: float, examples_per_s: float = 1_000.0) -> ev.ProgressReported:
    return ev.ProgressReported(
        t=T0 + t, epoch=1, epoch_step=step, step=step, step_s=step_s, examples_per_s=examples_per_s, lr=0.1,
        report_steps=10)  # fmt: skip


def reported(*reports: ev.Event) -> ThroughputView:
    return throughput(seen({"worker-0": [opened(T0, "worker"), *reports]}, around(T0 + 9_999)))


def test_before_the_first_report_there_is_no_throughput() -> None:
    assert run_until(5).throughput is None


def test_recorded_run_has_a_steady_pace() -> None:
    view = throughput(run_until(12))
    assert (view.num_reports, view.examples_per_s) == (6, 64 / STEP_S)
    assert [(point.step, point.step_s) for point in view.history] == [(k, STEP_S) for k in (11, 22, 33, 44, 55, 66)]
    for figure in (view.step_p50_s, view.step_p95_s):
        assert figure == pytest.approx(STEP_S, rel=1e-9)
    assert view.steady_examples_per_s == pytest.approx(64 / STEP_S, rel=1e-9)


def test_quantiles_count_steps_not_reports() -> None:
    view = reported(report(1, 90, 0.01), report(2, 92, 5.0), report(3, 94, 5.0), report(4, 96, 5.0))
    assert view.step_p50_s == pytest.approx(0.01, rel=2e-3)
    view = reported(*(report(k, 10 * k, 0.01) for k in range(1, 91)), *(report(k, 10 * k, 0.5) for k in range(91, 101)))
    assert view.step_p50_s == pytest.approx(0.01, rel=2e-3)
    assert view.step_p95_s == pytest.approx(0.5, rel=2e-3)


def test_a_report_that_measured_nothing_is_passed_over() -> None:
    view = reported(report(1, 10, 0.01), report(2, 20, 0.0), report(3, 30, math.nan), report(4, 30, 0.02))
    assert (view.num_reports, len(view.history)) == (2, 2)


def test_the_speed_now_is_that_of_the_reports_of_the_last_ten_seconds() -> None:
    even = [report(1 + k, 10 + 10 * k, 0.1, 100.0) for k in range(1, 20)]
    view = reported(report(1, 10, 5.0, 1.0), *even, report(21, 210, 0.3, 50.0))
    assert view.examples_per_s == pytest.approx((9 * 100.0 + 3 * 50.0) / (9 + 3))


def test_the_first_report_is_not_the_speed_now_once_there_is_another() -> None:
    assert reported(report(1, 10, 5.0, 1.0)).examples_per_s == 1.0
    assert reported(report(1, 10, 5.0, 1.0), report(2, 20, 0.1, 100.0)).examples_per_s == pytest.approx(100.0)


def test_long_run_has_few_points_with_exact_sums() -> None:
    number = 20_000
    view = reported(*(report(k, 10 * k, 0.01 if k % 2 else 0.03, 100.0) for k in range(1, number + 1)))
    assert view.num_reports == number
    assert POINTS_MAX // 2 <= len(view.history) <= POINTS_MAX
    assert view.history[-1].step == 10 * number
    for point in view.history[:-1]:
        assert point.step_s == pytest.approx(0.02)
        assert point.examples_per_s == pytest.approx(100.0)


def test_the_epoch_ends_after_its_steps_and_its_evaluation() -> None:
    early, late = throughput(run_until(7.5)), throughput(run_until(7.7))
    expected = 11 * STEP_S + 0.45 - 0.25
    assert early.eta_epoch_s == pytest.approx(expected, abs=0.01)
    assert late.eta_epoch_s == pytest.approx(expected - 0.2, abs=0.01)
    assert throughput(run_until(6.4)).eta_epoch_s is None, "between two epochs"
    assert throughput(run_until(12)).eta_epoch_s is None, "the run is over"


def test_memory_over_time_is_that_of_all_hosts() -> None:
    def hbm(t: float, *used: int) -> ev.MemorySampled:
        readings = [ev.HbmReading(core=core, used_bytes=n, limit_bytes=99, peak_bytes=0) for core, n in enumerate(used)]
        return ev.MemorySampled(t=T0 + t, hbm=readings)

    def host(t: float, used: int, rss: int) -> ev.HostSampled:
        process = ev.ProcessSample(pid=1, role="worker", rss_bytes=rss, cpu_percent=1.0)
        return ev.HostSampled(
            t=T0 + t, cpu_percent=1.0, memory_used_bytes=used, memory_total_bytes=99, processes=[process]
        )  # fmt: skip

    journals: dict[str, list[ev.Event]] = {
        "worker-0": [hbm(1, 5, 7), hbm(4, 6, 6)],
        "worker-1": [hbm(2, 3, 9)],
        "supervisor-0": [host(3, 40, 4)],
        "supervisor-1": [host(5, 50, 5)],
    }
    points = seen(journals, around(T0 + 9)).memory_history
    memory = [(point.t - T0, point.hbm_used_bytes, point.host_used_bytes, point.rss_bytes) for point in points]
    assert memory == [(1, 7, None, None), (2, 9, None, None), (3, 9, 40, 4), (4, 9, 40, 4), (5, 9, 90, 9)]


def test_memory_of_a_long_run_includes_its_peak() -> None:
    events: list[ev.Event] = [
        msgspec.structs.replace(of(supervisor_events(None), ev.HostSampled)[0], t=T0 + k, memory_used_bytes=k % 97)
        for k in range(20_000)
    ]
    events[7_777] = msgspec.structs.replace(of(events[7_777:7_778], ev.HostSampled)[0], memory_used_bytes=1 << 40)
    points = seen({"supervisor-0": events}, around(T0 + 20_000)).memory_history
    assert len(points) <= POINTS_MAX
    [peak] = [point for point in points if point.host_used_bytes == 1 << 40]
    assert abs(peak.t - T0 - 7_777) <= 100
    assert all(point.hbm_used_bytes is None for point in points)


def test_meters_over_time_are_those_that_were_reported() -> None:
    points = run_until(12).meter_history
    reports = of(worker_events(), ev.MetersReported)
    assert [(point.epoch, point.split, point.step, point.avg) for point in points] == [
        (event.epoch, event.split, event.step, {"loss": event.meters["loss"].avg}) for event in reports
    ]


def test_meters_of_a_long_run_are_sampled_with_the_newest() -> None:
    events: list[ev.Event] = [
        ev.MetersReported(t=T0 + k, epoch=1, step=k, split=split, meters={"loss": reading([float(k)])}, reduced="")
        for k in range(1, 5_001)
        for split in ("train", "valid")
    ]
    points = seen({"worker-0": events}, around(T0 + 5_000)).meter_history
    for split in ("train", "valid"):
        of_split = [point for point in points if point.split == split]
        assert len(of_split) <= POINTS_MAX
        assert (of_split[-1].step, of_split[-1].avg) == (5_000, {"loss": 5_000.0})


def test_remaining_time_does_not_jump_with_uneven_reports() -> None:
    """Its steps take 0.1 s in the mean, a report's mean half to one and a half of that; one in fifty is a hiccup."""
    chance = random.Random(4)
    plan = run_until(12).plan
    assert plan is not None
    plan = msgspec.structs.replace(plan, total_steps=100_000)
    state = RunState()
    state.apply("worker-0", 0, opened(T0, "worker"))
    total_s = []
    for number in range(1, 601):
        step_s = 0.1 * chance.choice([0.5, 0.8, 1.0, 1.2, 1.5]) * (10 if number % 50 == 0 else 1)
        state.apply("worker-0", number, report(number, 10 * number, step_s))
        to_go = eta_s(state, plan, [], T0 + number)
        if number > 60:
            assert to_go is not None
            total_s.append(to_go / (100_000 - 10 * number))
    assert all(0.085 < each < 0.115 for each in total_s)
    changes = [abs(after / before - 1) for before, after in itertools.pairwise(total_s)]
    assert max(changes) < 0.05, "from one report to the next"


def counters(t: float, compiles: int, executes: int) -> ev.XlaMetricsRead:
    return ev.XlaMetricsRead(
        t=T0 + t,
        compiles=compiles,
        compile_s=1.5 * compiles,
        recompiles=0,
        executes=executes,
        execute_s=0.1 * executes,
        transfers_to_device=0,
        transfers_from_device=0,
        bytes_to_device=0,
        bytes_from_device=0,
        fallbacks={},
    )


def test_xla_counters_over_time_are_summed_over_the_processes() -> None:
    journals: dict[str, list[ev.Event]] = {
        "worker-0": [opened(T0, "worker"), counters(1, 2, 0), report(2, 10, 0.01), counters(2, 2, 10)],
        "worker-1": [
            opened(T0, "worker", 1),
            counters(1.5, 2, 0),
            counters(3, 3, 10),
            msgspec.structs.replace(counters(4, 3, 10), execute_s=math.nan),
        ],
    }
    points = seen(journals, around(T0 + 9)).xla_history
    assert [(point.t - T0, point.step, point.compiles, point.executes) for point in points] == [
        (1, 0, 2, 0), (1.5, 0, 4, 0), (2, 10, 4, 10), (3, 10, 5, 20),
    ]  # fmt: skip
    assert points[-1].compile_s == pytest.approx(7.5)
    assert points[-1].execute_s == pytest.approx(2.0)


def compiled_in(view: Snapshot) -> tuple[int, int, int]:
    """Programs compiled, by the counters, by their newest point and by the events about them."""
    assert view.xla is not None
    late = sum(group.total for group in view.evidence.compiles)
    return view.xla.compiles, view.xla_history[-1].compiles, late


def test_a_process_with_two_journals_is_counted_once() -> None:
    journals: dict[str, list[ev.Event]] = {
        "worker-0": [opened(T0 + 2, "worker"), compiled(8), report(3, 10, 0.01), counters(3, 5, 20)],
        "observer-0": [opened(T0, "observer"), compiled(1), counters(1, 2, 5), compiled(30), counters(9, 7, 60)],
        "observer-1": [opened(T0, "observer", pid=7), compiled(8), counters(4, 3, 30)],
    }
    for names in itertools.permutations(journals):
        view = seen({name: journals[name] for name in names}, around(T0 + 9))
        assert compiled_in(view) == (10, 10, 4)
        assert view.xla_history[-1].step == 10
        assert [group.count for group in view.evidence.compiles] == [3]


def test_observed_processes_from_before_a_restart_are_not_counted() -> None:
    again = msgspec.structs.replace(opened(T0 + 20, "worker", pid=8), generation=1)
    journals: dict[str, list[ev.Event]] = {
        "worker-0": [opened(T0 + 2, "worker", pid=7), counters(3, 5, 20), again, counters(23, 2, 6)],
        "observer-0": [opened(T0, "observer", pid=7), counters(1, 2, 5)],
        "observer-1": [opened(T0, "observer", pid=9), counters(10, 4, 5)],
        "observer-10000": [opened(T0 + 19, "observer", pid=8), counters(20, 1, 1), counters(25, 3, 9)],
        "observer-10001": [opened(T0 + 19, "observer", pid=10), counters(25, 4, 4)],
    }
    for names in itertools.permutations(journals):
        view = seen({name: journals[name] for name in names}, around(T0 + 25))
        assert compiled_in(view) == (7, 7, 0)


def test_xla_counters_of_a_long_run_lose_no_compile() -> None:
    events = [counters(k, 1 + (k >= 7_777), k) for k in range(20_000)]
    points = seen({"worker-0": [opened(T0, "worker"), *events]}, around(T0 + 20_000)).xla_history
    assert len(points) <= POINTS_MAX
    assert (points[-1].t - T0, points[-1].compiles, points[-1].executes) == (19_999, 2, 19_999)
    [(_, compiled)] = [pair for pair in itertools.pairwise(points) if pair[0].compiles < pair[1].compiles]
    assert 0 <= compiled.t - T0 - 7_777 <= 100


def test_memory_combined_while_it_is_sampled_equals_memory_combined_at_once() -> None:
    chance, kept = random.Random(1), combined_memory()
    series = [Downsampled[MemoryPoint](most=16) for _ in range(600)]
    for _ in range(30):
        for process in chance.choices(range(chance.choice([3, 600])), k=400):
            used = chance.randrange(1 << 30)
            t = (series[process].items[-1].t if series[process].items else T0) + chance.choice([1.0, 1.0, 7.5])
            on_device = MemoryPoint(t=t, hbm_used_bytes=used)
            on_host = MemoryPoint(t=t, host_used_bytes=used, rss_bytes=used // 2)
            sample = on_device if process % 2 else on_host
            series[process].add(sample, MemoryPoint.join)
        assert kept.of(series) == combined_memory().of(series)


def test_traffic_over_time_is_summed_over_the_hosts_and_cpu_use_is_their_mean() -> None:
    def host(t: float, cpu_percent: float, read: int | None) -> ev.HostSampled:
        return ev.HostSampled(
            t=T0 + t,
            cpu_percent=cpu_percent,
            memory_used_bytes=1,
            memory_total_bytes=99,
            processes=[],
            disk_read_bytes_per_s=read,
        )

    journals: dict[str, list[ev.Event]] = {
        "supervisor-0": [host(1, 20.0, 100), host(3, 40.0, 300)],
        "supervisor-1": [host(2, 60.0, None), host(4, math.nan, None), host(5, 80.0, 7)],
    }
    snapshot = seen(journals, around(T0 + 9))
    points = [(p.t - T0, p.cpu_percent, p.disk_read_bytes_per_s) for p in snapshot.memory_history]
    assert points == [(1, 20, 100), (2, 40, 100), (3, 50, 300), (4, 50, 300), (5, 60, 307)]
    assert {p.network_sent_bytes_per_s for p in snapshot.memory_history} == {None}
    assert (snapshot.memory.disk_read_bytes_per_s, snapshot.memory.network_sent_bytes_per_s) == (307, None)


def test_traffic_of_a_long_run_is_a_mean() -> None:
    [sample] = of(supervisor_events(None), ev.HostSampled)
    events: list[ev.Event] = [
        msgspec.structs.replace(sample, t=T0 + k, cpu_percent=100.0 * (k % 2), network_sent_bytes_per_s=k % 2 * 1000)
        for k in range(16_384)
    ]
    points = seen({"supervisor-0": events}, around(T0 + 20_000)).memory_history
    assert len(points) < 1_000
    assert [point.cpu_percent for point in points] == pytest.approx([50.0] * len(points))
    assert [point.network_sent_bytes_per_s for point in points] == pytest.approx([500.0] * len(points))
