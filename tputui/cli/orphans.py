"""Orphans: training processes of this user whose supervisor is gone and that still use a device.

A process is ended only if its owner, its command line and the journal of its run (pid and start time) all identify it,
and only if its supervisor is gone. It is first requested to save and stop.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from tputui.telemetry import rundir
from tputui.telemetry.merge import writers_of
from tputui.telemetry.rank_environment import environ_of
from tputui.telemetry.rundir import ProcessId

TRAINING_MODULES = ("engine", "engine.rank", "engine.worker")
"""The last one is the engine of earlier versions."""
ORPHAN_GRACE_S = 30.0
"""Seconds from SIGTERM to SIGKILL."""
ENVIRON_BYTES_MAX = 1 << 20
KILL_WAIT_S = 5.0
"""Seconds to wait after SIGKILL."""


class OwnTrainingProcess(NamedTuple):
    """A training process of a run of this user."""

    process: ProcessId
    run_dir: Path
    worker: ProcessId
    """The worker of the run: the same process, or the one that `process` ends with."""
    supervised: bool
    """Whether a supervisor of the run is, or may be, alive."""


def find_training_process(pid: int) -> OwnTrainingProcess | None:
    """The run of a training process; None unless it is proven to be a process of this user."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
        run_dir = _run_dir_of(pid)
        if run_dir is None or not rundir.is_run(run_dir):
            return None
        heads = writers_of(run_dir)
    except OSError:
        return None
    supervisors = [head for name, head in heads.items() if name.startswith("supervisor-")]
    trainers = [head for name, head in heads.items() if not name.startswith("supervisor-")]
    # A process of another host may have the same pid.
    mine = next((head for head in trainers if head and head.pid == pid and rundir.is_alive(head) is True), None)
    command = heads.get("logs-0")
    if mine is None and command is not None and command.host_id == rundir.host_id():
        # A process of a user's command need not have a journal of its own; its environment names the run.
        mine = rundir.process_with(pid)
    if mine is None:
        return None
    are_gone = supervisors and all(head and rundir.is_alive(head) is False for head in supervisors)
    worker = heads.get("logs-0") or heads.get("worker-0") or mine
    return OwnTrainingProcess(mine, run_dir, worker, supervised=not are_gone)


def end_orphan(orphan: OwnTrainingProcess) -> str:
    """Sends SIGTERM, and SIGKILL after `ORPHAN_GRACE_S`; returns a sentence about the result. Raises `OSError`."""
    if sys.platform != "linux":
        raise NotImplementedError("orphans are found in /proc")
    with contextlib.ExitStack() as open_files:
        handles = []
        for process in dict.fromkeys((orphan.worker, orphan.process)):
            # A pidfd refers to this very process, even if the pid is reused between the check and the signal.
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(process.pid)
                open_files.callback(os.close, handle)
                if rundir.is_alive(process) is True:
                    handles.append(handle)
        _signal(handles, signal.SIGTERM)
        if _wait(handles, ORPHAN_GRACE_S):
            return "ended after a request to save and stop"
        _signal(handles, signal.SIGKILL)
        if _wait(handles, KILL_WAIT_S):
            return f"killed: it did not save and stop within {ORPHAN_GRACE_S:g} s"
    return f"killed, but still alive after {KILL_WAIT_S:g} s: it is stuck in the kernel"


def _signal(handles: list[int], number: signal.Signals) -> None:
    if sys.platform != "linux":
        raise NotImplementedError("orphans are found in /proc")
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)


def _wait(handles: list[int], timeout_s: float) -> bool:
    """Whether all processes ended; waits up to `timeout_s` for each."""
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return False
    return True


def _run_dir_of(pid: int) -> Path | None:
    """The run directory on the command line of a training process, or in the environment of a user's command."""
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    for index, word in enumerate(argv[:-2]):
        if word == b"-m" and argv[index + 1].decode("ascii", "replace") in TRAINING_MODULES:
            return Path(os.readlink(f"/proc/{pid}/cwd"), os.fsdecode(argv[index + 2]))
    with open(f"/proc/{pid}/environ", "rb") as file:
        named = environ_of(file.read(ENVIRON_BYTES_MAX)).get(rundir.RUN_DIR_VARIABLE)
    return Path(named) if named and os.path.isabs(named) else None
