"""The launcher of a host: `python -P -m engine.launch RUN_DIR --host 0 ...`, started by the supervisor.

It joins the other hosts, runs the training process of this host with them, and ends when training has ended. It ends
with the supervisor, and the training process ends with it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from engine.errors import PEER_LOST, Unable
from engine.launch.plan import LaunchPlan, make_plan
from engine.launch.supervisor import StoppedEarly, StopSignal, SupervisorPipe
from tputui.engine_api import ExitCode, HostFailed, LaunchFailed, end_with, run_clock
from tputui.reporting import RunNotFound, held, read_manifest
from tputui.reporting import events as ev


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -P -m engine.launch", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run_dir", type=Path, help="run directory with its manifest")
    parser.add_argument("--host", type=int, default=0, help="index of this host in the run")
    parser.add_argument("--report-fd", type=int, help="inherited end of the pipe to the supervisor")
    parser.add_argument("--parent", type=int, help="process id of the supervisor, with which this process ends")
    parser.add_argument("--worker", default="engine", help="module of the training process")
    parser.add_argument("--log", type=Path, help="file for warnings")
    arguments = parser.parse_args(argv)
    if arguments.parent is not None:
        end_with(arguments.parent, signal.SIGKILL)
    logging.basicConfig(filename=arguments.log, format="%(asctime)s %(name)s: %(message)s", level=logging.WARNING)
    pipe = SupervisorPipe(arguments.report_fd)
    stop = StopSignal(arguments.host)
    stop.install()
    try:
        # The name of the directory may change, but not that of the run.
        manifest = read_manifest(arguments.run_dir)
        plan = make_plan(held(arguments.run_dir), manifest, arguments.host, _worker_argv(arguments, manifest.config))
        return _launch(plan, pipe, stop)
    except (RunNotFound, Unable, OSError) as error:
        code = getattr(error, "code", ExitCode.ENVIRONMENT)
        pipe.send(LaunchFailed(code=code, reason=str(error)))
        sys.stderr.write(f"{error}\n")
        return int(code)


def _worker_argv(arguments: argparse.Namespace, config: dict[str, object]) -> list[str]:
    launch = config.get("launch")
    hosts = launch.get("nnodes") if isinstance(launch, dict) else None
    argv = [sys.executable, "-P", "-m", arguments.worker, str(arguments.run_dir), "--host", str(arguments.host)]
    return [*argv, "--hosts", str(hosts or 1), "--parent", str(os.getpid())]


def _launch(plan: LaunchPlan, pipe: SupervisorPipe, stop: StopSignal) -> int:
    """Joins the other hosts and trains. Raises `Unable`."""
    _import_torch()
    from engine.launch import clock, stores
    from engine.launch.host_watch import HostWatch
    from engine.launch.joining import Joining
    from engine.launch.training import Training

    endpoint, timeout_s = plan.endpoint, plan.launch.lost_after_s
    _allow_connections()
    server = stores.serve(endpoint, timeout_s) if not plan.index else None
    if server is not None:
        endpoint = (endpoint[0], server.port)
    clocks = clock.ClockServer(stores.connect(endpoint, timeout_s)) if server is not None else None
    joined = Joining(plan, pipe.emit).join(endpoint, stop.arm)
    stop.disarm()
    here = joined.hosts[plan.index]
    pipe.emit(
        ev.HostJoined(
            t=run_clock.now(),
            host_index=plan.index,
            num_hosts=plan.num_hosts,
            waited_s=joined.waited_s,
            address=here.address,
        )
    )
    training = Training(plan, pipe)

    def leave(failure: HostFailed) -> NoReturn:
        training.kill()
        os._exit(failure.code)

    connect = partial(stores.connect, endpoint, timeout_s)
    watch = HostWatch(plan.index, joined, connect, pipe, timeout_s, training.kill, leave)
    watch.start()
    try:
        # A connection of its own: the operations of one connection wait for each other.
        training.run(joined, connect(), watch, stop)
    except StoppedEarly as stopped:
        watch.stop(str(stopped))
        raise
    finally:
        training.kill()
        watch.finish()
        if clocks is not None:
            clocks.close()
    if training.returncode in (None, PEER_LOST) and watch.cause is not None:
        # That of another host, also if its failure and the loss of a host were read at once.
        return watch.cause.code
    return _exit_code(training.returncode)


def _import_torch() -> None:
    """Imports torch without the messages of its C++ code about stores that do not answer, whose errors are raised
    too."""
    level = os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    import torch.distributed  # noqa: F401

    if level == "FATAL":
        # Read once, at the import; the training process has a log of its own.
        del os.environ["TORCH_CPP_LOG_LEVEL"]


def _allow_connections() -> None:
    """Lifts the soft limit of open files, usually 1024: host 0 has four connections to each of up to 256 hosts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _exit_code(returncode: int | None) -> int:
    if returncode is None:
        return ExitCode.FAILED
    return returncode if returncode >= 0 else ExitCode.FAILED


if __name__ == "__main__":
    # At once: the threads of the store would take a second to end.
    os._exit(main())
