"""Reports of an engine command to the process that started it: JSON objects, one per line, on a separate descriptor.

    {"rows": 512, "of": 1797}   progress
    {"note": "..."}             a sentence for the user
    {"result": {...}}           the result; the last line
    {"error": "..."}            why there is no result; the last line

Standard output stays free for data, and standard error for prints of libraries. Must not import torch.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from engine.errors import Refused
from tputui.config import ConfigError
from tputui.engine_api import ExitCode
from tputui.reporting import text_of, write_all

PROGRESS_INTERVAL_S = 2.0


class ProgressWriter:
    def __init__(self, fd: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`fd` is the descriptor to write to: a pipe of the starting process, or 2."""
        self._fd = fd
        self._clock = clock
        self._progress_at = clock()

    def progress(self, rows: int, of: int) -> None:
        """Reports progress, at most every other second."""
        now = self._clock()
        if now - self._progress_at >= PROGRESS_INTERVAL_S:
            self._progress_at = now
            self._write({"rows": rows, "of": of})

    def note(self, text: str) -> None:
        """Reports a sentence for the user; the work continues."""
        self._write({"note": text})

    def result(self, value: dict[str, Any]) -> None:
        self._write({"result": value})

    def error(self, text: str) -> None:
        """Reports why there is no result."""
        self._write({"error": text})

    def _write(self, message: dict[str, Any]) -> None:
        # The reader may be gone; the work does not depend on it.
        with contextlib.suppress(BrokenPipeError):
            write_all(self._fd, msgspec.json.encode(message) + b"\n")


def run_command(writer: ProgressWriter, work: Callable[[], dict[str, Any]]) -> ExitCode:
    """Does the work, reports its result or its error, and returns the exit code: 0, 2 refused, 3 failed."""
    try:
        # Prints of the user's modules must not mix with the data.
        with contextlib.redirect_stdout(sys.stderr):
            writer.result(work())
    except (Refused, ConfigError) as error:
        writer.error(str(error))
        return ExitCode.USAGE
    except BrokenPipeError:
        # The reader of the data needs no more.
        return ExitCode.DONE
    except Exception as error:
        traceback.print_exc()
        writer.error(f"{type(error).__name__}: {text_of(error)}")
        return ExitCode.FAILED
    return ExitCode.DONE
