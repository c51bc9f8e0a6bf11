"""Compares runs: configuration differences, metrics, and which run is better and faster.

Takes one snapshot per run and returns one `Comparison`, which the screen draws and `tputui compare` prints.

Packages of which two runs used different versions are joined to what got slower. Not a proof: other things may differ,
too, which the comparison lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from tputui.compare.limits import LimitResult, less_is_better
from tputui.compare.verdict import (
    METHOD,
    PaceVerdict,
    QualityVerdict,
    VerdictSide,
    best_of,
    cause,
    pace_verdict,
)
from tputui.config_diff import ConfigDiff, diff
from tputui.diagnosis.diagnose import RecentVerdicts
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.verdict import found
from tputui.state import facts
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot, monitored
from tputui.state.steady_pace import SteadyPace, steady_pace
from tputui.telemetry.events import EpochEnded, Split
from tputui.text import phrases, verdict_lines

RUNS_MIN, RUNS_MAX = 2, 8
LABELS = "ABCDEFGH"
"""Labels of the runs, in their order."""


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory of a run."""

    bytes: int | None
    of: Literal["HBM", "host"] | None
    """`HBM` of the core with the most, or `host`: resident memory of the run's processes."""
    reason: str | None
    """Why HBM is not available."""


class MeterFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A meter or a score over the finished epochs."""

    split: Split
    name: str
    final: float
    final_epoch: int
    best: float | None
    """None if no epoch has a finite value."""
    best_epoch: int | None
    less_is_better: bool
    by: Literal["epoch", "step"] = "epoch"
    """What `final_epoch` and `best_epoch` count: steps for a metric that a script logged without epochs."""


class ComparedRun(VerdictSide, frozen=True, kw_only=True):
    """A run with its metrics."""

    run: str
    dir: str
    condition_reason: str
    trouble: str | None
    """Why the run cannot be read."""
    epoch: int
    num_epochs: int | None
    steps: int
    total_steps: int | None
    loss: float | None
    """Training loss: of a run that has ended its mean over the last epoch, else that of the newest step."""
    duration_s: float | None
    """Seconds from the first event to the end, or until now."""
    step_s: float | None
    """Median seconds per step after the warm-up, also where the number of examples is not known."""
    compiles: int | None
    recompiles: int | None
    """None also if the recording does not count all of them."""
    executes_a_step: float | None
    """Programs executed per step after warm-up."""
    scalar_reads_a_step: float | None
    compile_s: float | None
    flops_per_step: float | None
    """Floating-point operations of a step over all cores; None if they were not counted."""
    mfu: float | None
    """Share of the cores' peak that these operations use; None if one of both is not known."""
    peak_memory: PeakMemory
    meters: list[MeterFigure]
    learning: list[str] = msgspec.field(default_factory=list)
    """What keeps the run from learning, a sentence each."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of 2-8 runs."""

    base: int
    """Index of the run that the others are compared to."""
    runs: list[ComparedRun]
    quality: QualityVerdict
    """Which run is best."""
    verdicts: list[PaceVerdict | None]
    """One per run; None for the base."""
    config: ConfigDiff
    plan: ConfigDiff
    """Differences of derived values: batch, devices, learning rate."""
    code: ConfigDiff
    """Differences of the code: commit, uncommitted changes, packages, environment variables."""
    method: str
    """How speed is compared, in one line."""
    causes: list[str | None] = []
    """One per run: which verdict explains most of the difference in wall time to the base; None if none does."""
    limits: list[LimitResult] = []
    """Results of `--max-slowdown` and `--max-worse`."""
    upgrades: list[str | None] = []
    """One per run: packages with another version than in the base, and what is slower; None without both."""


