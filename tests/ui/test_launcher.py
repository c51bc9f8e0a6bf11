"""The launcher: choosing a configuration, editing and checking its fields, starting the run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.ui.driving import AppPilot, drive, text, until
from tests.ui.fake_launch_service import TOML, FakeLaunchService, edit, home, make_place, pick
from tputui.cli.launch_service import EngineLaunchService
from tputui.telemetry import requests, rundir
from tputui.ui.base import keymap
from tputui.ui.help import HelpScreen
from tputui.ui.launch import configs
from tputui.ui.launch.form import FormState, PickedConfig
from tputui.ui.launch.panels import FieldsPanel, LaunchHeader
from tputui.ui.launch.picker import ConfigPicker
from tputui.ui.launch.screen import LauncherScreen
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.screen import RunsScreen
from tputui.ui.widgets.dialogs import LeaveChanged


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a configuration."""
    return make_place(tmp_path)


async def write(pilot: AppPilot, key: str, value: str) -> None:
    """Moves to a field and replaces its text."""
    pilot.app.screen.query_one(FieldsPanel).go(key)
    await pilot.press("enter", "ctrl+u", *value)


def shows(pilot: AppPilot, *parts: str) -> bool:
    shown = " ".join(text(pilot.app.screen).split())
    return all(part in shown for part in parts)


def test_configurations_are_listed_with_descriptions(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await pick(pilot)
        assert shows(pilot, "sample_configs/small.toml", "digits", "A small one.", "Blank configuration")
        assert shows(pilot, "broken.toml", "not valid TOML")
        assert not shows(pilot, "other.toml")
        await pilot.press("down", "enter")
        assert isinstance(pilot.app.screen, ConfigPicker)
        await until(pilot, lambda: shows(pilot, "broken.toml: not valid TOML"))
        await pilot.press("R")
        await until(pilot, lambda: shows(pilot, "only runs can be resumed"))
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, RunsScreen)

    drive(home(place), script, size=(100, 30))


