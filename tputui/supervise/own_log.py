"""The supervisor's own log: lines with the time on its standard error, which is a file in the run directory."""

from __future__ import annotations

import contextlib
import sys
import time


def log_line(text: str) -> None:
    """Writes a line; a full disk must not end the supervisor."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()
