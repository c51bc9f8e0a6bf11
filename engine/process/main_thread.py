"""The worker's main thread: handles signals, heartbeats and requests while the loop may be inside a long compile.

Must not touch a device: it responds within a fraction of a second whatever the loop does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn, Protocol

from engine.process.requests import RequestQueue
from tputui.engine_api import ExitCode
from tputui.reporting import Progress, ReportedProcess, Reporter, Request, close_journal, submit_request
from tputui.reporting import events as ev

AT_ONCE: frozenset[ev.RequestKind] = frozenset({"stacks", "stop_now"})
"""Requests that this thread answers; the others are served by the loop, at the same step on all hosts."""
POLL_INTERVAL_S = 0.2


class Relay(Protocol):
    """The way to the other hosts."""

    def pass_on(self, request: Request) -> None:
        """Sends a request to all other hosts."""
        ...

    def passed(self) -> list[Request]:
        """The requests that other hosts have sent since the last call."""
        ...

    def close(self, outcome: Literal["done", "stopped", "failed"], sentence: str) -> None:
        """Informs the other hosts how this one ends."""
        ...


class WorkerMonitor(ReportedProcess):
    """Monitors the training that runs in another thread."""

    def __init__(self, run_dir: Path, reporter: Reporter, progress: Progress, control: RequestQueue) -> None:
        super().__init__(reporter, progress)
        self._run_dir = run_dir
        self._control = control
        self._relay: Relay | None = None
        """None if there is one host, and until the others are connected."""
        self._signals: list[str] = []

    def catch_signals(self) -> None:
        """Installs the handlers: SIGTERM and SIGINT request a stop with a save; SIGHUP (a lost terminal) is ignored."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def connect_hosts(self, relay: Relay) -> None:
        """Connects the other hosts, for requests that must not wait for the loop."""
        self._relay = relay

    def run_until(self, ended: threading.Event, besides: Callable[[], None] = lambda: None) -> None:
        """Polls until the loop has ended; `besides` is called each time."""
        while not ended.wait(POLL_INTERVAL_S):
            self.poll()
            besides()
        self.poll()

    def poll(self) -> None:
        """Sends a heartbeat if due, and passes new requests on with a receipt."""
        self.beat()
        relay = self._relay
        passed = relay.passed() if relay is not None else []
        arrived = [r for r in self._signalled() + self.server.poll() + passed if self._control.note(r)]
        for request in arrived:
            if relay is not None and request.kind in AT_ONCE and request not in passed:
                relay.pass_on(request)
        for request in arrived:
            self.server.seen(request)
            if request.kind == "stacks":
                self.server.report_stacks(request)
            elif request.kind != "stop_now":
                self._control.submit(request)
        for request in arrived:
            if request.kind == "stop_now" and self._control.claim_end():
                self._end_now(request)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(signal.Signals(number).name)

    def _signalled(self) -> list[Request]:
        """Turns signals into requests, with a file as for any other request unless the disk refuses it."""
        arrived: list[Request] = []
        while self._signals:
            name = self._signals.pop(0)
            try:
                submit_request(self._run_dir, "stop", by=name, now=time.time())
            except OSError:
                now = time.time()
                arrived.append(Request(id=f"{int(now * 1e6):016d}-{name}", kind="stop", t=now, by=name))
        return arrived

    def _end_now(self, request: Request) -> NoReturn:
        """Ends the process from this thread, even while the loop is inside the compiler."""
        step = self.progress.step
        self.server.applied(request, step)
        self.server.refuse_open("the run was ended at once on another request")
        reason = f"ended at once on request, at step {step}; nothing was saved for it"
        self.report_end("stopped", reason)
        if self._relay is not None:
            self._relay.close("stopped", reason)
        leave(self.reporter, ExitCode.STOPPED)


def leave(reporter: Reporter, code: ExitCode) -> NoReturn:
    """Closes the journal and ends the process at once, without waiting for the runtime's threads."""
    close_journal(reporter)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
