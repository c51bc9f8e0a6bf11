"""Runs a program in a real terminal and measures it from outside.

The terminal is tmux: it answers terminal queries and costs little. Its control mode reads the screen without starting a
process. CPU and memory are those of the program with all its children, without tmux.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

import psutil

COLUMNS, ROWS = 160, 45
DEADLINE_S = 60.0
LOOK_S = 0.005
"""Pause between two reads of the screen, the resolution of all times."""


class NeverShown(TimeoutError):
    """The expected text did not appear in time."""


class Usage(NamedTuple):
    """Resources that a program and its children have used since the start."""

    cpu_s: float
    peak_mib: float
    """Sum of the peak resident memory of each living process."""


class Terminal:
    """A terminal that runs one program after the other, as a context manager."""

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        """Raises `FileNotFoundError` if tmux is not installed."""
        tmux = shutil.which("tmux")
        if tmux is None:
            raise FileNotFoundError("tmux is not installed; the programs run in it")
        self._folder = tempfile.TemporaryDirectory(prefix="screen-")
        # `-f /dev/null`: ignore the user's tmux configuration.
        command = [tmux, "-f", "/dev/null", "-S", f"{self._folder.name}/tmux", "-C", "new-session"]
        size = ["-x", str(columns), "-y", str(rows), "sleep infinity"]
        environ = _as_installed(self._folder.name)
        self._tmux = subprocess.Popen(command + size, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
        assert self._tmux.stdin is not None
        assert self._tmux.stdout is not None
        self._to: IO[bytes] = self._tmux.stdin
        self._from: IO[bytes] = self._tmux.stdout
        self._reply()
        self._ask("refresh-client -f no-output")
        for option in ("default-terminal tmux-256color", "status off", "remain-on-exit on", "escape-time 0"):
            self._ask(f"set-option -g {option}")
        self.began = time.perf_counter()
        self._program: psutil.Process | None = None

    def start(self, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        """Replaces the running program; `began` is the start time from `time.perf_counter`."""
        more = [f"-e {shlex.quote(f'{name}={value}')}" for name, value in (environ or {}).items()]
        self._ask("send-keys -R")
        self._ask("clear-history")
        self.began = time.perf_counter()
        self._ask(" ".join(["respawn-pane -k", *more, shlex.quote(f"exec {shlex.join(argv)}")]))
        self._program = psutil.Process(int(self._ask("display-message -p '#{pane_pid}'")[0]))

    def text(self) -> str:
        """Returns the text of the screen, without colours."""
        return "\n".join(self._ask("capture-pane -p"))

    def until(self, holds: Callable[[str], bool], timeout_s: float = DEADLINE_S) -> float:
        """Returns the seconds from the start until `holds(screen)` is true. Raises `NeverShown`."""
        while not holds(text := self.text()):
            if time.perf_counter() - self.began > timeout_s:
                raise NeverShown(f"not on screen after {timeout_s:g} s:\n{text}")
            time.sleep(LOOK_S)
        return time.perf_counter() - self.began

    def press(self, *keys: str) -> None:
        """Presses keys, given by their tmux names."""
        self._ask(f"send-keys {shlex.join(keys)}")

    def usage(self) -> Usage:
        """Returns the resources used so far."""
        assert self._program is not None, "nothing was started"
        cpu_s, peak_mib = 0.0, 0.0
        for process in [self._program, *self._program.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError):
                times = process.cpu_times()
                cpu_s += _cpu_s(process.pid) + times.children_user + times.children_system
                peak_mib += _peak_mib(process.pid)
        return Usage(cpu_s, peak_mib)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._to.write(b"kill-server\n")
            self._to.close()
        self._tmux.wait(10)
        self._from.close()
        self._folder.cleanup()

    def _ask(self, command: str) -> list[str]:
        """Sends a command and returns the reply. Raises `RuntimeError` if tmux reports an error."""
        self._to.write(command.encode() + b"\n")
        self._to.flush()
        return self._reply()

    def _reply(self) -> list[str]:
        """Returns the next block of output, skipping notices between blocks."""
        while not (line := self._line()).startswith("%begin"):
            pass
        lines: list[str] = []
        while not (line := self._line()).startswith(("%end", "%error")):
            lines.append(line)
        if line.startswith("%error"):
            raise RuntimeError(f"tmux: {' '.join(lines)}")
        return lines

    def _line(self) -> str:
        line = self._from.readline()
        if not line:
            raise RuntimeError("tmux is gone")
        return line.decode(errors="replace").rstrip("\n")


def _as_installed(folder: str) -> dict[str, str]:
    """Returns the environment with a bytecode cache, as an installed program has one, and without the view settings of
    the user, which may choose another chart."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own = {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "XDG_STATE_HOME": f"{folder}/state"}
    return environ | {"TERM": "xterm-256color"} | own


def _cpu_s(pid: int) -> float:
    """Returns the CPU time of a process, user and system, in nanoseconds instead of clock ticks of 10 ms."""
    return time.clock_gettime((~pid << 3) | 2)


def _peak_mib(pid: int) -> float:
    """Returns the peak resident memory of a process since its exec."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
