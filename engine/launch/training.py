"""`Training`: the training processes of this host, each started once all hosts have come to its generation.

They have the environment that torchrun gives, but not its agent, which would name no host that is gone, gives the hosts
other ranks after a restart, and starts again what was refused: see "Several hosts" in docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time

from engine.launch import host_watch, stores
from engine.launch.host_watch import CAUSE_WAIT_S, HostWatch
from engine.launch.joining import Joined, NotJoined, Patience
from engine.launch.plan import LaunchPlan
from engine.launch.stores import Store
from engine.launch.supervisor import StoppedEarly, StopSignal, SupervisorPipe
from tputui.engine_api import LaunchFailed, run_clock, worker_exited
from tputui.reporting import events as ev

POLL_S = 0.1


class Training:
    """Starts the training processes, reports their starts and ends, and ends them."""

    def __init__(self, plan: LaunchPlan, pipe: SupervisorPipe) -> None:
        self._plan = plan
        self._pipe = pipe
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._began = 0.0
        self._is_killed = False
        """Whether the launcher killed it because of another host."""
        self.returncode: int | None = None
        """How the last one ended: its exit code, or the negative number of a signal; None before the first end, and
        after `kill`."""

    def run(self, joined: Joined, store: Store, watch: HostWatch, stop: StopSignal) -> None:
        """Runs the training processes to their end, over all generations. Raises `Unable` and `OSError`."""
        address, generation, is_next = joined.address(0), 0, True
        while is_next:
            stop.arm()
            with contextlib.ExitStack() as until_ended:
                if not self._plan.index:
                    store.set(_port_key(generation), _reserved_port(address, until_ended))
                port = self._meet(store, watch, generation)
                if port is None:
                    return
                watch.begin(generation)
                stop.disarm()
                process = self._start(_contract(self._plan, address, port, generation))
                stop.pass_on(self._send_signal)
                returncode = process.wait()
            self._exited(returncode, generation, watch, stop.error() if stop.requested else None)
            is_next = generation < self._plan.launch.max_restarts and self._may_restart(watch)
            generation += 1

    def kill(self) -> None:
        """Kills the training process and all that it started, because of another host."""
        with self._lock:
            if self._pid is not None:
                self._is_killed = True
                _kill_group(self._pid)

    def _meet(self, store: Store, watch: HostWatch, generation: int) -> str | None:
        """Waits until all hosts have come to a generation; returns the port of host 0 for it, or None if one of them
        has ended instead. Raises `NotJoined`."""
        plan = self._plan
        patience = Patience(plan, self._pipe.emit, lambda: stores.have_come(store, generation, plan.num_hosts))
        watch.wait()
        try:
            stores.come(store, generation, plan.index)
            while True:
                # Asked first: a host that has come may have ended by the second answer.
                is_over = stores.has(store, stores.OVER)
                if int(store.add(stores.num_come(generation), 0)) >= plan.num_hosts:
                    return stores.take(store, _port_key(generation))
                if is_over:
                    # For a reason that it has published.
                    watch.take_cause()
                    return None
                patience.check()
                time.sleep(POLL_S)
        except RuntimeError:
            # By then `watch` has found out the same, named host 0, and ended this process.
            time.sleep(CAUSE_WAIT_S)
            raise NotJoined("the connection to host 0 broke off") from None

    def _start(self, contract: dict[str, str]) -> subprocess.Popen[bytes]:
        """Starts a training process, as the leader of a process group. Raises `OSError`."""
        argv, environ = self._plan.worker_argv, {**os.environ, **contract}
        with self._lock:
            process = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
            self._pid, self._began, self._is_killed = process.pid, run_clock.now(), False
        self._pipe.emit(ev.WorkerStarted(t=self._began, pid=process.pid, argv=argv))
        return process

    def _exited(self, returncode: int, generation: int, watch: HostWatch, stopped: StoppedEarly | None) -> None:
        """The training process was reaped. Finds out and publishes why it failed, if it did.

        `stopped`: the launcher has passed a request to stop on to it.
        """
        with self._lock:
            pid, self._pid = self._pid, None
        if pid is None:
            return
        self.returncode = None if self._is_killed else returncode
        # Processes that it started and left behind.
        _kill_group(pid)
        self._pipe.emit(worker_exited(run_clock.now(), pid, returncode))
        failure = None
        if stopped is not None and returncode in (-signal.SIGTERM, -signal.SIGKILL):
            # It did not train yet, and could not handle the signal.
            returncode = self.returncode = stopped.code
            self._pipe.send(LaunchFailed(code=stopped.code, reason=str(stopped)))
            watch.stop(str(stopped))
        elif returncode != 0 and not self._is_killed:
            plan = self._plan
            failure = host_watch.failure_of(plan.run_dir, plan.index, generation, returncode, pid, self._began)
        if failure is not None:
            # The supervisor reports it now; the training process may be started again.
            self._pipe.send(failure)
        watch.exited(failure, returncode)

    def _may_restart(self, watch: HostWatch) -> bool:
        """Whether a further attempt is wanted, and would not end in the same way."""
        is_final = watch.cause is not None and watch.cause.is_final
        return self.returncode != 0 and self.returncode not in host_watch.FINAL_CODES and not is_final

    def _send_signal(self, number: int) -> None:
        pid = self._pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _contract(plan: LaunchPlan, address: str, port: str, generation: int) -> dict[str, str]:
    """The variables that torchrun would set; training meets at host 0, whose address and port these are."""
    index, num_hosts = str(plan.index), str(plan.num_hosts)
    return {
        "RANK": index,
        "WORLD_SIZE": num_hosts,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": index,
        "GROUP_WORLD_SIZE": num_hosts,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": str(generation),
        "TORCHELASTIC_MAX_RESTARTS": str(plan.launch.max_restarts),
        "TORCHELASTIC_RUN_ID": plan.run,
        # Training would look for the store of an agent, whose keys outlive a generation.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _port_key(generation: int) -> str:
    return f"master_port/{generation}"


def _reserved_port(address: str, until_ended: contextlib.ExitStack) -> str:
    """A port that no other process is given in the seconds before training listens there, nor later.

    Training may listen although the port is bound, since both set SO_REUSEADDR.
    """
    held = until_ended.enter_context(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET))
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return str(held.getsockname()[1])


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
