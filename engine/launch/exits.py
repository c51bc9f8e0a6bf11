"""Why a training process ended: `failure_of` its exit, which the launcher publishes to the other hosts of the run."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Literal

from msgspec.structs import asdict

from engine.errors import PEER_LOST
from tputui.engine_api import (
    FOLLOWING,
    JOURNAL_SUFFIX,
    DamagedLine,
    ExitCode,
    HostFailed,
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
