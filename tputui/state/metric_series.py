"""The metrics of a run as curves: every meter and score in training and validation, learning rate and throughput.

Pure. A training value of a meter is the mean over the examples of its epoch so far; the last one of a finished epoch is
the mean over the whole epoch. The training loss is the mean over the cores of single steps instead, since every step
is recorded. Values that are NaN or infinite stay in the curves.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from tputui.state.chart_data import MeterPoint, Segment, ThroughputPoint
from tputui.state.snapshot import EpochView, Snapshot, best_epoch, monitored
from tputui.telemetry.events import Split

POINTS_MAX = 2_048
"""Points of one curve; several times the dots of the widest terminal."""

Basis = Literal["step", "report", "epoch"]
"""What a training value is measured over: consecutive steps; a report; the epoch so far."""

LOSS, LR, THROUGHPUT, STEP_TIME = "loss", "lr", "throughput", "step time"
UNITS: dict[str, str] = {THROUGHPUT: "examples/s", STEP_TIME: "s"}
"""Units of the metrics that have one."""


class MetricPoint(NamedTuple):
    """The value of a metric at one step."""

    step: int
    """Last step that the value covers."""
    epoch: int
    """The epoch of that step."""
    t: float
    """Unix time; 0 if unknown."""
    value: float
    """May be NaN or infinite."""
    ends_epoch: bool = False
    """Whether the value is that of a whole epoch."""
    num_bad: int = 0
    """NaN and infinite values in it, which are not part of a finite `value`."""

    @property
    def is_bad(self) -> bool:
        """Whether the value, or a value that it was computed from, is NaN or infinite."""
        return self.num_bad > 0 or not math.isfinite(self.value)


class MetricSeries(NamedTuple):
    """A metric in training and validation. Both lists are in order of steps."""

    name: str
    unit: str
    """Empty if the metric has none, or if it is unknown."""
    basis: Basis
    """What a value of `train` is measured over."""
    train: list[MetricPoint]
    valid: list[MetricPoint]
    """One point per finished epoch."""
    best_epoch: int | None
    """The best epoch by the monitored metric; None if there is none yet."""
    is_monitored: bool = False
    newest_train: float | None = None
    """The training value of the newest step, which the newest point may only be part of; None if it is not known."""

    def newest(self, split: Split) -> MetricPoint | None:
        """The newest point of a split."""
        points = self._of(split)
        return points[-1] if points else None

    def at(self, split: Split, step: int) -> MetricPoint | None:
        """The point of a split that covers a step: of `train` the first one from the step on, of `valid` that of the
        newest epoch that had ended. None if there is none."""
        points = self._of(split)
        place = bisect_left(points, step, key=lambda point: point.step)
        if place < len(points) and (split == "train" or points[place].step == step):
            return points[place]
        return points[place - 1] if place and (split == "valid" or place == len(points)) else None

    def best(self, split: Split) -> MetricPoint | None:
        """The value of the best epoch."""
        if self.best_epoch is None:
            return None
        return next((point for point in reversed(self._of(split)) if self._is_best(point)), None)

    def _is_best(self, point: MetricPoint) -> bool:
        return point.ends_epoch and point.epoch == self.best_epoch

    def _of(self, split: Split) -> list[MetricPoint]:
        return self.train if split == "train" else self.valid


class MetricSource(NamedTuple):
    """The parts of a snapshot that the curves are made from."""

    epochs: list[EpochView]
    meters: list[MeterPoint]
    loss: list[Segment]
    throughput: list[ThroughputPoint]
    monitored: str
    epoch: int
    """The current epoch."""
    newest_loss: float | None = None
    """The training loss of the newest step."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> MetricSource:
        """The parts of a snapshot."""
        return cls(
            epochs=snapshot.epochs,
            meters=snapshot.meter_history,
            loss=snapshot.loss,
            throughput=snapshot.throughput.history if snapshot.throughput is not None else [],
            monitored=monitored(snapshot.config),
            epoch=snapshot.epoch,
            newest_loss=snapshot.newest_loss,
        )


def metric_series(source: MetricSource) -> list[MetricSeries]:
    """Every metric that has a value: the monitored one first, then the loss, the others in the order in which the run
    reported them, the learning rate, and the throughput. A metric of the run hides one of ours with the same name."""
    best = best_epoch(source.epochs)
    number = best.epoch if best is not None else None
    clock = _Clock(source)
    found = {name: _meter(name, source, clock, number) for name in dict.fromkeys(_names(source))}
    if source.loss:
        valid = found[LOSS].valid if LOSS in found else []
        train = [clock.of_segment(segment) for segment in source.loss]
        found[LOSS] = MetricSeries(
            LOSS, "", "step", _bounded(train, number), valid, number, newest_train=source.newest_loss
        )
    for name, points in _of_reports(source, clock):
        if points and name not in found:
            found[name] = MetricSeries(name, UNITS.get(name, ""), "report", _bounded(points, number), [], number)
    if source.monitored in found:
        found[source.monitored] = found[source.monitored]._replace(is_monitored=True)
    first = [name for name in dict.fromkeys((source.monitored, LOSS)) if name in found]
    return [found[name] for name in (*first, *(name for name in found if name not in first))]


