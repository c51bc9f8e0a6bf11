"""Rules about single steps: those that are slow in a rhythm, and Python's garbage collector.

Finds steps that are slow in a rhythm: every Nth of them. Pure arithmetic over step times.

A step is slow if it is beyond the noise of the fast ones; of steps whose noise has a long tail, if it is among the
slowest. A period is accepted only if as many slow steps at random would show one with a probability below `CHANCE`,
among all periods and offsets that could have been found: random pauses have none, however many there are.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import DiagnosedRun, speedup_of
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.state.evidence_groups import Line
from tputui.state.step_times import TimedSteps, times_of

STEPS_MIN = 64
REPEATS_MIN = 5
"""Slow steps that a period needs."""
CHANCE = 1e-6
FAST_QUANTILE, FASTEST_QUANTILE = 0.3, 0.05
"""Even if every other step is slow these are of fast ones; their distance is 1.1 to 1.5 standard deviations."""
NOISES = 3.0
"""A step is slow from so many of these distances above the fast ones ..."""
SLOW_LEAST = 0.05
"""... and at least this share above them."""
SLOW_SHARES = (0.55, 0.3, 0.14, 0.07, 0.035, 0.018, 0.009, 0.0045)
"""Shares of the steps, at most, that count as slow in turn. With more there is no rhythm but another pace."""
HITS_MIN = 0.8
"""Share of the steps in the rhythm that must be slow ..."""
OTHERS_MAX = 0.3
"""... and the share of the other steps that may be, relative to it."""
_NEXT = 5
"""Following slow steps whose distances are tried as periods."""
_TRIED = 10


class Period(NamedTuple):
    """A rhythm of slow steps."""

    steps: int
    """Every so many steps one is slow."""
    offset: int
    """Index of the first one."""
    num: int
    """Slow steps in the rhythm."""
    extra_s: float
    """Median time that they take longer than the others."""
    lost_s: float
    """Seconds that they took longer, in total."""
    share: float
    """`lost_s` as a share of the time of all steps."""


def period_of(times: Sequence[float]) -> Period | None:
    """The rhythm that takes most time; `times` are seconds of consecutive steps, NaN where unknown. None if there is
    none."""
    known = sorted(seconds for seconds in times if math.isfinite(seconds))
    if len(known) < STEPS_MIN:
        return None
    fast = known[int(FAST_QUANTILE * len(known))]
    noise = max(fast - known[int(FASTEST_QUANTILE * len(known))], fast * SLOW_LEAST / NOISES)
    bounds = {max(fast + NOISES * noise, known[int((1.0 - share) * len(known))]) for share in SLOW_SHARES}
    found = [period for bound in sorted(bounds) if (period := _beyond(times, bound, len(known))) is not None]
    return max(found, key=lambda period: period.lost_s, default=None)


def _beyond(times: Sequence[float], bound: float, num_known: int) -> Period | None:
    """The rhythm of the steps that take longer than a bound."""
    slow = [place for place, seconds in enumerate(times) if seconds > bound]
    if not REPEATS_MIN <= len(slow) <= SLOW_SHARES[0] * num_known:
        return None
    distances = Counter(
        later - place for at, place in enumerate(slow) for later in slow[at + 1 : at + 1 + _NEXT] if later > place + 1
    )
    # A multiple of a period has half of its seconds at most.
    tried = sorted(distance for distance, _ in distances.most_common(_TRIED))
    periods = [found for steps in tried if (found := _with(times, slow, steps, num_known)) is not None]
    return max(periods, key=lambda period: period.lost_s, default=None)


def _with(times: Sequence[float], slow: Sequence[int], steps: int, num_known: int) -> Period | None:
    """The rhythm with a period; None if the slow steps do not have it."""
    offset, num_slow = Counter(place % steps for place in slow).most_common(1)[0]
    inside = [seconds for seconds in times[offset::steps] if math.isfinite(seconds)]
    num_others = num_known - len(inside)
    if num_slow < max(REPEATS_MIN, HITS_MIN * len(inside)) or not num_others:
        return None
    if (len(slow) - num_slow) / num_others > OTHERS_MAX * num_slow / len(inside):
        return None
    if _log_chance(num_slow, len(inside), len(slow) / num_known) + _log_tests(len(times)) > math.log(CHANCE):
        return None
    usual = median(seconds for place, seconds in enumerate(times) if place % steps != offset and math.isfinite(seconds))
    lost_s = math.fsum(max(0.0, seconds - usual) for seconds in inside)
    total_s = math.fsum(seconds for seconds in times if math.isfinite(seconds))
    return Period(steps, offset, num_slow, median(inside) - usual, lost_s, lost_s / total_s)


def _log_tests(num: int) -> float:
    """Logarithm of the number of periods with their offsets and bounds."""
    return math.log(len(SLOW_SHARES) * num**2 / (2 * REPEATS_MIN))


def _log_chance(hits: int, num: int, rate: float) -> float:
    """Logarithm of the probability, at most, that `hits` of `num` random steps are slow at a rate below 1."""
    ways = math.lgamma(num + 1) - math.lgamma(hits + 1) - math.lgamma(num - hits + 1)
    return ways + hits * math.log(rate)


SHARE_MIN = 0.05
"""Share of the time of steps from which it is a finding: XProf's advice names what takes 5 % of a step."""
EXPLAINED = 0.6
"""Share of the extra time that a measured cause must have taken at least."""
WAITS = ", waiting for its batch"
"""In the text of a verdict on steps that wait for their batch."""
NEAR = 0.25
"""Relative difference up to which reads at a line are as frequent as the slow steps."""


