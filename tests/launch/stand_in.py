"""A training process that exchanges with the other hosts over TCP, without torch: what a launcher starts in tests.

`STAND_IN` is JSON: what the process of a host does in a generation, by `HOST.GENERATION`; `wait` without an entry.
It exits with the code of a process that lost another one as soon as a connection to the other hosts closes.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from engine.errors import PEER_LOST
from engine.host_place import HostPlace, read_place
from tests.deadline import DEADLINE_S
from tputui.child_process import end_with
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter


def main() -> int:
    """Does what `STAND_IN` says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--host", type=int)
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--parent", type=int)
    arguments = parser.parse_args()
    end_with(arguments.parent, signal.SIGKILL)
    place = read_place(os.environ, arguments.host, arguments.hosts)
    action = json.loads(os.environ.get("STAND_IN", "{}")).get(f"{place.index}.{place.generation}", "wait")
    if action == "load":
        # As while it imports torch: signals have their default actions.
        threading.Event().wait()
    reporter = Reporter(arguments.run_dir, "worker", place.index, generation=place.generation)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    reporter.flush()
    links = _connect(place)
    contract = {name: os.environ[name] for name in sorted(os.environ) if name.startswith(("MASTER_", "TORCHELASTIC_"))}
    reporter.emit(ev.LogWritten(t=time.time(), line=json.dumps(contract)))
    code, event = _act(action, links, stopped)
    if event is not None:
        reporter.emit(event)
    outcome: ev.Outcome = {0: "done", 4: "stopped"}.get(code, "failed")  # type: ignore[assignment]
    reporter.emit(ev.TrainingEnded(t=time.time(), outcome=outcome, step=3, reason=action))
    reporter.close()
    return code


def _connect(place: HostPlace) -> list[socket.socket]:
    """A connection between host 0 and each other host."""
    if not place.index:
        with socket.create_server((place.master_addr, place.master_port)) as server:
            server.settimeout(DEADLINE_S)
            return [server.accept()[0] for _ in range(place.num_hosts - 1)]
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return [socket.create_connection((place.master_addr, place.master_port), DEADLINE_S)]
        except OSError:
            if time.monotonic() > deadline:
                raise
            select.select([], [], [], 0.01)


def _act(action: str, links: list[socket.socket], stopped: list[int]) -> tuple[int, ev.Event | None]:
    if action == "done":
        return 0, None
    if action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if action in ("raise", "refuse"):
        event = ev.FailureRaised(
            t=time.time(), error="ValueError", message="shard 7 is cut short", traceback="", phase="data", step=3
        )
        return 3 if action == "raise" else 2, event
    while not stopped:
        if select.select([] if action == "deaf" else links, [], [], 0.05)[0]:
            return PEER_LOST, None
    return 4, None


if __name__ == "__main__":
    sys.exit(main())