def test_every_field_has_documentation_and_derived_values(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await until(pilot, lambda: shows(pilot, "channels"))  # the engine says which keys a task has
        for key in (
            "task",
            "epochs",
            "seed",
            "valid_fraction",
            "channels",
            "momentum",
            "virtual_cores",
            "keep",
            "seal",
        ):
            assert shows(pilot, key), key
        figures = ("8 TPU cores, spmd", "8 x 8 = 64 per step", "0.004 (0.0005 x 8 cores", "22 steps")
        await until(pilot, lambda: shows(pilot, *figures))
        await until(pilot, lambda: shows(pilot, "408 KiB per core", "of 16.0 GiB"))
        pilot.app.screen.query_one(FieldsPanel).go("optim.lr")
        await until(pilot, lambda: shows(pilot, "Learning rate for one core", "Number", "Default: 0.001"))

    drive(home(place), script, size=(200, 70))


def test_values_are_checked_while_typing(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await write(pilot, "data.batch_per_core", "1")
        await until(pilot, lambda: shows(pilot, "1 x 8 = 8 per step", "179 steps"))
        await pilot.press("6")
        await until(pilot, lambda: shows(pilot, "16 x 8 = 128 per step", "11 steps", "was 8", "1 changed"))
        exported = {key: row for key, *row in pilot.app.screen.query_one(FieldsPanel).figures().rows}
        assert exported["data.batch_per_core"] == ["16", True, None]
        assert exported["epochs"][1:] == [False, None]
        await pilot.press("x")
        await until(pilot, lambda: shows(pilot, "\u2716 data.batch_per_core: 16x is not a whole number"))
        await pilot.press("backspace", "0", "0", "enter")
        await until(pilot, lambda: shows(pilot, "12800 is more than 1437 examples"))
        await pilot.press("backspace")
        await until(pilot, lambda: shows(pilot, "8 x 8 = 64 per step", "Ready"))
        assert not shows(pilot, "1 changed")

    drive(home(place), script, size=(160, 45))


WRONG = [
    ("epochs", "0", "0 must be positive"),
    ("epochs", "", "missing value: enter a whole number"),
    ("optim.lr", "-1", "-1.0 must be positive"),
    ("optim.name", "adma", "adma is not one of adam, adamw, rmsprop, sgd"),
    ("model.channels", "2000", "it must be 1,024 or less"),
    ("data.valid_fraction", "1", "it must be less than 1"),
    ("device.cores", "[1, 2]", "must contain one core"),
    ("name", "a b", "run names may contain letters"),
    ("task", "digitz", 'there is no task "digitz"'),
]


def test_wrong_value_states_error_and_blocks_start(place: Path) -> None:
    service = FakeLaunchService(place / "runs")

    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        for key, value, said in WRONG:
            await write(pilot, key, value)
            await pilot.press("enter")
            await until(pilot, lambda key=key, said=said: shows(pilot, f"\u2716 {key}: ", said))  # type: ignore[misc]
            await pilot.press("home", "ctrl+s")
            await until(pilot, lambda key=key: shows(pilot, f"not started: {key}: "))  # type: ignore[misc]
            assert pilot.app.screen.query_one(FieldsPanel).cursor == key
            await pilot.press("backspace")
            await until(pilot, lambda: pilot.app.screen.query_one(LaunchHeader).readiness.state == "ready")

    drive(home(place, service), script, size=(200, 60))
    assert service.launches == []


def test_escape_restores_the_value(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await write(pilot, "data.global_batch", "128")
        await until(pilot, lambda: shows(pilot, "16 x 8 = 128"))
        await pilot.press("escape")
        await until(pilot, lambda: shows(pilot, "8 x 8 = 64"))
        assert isinstance(pilot.app.screen, LauncherScreen)

    drive(home(place), script, size=(160, 45))


def test_choices_can_be_cycled(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        pilot.app.screen.query_one(FieldsPanel).go("optim.lr_scaling")
        await until(pilot, lambda: shows(pilot, "\u2190 \u2192 linear none sqrt"))
        await pilot.press("right")
        await until(pilot, lambda: shows(pilot, "lr 0.0005"))
        await pilot.press("left", "left")
        await until(pilot, lambda: shows(pilot, "sqrt(8 cores)"))
        pilot.app.screen.query_one(FieldsPanel).go("report.seal")
        await pilot.press("space")
        await until(pilot, lambda: shows(pilot, "report.seal=true"))
        pilot.app.screen.query_one(FieldsPanel).go("epochs")
        await pilot.press("right")
        assert shows(pilot, "epochs: press enter to type a value")

    drive(home(place), script, size=(160, 60))


def test_cursor_moves_between_fields(place: Path) -> None:
    steps = [("end", "launch.lost_after_s"), ("home", "name"), ("down", "task"), ("down", "epochs"), ("up", "task"),
             ("up", "name"), ("tab", "data.batch_per_core"), ("tab", "model.channels"),
             ("shift+tab", "data.batch_per_core"), ("end", "launch.lost_after_s"), ("home", "name")]  # fmt: skip

    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        panel = pilot.app.screen.query_one(FieldsPanel)
        for key, there in steps:
            await pilot.press(key)
            assert panel.cursor == there, key
        await pilot.press("pagedown", "pagedown")
        assert panel.cursor not in ("name", "task")
        await pilot.press("pageup", "pageup")
        assert panel.cursor == "name"
        await write(pilot, "optim.gamma", "0.5")
        await pilot.press("enter", "home", "ctrl+g")
        assert panel.cursor == "optim.gamma"

    drive(home(place), script, size=(80, 24))


def test_a_field_is_found_by_its_documentation(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await pilot.press("slash", *"steplr")
        await until(pilot, lambda: shows(pilot, "step_size", "gamma") and not shows(pilot, "momentum"))
        await pilot.press("escape")
        await until(pilot, lambda: shows(pilot, "momentum"))

    drive(home(place), script, size=(160, 60))


def test_active_field_filter_stays_visible_with_count(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await pilot.press("slash", *"steplr", "enter")
        await until(pilot, lambda: shows(pilot, "/ steplr", "] esc shows all") and not shows(pilot, "momentum"))
        assert re.search(r"\[2/\d+\] esc shows all", text(pilot.app.screen))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: shows(pilot, "write to small-2.toml") and not shows(pilot, "/ steplr"))
        await pilot.press("escape")
        await until(pilot, lambda: shows(pilot, "/ steplr", "] esc shows all"))
        await pilot.press("escape")
        await until(pilot, lambda: shows(pilot, "momentum") and not shows(pilot, "esc shows all"))

    drive(home(place), script, size=(160, 60))


def test_edited_file_is_saved_only_under_a_new_name(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await write(pilot, "optim.lr", "0.01")
        await pilot.press("enter", "ctrl+o")
        await until(pilot, lambda: shows(pilot, "write to small-2.toml"))
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "written to small-2.toml"))
        await pilot.press("ctrl+o", "ctrl+u", *"other.toml", "enter")
        await until(pilot, lambda: shows(pilot, "other.toml already exists"))

    drive(home(place), script, size=(160, 45))
    written = tomllib.loads((place / "small-2.toml").read_text())
    assert written == {**tomllib.loads(TOML), "optim": {"lr": 0.01}}
    assert "none of ours" in (place / "other.toml").read_text()


def test_start_opens_monitor_and_q_returns_to_list(place: Path) -> None:
    service = FakeLaunchService(place / "runs")

    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await write(pilot, "name", "mine")
        await pilot.press("enter")
        await write(pilot, "optim.lr", "0.01")
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "Ready", "--set optim.lr=0.01", "--name mine"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await until(pilot, lambda: shows(pilot, "mine", "detach"))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen) and shows(pilot, "1 run,"))
        assert shows(pilot, "\u276f mine")

    drive(home(place, service), script, size=(160, 45))
    (launch,) = service.launches
    assert (launch.name, launch.source, launch.resume) == ("mine", "sample_configs/small.toml", None)
    assert launch.tables["optim"] == {"lr": 0.01}
    assert launch.argv[:3] == ["tputui", "run", "sample_configs/small.toml"]


def test_failed_start_states_reason_and_can_be_retried(place: Path) -> None:
    service = FakeLaunchService(place / "runs")

    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await write(pilot, "name", "refused")
        await pilot.press("enter", "ctrl+s")
        await until(pilot, lambda: shows(pilot, "not started: no space left on the device"))
        assert isinstance(pilot.app.screen, LauncherScreen)
        await write(pilot, "name", "again")
        await pilot.press("enter", "ctrl+s")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))

    drive(home(place, service), script, size=(160, 45))


