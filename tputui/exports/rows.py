"""The rows of a recorded run for other programs: every step of every core, every metric, epochs and events.

Reads the journals from the start, and keeps none of them in memory. What a restart of training has cut off, since it is
trained again, is left out as in every view; the table of events has all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tputui.session.session import load, read_events
from tputui.state import step_values
from tputui.telemetry import codec, float_blocks, logged_values
from tputui.telemetry import events as ev
from tputui.telemetry.float_blocks import BlockError
from tputui.telemetry.merge import JournalEvent


class StepRow(NamedTuple):
    """The value of one metric on one core in one step."""

    metric: str
    step: int
    core: int
    value: float
    """A float32, widened exactly."""
    t: float
    """Unix time at which the step was reported, with others about once a second."""


class MetricRow(NamedTuple):
    """A meter, a score, or a value that a script logged."""

    name: str
    split: ev.Split
    step: int
    epoch: float | None
    """None if the script did not log it."""
    value: float
    t: float | None
    """Unix time; None if the script did not log it."""
    kind: str
    """`report`: the epoch's mean so far. `epoch`: of the whole epoch. `progress`: learning rate (`lr`), `step_s` and
    `examples_per_s` of the steps since the last report. Otherwise the source of a logged value: the path of a log, or
    `console`."""


class EventRow(NamedTuple):
    process: str
    seq: int
    kind: str
    t: float
    fields: dict[str, Any]


class EpochRow(NamedTuple):
    epoch: int
    step: int
    t: float
    train_s: float
    valid_s: float
    lr: float
    best_so_far: bool
    values: dict[str, float]
    """`train.NAME`, `valid.NAME`, and wall seconds as `section.NAME`."""


Row = StepRow | MetricRow | EpochRow | EventRow


class RunRows:
    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._cores: dict[str, list[int]] = {}
        self._paced = ""
        """The process whose progress is that of the run, the first that reports any, as on the screen."""
        self._generations: dict[str, int] = {}
        """Of the process that is read, by journal."""
        self._first_steps: dict[int, int] = {}
        """By generation that began with a restart."""
        self.unreadable: tuple[int, str] | None = None
        """The number of events whose values could not be decoded, and why of the first one; set while the rows are
        read."""

    def __iter__(self) -> Iterator[Row]:
        """All rows, in the order of each process. Raises `OSError`."""
        self._first_steps = _first_steps(self._run_dir)
        for entry in read_events(self._run_dir):
            if isinstance(entry.event, ev.JournalOpened):
                self._generations[entry.writer] = entry.event.generation
            try:
                yield from self._kept(entry)
            except BlockError as error:
                number, why = self.unreadable or (0, f"{entry.writer}: event {entry.seq}: {error}")
                self.unreadable = (number + 1, why)

    def _kept(self, entry: JournalEvent) -> Iterator[Row]:
        """The rows of an event without steps that later processes have trained again. What a script logs is kept."""
        rows = self._rows(entry)
        number = self._generations.get(entry.writer, 0)
        end = min((step for later, step in self._first_steps.items() if later > number), default=math.inf)
        if end == math.inf or isinstance(entry.event, ev.ValuesLogged):
            return rows
        return (row for row in rows if isinstance(row, EventRow) or row.step < end)

    def _rows(self, entry: JournalEvent) -> Iterator[Row]:
        event = entry.event
        if isinstance(event, ev.StepsRecorded):
            yield from self._steps(entry.writer, event)
        elif isinstance(event, ev.ValuesLogged):
            yield from _logged(event)
        elif isinstance(event, ev.MetersReported):
            for name, reading in event.meters.items():
                yield MetricRow(name, event.split, event.step, event.epoch, reading.avg, event.t, "report")
        elif isinstance(event, ev.EpochEnded):
            yield _epoch(event)
            yield from _epoch_metrics(event)
        elif isinstance(event, ev.ProgressReported):
            self._paced = self._paced or entry.writer
            if entry.writer == self._paced:
                yield from _progress(event)
        elif not isinstance(event, ev.HeartbeatSent):
            if isinstance(event, ev.TopologyDeclared) and step_values.makes_sense(event):
                self._cores[entry.writer] = event.cores
            fields = codec.to_json(event)
            kind, t = fields.pop("k"), fields.pop("t")
            yield EventRow(entry.writer, entry.seq, kind, t if isinstance(t, float) else math.nan, fields)

    def _steps(self, writer: str, event: ev.StepsRecorded) -> Iterator[StepRow]:
        if not step_values.makes_sense(event):
            raise BlockError("its counts contradict each other")
        width = event.cores
        cores = self._cores.get(writer, [])
        names = cores if len(cores) == width else range(width)
        values: Sequence[float] = float_blocks.unpack(event.block, event.n * width)
        if step_values.is_exact(event):
            values = [event.mean]
        for row in range(event.n):
            step = event.first + row
            for column, core in enumerate(names):
                yield StepRow(event.metric, step, core, values[row * width + column], event.t)


def _first_steps(run_dir: Path) -> dict[int, int]:
    """The first step of each generation that began with a restart. A run is only reduced if it has any."""
    opened = (entry.event for entry in read_events(run_dir))
    if not any(isinstance(event, ev.JournalOpened) and event.generation for event in opened):
        return {}
    found = {generation.number: generation.first_step for generation in load(run_dir).generations}
    return {number: step for number, step in found.items() if number and step is not None}


def _progress(event: ev.ProgressReported) -> Iterator[MetricRow]:
    """What is known of the pace and the learning rate; a step time of 0 is that of no step."""
    known = {"lr": event.lr}
    if event.step_s > 0.0:
        known |= {"step_s": event.step_s, "examples_per_s": event.examples_per_s}
    for name, value in known.items():
        if math.isfinite(value):
            yield MetricRow(name, "train", event.step, event.epoch, value, event.t, "progress")


def _logged(event: ev.ValuesLogged) -> Iterator[MetricRow]:
    if not logged_values.makes_sense(event):
        raise BlockError("its counts contradict each other")
    columns = logged_values.unpack(event)
    for index, (value, step) in enumerate(zip(columns.values, columns.steps, strict=True)):
        t = columns.times[index] if columns.times is not None else math.nan
        epoch = columns.epochs[index] if columns.epochs is not None else math.nan
        yield MetricRow(event.name, event.split, step, _known(epoch), value, _known(t), event.source)


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number


def _epoch(event: ev.EpochEnded) -> EpochRow:
    values = {f"train.{name}": reading.avg for name, reading in event.train.items()}
    values |= {f"valid.{name}": value for name, value in event.scores.items()}
    values |= {f"valid.{name}": reading.avg for name, reading in event.valid.items()}
    values |= {f"section.{name}_s": seconds for name, seconds in event.sections_s.items()}
    return EpochRow(event.epoch, event.step, event.t, event.train_s, event.valid_s, event.lr, event.best, values)


def _epoch_metrics(event: ev.EpochEnded) -> Iterator[MetricRow]:
    valid = {**event.scores, **{name: reading.avg for name, reading in event.valid.items()}}
    for name, reading in event.train.items():
        yield MetricRow(name, "train", event.step, event.epoch, reading.avg, event.t, "epoch")
    for name, value in valid.items():
        yield MetricRow(name, "valid", event.step, event.epoch, value, event.t, "epoch")
