"""Copying and exporting panels."""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.ui import made
from tests.ui.driving import AppPilot, drive, text, until
from tests.ui.monitored import STAMP, app_of
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base import export
from tputui.ui.monitor import arrangement
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.screen import RunsScreen
from tputui.ui.widgets.dialogs import ExportScreen


def test_y_copies_the_selected_panel_as_text() -> None:
    app = app_of()

    async def script(pilot: AppPilot) -> None:
        await pilot.press("3", "y")
        lines = app.clipboard.splitlines()
        assert lines[0].startswith("meters")
        assert any(line.split()[:1] == ["accuracy"] for line in lines)
        assert "\u2502" not in app.clipboard
        assert f"copied meters, {len(lines)} lines" in text(app.screen)

    drive(app, script)


def test_copy_includes_hidden_rows() -> None:
    app = app_of(made.running(64))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("1", "y")
        assert len(app.clipboard.splitlines()) > 5

    drive(app, script, size=(80, 24))


@pytest.mark.parametrize("name", sorted(export.BY_PANEL))
def test_every_panel_exports_parseable_values(name: str) -> None:
    for snapshot in (made.running(), made.starting(), made.diverged(), made.failed(), made.empty()):
        table = export.BY_PANEL[name](snapshot)
        rows = list(csv.reader(io.StringIO(export.as_csv(table))))
        assert tuple(rows[0]) == table.head
        assert len(rows) == len(table.rows) + 1
        assert {len(row) for row in rows} == {len(table.head)}


def test_no_name_of_an_exported_panel_is_a_formula() -> None:
    table = export.Figures(("step", "=1+1"), [(1, "@SUM(1)"), (2, "-0.5"), (-3, "+a"), (4, None)])
    assert export.as_csv(table) == "step,'=1+1\n1,'@SUM(1)\n2,-0.5\n-3,'+a\n4,\n"


def test_exported_values_are_not_rounded() -> None:
    snapshot = made.running()
    rows = [row for row in written("loss", snapshot) if row["mean"]]
    assert float(rows[7]["mean"]) == snapshot.loss[7].mean
    assert [int(row["first_step"]) for row in rows] == [segment.first_step for segment in snapshot.loss]


def written(panel: str, snapshot: Snapshot) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export.as_csv(export.BY_PANEL[panel](snapshot)))))


def test_loss_export_is_one_table_by_step_and_cores() -> None:
    loss = [made.segment(step, [0.5, 1.5]) for step in (1, 2, 3)]
    columns = [made.core_column(step, step + wide, 2, {0: 0.5, 1: 1.5}) for step, wide in ((1, 0), (2, 1))]
    rows = written("loss", made.changed(made.running(), loss=loss, core_columns=columns))
    assert [(row["of"], row["first_step"], row["last_step"]) for row in rows] == [
        ("both", "1", "1"),
        ("all cores", "2", "2"),
        ("each core", "2", "3"),
        ("all cores", "3", "3"),
    ]
    assert (rows[0]["mean"], rows[0]["core_1_mean"]) == ("1.0", "1.5")
    assert [row["num_steps_of_cores"] for row in rows] == ["1", "", "2", ""]


def test_epoch_export_matches_the_screen() -> None:
    snapshot = made.running()
    epochs = [
        msgspec.structs.replace(epoch, best=True, sections_s={"compile": 0.5}, trace_s={"model": 0.25})
        for epoch in snapshot.epochs
    ]
    rows = written("epochs", made.changed(snapshot, epochs=epochs))
    assert [row["best"] for row in rows] == [*["False"] * (len(epochs) - 1), "True"]
    assert {row["best_so_far"] for row in rows} == {"True"}
    assert {row["trace_model_s"] for row in rows} == {"0.25"}
    assert float(rows[0]["steady_s"]) == epochs[0].train_s + epochs[0].valid_s - 0.5


@pytest.mark.parametrize(
    ("keys_before", "panel", "column", "kept"),
    [(["7", "v"], "log", "level", {"warning", "error"}), (["8", "f"], "events", "kind", {"warning"})],
    ids=["log", "events"],
)
def test_export_contains_only_filtered_rows_with_notice(
    tmp_path: Path, keys_before: list[str], panel: str, column: str, kept: set[str]
) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        await pilot.press(*keys_before, "e", "c")
        await until(pilot, lambda: ", as shown, written to" in text(app.screen))

    drive(app, script, size=(200, 50))
    [path] = tmp_path.iterdir()
    found = {row[column] for row in csv.DictReader(path.read_text().splitlines())}
    assert f"-{panel}-" in path.name
    assert found
    assert found <= kept


