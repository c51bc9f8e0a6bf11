"""The engine `external`: the training process runs under the launcher, once; nothing is restarted."""

from __future__ import annotations

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
    environ = {**os.environ, **contract(plan, joined, store)}
    watch.begin(0)
    terminated: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        worker.forward(number)

    signal.signal(signal.SIGTERM, forward)
    process = subprocess.Popen(plan.worker_argv, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
    worker.started(process.pid)
    for number in terminated:
        worker.forward(number)
    returncode = process.wait()
    worker.exited(returncode, 0, watch, stop.error() if terminated else None)


def contract(plan: LaunchPlan, joined: Joined, store: Store) -> dict[str, str]:
    """The variables that torchrun would set. Raises `Unable`."""
    index = plan.index
    if not index:
        with socket.socket(_family(joined.address(0))) as free:
            free.bind((joined.address(0), 0))
            store.set("master_port", str(free.getsockname()[1]))
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
