"""How long until a run of 1,000,000 steps x 8 cores is on screen, and with how much memory.

The real program in a pseudo-terminal of 160x45, a bare Textual program beside it in turn; then every figure of the
snapshot that the screen draws is compared with one computed from the raw values.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.synthetic import NUM_CORES, SPIKE, SPIKE_STEP, write_run
from tputui.session import load

ROWS, COLUMNS = 45, 160
DEADLINE_S = 60.0
BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("ready to look at")
Bare().run()
"""
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]")


class Opened(NamedTuple):
    """What opening took."""

    first_s: float
    """Until anything was drawn."""
    last_s: float
    """Until the words waited for were on screen."""
    peak_mib: float


class Screen:
    """A program in a pseudo-terminal of 160x45, and what it has drawn."""

    def __init__(self, argv: list[str]) -> None:
        self.began = time.perf_counter()
        self.drawn = b""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
            os.execvp(argv[0], argv)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self) -> str:
        """Waits a moment for more; returns all that was drawn, escape sequences left out."""
        if select.select([self._terminal], [], [], 0.01)[0]:
            self.drawn += os.read(self._terminal, 1 << 16)
        return ESCAPES.sub(b"", self.drawn).decode(errors="replace")

    def close(self) -> None:
        """Ends the program."""
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


def open_in_terminal(argv: list[str], words: str) -> Opened:
    """Runs a program until it has drawn `words`; then ends it."""
    screen, first = Screen(argv), math.nan
    while words not in (text := screen.read()):
        if time.perf_counter() - screen.began > DEADLINE_S:
            raise TimeoutError(f"{words!r} did not show within {DEADLINE_S:g} s")
        if math.isnan(first) and len(text.strip()) > 10:
            first = time.perf_counter() - screen.began
    last = time.perf_counter() - screen.began
    peak = _peak_mib(screen.pid)
    screen.close()
    return Opened(first, last, peak)


def _peak_mib(pid: int) -> float:
    """Most memory that a process has held, since it became the program that it is."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def differences(run_dir: Path, values: np.ndarray) -> list[str]:
    """Where a figure of the snapshot is not the one that the raw values give."""
    snapshot = load(run_dir)
    wrong: list[str] = []
    steps_seen = 0
    for segment in snapshot.loss:
        raw = values[segment.first_step - 1 : segment.last_step].astype(np.float64)
        steps_seen += len(raw)
        told = (segment.min, segment.max, segment.num_values)
        if told != (raw.min(), raw.max(), raw.size) or not math.isclose(segment.mean, raw.mean(), rel_tol=1e-9):
            wrong.append(f"steps {segment.first_step} to {segment.last_step}: {segment}")
    if steps_seen != len(values):
        wrong.append(f"the series covers {steps_seen} steps of {len(values)}")
    if [core.loss for core in snapshot.cores] != values[-1].astype(np.float64).tolist():
        wrong.append(f"newest losses: {[core.loss for core in snapshot.cores]}")
    spike = float(np.float32(SPIKE))
    if len(values) >= SPIKE_STEP and max(segment.max for segment in snapshot.loss) != spike:
        wrong.append("the one-step spike is lost")
    if snapshot.steps != len(values):
        wrong.append(f"steps: {snapshot.steps}")
    return wrong


def main() -> None:
    """Prints times, memory, ratios and the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run_dir, values = write_run(Path(name), args.steps)
        attach = [sys.executable, "-m", "tputui", "attach", str(run_dir)]
        rows: dict[str, list[Opened]] = {"tputui attach": [], "a bare Textual program": []}
        for _ in range(args.rounds):
            rows["tputui attach"].append(open_in_terminal(attach, f"{args.steps:,}"))
            rows["a bare Textual program"].append(open_in_terminal([sys.executable, "-c", BARE], "ready to look at"))
        size = sum(path.stat().st_size for path in run_dir.glob("*.jsonl"))
        print(f"{args.steps:,} steps x {NUM_CORES} cores, {size / 2**20:.1f} MiB on disk; medians of {args.rounds}")
        for label, opened in rows.items():
            first, last, peak = (statistics.median(column) for column in zip(*opened, strict=True))
            print(f"  {label:24} first drawn {first:5.2f} s, whole screen {last:5.2f} s, peak {peak:5.0f} MiB")
        wrong = differences(run_dir, values)
        print(f"  figures that differ from the raw values: {len(wrong)}", *wrong[:5], sep="\n    ")


if __name__ == "__main__":
    main()