def test_exported_picture_has_no_earlier_notice(tmp_path: Path) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        for number in (1, 2):
            await pilot.press("e", "s")
            await until(pilot, lambda number=number: len(list(tmp_path.iterdir())) == number)  # type: ignore[misc]
            await until(pilot, lambda: "export: written to" in text(app.screen))

    drive(app, script, size=(200, 50))
    for path in tmp_path.iterdir():
        assert "written" not in path.read_text()


def test_picture_of_an_overlay_shows_the_line_below_its_notice(tmp_path: Path) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        await pilot.press("r", "y")
        assert "copied run details" in text(app.screen)
        await pilot.press("e", "s")
        await until(pilot, lambda: "export: written to" in text(app.screen))

    drive(app, script, size=(200, 50))
    [picture] = tmp_path.iterdir()
    assert ">metrics" in picture.read_text(), "the footer"


def test_every_monitor_panel_exports_values() -> None:
    assert set(arrangement.PANELS) | {arrangement.FAILURE} == set(export.BY_PANEL)


@pytest.mark.parametrize(
    ("key", "form", "wanted"),
    [("t", "txt", "accuracy"), ("c", "csv", "split,meter,epoch"), ("s", "svg", "</svg>")],
)
def test_e_writes_a_file_and_shows_its_path(tmp_path: Path, key: str, form: str, wanted: str) -> None:
    app = app_of(to=tmp_path)
    path = tmp_path / f"digits-20251009-100000-meters-{STAMP}.{form}"

    async def script(pilot: AppPilot) -> None:
        await pilot.press("3", "e")
        assert isinstance(app.screen, ExportScreen)
        await pilot.press(key)
        await until(pilot, lambda: "export: written to" in text(app.screen))

    drive(app, script, size=(200, 50))
    content = path.read_text()
    assert wanted in content
    if form == "svg":
        assert "Write" not in content


def test_the_list_of_runs_can_be_exported(tmp_path: Path) -> None:
    runs, to = tmp_path / "runs", tmp_path / "to"
    recorded.write_run(runs)
    to.mkdir()
    app = ScreenApp(lambda: RunsScreen(runs), export_to=to)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "done" in text(app.screen))
        await pilot.press("e", "c")
        await until(pilot, lambda: any(to.iterdir()))

    drive(app, script)
    [row] = csv.DictReader(next(to.iterdir()).read_text().splitlines())
    assert (row["run"], row["state"], row["steps"]) == (str(runs / "digits-1"), "done", "66")


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    paths = [export.write_new(tmp_path, "a-b.csv", str(number)) for number in range(3)]
    assert [path.name for path in paths] == ["a-b.csv", "a-b-2.csv", "a-b-3.csv"]
    assert [path.read_text() for path in paths] == ["0", "1", "2"]


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    app = app_of(to=tmp_path / "gone")

    async def script(pilot: AppPilot) -> None:
        await pilot.press("e", "t")
        await until(pilot, lambda: "export failed: No such file" in text(app.screen))

    drive(app, script, size=(200, 50))


def test_export_can_be_cancelled(tmp_path: Path) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        for cancel in ("escape", "q"):
            await pilot.press("e", cancel)
            assert isinstance(app.screen, MonitorScreen)

    drive(app, script)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("run", "panel", "name"),
    [
        ("digits-1", "loss", f"digits-1-loss-{STAMP}.csv"),
        ("../../etc/x y", "left out", f"etc_x_y-left_out-{STAMP}.csv"),
        ("\u4f60", "", f"x-x-{STAMP}.csv"),
    ],
)
def test_file_names_are_harmless(run: str, panel: str, name: str) -> None:
    assert export.file_name(run, panel, "csv", made.NOW) == name


def test_export_of_a_panel_that_fails_leaves_nothing_under_its_name(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from tputui.ui.base.export import write_new
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
write_new(Path(sys.argv[1]), "screen.svg", "<svg>" * 1_000)
"""
    words = [sys.executable, "-P", "-B", "-c", code, str(tmp_path)]
    killed = subprocess.run(words, capture_output=True, timeout=DEADLINE_S, check=False)
    assert killed.returncode == -signal.SIGXFSZ, killed.stderr
    assert not (tmp_path / "screen.svg").exists()
    assert export.write_new(tmp_path, "screen.svg", "whole").name == "screen.svg"