class Rhythm(NamedTuple):
    """The newest steps, one by one."""

    period: Period | None
    num_timed: int
    first: int
    total_s: float
    """Time of the steps whose time is known."""
    waited_s: float
    num_full: int
    collected_s: float

    @property
    def collected_share(self) -> float:
        """Share of the time in garbage collections."""
        return min(1.0, self.collected_s / self.total_s) if self.total_s > 0 else 0.0


@functools.lru_cache(maxsize=8)
def _rhythm_of(reports: tuple[TimedSteps, ...]) -> Rhythm:
    times = times_of(reports)
    known = [seconds for seconds in times if math.isfinite(seconds)]
    return Rhythm(
        period_of(times),
        len(known),
        reports[-1].last - len(times) + 1 if reports else 0,
        math.fsum(known),
        math.fsum(one.waited_s for one in reports),
        sum(one.num_full for one in reports),
        math.fsum(one.collected_s or 0.0 for one in reports),
    )


def rhythm_of(run: DiagnosedRun) -> Rhythm:
    """The newest steps of a run."""
    return _rhythm_of(tuple(run.evidence.times))


def garbage(run: DiagnosedRun) -> Iterator[Verdict]:
    """Garbage collections of Python that take a noticeable part of the steps."""
    rhythm = rhythm_of(run)
    if rhythm.num_timed < STEPS_MIN or (share := rhythm.collected_share) < SHARE_MIN:
        return
    period = rhythm.period if _is_garbage(rhythm) else None
    often = f", {fmt.duration(period.extra_s)} in every {fmt.ordinal(period.steps)} step" if period else ""
    yield _verdict(
        run,
        "garbage",
        f"Python's garbage collector takes {share * 100:.0f} % of the time of steps{often}",
        share,
        [
            f"{fmt.duration(rhythm.collected_s)} in the newest {fmt.counted(rhythm.num_timed, 'step')}, with "
            f"{fmt.counted(rhythm.num_full, 'collection')} of all objects"
        ],
        "call gc.collect() and gc.freeze() after the data set and the model are loaded, which leaves their objects out "
        "of every later collection; keep large lists of numbers in arrays",
    )


def slow_steps(run: DiagnosedRun) -> Iterator[Verdict]:
    """Steps that are slow in a rhythm, with what has the same rhythm."""
    rhythm = rhythm_of(run)
    period = rhythm.period
    if 0 < rhythm.num_timed < STEPS_MIN:
        text = f"{rhythm.num_timed} of the {STEPS_MIN} timed steps that it needs"
        yield Verdict(rule="slow_steps", status="not enough data yet", text=text)
    if period is None or period.share < SHARE_MIN or _has_other_verdict(run, rhythm, period):
        return
    waits = min(rhythm.waited_s, period.lost_s) >= EXPLAINED * period.lost_s
    cause, fix = _input_cause(run, period) if waits else _cause(run, period)
    text = (
        f"every {fmt.ordinal(period.steps)} step takes {fmt.duration(period.extra_s)} longer "
        f"({period.share * 100:.0f} % of the time of steps)"
    )
    evidence = [
        f"{fmt.counted(period.num, 'slow step')} in the rhythm, the first at step {rhythm.first + period.offset:,}, in "
        f"{fmt.counted(rhythm.num_timed, 'timed step')}"
    ]
    if waits:
        evidence.append(f"{fmt.duration(rhythm.waited_s)} of waiting for batches in the same steps")
    elif computes_asynchronously(run):
        evidence.append("the host may only wait there for what the device was given in the steps before")
    known = waits or not computes_asynchronously(run)
    yield _verdict(
        run, "slow_steps", f"{text}{cause}", period.share, evidence, fix, line=_line(run, period), is_known=known
    )


