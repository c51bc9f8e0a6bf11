"""`ReportedProcess`: what the journal has of any process that trains, of a script or of the engine.

Must not touch a device: it responds within a fraction of a second whatever the loop does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from tputui.reporting.failures import located
from tputui.reporting.process_exit import CLOSE_TIMEOUT_S, close_journal
from tputui.reporting.progress import Progress
from tputui.reporting.request_server import RequestServer
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter

HEARTBEAT_INTERVAL_S = 0.5


class ReportedProcess:
    """A process of a run, or a rank that is a thread of one: its heartbeats, its receipts of requests, and its end."""

    def __init__(
        self, reporter: Reporter, progress: Progress, *, answers: bool = True, taken: Iterable[str] = ()
    ) -> None:
        """`answers` and `taken` as of `RequestServer`."""
        self.reporter = reporter
        self.progress = progress
        self.server = RequestServer(reporter, progress, answers=answers, taken=taken)
        self._beat_due = 0.0

    def emit(self, event: ev.Event) -> None:
        self.reporter.emit(event)

    def beat(self) -> None:
        """Sends a heartbeat, unless the last one is newer than the interval. Called by one thread, not by the loop's,
        which may be inside a long compilation."""
        now = time.monotonic()
        if now < self._beat_due:
            return
        self._beat_due = now + HEARTBEAT_INTERVAL_S
        progress, doing = self.progress, self.progress.activity
        self.emit(
            ev.HeartbeatSent(
                t=time.time(),
                phase=doing.phase,
                phase_s=max(0.0, now - doing.since),
                step=progress.step,
                epoch=progress.epoch,
                waits_for=progress.waits_for,
            )
        )

    def report_failure(self, failure: ev.FailureRaised) -> None:
        """Reports the error that ends training."""
        self.emit(located(failure, self.progress))

    def report_end(self, outcome: ev.Outcome, reason: str) -> None:
        """Reports the end of training, and the steps whose values were not read before it."""
        if (unread := self.progress.unread()) is not None:
            self.emit(unread)
        self.emit(ev.TrainingEnded(t=time.time(), outcome=outcome, step=self.progress.step, reason=reason))

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        close_journal(self.reporter, timeout_s)
