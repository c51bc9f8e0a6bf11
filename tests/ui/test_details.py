"""The run details over the monitor, and in `show`."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import textual

from tests import recorded
from tests.cost import bounded
from tests.ui import made
from tests.ui.driving import AppPilot, drive, first_frame, monitor, text, until
from tests.ui.test_pictures import DRAWN_BY, Compare
from tputui import config_diff
from tputui.cli.main import main
from tputui.session.session import Session
from tputui.state.snapshot import RunDetails, Snapshot
from tputui.telemetry.origin import GitState
from tputui.ui.app import ScreenApp
from tputui.ui.monitor.details import DetailsPanel, DetailsScreen
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.screen import RunsScreen

GIT = GitState(commit="4c3c74c8b2b1a5b85e0c9df28bbe475a1875466f", branch="main", dirty=True, why=None)
DETAILS = RunDetails(
    argv=["tputui", "run", "digits.toml", "--set", "model.name=a b"],
    cwd="/home/user/project",
    config_path="digits.toml",
    host="tpu-vm-0",
    versions={"python": "3.11.7", "tputui": "0.1.0", "torch": "2.9.1", "torch_xla": None},
    git=GIT,
    resumed_from="runs/before/checkpoints/last.pt",
)


def snapshot(details: RunDetails = DETAILS) -> Snapshot:
    return msgspec.structs.replace(made.finished(), details=details, config=recorded.CONFIG)


def panel_text(pilot: AppPilot) -> str:
    return pilot.app.screen.query_one(DetailsPanel).as_text()


def test_r_shows_the_details_and_the_configuration() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(pilot.app.screen, DetailsScreen))
        shown = panel_text(pilot)
        for part in (
            "tputui run digits.toml --set 'model.name=a b'",
            "/home/user/project",
            "Python 3.11.7, tputui 0.1.0, torch 2.9.1, torch_xla not installed",
            "4c3c74c8b2b1 on main, uncommitted changes",
            "runs/before/checkpoints/last.pt",
            "\u2022 optim.lr = 0.0005",
            '   optim.name = "adam"',
        ):
            assert part in shown, part
        assert "global_batch" not in shown
        await pilot.press("end", "y")
        await until(pilot, lambda: "copied run details" in text(pilot.app.screen))
        await pilot.press("r")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(snapshot()), script)


def test_older_run_says_not_recorded() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(pilot.app.screen, DetailsScreen))
        shown = panel_text(pilot)
        assert "Python not recorded, tputui not recorded, torch not recorded" in shown
        for name in ("command", "directory", "host", "git"):
            assert any(line.split() == [name, "not", "recorded"] for line in shown.splitlines()), name

    drive(monitor(snapshot(RunDetails())), script)


def test_details_of_a_recorded_run_in_replay(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    app = ScreenApp(lambda: MonitorScreen(Session.replay(run_dir), run_dir))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("r")
        await until(pilot, lambda: "tputui run digits.toml" in panel_text(pilot))
        await pilot.press("escape")

    drive(app, script)


def test_csv_has_every_value(tmp_path: Path) -> None:
    app = monitor(snapshot())
    app._export_to = tmp_path

    async def script(pilot: AppPilot) -> None:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(pilot.app.screen, DetailsScreen))
        await pilot.press("e", "c")
        await until(pilot, lambda: any(tmp_path.iterdir()))

    drive(app, script)
    (path,) = tmp_path.iterdir()
    rows = path.read_text().splitlines()
    assert rows[0] == "of,key,value,differs_from_default"
    assert "config,optim.lr,0.0005,True" in rows
    assert "run,host,tpu-vm-0," in rows


def test_control_characters_in_details_are_removed() -> None:
    hostile = RunDetails(
        argv=["a\x1b[2Jb"], cwd="c\x07", git=GitState(commit="0" * 40, branch="d\x1b[31m", dirty=None, why="e\x9b")
    )

    async def script(pilot: AppPilot) -> None:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(pilot.app.screen, DetailsScreen))
        assert not set("\x1b\x07\x9b") & set(text(pilot.app.screen))

    drive(monitor(snapshot(hostile)), script)


def test_huge_details_are_drawn_at_once() -> None:
    config = {f"key{number}": "x" * 100 for number in range(20_000)} | {"long": "y" * 1_000_000}
    run = msgspec.structs.replace(snapshot(RunDetails(argv=["a " * 1_000_000])), config=config)
    with bounded(5.0):
        drawn = DetailsPanel().draw(DetailsPanel.pick(run), 80, 24)
    assert len(drawn.rows) < 10_000


def test_show_prints_details_and_changed_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded.write_run(tmp_path)
    assert main(["show", str(run_dir)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "command      tputui run digits.toml" in lines
    assert "git          not recorded" in lines
    (config,) = (line for line in lines if line.startswith("config "))
    assert "optim.lr = 0.0005" in config
    assert "optim.name" not in config

    assert main(["show", str(run_dir), "--json"]) == 0
    details = json.loads(capsys.readouterr().out)["details"]
    assert (details["host"], details["cwd"], details["git"]) == ("tpu-vm-0", "/home/user", None)


def test_values_without_default_count_as_set() -> None:
    lines = {line.key: line for line in config_diff.config_lines(recorded.CONFIG)}
    assert next(iter(lines)) == "task"
    assert lines["model.dropout"] == ("model.dropout", "0.1", True)
    assert lines["data.prefetch_batches"].is_set is False
    assert lines["optim.gamma"].is_set is True
    assert "data.global_batch" not in lines
    betas = config_diff.config_lines({"optim": {"betas": [0.9, 0.999]}})
    assert betas == [("optim.betas", "[0.9, 0.999]", False)]


@pytest.mark.skipif(textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}")
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=str)
def test_picture(snap_compare: Compare, size: tuple[int, int]) -> None:
    """Over an empty screen, since the monitor below has pictures of its own."""

    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.app.push_screen(DetailsScreen(snapshot()))
        await until(pilot, lambda: "digits.toml" in panel_text(pilot))

    assert snap_compare(ScreenApp(lambda: RunsScreen(Path("nowhere"))), terminal_size=size, run_before=script)
