"""The part of a snapshot that the loss panel shows."""

from __future__ import annotations

from typing import NamedTuple

from tputui.state.metric_series import MetricSource
from tputui.state.snapshot import CoreView, Snapshot
from tputui.ui.base import status_text
from tputui.ui.charts.axis import axis_info_of
from tputui.ui.charts.chart_view import ChartSeries
from tputui.ui.monitor.startup import StartupStep, checklist, devices_of


class LossPart(NamedTuple):
    """The content of the panel."""

    whole: ChartSeries
    newest: float | None
    """The loss of the newest step."""
    cores: list[CoreView]
    """The newest values of each core."""
    num_non_finite: int
    why_none: str
    startup: tuple[StartupStep, ...]
    """The steps up to the first report; none after it."""
    devices: str
    source: MetricSource
    """What the curves of all metrics are made from."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> LossPart:
        """The loss of all steps and cores, and the events."""
        why = "" if snapshot.loss else status_text.nothing_yet(snapshot, "report")
        startup = checklist(snapshot)
        source = MetricSource.of(snapshot)
        segments = snapshot.loss or source.axis_segments()
        whole = ChartSeries(
            segments, snapshot.core_columns, snapshot.marks, axis_info_of(snapshot), snapshot.outlier
        )  # fmt: skip
        cores, num_bad = snapshot.cores, snapshot.num_non_finite
        return cls(whole, snapshot.newest_loss, cores, num_bad, why, startup, devices_of(snapshot), source)
