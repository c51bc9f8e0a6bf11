"""A whole session in a real terminal with a real run: launch, watch, save, seek back, detach, attach, stop, replay."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervise.harness import events_in, is_running, wait_for
from tputui.telemetry import events as ev

pytestmark = [
    pytest.mark.xla,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="drives the screen in tmux, which is not installed"),
]

CONFIG = Path(__file__).parents[2] / "sample_configs/digits.toml"
SHELL = r"[$#]\s*$"
"""A shell prompt."""
EPOCHS = "900"
"""Far more than the run trains before it is stopped."""


class Terminal:
    """A private tmux server with one terminal of 120 by 36 cells."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        # Textual would believe the size of the terminal that runs the tests.
        command = "; ".join([*exports, "unset COLUMNS LINES", f"cd {shlex.quote(str(folder))}", "exec sh"])
        self._call("new-session", "-d", "-x", "120", "-y", "36", command)

    def press(self, *keys: str) -> None:
        """Presses keys, given by their tmux names."""
        self._call("send-keys", *keys)

    def type(self, text: str) -> None:
        """Types text literally."""
        self._call("send-keys", "-l", text)

    def shown(self) -> str:
        """The text of the terminal."""
        return self._call("capture-pane", "-p")

    def until(self, *patterns: str) -> str:
        """Waits until every regular expression matches the terminal; returns its text."""

        def found() -> str | None:
            shown = self.shown()
            return shown if all(re.search(pattern, shown) for pattern in patterns) else None

        try:
            shown = wait_for(found, f"{patterns} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{self.shown()}") from None
        assert shown is not None
        return shown

    def close(self) -> None:
        """Closes the terminal and its tmux."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def _call(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the configuration; kills runs that are still alive after the test."""
    (tmp_path / "sample_configs").mkdir()
    shutil.copy(CONFIG, tmp_path / "sample_configs")
    yield tmp_path
    for run_dir in (tmp_path / "runs").glob("*"):
        for pid in (*_pids(run_dir, "supervisor-0", ev.JournalOpened), *_pids(run_dir, "worker-0", ev.JournalOpened)):
            if is_running(pid):
                os.killpg(pid, 9)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    """A terminal in that folder."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    made = Terminal(folder, {"PATH": tools, "XDG_STATE_HOME": str(folder / "state"), "LC_ALL": "C.UTF-8"})
    yield made
    made.close()


def _pids(run_dir: Path, writer: str, kind: type[ev.JournalOpened]) -> list[int]:
    return [event.pid for event in events_in(run_dir, writer, kind)]


def launched(terminal: Terminal) -> None:
    """Starts a run with changed fields: run list, configurations, launcher, monitor."""
    terminal.type(f"{shlex.quote(sys.executable)} -P -m tputui\n")
    terminal.until("No runs in runs yet", "n new run")
    terminal.press("n")
    terminal.until("Choose a configuration", r"\u276f +sample_configs/digits\.toml", "Blank configuration")
    terminal.press("Enter")
    terminal.until("new run from sample_configs/digits.toml", r"epoch +22 steps")
    # Typed as fast as tmux can: no key may be lost on the way.
    terminal.type("/device.cores")
    terminal.press("Enter", "Enter", "C-u", "2", "Enter", "/", "C-u")
    terminal.type("epochs to train")
    terminal.press("Enter", "Enter", "C-u")
    terminal.type(EPOCHS)
    terminal.press("Enter")
    terminal.until("2 changed", r"Ready\. Press ctrl\+s to start", r"8 x 2 = 16 per step", "80,100 steps")
    terminal.press("C-s")
    terminal.until("-digits +\\S+ (STARTING|RUNNING)", "q detach")


def test_a_run_from_its_launch_to_its_replay(terminal: Terminal, folder: Path) -> None:
    launched(terminal)

    terminal.until("RUNNING", "\u2500\u2500 train [0-9]", rf"epoch \d+/{EPOCHS}")
    [run_dir] = (folder / "runs").iterdir()

    terminal.press("c")
    terminal.until(r"checkpoint saved at step \d+, .*checkpoints/step-")
    assert events_in(run_dir, "worker-0", ev.CheckpointSaved)

    terminal.press("Left")
    terminal.until(r"viewing .* ago \(step [\d,]+ of [\d,]+\)", "paused")
    terminal.press("b")
    terminal.until("\u25cf live")

    terminal.press("q")
    terminal.until("1 running", f"{run_dir.name} +\u25cf running")
    [supervisor] = _pids(run_dir, "supervisor-0", ev.JournalOpened)
    assert is_running(supervisor)

    terminal.press("Enter")
    terminal.until("\u25cf live", "RUNNING")
    terminal.press("s")
    terminal.until(rf'Stop run "{run_dir.name}"\?', "finish this step, save a checkpoint, end")
    terminal.press("Enter")
    terminal.until("STOPPED|DONE")
    wait_for(lambda: not is_running(supervisor), "the supervisor has ended")

    terminal.press("q")
    terminal.until("0 running", f"{run_dir.name} +\\S+ stopped")

    terminal.press("Enter")
    terminal.until("STOPPED", "the end", "look back")
    terminal.press("Left")
    terminal.until(r"viewing .* ago", "paused")
    terminal.press("q")
    terminal.until("0 running")

    terminal.press("q")
    terminal.until(SHELL)
    terminal.type(f"{shlex.quote(sys.executable)} -P -m tputui replay runs/{run_dir.name}\n")
    terminal.until("replay", "\u2500\u2500 train|starting")
    terminal.press("End")
    terminal.until("STOPPED")
    terminal.press("q")
    terminal.until(SHELL)
