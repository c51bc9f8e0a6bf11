"""Steps that are slow in a rhythm: none is found in random pauses, and those that are there are, with their cause."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from msgspec.structs import replace

from tests.diagnosis import runs
from tests.recorded import T0
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.rhythm_rules import period_of
from tputui.diagnosis.verdict import Verdict
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks

Times = list[float]


def _spikes(chance: random.Random, num: int) -> Times:
    rate = chance.choice([0.005, 0.02, 0.1, 0.3])
    return [chance.gauss(1, 0.03) + (0.5 + chance.expovariate(1 / 3)) * (chance.random() < rate) for _ in range(num)]


def _bursts(chance: random.Random, num: int) -> Times:
    times: Times = []
    while len(times) < num:
        times += [chance.gauss(1, 0.03) for _ in range(int(chance.expovariate(1 / 40)) + 1)]
        times += [chance.gauss(2, 0.1) for _ in range(chance.randint(1, 6))]
    return times[:num]


def _correlated(chance: random.Random, num: int) -> Times:
    shocks = [chance.gauss(0, 0.1) for _ in range(num)]
    return [math.exp(level) for level in accumulate(shocks, lambda level, shock: 0.95 * level + shock)]


def _shifted(chance: random.Random, num: int) -> Times:
    at = chance.randrange(1, num)
    return [chance.gauss(1, 0.05) * (1 if place < at else 1.5) for place in range(num)]


def _jittered(chance: random.Random, num: int) -> Times:
    times, place, about = [chance.gauss(1, 0.03) for _ in range(num)], 0, chance.randint(10, 60)
    while (place := place + max(1, round(chance.gauss(about, 0.15 * about)))) < num:
        times[place] += 2
    return times


APERIODIC: tuple[Callable[[random.Random, int], Times], ...] = (
    lambda chance, num: [max(0.01, chance.gauss(1, 0.1)) for _ in range(num)],
    lambda chance, num: [math.exp(chance.gauss(0, 0.5)) for _ in range(num)],
    lambda chance, num: [0.5 + chance.paretovariate(1.5) for _ in range(num)],
    _spikes,
    _bursts,
    _correlated,
    _shifted,
    _jittered,
)


def rhythmic(chance: random.Random, steps: int, num: int, extra_s: float = 0.1, noise: float = 0.05) -> Times:
    offset = chance.randrange(steps)
    return [0.1 * (chance.gauss(1, noise)) + extra_s * (place % steps == offset) for place in range(num)]


def test_random_slow_steps_have_no_period() -> None:
    """320 series, of eight kinds of noise, bursts and drift."""
    found = [
        (kind, seed, period)
        for kind, make in enumerate(APERIODIC)
        for seed in range(40)
        if (period := period_of(make(chance := random.Random(seed), chance.choice([64, 300, 1000]))))
    ]
    assert found == []


def test_planted_periods_are_found() -> None:
    """From 2 to 500 steps, in noise of 2 to 20 %, with as many as 1 % of other pauses."""
    planted, missed = 0, []
    for seed in range(120):
        chance = random.Random(seed)
        steps = chance.choice([2, 3, 5, 8, 10, 32, 64, 100, 256, 500, chance.randint(2, 500)])
        noise, rate = chance.choice([0.02, 0.05, 0.1, 0.2]), chance.choice([0, 0.01])
        times = rhythmic(chance, steps, min(4000, max(200, 12 * steps)), 0.1 * (8 * noise + 0.2), noise)
        times = [seconds + (chance.expovariate(10) if chance.random() < rate else 0.0) for seconds in times]
        planted += 1
        period = period_of(times)
        missed += [] if period is not None and period.steps == steps else [(seed, steps, period)]
    assert len(missed) <= 0.05 * planted, missed


def timed(times: Sequence[float], waited_s: float | None = None, **fields: object) -> list[ev.Event]:
    """Reports of steps with their wall times; what else was measured is in the last one."""
    events: list[ev.Event] = []
    for last in range(50, len(times) + 1, 50):
        block = float_blocks.pack_plain(float_blocks.little_endian_bytes(float_blocks.float32(times[last - 50 : last])))
        given = {"waited_s": waited_s, **fields} if last > len(times) - 50 else {}
        events.append(
            ev.ProgressReported(
                t=T0 + 20 * last / len(times), epoch=1, epoch_step=last, step=last, step_s=0.1, examples_per_s=64.0,
                lr=0.1, report_steps=50, timed_steps=50, steps_s=block, **given,  # type: ignore[arg-type]
            )
        )  # fmt: skip
    return events


def verdicts(*events: ev.Event, device: str = "unknown") -> list[Verdict]:
    topology = runs.topology(device, strategy="script")
    found = diagnose(runs.snapshot_of({"worker-0": [topology, *events]}))
    return [one for one in found if one.rule in ("slow_steps", "garbage", "input") and one.status in ("found", "hint")]


def test_a_rhythm_is_named_with_its_period_and_share() -> None:
    (verdict,) = verdicts(*timed(rhythmic(random.Random(1), 32, 600, 0.8)))
    assert (verdict.rule, verdict.status) == ("slow_steps", "found")
    assert verdict.text.startswith("every 32nd step takes 0.80 s longer (20 % of the time of steps): look at what")
    assert verdict.speedup == pytest.approx(1.25, abs=0.02)


def test_a_rhythm_of_waiting_names_the_loader() -> None:
    (verdict,) = verdicts(*timed(rhythmic(random.Random(1), 32, 600, 0.8), waited_s=15.0))
    assert "(20 % of the time of steps), waiting for its batch" in verdict.text
    assert "15 s of waiting for batches in the same steps" in verdict.evidence


def test_where_the_device_computes_later_a_rhythm_is_a_hint() -> None:
    (verdict,) = verdicts(*timed(rhythmic(random.Random(1), 10, 600)), device="TPU")
    assert (verdict.status, verdict.lost_s) == ("hint", None)
    assert "the host may only wait there" in " ".join(verdict.evidence)


def test_a_rhythm_of_compilations_is_that_of_the_recompiles() -> None:
    again = [runs.compiled(step, 0.1) for step in range(10, 600, 10)]
    assert verdicts(*timed(rhythmic(random.Random(1), 10, 600)), *again) == []


def test_garbage_collections_are_named_with_their_rhythm() -> None:
    times = rhythmic(random.Random(1), 20, 600, 0.4)
    (verdict,) = verdicts(*timed(times, collections=[900, 80, 30], collections_s=[0.1, 0.2, 11.9]))
    assert verdict.rule == "garbage"
    assert verdict.text == "Python's garbage collector takes 17 % of the time of steps, 0.40 s in every 20th step"
    assert verdicts(*timed(times[:600:20] * 20, collections=[9, 8, 3], collections_s=[0.1, 0.2, 0.9])) == []


def test_steps_that_are_missing_in_between_are_not_counted_over() -> None:
    times = rhythmic(random.Random(1), 10, 600)
    events = timed(times)
    assert verdicts(*events[:4], *(one for place, one in enumerate(events[4:]) if place % 2)) == []
    torn = [one if place % 3 else replace(one, steps_s="z!") for place, one in enumerate(events)]
    assert [one.rule for one in verdicts(*torn)] == ["slow_steps"]
