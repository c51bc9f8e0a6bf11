"""What the supervisor does about SIGTERM, requests to stop and stalls. The clock is an argument.

`SignalPipe` queues signals for the loop of the supervisor: SIGTERM and SIGCHLD wake it; SIGINT and SIGHUP, which
concern a terminal, are ignored. The handler only queues a signal, because it may run between any two instructions.

The first SIGTERM requests save and stop. The second one, or the end of a grace period, requests stop at once. If any
request to stop at once is not obeyed in time, the training process is killed.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

from tputui.supervise.worker_state import WorkerState
from tputui.telemetry import events as ev
from tputui.telemetry import requests
from tputui.telemetry.events import RequestKind
from tputui.telemetry.reporter import Reporter

CAUGHT = (signal.SIGTERM, signal.SIGCHLD)
IGNORED = (signal.SIGINT, signal.SIGHUP)
STALL_CHECK_S = 1.0
"""Seconds between two checks for a stall."""
STALL_MIN_S = 3.0
"""A shorter stall is not reported and raises no alert: the clock of the host may have jumped."""
STALL_STACKS_MAX = 5
"""Stalls of a run for which stacks are requested."""
STALL_POLICIES = ("notify", "save-stop", "continue")


class SignalPipe:
    """Queues signals for a loop that sleeps until one arrives. Create it in the main thread."""

    def __init__(self) -> None:
        self._arrived: list[int] = []
        self._read_fd, self._write_fd = os.pipe()
        for fd in (self._read_fd, self._write_fd):
            os.set_blocking(fd, False)

    def handle(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append(number)

    def wait(self, timeout_s: float) -> list[int]:
        """The signals since the last call; sleeps up to `timeout_s` seconds if there are none."""
        if not self._arrived:
            select.select([self._read_fd], [], [], timeout_s)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        arrived, self._arrived = self._arrived, []
        return arrived

    @property
    def write_fd(self) -> int:
        """The file descriptor to which the interpreter writes a byte when a signal arrives."""
        return self._write_fd

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


@contextlib.contextmanager
def signals_caught() -> Iterator[SignalPipe]:
    """Installs the handlers and restores the former ones on exit. Only in the main thread."""
    pipe = SignalPipe()
    before = {number: signal.signal(number, pipe.handle) for number in CAUGHT}
    before.update({number: signal.signal(number, signal.SIG_IGN) for number in IGNORED})
    former_fd = signal.set_wakeup_fd(pipe.write_fd, warn_on_full_buffer=False)
    try:
        yield pipe
    finally:
        signal.set_wakeup_fd(former_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        pipe.close()


class Timing(NamedTuple):
    """Intervals and grace periods of the supervisor, in seconds."""

    tick_s: float = 0.2
    """Between polls of the log, the requests and the journals."""
    sample_s: float = 1.0
    """Between samples of the host."""
    sigterm_grace_s: float = 20.0
    """From SIGTERM to the request to stop at once. Together with `kill_after_s` within the 30 s of a preempted VM."""
    kill_after_s: float = 10.0
    """From a request to stop at once to SIGKILL."""
    stall_grace_s: float = 120.0
    """From the request to save and stop after a stall to the request to stop at once."""
    end_record_s: float = 30.0
    """How long to retry writing the end event if the disk refuses it."""


class Escalation:
    """The requests to stop so far, and the one that is due next."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._sigterms = 0
        self.terminated = False
        """Whether SIGTERM came, to the supervisor or to `tputui run`, on this host or one that shares the directory."""
        self._stop_now_at = math.inf
        self._kill_at = math.inf

    def on_sigterm(self, now: float) -> RequestKind | None:
        """The request that a SIGTERM makes; None if nothing more can be requested."""
        self._sigterms += 1
        self.terminated = True
        if self._sigterms == 1:
            self._stop_now_at = now + self._timing.sigterm_grace_s
            return "stop"
        return self._request_stop_now()

    def on_stall(self, now: float) -> RequestKind | None:
        """The request that a stall makes under the policy `save-stop`; None if a stop was already requested."""
        if self._sigterms:
            return None
        self._sigterms = 1
        self._stop_now_at = now + self._timing.stall_grace_s
        return "stop"

    def on_request(self, kind: RequestKind, now: float, by: str = "") -> None:
        """Takes note of a request in the run directory, from any sender."""
        if kind == "stop" and by == requests.BY_SIGTERM:
            self.terminated = True
            self.allow_grace(now + self._timing.sigterm_grace_s)
        if kind == "stop_now":
            self._stop_now_at = math.inf
            self._kill_at = min(self._kill_at, now + self._timing.kill_after_s)

    def allow_grace(self, until: float) -> None:
        """A stop was requested: requests stop at once at the time `until`, unless that is due earlier."""
        if self._kill_at == math.inf:
            self._stop_now_at = min(self._stop_now_at, until)

    @property
    def kill_after_s(self) -> float:
        """Seconds from a request to stop at once to SIGKILL."""
        return self._timing.kill_after_s

    @property
    def deadline(self) -> float:
        """The time of the next action; infinite if none follows."""
        return min(self._stop_now_at, self._kill_at)

    def due(self, now: float) -> Literal["stop_now", "kill"] | None:
        """The action that is due at `now`. Each action is returned once."""
        if now >= self._kill_at:
            self._kill_at = math.inf
            return "kill"
        return self._request_stop_now() if now >= self._stop_now_at else None

    def _request_stop_now(self) -> Literal["stop_now"] | None:
        if self._stop_now_at == math.inf:
            return None
        self._stop_now_at = math.inf
        return "stop_now"


class StallStacks:
    """Requests stacks when a run stalls, for a user who looks at it later: the processes report their Python stacks,
    and the TPU runtime what its cores execute."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._left = STALL_STACKS_MAX

    def request(self) -> None:
        """Writes the request; none after the first stalls of a run. A disk that refuses it is no error."""
        if self._left > 0:
            self._left -= 1
            with contextlib.suppress(OSError):
                requests.submit(self._run_dir, "stacks", by="stall", now=time.time())


class StallPolicy:
    """Detects stalls of the training processes of one worker, by the same rule as the screen, and applies `[stall]`."""

    def __init__(
        self,
        config: Mapping[str, Any],
        worker_state: WorkerState,
        escalation: Escalation,
        reporter: Reporter,
        stacks: StallStacks,
    ) -> None:
        """`config` is the configuration of the run. Each report of a stall requests `stacks`."""
        table = config.get("stall")
        policy = table.get("policy") if isinstance(table, dict) else None
        self._policy = policy if policy in STALL_POLICIES else "notify"
        self._worker_state = worker_state
        self._escalation = escalation
        self._reporter = reporter
        self.stacks = stacks
        self._due = 0.0
        self._since: float | None = None
        self._is_reported = False

    def check(self, now: float, tick: float) -> ev.RequestKind | None:
        """Reports a new stall; returns the request to make, if any. `now` is unix time, `tick` a monotonic time."""
        if self._policy == "continue" or tick < self._due:
            return None
        self._due = tick + STALL_CHECK_S
        state = self._worker_state.state
        verdict = self._worker_state.liveness(now)
        if verdict.condition != "stalled" or not state.workers:
            self._since, self._is_reported = None, False
            return None
        self._since = tick if self._since is None else self._since
        if self._is_reported or tick - self._since < STALL_MIN_S:
            return None
        self._is_reported = True
        step = max(worker.steps_done for worker in state.workers)
        self._reporter.emit(ev.StallFound(t=now, text=verdict.reason, step=step, policy=self._policy))
        self.stacks.request()
        return self._escalation.on_stall(tick) if self._policy == "save-stop" else None
