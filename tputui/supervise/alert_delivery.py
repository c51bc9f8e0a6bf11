"""Delivers alerts in threads, so that the loop of the supervisor never waits for a target.

One thread per target, so that a target that hangs delays no other. A failed attempt is repeated after a growing pause;
only a bounded number of alerts waits. At the end of the run there is a deadline for everything that is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Full, Queue, SimpleQueue

from tputui.supervise.alert_targets import AlertMessage, DeliveryError, Target
from tputui.telemetry import events as ev

PENDING_MAX = 16
"""Alerts that wait for one target; a further one fails at once."""
PAUSES_S = (1.0, 4.0, 15.0, 60.0)
"""Pauses before the second and further attempts."""
LAST_PAUSE_S = 1.0
"""Longest pause once the run has ended."""
_STOP_S = 2.0
"""Time for the threads to end after the deadline."""

Result = ev.AlertDelivered | ev.AlertFailed


class AlertDelivery:
    """The targets of one run."""

    def __init__(self, targets: Sequence[Target], environ: Mapping[str, str], log: Callable[[str], None]) -> None:
        """`log` takes the output of commands, in any thread."""
        self._results: SimpleQueue[Result] = SimpleQueue()
        self._senders = [_Sender(target, environ, log, self._results) for target in targets if target.kind != "bell"]

    def send(self, message: AlertMessage) -> None:
        """Delivers a message to every target, in the background."""
        for sender in self._senders:
            sender.send(message)

    def results(self) -> list[Result]:
        """What was delivered, or was given up, since the last call."""
        return [self._results.get() for _ in range(self._results.qsize())]

    def finish(self, within_s: float) -> list[Result]:
        """Waits until everything is delivered or given up, at most `within_s` seconds; returns the last results."""
        deadline = time.monotonic() + within_s
        for sender in self._senders:
            sender.hurry()
        for sender in self._senders:
            sender.join(deadline)
        for sender in self._senders:
            sender.abandon(within_s)
        return self.results()


class _Sender:
    """The thread of one target; it starts with the first alert."""

    def __init__(
        self, target: Target, environ: Mapping[str, str], log: Callable[[str], None], results: SimpleQueue[Result]
    ) -> None:
        self._target = target
        self._environ = environ
        self._log = log
        self._results = results
        self._queue: Queue[AlertMessage | None] = Queue(PENDING_MAX + 1)
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[int, AlertMessage] = {}
        """Messages without a result, by number."""
        self._numbers = 0
        self._why = ""
        """The error of the last attempt."""

    def send(self, message: AlertMessage) -> None:
        if self._queue.qsize() >= PENDING_MAX:
            why = f"{PENDING_MAX} alerts are already waiting for this target"
            self._results.put(
                ev.AlertFailed(t=time.time(), condition=message.condition, target=self._target.kind, why=why)
            )
            return
        with self._lock:
            self._numbers += 1
            self._open[self._numbers] = message
        self._queue.put(message)
        if self._thread is None:
            name = f"alerts to {self._target.kind}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Shortens pauses; the thread ends after the messages that are waiting."""
        self._hurry.set()
        if self._thread is not None:
            try:
                self._queue.put_nowait(None)
            except Full:
                return  # the deadline ends the thread

    def join(self, deadline: float) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def abandon(self, within_s: float) -> None:
        """Gives up what is left."""
        self._stop.set()
        with self._lock:
            left, self._open = list(self._open.values()), {}
        last = f"; the last error: {self._why}" if self._why else ""
        why = f"not delivered within {within_s:g} s after the end of the run{last}"
        for message in left:
            self._results.put(
                ev.AlertFailed(t=time.time(), condition=message.condition, target=self._target.kind, why=why)
            )
        if left and self._thread is not None:
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set() and (message := self._queue.get()) is not None:
            number += 1
            result = self._result_of(message)
            with self._lock:
                # After `abandon` the message has a result already.
                if result is not None and self._open.pop(number, None) is not None:
                    self._results.put(result)

    def _result_of(self, message: AlertMessage) -> Result | None:
        """Attempts to deliver until that succeeds or the attempts are used up; None if the supervisor ends."""
        kind, attempts, self._why = self._target.kind, 0, ""
        while True:
            attempts += 1
            try:
                self._target.deliver(message, self._environ, self._log, self._stop)
                return ev.AlertDelivered(t=time.time(), condition=message.condition, target=kind, attempts=attempts)
            except DeliveryError as error:
                self._why = str(error)
                if error.is_final or attempts > len(PAUSES_S):
                    after = f" ({attempts} attempts)" if attempts > 1 else ""
                    return ev.AlertFailed(
                        t=time.time(), condition=message.condition, target=kind, why=f"{error}{after}"
                    )
            self._hurry.wait(PAUSES_S[attempts - 1])
            if self._hurry.is_set():
                self._stop.wait(LAST_PAUSE_S)
            if self._stop.is_set():
                return None