def _verdict(
    run: DiagnosedRun,
    rule: RuleName,
    text: str,
    share: float,
    evidence: list[str],
    fix: str,
    *,
    line: Line | None = None,
    is_known: bool = True,
) -> Verdict:
    """`is_known`: whether the time is lost; else it is a hint."""
    training_s = run.steady_s if run.steady_s is not None else 0.0
    gain = {"speedup": speedup_of(share, 1.0), "speedup_of": "time of steps"} if is_known else {}
    return run.verdict(
        rule,
        text,
        line=line,
        status="found" if is_known else "hint",
        lost_s=share * training_s if is_known else None,
        evidence=evidence,
        fix=fix,
        **gain,
    )


def computes_asynchronously(run: DiagnosedRun) -> bool:
    """Whether the steps of the host end before the device has computed them, so that a step in which the host waits
    makes the ones before it appear too short."""
    topology = run.snapshot.topology
    runtimes = {one.runtime for one in run.evidence.compiles} | {one.runtime for one in run.evidence.windows}
    device = topology.device.upper() if topology is not None else "UNKNOWN"
    return bool(runtimes - {"torch_compile"}) or run.snapshot.xla is not None or device not in ("CPU", "UNKNOWN")


def _is_garbage(rhythm: Rhythm) -> bool:
    return rhythm.period is not None and rhythm.collected_s >= EXPLAINED * rhythm.period.lost_s


def _has_other_verdict(run: DiagnosedRun, rhythm: Rhythm, period: Period) -> bool:
    """Whether the slow steps are the garbage collections, or compile again, which has a verdict with the line."""
    late = [one.count for one in run.evidence.compiles if not one.warm_up and one.last_step >= rhythm.first]
    is_garbage = _is_garbage(rhythm) and rhythm.collected_share >= SHARE_MIN
    return is_garbage or sum(late) * 2 >= period.num


def _input_cause(run: DiagnosedRun, period: Period) -> tuple[str, str]:
    """What is said of steps that wait for their batch: loaders with workers deliver as many at once."""
    fix = "load with more workers, or further ahead; look for what is read once for so many batches"
    data = run.snapshot.config.get("data")
    data = data if isinstance(data, dict) else {}
    threads = run.evidence.input.threads if run.evidence.input is not None else data.get("workers")
    ahead = data.get("prefetch_batches")
    if isinstance(threads, int) and isinstance(ahead, int) and threads > 0 and period.steps == threads * ahead:
        return f"{WAITS}: as often as workers x prefetched batches", fix
    if isinstance(threads, int) and threads > 1 and period.steps == threads:
        return f"{WAITS}: as often as there are workers, {threads}", fix
    return WAITS, fix


def _cause(run: DiagnosedRun, period: Period) -> tuple[str, str]:
    """What else has the period, from what the run reports, and what to do; not a proof."""
    plan = run.snapshot.plan
    saves = [mark.step for mark in run.snapshot.marks if mark.kind == "checkpoint"]
    fix = "do it less often, or let a thread do it"
    if _has_period(saves, period.steps):
        return ": as often as a checkpoint is saved", "save less often, or in a thread"
    if plan is not None and plan.steps_per_epoch and plan.num_epochs > 1 and period.steps == plan.steps_per_epoch:
        return ": once per epoch", "keep the workers of the loader (persistent_workers=True), evaluate less often"
    for metric in run.snapshot.logged:
        if not metric.counted and _has_period([point.last_step for point in metric.points], period.steps):
            return f": as often as {metric.tag} is logged", "log less often, and do not read single values for it"
    return ": look at what the loop does in every so many steps, such as a log, an evaluation or a save", fix


def _has_period(steps: list[int], period: int) -> bool:
    """Whether most of the newest steps are a period apart."""
    distances = [later - before for before, later in pairwise(steps[-9:])]
    return len(distances) >= 3 and sum(distance == period for distance in distances) * 2 > len(distances)


def _line(run: DiagnosedRun, period: Period) -> Line | None:
    """The line that reads from the device as often, if there is only one."""
    lines = {
        one.line
        for one in run.evidence.syncs
        if one.line.file and one.steps and abs(one.count * period.steps / one.steps - 1.0) <= NEAR
    }
    return lines.pop() if len(lines) == 1 else None
