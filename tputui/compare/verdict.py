"""Verdicts in words: which run is best, and whether two runs differ in speed by more than their noise.

`state.steady_pace` has the speed of a run and its error. Two runs differ if the 95 % interval of the ratio of their
medians, by Student's t with Welch's degrees of freedom, excludes 1. All computations use logarithms, so swapping the
runs inverts the ratio exactly.

The interval describes these two runs; it does not cover the difference between machines. Pairs are compared
independently: among seven runs as fast as the base, at least one stands out in three of ten comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from tputui import formatting as fmt
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.verdict import RuleName, Verdict, found
from tputui.state.run_condition import ENDED, RunCondition
from tputui.state.snapshot import Snapshot
from tputui.state.steady_pace import BATCHES, REPORTS_MIN, SteadyPace
from tputui.text import verdict_lines

LEVEL = 0.95
METHOD = f"median pace after the warm-up (MSER rule); 95 % by Student's t over {BATCHES} batches"
"""How speed is compared, in one line."""

_TIMES_FROM = 2.0
"""Ratios from here on are given as `2.1x as fast`, smaller ones in percent."""
_WIDE = 0.25
"""Maximum relative error that is given as `+-`; beyond it, both bounds are given."""


class Ratio(NamedTuple):
    """Speed of one run divided by that of another, with a confidence interval."""

    ratio: float
    low: float
    high: float
    """Bounds of the interval."""

    @property
    def stands_out(self) -> bool:
        """Whether the interval excludes 1."""
        return not self.low <= 1.0 <= self.high

    @property
    def within(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def inverse(self) -> Ratio:
        """The ratio with the runs swapped."""
        return Ratio(1 / self.ratio, 1 / self.high, 1 / self.low)


def pace_ratio(run: SteadyPace, base: SteadyPace) -> Ratio | None:
    """Speed of `run` relative to `base`, in examples per second; None if either has too few reports."""
    if run.error is None or base.error is None:
        return None
    variances = run.error**2, base.error**2
    both = sum(variances)
    logarithm = math.log(run.examples_per_s) - math.log(base.examples_per_s)
    within = 0.0
    if both > 0:
        freedom = (BATCHES - 1) / sum((variance / both) ** 2 for variance in variances)
        within = student((1 + LEVEL) / 2, freedom) * math.sqrt(both)
    return Ratio(math.exp(logarithm), math.exp(logarithm - within), math.exp(logarithm + within))


def student(share: float, freedom: float) -> float:
    """Quantile of Student's t by the Cornish-Fisher expansion; accurate to three digits for `freedom` >= 5."""
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


