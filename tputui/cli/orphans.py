"""Training processes of this user that were left behind holding a device, and how one is ended.

A process is ended only where everything says that it is ours: its owner, its command line, and the journal of its run,
which names it by number and start time; and only where the supervisor that would end it is gone. Asks it to save and
stop first. Opens no device.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import rundir
from tputui.telemetry.merge import head_of
from tputui.telemetry.rundir import ProcessId

MODULES = ("engine.worker", "engine.rank")
GRACE_S = 30.0
"""From the request to save and stop to the kill."""
KILLED_S = 5.0
"""From the kill to the end."""


class Owned(NamedTuple):
    """A process of one of this user's runs."""

    process: ProcessId
    run_dir: Path
    worker: ProcessId
    """The process of the run that takes requests; the same, or the one that this one ends with."""
    supervised: bool
    """Whether a supervisor of the run lives, or may live."""


def owned(pid: int) -> Owned | None:
    """The run that a process trains, where it is this user's own and that is proven; else None."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
        run_dir = _run_dir_of(pid)
        if run_dir is None or not rundir.is_run(run_dir):
            return None
        heads = dict(_heads(run_dir))
    except OSError:
        return None
    supervisors = [head for name, head in heads.items() if name.startswith("supervisor-")]
    trainers = [head for name, head in heads.items() if not name.startswith("supervisor-")]
    # Processes of other hosts may have the same number.
    mine = next((head for head in trainers if head and head.pid == pid and rundir.is_alive(head) is True), None)
    if mine is None:
        return None
    are_gone = supervisors and all(head and rundir.is_alive(head) is False for head in supervisors)
    return Owned(mine, run_dir, heads.get("worker-0") or mine, supervised=not are_gone)


def end(stale: Owned) -> str:
    """Asks the process to save and stop, and kills it where it does not within `GRACE_S`; what became of it, in words.

    Raises `OSError` where it may not be ended.
    """
    with contextlib.ExitStack() as open_files:
        handles = []
        for process in dict.fromkeys((stale.worker, stale.process)):
            # A handle is of this very process: its number cannot become another's between the look and the signal.
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(process.pid)
                open_files.callback(os.close, handle)
                if rundir.is_alive(process) is True:
                    handles.append(handle)
        _signal(handles, signal.SIGTERM)
        if _wait(handles, GRACE_S):
            return "asked to save and stop, it ended"
        _signal(handles, signal.SIGKILL)
        if _wait(handles, KILLED_S):
            return f"it was killed: asked to save and stop, it did not within {GRACE_S:g} s"
    return f"it was killed and has not ended within {KILLED_S:g} s: the kernel still holds it"


def _signal(handles: list[int], number: signal.Signals) -> None:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)


def _wait(handles: list[int], timeout_s: float) -> bool:
    """Whether all of them ended in time; they are waited for one after the other."""
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return False
    return True


def _run_dir_of(pid: int) -> Path | None:
    """The run directory on the command line of a training process."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    for place, word in enumerate(words[:-2]):
        if word == b"-m" and words[place + 1].decode("ascii", "replace") in MODULES:
            return Path(os.readlink(f"/proc/{pid}/cwd"), os.fsdecode(words[place + 2]))
    return None


def _heads(run_dir: Path) -> Iterator[tuple[str, ProcessId | None]]:
    """Who writes each journal of a run, by the journal's name; None where its head does not tell."""
    for name, path in rundir.journal_paths(run_dir):
        head = head_of(path)
        yield name, rundir.process_of(head) if head else None