@pytest.mark.parametrize("where", ["here", "checked"])
def test_without_torch_launcher_states_why_it_cannot_start(place: Path, where: str) -> None:
    why = "torch is not installed; pip install it"
    here, checked = (why, "") if where == "here" else (None, why)
    service = FakeLaunchService(place / "runs", machine_error=here, check_error=checked)

    async def script(pilot: AppPilot) -> None:
        await pick(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, f"\u2716 {why}", "valid_fraction", "0.2"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: shows(pilot, f"not started: {why}"))

    drive(home(place, service), script, size=(160, 45))
    assert service.launches == []


def test_typing_on_a_field_starts_and_writes_nothing(place: Path) -> None:
    service = FakeLaunchService(place / "runs")
    before = sorted(place.rglob("*"))

    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        assert pilot.app.screen.query_one(FieldsPanel).cursor == "name"
        await pilot.press(*"new-sweep")
        assert "accept" in text(pilot.app.screen).splitlines()[-1]
        assert "start" not in text(pilot.app.screen).splitlines()[-1]
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "--name new-sweep", "Ready"))
        assert "ctrl+s start" in text(pilot.app.screen).splitlines()[-1]

    drive(home(place, service), script, size=(160, 45))
    assert service.launches == []
    assert sorted(place.rglob("*")) == before


def test_leaving_offers_to_save_changes(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await write(pilot, "epochs", "3")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, LeaveChanged))
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, LauncherScreen), "what is chosen first loses nothing"
        await pilot.press("escape", "w")
        await until(pilot, lambda: shows(pilot, "write to small-2.toml"))
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "written to small-2.toml"))

    drive(home(place), script, size=(100, 30))
    assert tomllib.loads((place / "small-2.toml").read_text())["epochs"] == 3


def test_leaving_with_changes_asks_first(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await write(pilot, "epochs", "3")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, LeaveChanged))
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, LauncherScreen)
        await pilot.press("escape", "y")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfigPicker))

    drive(home(place), script, size=(100, 30))