class _Clock:
    """The epoch and the time of a step."""

    def __init__(self, source: MetricSource) -> None:
        self._epochs = source.epochs
        self._ends = [epoch.step for epoch in source.epochs]
        self._current = source.epoch
        self._segments = source.loss
        self._last_steps = [segment.last_step for segment in source.loss]

    def epoch_at(self, step: int) -> int:
        """The epoch that a step belongs to."""
        place = bisect_left(self._ends, step)
        return self._epochs[place].epoch if place < len(self._ends) else self._current

    def time_at(self, step: int) -> float:
        """When a step was reported, in unix time; 0 if unknown."""
        place = bisect_left(self._last_steps, step)
        return self._segments[place].t if place < len(self._segments) else 0.0

    def of_segment(self, segment: Segment) -> MetricPoint:
        """A segment as a point."""
        step = segment.last_step
        return MetricPoint(step, self.epoch_at(step), segment.t, segment.mean, num_bad=segment.num_bad)


def _names(source: MetricSource) -> Iterator[str]:
    """The names of all meters and scores, each at least once, in the order in which they were reported first."""
    for epoch in source.epochs[:1]:
        yield from (*epoch.train, *epoch.valid, *epoch.scores)
    for point in source.meters:
        yield from point.avg
    for epoch in source.epochs[1:]:
        yield from (*epoch.train, *epoch.valid, *epoch.scores)


def _meter(name: str, source: MetricSource, clock: _Clock, best: int | None) -> MetricSeries:
    ended = {epoch.epoch: epoch.step for epoch in source.epochs}
    train: list[MetricPoint] = []
    valid: list[MetricPoint] = []
    for point in source.meters:
        # The final values are those of the epoch's end.
        if name in point.avg and not (point.epoch in ended and (point.split == "valid" or _is_final(point, ended))):
            into = train if point.split == "train" else valid
            into.append(MetricPoint(point.step, point.epoch, clock.time_at(point.step), point.avg[name]))
    for epoch in source.epochs:
        reading = epoch.train.get(name)
        if reading is not None:
            train.append(MetricPoint(epoch.step, epoch.epoch, epoch.t, reading.avg, ends_epoch=True))
    valid += validation_points(source.epochs, name)
    return MetricSeries(name, "", "epoch", _bounded(_in_order(train), best), _bounded(_in_order(valid), best), best)


def validation_points(epochs: Sequence[EpochView], name: str) -> list[MetricPoint]:
    """The validation meter or score of this name at the end of every epoch that has it."""
    figures = ((epoch, epoch.figure(name)) for epoch in epochs)
    return [MetricPoint(view.step, view.epoch, view.t, value, True) for view, value in figures if value is not None]


def _is_final(point: MeterPoint, ended: dict[int, int]) -> bool:
    return point.step >= ended[point.epoch]


def _of_reports(source: MetricSource, clock: _Clock) -> Iterable[tuple[str, list[MetricPoint]]]:
    """Learning rate, throughput and step time, by name."""
    points = [(point, clock.epoch_at(point.step)) for point in source.throughput]
    rates = [MetricPoint(point.step, epoch, point.t, point.lr) for point, epoch in points if point.lr == point.lr]
    # Without the rates of the reports, those of the epochs.
    ends = [MetricPoint(view.step, view.epoch, view.t, view.lr, ends_epoch=True) for view in source.epochs]
    yield LR, rates or _in_order(ends)
    yield THROUGHPUT, [MetricPoint(point.step, epoch, point.t, point.examples_per_s) for point, epoch in points]
    yield STEP_TIME, [MetricPoint(point.step, epoch, point.t, point.step_s) for point, epoch in points]


def _in_order(points: list[MetricPoint]) -> list[MetricPoint]:
    return sorted(points, key=lambda point: (point.step, point.epoch, point.ends_epoch))


def _bounded(points: list[MetricPoint], best: int | None) -> list[MetricPoint]:
    """At most `POINTS_MAX` points: of neighbours that of the best epoch, else a NaN or infinite one, else the last."""
    most = POINTS_MAX
    if len(points) <= most:
        return points
    edges = [len(points) * number // most for number in range(most + 1)]
    return [_of_neighbours(points[start:stop], best) for start, stop in itertools.pairwise(edges)]


def _of_neighbours(points: Sequence[MetricPoint], best: int | None) -> MetricPoint:
    wanted = (point for point in points if point.ends_epoch and point.epoch == best)
    return next(wanted, None) or next((point for point in points if point.is_bad), points[-1])
