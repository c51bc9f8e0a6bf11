"""The metrics table of a comparison: one row per metric, one cell per run. The screen and `tputui compare` share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.compare.compare import ComparedRun, Comparison, MeterFigure
from tputui.state import facts
from tputui.telemetry.events import Split

SPLITS: dict[Split, str] = {"train": "train", "valid": "valid"}

BEST = "\u2605"
"""Marks the best value of a row."""


class FigureRow(NamedTuple):
    """One metric of every run."""

    name: str
    cells: list[str]
    """In the order of the runs; `formatting.UNKNOWN` if not available."""
    best: int | None = None
    """Index of the run with the best value, unless several share it."""


def figure_rows(comparison: Comparison) -> list[FigureRow]:
    """The metrics that at least one run has, formatted."""
    rows = [FigureRow(name, [format_of(run) for run in comparison.runs]) for name, format_of in _FIGURES]
    with_figures = [row for row in rows if any(cell != fmt.UNKNOWN for cell in row.cells)]
    return with_figures + list(_meter_rows(comparison.runs))


def raw_rows(comparison: Comparison) -> list[tuple[str, list[str | int | float | None]]]:
    """The metrics unrounded, each named with its unit; None if not available."""
    rows = [(name, [value_of(run) for run in comparison.runs]) for name, value_of in _RAW]
    for name, meters in _by_meter(comparison.runs):
        rows.append((f"{name}, last epoch", [meter.final if meter else None for meter in meters]))
        rows.append((f"{name}, best epoch", [meter.best if meter else None for meter in meters]))
        for by in dict.fromkeys(meter.by for meter in meters if meter):
            places = [meter.best_epoch if meter and meter.by == by else None for meter in meters]
            rows.append((f"{name}, best {by}", list(places)))
    return rows


def notes(comparison: Comparison) -> list[str]:
    """Why values are missing or not comparable; one sentence for all runs with the same reason."""
    labels_of: dict[str, list[str]] = {}
    for run in comparison.runs:
        for sentence in _reasons(run):
            labels_of.setdefault(sentence, []).append(run.label)
    return [f"{', '.join(labels)}: {sentence}" for sentence, labels in labels_of.items()]


def meter_name(split: Split, name: str) -> str:
    """`valid loss`."""
    return f"{SPLITS[split]} {name}"


def _reasons(run: ComparedRun) -> Iterable[str]:
    if run.trouble is not None:
        yield run.trouble
        return
    yield from run.learning
    if run.no_pace is not None:
        yield f"speed unknown: {run.no_pace}"
    peak = run.peak_memory
    if peak.of == "host":
        yield f"host memory instead of device memory: {peak.reason}"
    elif peak.of is None:
        yield f"no peak memory: {peak.reason}"


def _meter_rows(runs: list[ComparedRun]) -> Iterable[FigureRow]:
    for name, meters in _by_meter(runs):
        yield FigureRow(f"{name}, last epoch", [fmt.number(meter.final) if meter else fmt.UNKNOWN for meter in meters])
        yield FigureRow(f"{name}, best epoch", [_best(meter) for meter in meters], _winner(meters))


def _by_meter(runs: list[ComparedRun]) -> Iterable[tuple[str, list[MeterFigure | None]]]:
    """Every meter that at least one run has: its name, and its figures by run."""
    by_run = [{(meter.split, meter.name): meter for meter in run.meters} for run in runs]
    for key in dict.fromkeys(key for meters in by_run for key in meters):
        yield meter_name(*key), [meters.get(key) for meters in by_run]


def _best(meter: MeterFigure | None) -> str:
    return (
        f"{fmt.number(meter.best)} {meter.by[0]}{meter.best_epoch}" if meter and meter.best is not None else fmt.UNKNOWN
    )


def _winner(meters: list[MeterFigure | None]) -> int | None:
    """Index of the run with the best value; None if several share it or only one has a value."""
    values = {
        index: meter.best if meter.less_is_better else -meter.best
        for index, meter in enumerate(meters)
        if meter is not None and meter.best is not None
    }
    if len(values) < 2:
        return None
    first, second = sorted(values, key=values.__getitem__)[:2]
    return first if values[first] < values[second] else None


def _epochs(run: ComparedRun) -> str:
    return f"{run.epoch}/{run.num_epochs}" if run.num_epochs else fmt.UNKNOWN


def _cores(run: ComparedRun) -> str:
    return f"{run.num_cores:,} {run.device}" if run.num_cores else fmt.UNKNOWN


def _pace(run: ComparedRun) -> str:
    if run.pace is None:
        return fmt.UNKNOWN
    return facts.STEADY_SPEED.format(run.pace.examples_per_s)


def _a_step(value: float | None) -> str:
    return fmt.UNKNOWN if value is None else f"{value:.1f}"


_FIGURES: tuple[tuple[str, Callable[[ComparedRun], str]], ...] = (
    ("state", lambda run: run.condition),
    ("cores", _cores),
    ("epochs", _epochs),
    ("steps", lambda run: fmt.count(run.steps)),
    (facts.DURATION.label, lambda run: fmt.duration(run.duration_s)),
    (facts.STEADY_STEP_TIME.label, lambda run: fmt.UNKNOWN if run.step_s is None else fmt.step_time(run.step_s)),
    ("step time p10-p90", lambda run: f"+- {run.pace.spread * 100:.0f} %" if run.pace else fmt.UNKNOWN),
    (facts.STEADY_SPEED.label, _pace),
    (facts.COMPILES.label, lambda run: fmt.count(run.compiles)),
    (facts.RECOMPILES.label, lambda run: fmt.count(run.recompiles)),
    ("executions per step", lambda run: _a_step(run.executes_a_step)),
    ("scalar reads per step", lambda run: _a_step(run.scalar_reads_a_step)),
    ("compile time", lambda run: fmt.duration(run.compile_s)),
    ("FLOP per step", lambda run: fmt.UNKNOWN if run.flops_per_step is None else fmt.with_prefix(run.flops_per_step)),
    ("MFU", lambda run: fmt.UNKNOWN if run.mfu is None else f"{run.mfu * 100:.3g} %"),
    ("peak memory", lambda run: fmt.size(run.peak_memory.bytes)),
    ("memory source", lambda run: run.peak_memory.of or fmt.UNKNOWN),
)

_Value = Callable[[ComparedRun], str | int | float | None]


def _fields(*names: str) -> Iterator[tuple[str, _Value]]:
    return ((name, attrgetter(name)) for name in names)


_RAW: tuple[tuple[str, _Value], ...] = (
    ("state", lambda run: run.condition),
    ("device", lambda run: run.device),
    ("cores", lambda run: run.num_cores),
    *_fields("global_batch", "epoch"),
    ("epochs", lambda run: run.num_epochs),
    *_fields("steps", "loss", "duration_s", "step_s"),
    ("spread", lambda run: run.pace.spread if run.pace else None),
    ("examples_per_s", lambda run: run.pace.examples_per_s if run.pace else None),
    ("reports_judged", lambda run: run.pace.num_reports if run.pace else None),
    ("reports_of_warmup", lambda run: run.pace.num_warmup if run.pace else None),
    *_fields("compiles", "recompiles", "executes_a_step", "scalar_reads_a_step", "compile_s", "flops_per_step", "mfu"),
    ("peak_memory_bytes", lambda run: run.peak_memory.bytes),
    ("memory_of", lambda run: run.peak_memory.of),
)