class VerdictSide(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one run that a verdict needs."""

    label: str
    """A letter, `A` to `H`."""
    pace: SteadyPace | None
    no_pace: str | None
    """Why `pace` is None."""
    condition: RunCondition
    num_cores: int | None
    device: str | None
    global_batch: int | None
    task: str | None


class QualityVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which run is best, by the validation metric that the base monitors."""

    metric: str
    best: str | None
    """Label of the run; None if several share the best value or fewer than two have one."""
    sentence: str


def best_of(
    values: Mapping[str, tuple[float, str]], metric: str, *, less_is_better: bool, of_task: str = "", may_come: bool
) -> QualityVerdict:
    """Finds the run with the best value.

    `values` holds the best value and its place, such as `in epoch 3`, by run label. `of_task`, such as ` of task
    digits`, limits the sentence to these runs if others have other tasks. `may_come`: a run without a value has not
    ended.
    """
    name = f"valid {metric}"
    yet = " yet" if may_come else ""
    ranked = sorted(values.items(), key=lambda item: item[1][0] if less_is_better else -item[1][0])
    if not ranked:
        return QualityVerdict(metric=metric, best=None, sentence=f"no run{of_task} has a {name}{yet}")
    (label, (value, place)), *others = ranked
    if not others:
        sentence = f"{label} is the only run{of_task} with a {name}{yet}: {fmt.number(value)} {place}"
        return QualityVerdict(metric=metric, best=None, sentence=sentence)
    equal = [label, *(other for other, (its, _) in others if its == value)]
    if len(equal) > 1:
        sentence = f"{' and '.join(equal)} share the best {name}, {fmt.number(value)}"
        return QualityVerdict(metric=metric, best=None, sentence=sentence)
    behind = ", ".join(f"{other} {fmt.number(its)}{_by(its, value)}" for other, (its, _) in others)
    sentence = f"{label} is best: {name} {fmt.number(value)} {place}; {behind}"
    return QualityVerdict(metric=metric, best=label, sentence=sentence)


def _by(value: float, best: float) -> str:
    """` (+8.2 %)`: the difference from the best value; empty unless both are positive."""
    if not (best > 0 and value > 0):
        return ""
    percent = (value / best - 1) * 100
    return f" ({percent:+.0f} %)" if abs(percent) >= 10 else f" ({percent:+.2g} %)"


class PaceVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of a run relative to the base, in examples per second."""

    label: str
    base: str
    ratio: float | None = None
    """Speed of the run divided by that of the base; None without a verdict."""
    low: float | None = None
    high: float | None = None
    """Bounds of the 95 % interval."""
    stands_out: bool | None = None
    """Whether the interval excludes 1; None without a verdict."""
    scaling: float | None = None
    """Share of linear scaling that the larger run reaches; None unless only the number of cores differs."""
    sentence: str
    short: str
    """A short form for a table cell."""


def pace_verdict(run: VerdictSide, base: VerdictSide) -> PaceVerdict:
    """Compares the speed of a run with the base. Swapping them gives the opposite verdict."""

    def refused(sentence: str, short: str) -> PaceVerdict:
        return PaceVerdict(label=run.label, base=base.label, sentence=sentence, short=short)

    if run.pace is None or base.pace is None:
        without = next(side for side in (run, base) if side.pace is None)
        yet = "speed unknown" if without.condition in ENDED else "speed not known yet"
        return refused(f"speed of {without.label} unknown: {without.no_pace}", yet)
    if None not in (run.task, base.task) and run.task != base.task:
        sentence = f"speed of {run.label} not compared: its task is {run.task}, that of {base.label} {base.task}"
        return refused(sentence, "another task")
    ratio = pace_ratio(run.pace, base.pace)
    if ratio is None:
        few = [(side.label, side.pace) for side in (base, run) if side.pace is not None and side.pace.error is None]
        have = ", ".join(f"{label} {pace.num_reports}" for label, pace in few)
        sentence = f"too few samples to compare speed: {have}, need {REPORTS_MIN} after warm-up"
        whose = "" if run.label in [label for label, _ in few] else f"{base.label}: "
        return refused(sentence, f"{whose}too few samples")
    scaling = _scaling(run, base, ratio.ratio)
    sentence, short = _by_cores(run, base, ratio, scaling) if _is_scaling(run, base) else _by_pace(run, base, ratio)
    return PaceVerdict(
        label=run.label,
        base=base.label,
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        stands_out=ratio.stands_out,
        scaling=scaling,
        sentence=sentence,
        short=short,
    )


def percent(value: float, within: float) -> tuple[str, str]:
    """A share and its error in percent, with as many digits as the error allows: `7 %`, `2 %`."""
    value, within = value * 100, within * 100
    digits = 0 if within >= 1.95 or (not within and value >= 10) else 1 if within >= 0.095 or not within else 2
    return f"{value:.{digits}f} %", f"{within:.{digits}f} %"


def _by_pace(run: VerdictSide, base: VerdictSide, ratio: Ratio) -> tuple[str, str]:
    """`B is 7 % +- 2 % faster than A`: faster by examples per second, slower by time per example."""
    in_examples = "" if run.global_batch == base.global_batch else " in examples/s"
    if not ratio.stands_out:
        value, off = percent(abs(ratio.ratio - 1), ratio.within)
        sign = "-" if ratio.ratio < 1 and float(value.split()[0]) else ""
        noise = f"({sign}{value} +- {off})"
        between = f"between {run.label} and {base.label}{in_examples}"
        return f"no significant difference {between} {noise}", f"within noise {noise}"
    word, adverb, factor = ("faster", "fast", ratio) if ratio.ratio > 1 else ("slower", "slow", ratio.inverse())
    if factor.ratio >= _TIMES_FROM:
        times = f"{_times(factor)} as {adverb}"
        return f"{run.label} is {times} as {base.label}{in_examples}", times
    by = _by_percent(factor)
    return f"{run.label} is {by} {word} than {base.label}{in_examples}", f"{by} {word}"


def _by_cores(run: VerdictSide, base: VerdictSide, ratio: Ratio, scaling: float | None) -> tuple[str, str]:
    """`B's 8 cores do 5.1x +- 0.2x of A's 1 core, 64 % of linear`, whichever of them is the base."""
    many, few, factor = run, base, ratio
    if (base.num_cores or 0, 1.0) > (run.num_cores or 0, ratio.ratio):
        many, few, factor = base, run, ratio.inverse()
    share = "" if scaling is None else f", {scaling * 100:.0f} % of linear"
    kinds = (f" {many.device}", f" {few.device}") if many.device != few.device else ("", "")
    do = "does" if many.num_cores == 1 else "do"
    sentence = (
        f"{many.label}'s {_cores(many, kinds[0])} {do} {_times(factor)} of {few.label}'s {_cores(few, kinds[1])}{share}"
    )
    return sentence, f"{_times(ratio)}{share}"


def _is_scaling(run: VerdictSide, base: VerdictSide) -> bool:
    are_known = None not in (run.num_cores, base.num_cores, run.device, base.device)
    return are_known and (run.num_cores, run.device) != (base.num_cores, base.device)


def _scaling(run: VerdictSide, base: VerdictSide, ratio: float) -> float | None:
    if not run.num_cores or not base.num_cores or run.num_cores == base.num_cores or run.device != base.device:
        return None
    as_cores = ratio * base.num_cores / run.num_cores
    return as_cores if run.num_cores > base.num_cores else 1 / as_cores


def _by_percent(ratio: Ratio) -> str:
    """`7 % +- 2 %`, or both bounds if the error is large."""
    value, off = percent(ratio.ratio - 1, ratio.within)
    if ratio.within > ratio.ratio - 1:
        return f"{(ratio.low - 1) * 100:.2g} % to {(ratio.high - 1) * 100:.0f} %"
    return f"{value} +- {off}"


def _times(ratio: Ratio) -> str:
    """`5.1x +- 0.2x`, or both bounds if the error is large."""
    digits = _digits(ratio.within, ratio.ratio)
    if ratio.within > _WIDE * ratio.ratio:
        return f"{ratio.low:.{_digits(ratio.low / 2, ratio.low)}f}x to {ratio.high:.{digits}f}x"
    return f"{ratio.ratio:.{digits}f}x +- {ratio.within:.{digits}f}x"


def _digits(within: float, times: float) -> int:
    if within >= 1.95:
        return 0
    return 1 if within >= 0.095 or times >= 10 else 2 if within >= 0.0095 or times >= 1 else 3


def _cores(side: VerdictSide, kind: str) -> str:
    return f"{side.num_cores:,}{kind} core{'' if side.num_cores == 1 else 's'}"


SLOWER_MIN = 1.1
"""Ratio of the times per step from which a cause is given."""
EXPLAINED_MIN = 0.2
"""Share of the difference that a verdict must explain."""


def cause(label: str, run: Snapshot, base_label: str, base: Snapshot) -> str | None:
    """`B: 2.1x slower than A in wall time, 83 % of it recompile at train.py:41`; None if nothing explains a difference.

    Names the slower of the two. Startup, up to the beginning of the first epoch, is left out.
    """
    spent, base_spent = _step_s(run), _step_s(base)
    if spent is None or base_spent is None or _batch(run) != _batch(base):
        return None
    if spent < base_spent:
        return cause(base_label, base, label, run)
    if spent < SLOWER_MIN * base_spent:
        return None
    steps, base_steps = DiagnosedRun.of(run).steps, DiagnosedRun.of(base).steps
    usual: dict[RuleName, float] = {}
    for verdict in found(diagnose(base, learning=())):
        usual[verdict.rule] = usual.get(verdict.rule, 0.0) + (verdict.lost_s or 0.0) / base_steps
    for verdict in found(diagnose(run, learning=())):
        more_s = (verdict.lost_s or 0.0) / steps - usual.get(verdict.rule, 0.0)
        share = min(1.0, more_s / (spent - base_spent))
        if share >= EXPLAINED_MIN:
            times = f"{spent / base_spent:.1f}x slower than {base_label} in wall time"
            return f"{label}: {times}, {share * 100:.0f} % of it {_named(verdict)}"
    return None


def _named(verdict: Verdict) -> str:
    return f"{verdict_lines.TITLES[verdict.rule]}{f' at {verdict.where}' if verdict.where else ''}"


def _step_s(snapshot: Snapshot) -> float | None:
    """Wall time per step since the first epoch began; None before there are enough steps."""
    facts = DiagnosedRun.of(snapshot)
    begun = snapshot.epoch_starts[0].t if snapshot.epoch_starts else snapshot.started
    if facts.steps < STEPS_MIN or begun is None or snapshot.started is None:
        return None
    lasted_s = facts.wall_s - (begun - snapshot.started)
    return lasted_s / facts.steps if lasted_s > 0 else None


def _batch(snapshot: Snapshot) -> int | None:
    return snapshot.plan.global_batch if snapshot.plan is not None else None
