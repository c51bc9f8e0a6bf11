"""Verdicts in words: which run is best, and which of two runs is faster, within what the noise allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tputui import formatting as fmt
from tputui.compare import pace_stats as pacing
from tputui.compare.pace_stats import Ratio, SteadyPace

METHOD = f"median pace after the warm-up (MSER rule); 95 % by Student's t over {pacing.BATCHES} batches"
"""How speed is compared, in one line."""

_TIMES_FROM = 2.0
"""Ratios from here on are given as `2.1x as fast`, smaller ones in percent."""
_WIDE = 0.25
"""Maximum relative error that is given as `+-`; beyond it, both bounds are given."""


class Side(NamedTuple):
    """The values of one run that a verdict needs."""

    label: str
    pace: SteadyPace | None
    no_pace: str | None
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


def best_of(values: Mapping[str, tuple[float, int]], metric: str, *, less_is_better: bool) -> QualityVerdict:
    """Finds the run with the best value; `values` holds best value and best epoch by run label."""
    name = f"valid {metric}"
    ranked = sorted(values.items(), key=lambda item: item[1][0] if less_is_better else -item[1][0])
    if not ranked:
        return QualityVerdict(metric=metric, best=None, sentence=f"no run has a {name} yet")
    (label, (value, epoch)), *others = ranked
    if not others:
        sentence = f"only {label} has a {name} yet: {fmt.number(value)} in epoch {epoch}"
        return QualityVerdict(metric=metric, best=None, sentence=sentence)
    equal = [label, *(other for other, (its, _) in others if its == value)]
    if len(equal) > 1:
        sentence = f"{' and '.join(equal)} share the best {name}, {fmt.number(value)}"
        return QualityVerdict(metric=metric, best=None, sentence=sentence)
    behind = ", ".join(f"{other} {fmt.number(its)}{_by(its, value)}" for other, (its, _) in others)
    sentence = f"{label} is best: {name} {fmt.number(value)} in epoch {epoch}; {behind}"
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
    ratio: float | None
    """Speed of the run divided by that of the base; None without a verdict."""
    low: float | None
    high: float | None
    """Bounds of the 95 % interval."""
    stands_out: bool | None
    """Whether the interval excludes 1; None without a verdict."""
    scaling: float | None
    """Share of linear scaling that the larger run reaches; None unless only the number of cores differs."""
    sentence: str
    short: str
    """A short form for a table cell."""


def judged(run: Side, base: Side) -> PaceVerdict:
    """Compares the speed of a run with the base. Swapping them gives the opposite verdict."""
    if run.pace is None or base.pace is None:
        without = next(side for side in (run, base) if side.pace is None)
        return _refused(run, base, f"no verdict on {run.label}: {without.label}: {without.no_pace}", "no pace yet")
    if None not in (run.task, base.task) and run.task != base.task:
        sentence = f"no verdict on {run.label}: its task is {run.task}, that of {base.label} {base.task}"
        return _refused(run, base, sentence, "another task")
    ratio = pacing.judge(run.pace, base.pace)
    if ratio is None:
        few = [(side.label, side.pace) for side in (base, run) if side.pace is not None and side.pace.error is None]
        have = " and ".join(f"{label} has {pace.num_reports}" for label, pace in few)
        sentence = f"not enough samples to compare speed: {have}, need {pacing.REPORTS_MIN} after warm-up"
        whose = "" if run.label in [label for label, _ in few] else f"{base.label}: "
        return _refused(run, base, sentence, f"{whose}too few samples")
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


def _refused(run: Side, base: Side, sentence: str, short: str) -> PaceVerdict:
    return PaceVerdict(
        label=run.label,
        base=base.label,
        ratio=None,
        low=None,
        high=None,
        stands_out=None,
        scaling=None,
        sentence=sentence,
        short=short,
    )


def _by_pace(run: Side, base: Side, ratio: Ratio) -> tuple[str, str]:
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


def _by_cores(run: Side, base: Side, ratio: Ratio, scaling: float | None) -> tuple[str, str]:
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


def _is_scaling(run: Side, base: Side) -> bool:
    known = None not in (run.num_cores, base.num_cores, run.device, base.device)
    return known and (run.num_cores, run.device) != (base.num_cores, base.device)


def _scaling(run: Side, base: Side, ratio: float) -> float | None:
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


def _cores(side: Side, kind: str) -> str:
    return f"{side.num_cores:,}{kind} core{'' if side.num_cores == 1 else 's'}"
