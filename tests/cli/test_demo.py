"""`tputui demo`: its recordings open with this version, show what it says, and contain no path or name of a machine."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.cli.test_base_install import HIDDEN
from tests.ui.driving import AppPilot, drive, text, until
from tputui.cli.replay import DEMOS, RECORDINGS, played
from tputui.diagnosis.diagnose import diagnose
from tputui.session import session
from tputui.state.snapshot import Snapshot
from tputui.telemetry import rundir
from tputui.telemetry.codec import encode
from tputui.telemetry.merge import events_of, open_tail
from tputui.ui.app import ScreenApp
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.screen import RunsScreen

SIZE_MAX = 1_000_000
"""Bytes of all recordings together."""
PATH = re.compile(r"(?<![\w.:/<>\\-])/[A-Za-z_][\w.-]*/[\w./-]+")
"""An absolute path in a text."""
BLOCK = re.compile(r'"block":"[^"]*"')
"""Losses in base64, which may look like a path."""
NEUTRAL = ("/home/user", "/usr/", "/proc/", "/dev/")


def loaded(name: str) -> Snapshot:
    return session.load(RECORDINGS / name)


def files() -> dict[Path, int]:
    """The size of each file of the recordings."""
    return {path: path.stat().st_size for path in RECORDINGS.rglob("*") if path.is_file()}


def texts(name: str) -> str:
    """Everything that is written in a recording."""
    run_dir = RECORDINGS / name
    found = [path.read_text() for path in run_dir.iterdir() if path.suffix in (".json", ".txt")]
    for _, path in rundir.journal_paths(run_dir):
        with closing(open_tail(path)) as tail:
            found += [BLOCK.sub("", encode(numbered.event, 0).decode()) for numbered in events_of(tail)]
    return "\n".join(found)


def list_screen() -> ScreenApp:
    return ScreenApp(lambda: RunsScreen(RECORDINGS, read_only=True, replay=played))


def test_recordings_are_those_that_the_help_names_and_small() -> None:
    assert {path.name for path in RECORDINGS.iterdir()} == set(DEMOS)
    assert sum(files().values()) < SIZE_MAX


@pytest.mark.parametrize("name", DEMOS)
def test_recordings_are_whole_and_name_no_place_of_their_makers(name: str) -> None:
    assert loaded(name).damage.regions == []
    written = texts(name)
    foreign = {path for path in PATH.findall(written) if not path.startswith(NEUTRAL)}
    assert foreign == set()
    hosts = set(re.findall(r'"host": ?"([^"]*)"', written))
    assert hosts <= {"demo-host", "", *(f"tpu-vm-{index}" for index in range(64))}


def test_training_has_losses_recompiles_and_a_slow_core() -> None:
    snapshot = loaded("training")
    assert snapshot.condition == "done"
    assert len(snapshot.cores) == 8
    assert all(core.loss is not None for core in snapshot.cores)
    assert len(snapshot.epochs) == 9
    assert snapshot.xla is not None
    assert snapshot.xla.recompiles > 0
    assert snapshot.slow_core is not None
    assert snapshot.slow_core.core == 5
    assert "recompile" in {verdict.rule for verdict in diagnose(snapshot) if verdict.status == "found"}


def test_failure_shows_the_line_of_the_task() -> None:
    report = (RECORDINGS / "failure" / "failure.txt").read_text()
    assert report.startswith("first failure  worker-0, cores 0-7, demo-host, pid ")
    snapshot = loaded("failure")
    assert snapshot.condition == "failed"
    assert snapshot.failure is not None
    assert "focal_digits.py" in snapshot.failure.traceback
    assert "RuntimeError" in snapshot.failure.error


def test_pod_has_64_hosts_and_says_that_it_is_synthetic() -> None:
    snapshot = loaded("synthetic-pod")
    assert len(snapshot.hosts) == 64
    assert len(snapshot.cores) == 512
    assert snapshot.slow_host is not None
    assert "simulated" in texts("synthetic-pod")
    assert "not measured" in tputui("demo").out


def test_list_plays_a_recording_from_before_its_first_step() -> None:
    before = files()

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: " 3 runs" in text(pilot.app.screen) and "loading" not in text(pilot.app.screen))
        await pilot.press("D")
        await until(pilot, lambda: "delete: this view is read-only" in text(pilot.app.screen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await until(pilot, lambda: "playing" in text(pilot.app.screen))
        await until(pilot, lambda: "step 1/" in text(pilot.app.screen))
        await pilot.press("s")
        await until(pilot, lambda: "recording" in text(pilot.app.screen))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))

    drive(list_screen(), script, size=(80, 24))
    assert files() == before


def test_demo_without_torch_or_home_prints_the_run_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDDEN.format(packages=["torch", "torch_xla", "numpy"]))
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    before = sorted(tmp_path.rglob("*"))
    shown = tputui("demo", "failure", "--no-ui", cwd=home, PYTHONPATH=path, HOME=str(home), PYTHONDONTWRITEBYTECODE="1")
    assert shown.code == 0, shown.err
    assert "focal_digits.py" in shown.out
    assert sorted(tmp_path.rglob("*")) == before


def test_unknown_recording_is_refused_with_the_known_ones() -> None:
    refused = tputui("demo", "pod")
    assert refused.code == 2
    assert "training" in one_sentence(refused)
    unnamed = tputui("demo", "--json")
    assert unnamed.code == 2
    assert "synthetic-pod" in one_sentence(unnamed)
