"""What the list keeps of a run: few figures and a coarse curve, so that hundreds of runs fit in memory. Pure."""

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
"""Columns that are kept of a curve."""

State = RunCondition | Literal["reading", "unreadable"]
"""`reading`: not read to its end yet."""


class Curve(NamedTuple):
    """The loss over steps, coarsely."""

    first_step: int
    last_step: int
    columns: tuple[ChartColumn, ...]
    """At places 0 to `NUM_COLUMNS` - 1."""

    def segments(self) -> list[Segment]:
        """As a series that a chart draws."""
        per_column = (self.last_step - self.first_step) / (NUM_COLUMNS - 1)
        found = []
        for column in self.columns:
            step = round(self.first_step + column.x * per_column)
            num_values = 0 if math.isnan(column.mean) else 1
            found.append(
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
        return found


class RunRow(NamedTuple):
    """A run in the list. Times are unix seconds; None is what is not known."""

    path: Path
    state: State
    why: str = ""
    """One sentence on its state, or why it cannot be read."""
    task: str = ""
    config: Mapping[str, Any] = {}
    """The configuration, flat: `optim.lr` to its value."""
    epoch: int | None = None
    num_epochs: int | None = None
    steps: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    """Of training, in the newest step: the mean over the cores."""
    num_bad: int = 0
    """Values that were NaN or infinite."""
    best: float | None = None
    """The figure that tells the best epoch, at the best one."""
    best_name: str = "loss"
    best_epoch: int | None = None
    created: float | None = None
    started: float | None = None
    newest_fact: float | None = None
    over: float | None = None
    """When it ended, or spoke last where it is lost; None while it goes on."""
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
    """What is wrong besides its state: damage, values that are not finite, steps that were dropped."""

    @property
    def ended(self) -> bool:
        """Whether nothing more can be asked of it."""
        return self.state in ENDED or self.state == "unreadable"

    def age_s(self, now: float) -> float | None:
        """Seconds since its newest fact."""
        return None if self.newest_fact is None else max(now - self.newest_fact, 0.0)

    def took_s(self, now: float) -> float | None:
        """Seconds that it took, or has taken up to now."""
        if self.started is None:
            return None
        return max((self.over if self.over is not None else now) - self.started, 0.0)


def row_of(path: Path, snapshot: Snapshot, *, whole: bool) -> RunRow:
    """The row of a run; `whole` says that everything written is in the snapshot."""
    plan, topology = snapshot.plan, snapshot.topology
    best, name = best_epoch(snapshot.epochs), monitored(snapshot.config)
    return RunRow(
        path=path,
        state=snapshot.condition if whole else "reading",
        why=snapshot.condition_reason,
        task=str(snapshot.config.get("task") or (plan.task if plan else "")),
        config=flat(snapshot.config),
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
        newest_fact=snapshot.newest_fact,
        over=_over(snapshot),
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
    """A series in `NUM_COLUMNS` columns; None where there is none."""
    if not segments:
        return None
    first, last = segments[0].first_step, segments[-1].last_step
    return Curve(first, last, tuple(columns(segments, first, last, NUM_COLUMNS)))


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables by dotted key; lists stay values."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _over(snapshot: Snapshot) -> float | None:
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
"""What is to be looked at first."""

_GREATEST_FIRST: frozenset[SortKey] = frozenset({"start", "step", "cores", "took"})
"""Where more is usually looked for."""

_WORDS: dict[SortKey, tuple[str, str]] = {
    "start": ("oldest first", "newest first"),
    "run": ("by name", "by name, backwards"),
    "state": ("by state, living first", "by state, living last"),
    "step": ("by step, least first", "by step, most first"),
    "loss": ("by loss, least first", "by loss, greatest first"),
    "best": ("by best, least first", "by best, greatest first"),
    "age": ("by age, freshest first", "by age, oldest first"),
    "took": ("by time taken, shortest first", "by time taken, longest first"),
    "cores": ("by cores, fewest first", "by cores, most first"),
    "task": ("by task", "by task, backwards"),
}


class SortOrder(NamedTuple):
    """A column, and whether its greatest come first."""

    key: SortKey = "start"
    backwards: bool = True

    def next(self) -> SortOrder:
        """The next column, in the direction that is usual for it."""
        key = SORT_KEYS[(SORT_KEYS.index(self.key) + 1) % len(SORT_KEYS)]
        return SortOrder(key, key in _GREATEST_FIRST)

    def reversed(self) -> SortOrder:
        """The other direction."""
        return SortOrder(self.key, not self.backwards)

    @property
    def words(self) -> str:
        """The order in words."""
        return _WORDS[self.key][self.backwards]

    @property
    def text(self) -> str:
        """The order as it is kept, such as `-loss`."""
        return "-" * self.backwards + self.key


def parse_sort_order(text: str) -> SortOrder:
    """The order that was kept; the usual one where it is none of ours."""
    key = text.removeprefix("-")
    return next((SortOrder(known, text != key) for known in SORT_KEYS if known == key), SortOrder())


def sort_rows(rows: Iterable[RunRow], order: SortOrder, now: float) -> list[RunRow]:
    """The rows in order; those without the figure last, equal ones newest first."""
    newest_first = sorted(rows, key=lambda row: row.path.name, reverse=True)
    figure_of = _SORT_VALUES[order.key]
    figures = [(figure_of(row, now), row) for row in newest_first]
    with_figure = [pair for pair in figures if pair[0] is not None]
    with_figure.sort(key=lambda pair: pair[0], reverse=order.backwards)
    return [*(row for _, row in with_figure), *(row for figure, row in figures if figure is None)]


_SORT_VALUES: dict[SortKey, Callable[[RunRow, float], Any]] = {
    "start": lambda row, now: row.created,
    "run": lambda row, now: row.path.name.lower(),
    "state": lambda row, now: _STATES.index(row.state),
    "step": lambda row, now: row.steps,
    "loss": lambda row, now: _finite(row.loss),
    "best": lambda row, now: _finite(row.best),
    "age": lambda row, now: row.age_s(now),
    "took": lambda row, now: row.took_s(now),
    "cores": lambda row, now: row.num_cores,
    "task": lambda row, now: row.task.lower() or None,
}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
