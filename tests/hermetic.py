"""The machine kept out of the tests, and the tests out of the machine.

Before the first test the user's settings are removed from the environment, and the temporary directory, the home
directory and the state of tools become directories of this session. After the last one the session fails if a process
of it still lives or if a file lies where none should.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from threading import Event

REPOSITORY = Path(__file__).parents[1]
FOREIGN = (
    "TPUTUI_", "TEXTUAL", "PJRT_", "XLA_", "XRT_", "TPU_", "LIBTPU_", "LC_", "XDG_", "HYPOTHESIS_", "CLICOLOR"
)  # fmt: skip
"""Beginnings of the names of variables that change what is tested."""
FOREIGN_NAMES = (
    "BROWSER", "COLORTERM", "COLUMNS", "CPU_NUM_DEVICES", "FORCE_COLOR", "LANGUAGE", "LINES", "NO_COLOR",
    "PYTHONDEVMODE", "PYTHONIOENCODING", "PYTHONOPTIMIZE", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONUTF8",
    "PYTHONWARNINGS", "TERM_PROGRAM", "TMUX",
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
}
OWN = frozenset({".pytest_cache", "__pycache__", ".mypy_cache", ".ruff_cache", "snapshot_report.html"})
"""What pytest and its like leave, at the top of a directory."""
PATIENCE_S = 10.0
"""What processes that were ended have to be gone."""


class Session:
    """One run of the tests, on this machine."""

    def __init__(self) -> None:
        """Replaces the environment. Only in the process that the user started, before it starts others."""
        self._folder = Path(tempfile.mkdtemp(prefix="tputui-tests-"))
        self._before = {offset: _names(offset) for offset in {REPOSITORY, Path.cwd()}}
        # Tests look at runs as another user, who must be able to come as far as their directories.
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
            # pytest's own directories outlive the session, so that one can look into them.
            PYTEST_DEBUG_TEMPROOT=outside,
            TMPDIR=str(self._folder / "tmp"),
        )
        time.tzset()
        tempfile.tempdir = None

    def left(self) -> list[str]:
        """What was left behind, in words; the processes among it are ended."""
        found = [f"process {pid}: {words}" for pid, words in self._end_processes()]
        # Files, since torch makes an empty directory as it is imported, and a killed process cannot remove that.
        found += [f"file {path}" for name in ("tmp", "home") for path in _files(self._folder / name)]
        for offset, before in self._before.items():
            found += [f"file {offset / name}" for name in sorted(_names(offset) - before)]
        return found

    def close(self) -> None:
        """Removes the directories."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_processes(self) -> list[tuple[int, str]]:
        """The processes of the session that still live; one that is about to end is waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while (living := self._processes()) and time.monotonic() < deadline:
            Event().wait(0.1)
        for pid, _ in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return living

    def _processes(self) -> list[tuple[int, str]]:
        """Those that have this session's temporary directory in their environment, but this one."""
        mark, found = os.fsencode(f"TMPDIR={self._folder / 'tmp'}"), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                # A process that has ended and was not waited for has no environment.
                if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    found.append((int(entry.name), words[:200]))
        return found


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def _names(offset: Path) -> frozenset[str]:
    """What lies at the top of a directory, where whatever is written by a relative name lands."""
    try:
        return frozenset(os.listdir(offset)) - OWN
    except OSError:
        return frozenset()
