"""SIGTERM and SIGHUP to `tputui run` in a real terminal, with the live screen and without it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.live import processes_of
from tests.supervise.harness import events_in, is_running, text_of, wait_for
from tests.ui.test_terminal import Terminal
from tputui.telemetry import events as ev

SCRIPT = """
import threading
from pathlib import Path
try:
    print("ready", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    while not Path(__file__).with_name("go").exists():
        threading.Event().wait(0.02)
    print("saved", flush=True)
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """Where the run of a test will be; no process of it is left."""
    (tmp_path / "train.py").write_text(SCRIPT)
    made = tmp_path / "runs" / "mine"
    yield made
    for pid in processes_of(made):
        os.kill(pid, signal.SIGKILL)


def started(run_dir: Path, *options: str) -> Terminal:
    """The command in a terminal, with a script that trains."""
    words = ["run", "--runs-dir", str(run_dir.parent), "--name", run_dir.name, *options, "--"]
    command = [sys.executable, "-P", "-m", "tputui", *words, sys.executable, str(run_dir.parents[1] / "train.py")]
    terminal = Terminal(command)
    shows = b"ready" if options else b"RUNNING"
    terminal.until(lambda shown: shows in shown)
    log = run_dir / "worker-0.log"
    wait_for(lambda: "ready" in text_of(log), "the first line of the script")
    return terminal


@pytest.mark.parametrize(
    "options", [pytest.param((), id="screen"), pytest.param(("--no-ui",), id="lines", marks=pytest.mark.slow)]
)
def test_sigterm_saves_and_stops_and_the_command_waits_for_the_end(run_dir: Path, options: tuple[str, ...]) -> None:
    terminal = started(run_dir, *options)

    terminal.program.send_signal(signal.SIGTERM)

    terminal.until(lambda shown: b"SIGTERM: requested save and stop" in shown)
    # As after Ctrl-Z and fg: the screen stays closed.
    terminal.program.send_signal(signal.SIGCONT)
    assert terminal.program.poll() is None
    (run_dir.parents[1] / "go").touch()
    with contextlib.suppress(OSError):
        # Until the terminal has no process left.
        terminal.until(lambda shown: False)
    assert terminal.program.wait(DEADLINE_S) == 4, terminal.shown.decode(errors="replace")[-3000:]
    assert b"stopped" in terminal.shown.partition(b"SIGTERM: requested")[2]
    assert (b"\x1b[?1049l" in terminal.shown) == (not options), "the screen was left"
    terminal.close()
    assert (run_dir / "worker-0.log").read_text() == "ready\nsaved\n"
    (ended,) = events_in(run_dir, "supervisor-0", ev.RunEnded)
    assert (ended.outcome, ended.exit_code) == ("stopped", 4)


@pytest.mark.slow
def test_a_hangup_ends_the_view_and_not_the_run(run_dir: Path) -> None:
    terminal = started(run_dir)

    terminal.close()

    assert terminal.program.wait(DEADLINE_S) != 0
    (opened, *_) = events_in(run_dir, "supervisor-0", ev.JournalOpened)
    assert is_running(opened.pid)
    assert json.loads(tputui("show", run_dir, "--json").out)["state"] == "running"
    (run_dir.parents[1] / "go").touch()
    stopped = tputui("stop", run_dir)
    assert stopped.code == 0, stopped.out + stopped.err
    wait_for(lambda: "saved" in (run_dir / "worker-0.log").read_text(), "the end of the script")
