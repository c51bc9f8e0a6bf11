"""The rows of the run list.

A row holds few values, so that hundreds of runs fit in memory. Does not import Textual.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tputui import formatting as fmt
from tputui.config_diff import flatten
from tputui.state.chart_data import LoggedView, Segment
from tputui.state.listed_run import ListedRun, with_progress
from tputui.state.run_condition import ENDED, RunCondition
from tputui.state.snapshot import Snapshot, best_epoch, monitored
from tputui.telemetry import run_labels
from tputui.telemetry.events import EpochEnded, Phase
from tputui.telemetry.run_labels import NO_LABELS, RunLabels
from tputui.ui.base.alarms import alarms_of
from tputui.ui.charts.columns import ChartColumn, columns


class ReadLabels(NamedTuple):
    """The labels of a run, and the state of the file when they were read."""

    labels: RunLabels
    problem: str
    """Why they cannot be read."""
    file: tuple[int, int, int]
    """Inode, size and modification time."""


def labels_of(run_dir: Path, earlier: ReadLabels | None) -> ReadLabels | None:
    """The labels of a run, read again if their file changed; None without such a file."""
    try:
        status = (run_dir / run_labels.LABELS).lstat()
    except OSError:
        return None
    file = (status.st_ino, status.st_size, status.st_mtime_ns)
    if earlier is not None and earlier.file == file:
        return earlier
    try:
        return ReadLabels(run_labels.read(run_dir), "", file)
    except run_labels.InvalidLabels as error:
        return ReadLabels(NO_LABELS, str(error), file)


NUM_COLUMNS = 120
"""Resolution of the loss curve of a row."""

METRICS_MAX = 32
"""Maximum number of metrics of a split that a row keeps."""
_METRIC = re.compile(r"[\w./@%-]{1,64}")

RowState = RunCondition | Literal["reading", "unreadable", "log"]
"""`reading`: not read to its end yet. `log`: a log of another program."""
NO_REQUESTS = "logs of other programs take no requests"


class Curve(NamedTuple):
    """The loss over steps at a low resolution."""

    first_step: int
    last_step: int
    columns: tuple[ChartColumn, ...]
    """At x from 0 to `NUM_COLUMNS` - 1."""

    def segments(self) -> list[Segment]:
        """The curve as a series that `plot` takes."""
        per_column = (self.last_step - self.first_step) / (NUM_COLUMNS - 1)
        segments = []
        for column in self.columns:
            step = round(self.first_step + column.x * per_column)
            num_values = 0 if math.isnan(column.mean) else 1
            segments.append(
                Segment(
                    first_step=step,
                    last_step=step,
                    mean=column.mean,
                    min=column.low,
                    max=column.high,
                    num_values=num_values,
                    num_bad=column.bad,
                )
            )
        return segments


class RunRow(NamedTuple):
    """A run in the list. Times are unix seconds; None means unknown."""

    path: Path
    state: RowState
    reason: str = ""
    """Why the run is in this state, or why it cannot be read."""
    task: str = ""
    config: Mapping[str, Any] = {}
    """Value by dotted key, such as `optim.lr`."""
    epoch: int | None = None
    num_epochs: int | None = None
    steps: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    """Training loss of the newest step, mean over the cores."""
    num_bad: int = 0
    """Number of NaN and infinite losses."""
    best: float | None = None
    """The monitored metric in the best epoch."""
    best_name: str = "loss"
    best_epoch: int | None = None
    created: float | None = None
    started: float | None = None
    newest_event: float | None = None
    end_time: float | None = None
    """For a lost run the time of its newest event; None while the run goes on."""
    num_cores: int | None = None
    machine: str = ""
    """`8 TPU cores, spmd, bf16`."""
    batch: str = ""
    """`8 x 8 = 64`."""
    lr_rule: str = ""
    phase: Phase | None = None
    phase_s: float = 0.0
    eta_s: float | None = None
    num_checkpoints: int = 0
    curve: Curve | None = None
    alarms: tuple[str, ...] = ()
    """Problems besides the state: damaged journals, NaN/inf values, dropped steps."""
    metrics: Mapping[str, float] = {}
    """Metrics of the epochs: `train.NAME` and `valid.NAME` of the newest one, `best.NAME` of the best one.
    Of metrics that a script logged itself the newest value."""
    labels: RunLabels = NO_LABELS
    labels_problem: str = ""
    """Why the labels cannot be read."""

    host: str = ""
    """The machine of the run, if that is another one; `path` is there."""
    form: str = ""
    """The format of a log of another program; empty for a run."""
    name_shown: str = ""
    """The name of a log: its path below the folder in which it was found."""

    @property
    def name(self) -> str:
        """The name that is shown."""
        return self.name_shown or self.path.name

    @property
    def is_log(self) -> bool:
        """Whether it is a log of another program, which is never written to."""
        return bool(self.form)

    def with_labels(self, read: ReadLabels) -> RunRow:
        """The row with labels, and with an alarm if they cannot be read."""
        alarms = (*self.alarms, read.problem) if read.problem else self.alarms
        return self._replace(labels=read.labels, labels_problem=read.problem, alarms=alarms)

    @property
    def request_refusal(self) -> str | None:
        """The reason why no request can be made of the run; None if requests are possible."""
        if self.is_log:
            return NO_REQUESTS
        if self.state == "unreadable":
            return self.reason
        return f"run already finished ({self.state})" if self.ended else None

    @property
    def ended(self) -> bool:
        """Whether requests are pointless: the run is over or unreadable."""
        return self.state in ENDED or self.state in ("unreadable", "log")

    def age_s(self, now: float) -> float | None:
        """Seconds since the newest event."""
        return None if self.newest_event is None else max(now - self.newest_event, 0.0)

    def duration_s(self, now: float) -> float | None:
        """Seconds from the start to the end, or to `now` while the run goes on."""
        if self.started is None:
            return None
        return max((self.end_time if self.end_time is not None else now) - self.started, 0.0)


def row_of_listed(listed: ListedRun) -> RunRow:
    """The row of a run of which only what `tputui runs` lists is known."""
    is_known = listed.state in get_args(RunCondition)
    return RunRow(
        path=Path(listed.dir),
        state=listed.state if is_known else "unreadable",  # type: ignore[arg-type]
        reason=listed.why if not is_known else "",
        task=Path(listed.config or "").stem,
        epoch=listed.epoch if listed.num_epochs is not None else None,
        num_epochs=listed.num_epochs,
        steps=listed.step if listed.step or listed.num_epochs is not None else None,
        loss=listed.loss,
        created=listed.created,
        started=listed.created,
        num_cores=listed.num_cores,
    )


def row_of(path: Path, snapshot: Snapshot, *, complete: bool) -> RunRow:
    """The row of a run; `complete` if the journals were read to their end."""
    # Imported here so that viewers of a single run start faster.
    from tputui.config import recorded_name

    plan = snapshot.plan
    best, name = best_epoch(snapshot.epochs), monitored(snapshot.config, snapshot.epochs)
    listed = with_progress(
        ListedRun(run=path.name, dir=str(path), created=snapshot.created or 0.0, state="unreadable"), snapshot
    )
    return row_of_listed(listed)._replace(
        path=path,
        state=snapshot.condition if complete else "reading",
        reason=snapshot.condition_reason,
        task=str(snapshot.config.get("task") or recorded_name(snapshot.config) or (plan.task if plan else "")),
        config=flatten(snapshot.config),
        total_steps=(plan and plan.total_steps) or None,
        num_bad=snapshot.num_non_finite,
        best=best.figure(name) if best is not None else None,
        best_name=name,
        best_epoch=best.epoch if best is not None else None,
        created=snapshot.created,
        started=snapshot.started,
        newest_event=snapshot.newest_fact,
        end_time=_end_time(snapshot),
        machine=_machine(snapshot),
        batch=f"{plan.batch_per_core:,} x {plan.global_batch // max(plan.batch_per_core, 1)} = {plan.global_batch:,}"
        if plan and plan.global_batch
        else "",
        lr_rule=fmt.ruled_rate(plan.lr, plan.lr_rule) if plan else "",
        phase=snapshot.phase,
        phase_s=snapshot.phase_s,
        eta_s=snapshot.eta_s,
        num_checkpoints=len(snapshot.checkpoints),
        curve=curve_of(snapshot.loss),
        alarms=tuple(alarm.text for alarm in alarms_of(snapshot)),
        metrics=logged_metrics(snapshot.logged) | metrics_of(snapshot.epochs),
    )


def metrics_of(epochs: Sequence[EpochEnded]) -> dict[str, float]:
    """Metrics by key: `train.NAME` and `valid.NAME` of the newest epoch, `best.NAME` of the best one."""
    if not epochs:
        return {}
    train = {name: reading.avg for name, reading in epochs[-1].train.items()}
    splits = {"train": train, "valid": _validation(epochs[-1]), "best": _validation(best_epoch(epochs))}
    metrics: dict[str, float] = {}
    for prefix, values in splits.items():
        names = [name for name in values if _METRIC.fullmatch(name)][:METRICS_MAX]
        metrics |= {f"{prefix}.{name}": values[name] for name in names}
    return metrics


def logged_metrics(logged: Sequence[LoggedView]) -> dict[str, float]:
    """The newest values of the metrics that a script logged, as `train.NAME` and `valid.NAME`."""
    names = [view for view in logged if _METRIC.fullmatch(view.name)][: 2 * METRICS_MAX]
    return {f"{metric.split}.{metric.name}": metric.value for metric in names}


def _validation(epoch: EpochEnded | None) -> dict[str, float]:
    return {**epoch.scores, **{name: reading.avg for name, reading in epoch.valid.items()}} if epoch is not None else {}


def value_at(row: RunRow, key: str) -> Any:
    """The value of a metric or of a configuration key, given in full or by its last part; None if there is none."""
    for values in (row.metrics, row.config):
        if key in values:
            return values[key]
    return next((value for name, value in row.config.items() if value is not None and name.endswith(f".{key}")), None)


def curve_of(segments: list[Segment]) -> Curve | None:
    """The series reduced to `NUM_COLUMNS` columns; None if it is empty."""
    if not segments:
        return None
    first, last = segments[0].first_step, segments[-1].last_step
    return Curve(first, last, tuple(columns(segments, first, last, NUM_COLUMNS)))


def _end_time(snapshot: Snapshot) -> float | None:
    if snapshot.condition not in ENDED:
        return None
    return snapshot.ended if snapshot.ended is not None else snapshot.newest_fact


def _machine(snapshot: Snapshot) -> str:
    topology, plan = snapshot.topology, snapshot.plan
    if topology is None:
        return ""
    device = "" if topology.device == "unknown" else f"{topology.device} "
    cores = fmt.counted(topology.num_cores, f"{device}core")
    strategy = fmt.strategy(topology.strategy)
    return ", ".join(filter(None, (cores, strategy, plan.precision if plan else "")))


class Listing(NamedTuple):
    """The runs of a directory, and logs of other programs."""

    rows: Mapping[Path, RunRow]
    """By directory of the run, newest name first, or by path of the log."""
    error: str | None
    """Why the directory cannot be listed."""
    more_logs: bool = False
    """Whether there may be more logs than the rows have."""
    notices: tuple[str, ...] = ()
    """Why logs may be missing."""