def test_an_earlier_run_is_started_again_or_resumed(place: Path) -> None:
    run_dir = recorded.write_run(place / "runs", run="run-old")
    (run_dir / "checkpoints" / "last.pt").write_bytes(b"weights")
    service = FakeLaunchService(place / "runs")

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "1 run," in text(pilot.app.screen) and "done" in text(pilot.app.screen))
        await pilot.press("n")
        await until(pilot, lambda: shows(pilot, "Re-run or resume", "run-old", "done, train loss", "step 66/66"))
        assert not shows(pilot, "R resume")
        await pilot.press("end")
        await until(pilot, lambda: shows(pilot, "R resume"))
        await pilot.press("R")
        await until(pilot, lambda: shows(pilot, "resumes the last checkpoint of run-old", "Ready"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await pilot.press("q")
        await until(pilot, lambda: shows(pilot, "2 runs", "\u276f run-new"))

    drive(home(place, service), script, size=(160, 45))
    assert service.launches[0].resume == run_dir
    assert service.launches[0].tables["model"] == {"channels": 32, "dropout": 0.1}


def test_data_in_an_unknown_home_directory_is_not_found(tmp_path: Path) -> None:
    tables = {"task": "tabular", "data": {"source": "~nobody-here/a.csv"}}
    choice = configs.ConfigChoice("file", tmp_path / "home.toml", tables, "")
    assert configs.readiness(choice, {}, tmp_path).label == "data not found"


def test_configurations_show_whether_their_data_is_present(place: Path) -> None:
    samples = place / "sample_configs"
    (samples / "depth.toml").write_text('task = "mask_depth"\n[data]\nsource = "set:rgbd/frames.csv"\n')
    (samples / "lost.toml").write_text('task = "tabular"\n[data]\nsource = "lost.csv"\n')
    (samples / "mine.toml").write_text('task = "my_project.tasks:Mine"\n')
    (samples / "scan.toml").write_text('task = "image_labels"\n[data]\nsource = "set:ct/train.csv"\n')

    (place / "configs" / "of_another_name" / "that_is_long").mkdir(parents=True)
    (place / "configs" / "of_another_name" / "that_is_long" / "mine.toml").write_text(TOML)
    (place / "tests").mkdir()
    (place / "tests" / "faulty.toml").write_text(TOML)

    def row(pilot: AppPilot, name: str) -> str:
        return next(line for line in text(pilot.app.screen).splitlines() if name in line)

    async def script(pilot: AppPilot) -> None:
        await pick(pilot)
        await until(pilot, lambda: "needs data fetch" in row(pilot, "depth.toml"))
        assert "ready" in row(pilot, "small.toml")
        assert "ready" in row(pilot, "scan.toml")
        assert "ready" in row(pilot, "Blank configuration")
        assert "data not found" in row(pilot, "lost.toml")
        assert "ready" not in row(pilot, "mine.toml")
        first, *_, last = [line for line in text(pilot.app.screen).splitlines() if "sample_configs/" in line]
        assert "lost.toml" in first
        assert "scan.toml" in last, "sets that are fetched come after the others"
        for _ in range(3):
            await pilot.press("down")
        await until(pilot, lambda: shows(pilot, "fetch its data first: tputui data fetch rgbd"))
        await pilot.press("up")
        await until(pilot, lambda: not shows(pilot, "tputui data fetch"))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: row(pilot, "depth.toml").rstrip(" \u2502").endswith("needs data fetch"))
        assert "faulty.toml" not in text(pilot.app.screen)

    drive(home(place), script, size=(120, 36))


def test_enter_on_the_empty_list_opens_the_digits_demo(place: Path) -> None:
    (place / "sample_configs" / "digits.toml").write_text(TOML)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: shows(pilot, "No runs in", "digits demo", "new run"))
        assert text(pilot.app.screen).splitlines()[-1].split() == [
            "q",
            "quit",
            "n",
            "new",
            "run",
            "enter",
            "digits",
            "demo",
            "?",
            "help",
        ]
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, LauncherScreen) and shows(pilot, "Ready"))
        assert shows(pilot, "sample_configs/digits.toml")

    drive(home(place), script, size=(80, 24))


def test_demo_without_the_sample_is_the_blank_configuration(tmp_path: Path) -> None:
    assert configs.demo(tmp_path) is configs.BLANK
    assert configs.BLANK.task == "digits"


