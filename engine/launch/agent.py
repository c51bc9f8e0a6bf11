"""The engine `torchrun`: torch elastic's own agent runs the training process, and restarts all of them after a failure.

The rendezvous is torch's, over the store where the hosts met. It numbers the hosts anew in every round; here each host
keeps its index, so that host 0 leads in every generation, and all agree on the number of the generation: agents count
only the failures that each has seen itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

from engine.errors import Unable
from engine.host_place import GENERATION_VARIABLE
from engine.launch import exits
from engine.launch.host_watch import HostWatch
from engine.launch.host_worker import HostWorker
from engine.launch.joining import Joined
from engine.launch.plan import LaunchPlan
from engine.launch.stop_signal import StoppedEarly, StopSignal

MONITOR_S = 0.1
"""Between two polls of an agent for its training process and for hosts that wait; longer for many hosts, since each
poll reads the names of all."""
HOSTS_POLLED_PER_S = 250
EXIT_BARRIER_S = 60
"""How long an agent waits at the end for the agents of the other hosts."""
AGREE_S = 60.0


def run(
    plan: LaunchPlan,
    joined: Joined,
    endpoint: tuple[str, int],
    watch: HostWatch,
    worker: HostWorker,
    stop: StopSignal,
) -> None:
    """Runs the training processes of this host to their end, over all generations. Raises `Unable`."""
    seconds = plan.launch.lost_after_s
    # A connection of its own: the operations of one connection wait for each other.
    store = TCPStore(
        endpoint[0], endpoint[1], is_master=False, wait_for_workers=False, timeout=timedelta(seconds=AGREE_S)
    )
    join_timeout_s, keep_alive_s = max(1, round(plan.launch.join_timeout_s)), max(1, round(seconds / 4))
    limits = {
        "join_timeout": join_timeout_s,
        "last_call_timeout": 1,
        "keep_alive_interval": keep_alive_s,
        # Which host is lost is decided by `HostWatch`. If the rendezvous dropped a host that is only slow, the others
        # would wait for it in a round that it is not part of.
        "keep_alive_max_attempt": max(3, join_timeout_s // keep_alive_s),
    }
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint=f"{endpoint[0]}:{endpoint[1]}",
        run_id=plan.run,
        min_nodes=plan.num_hosts,
        max_nodes=plan.num_hosts,
        local_addr=joined.address(plan.index),
        **limits,
    )
    handler = create_handler(store, C10dRendezvousBackend(store, plan.run), parameters)
    rendezvous = PlacedRendezvous(handler, plan, joined, watch)
    spec = WorkerSpec(
        role="tputui",
        local_world_size=1,
        entrypoint=plan.worker_argv[0],
        args=tuple(plan.worker_argv[1:]),
        rdzv_handler=rendezvous,
        max_restarts=plan.launch.max_restarts,
        monitor_interval=max(MONITOR_S, plan.num_hosts / HOSTS_POLLED_PER_S),
        local_addr=joined.address(plan.index),
    )
    agent = HostAgent(spec, worker, watch, rendezvous, stop)
    try:
        agent.run()
    except StoppedEarly as stopped:
        # Before the rendezvous is closed, so that the other hosts find out why.
        watch.stop(str(stopped))
        raise
    except SignalException:
        # The agent has passed the signal on and waited; how training ended is in its journal.
        return
    except RendezvousTimeoutError:
        problem = f"not all hosts came back within {plan.launch.join_timeout_s:g} s (launch.join_timeout_s)"
        raise Unable(f"after a failure, {problem}") from None
    except (RendezvousClosedError, RendezvousConnectionError, RendezvousStateError):
        # Another host has ended the run, for a reason that it has published.
        with contextlib.suppress(RuntimeError):
            watch.take_cause()
        return
    finally:
        rendezvous.shutdown()


class PlacedRendezvous(RendezvousHandler):
    """A rendezvous in which each host has the rank of its index."""

    def __init__(self, handler: RendezvousHandler, plan: LaunchPlan, joined: Joined, watch: HostWatch) -> None:
        self._handler = handler
        self._plan = plan
        self._joined = joined
        self._watch = watch
        self.generation = -1
        """Number of the newest generation; -1 before the first."""

    def next_rendezvous(self) -> RendezvousInfo:
        """Meets the other hosts for the next generation."""
        self._watch.await_round(self.generation + 1)
        info = self._handler.next_rendezvous()
        index = self._plan.index
        store = PrefixStore("tputui", info.store)
        if not index:
            store.set("generation", str(self.generation + 1))
        self.generation = int(bytes(store.get("generation")))
        os.environ[GENERATION_VARIABLE] = str(self.generation)
        bootstrap = RendezvousStoreInfo.build(index, store, local_addr=self._joined.address(index))
        self._watch.begin(self.generation)
        return RendezvousInfo(info.store, index, info.world_size, bootstrap)

    def get_backend(self) -> str:
        """Name of the rendezvous."""
        return self._handler.get_backend()

    @property
    def use_agent_store(self) -> bool:
        """Whether training uses the store of the agents: its keys would outlive a generation."""
        return False

    def is_closed(self) -> bool:
        """Whether the rendezvous is over."""
        return self._handler.is_closed()

    def set_closed(self) -> None:
        """Ends the rendezvous."""
        self._handler.set_closed()  # type: ignore[no-untyped-call]

    def num_nodes_waiting(self) -> int:
        """Number of hosts that wait for the next generation."""
        return self._handler.num_nodes_waiting()

    def get_run_id(self) -> str:
        """Name of the run."""
        return self._handler.get_run_id()

    def shutdown(self) -> bool:
        """Ends the rendezvous, so that no other host waits for this one."""
        return self._handler.shutdown()


class HostAgent(LocalElasticAgent):
    """torch's agent of this host, which reports what it starts and what has ended."""

    def __init__(
        self,
        spec: WorkerSpec,
        worker: HostWorker,
        watch: HostWatch,
        rendezvous: PlacedRendezvous,
        stop: StopSignal,
    ) -> None:
        super().__init__(spec, DefaultLogsSpecs(log_dir=os.devnull), exit_barrier_timeout=EXIT_BARRIER_S)
        self._worker = worker
        self._watch = watch
        self._rendezvous_handler = rendezvous
        self._stop = stop

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        # From here on torch passes the signal on to the training process.
        self._stop.disarm()
        started: dict[int, Any] = super()._start_workers(worker_group)
        self._worker.started(next(iter(started.values())))
        if self._stop.requested:
            raise SignalException("stopped on request", signal.SIGTERM)
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.is_failed():
            failure = next(iter(result.failures.values()), None)
            self._report_exit(failure.exitcode if failure is not None else 1)
            cause = self._watch.cause
            if self._worker.returncode in exits.FINAL_CODES or (cause is not None and cause.is_final):
                # A further attempt would end in the same way, or is not wanted.
                self._remaining_restarts = 0
        elif result.state == WorkerState.SUCCEEDED:
            self._report_exit(0)
        return result

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        # Another host has failed, so there is nothing left to agree on or to save.
        self._worker.kill()
        super()._stop_workers(worker_group)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM) -> None:
        is_stopped = isinstance(sys.exc_info()[1], SignalException)
        super()._shutdown(death_sig)
        self._report_exit(self._returncode(), self._stop.error() if is_stopped else None)

    def _returncode(self) -> int:
        """How the training process ended that the agent has just stopped."""
        handlers = getattr(self._pcontext, "subprocess_handlers", {})
        code = next((handler.proc.poll() for handler in handlers.values()), None)
        return -signal.SIGTERM if code is None else int(code)

    def _report_exit(self, returncode: int, stopped: StoppedEarly | None = None) -> None:
        self._worker.exited(returncode, self._rendezvous_handler.generation, self._watch, stopped)
