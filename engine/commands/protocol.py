"""What an engine command tells the command that started it: JSON objects, one a line, on a descriptor of their own.

    {"rows": 512, "of": 1797}   how far it is
    {"note": "..."}             a sentence for the user
    {"result": {...}}           what came of it; the last line
    {"error": "..."}            why nothing came of it; the last line

Standard output stays free for data, and standard error for what libraries print. Must not import torch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from engine.errors import Refused, text_of
from tputui.config import ConfigError
from tputui.exit_codes import ExitCode

PROGRESS_INTERVAL_S = 2.0


class ProgressWriter:
    """Writes what there is to tell."""

    def __init__(self, fd: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`fd` is where the lines go: a pipe that the starting command reads, or 2."""
        self._fd = fd
        self._clock = clock
        self._progress_at = clock()

    def progress(self, rows: int, of: int) -> None:
        """Tells how far it is, at most every other second."""
        now = self._clock()
        if now - self._progress_at >= PROGRESS_INTERVAL_S:
            self._progress_at = now
            self._write({"rows": rows, "of": of})

    def note(self, text: str) -> None:
        """Tells the user something; the work goes on."""
        self._write({"note": text})

    def result(self, value: dict[str, Any]) -> None:
        """Tells what came of it."""
        self._write({"result": value})

    def error(self, text: str) -> None:
        """Tells why nothing came of it."""
        self._write({"error": text})

    def _write(self, fact: dict[str, Any]) -> None:
        left = msgspec.json.encode(fact) + b"\n"
        # Nobody may be listening any more; the work itself does not depend on that.
        with contextlib.suppress(BrokenPipeError):
            while left:
                left = left[os.write(self._fd, left) :]


def serve(teller: ProgressWriter, work: Callable[[], dict[str, Any]]) -> ExitCode:
    """Does the work, tells its result or its error, and gives the exit code: 0, 2 refused, 3 failed."""
    try:
        # What the user's modules print must not mix with the data.
        with contextlib.redirect_stdout(sys.stderr):
            teller.result(work())
    except (Refused, ConfigError) as error:
        teller.error(str(error))
        return ExitCode.USAGE
    except BrokenPipeError:
        # The reader of the data has enough.
        return ExitCode.DONE
    except Exception as error:
        traceback.print_exc()
        teller.error(f"{type(error).__name__}: {text_of(error)}")
        return ExitCode.FAILED
    return ExitCode.DONE
