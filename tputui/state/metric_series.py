"""The metrics of a run as curves: every meter and score in training and validation, learning rate and throughput, and
what the script logged itself.

Pure. A training value of a meter is the mean over the examples of its epoch so far; the last one of a finished epoch is
the mean over the whole epoch. The training loss is the mean over the cores of single steps instead, since every step
is recorded. Values that are NaN or infinite stay in the curves.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from tputui.logs.tags import role_of
from tputui.state.chart_data import LoggedView, MeterPoint, Segment, ThroughputPoint
from tputui.state.logged_series import first_and_last
from tputui.state.snapshot import Snapshot, best_epoch, monitored
from tputui.state.state_struct import once
from tputui.telemetry.events import EpochEnded, Split
from tputui.telemetry.logged_values import class_of, first_of

POINTS_MAX = 2_048
"""Points of one curve; several times the dots of the widest terminal."""

Basis = Literal["step", "report", "epoch", "logged"]
"""What a training value is measured over: consecutive steps; a report; the epoch so far; what the script logged."""

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


class ChosenAxis(NamedTuple):
    """The x axis that the author of a script chose for a metric, such as epochs or tokens."""

    name: str
    steps: Sequence[int]
    """Ascending, at least two."""
    values: Sequence[float]
    """The coordinate of each step, which never goes back."""

    def at(self, step: float) -> float:
        """The coordinate of a step, on a line between those that are known, and on beyond them."""
        at = min(max(bisect_left(self.steps, step), 1), len(self.steps) - 1)
        (first, last), (low, high) = self.steps[at - 1 : at + 1], self.values[at - 1 : at + 1]
        return low + (high - low) * (step - first) / (last - first)


class MetricSeries(NamedTuple):
    """A metric in training and validation. Both lists are in order of steps."""

    name: str
    unit: str
    """Empty if the metric has none, or if it is unknown."""
    basis: Basis
    """What a value of `train` is measured over."""
    train: list[MetricPoint]
    valid: list[MetricPoint]
    """One point per finished epoch, or each value that the script logged."""
    best_epoch: int | None
    """The best epoch by the monitored metric; None if there is none yet."""
    is_monitored: bool = False
    newest_train: float | None = None
    """The training value of the newest step, which the newest point may only be part of; None if it is not known."""
    source: str = ""
    """Path of the log or `console`, for values that the script logged; empty if the run reported them."""
    x: ChosenAxis | None = None
    """None for steps."""

    @property
    def is_stepped(self) -> bool:
        """Whether the training values change at once: a schedule of learning rates has no values between two others."""
        return role_of(self.name) == "lr"

    def newest(self, split: Split) -> MetricPoint | None:
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
        if self.best_epoch is None:
            return None
        ends = (point for point in reversed(self._of(split)) if point.ends_epoch)
        return next((point for point in ends if point.epoch == self.best_epoch), None)

    def _of(self, split: Split) -> list[MetricPoint]:
        return self.train if split == "train" else self.valid


class MetricSource(NamedTuple):
    """The parts of a snapshot that the curves are made from."""

    epochs: list[EpochEnded]
    meters: list[MeterPoint]
    loss: list[Segment]
    throughput: list[ThroughputPoint]
    monitored: str
    epoch: int
    """The current epoch."""
    newest_loss: float | None = None
    """The training loss of the newest step."""
    logged: Sequence[LoggedView] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> MetricSource:
        return cls(
            epochs=snapshot.epochs,
            meters=snapshot.meter_history,
            loss=snapshot.loss,
            throughput=snapshot.throughput.history if snapshot.throughput is not None else [],
            monitored=monitored(snapshot.config, snapshot.epochs),
            epoch=snapshot.epoch,
            newest_loss=snapshot.newest_loss,
            logged=snapshot.logged,
        )

    def axis_segments(self) -> list[Segment]:
        """Segments that cover the steps of all metrics, for the x axis: those of the loss, or without a loss those of
        the logged metric with the most values; empty ones cover steps before and after."""
        extent = _extent_of(self.logged)
        if extent is None:
            return self.loss
        longest, first, last, newest_t = extent
        segments = self.loss or list(longest)
        if first >= segments[0].first_step and last <= segments[-1].last_step:
            return segments
        t = newest_t if newest_t is not None else segments[-1].t
        before = [_empty(first, segments[0].t)] if first < segments[0].first_step else []
        after = [_empty(last, max(t, segments[-1].t))] if last > segments[-1].last_step else []
        return [*before, *segments, *after]


@once
def _extent_of(logged: Sequence[LoggedView]) -> tuple[Sequence[Segment], int, int, float | None] | None:
    """What the logged metrics cover together: the points of the one with the most, the first and the last step, and the
    newest unix time; None without any."""
    curves = [view.points for view in logged if view.points]
    if not curves:
        return None
    steps = [first_and_last(points) for points in curves]
    first, last = min(step for step, _ in steps), max(step for _, step in steps)
    t = max((view.t for view in logged if view.t is not None), default=None)
    return max(curves, key=lambda points: len(points)), first, last, t


def _empty(step: int, t: float) -> Segment:
    nan = math.nan
    return Segment(first_step=step, last_step=step, mean=nan, min=nan, max=nan, num_values=0, num_bad=0, t=t)


class EpochCurves:
    """The points of the finished epochs. Computed again only when an epoch ends, as a run may have thousands."""

    def __init__(self, epochs: Sequence[EpochEnded]) -> None:
        self.epochs = epochs
        best = best_epoch(epochs)
        self.best = best.epoch if best is not None else None
        self.last_steps = {epoch.epoch: epoch.step for epoch in epochs}
        self.ends = [epoch.step for epoch in epochs]
        self.validated = {name for epoch in epochs for name in epoch.valid}
        """Names of the meters that have validation values."""
        self._points: dict[str, tuple[list[MetricPoint], list[MetricPoint]]] = {}

    def names(self) -> dict[str, None]:
        """The names of all meters and scores, in the order in which they were reported first."""
        return dict.fromkeys(name for epoch in self.epochs for name in (*epoch.train, *epoch.valid, *epoch.scores))

    def points(self, name: str) -> tuple[list[MetricPoint], list[MetricPoint]]:
        """Training and validation values of a meter or score."""
        if name not in self._points:
            train = [
                MetricPoint(epoch.step, epoch.epoch, epoch.t, epoch.train[name].avg, True)
                for epoch in self.epochs
                if name in epoch.train
            ]
            self._points[name] = (sorted(train), sorted(validation_points(self.epochs, name)))
        return self._points[name]

    def learning_rates(self) -> list[MetricPoint]:
        """The learning rate of every epoch that has one."""
        known = (view for view in self.epochs if view.lr == view.lr)
        return sorted(MetricPoint(view.step, view.epoch, view.t, view.lr, True) for view in known)


class Metrics:
    """The metrics of a run by name. Each is made when it is asked for, and one that the script logged only again after
    a new value: a screen shows dozens of the thousands that a run may have."""

    def __init__(self, source: MetricSource, before: Metrics | None = None) -> None:
        """`before`: the metrics of an earlier moment of the run, for what has not changed."""
        self.source = source
        self._ended: EpochCurves = EpochCurves(source.epochs)
        self._logged_made: dict[str, tuple[object, MetricSeries]] = {}
        if before is not None and before._ended.epochs is source.epochs:
            self._ended, self._logged_made = before._ended, before._logged_made
        self._clock = _Clock(source, self._ended)
        self._made: dict[str, MetricSeries] = {}
        self._axes: dict[str, ChosenAxis | None] = {}
        self._views: dict[str, list[LoggedView]] = {}
        if before is not None and before.source.logged is source.logged:
            self._views = before._views
        else:
            for view in source.logged:
                self._views.setdefault(view.name, []).append(view)
        self._of_meters = dict.fromkeys(_names(source, self._ended))
        self._reports = dict(_of_reports(source, self._clock, self._ended, self._views))
        names = self._names()
        self.names: tuple[str, ...] = before.names if before is not None and before.names == names else names
        """The monitored metric first, then the loss, the others in the order in which the run reported them, the
        learning rate, and the throughput. A metric of the run hides one of ours with the same name."""

    def _names(self) -> tuple[str, ...]:
        names = self._of_meters | dict.fromkeys(self._views)
        names |= dict.fromkeys([LOSS] if self.source.loss else [])
        names |= dict.fromkeys(name for name, points in self._reports.items() if points)
        first = [name for name in dict.fromkeys((self.source.monitored, LOSS)) if name in names]
        return tuple(dict.fromkeys([*first, *names]))

    def __getitem__(self, name: str) -> MetricSeries:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def get(self, name: str) -> MetricSeries | None:
        """A metric; None if the run has none of this name."""
        return self[name] if name in self.names else None

    def _make(self, name: str) -> MetricSeries:
        source, best, clock = self.source, self._ended.best, self._clock
        is_monitored, views = name == source.monitored, self._views.get(name, ())
        if name == LOSS and source.loss:
            of_logs = self._logged(name, views) if views or name in self._of_meters else None
            valid, read_from = (of_logs.valid, of_logs.source) if of_logs is not None else ([], "")
            train, newest = _bounded(clock.of_segments(), best), source.newest_loss
            axis = of_logs.x if of_logs is not None else None
            return MetricSeries(LOSS, "", "step", train, valid, best, is_monitored, newest, read_from, axis)
        if views or name in self._of_meters:
            return self._logged(name, views)._replace(is_monitored=is_monitored)
        points = _bounded(self._reports[name], best)
        return MetricSeries(name, UNITS.get(name, ""), "report", points, [], best, is_monitored)

    def _logged(self, name: str, views: Sequence[LoggedView]) -> MetricSeries:
        """The meter of a name, with what the script logged under it."""
        axis = next(filter(None, (self._axis(view.x) for view in views)), None)
        if name in self._of_meters:
            meter = _meter(name, self.source, self._clock, self._ended)._replace(x=axis)
            return _with_logged(meter, views, self._clock, self._ended)
        key = (self.source.epoch, axis, *views)
        held = self._logged_made.get(name)
        if held is None or held[0] != key:
            empty = MetricSeries(name, "", "logged", [], [], self._ended.best, x=axis)
            held = self._logged_made[name] = (key, _with_logged(empty, views, self._clock, self._ended))
        return held[1]

    def _axis(self, x: str) -> ChosenAxis | None:
        if x and x not in self._axes:
            self._axes[x] = _chosen_axis(x, self.source)
        return self._axes.get(x)


def metric_series(source: MetricSource) -> list[MetricSeries]:
    """Every metric that has a value, in the order of `Metrics.names`."""
    metrics = Metrics(source)
    return [metrics[name] for name in metrics.names]


class _Clock:
    """The epoch and the time of a step."""

    def __init__(self, source: MetricSource, ended: EpochCurves) -> None:
        self._epochs = source.epochs
        self._ends = ended.ends
        self._last_steps_of = ended.last_steps
        self._current = source.epoch
        self._segments = source.loss
        self._last_steps = [segment.last_step for segment in source.loss]

    def epoch_at(self, step: int) -> int:
        place = bisect_left(self._ends, step)
        return self._epochs[place].epoch if place < len(self._ends) else self._current

    def time_at(self, step: int) -> float:
        """When a step was reported, in unix time; 0 if unknown."""
        place = bisect_left(self._last_steps, step)
        return self._segments[place].t if place < len(self._segments) else 0.0

    def of_segments(self) -> list[MetricPoint]:
        epoch_at = self.epoch_at
        return [
            MetricPoint(segment.last_step, epoch_at(segment.last_step), segment.t, segment.mean, False, segment.num_bad)
            for segment in self._segments
        ]

    def of_logged(self, view: LoggedView) -> list[MetricPoint]:
        """The values of a logged metric as points. One at the last step of an epoch is that of the epoch."""
        points = []
        for point in view.points:
            step, epoch = point.last_step, self.epoch_at(point.last_step)
            points.append(
                MetricPoint(step, epoch, point.t, point.mean, self._last_steps_of.get(epoch) == step, point.num_bad)
            )
        return points


def _names(source: MetricSource, ended: EpochCurves) -> list[str]:
    """The names of all meters and scores in the order in which they were reported first."""
    of_first = EpochCurves(source.epochs[:1]).names()
    running = (name for point in source.meters for name in point.avg)
    return list(dict.fromkeys([*of_first, *running, *ended.names()]))


def _meter(name: str, source: MetricSource, clock: _Clock, ended: EpochCurves) -> MetricSeries:
    train, valid = ended.points(name)
    running: tuple[list[MetricPoint], list[MetricPoint]] = ([], [])
    for point in source.meters:
        # The final values are those of the epoch's end.
        last = ended.last_steps.get(point.epoch)
        if name in point.avg and (last is None or (point.split == "train" and point.step < last)):
            into = running[point.split == "valid"]
            into.append(MetricPoint(point.step, point.epoch, clock.time_at(point.step), point.avg[name]))
    train, valid = sorted([*train, *running[0]]), sorted([*valid, *running[1]])
    return MetricSeries(name, "", "epoch", _bounded(train, ended.best), _bounded(valid, ended.best), ended.best)


def _with_logged(metric: MetricSeries, views: Sequence[LoggedView], clock: _Clock, ended: EpochCurves) -> MetricSeries:
    """The metric with what the script logged itself. A split that the run reports as a meter or score stays, unless the
    script logged more validation values than the run reported."""
    for view in views:
        points = _bounded(clock.of_logged(view), ended.best)
        if view.split == "train" and not metric.train:
            metric = metric._replace(basis="logged", train=points, newest_train=view.value, source=view.source)
        elif view.split == "valid" and (len(points) > len(metric.valid) or view.name not in ended.validated):
            # The scores of epochs are some of these values.
            metric = metric._replace(valid=points, source=view.source)
    return metric


def _chosen_axis(x: str, source: MetricSource) -> ChosenAxis | None:
    """The axis of a `LoggedView.x`; None for steps, and if its values go back or are not known."""
    points = [(point.last_step, point.max) for view in source.logged if x == view.tag for point in view.points]
    if not points and x == "epoch":
        points = [(0, 0.0), *((epoch.step, float(epoch.epoch)) for epoch in source.epochs)]
    elif not points and x == "time":
        times = [(point.last_step, point.t) for view in source.logged if view.x == x for point in view.points]
        start = min((t for _, t in times if t), default=0.0)
        points = [(step, t - start) for step, t in times if t]
    by_step = dict(sorted(points))
    values = list(by_step.values())
    rises = all(low <= high for low, high in itertools.pairwise(values)) and values[:1] < values[-1:]
    return ChosenAxis(x, list(by_step), values) if rises and all(map(math.isfinite, values)) else None


def most_important(series: Sequence[MetricSeries], most: int) -> list[MetricSeries]:
    """At most so many series, losses and those with validation values first."""
    return first_of(series, most, lambda metric: class_of(metric.name, "valid" if metric.valid else "train"))


def validation_points(epochs: Sequence[EpochEnded], name: str) -> list[MetricPoint]:
    """The validation meter or score of this name at the end of every epoch that has it."""
    figures = ((epoch, epoch.figure(name)) for epoch in epochs)
    return [MetricPoint(view.step, view.epoch, view.t, value, True) for view, value in figures if value is not None]


def _of_reports(
    source: MetricSource, clock: _Clock, ended: EpochCurves, logged: Iterable[str]
) -> Iterable[tuple[str, list[MetricPoint]]]:
    """Learning rate, throughput and step time, by name."""
    points = [(point, clock.epoch_at(point.step)) for point in source.throughput]
    rates = [MetricPoint(point.step, epoch, point.t, point.lr) for point, epoch in points if point.lr == point.lr]
    if not any(name.lower().rpartition("/")[2] in ("lr", "learning_rate") for name in logged):
        yield LR, rates or ended.learning_rates()
    measured = [(point, epoch) for point, epoch in points if point.examples_per_s == point.examples_per_s]
    yield THROUGHPUT, [MetricPoint(point.step, epoch, point.t, point.examples_per_s) for point, epoch in measured]
    yield STEP_TIME, [MetricPoint(point.step, epoch, point.t, point.step_s) for point, epoch in points]


def _bounded(points: list[MetricPoint], best: int | None) -> list[MetricPoint]:
    """At most `POINTS_MAX` points: the newest, and of neighbours the best epoch's, else a bad one, else the last."""
    most = POINTS_MAX
    if len(points) <= most:
        return points
    # The newest value is shown as such, so its point is not joined with others.
    edges = [(len(points) - 1) * number // (most - 1) for number in range(most)]
    groups = [_of_neighbours(points[start:stop], best) for start, stop in itertools.pairwise(edges)]
    return [*groups, points[-1]]


def _of_neighbours(points: Sequence[MetricPoint], best: int | None) -> MetricPoint:
    wanted = (point for point in points if point.ends_epoch and point.epoch == best)
    return next(wanted, None) or next((point for point in points if point.is_bad), points[-1])
