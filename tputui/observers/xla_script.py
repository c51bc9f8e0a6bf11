"""Starts the observer of torch_xla in a script of the user: wraps `torch_xla.sync`, and follows optimizers."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from tputui.observers.sinks import process_sink
from tputui.observers.xla_observer import XlaObserver, follow_optimizers

_lock = threading.Lock()
_started: list[XlaObserver] = []


def start() -> None:
    """Observes torch_xla, which is imported. Later calls do nothing."""
    with _lock:
        if _started:
            return
        observer = XlaObserver(process_sink, reports_totals=True)
        _started.append(observer)
    module: Any = sys.modules["torch_xla.torch_xla"]
    module.sync = wrapped = _observed(module.sync, observer)
    package: Any = sys.modules["torch_xla"]
    if hasattr(package, "sync"):
        package.sync = wrapped
    follow_optimizers(observer)
    process_sink.before_close(observer.flush)
    os.register_at_fork(after_in_child=observer.after_fork)


def _observed(real: Callable[..., None], observer: XlaObserver) -> Callable[..., None]:
    @functools.wraps(real)
    def sync(*args: Any, **kwargs: Any) -> None:
        place = observer.begin(sys._getframe(1))
        real(*args, **kwargs)
        observer.end(place)

    return sync
