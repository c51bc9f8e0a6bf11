"""The meters and logged metrics of a script with several ranks."""

from __future__ import annotations

import math

import msgspec
import pytest

from tests.recorded import T0, opened
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev

COUNTS = (10, 30, 60)


def reading(value: float, count: int) -> ev.MeterReading:
    return ev.MeterReading(val=value, avg=value, sum=value * count, count=count)


def rank_events(rank: int, num_hosts: int = 1, epoch: int = 2) -> list[ev.Event]:
    """Rank 0, 1, 2: accuracy 0.0, 0.5, 1.0 in the epoch, and a logged value of 1, 2, 3."""
    value, count = rank / 2, COUNTS[rank]
    topology = ev.TopologyDeclared(
        t=T0, strategy="replica", device="CPU", device_reason=None, num_cores=3, num_hosts=num_hosts, host_index=0,
        cores=[rank],
    )  # fmt: skip
    ended = ev.EpochEnded(
        t=T0 + 1, epoch=1, step=10, train={"acc": reading(value, count)}, valid={"acc": reading(value, 1)}, train_s=1.0,
        valid_s=0.0, sections_s={}, lr=0.1, best=True,
    )  # fmt: skip
    reports = [
        ev.MetersReported(
            t=T0 + 2, epoch=epoch, step=step + rank, split="train", meters={"acc": reading(value, count)},
            reduced="mean over examples",
        )
        for step in (11, 14)
    ]  # fmt: skip
    logged = ev.ValuesLogged(
        t=T0 + 2, name="speed", split="train", tag="speed", source="script", value=rank + 1.0, step=10, value_t=T0
    )
    head = msgspec.structs.replace(opened(T0, "worker", rank), writer=f"worker-{rank}")
    return [head, topology, ended, *reports, logged]


def seen(*journals: list[ev.Event]) -> Snapshot:
    state = RunState()
    for rank, events in enumerate(journals):
        for seq, event in enumerate(events):
            state.apply(f"worker-{rank}", seq, event)
    alive = {f"worker-{rank}": True for rank in range(len(journals))}
    return build_snapshot(state, ViewerContext(now=T0 + 3, run="run", dir="runs/run", alive=alive))


def test_meters_of_ranks_are_their_mean_weighted_by_examples() -> None:
    snapshot = seen(*(rank_events(rank) for rank in range(3)))
    (train, valid) = snapshot.meters
    assert (train.epoch, train.reading.count, train.reading.sum) == (2, 100, 75.0)
    assert (train.reading.avg, train.reading.val) == (0.75, 0.75)
    assert train.reduced == "mean over examples; mean over 3 ranks, weighted by examples"
    assert [(one.process, one.rank, one.reading.avg, one.reading.count) for one in train.ranks] == [
        ("worker-0", 0, 0.0, 10), ("worker-1", 1, 0.5, 30), ("worker-2", 2, 1.0, 60)
    ]  # fmt: skip
    assert (valid.epoch, valid.reading.avg, len(valid.ranks)) == (1, 0.5, 3)
    (epoch,) = snapshot.epochs
    assert (epoch.train["acc"].avg, epoch.valid["acc"].avg) == (0.75, 0.5)
    # At step 11 only rank 0 had reported; the points are those of the first rank.
    assert [(point.step, point.avg["acc"]) for point in snapshot.meter_history] == [
        (11, 0.0),
        (14, pytest.approx(0.75)),
    ]


def test_a_rank_that_is_an_epoch_behind_is_left_out() -> None:
    snapshot = seen(rank_events(0), rank_events(1), rank_events(2, epoch=1))
    assert snapshot.meters[0].reading.avg == pytest.approx(0.375)
    assert [one.rank for one in snapshot.meters[0].ranks] == [0, 1]


def test_meters_that_the_engine_reduced_itself_and_those_of_one_rank_stay_as_they_are() -> None:
    for snapshot in (seen(*(rank_events(rank, num_hosts=3) for rank in range(3))), seen(rank_events(0))):
        assert (snapshot.meters[0].reading, snapshot.meters[0].ranks) == (reading(0.0, 10), [])
        assert snapshot.meters[0].reduced == "mean over examples"


def test_metrics_that_several_processes_log_are_combined() -> None:
    (view,) = seen(*(rank_events(rank) for rank in range(3))).logged
    assert (view.value, view.num_values, view.min, view.max) == (2.0, 3, 1.0, 3.0)
    assert [(point.mean, point.min, point.max) for point in view.points] == [(2.0, 1.0, 3.0)]
    events = rank_events(1)
    events[-1] = msgspec.structs.replace(events[-1], value=math.nan)
    (view,) = seen(rank_events(0), events).logged
    assert math.isnan(view.value)
    assert (view.num_values, view.num_bad) == (1, 1)
