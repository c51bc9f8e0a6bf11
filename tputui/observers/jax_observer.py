"""Observes JAX in this process: compilations, reads of values from the device, and callbacks, by line of code."""

from __future__ import annotations

import os
import sys
import threading

from tputui.observers.jax_callbacks import JaxCallbacks
from tputui.observers.jax_compiles import JaxCompiles
from tputui.observers.jax_reads import JaxReads
from tputui.observers.sinks import attaching

_lock = threading.Lock()
_started: list[object] = []


def start() -> None:
    """Starts to observe; a second call does nothing."""
    jax = sys.modules.get("jax")
    with _lock:
        if jax is None or _started:
            return
        reads: JaxReads | None = None
        with attaching("jax", "jax", "reads"):
            reads = JaxReads(sys.modules["jax._src.array"].ArrayImpl)
            _started.append(reads)
            os.register_at_fork(after_in_child=reads.after_fork)
            callbacks = JaxCallbacks(reads.paused)
            _started.append(callbacks)
            os.register_at_fork(after_in_child=callbacks.after_fork)
        with attaching("jax", "jax", "compilations"):
            compiles = JaxCompiles(jax, reads.on_backend if reads is not None else lambda _: None)
            _started.append(compiles)
            os.register_at_fork(after_in_child=compiles.after_fork)


def is_started() -> bool:
    """Whether this process is observed."""
    return bool(_started)
