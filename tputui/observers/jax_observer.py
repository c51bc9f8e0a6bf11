"""Observes JAX in this process: compilations, and reads of values from the device by line of code."""

from __future__ import annotations

import os
import sys
import threading

from tputui.observers.jax_compiles import JaxCompiles
from tputui.observers.jax_reads import JaxReads

_lock = threading.Lock()
_started: list[object] = []


def start() -> None:
    """Starts to observe; a second call does nothing."""
    jax = sys.modules.get("jax")
    with _lock:
        if jax is None or _started:
            return
        reads = JaxReads(sys.modules["jax._src.array"].ArrayImpl)
        compiles = JaxCompiles(jax, reads.on_backend)
        _started.extend((reads, compiles))
        os.register_at_fork(after_in_child=reads.after_fork)
        os.register_at_fork(after_in_child=compiles.after_fork)


def is_started() -> bool:
    """Whether this process is observed."""
    return bool(_started)