def compare(
    snapshots: Sequence[Snapshot],
    base: int = 0,
    codes: Sequence[Mapping[str, Any] | None] = (),
    recent: Sequence[RecentVerdicts] = (),
) -> Comparison:
    """Compares 2-8 runs to the one at index `base`. Raises `ValueError` for another number of runs or a wrong index.

    `codes` are the records of their code (`code_record.summary`), None for a run without one; `recent` the verdicts on
    each run so far, for a screen that compares them again and again.
    """
    if not RUNS_MIN <= len(snapshots) <= RUNS_MAX or not 0 <= base < len(snapshots):
        raise ValueError(f"{len(snapshots)} runs with base {base}")
    recent = recent or [RecentVerdicts() for _ in snapshots]
    runs = [_run(*one) for one in zip(LABELS, snapshots, recent, strict=False)]
    codes = codes or [None] * len(snapshots)
    paces = [None if index == base else pace_verdict(run, runs[base]) for index, run in enumerate(runs)]
    return Comparison(
        base=base,
        runs=runs,
        quality=_quality(runs, snapshots[base]),
        verdicts=paces,
        config=diff([snapshot.config for snapshot in snapshots], base),
        plan=diff([_resolved(snapshot) for snapshot in snapshots], base),
        code=_code_diff(snapshots, codes, base),
        method=METHOD,
        causes=[
            None if index == base else cause(LABELS[index], snapshot, LABELS[base], snapshots[base])
            for index, snapshot in enumerate(snapshots)
        ],
        upgrades=[
            None if pace is None else upgrade(pace, snapshot, snapshots[base], code, codes[base])
            for pace, snapshot, code in zip(paces, snapshots, codes, strict=True)
        ],
    )


def _code_diff(snapshots: Sequence[Snapshot], codes: Sequence[Mapping[str, Any] | None], base: int) -> ConfigDiff:
    """Compares the code. If a run has no record, every package would differ from it, so only that is shown."""
    if None in codes:
        return diff([{"code": "recorded" if code else "not recorded"} for code in codes], base)
    commits = (snapshot.details.git.commit if snapshot.details.git else None for snapshot in snapshots)
    return diff(
        [{"commit": commit or "unknown", **(code or {})} for commit, code in zip(commits, codes, strict=True)], base
    )


def _quality(runs: Sequence[ComparedRun], base: Snapshot) -> QualityVerdict:
    """By the metric that the base monitors; skips runs of other tasks."""
    metric = monitored(base.config, base.epochs)
    task = base.plan.task if base.plan else None
    same = [run for run in runs if run.task == task or None in (task, run.task)]
    values = {
        run.label: (meter.best, f"in {meter.by} {meter.best_epoch}")
        for run in same
        for meter in run.meters
        if (meter.split, meter.name) == ("valid", metric) and meter.best is not None and meter.best_epoch is not None
    }
    return best_of(
        values,
        metric,
        less_is_better=less_is_better(metric, base),
        of_task=f" of task {task}" if len(same) < len(runs) else "",
        may_come=any(run.condition not in ENDED for run in same if run.label not in values),
    )


def meter_points(snapshot: Snapshot) -> dict[tuple[Split, str], list[tuple[int, float]]]:
    """Every meter and score as (epoch, value) pairs by split and name. Scores belong to the validation split."""
    points: dict[tuple[Split, str], list[tuple[int, float]]] = {}
    for view in snapshot.epochs:
        for key, value in _figures_of(view):
            points.setdefault(key, []).append((view.epoch, value))
    return points


def _figures_of(view: EpochEnded) -> Iterable[tuple[tuple[Split, str], float]]:
    yield from ((("train", name), reading.avg) for name, reading in view.train.items())
    yield from ((("valid", name), reading.avg) for name, reading in view.valid.items())
    yield from ((("valid", name), value) for name, value in view.scores.items() if name not in view.valid)


