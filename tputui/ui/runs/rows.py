"""The rows of the run list, and the thread that reads them from the runs of a directory.

A row holds few values, so that hundreds of runs fit in memory. Does not import Textual.
"""

from __future__ import annotations

import errno
import math
import operator
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tputui import formatting as fmt
from tputui.session.session import Session
from tputui.state.chart_data import LoggedView, Segment
from tputui.state.snapshot import ENDED, EpochView, RunCondition, Snapshot, best_epoch, monitored
from tputui.telemetry import rundir
from tputui.telemetry.events import Phase
from tputui.telemetry.run_labels import NO_LABELS, RunLabels
from tputui.ui.base import status_text
from tputui.ui.base.reader_thread import PollingThread
from tputui.ui.charts.columns import ChartColumn, columns
from tputui.ui.runs.labels_reader import ReadLabels, labels_of

NUM_COLUMNS = 120
"""Resolution of the loss curve of a row."""

REFRESH_S = 1.0
"""Seconds between two polls of the directory and of the active runs."""
LONG_REFRESH_S = 10.0
"""Seconds between two listings without news if every age is shown in minutes."""
MESSAGE_INTERVAL_S = 0.1
"""Minimum seconds between two messages to the screen."""
MESSAGE_INTERVAL_S_PER_ROW = 1e-4
"""The same per run: the screen sorts and filters all of them for each message, and must handle keys in between."""
MAX_SESSIONS = 64
"""Active runs with an open session, each with a few open files; others are read from the start on each change."""
_SLICE_S = 0.1
"""Maximum seconds spent on one run before the active ones are polled again."""

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and modification time of each journal."""

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


def row_of(path: Path, snapshot: Snapshot, *, complete: bool) -> RunRow:
    """The row of a run; `complete` if the journals were read to their end."""
    # Imported here so that viewers of a single run start faster.
    from tputui.config import recorded_name

    plan, topology = snapshot.plan, snapshot.topology
    best, name = best_epoch(snapshot.epochs), monitored(snapshot.config)
    return RunRow(
        path=path,
        state=snapshot.condition if complete else "reading",
        reason=snapshot.condition_reason,
        task=str(snapshot.config.get("task") or recorded_name(snapshot.config) or (plan.task if plan else "")),
        config=flat_config(snapshot.config),
        epoch=snapshot.epoch if plan else None,
        num_epochs=plan.num_epochs if plan else None,
        steps=snapshot.steps if plan or snapshot.steps else None,
        total_steps=plan.total_steps if plan else None,
        loss=snapshot.newest_loss,
        num_bad=snapshot.num_non_finite,
        best=best.figure(name) if best is not None else None,
        best_name=name,
        best_epoch=best.epoch if best is not None else None,
        created=snapshot.created,
        started=snapshot.started,
        newest_event=snapshot.newest_fact,
        end_time=_end_time(snapshot),
        num_cores=topology.num_cores if topology else None,
        machine=_machine(snapshot),
        batch=f"{plan.batch_per_core:,} x {plan.global_batch // max(plan.batch_per_core, 1)} = {plan.global_batch:,}"
        if plan and plan.global_batch
        else "",
        lr_rule=f"{plan.lr:g} = {plan.lr_rule}" if plan else "",
        phase=snapshot.phase,
        phase_s=snapshot.phase_s,
        eta_s=snapshot.eta_s,
        num_checkpoints=len(snapshot.checkpoints),
        curve=curve_of(snapshot.loss),
        alarms=tuple(alarm.text for alarm in status_text.alarms(snapshot)),
        metrics=logged_metrics(snapshot.logged) | metrics_of(snapshot.epochs),
    )


def metrics_of(epochs: Sequence[EpochView]) -> dict[str, float]:
    """Metrics by key: `train.NAME` and `valid.NAME` of the newest epoch, `best.NAME` of the best one."""
    if not epochs:
        return {}
    train = {name: reading.avg for name, reading in epochs[-1].train.items()}
    splits = {"train": train, "valid": _validation(epochs[-1]), "best": _validation(best_epoch(epochs))}
    found: dict[str, float] = {}
    for prefix, values in splits.items():
        names = [name for name in values if _METRIC.fullmatch(name)][:METRICS_MAX]
        found |= {f"{prefix}.{name}": values[name] for name in names}
    return found


def logged_metrics(logged: Sequence[LoggedView]) -> dict[str, float]:
    """The newest values of the metrics that a script logged, as `train.NAME` and `valid.NAME`."""
    names = [one for one in logged if _METRIC.fullmatch(one.name)][: 2 * METRICS_MAX]
    return {f"{one.split}.{one.name}": one.value for one in names}


def _validation(epoch: EpochView | None) -> dict[str, float]:
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


def flat_config(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one mapping by dotted key; lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= flat_config(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


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
    strategy = "" if topology.strategy == "unknown" else topology.strategy
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


class RunsReader(PollingThread):
    """Polls every run of a directory.

    An active run keeps an open session; a run that is over is read once, and again only if one of its journals changed.
    Rows are sent as they are read, so that the first ones appear while hundreds are still unread.
    """

    def __init__(self, runs_dir: Path, on_listing: Callable[[Listing], object], clock: Callable[[], float]) -> None:
        """`on_listing` is called in the thread; `clock` returns unix time."""
        super().__init__()
        self._runs_dir = runs_dir
        self._on_listing = on_listing
        self._clock = clock
        self._rows: dict[Path, RunRow] = {}
        self._signatures: dict[Path, Signature] = {}
        """Signatures of the runs without a session, as of when they were read to their end."""
        self._labels: dict[Path, ReadLabels] = {}
        """Only runs with a file of labels."""
        self._sessions: dict[Path, Session] = {}
        self._must_reload = threading.Event()
        self._last_sent = -math.inf
        self._sent: list[RunRow] | None = None
        """The rows of the last listing; None if it was an error, or there was none."""

    def close(self) -> None:
        """Closes every session."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    def reload(self) -> None:
        """Reads every run again, also the ones that are over; callable from any thread."""
        self._must_reload.set()
        self.wake()

    def poll(self) -> float:
        """Reads the runs that changed."""
        self._read_runs()
        return REFRESH_S

    def _read_runs(self) -> None:
        if self._must_reload.is_set():
            self._must_reload.clear()
            self._signatures.clear()
        try:
            paths = rundir.listing(self._runs_dir)
        except OSError as error:
            self._rows, self._sent = {}, None
            self._on_listing(Listing({}, f"{self._runs_dir}: cannot list runs: {error.strerror or error}"))
            return
        has_new = any(path not in self._rows for path in paths)
        self._rows = {path: self._rows.get(path) or RunRow(path, "reading") for path in paths}
        for gone in self._sessions.keys() - self._rows.keys():
            self._sessions.pop(gone).close()
        has_new |= self._read_labels(paths)
        self._poll_sessions()
        if has_new:
            self._send(now=True)
        for path in paths:
            if self.is_stopped:
                return
            if path not in self._sessions:
                self._read_if_changed(path)
        rows, sent = list(self._rows.values()), self._sent
        is_same = sent is not None and len(sent) == len(rows) and all(map(operator.is_, sent, rows))
        if not is_same or self._has_older_ages():
            self._send(now=True)

    def _has_older_ages(self) -> bool:
        """Whether a displayed age differs from the last listing: ages of a minute and more are shown in minutes."""
        newest = max((row.newest_event or 0.0 for row in self._rows.values()), default=0.0)
        interval_s = REFRESH_S if self._clock() - newest < 60 else LONG_REFRESH_S
        return time.monotonic() - self._last_sent >= interval_s - _SLICE_S

    def _read_labels(self, paths: Sequence[Path]) -> bool:
        """Reads the labels that changed; returns whether any did."""
        found = {path: labels for path in paths if (labels := labels_of(path, self._labels.get(path))) is not None}
        before, self._labels = self._labels, found
        return found != before

    def _read_if_changed(self, path: Path) -> None:
        """Reads a run without a session unless it is unchanged since the last time."""
        try:
            signature = signature_of(path)
        except OSError as error:
            self._rows[path] = _unreadable(path, error)
            self._signatures.pop(path, None)
            return
        if self._signatures.get(path) == signature:
            return
        has_changed = path in self._signatures
        session = Session.live(path, self._clock)
        while not self.is_stopped:
            self._read(path, session)
            if session.caught_up:
                break
            self._poll_sessions()
        if has_changed and self._rows[path].state == "lost":
            # The clock of its host may differ from ours: a run that still writes is not lost.
            session.update_clock_skew()
            self._read(path, session)
        if self._rows[path].ended or len(self._sessions) >= MAX_SESSIONS:
            session.close()
            self._signatures[path] = signature
        else:
            self._sessions[path] = session

    def _poll_sessions(self) -> None:
        """Reads the active runs."""
        for path, session in list(self._sessions.items()):
            self._read(path, session)
            if session.caught_up and self._rows[path].ended:
                # Its processes may be gone before its journals are read to their end.
                self._sessions.pop(path).close()

    def _read(self, path: Path, session: Session) -> None:
        session.poll(_SLICE_S)
        self._rows[path] = row_of(path, session.snapshot(), complete=session.caught_up)
        self._send()

    def _send(self, *, now: bool = False) -> None:
        time_s = time.monotonic()
        if now or time_s - self._last_sent >= message_interval_s(len(self._rows)):
            self._last_sent, self._sent = time_s, list(self._rows.values())
            labels = self._labels
            rows = {path: row.with_labels(labels[path]) if path in labels else row for path, row in self._rows.items()}
            self._on_listing(Listing(rows, None))


def message_interval_s(num_rows: int) -> float:
    """Minimum seconds between two messages about `num_rows` runs."""
    return max(MESSAGE_INTERVAL_S, MESSAGE_INTERVAL_S_PER_ROW * num_rows)


def signature_of(run_dir: Path) -> Signature:
    """A value that changes whenever a journal of the run does. Raises `OSError` if the run cannot be read."""
    if reason := rundir.why_shut(run_dir):
        raise PermissionError(errno.EACCES, reason, str(run_dir))
    signature = []
    for name, path in rundir.journal_paths(run_dir):
        status = path.stat()
        signature.append((name, status.st_size, status.st_mtime_ns))
    return tuple(signature)


def _unreadable(path: Path, error: OSError) -> RunRow:
    return RunRow(path, "unreadable", reason=f"cannot be read: {error.strerror or error}")
