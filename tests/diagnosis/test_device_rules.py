"""Idle cores, throttling and links: made-up readings above the thresholds that the rules cite, and just below."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.diagnosis.runs import by_rule, plan, reports, snapshot_of, synced, topology, window
from tests.diagnosis.test_time_and_shape_rules import stages
from tests.recorded import T0
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import RuleName, Verdict, found
from tputui.telemetry import events as ev


def sample(t: float, duty: float | None = None, throttle: int | None = None, link: int | None = None) -> ev.Event:
    cores = [
        ev.CoreSample(core=core, duty_cycle_percent=duty, throttle_score=throttle if core == 3 else 0,
                      ici_link_health=link if core in (1, 2) else 0)
        for core in range(8)
    ]  # fmt: skip
    return ev.DeviceSampled(t=T0 + t, cores=cores, absent=[])


def duty(percent: float, start: int = 6, stop: int = 20) -> list[ev.Event]:
    """Samples during training, after 0 % while the run starts and compiles."""
    return [sample(t, 0.0) for t in range(4)] + [sample(t, percent) for t in range(start, stop)]


def verdicts(devices: Iterable[ev.Event], *events: ev.Event) -> tuple[Verdict, ...]:
    worker = [topology("TPU"), plan(), *reports(), *events]
    return diagnose(snapshot_of({"supervisor-0": devices, "worker-0": worker}))


def one(rule: RuleName, devices: Iterable[ev.Event], *events: ev.Event, status: str = "found") -> Verdict:
    (verdict,) = by_rule(verdicts(devices, *events), rule, status)
    return verdict


def test_idle_cores_without_a_cause_are_a_finding() -> None:
    verdict = one("device_idle", duty(60.0))
    assert verdict.text == "the TPU cores are idle for 40 % of the time, and the host shows no cause"
    assert verdict.lost_s == pytest.approx(4.0, rel=0.01)
    assert verdict.speedup == pytest.approx(1 / 0.6, rel=0.01)
    assert "duty cycle" in verdict.evidence[0]


def test_idle_time_up_to_a_tenth_is_healthy() -> None:
    assert found(verdicts(duty(90.0))) == ()
    assert one("device_idle", duty(89.0))


def test_a_few_idle_samples_are_evaluations() -> None:
    mixed = duty(95.0)[:-4] + [sample(t, 5.0) for t in range(16, 20)]
    assert found(verdicts(mixed)) == ()
    assert found(verdicts(duty(20.0, start=16))) == ()  # too few samples


def test_idle_time_is_evidence_for_a_slow_host_and_no_second_finding() -> None:
    slow = verdicts(duty(60.0), stages(4.0, read=9.0))
    (verdict,) = by_rule(slow, "input")
    assert any("idle for 40 % of the time, by 14 samples of their duty cycle" in text for text in verdict.evidence)
    assert by_rule(slow, "device_idle") == []
    reading = verdicts(duty(60.0), synced(count=20, waited_s=0.8), window())
    assert by_rule(reading, "sync")
    assert by_rule(reading, "device_idle") == []


def test_throttled_core_is_named() -> None:
    verdict = one("throttling", [sample(19.0, 95.0, throttle=3)])
    assert verdict.text == "core 3: throttled by up to 30 %"
    assert by_rule(verdicts([sample(18.0, 95.0, throttle=3), sample(19.0, 95.0, throttle=0)]), "throttling") == []
    assert by_rule(verdicts([sample(19.0, 95.0)]), "throttling") == []


@pytest.mark.parametrize(
    ("health", "status", "fatal", "text"),
    [
        (1, "hint", False, "transient problem"),
        (5, "hint", False, "transient problem"),
        (6, "found", False, "persistent problem"),
        (10, "found", True, "link is not usable"),
    ],
)
def test_link_health_by_severity(health: int, status: str, fatal: bool, text: str) -> None:
    verdict = one("link_health", [sample(19.0, 95.0, link=health)], status=status)
    assert verdict.text == f"cores 1-2: {text} of a link to another chip"
    assert verdict.fatal is fatal


def test_healthy_links_are_no_finding() -> None:
    assert by_rule(verdicts([sample(19.0, 95.0, link=0)]), "link_health", "hint") == []
    assert found(verdicts([sample(19.0, 95.0, link=0)])) == ()


def test_memory_that_the_tpu_runtime_reports_is_continued() -> None:
    def used(t: float, gib: float) -> ev.Event:
        hbm = [ev.HbmReading(core=0, used_bytes=int(gib * (1 << 30)), limit_bytes=16 << 30, peak_bytes=0)]
        return ev.MemorySampled(t=T0 + t, hbm=hbm)

    growing = [used(t, 8 + 0.02 * t) for t in range(0, 300, 5)]
    worker = [topology("TPU"), plan(), *reports()]
    grown = diagnose(snapshot_of({"supervisor-0": growing, "worker-0": worker}, now=300))
    assert by_rule(grown, "memory_trend")
    level = diagnose(snapshot_of({"supervisor-0": [used(t, 8) for t in range(0, 300, 5)], "worker-0": worker}, now=300))
    assert by_rule(level, "memory_trend") == []
