"""The engine `external`: the training process runs under the launcher, once; nothing is restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from types import FrameType

from torch._C._distributed_c10d import Store

from engine.errors import Unable
from engine.host_place import GENERATION_VARIABLE
from engine.launch import stores
from engine.launch.host_watch import HostWatch
from engine.launch.host_worker import HostWorker
from engine.launch.joining import Joined
from engine.launch.plan import LaunchPlan
from engine.launch.stop_signal import StopSignal

MASTER_PORT_WAIT_S = 60.0


def run(plan: LaunchPlan, joined: Joined, store: Store, watch: HostWatch, worker: HostWorker, stop: StopSignal) -> None:
    """Runs the training process to its end."""
    with contextlib.ExitStack() as until_ended:
        environ = {**os.environ, **contract(plan, joined, store, until_ended)}
        _train(plan.worker_argv, environ, watch, worker, stop)


def _train(argv: list[str], environ: dict[str, str], watch: HostWatch, worker: HostWorker, stop: StopSignal) -> None:
    watch.begin(0)
    terminated: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        worker.forward(number)

    signal.signal(signal.SIGTERM, forward)
    process = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
    worker.started(process.pid)
    for number in terminated:
        worker.forward(number)
    returncode = process.wait()
    worker.exited(returncode, 0, watch, stop.error() if terminated else None)


def contract(plan: LaunchPlan, joined: Joined, store: Store, until_ended: contextlib.ExitStack) -> dict[str, str]:
    """The variables that torchrun would set. The port is held `until_ended`. Raises `Unable`."""
    index = plan.index
    if not index:
        # No other process is given the port in the seconds before training listens there. It may listen although the
        # port is bound, since both set SO_REUSEADDR.
        held = until_ended.enter_context(socket.socket(_family(joined.address(0))))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((joined.address(0), 0))
        store.set("master_port", str(held.getsockname()[1]))
    port = stores.wait_for(store, "master_port", MASTER_PORT_WAIT_S)
    if port is None:
        raise Unable("host 0 did not choose a port for training; has its launcher ended?")
    return {
        "RANK": str(index),
        "WORLD_SIZE": str(plan.num_hosts),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(index),
        "GROUP_WORLD_SIZE": str(plan.num_hosts),
        "MASTER_ADDR": joined.address(0),
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": plan.run,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        GENERATION_VARIABLE: "0",
    }


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
