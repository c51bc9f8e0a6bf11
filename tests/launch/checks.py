"""Parts of the launcher, run in a process with torch: what is reported of a missing host, and a clock that is ahead."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from pathlib import Path

import msgspec

from engine.launch import clock, joining, stores
from engine.launch.plan import make_plan
from tputui.telemetry import events as ev
from tputui.telemetry.rundir import read_manifest

AHEAD_S = 90.0


class Clock:
    """Time that passes only while a host sleeps, so that it sees the same times on any machine."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Returns at once."""
        self._now += seconds

    def time(self) -> float:
        """Unix time, which nothing waits for."""
        return time.time()


def main(run_dir: Path) -> None:
    """Prints the results as JSON."""
    joining.time = Clock()  # type: ignore[assignment, attr-defined]
    plan = make_plan(run_dir, read_manifest(run_dir), 0, [])
    server = stores.serve(("127.0.0.1", 0), 5.0)
    endpoint = ("127.0.0.1", server.port)
    answers = clock.ClockServer(stores.connect(endpoint, 5.0))
    offset = clock.measure(stores.connect(endpoint, 5.0), lambda: time.time() + AHEAD_S)
    assert offset is not None
    answers.close()
    emitted: list[ev.Event] = []
    reason = ""
    try:
        joining.Joining(plan, emitted.append).join(endpoint)
    except joining.NotJoined as error:
        reason = str(error)
    unreachable: list[ev.Event] = []
    with contextlib.suppress(joining.NotJoined):
        joining.Joining(msgspec.structs.replace(plan, index=1), unreachable.append).join(("127.0.0.1", 1))
    # The name of this host is that of its loopback device, as on Debian.
    resolve = socket.getaddrinfo
    socket.getaddrinfo = lambda host, *args, **more: resolve("127.0.1.1" if host == "pod-0" else host, *args, **more)
    with stores.listen("pod-0", 0) as listener:
        bound, port = listener.getsockname()
        known_as = joining.Joining(plan, emitted.append)._reached(("pod-0", port))
    result = {
        "bound": bound,
        "known_as": known_as,
        "offset": offset,
        "reason": reason,
        "unreachable": [event.text for event in unreachable if isinstance(event, ev.WarningRaised)],
        "events": [msgspec.to_builtins(event) for event in emitted],
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
