"""A printed or stored form: what a program writes while it trains, the truth beside it, and how much of it is read.

A form is a TOML file. `console` is what the program prints, `[files]` what it has written beside that when it ends.
With `opened`, the name of one of the files, nothing was launched: that log is opened. `close` is the relative
difference of values that are equal, for a form that tells the same values twice, rounded and whole.

`[truth]` says what a reader of the form knows. `step`, `total_steps`, `epoch`, `epochs`, `lr`, `best_epoch` and
`best_value` are those at the end; what the form does not tell is left out, and must not be claimed. `[truth.series]`
has the values of each metric as pairs of step and value, or as values alone where the form tells no step. A name is
`train NAME` or `valid NAME`, with ` core N` behind it for one core; only its letters and digits count. The training
loss is `train loss`, whatever the form calls it. `optional` names series that a reader may leave out, such as timings.
"""

from __future__ import annotations

import math
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from tests import recorded
from tests.deadline import DEADLINE_S
from tputui.exports.rows import MetricRow, RunRows, StepRow
from tputui.log_import.place import OpenedLog
from tputui.logs.rows import UnknownLog
from tputui.session.session import load
from tputui.state import facts
from tputui.supervise.log_collector import LogCollector
from tputui.supervise.log_tail import Printed
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

FOLDER = Path(__file__).with_name("texts")
MEANINGS = ("step", "total_steps", "epoch", "epochs", "lr", "best_epoch", "best_value")
CLOSE = 1e-6
"""Relative difference of values that are equal: a loss is stored as float32."""

Series = dict[str, list[tuple[int | None, float]]]


class Form(NamedTuple):
    """What a program writes, and the truth."""

    name: str
    console: str
    files: dict[str, str]
    opened: str | None
    close: float
    meanings: dict[str, float]
    series: Series
    optional: frozenset[str]


class Told(NamedTuple):
    """What tputui tells of a form."""

    meanings: dict[str, float]
    series: Series


class Score(NamedTuple):
    """How much of a form is told right."""

    num_right: int
    num_all: int
    """Of the values and meanings of the truth, and of those that were invented."""
    faults: list[str]
    """A line for each series or meaning that is not right."""

    @property
    def share(self) -> float:
        """Part that is right."""
        return self.num_right / self.num_all


def read(path: Path) -> Form:
    """Reads a form and checks that it is complete."""
    content: dict[str, Any] = tomllib.loads(path.read_text())
    truth = content["truth"]
    series: Series = {
        _named(name): [(None, float(p)) if isinstance(p, int | float) else (int(p[0]), float(p[1])) for p in points]
        for name, points in truth.pop("series", {}).items()
    }
    optional = frozenset(_named(name) for name in truth.pop("optional", []))
    unknown = {*truth} - {*MEANINGS} | {*content} - {"about", "close", "console", "files", "opened", "truth"}
    assert not unknown, f"{path.name}: {unknown}"
    files = content.get("files", {})
    assert content["about"], path.name
    assert content.get("opened") is None or content["opened"] in files, path.name
    close = content.get("close", CLOSE)
    return Form(path.stem, content.get("console", ""), files, content.get("opened"), close, truth, series, optional)


def tell(form: Form, folder: Path) -> Told:
    """Has tputui read the form, as the output and the logs of a command that has ended, or as a log that is opened."""
    if form.opened is not None:
        _write_files(form, folder)
        try:
            with OpenedLog(folder / form.opened) as opened:
                assert opened.wait(DEADLINE_S)
                return told_of(opened.run_dir)
        except UnknownLog:
            return Told({}, {})
    run_dir = rundir.create(folder / "runs", recorded.manifest())
    reporter = Reporter(run_dir, "logs")
    collector = LogCollector(run_dir, _ended_pid(), reporter, {"cwd": str(folder), "logs": [*form.files]})
    collector.take_console([Printed(line) for line in form.console.split("\n")])
    _write_files(form, folder)
    collector.close()
    reporter.close()
    return told_of(run_dir)


def _ended_pid() -> int:
    """A process that has ended. This one may have files of other tests open, which would be logs of the command."""
    with subprocess.Popen(["true"]) as ended:
        return ended.pid


def _write_files(form: Form, folder: Path) -> None:
    for name, text in form.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")


def told_of(run_dir: Path) -> Told:
    """What a run says: the facts of its snapshot, and the values that it exports."""
    snapshot = load(run_dir)
    best = facts.BEST_EPOCH.of(snapshot), facts.BEST_VALUE.of(snapshot)
    plan = snapshot.plan
    known = {
        "step": facts.STEP.of(snapshot),
        "total_steps": (plan.total_steps or None) if plan is not None else None,
        "epoch": facts.EPOCH.of(snapshot),
        "epochs": (plan.num_epochs or None) if plan is not None else None,
        "lr": facts.LEARNING_RATE.of(snapshot),
        "best_epoch": best[0],
        "best_value": best[1],
    }
    series: Series = {}
    rows = [row for row in RunRows(run_dir) if isinstance(row, StepRow | MetricRow)]
    num_cores = len({row.core for row in rows if isinstance(row, StepRow)})
    losses = {row.metric for row in rows if isinstance(row, StepRow)}
    of_reports = ("report", "epoch", "progress")
    for row in rows:
        if isinstance(row, StepRow):
            name = f"train {row.metric}" + (f" core {row.core}" if num_cores > 1 else "")
            if not math.isnan(row.value):
                series.setdefault(_named(name), []).append((row.step, row.value))
        elif row.kind not in of_reports and (row.split != "train" or row.name.split("/core")[0] not in losses):
            # What a script logs as its loss is in the rows of its steps, too.
            series.setdefault(_named(f"{row.split} {row.name}"), []).append((row.step, row.value))
    return Told({name: float(value) for name, value in known.items() if value is not None}, series)


def score(form: Form, told: Told) -> Score:
    """Compares what is told with the truth: each value of a series and each meaning counts once."""
    num_right, num_all, faults = 0, 0, []
    for name in MEANINGS:
        true, shown = form.meanings.get(name), told.meanings.get(name)
        if true is None and shown is None:
            continue
        num_all += 1
        if true is not None and shown is not None and _equal(true, shown, form.close):
            num_right += 1
        else:
            faults.append(f"{name}: {shown} for {true}")
    for name in sorted({*form.series, *told.series} - form.optional):
        points, shown_points = form.series.get(name, []), told.series.get(name, [])
        num_same = _num_equal(points, shown_points, form.close)
        num_right += num_same
        num_all += max(len(points), len(shown_points))
        if num_same < max(len(points), len(shown_points)):
            faults.append(f"{name}: {shown_points[:6]} for {points[:6]}, {num_same} of {len(points)} equal")
    return Score(num_right, num_all, faults)


def _num_equal(points: list[tuple[int | None, float]], shown: list[tuple[int | None, float]], close: float) -> int:
    """How many of the points are shown, in the same order."""
    num_equal, at = 0, 0
    for step, value in points:
        for index in range(at, len(shown)):
            if (step is None or step == shown[index][0]) and _equal(value, shown[index][1], close):
                num_equal, at = num_equal + 1, index + 1
                break
    return num_equal


def _equal(true: float, shown: float, close: float) -> bool:
    return (math.isnan(true) and math.isnan(shown)) or math.isclose(true, shown, rel_tol=close, abs_tol=1e-12)


def _named(name: str) -> str:
    spaced = re.sub(r"core(?=\d)", "core ", name.lower())
    return re.sub(r"[^a-z0-9]+", " ", spaced).strip()
