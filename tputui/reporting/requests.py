"""The requests to a run that a script reports: to save and to stop, served when the script asks for them.

The script declares what it serves by calling `should_stop` or `save_if_asked` for the first time
(`RequestHandlingDeclared`). Without a supervisor, other requests are refused with that explanation, once two steps have
shown that the loop makes no such call; with one, they are left to it.

The processes of one program must serve a request at the same step, or some would wait forever in a collective. Rank 0
therefore chooses a step a few seconds ahead, which the others learn (`agreement`).
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tputui.reporting import agreement
from tputui.reporting.step_trace import StepTracer
from tputui.telemetry import events as ev
from tputui.telemetry import requests

if TYPE_CHECKING:
    from tputui.reporting.process import RunProcess

STOPS: tuple[ev.RequestKind, ...] = ("stop", "stop_after_epoch", "stop_now")
SAVES: tuple[ev.RequestKind, ...] = ("checkpoint",)
TRACES: tuple[ev.RequestKind, ...] = ("trace",)
TOGETHER: tuple[ev.RequestKind, ...] = ("stop", "stop_after_epoch", "checkpoint")
"""Requests that all processes must serve at the same step; a stop at once ends them one by one."""
AHEAD_S = 4.0
"""Time from the choice of the step to that step, if several processes must serve a request at the same one."""
AHEAD_STEPS_MIN = 8
CALLS_WITHOUT_STEP = 8
"""After so many calls for requests a script counts as one that reports no steps."""
STEPS_UNTIL_REFUSED = 2
"""Steps after which a loop has made all of its calls: the first step, with its compilations, may take minutes."""
ENDED = "training ended before this was done"
RESTARTED = "training was restarted before this was done"
APART = (
    "the hosts of this script have run directories of their own, so they cannot do this at the same step; "
    "start it with --runs-dir on a file system that all hosts share, or initialise torch.distributed or "
    "jax.distributed in it"
)
_WHY_NOT: dict[ev.RequestKind, str] = {
    **dict.fromkeys(STOPS, "the script does not call run.should_stop(); end the script itself, or add it to the loop"),
    **dict.fromkeys(SAVES, "the script does not call run.save_if_asked(...); add it to the loop"),
    "trace": "the script has not reported a step yet; a profile starts after a call of run.step()",
}


class ServedSave(NamedTuple):
    """How a thread served a request to save."""

    step: int
    path: str | None = None
    num_bytes: int | None = None
    seconds: float | None = None
    why_not: str | None = None
    """Why it could not save; None if it did."""


class _Open:
    """A request that was accepted and not carried out yet."""

    def __init__(self, request: requests.Request) -> None:
        self.request = request
        self.due_step: int | None = None
        """Step from which it is served; None until it is known."""
        self.was_returned = False
        """Whether the script was asked to stop."""
        self.saves: dict[int, ServedSave] = {}
        """How each thread that trains served it, by the first of its columns."""


class RunRequests:
    """Polls the requests of a run, and answers them. Thread-safe."""

    def __init__(self, process: RunProcess) -> None:
        self._process = process
        decided = agreement.decided_in(process.run_dir)
        self._server = process.server
        for request in requests.read_all(process.run_dir) if decided else ():
            if request.id in decided - self._server.answered:
                self._server.refused(request, RESTARTED)
        # Reentrant, since a signal handler of the script may ask too.
        self._lock = threading.RLock()
        self._accepted: set[ev.RequestKind] = set()
        self._num_calls = 0
        """Calls of the script that ask for requests."""
        self._savers: set[int] = set()
        """Threads that ask for requests to save, by the first of their columns."""
        self._open: list[_Open] = []
        self._early: list[requests.Request] = []
        """Requests of which it is not known yet whether the script serves them."""
        self.tracer = StepTracer(process.run_dir, self._server, host_index=process.host_index)
        """Writes profiles of the first rank of a host; the thread that trains its first core calls it after every
        step."""
        self._store: agreement.ProgramStore | None = None
        """By which several ranks agree; None if the program has none."""
        self.num_threads = 1
        """Threads of this process that train a core each."""
        self._steps_s: deque[float] = deque(maxlen=3)
        """Newest step times, each of a report."""

    def accept_traces(self) -> None:
        """Declares that the first rank of a host writes profiles, since the script reports its steps."""
        if self._server.answers:
            self._accept(TRACES)

    def add_step_time(self, step_s: float) -> None:
        """The mean time of a step since the last call, in seconds."""
        self._steps_s.append(step_s)

    def _accept(self, kinds: Sequence[ev.RequestKind]) -> None:
        """Declares that the script serves requests of these kinds from now on."""
        with self._lock:
            self._accepted.update(kinds)
            accepted = sorted(self._accepted)
        self._process.emit(ev.RequestHandlingDeclared(t=time.time(), kinds=accepted))

    def withdraw(self) -> None:
        """Declares that the script serves no request to save or to stop any more, until it asks for them again."""
        with self._lock:
            self._accepted.difference_update(STOPS, SAVES)
        self._accept(())

    def poll(self) -> None:
        """Reads new requests. Called by the thread of the heartbeat."""
        if self._store is None and self._accepted and self._process.world_size > 1:
            self._store = self._opened_store()
        early, self._early = self._early, []
        for request in [*early, *self._server.poll()]:
            self._take(request)
        for waiting in list(self._open):
            if waiting.due_step is None:
                self._settle(waiting, self._agreed(waiting))

    def stop_due(self, step: int, *, in_epoch: bool) -> bool:
        """Whether the script shall stop now."""
        self._num_calls += 1
        if "stop" not in self._accepted:
            self._accept(STOPS)
        if not self._open:
            return False
        due = False
        for waiting in self._due(step):
            kind = waiting.request.kind
            if kind in ("stop", "stop_now") or (kind == "stop_after_epoch" and not in_epoch):
                due = waiting.was_returned = True
        return due

    def saves_due(self, step: int, column: int) -> list[_Open]:
        """The requests for which a thread shall save now, which trains the core of a column. A request to stop asks
        for a save, too."""
        self._num_calls += 1
        self._savers.add(column)
        if "checkpoint" not in self._accepted:
            self._accept(SAVES)
        if not self._open:
            return []
        return [w for w in self._due(step) if w.request.kind in ("checkpoint", "stop") and column not in w.saves]

    def saved(self, served: list[_Open], column: int, saved: ServedSave) -> None:
        """Reports how a thread served these requests. They are answered once all threads that save have."""
        for waiting in served:
            with self._lock:
                waiting.saves[column] = saved
                is_whole = waiting.saves.keys() >= self._savers
            if is_whole and waiting.request.kind == "checkpoint":
                self._close(waiting)
                self._answer(waiting)

    def _answer(self, waiting: _Open) -> None:
        saves = [waiting.saves[column] for column in sorted(waiting.saves)]
        why = next((saved.why_not for saved in saves if saved.why_not is not None), None)
        if why is not None:
            self._server.refused(waiting.request, why)
        else:
            checkpoint = saves[0]
            self._server.applied(
                waiting.request,
                checkpoint.step,
                path=checkpoint.path,
                num_bytes=checkpoint.num_bytes,
                seconds=checkpoint.seconds,
            )

    def finish(self, step: int) -> bool:
        """Answers the open requests at the end of training; returns whether the script stopped for one of them."""
        self.tracer.close(step)
        stopped = any(waiting.was_returned for waiting in self._open)
        for waiting in list(self._open):
            self._close(waiting)
            if stopped and waiting.request.kind in STOPS:
                self._server.applied(waiting.request, step)
            else:
                self._server.refused(waiting.request, ENDED)
        for request in self._early if not self._process.supervised else ():
            self._server.refused(request, ENDED)
        return stopped

    @property
    def reports_saves(self) -> bool:
        """Whether this process reports the checkpoints of requests: the first of those that share a run directory."""
        process = self._process
        return process.rank == 0 or (process.leads_host and not process.journal_of(0).exists())

    def close(self) -> None:
        """Ends what asks the other ranks. Called once nothing polls any more."""
        if self._store is not None:
            self._store.close()

    def _take(self, request: requests.Request) -> None:
        process, kind = self._process, request.kind
        if kind == "trace" and kind in self._accepted:
            self._server.seen(request)
            self.tracer.submit(request)
        elif kind in self._accepted:
            waiting = _Open(request)
            agreed = self._agreed(waiting)
            # At once: what was seen is served at the next call, and not before it was seen.
            with self._lock:
                self._open.append(waiting)
                self._server.seen(request)
                self._settle(waiting, agreed)
        elif kind in (*STOPS, *SAVES) and (process.supervised or process.num_steps < STEPS_UNTIL_REFUSED):
            # Also by a rank that has made fewer calls than the others, and by one whose supervisor may answer.
            self._early.append(request)
        elif not process.supervised:
            self._server.seen(request)
            if kind == "stacks":
                self._server.report_stacks(request)
            else:
                self._server.refused(request, _WHY_NOT[kind])

    def _are_apart(self) -> bool:
        """Whether the first rank and others write to different directories, as on hosts that share none."""
        process = self._process
        others = range(process.world_size) if process.rank == 0 else (0,)
        return process.has_other_hosts and not all(process.journal_of(rank).exists() for rank in others)

    def _due(self, step: int) -> list[_Open]:
        with self._lock:
            opened = list(self._open)
        for waiting in opened:
            if waiting.due_step is None and isinstance(agreed := self._looked_up(waiting.request), int):
                waiting.due_step = agreed
        return [waiting for waiting in opened if waiting.due_step is not None and step >= waiting.due_step]

    def _close(self, waiting: _Open) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._open.remove(waiting)

    def _agreed(self, waiting: _Open) -> int | str | None:
        """The step at which all processes serve a request, or why they cannot; None while that is not known."""
        process, request = self._process, waiting.request
        if process.world_size <= 1:
            return self._chosen() if self.num_threads > 1 else 0
        if request.kind in TOGETHER and self._store is not None:
            return self._store.agreed(request)
        if request.kind in TOGETHER and self._are_apart():
            return APART
        path = agreement.path_of(process.run_dir, request.id)
        return agreement.read(path) if process.rank else agreement.write(path, self._chosen())

    def _looked_up(self, request: requests.Request) -> int | str | None:
        """What rank 0 has decided by now. Steps may be so fast that the next poll is too late."""
        if request.kind in TOGETHER and self._store is not None:
            return self._store.look(request)
        return agreement.read(agreement.path_of(self._process.run_dir, request.id))

    def _opened_store(self) -> agreement.ProgramStore | None:
        process, store = self._process, agreement.store_of_program()
        if store is None:
            return None
        return agreement.ProgramStore(
            store,
            process.run_dir,
            process.rank,
            process.world_size,
            leads_host=self._server.answers,
            choose=self._chosen,
            trains=lambda: process.num_steps >= STEPS_UNTIL_REFUSED,
            counts_steps=lambda: process.num_steps > 0 or self._num_calls < CALLS_WITHOUT_STEP,
        )

    def _settle(self, waiting: _Open, agreed: int | str | None) -> None:
        if isinstance(agreed, str):
            self._close(waiting)
            self._server.refused(waiting.request, agreed)
        elif agreed is not None:
            waiting.due_step = agreed

    def _chosen(self) -> int | None:
        """A step some seconds ahead; None before the first one, which may be compiled for minutes. A script that
        reports no steps serves the request at its next call."""
        step = self._process.step
        if not step:
            return 0 if self._num_calls >= CALLS_WITHOUT_STEP else None
        return step + max(AHEAD_STEPS_MIN, math.ceil(AHEAD_S / min(self._steps_s, default=AHEAD_S)))
