"""How a process ended: the name of a signal, and the kind of a failure that the process did not report itself."""

from __future__ import annotations

import re
import signal

from tputui.telemetry.events import FailureKind, WorkerExited

PEER_LOST = "PeerLost"
"""Error of a process that lost another one."""
FOLLOWING = frozenset({PEER_LOST, "HostLost"})
"""Errors of a process that lost another one: they follow from the failure of that one."""
_LOST_PEER = re.compile(
    r"gloo/transport/.*(?:by peer|Broken pipe|Connection refused|Timed out waiting)"
    r"|got 0 bytes\. Connection was likely closed|remote process exited or there was a network error"
    r"|JAX distributed service detected fatal errors|tasks are unhealthy \(stopped sending heartbeats\)"
)
"""What collectives of gloo, the stores of torch, NCCL, and the coordination service of JAX say when another rank is
gone."""
_BROKEN_CODE = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)
"""Signals of a crash in native code."""


def is_lost_peer(message: str) -> bool:
    """Whether the message of an exception says that another rank of the program is gone."""
    return _LOST_PEER.search(message) is not None


def signal_name(returncode: int) -> str | None:
    """The name of the signal of a negative return code, or `signal 40` if it has none; None for an exit code."""
    if returncode >= 0:
        return None
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def worker_exited(t: float, pid: int, returncode: int) -> WorkerExited:
    """The event for a training process that was reaped at the unix time `t`."""
    exit_code = returncode if returncode >= 0 else None
    return WorkerExited(t=t, pid=pid, exit_code=exit_code, signal=signal_name(returncode))


def kind_of_end(returncode: int) -> FailureKind:
    """The kind of a failure without a report, by the return code. Any exit code is `exited`."""
    if returncode >= 0:
        return "exited"
    return "aborted" if -returncode in _BROKEN_CODE else "killed"
