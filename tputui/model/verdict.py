"""Which of two runs is faster, in words that do not claim more than the noise allows. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tputui.model import steady as pacing
from tputui.model.snapshot import View
from tputui.model.steady import Ratio, Steady

METHOD = (
    f"median pace of the reports after the warm-up (MSER rule); 95 % interval from {pacing.BATCHES} pieces of "
    "neighbouring reports (Student's t), each pair by itself"
)
"""How verdicts are reached, in one line."""

_TIMES_FROM = 2.0
"""From this ratio on it is told as such: `2.1x as fast`, and no longer in percent."""


class Side(NamedTuple):
    """What a verdict needs of a run."""

    label: str
    pace: Steady | None
    no_pace: str | None
    num_cores: int | None
    device: str | None
    global_batch: int | None


class PaceVerdict(View, frozen=True, kw_only=True):
    """How fast a run is beside the base, by examples a second."""

    label: str
    base: str
    ratio: float | None
    """How many times as fast; None where it is not judged."""
    low: float | None
    high: float | None
    """Bounds of the 95 % interval."""
    stands_out: bool | None
    """Whether the interval leaves out 1; None where it is not judged."""
    scaling: float | None
    """Where the cores differ in number but not in kind: the share of linear scaling that the more of them reach."""
    sentence: str
    short: str
    """The same for a column of a table."""


def judged(run: Side, base: Side) -> PaceVerdict:
    """The verdict on a run; exchanged with the base, the opposite one."""
    if run.pace is None or base.pace is None:
        without = next(side for side in (run, base) if side.pace is None)
        return _refused(run, base, f"no verdict on {run.label}: {without.label}: {without.no_pace}", "no pace yet")
    ratio = pacing.judge(run.pace, base.pace)
    if ratio is None:
        told = " and ".join(f"{side.label} has {side.pace.num_reports}" for side in (base, run) if side.pace)
        sentence = f"too few reports to judge {run.label}: after the warm-up {told}; {pacing.REPORTS_MIN} are needed"
        return _refused(run, base, sentence, "too few reports")
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
    """A share and how far it may be off, in percent, with the digits that the latter allows: `7 %`, `2 %`."""
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
    """`B is 7 % +- 2 % faster than A`. Faster is by examples a second, slower by the time that an example takes."""
    within = _half(ratio)
    in_examples = "" if run.global_batch == base.global_batch else " in examples/s"
    if not ratio.stands_out:
        value, off = percent(abs(ratio.ratio - 1), within)
        sign = "-" if ratio.ratio < 1 and float(value.split()[0]) else ""
        noise = f"({sign}{value} +- {off})"
        between = f"between {run.label} and {base.label}{in_examples}"
        return f"no difference {between} that stands out of the noise {noise}", f"within noise {noise}"
    word, times = "faster", ratio.ratio
    if times < 1:
        word, times, within = "slower", 1 / times, within / times**2
    if times >= _TIMES_FROM:
        told = f"{_times(times, within)} as {'fast' if word == 'faster' else 'slow'}"
        return f"{run.label} is {told} as {base.label}{in_examples}", told
    value, off = percent(times - 1, within)
    return f"{run.label} is {value} +- {off} {word} than {base.label}{in_examples}", f"{value} +- {off} {word}"


def _by_cores(run: Side, base: Side, ratio: Ratio, scaling: float | None) -> tuple[str, str]:
    """`B's 8 cores do 5.1x +- 0.2x of A's 1 core, 64 % of linear`: the same whichever of them is the base."""
    many, few, times, within = run, base, ratio.ratio, _half(ratio)
    if (base.num_cores or 0) > (run.num_cores or 0) or (base.num_cores == run.num_cores and times < 1):
        many, few, times, within = base, run, 1 / times, within / times**2
    share = "" if scaling is None else f", {scaling * 100:.0f} % of linear"
    kinds = (f" {many.device}", f" {few.device}") if many.device != few.device else ("", "")
    sentence = (
        f"{many.label}'s {_cores(many, kinds[0])} do {_times(times, within)} of {few.label}'s {_cores(few, kinds[1])}"
        f"{share}"
    )
    return sentence, f"{_times(ratio.ratio, _half(ratio))} of {base.label}{share}"


def _is_scaling(run: Side, base: Side) -> bool:
    known = None not in (run.num_cores, base.num_cores, run.device, base.device)
    return known and (run.num_cores, run.device) != (base.num_cores, base.device)


def _scaling(run: Side, base: Side, ratio: float) -> float | None:
    if not run.num_cores or not base.num_cores or run.num_cores == base.num_cores or run.device != base.device:
        return None
    as_cores = ratio * base.num_cores / run.num_cores
    return as_cores if run.num_cores > base.num_cores else 1 / as_cores


def _half(ratio: Ratio) -> float:
    return (ratio.high - ratio.low) / 2


def _times(times: float, within: float) -> str:
    digits = (
        0 if within >= 1.95 else 1 if within >= 0.095 or times >= 10 else 2 if within >= 0.0095 or times >= 1 else 3
    )
    return f"{times:.{digits}f}x +- {within:.{digits}f}x"


def _cores(side: Side, kind: str) -> str:
    return f"{side.num_cores:,}{kind} core{'' if side.num_cores == 1 else 's'}"
