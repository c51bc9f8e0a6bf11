"""Ties the life of a process to that of its parent."""

from __future__ import annotations

import ctypes
import os
import signal

from tputui.engine_api import ExitCode

_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG."""


def die_with(parent: int) -> None:
    """From now on the kernel kills this process when its parent, the process `parent`, ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ExitCode.FAILED)
