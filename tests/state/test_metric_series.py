"""The curves of the metrics agree with the snapshot that they are made from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import made, measured
from tputui.state import metric_series
from tputui.state.chart_data import MeterPoint
from tputui.state.metric_series import POINTS_MAX, MetricPoint, MetricSeries, MetricSource
from tputui.state.snapshot import Snapshot, best_epoch
from tputui.telemetry.events import EpochEnded, MeterReading


def series_of(snapshot: Snapshot) -> dict[str, MetricSeries]:
    return {one.name: one for one in metric_series.metric_series(MetricSource.of(snapshot))}


def values(points: Sequence[MetricPoint]) -> list[float]:
    return [point.value for point in points]


def test_monitored_metric_and_loss_come_first() -> None:
    run = measured.running()
    names = ["auc", "loss", "accuracy", "grad norm", "lr", "throughput", "step time"]
    assert list(series_of(run)) == names
    assert [one.is_monitored for one in series_of(run).values()] == [True, *[False] * 6]
    by_accuracy = made.changed(run, config={"checkpoint": {"monitor": "accuracy"}})
    assert list(series_of(by_accuracy))[:3] == ["accuracy", "loss", "grad norm"]


def test_order_is_the_same_before_and_after_the_first_epoch() -> None:
    run = measured.running()
    early = made.changed(run, epochs=[], meter_history=run.meter_history[:3])
    order = list(series_of(run))
    assert list(series_of(early)) == [name for name in order if name != "auc"]


def test_values_of_epochs_are_those_of_the_snapshot() -> None:
    run = measured.running()
    accuracy, auc = series_of(run)["accuracy"], series_of(run)["auc"]
    ends = [point for point in accuracy.train if point.ends_epoch]
    assert [(p.epoch, p.step, p.value) for p in ends] == [
        (e.epoch, e.step, e.train["accuracy"].avg) for e in run.epochs
    ]
    assert values(accuracy.valid) == [epoch.valid["accuracy"].avg for epoch in run.epochs]
    assert values(auc.valid) == [epoch.scores["auc"] for epoch in run.epochs]
    assert auc.train == []
    assert auc.best_epoch == measured.BEST
    best = auc.best("valid")
    assert best is not None
    assert (best.epoch, best.value) == (measured.BEST, run.epochs[measured.BEST - 1].scores["auc"])


def test_train_point_of_running_epoch_is_the_mean_so_far() -> None:
    run = measured.running()
    accuracy = series_of(run)["accuracy"]
    newest = accuracy.newest("train")
    assert newest is not None
    assert (newest.epoch, newest.step, newest.ends_epoch) == (13, 305, False)
    assert newest.value == run.meter_history[-1].avg["accuracy"]
    assert accuracy.basis == "epoch"


def test_training_loss_is_the_mean_over_the_cores_of_every_step() -> None:
    run = measured.running()
    loss = series_of(run)["loss"]
    assert loss.basis == "step"
    assert values(loss.train) == [segment.mean for segment in run.loss]
    assert {point.epoch for point in loss.train} == set(range(1, 14))
    assert [point.t for point in loss.train] == [segment.t for segment in run.loss]


def test_steps_with_nan_are_bad_points() -> None:
    loss = series_of(made.diverged())["loss"]
    assert [point.step for point in loss.train if point.is_bad] == list(range(301, 331))
    assert all(math.isfinite(point.value) for point in loss.train)


def test_learning_rate_of_reports_else_of_epochs() -> None:
    run = measured.running()
    assert run.throughput is not None
    assert values(series_of(run)["lr"].train) == [point.lr for point in run.throughput.history]
    without = made.changed(run, throughput=None)
    assert values(series_of(without)["lr"].train) == [epoch.lr for epoch in run.epochs]
    assert {"throughput", "step time"}.isdisjoint(series_of(without))


def test_a_meter_hides_the_metric_of_the_same_name() -> None:
    run = measured.running()
    epochs = [msgspec.structs.replace(e, valid={"lr": made.reading(7.0, 1)}) for e in run.epochs]
    lr = series_of(made.changed(run, epochs=epochs))["lr"]
    assert (values(lr.valid), lr.train) == ([7.0] * len(epochs), [])


def test_value_at_a_step() -> None:
    accuracy = series_of(measured.running())["accuracy"]
    train, valid = accuracy.at("train", 27), accuracy.at("valid", 74)
    assert train is not None
    assert train.step == 30
    assert valid is not None
    assert valid.epoch == 2
    assert accuracy.at("valid", 24) is None
    at_end = accuracy.at("valid", 25)
    assert at_end is not None
    assert at_end.epoch == 1
    assert accuracy.at("train", 10**9) == accuracy.newest("train")


def test_an_empty_run_has_no_metrics() -> None:
    assert series_of(made.empty()) == {}


def test_long_run_is_bounded_and_keeps_the_best_epoch_and_nan() -> None:
    best, bad = 4_321, 7_001
    epochs = [
        EpochEnded(
            epoch=number, step=number * 10, t=0.0, train={},
            valid={"loss": _reading(math.nan if number == bad else 1.0)},
            train_s=1.0, valid_s=1.0, sections_s={}, lr=0.1, best=number == best, scores={}, trace_s={},
        )
        for number in range(1, 10_001)
    ]  # fmt: skip
    loss = series_of(made.changed(made.running(), epochs=epochs))["loss"]
    assert len(loss.valid) <= POINTS_MAX
    assert loss.valid[-1].epoch == 10_000
    point = loss.best("valid")
    assert point is not None
    assert point.epoch == best
    assert [point.epoch for point in loss.valid if point.is_bad] == [bad]


def test_newest_point_of_a_long_run_is_kept_beside_the_best_epoch() -> None:
    epochs = [
        EpochEnded(
            epoch=number, step=number, t=0.0, train={}, valid={"loss": _reading(float(number))}, train_s=1.0,
            valid_s=1.0, sections_s={}, lr=0.1, best=number == 9_999, scores={}, trace_s={},
        )
        for number in range(1, 10_001)
    ]  # fmt: skip
    loss = series_of(made.changed(made.running(), epochs=epochs))["loss"]
    assert len(loss.valid) <= POINTS_MAX
    assert [point.epoch for point in loss.valid[-2:]] == [9_999, 10_000]


def _reading(avg: float) -> MeterReading:
    return MeterReading(val=avg, avg=avg, sum=avg, count=1)


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
METERS = st.dictionaries(st.sampled_from(["loss", "accuracy", "lr", "x"]), FLOATS, max_size=3)


@st.composite
def sources(draw: st.DrawFn) -> MetricSource:
    """Epochs of random meters, and reports within them and in the epoch after them."""
    epochs, meters = list[EpochEnded](), list[MeterPoint]()
    per_epoch = draw(st.integers(1, 5))
    for number in range(1, draw(st.integers(0, 6)) + 1):
        train, valid = draw(METERS), draw(METERS)
        epochs.append(
            EpochEnded(
                epoch=number, step=number * per_epoch, t=float(number),
                train={name: _reading(value) for name, value in train.items()},
                valid={name: _reading(value) for name, value in valid.items()},
                train_s=1.0, valid_s=1.0, sections_s={}, lr=draw(FLOATS), best=draw(st.booleans()),
                scores=draw(METERS), trace_s={},
            )
        )  # fmt: skip
    for step in range(1, (len(epochs) + 1) * per_epoch + 1):
        if draw(st.booleans()):
            meters.append(MeterPoint(epoch=(step - 1) // per_epoch + 1, split="train", step=step, avg=draw(METERS)))
    return MetricSource(epochs, meters, [], [], draw(st.sampled_from(["loss", "x", "none"])), len(epochs) + 1)


@given(sources())
def test_no_value_is_lost_or_invented(source: MetricSource) -> None:
    found = metric_series.metric_series(source)
    names = [one.name for one in found]
    assert len(names) == len(set(names))
    if source.monitored in names:
        assert names[0] == source.monitored
    best = best_epoch(source.epochs)
    for one in found:
        assert [point.step for point in one.train] == sorted(point.step for point in one.train)
        assert one.best_epoch == (best.epoch if best is not None else None)
        figures = [epoch.figure(one.name) for epoch in source.epochs]
        assert _same(values(one.valid), [figure for figure in figures if figure is not None])
        if one.basis == "epoch":
            ends = [epoch.train[one.name].avg for epoch in source.epochs if one.name in epoch.train]
            assert _same(values([point for point in one.train if point.ends_epoch]), ends)
            last_steps = {epoch.epoch: epoch.step for epoch in source.epochs}
            within = [
                point.avg[one.name]
                for point in source.meters
                if one.name in point.avg and point.step < last_steps.get(point.epoch, 10**9)
            ]
            assert _same(values([point for point in one.train if not point.ends_epoch]), within)


def _same(left: Sequence[float], right: Sequence[float]) -> bool:
    """Equal, where NaN equals NaN."""
    return len(left) == len(right) and all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))
