"""Export: a panel as text or CSV, the screen as SVG, and the figures behind each panel.

A widget with figures of its own returns them from `figures`; those of the panels of a run are taken from the snapshot,
not rounded, with times in unix seconds. Existing files are never overwritten.
"""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from tputui import csv_cells
from tputui.state.chart_data import TRAFFIC_RATES, CoreValue, Mark
from tputui.state.snapshot import HostView, LogLine, Snapshot, best_epoch
from tputui.telemetry import files

Form = Literal["txt", "csv", "svg"]

_NAMES_MAX = 1_000
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@runtime_checkable
class HasFigures(Protocol):
    """A widget that returns the figures behind its drawing."""

    def figures(self) -> Figures | None: ...


def figures_of(widget: object, name: str | None, snapshot: Snapshot | None) -> Figures | None:
    """The figures behind a widget; None if it has none."""
    own = widget.figures() if isinstance(widget, HasFigures) else None
    if own is not None:
        return own
    read_figures = BY_PANEL.get(name or "")
    return read_figures(snapshot) if read_figures is not None and snapshot is not None else None


def as_csv(table: Figures) -> str:
    """The table as CSV (RFC 4180, but lines end with `\\n`); None becomes an empty field. No text is a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(
        csv_cells.cells("" if value is None else value for value in row) for row in (table.head, *table.rows)
    )
    return out.getvalue()


def file_name(run: str, panel: str, form: Form, now: float) -> str:
    """`RUN-PANEL-20251009-100000.csv`, with all other characters than `A-Za-z0-9._-` replaced; `now` is unix time."""
    stem = "-".join(_UNFIT.sub("_", part).strip("._") or "x" for part in (run[-100:], panel[-40:]))
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}.{form}"


def write_new(directory: Path, name: str, content: str) -> Path:
    """Write a file of this name, with a number added if it exists. Raises `OSError`."""
    stem, _, form = name.rpartition(".")
    for number in range(1, _NAMES_MAX):
        path = directory / (name if number == 1 else f"{stem}-{number}.{form}")
        try:
            files.write(path, lambda file: file.write(content.encode()), replace=False, only_owner=False)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{directory / name} and {_NAMES_MAX} more of its name exist")


Figure = str | int | float | bool | None


class Figures(NamedTuple):
    """A table."""

    head: tuple[str, ...]
    rows: list[tuple[Figure, ...]]
    part: str = ""
    """Which part of the panel the table covers, if not all; shown once it is written."""


def _loss(snapshot: Snapshot) -> Figures:
    """By step: mean and range over all cores, the mean of each core, and the extremes with their core and step. Values
    per core have steps of their own and their means may be sampled, so the column `of` names what a row contains: both
    if the steps are the same."""
    cores = max((len(column.means) for column in snapshot.core_columns), default=0)
    own = tuple(f"core_{core}_mean" for core in range(cores))
    head = ("of", "first_step", "last_step", "t", "mean", "min", "max", "num_values", "num_non_finite")
    together = {(s.first_step, s.last_step): s for s in snapshot.loss}
    apart = {(c.first_step, c.last_step): c for c in snapshot.core_columns}
    rows: list[tuple[Figure, ...]] = []
    for steps in sorted({*together, *apart}):
        s, c = together.get(steps), apart.get(steps)
        of = "both" if s is not None and c is not None else "all cores" if s is not None else "each core"
        mean = (s.t, s.mean, s.min, s.max, s.num_values, s.num_bad) if s is not None else (None,) * 6
        means = tuple(c.means) if c is not None else ()
        num_steps = c.num_steps if c is not None else None
        ends = (*_extreme(c.highest if c else None), *_extreme(c.lowest if c else None))
        rows.append((of, *steps, *mean, num_steps, *means, *(None,) * (cores - len(means)), *ends))
    names = [f"{end}_{part}" for end in ("highest", "lowest") for part in ("value", "core", "step")]
    return Figures((*head, "num_steps_of_cores", *own, *names), rows)


def _extreme(extreme: CoreValue | None) -> tuple[Figure, ...]:
    return (extreme.value, extreme.core, extreme.step) if extreme is not None else (None, None, None)


def _cores(snapshot: Snapshot) -> Figures:
    head = ("core", "host", "condition", "phase", "phase_s", "step", "loss", "compute_s")
    rows: list[tuple[Figure, ...]] = [
        (c.core, c.host, c.condition, c.phase, c.phase_s, c.step, c.loss, c.compute_s) for c in snapshot.cores
    ]
    return Figures(head, rows)


def _hosts(snapshot: Snapshot) -> Figures:
    left_out = ("cores", "processes")
    head = tuple(name for name in HostView.__struct_fields__ if name not in left_out)
    rows: list[tuple[Figure, ...]] = [
        (*(getattr(host, name) for name in head), " ".join(map(str, host.cores))) for host in snapshot.hosts
    ]
    return Figures((*head, "cores"), rows)


def _meters(snapshot: Snapshot) -> Figures:
    head = ("split", "meter", "epoch", "val", "avg", "sum", "count", "reduced")
    rows: list[tuple[Figure, ...]] = [
        (m.split, m.name, m.epoch, m.reading.val, m.reading.avg, m.reading.sum, m.reading.count, m.reduced)
        for m in snapshot.meters
    ]
    for epoch in snapshot.epochs:
        rows += [("valid", name, epoch.epoch, None, score, None, None, "score") for name, score in epoch.scores.items()]
    return Figures(head, rows)


def _epochs(snapshot: Snapshot) -> Figures:
    epochs = snapshot.epochs
    train = sorted({name for epoch in epochs for name in epoch.train})
    valid = sorted({name for epoch in epochs for name in epoch.valid})
    scores = sorted({name for epoch in epochs for name in epoch.scores})
    sections = list(dict.fromkeys(name for epoch in epochs for name in epoch.sections_s))
    traced = list(dict.fromkeys(name for epoch in epochs for name in epoch.trace_s))
    best = best_epoch(epochs)
    head = (
        *("epoch", "best", "best_so_far", "lr", "train_s", "valid_s", "steady_s"),
        *(f"train_{name}_avg" for name in train),
        *(f"valid_{name}_avg" for name in valid),
        *(f"valid_{name}" for name in scores),
        *(f"{name}_s" for name in sections),
        *(f"trace_{name}_s" for name in traced),
    )
    rows: list[tuple[Figure, ...]] = [
        (
            *(epoch.epoch, epoch is best, epoch.best),
            *(epoch.lr, epoch.train_s, epoch.valid_s, epoch.steady_s),
            *(epoch.train[name].avg if name in epoch.train else None for name in train),
            *(epoch.valid[name].avg if name in epoch.valid else None for name in valid),
            *(epoch.scores.get(name) for name in scores),
            *(epoch.sections_s.get(name) for name in sections),
            *(epoch.trace_s.get(name) for name in traced),
        )
        for epoch in epochs
    ]
    return Figures(head, rows)


def _xla(snapshot: Snapshot) -> Figures:
    if snapshot.xla is None:
        return Figures(("counter", "value"), [])
    xla = snapshot.xla
    rows: list[tuple[Figure, ...]] = [
        (name, getattr(xla, name)) for name in xla.__struct_fields__ if name not in ("fallbacks", "steps")
    ]
    if xla.steps is not None:
        rows += [(f"after warm-up: {name}", getattr(xla.steps, name)) for name in xla.steps.__struct_fields__]
    return Figures(("counter", "value"), [*rows, *((f"fallback {name}", n) for name, n in xla.fallbacks.items())])


def _memory(snapshot: Snapshot) -> Figures:
    """Current memory usage, then its history."""
    memory = snapshot.memory
    rows: list[tuple[Figure, ...]] = [
        ("core", reading.core, None, reading.used_bytes, reading.limit_bytes, reading.peak_bytes, None, None)
        for reading in memory.hbm or []
    ]
    rows += [(p.role, p.pid, None, p.rss_bytes, None, None, p.cpu_percent, None) for p in memory.processes]
    if memory.host_used_bytes is not None:
        host = (memory.host_used_bytes, memory.host_total_bytes, None, memory.host_cpu_percent)
        rows.append(("host", None, None, *host, None))
    for point in snapshot.memory_history:
        was = (("fullest core", point.hbm_used_bytes), ("host", point.host_used_bytes), ("processes", point.rss_bytes))
        rows += [(of, None, point.t, used, None, None, None, None) for of, used in was if used is not None]
        if point.cpu_percent is not None:
            rows.append(("host", None, point.t, None, None, None, point.cpu_percent, None))
        rates = ((name, getattr(point, name)) for name in TRAFFIC_RATES)
        rows += [
            (name.removesuffix("_bytes_per_s"), None, point.t, None, None, None, None, rate)
            for name, rate in rates
            if rate is not None
        ]
    return Figures(("of", "id", "t", "used_bytes", "limit_bytes", "peak_bytes", "cpu_percent", "bytes_per_s"), rows)


def of_marks(marks: Iterable[Mark], part: str = "") -> Figures:
    """Events as a table."""
    return Figures(("t", "step", "kind", "core", "text"), [(m.t, m.step, m.kind, m.core, m.text) for m in marks], part)


def of_lines(lines: Iterable[LogLine], part: str = "") -> Figures:
    """Lines of the log as a table."""
    return Figures(("t", "source", "level", "text"), [(x.t, x.source, x.level, x.text) for x in lines], part)


def _events(snapshot: Snapshot) -> Figures:
    return of_marks(snapshot.marks)


def _pace(snapshot: Snapshot) -> Figures:
    points = snapshot.throughput.history if snapshot.throughput is not None else []
    return Figures(
        ("t", "step", "step_s", "examples_per_s"), [(p.t, p.step, p.step_s, p.examples_per_s) for p in points]
    )


def _log(snapshot: Snapshot) -> Figures:
    return of_lines(snapshot.logs)


def _diagnosis(snapshot: Snapshot) -> Figures:
    # Imported here so that the monitor opens faster.
    from tputui.diagnosis.diagnose import diagnose

    head = ("rule", "status", "where", "function", "lost_s", "share", "speedup", "text", "evidence", "fix")
    return Figures(
        head,
        [
            (v.rule, v.status, v.where, v.function, v.lost_s, v.share, v.speedup, v.text, "; ".join(v.evidence), v.fix)
            for v in diagnose(snapshot)
        ],
    )


def _failure(snapshot: Snapshot) -> Figures:
    broken = snapshot.failure
    head = ("writer", "error", "message", "phase", "step", "traceback")
    rows: list[tuple[Figure, ...]] = []
    if broken is not None:
        rows.append((broken.writer, broken.error, broken.message, broken.phase, broken.step, broken.traceback))
    return Figures(head, rows)


BY_PANEL: dict[str, Callable[[Snapshot], Figures]] = {
    "cores": _cores,
    "hosts": _hosts,
    "loss": _loss,
    "meters": _meters,
    "epochs": _epochs,
    "xla": _xla,
    "memory": _memory,
    "log": _log,
    "events": _events,
    "pace": _pace,
    "diagnosis": _diagnosis,
    "failure": _failure,
}
"""By the name of the panel."""
