"""The viewer in a real terminal: it starts, it leaves, and it ends when the terminal does."""

from __future__ import annotations

import fcntl
import math
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from textual import events

from tests import recorded
from tests.deadline import DEADLINE_S
from tputui.ui.app import HANGUP_EXIT_CODE, is_gone
from tputui.ui.terminal.input_driver import PASTE_S, KeyParser

VIEWER = """
import signal, sys
from pathlib import Path
# Said either way: where the tests run under nohup, ignoring it is inherited.
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[2] == "ignore" else signal.SIG_DFL)
from tputui.session.session import Session
from tputui.ui.app import run_monitor
result = run_monitor(lambda: Session.live(Path(sys.argv[1])), Path(sys.argv[1]))
sys.exit(7 if result.reason == "quit" and result.snapshot is not None and result.snapshot.steps == 66 else 1)
"""


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "words", [["attach", "RUN"], ["compare", "RUN", "COPY"], []], ids=lambda words: " ".join(words)
)
def test_a_signal_restores_the_terminal(run_dir: Path, words: list[str], number: signal.Signals) -> None:
    program = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); from tputui.cli.main import main; main()"
    )
    places = {"RUN": str(run_dir), "COPY": str(shutil.copytree(run_dir, run_dir.with_name("digits-2")))}
    command = ["--runs-dir", str(run_dir.parent), *(places.get(word, word) for word in words)]
    terminal = Terminal([sys.executable, "-c", program, *command])
    before = termios.tcgetattr(terminal.master)
    terminal.until(lambda shown: b"\x1b[?1049h" in shown and b"digits" in shown)
    assert termios.tcgetattr(terminal.master) != before
    terminal.program.send_signal(number)
    restored = (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?1003l", b"\x1b[?2004l", b"\x1b[?25h")
    terminal.until(lambda shown: all(sequence in shown for sequence in restored))
    assert terminal.program.wait(DEADLINE_S) == -number
    assert termios.tcgetattr(terminal.master) == before
    terminal.close()


STRANGE = (
    *(b"\x1b[1114112u", b"\x1b[99999999999999u", b"\x1b[55296u", b"\x1b[97;5;55296u", b"\x1b[1;2:9999999999u"),
    *(b"\x1b[48;0;0;0;0t", b"\x1b[<0;5;5M", b"\x1b[48;99999;99999;9;9t", b"\x1b[<0;999999999999;9999999999M", b"\x1b["),
    *(
        b"\x1b[999999999;99999999R",
        b"\xff\xfe\xed\xa0\x80\xf4\x90\x80\x80",
        b"\x9b1114112u",
        b"\x1b]0;x\x07",
        b"\x1bP1\x1b\\",
    ),
    *(
        b"\x1b[" + b"9" * 50 + b"u",
        b"\x00\x80\x1b\x1b\x1b",
        b"/\x1b[55296u\x1b[56320u\xed\xb0\x80",
        b"\x1b[200~pasted\x1b[",
    ),
)
"""Sequences that no terminal sends: characters, sizes and places that do not exist, and a paste without an end."""


@pytest.mark.parametrize("command", [["replay", "RUN", "--at", "end"], []], ids=["run", "list"])
def test_no_input_ends_a_viewer(run_dir: Path, command: list[str]) -> None:
    words = ["--runs-dir", str(run_dir.parent), *(str(run_dir) if word == "RUN" else word for word in command)]
    terminal = Terminal([sys.executable, "-P", "-m", "tputui", *words])
    terminal.until(lambda shown: b"\x1b[?1049h" in shown and b"digits" in shown)
    terminal.type(b"".join(STRANGE))
    terminal.until_asleep()
    assert terminal.program.poll() is None, terminal.shown[-2000:]
    deadline = time.monotonic() + DEADLINE_S
    while b"\x1b[?1049l" not in terminal.shown and time.monotonic() < deadline:
        terminal.type(b"\x11")  # ctrl+q, which is text of the paste until that is given up
        while select.select([terminal.master], [], [], 2 * PASTE_S)[0] and b"\x1b[?1049l" not in terminal.shown:
            terminal.shown += os.read(terminal.master, 65536)
    assert terminal.program.wait(DEADLINE_S) == 0
    assert b"Traceback" not in terminal.shown
    terminal.close()


SEQUENCE = st.from_regex(r"\x1b[\[O\]P]?[<?]?[0-9;:-]{0,25}[a-zA-Z~$]?")


@given(st.lists(SEQUENCE | st.text(max_size=6) | st.sampled_from([each.decode("latin-1") for each in STRANGE])))
@example(["\x1b[48;0;0;0;0t", "\x1b[<0;5;5M"])
def test_keys_are_read_after_any_input(parts: list[str]) -> None:
    parser = KeyParser()
    read = [message for part in parts for message in parser.feed(part)] if all(parts) else []
    assert all(min(message.size) > 0 for message in read if isinstance(message, events.Resize))
    # What the driver does after silence.
    list(parser.feed("\x1b\\"))
    list(parser.end_paste())
    assert [message.key for message in parser.feed("q") if isinstance(message, events.Key)] == ["q"]


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