def test_configuration_of_a_recorded_run_has_no_commands_of_alerts(tmp_path: Path) -> None:
    alerts = {
        "on": ["done"],
        "targets": ["bell", "command:touch pwned", " command:true", "https://hooks.example.com/x"],
    }
    found = msgspec.structs.replace(recorded.manifest(), config={**recorded.CONFIG, "alerts": alerts})
    (choice,) = configs.runs([(rundir.create(tmp_path, found), "done")])
    assert choice.tables["alerts"] == {"on": ["done"], "targets": ["bell", "https://hooks.example.com/x"]}


def test_a_read_only_view_starts_nothing(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "No runs in" in text(pilot.app.screen))
        assert "new run" not in text(pilot.app.screen).splitlines()[-1]
        await pilot.press("n")
        assert shows(pilot, "new run: this view is read-only")

    drive(home(place, read_only=True), script, size=(100, 30))


@pytest.mark.parametrize("table", [keymap.CONFIGS, keymap.LAUNCH])
def test_help_lists_every_key(place: Path, table: tuple[keymap.Key, ...]) -> None:
    async def script(pilot: AppPilot) -> None:
        await (pick if table is keymap.CONFIGS else edit)(pilot)
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        for key in table:
            assert key.shown in text(pilot.app.screen)

    drive(home(place), script, size=(120, 70))


def test_launcher_survives_every_size(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        for size in [(20, 5), (80, 24), (1, 1), (200, 50), (59, 40), (120, 36), (300, 12), (100, 30)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert shows(pilot, "batch_per_core")

    drive(home(place), script)


def test_a_command_of_ones_own_is_edited_and_started_without_the_engine(place: Path) -> None:
    (place / "sample_configs" / "small.toml").write_text(
        """# My own script.
[script]
command = ["python3", "-c", "print('from my script')"]
env = { LR = "0.1" }
"""
    )
    service = EngineLaunchService(place / "runs", {})

    async def script(pilot: AppPilot) -> None:
        await pick(pilot)
        assert shows(pilot, "My own script.")
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "[script]", "Ready", "SIGTERM or SIGINT, then SIGTERM", "sets LR"))
        await write(pilot, "script.stop_signal", "SIGHUP")
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "SIGHUP is not one of SIGINT, SIGTERM, auto"))
        await pilot.press("backspace")
        await write(pilot, "script.command", '["no-such-program"]')
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "no-such-program: no such command in PATH"))
        await pilot.press("backspace")
        await until(pilot, lambda: shows(pilot, "Ready"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: shows(pilot, "from my script"))

    drive(home(place, service), script, size=(160, 45))
    (supervisor,) = service.supervisors
    assert supervisor.wait(120) == 0
    (run_dir,) = rundir.listing(place / "runs")
    assert rundir.read_manifest(run_dir).config["script"]["env"] == {"LR": "0.1"}
    assert (run_dir / "worker-0.log").read_text() == "from my script\n"


def test_a_command_edited_since_its_validation_is_not_shown_as_valid() -> None:
    tables = {"script": {"command": ["true"]}}
    state = FormState(PickedConfig(configs.ConfigChoice("file", Path("mine.toml"), tables, ""), resume=False), ())
    state.on_edit()
    assert state.script() is not None
    state.form.set("script.command", "[")
    assert state.script() is None


@pytest.mark.slow
def test_a_running_command_is_shown_and_stopped_by_keys(place: Path) -> None:
    (place / "sample_configs" / "small.toml").write_text('[script]\ncommand = ["sh", "-c", "echo up; sleep 600"]\n')
    service = EngineLaunchService(place / "runs", {})

    async def script(pilot: AppPilot) -> None:
        await edit(pilot)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: shows(pilot, "RUNNING", "running, phase not reported", "no loss yet", " up"))
        await pilot.press("c")
        await until(pilot, lambda: shows(pilot, "does not report that it saves on request"))
        await pilot.press("s")
        await until(pilot, lambda: shows(pilot, "as Ctrl-C does", "SIGTERM, then SIGKILL"))
        await pilot.press("s")
        await until(pilot, lambda: shows(pilot, "STOPPED", "exit code 4"))

    try:
        drive(home(place, service), script, size=(160, 45))
    finally:
        for run_dir in rundir.listing(place / "runs"):
            requests.submit(run_dir, "stop_now", by="test", now=0.0)
    (supervisor,) = service.supervisors
    assert supervisor.wait(120) == 4
