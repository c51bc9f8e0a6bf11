"""Memory over time, bounded however long the run: samples of one process, and all processes combined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tputui.state.chart_data import MemoryPoint
from tputui.state.downsampled import Downsampled, downsample
from tputui.state.state_struct import Count, StateStruct
from tputui.telemetry.events import HostSampled, MemorySampled

_SAMPLES_MAX = 4_096
"""Of all processes together when they are combined ..."""
_OF_EACH_LEAST = 16
"""... and at least this many of each."""


class Sample(NamedTuple):
    """Memory that one process sampled, or the maximum over neighbouring samples."""

    t: float
    hbm_bytes: int | None
    host_bytes: int | None
    rss_bytes: int | None

    def join(self, later: Sample) -> Sample:
        return Sample(
            later.t,
            _most(self.hbm_bytes, later.hbm_bytes),
            _most(self.host_bytes, later.host_bytes),
            _most(self.rss_bytes, later.rss_bytes),
        )


class MemoryHistory(StateStruct):
    """The memory that one process sampled: a worker that of its devices, a supervisor that of its host."""

    count: Count = 0
    """Samples added."""
    samples: Downsampled[Sample] = msgspec.field(default_factory=Downsampled)

    def add_device(self, event: MemorySampled) -> None:
        """Adds device memory; ignored if no device reported any."""
        if event.hbm and math.isfinite(event.t):
            self.count += 1
            self.samples.add(Sample(event.t, max(reading.used_bytes for reading in event.hbm), None, None), Sample.join)

    def add_host(self, event: HostSampled) -> None:
        """Adds host memory."""
        if math.isfinite(event.t):
            self.count += 1
            rss_bytes = sum(process.rss_bytes for process in event.processes)
            self.samples.add(Sample(event.t, None, event.memory_used_bytes, rss_bytes), Sample.join)


def combined(usages: Sequence[MemoryHistory]) -> list[MemoryPoint]:
    """Memory over time: device memory of the fullest core; host memory and processes summed over the hosts.

    Each sample of a process is combined with the newest samples of the others.
    """
    series = [usage.samples.items for usage in usages if usage.samples.items]
    of_each = max(_OF_EACH_LEAST, _SAMPLES_MAX // max(1, len(series)))
    parts = [downsample(samples, Sample.join, of_each) for samples in series]
    newest: dict[int, Sample] = {}
    points: list[MemoryPoint] = []
    in_order = sorted(((writer, one) for writer, part in enumerate(parts) for one in part), key=lambda pair: pair[1].t)
    for writer, sample in in_order:
        newest[writer] = sample
        known = newest.values()
        points.append(
            MemoryPoint(
                t=sample.t,
                hbm_used_bytes=max((one.hbm_bytes for one in known if one.hbm_bytes is not None), default=None),
                host_used_bytes=_total([one.host_bytes for one in known]),
                rss_bytes=_total([one.rss_bytes for one in known]),
            )
        )
    return downsample(points, _fuller)


def _fuller(left: MemoryPoint, right: MemoryPoint) -> MemoryPoint:
    return MemoryPoint(
        t=right.t,
        hbm_used_bytes=_most(left.hbm_used_bytes, right.hbm_used_bytes),
        host_used_bytes=_most(left.host_used_bytes, right.host_used_bytes),
        rss_bytes=_most(left.rss_bytes, right.rss_bytes),
    )


def _most(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