def _run(label: str, snapshot: Snapshot, recent: RecentVerdicts) -> ComparedRun:
    topology, plan, xla = snapshot.topology, snapshot.plan, snapshot.xla
    pace = _pace(snapshot)
    return ComparedRun(
        label=label,
        run=snapshot.run,
        dir=snapshot.dir,
        condition=snapshot.condition,
        condition_reason=snapshot.condition_reason,
        trouble=_trouble(snapshot),
        epoch=snapshot.epoch,
        num_epochs=plan.num_epochs if plan else None,
        steps=snapshot.steps,
        total_steps=(plan and plan.total_steps) or None,
        loss=facts.listed_loss(snapshot).of(snapshot),
        task=plan.task if plan else None,
        device=topology.device if topology else None,
        num_cores=topology.num_cores if topology else None,
        global_batch=plan.global_batch if plan else None,
        pace=pace,
        no_pace=None if pace else _why_no_pace(snapshot),
        duration_s=facts.DURATION.of(snapshot),
        step_s=pace.step_s if pace is not None else facts.STEADY_STEP_TIME.of(snapshot),
        compiles=facts.COMPILES.of(snapshot),
        recompiles=facts.RECOMPILES.of(snapshot),
        executes_a_step=xla.executes_a_step if xla else None,
        scalar_reads_a_step=xla.reads_a_step if xla else None,
        flops_per_step=snapshot.flops.flops_per_step if snapshot.flops else None,
        mfu=snapshot.flops.mfu if snapshot.flops else None,
        compile_s=xla.compile_s if xla else None,
        peak_memory=_peak_memory(snapshot),
        meters=[*_meters(snapshot)],
        learning=[verdict_lines.line(verdict) for verdict in found(recent.learning(snapshot))],
    )


def _meters(snapshot: Snapshot) -> Iterator[MeterFigure]:
    """Every meter and score by epoch, then what the script logged without epochs."""
    by_epoch = meter_points(snapshot)
    for key, points in by_epoch.items():
        yield _figure(snapshot, key, points[-1], points, "epoch")
    for view in snapshot.logged:
        if (key := (view.split, view.name)) not in by_epoch:
            falls = less_is_better(view.name, snapshot)
            points = [(one.last_step, one.min if falls else one.max) for one in view.points if one.num_values]
            yield _figure(snapshot, key, (view.step, view.value), points, "step")


def _figure(
    snapshot: Snapshot, key: tuple[Split, str], final: tuple[int, float], points: Iterable[tuple[int, float]],
    by: Literal["epoch", "step"],
) -> MeterFigure:  # fmt: skip
    """A metric by its final value and the best of its points, each with its epoch or step."""
    falls = less_is_better(key[1], snapshot)
    finite = [(at, value) for at, value in points if math.isfinite(value)]
    at, best = min(finite, key=lambda one: (one[1] if falls else -one[1], one[0]), default=(None, None))
    return MeterFigure(
        split=key[0], name=key[1], final=final[1], final_epoch=final[0], best=best, best_epoch=at,
        less_is_better=falls, by=by,
    )  # fmt: skip


def _pace(snapshot: Snapshot) -> SteadyPace | None:
    if snapshot.throughput is None:
        return None
    pace = steady_pace([(point.step_s, point.examples_per_s) for point in snapshot.throughput.history])
    return pace if pace is not None and math.isfinite(pace.examples_per_s) else None


def _trouble(snapshot: Snapshot) -> str | None:
    """Why a run without any event cannot be compared; None if it has events."""
    if snapshot.newest_fact is not None:
        return None
    unread = [*snapshot.troubles, *map(phrases.damage, snapshot.damage.regions)]
    return "; ".join(unread) or "nothing is recorded of it yet"


def _why_no_pace(snapshot: Snapshot) -> str:
    if _trouble(snapshot):
        return "the run cannot be read"
    if snapshot.throughput is not None:
        return "the number of examples of a step is not reported"
    return "it reported no steps" if snapshot.condition in ENDED else "it has reported no steps yet"


def _peak_memory(snapshot: Snapshot) -> PeakMemory:
    """The peak over the run, as reported by the device if it does."""
    peaks = [max(core.peak_bytes, core.used_bytes) for core in snapshot.memory.hbm or []]
    peaks += [point.hbm_used_bytes for point in snapshot.memory_history if point.hbm_used_bytes is not None]
    if peaks:
        return PeakMemory(bytes=max(peaks), of="HBM", reason=None)
    reason = snapshot.memory.hbm_reason or "no memory of the device was read"
    resident = [point.rss_bytes for point in snapshot.memory_history if point.rss_bytes is not None]
    resident += [sum(process.rss_bytes for process in snapshot.memory.processes)] if snapshot.memory.processes else []
    return PeakMemory(bytes=max(resident, default=None), of="host" if resident else None, reason=reason)


