"""`HostWatch`: keeps the launchers of all hosts informed of each other while training runs.

The first failure of a generation is published at the store, so that every host names it within a second, although the
processes of the other hosts end too. A host whose launcher was killed is lost, which host 0 knows at once by a
connection. Each launcher also counts a beat at the store: a host without beats counts as lost, and a host that does not
reach the store, because its link is dead or host 0 is, ends by itself. No connection needs to be reset for that, and no
process is left with the cores.

Why a training process ended: `failure_of` its exit, which the launcher publishes to the other hosts of the run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import asdict

from engine.errors import PEER_LOST
from engine.launch import clock, launcher_links, stores
from engine.launch.joining import Joined
from engine.launch.stores import Store
from engine.launch.supervisor import SupervisorPipe
from tputui.engine_api import (
    FOLLOWING,
    JOURNAL_SUFFIX,
    DamagedLine,
    ExitCode,
    HostFailed,
    LaunchFailed,
    decode_line,
    kind_of_end,
    run_clock,
    signal_name,
)
from tputui.reporting import events as ev

TAIL_BYTES = 1 << 20
HEAD_BYTES = 1 << 18
REFUSED_CODES = (ExitCode.USAGE, ExitCode.ENVIRONMENT)
"""Exit codes of a process that refused to train."""
FINAL_CODES = (*REFUSED_CODES, ExitCode.STOPPED)
"""Exit codes after which a restart would be of no use, or is not wanted."""


def failure_of(
    run_dir: Path, host_index: int, generation: int, returncode: int, pid: int, since: float
) -> HostFailed | None:
    """The failure of the training process of this host; None if it was stopped, or only lost another host.

    `returncode` is its exit code, or the negative number of a signal; `since` is when it was started, in unix time.
    """
    writer = f"worker-{host_index}"
    events = _events(run_dir / f"{writer}{JOURNAL_SUFFIX}")
    raised = [event for event in events if isinstance(event, ev.FailureRaised) and event.t >= since]
    if returncode in (PEER_LOST, ExitCode.STOPPED) or (raised and raised[-1].error in FOLLOWING):
        return None
    if not raised and any(isinstance(event, ev.TrainingEnded) and event.t >= since for event in events):
        # All hosts ended at the same step, for a reason that the first one reports.
        return None
    declared = [event for event in events if isinstance(event, ev.TopologyDeclared)]
    beats = [event for event in events if isinstance(event, ev.HeartbeatSent) and event.t >= since]
    beat = beats[-1] if beats else None
    place = _place(declared[-1]) if declared else ""
    if raised:
        event = raised[-1]
        failure = {
            **asdict(event), "process": event.process or writer, "pid": event.pid or pid, "traceback": "", "frames": [],
        }  # fmt: skip
        refused = returncode in REFUSED_CODES
        return HostFailed(
            **failure,
            host_index=host_index,
            host=socket.gethostname(),
            generation=generation,
            place=place if event.process in (None, writer) else "",
            code=returncode if refused else ExitCode.FAILED,
            is_final=refused,
        )
    name = signal_name(returncode)
    how = f"signal {name}" if name else f"exit code {returncode}"
    return HostFailed(
        t=run_clock.now(),
        host_index=host_index,
        host=socket.gethostname(),
        generation=generation,
        place=place,
        process=writer,
        pid=pid,
        kind=kind_of_end(returncode),
        error=name or "no error report",
        message=f"the training process ended by {how} without an error report",
        phase=beat.phase if beat else "starting",
        step=beat.step if beat else 0,
        code=ExitCode.FAILED,
        is_final=False,
    )


def lost_host(host_index: int, host: str, generation: int, silent_s: float, why: str = "") -> HostFailed:
    """The failure of a host that no longer answers."""
    message = why or f"has not answered for {silent_s:.0f} s"
    return _without_process(host_index, host, generation, "HostLost", message, "unknown", ExitCode.FAILED)


def stopped_host(host_index: int, host: str, generation: int, reason: str) -> HostFailed:
    """The end of all hosts because this one was stopped on request before it trained, which is no failure."""
    return _without_process(host_index, host, generation, "Stopped", reason, "starting", ExitCode.STOPPED)


def _without_process(
    host_index: int,
    host: str,
    generation: int,
    error: Literal["HostLost", "Stopped"],
    message: str,
    phase: ev.Phase,
    code: ExitCode,
) -> HostFailed:
    """The end of a host of whose training process nothing is known."""
    return HostFailed(
        t=run_clock.now(),
        host_index=host_index,
        host=host,
        generation=generation,
        process=f"supervisor-{host_index}",
        pid=None,
        place="",
        # By which signal its process ended, if by any, is not known.
        kind="exited",
        error=error,
        message=message,
        phase=phase,
        step=0,
        code=code,
        is_final=True,
    )


def _place(declared: ev.TopologyDeclared) -> str:
    """Rank and cores of the leading process of a host."""
    cores = declared.cores
    if not cores:
        return ""
    if declared.strategy == "replica":
        # A rank per core; the process leads the others of its host.
        return f"rank {cores[0]} (core {cores[0]})"
    return f"core {cores[0]}" if len(cores) == 1 else f"cores {cores[0]}-{cores[-1]}"


def _events(path: Path) -> list[ev.Event]:
    """The events at the start and at the end of a journal, which may be large."""
    try:
        with path.open("rb") as file:
            lines = file.read(HEAD_BYTES).splitlines(keepends=True)
            size = file.seek(0, os.SEEK_END)
            if size > HEAD_BYTES:
                file.seek(max(HEAD_BYTES, size - TAIL_BYTES))
                lines += file.read(TAIL_BYTES).splitlines(keepends=True)
    except OSError:
        return []
    events: list[ev.Event] = []
    for line in lines:
        # Lines that the two reads cut, and one that the process did not finish.
        with contextlib.suppress(DamagedLine):
            events.append(decode_line(line).event)
    return events


POLL_S = 0.25
BEAT_S = 1.0
GRACE_S = 5.0
"""Time that the training process of this host has to end by itself after another host has failed."""
CAUSE_WAIT_S = 4.0
"""How soon the failure of another host is known after which this one lost it: beats are seen two beats late."""
END_WAIT_S = 90.0
"""How long host 0 serves the store for the others after its own training has ended."""
_NO_REPORT = "its launcher has ended without a report"
_log = logging.getLogger(__name__)


class HostWatch:
    def __init__(
        self,
        index: int,
        joined: Joined,
        connect: Callable[[], Store],
        pipe: SupervisorPipe,
        lost_after_s: float,
        end_worker: Callable[[], None],
        leave: Callable[[HostFailed], None],
    ) -> None:
        """`end_worker` kills the training process of this host; `leave` ends the launcher and must not return."""
        self._index = index
        self._joined = joined
        self._names = [host.host for host in joined.hosts]
        self._connect = connect
        self._store = connect()
        self._link: socket.socket | None = None
        """To the launcher of host 0."""
        self._pipe = pipe
        self._lost_after_s = lost_after_s
        self._end_worker = end_worker
        self._leave = leave
        self._lock = threading.Lock()
        self._generation = 0
        self._running = False
        """Whether a training process of this host runs, or waits for those of the others."""
        self._seen: dict[int, tuple[int, float]] = {}
        """The newest beat of each host, and when (monotonic) it was new."""
        self._heard = time.monotonic()
        """When (monotonic) the store answered last."""
        self._newest: HostFailed | None = None
        """The failure of any host that was read last."""
        self._end_at: float | None = None
        self._closing = threading.Event()
        self._is_stopped = False
        """Whether this host has ended all of them."""
        self.cause: HostFailed | None = None
        """The first failure of this generation, if another host has it."""

    @property
    def _num_hosts(self) -> int:
        return len(self._names)

    def start(self) -> None:
        if not self._index and self._num_hosts > 1:
            server = launcher_links.LinkServer(self._joined, self._lost_launcher)
            self._store.set(launcher_links.PORT, str(server.port))
        elif self._index:
            self._link = launcher_links.connect(self._store, self._joined, self._index)
        for target in (self._poll_until_closed, self._check_link, self._measure_clock):
            threading.Thread(target=target, name="tputui-hosts", daemon=True).start()

    def wait(self) -> None:
        """This host waits for the others before the next generation."""
        with self._lock:
            self._running = True

    def begin(self, generation: int) -> None:
        """The training process of a generation is about to start."""
        with self._lock:
            self._generation = generation
            if self.cause is None or self.cause.generation < generation:
                self.cause, self._end_at = None, None

    def exited(self, failure: HostFailed | None, returncode: int) -> None:
        """The training process of this host has ended; `failure` is why, unless that is the fault of another host."""
        with self._lock:
            self._running = False
        if returncode in (ExitCode.DONE, ExitCode.STOPPED):
            return
        if failure is not None:
            self._publish(failure)
        until = time.monotonic() + CAUSE_WAIT_S
        while self.cause is None and failure is None and time.monotonic() < until:
            time.sleep(0.05)

    def stop(self, reason: str) -> None:
        """Ends all hosts as stopped on request, for this reason: this one has not begun to train."""
        self._is_stopped = True
        self._publish_end(stopped_host(self._index, self._names[self._index], self._generation, reason))

    def finish(self) -> None:
        """Training has ended on this host. Host 0 serves the store until the others have ended too."""
        with self._lock:
            self._running = False
        self._end_link()
        self._await_ends()
        self._closing.set()

    def _await_ends(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(f"ended/{self._index}", "")
            self._store.set(stores.OVER, "")
            until = time.monotonic() + (END_WAIT_S if not self._index else 0.0)
            while time.monotonic() < until and not self._has_ended_everywhere():
                time.sleep(POLL_S)

    def _has_ended_everywhere(self) -> bool:
        lost = {index for index, _ in self._silent()}
        others = [index for index in range(self._num_hosts) if index not in lost]
        return stores.has(self._store, *(f"ended/{index}" for index in others))

    def _end_link(self) -> None:
        """This launcher ends by itself."""
        if self._link is not None:
            launcher_links.end(self._link)

    def _publish(self, failure: HostFailed) -> bool:
        """Makes a failure known to all hosts, unless another one of its generation is: then returns False."""
        text = msgspec.json.encode(failure).decode("utf-8", "replace")
        with contextlib.suppress(RuntimeError):
            return stores.put_first(self._store, f"failure/{failure.generation}", text) == text
        return False

    def _publish_end(self, failure: HostFailed) -> None:
        """A host is gone for good: if this generation has failed before, the next one cannot begin without it."""
        if not self._publish(failure):
            self._publish(msgspec.structs.replace(failure, generation=failure.generation + 1))

    def _publish_lost(self, index: int, silent_s: float, why: str = "") -> None:
        self._publish_end(lost_host(index, self._names[index], self._generation, silent_s, why))

    def _lost_launcher(self, index: int) -> None:
        """The launcher of a host was killed."""
        if not self._closing.is_set():
            self._publish_lost(index, 0.0, _NO_REPORT)

    def _poll_until_closed(self) -> None:
        next_beat = 0.0
        while not self._closing.wait(POLL_S):
            try:
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + BEAT_S
                    self._beat()
                self.take_cause()
                self._follow()
                self._heard = time.monotonic()
            except RuntimeError as error:
                _log.warning("the store of host 0: %s", error)
                self._lose_store(_NO_REPORT)
                return
            if self._end_at is not None and time.monotonic() >= self._end_at:
                self._end_at = None
                self._end()

    def _beat(self) -> None:
        self._store.add(f"beat/{self._index}", 1)
        if self._num_hosts == 1:
            return
        watched = range(1, self._num_hosts) if not self._index else range(1)
        now = time.monotonic()
        for index in watched:
            beat = int(self._store.add(f"beat/{index}", 0))
            if self._seen.get(index, (-1, 0.0))[0] != beat:
                self._seen[index] = (beat, now)
        if self._index:
            return
        for index, silent_s in self._silent():
            if not stores.has(self._store, f"ended/{index}"):
                self._publish_lost(index, silent_s)

    def _silent(self) -> list[tuple[int, float]]:
        """Hosts without a beat for too long, and for how long."""
        now, limit_s = time.monotonic(), self._lost_after_s
        return [(index, now - seen) for index, (_, seen) in sorted(self._seen.items()) if now - seen > limit_s]

    def take_cause(self) -> None:
        """Reports the first failure of this generation, if it is of another host; after it, the loss of a host without
        which the next generation cannot begin."""
        generation = self._unread()
        if generation is None or not stores.has(self._store, key := f"failure/{generation}"):
            return
        failure = msgspec.json.decode(stores.take(self._store, key), type=HostFailed)
        with self._lock:
            if generation != self._unread():
                return
            self._newest = failure
            if failure.host_index == self._index:
                return
            self.cause = failure
            self._end_at = time.monotonic() + (0.0 if failure.code == ExitCode.STOPPED else GRACE_S)
        if failure.code == ExitCode.STOPPED:
            self._pipe.send(LaunchFailed(code=failure.code, reason=failure.message))
        else:
            self._pipe.send(failure)

    def _unread(self) -> int | None:
        """The generation whose failure is to be read next; None if the newest failure ends the run."""
        if self._newest is None or self._newest.generation < self._generation:
            return self._generation
        is_over = self._newest.is_final or self._newest.generation > self._generation
        return None if is_over else self._generation + 1

    def _end(self) -> None:
        """Ends what is left of the generation on this host after another one has failed."""
        cause = self.cause
        if cause is None:
            return
        with self._lock:
            # Not that of the next generation.
            if self.cause is cause:
                self._end_worker()
        if cause.code == ExitCode.STOPPED:
            # The others find out why from the store of host 0.
            self._await_ends()
        if cause.is_final:
            self._end_link()
            self._leave(cause)

    def _follow(self) -> None:
        """Ends the training process of this host if another one waits for the next generation: there is nothing left to
        agree on or to save."""
        generation = self._generation
        if not int(self._store.add(stores.num_come(generation + 1), 0)):
            return
        with self._lock:
            if self._generation == generation:
                self._end_worker()

    def _check_link(self) -> None:
        """Ends this host when the store has not answered for too long, although no connection was reset."""
        while self._index and not self._closing.wait(BEAT_S):
            silent_s = time.monotonic() - self._heard
            if silent_s > self._lost_after_s:
                self._lose_store("", silent_s)
                return

    def _lose_store(self, why: str, silent_s: float = 0.0) -> None:
        """Host 0 is gone, or out of reach."""
        if self._closing.is_set() or self._is_stopped or not self._index:
            return
        lost = lost_host(0, self._names[0], self._generation, silent_s, why)
        with self._lock:
            earlier = self.cause
            self.cause = earlier or lost
        if earlier is None:
            self._pipe.send(lost)
        if not self._running and earlier is None:
            return
        self._end_worker()
        self._leave(earlier or lost)

    def _measure_clock(self) -> None:
        """Measures the clock of this host now, every few minutes, and when the clock of the system was set."""
        if not self._index:
            return
        with contextlib.suppress(RuntimeError):
            store = self._connect()
            while True:
                measured = clock.measure(store)
                if measured is not None:
                    self._pipe.emit(
                        ev.ClockMeasured(
                            t=run_clock.now(),
                            offset_s=measured.offset_s,
                            error_s=measured.error_s,
                            reference=self._names[0],
                        )
                    )
                set_s, due = run_clock.run_clock().set_s, time.monotonic() + clock.INTERVAL_S
                while time.monotonic() < due and abs(run_clock.run_clock().set_s - set_s) < run_clock.SET_S:
                    if self._closing.wait(clock.SET_CHECK_S):
                        return
