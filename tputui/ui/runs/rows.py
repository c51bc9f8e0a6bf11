"""The rows of the run list and their sort order. A row holds few values, so that hundreds of runs fit in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tputui.state.chart_data import Segment
from tputui.state.snapshot import ENDED, RunCondition, Snapshot, best_epoch, monitored
from tputui.telemetry.events import Phase
from tputui.ui.base import status_text
from tputui.ui.charts.columns import ChartColumn, columns

NUM_COLUMNS = 120
"""Resolution of the loss curve of a row."""

RowState = RunCondition | Literal["reading", "unreadable"]
"""`reading`: not read to its end yet."""


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

    @property
    def ended(self) -> bool:
        """Whether requests are pointless: the run is over or unreadable."""
        return self.state in ENDED or self.state == "unreadable"

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
    plan, topology = snapshot.plan, snapshot.topology
    best, name = best_epoch(snapshot.epochs), monitored(snapshot.config)
    return RunRow(
        path=path,
        state=snapshot.condition if complete else "reading",
        reason=snapshot.condition_reason,
        task=str(snapshot.config.get("task") or (plan.task if plan else "")),
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
        if plan
        else "",
        lr_rule=f"{plan.lr:g} = {plan.lr_rule}" if plan else "",
        phase=snapshot.phase,
        phase_s=snapshot.phase_s,
        eta_s=snapshot.eta_s,
        num_checkpoints=len(snapshot.checkpoints),
        curve=curve_of(snapshot.loss),
        alarms=tuple(alarm.text for alarm in status_text.alarms(snapshot)),
    )


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
    cores = f"{topology.num_cores:,} {topology.device} core{'' if topology.num_cores == 1 else 's'}"
    return ", ".join([cores, topology.strategy, *([plan.precision] if plan else [])])


SortKey = Literal["start", "run", "state", "step", "loss", "best", "age", "took", "cores", "task"]
SORT_KEYS: tuple[SortKey, ...] = get_args(SortKey)

_STATES = ("running", "starting", "stalled", "reading", "failed", "lost", "stopped", "done", "unreadable")
"""States that need attention come first."""

_DESCENDING_FIRST: frozenset[SortKey] = frozenset({"start", "step", "cores", "took"})
"""Columns whose largest values are shown first unless reversed."""

_LABELS: dict[SortKey, tuple[str, str]] = {
    "start": ("oldest first", "newest first"),
    "run": ("by name", "by name, reversed"),
    "state": ("by state, active first", "by state, active last"),
    "step": ("by step, lowest first", "by step, highest first"),
    "loss": ("by loss, lowest first", "by loss, highest first"),
    "best": ("by best, lowest first", "by best, highest first"),
    "age": ("by age, newest first", "by age, oldest first"),
    "took": ("by duration, shortest first", "by duration, longest first"),
    "cores": ("by cores, fewest first", "by cores, most first"),
    "task": ("by task", "by task, reversed"),
}


class SortOrder(NamedTuple):
    """The sort column and direction."""

    key: SortKey = "start"
    descending: bool = True

    def next(self) -> SortOrder:
        """The next column in its usual direction."""
        key = SORT_KEYS[(SORT_KEYS.index(self.key) + 1) % len(SORT_KEYS)]
        return SortOrder(key, key in _DESCENDING_FIRST)

    def reversed(self) -> SortOrder:
        """The same column in the other direction."""
        return SortOrder(self.key, not self.descending)

    @property
    def label(self) -> str:
        """The order in words, such as `by loss, lowest first`."""
        return _LABELS[self.key][self.descending]

    @property
    def text(self) -> str:
        """The order as it is stored in the preferences, such as `-loss`."""
        return "-" * self.descending + self.key


def parse_sort_order(text: str) -> SortOrder:
    """The order of a stored text; the default if the text is invalid."""
    key = text.removeprefix("-")
    return next((SortOrder(known, text != key) for known in SORT_KEYS if known == key), SortOrder())


def sort_rows(rows: Iterable[RunRow], order: SortOrder, now: float) -> list[RunRow]:
    """Sorts the rows; rows without a value come last, equal ones newest first."""
    newest_first = sorted(rows, key=lambda row: row.path.name, reverse=True)
    value_of = _SORT_VALUES[order.key]
    pairs = [(value_of(row, now), row) for row in newest_first]
    with_value = [pair for pair in pairs if pair[0] is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=order.descending)
    return [*(row for _, row in with_value), *(row for value, row in pairs if value is None)]


_SORT_VALUES: dict[SortKey, Callable[[RunRow, float], Any]] = {
    "start": lambda row, now: row.created,
    "run": lambda row, now: row.path.name.lower(),
    "state": lambda row, now: _STATES.index(row.state),
    "step": lambda row, now: row.steps,
    "loss": lambda row, now: _finite(row.loss),
    "best": lambda row, now: _finite(row.best),
    "age": lambda row, now: row.age_s(now),
    "took": lambda row, now: row.duration_s(now),
    "cores": lambda row, now: row.num_cores,
    "task": lambda row, now: row.task.lower() or None,
}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
