"""`RunRecord`: what a supervisor writes about its run: the journal, its own log and the cached states."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tputui.cache.cache_writer import CacheWriter, SealedFrame
from tputui.supervise.log_tail import LogTail
from tputui.supervise.worker_state import journals_of, worker_journals
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.compressed import CompressionError, seal
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.redaction import masked_text
from tputui.telemetry.reporter import Reporter


def log_line(text: str) -> None:
    """Writes a line to the log of the supervisor, its standard error, with secrets masked; a full disk must not end
    it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {masked_text(text)}\n")
        sys.stderr.flush()


class ProblemLog:
    """Writes a line when a problem appears, changes or is over, instead of each time it is found."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._problem: str | None = None

    def update(self, problem: str | None, over: str = "") -> None:
        """The problem that there is now, as a sentence; `over` is written if there is none any more."""
        if problem == self._problem:
            return
        self._problem = problem
        if line := problem or over:
            self._write(line)


class RunRecord:
    """The record of one supervisor. No error of a file ends it."""

    def __init__(self, run_dir: Path, host_index: int, log: Path) -> None:
        """Opens the journal. `log` gets the output of the command. Raises `FileExistsError` and `OSError`."""
        self._run_dir = run_dir
        self._host_index = host_index
        self.reporter = Reporter(run_dir, "supervisor", host_index)
        """Writes the journal."""
        self.output = LogTail(log)
        """The output of the command as it grows."""
        self._cache = CacheWriter(run_dir, journals_of(host_index))
        self._journal_problem, self._cache_problem = ProblemLog(log_line), ProblemLog(log_line)
        self._own_problem = ProblemLog(self.warn)

    def emit(self, event: ev.Event) -> None:
        self.reporter.emit(event)

    def warn(self, text: str) -> None:
        log_line(text)
        self.reporter.emit(ev.WarningRaised(t=time.time(), text=text))

    def copy_output(self, *, final: bool) -> None:
        """Copies new lines of output to the journal. Raises `OSError`."""
        for line in self.output.read(final=final):
            self.reporter.emit(ev.LogWritten(t=time.time(), line=line))

    def poll(self) -> None:
        """Updates the cached states, and logs problems with files."""
        failure = self.reporter.failure
        problem = f"the journal cannot be written: {failure}"
        self._journal_problem.update(failure and problem, "the journal can be written again")
        self._cache.poll()
        self._log_cache_failure()

    @contextlib.contextmanager
    def surviving(self, files: str) -> Iterator[None]:
        """Neither files that cannot be read nor a bug end the supervisor: training would go on without it."""
        try:
            yield
        except OSError as error:
            self._own_problem.update(f"{files} cannot be read: {error.strerror or error}")
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
            self._own_problem.update(f"supervision is incomplete, because of a bug in tputui: {problem}")

    def close(self, flush_s: float) -> None:
        """Closes the journal, whose last event is retried for `flush_s` seconds, and the log."""
        if not self.reporter.flush(flush_s):
            log_line(f"the end event could not be written: {self.reporter.failure}")
        self.reporter.close()
        self.output.close()

    def seal(self, config: dict[str, Any], is_own: Callable[[str], bool]) -> None:
        """Removes what was half written, and if the configuration asks for it, seals the journals of workers whose file
        names `is_own` accepts; one that cannot be sealed stays as it is."""
        if self._host_index == 0:
            # Files of a save that was interrupted; their writer, on this host, is gone.
            rundir.clear_half_written(self._run_dir)
        self._cache.finish()
        report = config.get("report")
        if isinstance(report, dict) and report.get("seal"):
            for path in worker_journals(self._run_dir):
                if is_own(path.name):
                    self._seal(path)
        self._log_cache_failure()

    def _seal(self, path: Path) -> None:
        frames: list[SealedFrame] = []
        try:
            target = seal(path, lambda offset, first_seq: frames.append(SealedFrame(offset, first_seq)))
        except (CompressionError, OSError) as error:
            log_line(f"{path.name} was not sealed and is unchanged: {error}")
        else:
            self._cache.retarget_to_sealed(path.name.removesuffix(SUFFIX), target.name, frames)

    def _log_cache_failure(self) -> None:
        problem = "the state cache cannot be written, so opening this run takes longer"
        self._cache_problem.update(self._cache.error and f"{problem}: {self._cache.error}")
