"""What is kept of each class of a writer's state: a form of plain data, its types and counts bounded.

A name in a form is that of the attribute of the class, without its underscore; a test tells where they differ. What a
form leaves out can be made again from what it holds. Pure: no clock, no file.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

import msgspec

from tputui.state import core_series as cols
from tputui.state import downsampled, process_log
from tputui.state import memory_history as usages
from tputui.state import pace as paces
from tputui.state import process_state as writers
from tputui.state import series as rows
from tputui.state import step_values as values
from tputui.state.chart_data import EpochStart, Mark, MarkKind, MeterPoint
from tputui.state.process_log import OF_A_KIND_MAX
from tputui.telemetry import events as ev
from tputui.telemetry.clock import T_MAX

T = TypeVar("T")

FEW_MAX = 1 << 16
"""Of what there are few: checkpoints, requests, epochs. A state with more is not kept."""
_METRIC_CHARS_MAX = 1_000
_SHORTENED_CHARS = 64
"""What may stand behind a text that was shortened."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=ev.INT_MAX)]
_Some = Annotated[int, msgspec.Meta(ge=1, le=ev.INT_MAX)]
_Metric = Annotated[str, msgspec.Meta(max_length=_METRIC_CHARS_MAX)]
_Text = Annotated[str, msgspec.Meta(max_length=process_log.LOG_CHARS_MAX + _SHORTENED_CHARS)]
_Few = Annotated[list[T], msgspec.Meta(max_length=FEW_MAX)]