def _resolved(snapshot: Snapshot) -> dict[str, Any]:
    """Values derived from the configuration on the machine, as far as known."""
    topology, plan = snapshot.topology, snapshot.plan
    resolved: dict[str, Any] = {}
    if topology is not None:
        resolved |= {"device": topology.device, "cores": topology.num_cores, "hosts": topology.num_hosts}
    if plan is not None:
        resolved |= {
            "batch a core": plan.batch_per_core,
            "global batch": plan.global_batch,
            "steps an epoch": plan.steps_per_epoch,
            "training examples": plan.train_examples,
            "validation examples": plan.valid_examples,
            "parameters": plan.num_parameters,
            "learning rate": float(f"{plan.lr:.6g}"),
        }
    return resolved


NAMED = frozenset(
    {"accelerate", "equinox", "flax", "grain", "jax", "jaxlib", "keras", "libtpu", "lightning", "numpy", "optax"}
    | {"orbax-checkpoint", "tensorflow", "torch", "torch-tpu", "torch-xla", "torch_xla", "torchvision", "transformers"}
)
"""Packages that what is measured here may depend on."""
SLOWER_FROM = 1.2
"""Ratio from which a time is named ..."""
SECONDS_MIN = 1.0
"""... if it is so many seconds more, since the noise of a single one is not known."""
PACKAGES_MAX = 4


def upgrade(
    pace: PaceVerdict,
    run: Snapshot,
    base: Snapshot,
    code: Mapping[str, Any] | None,
    base_code: Mapping[str, Any] | None,
) -> str | None:
    """`B: jax 0.10.1 -> 0.10.2: trace time x 1.6`; None if no package differs, or nothing is slower. The codes are
    the records of both, None for a run without one."""
    changed = list(_changed(code, base_code))
    step_ratio = 1 / pace.ratio if pace.ratio and pace.stands_out else None
    slower = [f"{name} x {ratio:.1f}" for name, ratio in _slower(run, base, step_ratio)]
    if not changed or not slower:
        return None
    further = f" and {len(changed) - PACKAGES_MAX} more" if len(changed) > PACKAGES_MAX else ""
    return f"{pace.label}: {', '.join(changed[:PACKAGES_MAX])}{further}: {', '.join(slower)}"


def _changed(code: Mapping[str, Any] | None, base: Mapping[str, Any] | None) -> Iterator[str]:
    packages, before = ((one or {}).get("packages") or {} for one in (code, base))
    for name in sorted(NAMED & packages.keys() & before.keys()):
        if packages[name] != before[name]:
            yield f"{name} {before[name]} -> {packages[name]}"


def _slower(run: Snapshot, base: Snapshot, step_ratio: float | None) -> Iterator[tuple[str, float]]:
    if step_ratio is not None and step_ratio >= SLOWER_FROM:
        yield "step time", step_ratio
    for name, of in (("trace time", _trace_s), ("compile time", _compile_s)):
        (seconds, number), (before_s, before) = of(run), of(base)
        if number and before and before_s > 0:
            each = before_s / before
            if seconds / number >= SLOWER_FROM * each and seconds - each * number >= SECONDS_MIN:
                yield name, seconds / number / each


def _trace_s(run: Snapshot) -> tuple[float, int]:
    """Seconds of tracing, and the steps that were traced; 0 if they are not known."""
    steps = DiagnosedRun.of(run).steps
    seconds = run.time_spent.sections_s.get("trace", 0.0) if run.time_spent is not None else 0.0
    return (seconds, steps) if steps >= STEPS_MIN else (0.0, 0)


def _compile_s(run: Snapshot) -> tuple[float, int]:
    """Seconds of tracing and compiling the first programs, and the number of these; those of a cache do not count."""
    groups = [one for one in run.evidence.compiles if one.warm_up]
    return math.fsum(one.seconds - one.cached_s for one in groups), sum(one.count - one.num_cached for one in groups)
