"""Isolates the tests from the machine, and the machine from the tests.

Before the first test the user's settings are removed from the environment, and the temporary directory, the home
directory and the state of tools become directories of this session. After the last one the session fails if it
leaves a process or a file behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from threading import Event

from tests import forked
from tests.deadline import DEADLINE_S

REPOSITORY = Path(__file__).parents[1]
FOREIGN = (
    "TPUTUI_", "TEXTUAL", "PJRT_", "XLA_", "XRT_", "TPU_", "LIBTPU_", "LC_", "XDG_", "HYPOTHESIS_", "CLICOLOR"
)  # fmt: skip
"""Prefixes of environment variables that would change the results of tests."""
FOREIGN_NAMES = (
    "BROWSER", "COLORTERM", "COLUMNS", "CPU_NUM_DEVICES", "FORCE_COLOR", "KITTY_WINDOW_ID", "KONSOLE_VERSION",
    "LANGUAGE", "LINES", "NO_COLOR", "PYTHONDEVMODE", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING",
    "PYTHONOPTIMIZE", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONWARNINGS", "SSH_CONNECTION",
    "SSH_TTY", "STY", "TERM_PROGRAM", "TMUX", "VTE_VERSION", "WT_SESSION", "XTERM_VERSION",
)  # fmt: skip
KEPT = frozenset({"TPUTUI_DATA"})
"""Where data sets lie that were fetched; tests that need one are skipped without it."""
SETTINGS = {
    "TERM": "xterm-256color",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    # Most runs train a few steps, which gain nothing from the seconds that the compiler spends on optimisation.
    "XLA_FLAGS": "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1",
    # The tests themselves fill the cores: further threads of torch in each process only wait for them.
    "OMP_NUM_THREADS": "1",
}
OWN = frozenset({".pytest_cache", "__pycache__", ".mypy_cache", ".ruff_cache", "snapshot_report.html"})
"""What pytest and its like leave, at the top of a directory."""
OF_TORCH = "_remote_module_non_scriptable."
"""How the names begin of what torch writes to a temporary directory as its distributed part is imported, and removes
when Python exits: a module, and its compiled form."""


class Session:
    """One run of the tests, on this machine."""

    def __init__(self) -> None:
        """Replaces the environment. Only in the process that the user started, before it starts others."""
        self._folder = Path(tempfile.mkdtemp(prefix="tputui-tests-"))
        self._before = {folder: _names(folder) for folder in {REPOSITORY, Path.cwd()}}
        # Some tests read runs as another user, who must be able to reach their directories.
        self._folder.chmod(0o755)
        outside = tempfile.gettempdir()
        for name in list(os.environ):
            if name not in KEPT and (name.startswith(FOREIGN) or name in FOREIGN_NAMES):
                del os.environ[name]
        for name in ("tmp", "home", "tools"):
            (self._folder / name).mkdir()
        os.environ.update(
            SETTINGS,
            HOME=str(self._folder / "home"),
            HYPOTHESIS_STORAGE_DIRECTORY=str(self._folder / "tools"),
            XDG_CACHE_HOME=str(self._folder / "tools"),
            XDG_CONFIG_HOME=str(self._folder / "tools"),
            # pytest's own directories outlive the session, for inspection.
            PYTEST_DEBUG_TEMPROOT=outside,
            TMPDIR=str(self._folder / "tmp"),
        )
        os.environ[forked.SOCKET] = str(self._folder / "template")
        # `nohup` and the background commands of a shell have these ignored, and processes inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        # Without compiled modules the hundreds of processes that tests start take twice the time to begin.
        sys.dont_write_bytecode = False
        time.tzset()
        tempfile.tempdir = None

    def left(self) -> list[str]:
        """Processes and files that were left behind, in words; the processes are killed."""
        remains = [f"process {pid}: {command}" for pid, command in self._end_processes()]
        # Files, since torch makes an empty directory as it is imported, and a killed process cannot remove that.
        files = [path for name in ("tmp", "home") for path in _files(self._folder / name)]
        # W&B logs to the cache of its user without a setting for it.
        remains += [f"file {path}" for path in files if ".cache/wandb/logs" not in str(path)]
        for folder, before in self._before.items():
            remains += [f"file {folder / name}" for name in sorted(_names(folder) - before)]
        return remains

    def close(self) -> None:
        """Removes the directories."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_processes(self) -> list[tuple[int, str]]:
        """Kills the processes of the session that are still alive after a wait, and returns them."""
        deadline = time.monotonic() + DEADLINE_S
        while (living := self._processes()) and time.monotonic() < deadline:
            Event().wait(0.1)
        for pid, _ in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return living

    def _processes(self) -> list[tuple[int, str]]:
        """Other processes with the temporary directory of this session in their environment."""
        mark, processes = os.fsencode(f"TMPDIR={self._folder / 'tmp'}"), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                # A process that has ended and was not waited for has no environment.
                if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    processes.append((int(entry.name), command[:200]))
        return processes


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir() and not path.name.startswith(OF_TORCH))


def _names(folder: Path) -> frozenset[str]:
    """Names at the top of a directory, where files with relative names would be written."""
    try:
        return frozenset(os.listdir(folder)) - OWN
    except OSError:
        return frozenset()
