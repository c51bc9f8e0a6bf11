"""A launch service without an engine, a directory with configurations, and the key presses that open the launcher."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

from tests import recorded
from tests.ui.driving import AppPilot, text, until
from tputui import config
from tputui.check_result import CheckResult, Option, Problem, TaskDescription
from tputui.telemetry import events as ev
from tputui.ui.app import ScreenApp
from tputui.ui.launch.checker import Launch, LaunchError, LaunchService
from tputui.ui.launch.screen import LauncherScreen
from tputui.ui.runs.screen import RunsScreen

NOW = recorded.T0 + 11
TOML = """# A small one.
task = "digits"
epochs = 12
[data]
batch_per_core = 8
valid_fraction = 0.2
[optim]
lr = 0.0005
"""
MEMORY = ev.MemoryForecast(
    total_bytes=418_100,
    parameters_bytes=44_216,
    gradients_bytes=43_688,
    optimizer_bytes=87_376,
    activations_bytes=230_212,
    inputs_bytes=10_560,
    telemetry_bytes=2_048,
    biggest=[],
    batch_per_core=8,
    precision="fp32",
    rematerialised=False,
    limit_bytes=16 << 30,
    limit="the HBM of a core",
)


class FakeLaunchService:
    """Answers at once like the engine, and starts runs from a recording."""

    def __init__(self, runs_dir: Path, *, machine_error: str | None = None, check_error: str = "") -> None:
        self._runs_dir = runs_dir
        self._machine_error = machine_error
        self._check_error = check_error
        self.launches: list[Launch] = []

    def machine_error(self) -> str | None:
        return self._machine_error

    def data_sets(self) -> dict[str, bool]:
        return {"rgbd": False, "ct": True}

    def describe(self, task: str, stop: Event) -> TaskDescription:
        if self._check_error:
            raise LaunchError(self._check_error)
        if task != "digits":
            raise LaunchError(f'task: there is no task "{task}"')
        share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.2}
        channels = {"type": "integer", "minimum": 1, "maximum": 1024, "default": 32}
        data = [Option("valid_fraction", share, "Share of the images that validates.")]
        model = [Option("channels", channels, "Channels of both.")]
        return TaskDescription(task, "digits", ["loss"], {"data": data, "model": model})

    def check(self, launch: Launch, stop: Event, *, memory: bool) -> CheckResult:
        loaded = config.from_builtins(dict(launch.tables), launch.source).on_cores(8)
        if loaded.global_batch > 1437:
            return CheckResult(
                [Problem("data.batch_per_core", f"{loaded.global_batch} is more than 1437 examples")], {}
            )
        steps = 1437 // max(loaded.global_batch, 1)
        facts: dict[str, Any] = {
            "device": "TPU",
            "device_reason": None,
            "num_cores": loaded.num_cores,
            "steps_per_epoch": steps,
            "total_steps": steps * loaded.epochs,
            "train_examples": 1437,
            "valid_examples": 360,
        }
        return CheckResult([], facts, MEMORY if memory else None)

    def start(self, launch: Launch) -> Path:
        self.launches.append(launch)
        if launch.name == "refused":
            raise LaunchError("no space left on the device")
        return recorded.write_run(self._runs_dir, run=launch.name or "run-new", ended=False)


def make_place(directory: Path) -> Path:
    """Writes three files into a directory: a configuration, invalid TOML, and TOML that is no configuration."""
    (directory / "sample_configs").mkdir()
    (directory / "sample_configs" / "small.toml").write_text(TOML)
    (directory / "other.toml").write_text("[tool]\nname = 'none of ours'\n")
    (directory / "broken.toml").write_text("task = \n")
    return directory


def home(place: Path, service: LaunchService | None = None, *, read_only: bool = False) -> ScreenApp:
    runs_dir = place / "runs"
    used = service or FakeLaunchService(runs_dir)
    return ScreenApp(
        lambda: RunsScreen(runs_dir, service=used, config_dir=place, clock=lambda: NOW, read_only=read_only)
    )


async def pick(pilot: AppPilot) -> None:
    await until(pilot, lambda: "No runs in" in text(pilot.app.screen) or " run" in text(pilot.app.screen))
    await pilot.press("n")
    await until(pilot, lambda: "small.toml" in text(pilot.app.screen) and "searching" not in text(pilot.app.screen))


async def edit(pilot: AppPilot) -> None:
    await pick(pilot)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, LauncherScreen) and "Ready" in text(pilot.app.screen))
