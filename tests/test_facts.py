"""Every view says the same about a run: each fact of `tputui.state.facts`, in each view that shows it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import recorded
from tputui.cli.main import main
from tputui.compare.compare import compare
from tputui.compare.table import figure_rows
from tputui.report.card import headline, summary
from tputui.report.page import page
from tputui.session.session import load
from tputui.state import facts
from tputui.state.facts import FACTS, Fact
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.text.prometheus import exposition
from tputui.text.show_page import show_text, to_show
from tputui.ui.monitor.header import Header
from tputui.ui.monitor.pace import PacePanel
from tputui.ui.monitor.xla import XlaPanel
from tputui.ui.render.lines import Line
from tputui.ui.runs.rows import row_of
from tputui.ui.runs.table import summary_text

AnyFact = Fact[int] | Fact[float] | Fact[str]
RUNS = ("done", "lost", "failed command")
SLOW_S, FAST_S = 0.5, 0.02
"""Step times of the last report and of the others."""


def paced(events: list[ev.Event]) -> list[ev.Event]:
    """Training whose last report is slow, and whose second epoch is the best."""
    changed = list[ev.Event]()
    last = max(event.step for event in events if isinstance(event, ev.ProgressReported))
    for event in events:
        if isinstance(event, ev.ProgressReported):
            step_s = SLOW_S if event.step == last else FAST_S
            event = msgspec.structs.replace(event, step_s=step_s, examples_per_s=64 / step_s)
        if isinstance(event, ev.EpochEnded) and event.epoch == 3:
            valid = {**event.valid, "loss": recorded.reading([0.5] * 45)}
            event = msgspec.structs.replace(event, best=False, valid=valid)
        changed.append(event)
    return changed


def made(parent: Path, kind: str) -> Path:
    """A recorded run of a kind."""
    worker, config = paced(recorded.worker_events()), dict(recorded.CONFIG)
    manifest = recorded.manifest(kind.replace(" ", "-"))
    if kind == "failed command":
        config = {"script": {"command": ["python", "train.py"]}, "checkpoint": {"monitor": "loss"}}
        manifest = msgspec.structs.replace(manifest, config=config)
    run_dir = rundir.create(parent, manifest)
    end = worker[-1].t + 0.2 if kind == "done" else None
    supervisor = recorded.supervisor_events(end, config)
    if kind != "done":
        worker = worker[:-1]
    if kind == "failed command":
        t = worker[-1].t + 0.2
        supervisor += [
            ev.WorkerExited(t=t, pid=4243, exit_code=1),
            ev.RunEnded(t=t + 0.1, outcome="failed", exit_code=3, reason="the command exited with code 1"),
        ]
    recorded.write_journal(run_dir / "worker-0.jsonl", worker)
    recorded.write_journal(run_dir / "supervisor-0.jsonl", supervisor)
    return run_dir


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    """The newest snapshot of each run."""
    parent = tmp_path_factory.mktemp("runs")
    return {kind: load(made(parent, kind), clock=lambda: recorded.T0 + 3_600) for kind in RUNS}


def words_of(lines: list[Line]) -> str:
    """Lines of the screen as text."""
    return "\n".join("".join(span.text for span in line) for line in lines)


def header(snapshot: Snapshot) -> str:
    """The header of the screen."""
    drawn = Header()
    drawn.show(snapshot, replaying=False)
    return words_of(drawn.paint(240, 4))


def panel(kind: Any) -> Callable[[Snapshot], str]:
    """A panel of the screen."""

    def drawn(snapshot: Snapshot) -> str:
        drawing = kind().draw(kind.pick(snapshot), 80, 30)
        return words_of([*drawing.head, *drawing.rows])

    return drawn


def compared(snapshot: Snapshot) -> str:
    """The column of a run in a comparison, with the names of its rows."""
    rows = figure_rows(compare([snapshot, snapshot]))
    return "\n".join(f"{row.name} {row.cells[0]}" for row in rows)


def html(snapshot: Snapshot) -> str:
    """The text of the page."""
    return " ".join(re.sub("<[^>]*>", " ", page(snapshot, "1")).split())


STEPS = (facts.STATE, facts.EPOCH, facts.STEP)
PACE = (facts.STEP_TIME, facts.SPEED)
TEXTS: Mapping[str, tuple[Callable[[Snapshot], str], tuple[AnyFact, ...]]] = {
    "show": (show_text, (*STEPS, *PACE, facts.LOSS, facts.EPOCH_LOSS, facts.COMPILES, facts.RECOMPILES)),
    "header": (header, (facts.EPOCH, facts.STEP, *PACE, facts.BEST_EPOCH, facts.BEST_VALUE, facts.DURATION)),
    "pace panel": (panel(PacePanel), (facts.STEADY_SPEED,)),
    "XLA panel": (panel(XlaPanel), (facts.COMPILES, facts.RECOMPILES)),
    "HTML": (html, (*STEPS, *PACE, facts.LOSS, facts.BEST_EPOCH, facts.BEST_VALUE, facts.DURATION)),
    "notebook": (summary, (*STEPS, *PACE, facts.LOSS, facts.BEST_EPOCH, facts.BEST_VALUE, facts.DURATION)),
    "comparison": (
        compared,
        (facts.STATE, facts.STEP, facts.DURATION, facts.EPOCH_LOSS, facts.STEADY_SPEED, facts.COMPILES,
         facts.RECOMPILES, facts.BEST_VALUE),
    ),
    "list of runs": (
        lambda snapshot: summary_text(row_of(Path(snapshot.dir), snapshot, complete=True)),
        (facts.STATE, facts.STEP, facts.EPOCH_LOSS),
    ),
}  # fmt: skip
PROMETHEUS: Mapping[str, AnyFact] = {
    "tputui_run_exit_code": facts.EXIT_CODE,
    "tputui_run_command_exit_code": facts.COMMAND_EXIT_CODE,
    "tputui_run_duration_seconds": facts.DURATION,
    "tputui_step_total": facts.STEP,
    "tputui_step_duration_seconds": facts.STEP_TIME,
    "tputui_examples_per_second": facts.SPEED,
    "tputui_steady_step_duration_seconds": facts.STEADY_STEP_TIME,
    "tputui_steady_examples_per_second": facts.STEADY_SPEED,
    "tputui_learning_rate": facts.LEARNING_RATE,
    "tputui_loss": facts.LOSS,
    "tputui_epoch_loss": facts.EPOCH_LOSS,
    "tputui_best_epoch": facts.BEST_EPOCH,
    "tputui_best_metric": facts.BEST_VALUE,
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("view", TEXTS)
def test_a_view_shows_each_fact_in_the_same_words(snapshots: dict[str, Snapshot], view: str, run: str) -> None:
    render, shown = TEXTS[view]
    text = render(snapshots[run])
    for fact in shown:
        expected = fact.text(snapshots[run])
        assert re.search(rf"(?<![\d.]){re.escape(expected)}(?![\d])", text), (fact.label, expected, text)


@pytest.mark.parametrize("run", RUNS)
def test_an_ended_run_has_one_speed_everywhere(snapshots: dict[str, Snapshot], run: str) -> None:
    snapshot = snapshots[run]
    speed, step_time = facts.SPEED.text(snapshot), facts.STEP_TIME.text(snapshot)
    assert (speed, step_time) == ("3,200 examples/s", "20.0 ms/step")
    assert (speed, step_time) == (facts.STEADY_SPEED.text(snapshot), facts.STEADY_STEP_TIME.text(snapshot))
    for view, (render, _) in TEXTS.items():
        # A chart of the page has the newest value of its metric beside its name.
        text = headline(snapshot, "h1") if view == "HTML" else render(snapshot)
        speeds = set(re.findall(r"[\d.,]+ examples/s", text))
        assert speeds <= {speed}, view


@pytest.mark.parametrize("run", RUNS)
def test_prometheus_and_json_have_the_values(snapshots: dict[str, Snapshot], run: str) -> None:
    snapshot = snapshots[run]
    shown = to_show(snapshot)
    for fact in FACTS:
        value: Any = shown
        for key in fact.key.split("."):
            value = value[key]
        assert fact.of(snapshot) is None or value == fact.of(snapshot), fact.label
    samples = re.findall(r"^(\w+)\{.*\} (\S+)$", exposition(snapshot), re.M)
    found = {name: float(value) for name, value in samples}
    for name, fact in PROMETHEUS.items():
        assert found.get(name) == fact.of(snapshot), name


def test_exactly_one_epoch_is_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = made(tmp_path, "done")
    snapshot = load(run_dir)
    assert facts.BEST_EPOCH.of(snapshot) == 2
    assert main(["show", str(run_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best_epoch"] == 2
    assert main(["show", str(run_dir), "--epochs", "all"]) == 0
    assert re.findall("^epoch ([0-9]+) best ", capsys.readouterr().out, re.MULTILINE) == ["2"]
    assert main(["export", str(run_dir), "--to", "csv", "--out", str(tmp_path / "tables")]) == 0
    rows = list(csv.DictReader((tmp_path / "tables" / "epochs.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows if row["best_so_far"] == "True"] == ["1", "2"]
    assert "best" not in rows[0]


def test_the_exit_code_of_a_command_is_not_taken_for_ours(snapshots: dict[str, Snapshot]) -> None:
    snapshot = snapshots["failed command"]
    assert (facts.EXIT_CODE.of(snapshot), facts.COMMAND_EXIT_CODE.of(snapshot)) == (3, 1)
    for view, (render, _) in TEXTS.items():
        assert "code 3" not in render(snapshot), view
    assert "the command exited with code 1" in header(snapshot)
    assert facts.COMMAND_EXIT_CODE.of(snapshots["done"]) is None


def test_a_running_run_has_its_newest_speed(tmp_path: Path) -> None:
    growing = recorded.Growing(tmp_path)
    try:
        growing.go_on(6.0)
        growing.session.poll()
        snapshot = growing.session.snapshot()
        assert snapshot.condition == "running"
        assert snapshot.throughput is not None
        assert facts.SPEED.of(snapshot) == snapshot.throughput.examples_per_s
    finally:
        growing.close()
