"""Combines compilations of one kind, so that a storm of them writes at most one event a second per line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from tputui.telemetry.events import CodeFrame, CompileObserved

INTERVAL_S = 1.0
FIRST_EMITTED = 8
"""Events of a kind that are emitted at once."""
KINDS_MAX = 256
"""Later kinds are not combined."""
_Kind = tuple[str, str, bool, CodeFrame | None]


class CompileReports:
    """Emits `CompileObserved` events. Not thread-safe."""

    def __init__(self, emit: Callable[[CompileObserved], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._last: dict[_Kind, float] = {}
        self._counts: Counter[_Kind] = Counter()
        self._waiting: dict[_Kind, CompileObserved] = {}

    def add(self, event: CompileObserved) -> None:
        """Emits the event, or adds it to the next one of its kind. Those that name inputs are never combined."""
        kind = (event.program, event.cause, event.warm_up, event.user_frame)
        now = self._clock()
        last = self._last.get(kind)
        self._counts[kind] += 1
        if event.changed_inputs or self._counts[kind] <= FIRST_EMITTED or last is None or now - last >= INTERVAL_S:
            if last is not None or len(self._last) < KINDS_MAX:
                self._last[kind] = now
            waiting = self._waiting.pop(kind, None)
            if waiting is not None and event.changed_inputs:
                self._emit(waiting)
                waiting = None
            self._emit(_combined(waiting, event))
        else:
            self._waiting[kind] = _combined(self._waiting.get(kind), event)

    def flush(self) -> None:
        """Emits what waits."""
        waiting, self._waiting = self._waiting, {}
        for event in waiting.values():
            self._emit(event)


def _combined(earlier: CompileObserved | None, event: CompileObserved) -> CompileObserved:
    if earlier is None:
        return event
    parts = [one.seconds for one in (earlier, event) if one.seconds is not None]
    return msgspec.structs.replace(event, count=earlier.count + event.count, seconds=sum(parts) if parts else None)
