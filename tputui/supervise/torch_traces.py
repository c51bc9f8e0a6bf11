"""Reads the traces that torch writes for a command of the user, if `TORCH_TRACE` is set in its environment.

The observers inside the process report the same compilations with better lines; where they are loaded, only what they
do not see is taken from the traces: the records of torch-tpu.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from tputui.logs.torch_trace import NAME, TorchTraceReader
from tputui.supervise.training_processes import environment_of
from tputui.telemetry.events import CompileLimitReached, CompileObserved, Event, GraphBroken, ObservationFailed
from tputui.telemetry.journal import SUFFIX, Tail

VARIABLE = "TORCH_TRACE"
FOLDER = "torch-trace"
"""Where tputui lets torch write its traces, in the directory of the run."""
FILES_MAX = 256
ENTRIES_MAX = 4_096
HELD_S = 3.0
"""Time for which events wait, until it is known whether the process is observed from inside."""
HELD_MAX = 4_096
FINAL_READS_MAX = 64
"""Parts of a trace that are read after the command has ended, 1 MB each."""
_BEGINNING_BYTES = 1 << 16


def variables(environ: Mapping[str, str], run_dir: Path) -> dict[str, str]:
    """Variables that make torch write traces, if torch-tpu is installed: it cannot be observed in another way.

    Empty if the user has set where traces are written. Other programs are observed without traces, which are large.
    """
    if VARIABLE in environ or find_spec("torch_tpu") is None:
        return {}
    return {VARIABLE: str(run_dir / FOLDER)}


class TorchTraces:
    """The traces of one command. Not thread-safe."""

    def __init__(self, run_dir: Path, pid: int, cwd: Path, emit: Callable[[Event], None]) -> None:
        self._run_dir = run_dir
        self._emit = emit
        self._since = time.time() - 1.0
        self._readers: dict[Path, TorchTraceReader] = {}
        self._held: list[tuple[float, Event]] = []
        self._pid = pid
        self._is_environ_known = False
        self._cwd = cwd
        self._folder: Path | None = None

    def read(self, *, final: bool) -> None:
        """Reads what was written since the last call; `final`: nothing follows."""
        if not self._is_environ_known:
            self._find_folder()
        if self._folder is None:
            return
        self._find(self._folder)
        now = time.monotonic()
        for path, reader in list(self._readers.items()):
            try:
                for _ in range(FINAL_READS_MAX if final else 1):
                    events = reader.read()
                    self._held += [(now, event) for event in events[: max(0, HELD_MAX - len(self._held))]]
                    if not reader.has_more:
                        break
            except OSError:
                del self._readers[path]
        due = [event for since, event in self._held if final or now >= since + HELD_S]
        if due:
            self._held = self._held[len(due) :]
            is_observed = any(_observes_compile(path) for path in self._run_dir.glob(f"observer-*{SUFFIX}"))
            for event in due:
                if not (is_observed and _is_of_compile(event)):
                    self._emit(event)

    def _find_folder(self) -> None:
        """Looks up where torch writes traces. The environment of a process that has just started may be empty yet."""
        if environ := environment_of(self._pid):
            self._is_environ_known = True
            folder = environ.get(VARIABLE, "")
            self._folder = self._cwd / folder if folder else None

    def _find(self, folder: Path) -> None:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, ENTRIES_MAX):
                path = Path(entry.path)
                if path in self._readers or len(self._readers) >= FILES_MAX or not NAME.fullmatch(entry.name):
                    continue
                with contextlib.suppress(OSError):
                    if entry.is_file(follow_symlinks=False) and entry.stat().st_mtime >= self._since:
                        self._readers[path] = TorchTraceReader(path)


def _observes_compile(journal: Path) -> bool:
    """Whether the observers of a process could attach to torch.compile, by the beginning of their journal."""
    try:
        tail = Tail(journal)
    except OSError:
        return True
    with contextlib.closing(tail):
        events = [record.event for record in tail.read(_BEGINNING_BYTES)]
    failed = [event for event in events if isinstance(event, ObservationFailed) and event.runtime == "torch_compile"]
    return not any("compilations" in event.missing for event in failed)


def _is_of_compile(event: Event) -> bool:
    """Whether an event is one that the observer of torch.compile reports, too."""
    return isinstance(event, CompileObserved | GraphBroken | CompileLimitReached) and event.runtime == "torch_compile"
