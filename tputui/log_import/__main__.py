"""The process that reads a log for a viewer: `python -m tputui.log_import [--follow] LOG`.

Prints one line of JSON as soon as the run directory can be opened, then reads on. Ends when the log was read, with
`--follow` when the viewer closes its end of the standard input, which also ends a process that is still reading. If
another process reads the same log, waits until that one has read it or, with `--follow`, until it can take its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

from tputui import user_cache
from tputui.exit_codes import ExitCode
from tputui.log_import import place
from tputui.log_import.importer import LogImport, Replaced
from tputui.log_import.place import FOLLOW
from tputui.logs.rows import UnknownLog
from tputui.telemetry import rundir

INTERVAL_S = 0.3
"""Least seconds between two looks at a log that is followed ..."""
INTERVAL_TIMES = 10.0
"""... and this many times as long as a look takes."""
REPLACED = "the log was replaced; opening it again reads the new one"


def main(arguments: list[str]) -> ExitCode:
    log, follows = Path(arguments[-1]), FOLLOW in arguments[:-1]
    try:
        run_dir = place.run_dir_of(log, os.environ)
        user_cache.create(run_dir.parent)
        lock = os.open(place.lock_path(run_dir), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        is_told = False
        while not _locked(lock):
            is_told = is_told or _tell_if_open(run_dir)
            state = place.read_state(run_dir)
            if is_told and not follows and state is not None and state.at_end:
                return ExitCode.DONE
            if _is_left(INTERVAL_S):
                return ExitCode.DONE
        _read(log, run_dir, follows=follows, is_told=is_told)
    except (UnknownLog, OSError, UnicodeEncodeError) as error:
        _tell(error=_sentence(error, log))
        return ExitCode.USAGE
    return ExitCode.DONE


def _read(log: Path, run_dir: Path, *, follows: bool, is_told: bool) -> None:
    log_import = LogImport(log, run_dir)
    if log_import.is_complete and not follows:
        if not is_told:
            _tell(run_dir=str(run_dir))
        return
    log_import.begin()
    try:
        if not is_told:
            _tell(run_dir=str(run_dir))
        log_import = _read_to_end(log_import, log, run_dir)
        while follows and not _is_left(0.0):
            began = time.monotonic()
            log_import.read(_is_left)
            if _is_left(max(INTERVAL_S, INTERVAL_TIMES * (time.monotonic() - began))):
                break
        log_import.end(is_whole=log_import.was_read)
    except Replaced:
        log_import.end(is_whole=False, reason=REPLACED)
    except OSError as error:
        log_import.end(is_whole=False, reason=f"the log can no longer be read: {error.strerror or error}")
    finally:
        log_import.close()


def _read_to_end(log_import: LogImport, log: Path, run_dir: Path) -> LogImport:
    """Reads what there is; from the beginning if the log turns out to be another one than was read before."""
    try:
        log_import.read(_is_left)
        return log_import
    except Replaced:
        log_import.close()
    (run_dir / place.STATE_NAME).unlink(missing_ok=True)
    anew = LogImport(log, run_dir)
    anew.begin()
    anew.read(_is_left)
    return anew


def _locked(lock: int) -> bool:
    """Whether this process has the lock now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tell_if_open(run_dir: Path) -> bool:
    """Prints the run directory if the process that writes there has created it."""
    if place.read_state(run_dir) is None or rundir.manifest_if_readable(run_dir) is None:
        return False
    _tell(run_dir=str(run_dir))
    return True


def _tell(**message: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _is_left(timeout_s: float = 0.0) -> bool:
    """Whether the viewer has closed the standard input, within a time."""
    readable, _, _ = select.select([0], [], [], timeout_s)
    return bool(readable) and not os.read(0, 1)


def _sentence(error: Exception, log: Path) -> str:
    if isinstance(error, OSError):
        return f"{log}: cannot be imported: {error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    return f"{log}: cannot be imported: its path is not UTF-8" if isinstance(error, UnicodeEncodeError) else str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
