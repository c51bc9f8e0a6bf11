"""The offset of this host's clock to that of host 0, from round trips over the store.

A host announces a measurement, and asks once host 0 is ready. Of several round trips the shortest one bounds the offset
best: host 0 read its clock somewhere between the question and the answer. Both read the clock of the run, which does
not jump when the clock of the system is set.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from engine.launch import stores
from engine.launch.stores import Store
from tputui.engine_api import run_clock

ROUND_TRIPS = 8
INTERVAL_S = 300.0
"""Seconds between two measurements of a host."""
SET_CHECK_S = 1.0
"""Between two checks whether the clock of the system was set."""
SESSIONS = "clock/sessions"
"""Key of the number of measurements that were announced."""
SESSION_WAIT_S = 120.0
"""How long a host waits until host 0 has time for it, behind hundreds of others."""
_ANSWER_S = 2.0
"""How long an answer may take, and how long host 0 waits for a question."""
_HOT_POLL_S = 0.0005
"""Between polls of a host that measures."""
_IDLE_POLL_S = 0.2
"""Between polls for a host that wants to measure."""


class Offset(NamedTuple):
    offset_s: float
    """Seconds that the clock of this host is ahead."""
    error_s: float
    """Half of the round trip."""


def measure(store: Store, clock: Callable[[], float] = run_clock.now) -> Offset | None:
    """Measures the offset; None if host 0 did not answer."""
    session = int(store.add(SESSIONS, 1))
    if stores.wait_for(store, f"clock/{session}/ready", SESSION_WAIT_S) is None:
        return None
    best: Offset | None = None
    for trip in range(ROUND_TRIPS):
        began, tick = clock(), time.monotonic()
        store.set(f"clock/{session}/question/{trip}", "")
        answer = stores.wait_for(store, f"clock/{session}/answer/{trip}", _ANSWER_S, _HOT_POLL_S)
        took_s = time.monotonic() - tick
        if answer is None:
            break
        store.delete_key(f"clock/{session}/answer/{trip}")
        if best is None or took_s / 2 < best.error_s:
            best = Offset(began + took_s / 2 - float(answer), took_s / 2)
    return best


class ClockServer:
    """Answers the questions of the other hosts, one host at a time, in a thread of host 0."""

    def __init__(self, store: Store, clock: Callable[[], float] = run_clock.now) -> None:
        """`store` is a connection of its own."""
        self._store = store
        self._clock = clock
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="tputui-clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(_ANSWER_S)

    def _serve(self) -> None:
        session = 1
        try:
            while not self._closing.wait(_IDLE_POLL_S):
                while session <= int(self._store.add(SESSIONS, 0)) and not self._closing.is_set():
                    self._answer(session)
                    session += 1
        except RuntimeError:
            # The connection is closed: this process is about to end.
            return

    def _answer(self, session: int) -> None:
        self._store.set(f"clock/{session}/ready", "")
        for trip in range(ROUND_TRIPS):
            key = f"clock/{session}/question/{trip}"
            if stores.wait_for(self._store, key, _ANSWER_S, _HOT_POLL_S) is None:
                break
            self._store.set(f"clock/{session}/answer/{trip}", repr(self._clock()))
            self._store.delete_key(key)
        self._store.delete_key(f"clock/{session}/ready")
