"""The program behind a page of `tputui serve`, spoken to as its server does."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import recorded
from tests.deadline import DEADLINE_S


class Behind:
    """The program of a page: what it writes, and packets for it."""

    def __init__(self, run_dir: Path) -> None:
        env = {**os.environ, "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver", "COLUMNS": "100", "ROWS": "30"}
        # Settings that other tests stored would change what the help begins with.
        env["XDG_STATE_HOME"] = str(run_dir.parent / "state")
        command = [sys.executable, "-P", "-m", "tputui", "replay", str(run_dir), "--at", "end"]
        self.program = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.written = b""

    def send(self, kind: bytes, payload: bytes) -> None:
        """Sends a packet: `D` with keys, `M` with a message."""
        assert self.program.stdin is not None
        self.program.stdin.write(kind + len(payload).to_bytes(4, "big") + payload)

    def until(self, words: bytes) -> None:
        """Reads until it writes something from here on."""
        self.written = b""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.written:
            assert time.monotonic() < deadline, self.written[-2000:]
            self._read(1.0)

    def until_asleep(self) -> None:
        """Reads until no thread wakes more than twice in half a second."""
        deadline = time.monotonic() + DEADLINE_S
        before, now = -9, self._wake_ups()
        while now - before > 2:
            assert time.monotonic() < deadline, f"{now - before} wake-ups in half a second"
            if not self._read(0.5):
                before, now = now, self._wake_ups()

    def _read(self, timeout_s: float) -> bool:
        assert self.program.stdout is not None
        ready = bool(select.select([self.program.stdout], [], [], timeout_s)[0])
        self.written += os.read(self.program.stdout.fileno(), 65536) if ready else b""
        return ready

    def _wake_ups(self) -> int:
        texts = [path.read_text() for path in Path(f"/proc/{self.program.pid}/task").glob("*/status")]
        return sum(int(found[1]) for text in texts if (found := re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", text)))


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    page = Behind(recorded.write_run(tmp_path))
    page.until(b"DONE")
    yield page
    page.program.kill()
    page.program.wait(DEADLINE_S)
    assert page.program.stdin is not None
    assert page.program.stdout is not None
    page.program.stdin.close()
    page.program.stdout.close()


def test_page_without_keys_sleeps_and_escape_is_known_by_the_silence_after_it(behind: Behind) -> None:
    behind.until_asleep()
    behind.send(b"D", b"?")
    behind.until(b"leave this")
    behind.send(b"D", b"\x1b")
    behind.until(b"detach")
    behind.until_asleep()


@pytest.mark.parametrize("kind", ["q", "quit", "closed"])
def test_page_ends_with_a_key_with_a_message_and_with_its_server(behind: Behind, kind: str) -> None:
    if kind == "q":
        behind.send(b"D", b"q")
    elif kind == "quit":
        behind.send(b"M", json.dumps({"type": "quit"}).encode())
    else:
        assert behind.program.stdin is not None
        behind.program.stdin.close()
        behind.program.terminate()
    assert behind.program.stdout is not None
    while os.read(behind.program.stdout.fileno(), 65536):
        pass
    assert behind.program.wait(DEADLINE_S) == 0
