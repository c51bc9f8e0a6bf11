"""`RequestServer`: receives the requests to a run, and writes the receipts of this process: seen, applied, refused."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tputui.reporting import stacks
from tputui.reporting.progress import Progress
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.requests import Inbox, Request, answered_in


class RequestServer:
    """Receives each request once, and writes what became of it.

    One thread polls; any thread may write a receipt.
    """

    def __init__(
        self, reporter: Reporter, progress: Progress, *, answers: bool = True, taken: Iterable[str] = ()
    ) -> None:
        """Without `answers` no receipt is written: another process of the host does. `taken`: ids of requests that are
        not received any more, besides those that the journal has an answer to."""
        self.reporter = reporter
        self.answered = answered_in(reporter.path)
        """Ids of the requests that were answered, or that this process has nothing to answer to."""
        self._progress = progress
        self.answers = answers
        """Whether this process writes receipts."""
        self._inbox = Inbox(reporter.run_dir, self.answered.union(taken))
        self._open: dict[str, Request] = {}
        """Requests that were seen and have no answer, by id."""

    def poll(self) -> list[Request]:
        """The requests that have arrived since the last call, oldest first."""
        return self._inbox.poll()

    def seen(self, request: Request) -> None:
        """A request has arrived, and will be answered."""
        self._open[request.id] = request
        phase, step = self._progress.activity.phase, self._progress.step
        self._emit(ev.RequestSeen(t=time.time(), request=request.id, kind=request.kind, phase=phase, step=step))

    def applied(
        self,
        request: Request,
        step: int,
        *,
        path: str | None = None,
        num_bytes: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """A request was carried out after a step. `path`, `num_bytes`, `seconds`: the file that was written for it."""
        self.close(request)
        self._emit(
            ev.RequestApplied(
                t=time.time(),
                request=request.id,
                kind=request.kind,
                step=step,
                path=path,
                bytes=num_bytes,
                seconds=seconds,
            )
        )

    def report_stacks(self, request: Request) -> None:
        """Answers a request for the stacks of this process from the calling thread; training continues."""
        self.applied(request, self._progress.step, path=stacks.report(request, self.reporter))

    def refused(self, request: Request, why: str) -> None:
        """A request cannot be carried out."""
        self.close(request)
        self._emit(ev.RequestRefused(t=time.time(), request=request.id, kind=request.kind, why=why))

    def close(self, request: Request) -> None:
        """Nothing more is to be written of a request."""
        self.answered.add(request.id)
        self._open.pop(request.id, None)

    def refuse_open(self, why: str) -> None:
        """Refuses every request that was seen and has no answer."""
        for request in list(self._open.values()):
            self.refused(request, why)

    def _emit(self, event: ev.Event) -> None:
        if self.answers:
            self.reporter.emit(event)