class Form(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is kept of an object, in order. A name here is that of the attribute, without its underscore."""


class ThinnedForm(Form, Generic[T], frozen=True):
    """Of `thinned.Thinned`; what joins its items is known from where it stands."""

    items: Annotated[list[T], msgspec.Meta(max_length=downsampled.POINTS_MAX)]
    stride: _Some
    in_last: _Count


class RecentForm(Form, Generic[T], frozen=True):
    """Of `thinned.Recent`."""

    count: _Count
    old: ThinnedForm[T]
    newest: Annotated[list[T], msgspec.Meta(max_length=OF_A_KIND_MAX)]


class SeriesForm(Form, frozen=True):
    """Of `series.Series`."""

    pieces: Annotated[list[rows.Piece], msgspec.Meta(max_length=rows.PIECES_MAX)]
    count: _Count
    pieces_max: Annotated[int, msgspec.Meta(ge=rows.PIECES_LEAST, le=rows.PIECES_MAX)]
    stride: _Some
    decoded: _Count


class ColumnForm(Form, frozen=True):
    """Of `columns.Column`."""

    first: ev.Int
    last: ev.Int
    rows: _Some
    means: bytes
    """Little-endian float32."""
    counts: list[_Count] | None
    sampled_bad: bool
    middle: float


class ColumnsForm(Form, frozen=True):
    """Of `columns.Columns`."""

    columns: Annotated[list[ColumnForm], msgspec.Meta(max_length=cols.COLUMNS_MAX)]
    count: _Count
    most: Annotated[int, msgspec.Meta(ge=cols.COLUMNS_LEAST, le=cols.COLUMNS_MAX, multiple_of=2)]
    stride: _Some
    last: ev.Int
    seen: _Count
    taken: _Count
    decoded: tuple[_Count, _Count]


class ValuesForm(Form, frozen=True):
    """Of `values.StepValues`; the topology stands with the writer."""

    series: Annotated[dict[_Metric, SeriesForm], msgspec.Meta(max_length=values.METRICS_MAX)]
    newest: Annotated[list[ev.StepsRecorded], msgspec.Meta(max_length=values.METRICS_MAX)]
    """Of each metric the newest step alone, as a record of its own."""
    recent: Annotated[list[tuple[ev.Int, bytes]], msgspec.Meta(max_length=values.RECENT_ROWS_MAX)]
    """Step and little-endian float32 of every core."""
    columns: ColumnsForm
    non_finite: Annotated[list[values.BadValue], msgspec.Meta(max_length=values.NON_FINITE_MAX)]
    num_non_finite: _Count
    unreadable: Annotated[dict[_Count, _Text], msgspec.Meta(max_length=values.UNREADABLE_MAX)]


class MarksForm(Form, frozen=True):
    """Of `marks.Marks`."""

    of_kind: dict[MarkKind, RecentForm[Mark]]
    was_bad: Annotated[list[_Metric], msgspec.Meta(max_length=values.METRICS_MAX)]


class LineForm(Form, frozen=True):
    """Of `snapshot.LogLine`."""

    t: float
    printed: bool
    """Whether training printed it; else the tool tells it."""
    level: Literal["info", "warning", "error"]
    text: _Text


class TellingForm(Form, frozen=True):
    """Of `telling.Telling`."""

    logs: Annotated[list[LineForm], msgspec.Meta(max_length=process_log.LOG_LINES_MAX)]
    num_logs: _Count
    warnings: Annotated[list[str], msgspec.Meta(max_length=process_log.WARNINGS_MAX)]
    marks: MarksForm


class PaceForm(Form, frozen=True):
    """Of `pace.Pace`."""

    num_reports: _Count
    steps: dict[int, _Some]
    seconds: dict[int, float]
    history: Annotated[list[paces.ReportPace], msgspec.Meta(max_length=downsampled.POINTS_MAX - 1)]
    stride: _Some
    newest_step: _Count
    in_open: _Count
    open_t: float
    open_steps: _Count
    open_s: float
    open_examples: float


class UsageForm(Form, frozen=True):
    """Of `usage.Usage`."""

    count: _Count
    samples: ThinnedForm[usages.Sample]


class ReceiptsForm(Form, frozen=True):
    """Of `writer.Receipts`."""

    seen: ev.RequestSeen | None
    applied: ev.RequestApplied | None
    refused: ev.RequestRefused | None


class WriterForm(Form, frozen=True):
    """Of `writer.WriterState`."""

    last_seq: _Count
    first_t: float | None
    newest_t: float | None
    set_back_s: Annotated[float, msgspec.Meta(ge=0, le=T_MAX)]
    opened: ev.JournalOpened | None
    run_started: ev.RunStarted | None
    worker_started: ev.WorkerStarted | None
    worker_exited: ev.WorkerExited | None
    topology: ev.TopologyDeclared | None
    plan: ev.TrainingPlanned | None
    beat: ev.HeartbeatSent | None
    epoch_started: ev.EpochStarted | None
    progress: ev.ProgressReported | None
    smooth_step_s: float | None
    longest_compile_s: float
    moved_t: float | None
    steps_done: _Count
    meters: dict[ev.Split, ev.MetersReported]
    epochs: Annotated[dict[ev.Int, ev.EpochEnded], msgspec.Meta(max_length=FEW_MAX)]
    values: ValuesForm
    epoch_starts: ThinnedForm[EpochStart]
    pace: PaceForm
    usage: UsageForm
    meter_history: dict[ev.Split, ThinnedForm[MeterPoint]]
    num_meter_reports: _Count
    xla: ev.XlaMetricsRead | None
    memory: ev.MemorySampled | None
    predicted: ev.MemoryForecast | None
    host: ev.HostSampled | None
    processes: _Few[ev.ProcessSample]
    log: TellingForm
    checkpoints: Annotated[dict[str, ev.CheckpointSaved], msgspec.Meta(max_length=FEW_MAX)]
    dropped_checkpoints: Annotated[dict[str, ev.CheckpointDropped], msgspec.Meta(max_length=FEW_MAX)]
    receipts: Annotated[dict[str, ReceiptsForm], msgspec.Meta(max_length=FEW_MAX)]
    dropped_steps: _Count
    skipped: Annotated[list[ev.ExampleSkipped], msgspec.Meta(max_length=writers.SKIPPED_MAX)]
    pictures: ev.PicturesKept | None
    failure: ev.FailureRaised | None
    failure_reported: ev.FailureReported | None
    rank_exits: Annotated[list[ev.RankExited], msgspec.Meta(max_length=writers.RANK_EXITS_MAX)]
    stacks: Annotated[dict[str, ev.StacksTaken], msgspec.Meta(max_length=writers.RANK_EXITS_MAX)]
    beat_at_stacks: ev.HeartbeatSent | None
    training_ended: ev.TrainingEnded | None
    run_ended: ev.RunEnded | None
    unknown: Annotated[dict[str, _Count], msgspec.Meta(max_length=writers.UNKNOWN_KINDS_MAX)]
    num_senseless: _Count
