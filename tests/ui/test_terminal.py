"""The viewer in a real terminal: it starts, it leaves, and it ends when the terminal does."""

from __future__ import annotations

import fcntl
import math
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import recorded
from tputui.ui.app import HANGUP_EXIT_CODE, is_gone

VIEWER = """
import signal, sys
from pathlib import Path
# Said either way: where the tests run under nohup, ignoring it is inherited.
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[2] == "ignore" else signal.SIG_DFL)
from tputui.session.session import Session
from tputui.ui.app import run_monitor
result = run_monitor(Session.live(Path(sys.argv[1])), Path(sys.argv[1]))
sys.exit(7 if result.reason == "quit" and result.snapshot is not None and result.snapshot.steps == 66 else 1)
"""

DEADLINE_S = 120.0


class Terminal:
    """A pseudo terminal of 80 by 24 cells with a program in it."""

    def __init__(self, argv: list[str], env: dict[str, str] | None = None) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.program = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
        )
        os.close(slave)
        self.shown = b""

    def until(self, holds: Callable[[bytes], bool], timeout_s: float = DEADLINE_S) -> None:
        """Reads what the program writes until something holds of it."""
        deadline = time.monotonic() + timeout_s
        while not holds(self.shown):
            left = deadline - time.monotonic()
            assert left > 0, self.shown[-2000:]
            if select.select([self.master], [], [], left)[0]:
                self.shown += os.read(self.master, 65536)

    def until_asleep(self) -> None:
        """Reads until no thread of the program wakes more than twice in half a second."""
        deadline = time.monotonic() + DEADLINE_S
        before, now = -math.inf, self._wake_ups()
        while now - before > 2:
            assert time.monotonic() < deadline, f"{now - before} wake-ups in half a second"
            if select.select([self.master], [], [], 0.5)[0]:
                self.shown += os.read(self.master, 65536)
            else:
                before, now = now, self._wake_ups()

    def _wake_ups(self) -> int:
        status = [path.read_text() for path in Path(f"/proc/{self.program.pid}/task").glob("*/status")]
        return sum(
            int(number) for text in status for number in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)
        )

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self.master, keys)

    def close(self) -> None:
        """Closes the window."""
        os.close(self.master)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that ended."""
    return recorded.write_run(tmp_path)


def viewer(run_dir: Path, hangup: str, env: dict[str, str] | None = None) -> Terminal:
    """The viewer on a run, as its first full frame stands."""
    terminal = Terminal([sys.executable, "-c", VIEWER, str(run_dir), hangup], env)
    terminal.until(lambda shown: b"DONE" in shown)
    return terminal


def test_idle_viewer_sleeps_until_keys_come_and_q_restores_the_terminal(run_dir: Path) -> None:
    """Escape is known by the silence after it; bytes that are not UTF-8 do not end the input."""
    terminal = viewer(run_dir, "default")
    terminal.until_asleep()
    terminal.type(b"\xff?")
    terminal.until(lambda shown: b"XProf" in shown)
    shown_before = len(terminal.shown)
    terminal.type(b"\x1b")
    terminal.until(lambda shown: b"8 ended" in shown[shown_before:])
    terminal.until_asleep()
    terminal.type(b"q")
    terminal.until(lambda shown: b"\x1b[?1049l" in shown)
    assert terminal.program.wait(DEADLINE_S) == 7
    terminal.close()


@pytest.mark.parametrize("hangup", ["default", "ignore"])
def test_a_closed_window_ends_the_viewer(run_dir: Path, hangup: str) -> None:
    terminal = viewer(run_dir, hangup)
    terminal.close()
    assert terminal.program.wait(DEADLINE_S) == (-signal.SIGHUP if hangup == "default" else HANGUP_EXIT_CODE)


def test_no_color_is_respected(run_dir: Path) -> None:
    terminal = viewer(run_dir, "default", {"NO_COLOR": "1", "COLORTERM": ""})
    terminal.type(b"q")
    terminal.until(lambda shown: b"\x1b[?1049l" in shown)
    assert terminal.program.wait(DEADLINE_S) == 7
    assert b"38;" not in terminal.shown
    assert b"48;" not in terminal.shown
    terminal.close()


def test_only_a_terminal_can_hang_up(tmp_path: Path) -> None:
    master, slave = os.openpty()
    with (tmp_path / "file").open("wb") as file:
        assert not is_gone(file.fileno())
        os.close(master)
        assert is_gone(slave)
    os.close(slave)


BROKEN = """
import sys
from tputui.cli.main import main
from tputui.ui.monitor.header import Header
Header.paint = lambda self, width, height: [1 / 0]
sys.exit(main(["replay", sys.argv[1], "--at", "end"]))
"""


def test_crashed_screen_exits_70_and_names_the_run(recorded_run: Path) -> None:
    terminal = Terminal([sys.executable, "-c", BROKEN, str(recorded_run)])
    terminal.until(lambda shown: b"is not affected" in shown)
    terminal.program.wait(DEADLINE_S)
    os.close(terminal.master)
    assert terminal.program.returncode == 70
    said = re.sub(rb"\s+", b" ", terminal.shown)
    assert b"ZeroDivisionError" in said
    assert str(recorded_run).encode() in terminal.shown.replace(b"\r\n", b"")
