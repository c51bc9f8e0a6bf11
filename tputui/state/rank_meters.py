"""The meters of a run, combined over the processes of a script that report them: means weighted by examples.

The engine reduces its meters over all cores itself. The ranks of a script report what each of them measured; with one
process of a script the combination is what it reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from tputui.state.chart_data import MeterPoint
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import RankReading
from tputui.telemetry.events import EpochEnded, MeterReading, MetersReported, Split

RANKS_MAX = 4_096
"""Ranks of one meter whose readings are listed."""
Readings = Mapping[str, MeterReading]


def ranks(state: RunState) -> Sequence[ProcessState]:
    """The processes whose meters are combined: those of a script, else the first one."""
    is_script = all(w.topology is None or w.topology.num_hosts <= 1 for w in state.workers)
    return state.workers if is_script else state.workers[:1]


def combined(readings: Sequence[Readings]) -> dict[str, MeterReading]:
    """The readings of several ranks as one, by name of the meter; of one rank they are what it reported."""
    if len(readings) == 1:
        return dict(readings[0])
    by_name: dict[str, list[MeterReading]] = {}
    for of_rank in readings:
        for name, reading in of_rank.items():
            by_name.setdefault(name, []).append(reading)
    return {name: _mean(readings_of_name) for name, readings_of_name in by_name.items()}


def newest(reports: Sequence[MetersReported]) -> MetersReported | None:
    """The newest report of all ranks: the meters of those that have reached the newest epoch, combined."""
    epoch = max((report.epoch for report in reports), default=0)
    current = [report for report in reports if report.epoch == epoch]
    if len(current) < 2:
        return current[0] if current else None
    last = max(current, key=attrgetter("step"))
    reduced = "; ".join(filter(None, [last.reduced, f"mean over {len(current)} ranks, weighted by examples"]))
    return msgspec.structs.replace(last, meters=combined([report.meters for report in current]), reduced=reduced)


def of_ranks(state: RunState, split: Split, name: str, epoch: int) -> list[RankReading]:
    """What each rank reported for one meter of an epoch; empty if only one process reports it."""
    readings = []
    for process in ranks(state)[:RANKS_MAX]:
        report, ended = process.meters.get(split), process.epochs.get(epoch)
        meters = report.meters if report is not None and report.epoch == epoch else {}
        if ended is not None:
            meters = (ended.train if split == "train" else ended.valid) or meters
        if name in meters:
            readings.append(RankReading(process=process.name, rank=process.index, reading=meters[name]))
    return readings if len(readings) > 1 else []


def epoch_of(reported: Sequence[EpochEnded], read: EpochEnded | None = None) -> EpochEnded:
    """An epoch that several ranks ended: that of the first rank, with the meters of all, and with what was `read` from
    their output of names that they do not report. At least one of both is there."""
    if read is not None and not reported:
        return read
    first = reported[0]
    if len(reported) > 1:
        train, valid = (
            [getattr(event, split) for event in reported if getattr(event, split)] for split in ("train", "valid")
        )
        first = msgspec.structs.replace(
            first, train=combined(train) if train else {}, valid=combined(valid) if valid else {}
        )  # fmt: skip
    if read is None:
        return first
    # The best epoch is chosen by what is reported, if that has results of evaluations.
    chosen = first if first.valid else read
    return msgspec.structs.replace(
        first,
        train={**read.train, **first.train},
        valid={**read.valid, **first.valid},
        scores={**read.scores, **first.scores},
        best=chosen.best,
        monitor=chosen.monitor,
    )


def history(state: RunState) -> list[MeterPoint]:
    """The meters over time: the points of the rank that has the most, each with the newest values of the others."""
    reporting = [process for process in ranks(state) if process.meter_history]
    key = [(process.name, [points.version for points in process.meter_history.values()]) for process in reporting]
    return state.memoized("meters", key, lambda: _history(reporting)) if reporting else []


def _history(reporting: Sequence[ProcessState]) -> list[MeterPoint]:
    points_of_all: list[MeterPoint] = []
    splits: tuple[Split, ...] = ("train", "valid")
    for split in splits:
        parts = [
            (process, process.meter_history[split].items) for process in reporting if split in process.meter_history
        ]
        if len(parts) < 2:
            points_of_all += [point for _, points in parts for point in points]
            continue
        weights = [_weights(process, split) for process, _ in parts]
        points_of_all += _merged([points for _, points in parts], weights)
    return sorted(points_of_all, key=attrgetter("epoch", "split", "step"))


def _weights(process: ProcessState, split: Split) -> dict[str, int]:
    """Examples of each meter in the newest report: points do not have theirs."""
    report = process.meters.get(split)
    return {name: reading.count for name, reading in report.meters.items()} if report is not None else {}


def _merged(parts: Sequence[Sequence[MeterPoint]], weights: Sequence[Mapping[str, int]]) -> list[MeterPoint]:
    ordered = [sorted(points, key=attrgetter("epoch", "step")) for points in parts]
    frame = max(ordered, key=len)
    places = [0] * len(ordered)
    merged = []
    for point in frame:
        here = point.epoch, point.step
        sums: dict[str, list[float]] = {}
        for number, points in enumerate(ordered):
            while places[number] + 1 < len(points) and _place(points[places[number] + 1]) <= here:
                places[number] += 1
            at = points[places[number]]
            if at.epoch == point.epoch and _place(at) <= here:
                for name, value in at.avg.items():
                    weight = max(weights[number].get(name, 1), 1)
                    total = sums.setdefault(name, [0.0, 0.0])
                    total[0] += value * weight
                    total[1] += weight
        merged.append(msgspec.structs.replace(point, avg={name: total / w for name, (total, w) in sums.items()}))
    return merged


def _place(point: MeterPoint) -> tuple[int, int]:
    return point.epoch, point.step


def _mean(readings: Sequence[MeterReading]) -> MeterReading:
    count = sum(reading.count for reading in readings)
    if len(readings) == 1 or count <= 0:
        return readings[0]
    total = _sum(reading.sum for reading in readings)
    val = _sum(reading.val * reading.count for reading in readings if reading.count > 0) / count
    return MeterReading(val=val, avg=total / count, sum=total, count=count)


def _sum(values: Iterable[float]) -> float:
    """The sum; NaN if it is not a number, as of values that are infinite with both signs."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return math.nan
