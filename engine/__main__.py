"""The training process: `python -P -m engine RUN_DIR [--host 0 --hosts 1]`, started by the supervisor.

The main thread handles signals, heartbeat and requests; training runs in a second thread, so that the process responds
during a long compilation. Exits with 0 done, 2 configuration refused, 3 failed, 4 stopped, 7 machine not able.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from engine import rank as ranks
from engine import run_plan
from engine.errors import PEER_LOST, NotFinite, PeerLost, Stopped, Unable
from engine.host_place import HostPlace, read_place
from engine.parallel.rank_processes import LAST_STEP_S, RankProcesses
from engine.process import crash_report, hardware
from engine.process.main_thread import WorkerMonitor, leave
from engine.process.own_journal import HostReporter
from engine.process.requests import RequestQueue
from engine.task import Plan
from tputui.config import RunConfig, from_builtins
from tputui.engine_api import ExitCode, clear_half_written, end_with
from tputui.reporting import (
    CHECKPOINTS,
    Manifest,
    Progress,
    Reporter,
    RunNotFound,
    dump_stacks_on_signal,
    held,
    read_manifest,
    text_of,
)
from tputui.reporting import events as ev

if TYPE_CHECKING:
    from engine.parallel.host_group import HostGroup


class Ending(NamedTuple):
    outcome: ev.Outcome
    code: ExitCode
    reason: str
    everywhere: bool = False
    """Whether all processes of the run end like this at the same step."""


class Worker:
    """Trains one run in a thread, monitored by the main thread."""

    def __init__(self, run_dir: Path, place: HostPlace, manifest: Manifest, *, telemetry: bool) -> None:
        self._run_dir = run_dir
        self._place = place
        self._manifest = manifest
        self._telemetry = telemetry
        make = Reporter if place.is_first else HostReporter
        self._reporter = make(run_dir, "worker", place.index, generation=place.generation)
        self._progress = Progress()
        self._requests = RequestQueue()
        self._monitor = WorkerMonitor(run_dir, self._reporter, self._progress, self._requests)
        self._rank_processes: RankProcesses | None = None
        self._local_ranks: list[ranks.Rank] = []
        """The other ranks of this process, which are threads of it."""
        self._hosts: HostGroup | None = None
        """Connection to the other hosts, if there are any."""
        self._ended = threading.Event()
        self._ending = Ending("failed", ExitCode.FAILED, "training did not report how it ended")

    def run(self) -> None:
        """Trains and ends the process."""
        self._monitor.catch_signals()
        threading.Thread(target=self._run_training, name="tputui-train", daemon=True).start()
        self._monitor.run_until(self._ended, self._check_ranks)
        ending = self._ending
        # The loop may be inside a save, whose events must be in the journal before its end.
        self._progress.saving.acquire(timeout=SAVE_WAIT_S)
        self._monitor.server.refuse_open(f"training had {_PAST[ending.outcome]} before it could be served")
        self._monitor.report_end(ending.outcome, ending.reason)
        if self._hosts is not None:
            self._hosts.close(
                "stopped" if ending.everywhere and ending.outcome == "failed" else ending.outcome, ending.reason
            )
        if self._rank_processes is not None:
            self._report_exits(ending=False)
            self._rank_processes.end(wait_s=0.0 if ending.outcome == "failed" else LAST_STEP_S)
            self._report_exits(ending=True)
        for rank in self._local_ranks:
            rank.close()
        leave(self._reporter, ending.code)

    def _run_training(self) -> None:
        try:
            ending = self._train()
        except PeerLost as error:
            if self._hosts is not None or self._rank_processes is not None:
                # The main thread is about to find out which rank or host was lost and why, and then ends the process.
                self._ended.wait(ROOT_CAUSE_WAIT_S)
            if self._ended.is_set():
                return
            ending = self._failed(error)
        except NotFinite as error:
            # Of no rank in particular: all have found it at the same step, and the first host reports it.
            if self._place.is_first:
                crash_report.report(crash_report.failure_event(error, self._progress), self._reporter)
            ending = Ending("failed", ExitCode.FAILED, str(error), everywhere=True)
        except BaseException as error:  # noqa: BLE001, RUF100 - reported in the journal and the log, then the process ends
            ending = self._failed(error)
        self._progress.enter("ending")
        if self._requests.claim_end():
            self._ending = ending
            self._ended.set()
        if self._rank_processes is not None:
            # The rank processes are killed when the thread that started them ends; they may still report their end.
            threading.Event().wait()

    def _train(self) -> Ending:
        config = from_builtins(self._manifest.config, self._manifest.config_path)
        found = hardware.find(os.environ)
        # Before the plan, since a user's module may import the runtime.
        os.environ.update(hardware.environment(config, found))
        planned = run_plan.make(config, found, self._manifest.config_path, self._place.num_hosts)
        hardware.require_packages()
        self._start_ranks(planned)
        try:
            build = importlib.import_module(planned.task.builder)
        except (ImportError, OSError) as error:
            raise Unable(f"torch_xla does not import: {error}") from error
        from engine.xla import backend

        backend.drop_temporary_directory()
        hosts = self._join_hosts(config)
        if planned.num_processes > 1:
            return self._lead(planned, build, hosts)
        if hosts is None:
            return self._train_on(planned, build, build.strategy(planned))
        return self._train_on(planned, build, self._only_process(planned, build, hosts))

    def _join_hosts(self, config: RunConfig) -> HostGroup | None:
        """Waits for the other hosts; None if there are none. Raises `PeerLost`."""
        if self._place.num_hosts == 1:
            return None
        from engine.parallel.host_group import HostGroup

        timeouts = {"link_timeout_s": config.launch.lost_after_s, "join_timeout_s": config.launch.join_timeout_s}
        self._hosts = HostGroup(self._place, self._progress.wait_for, **timeouts)
        self._monitor.connect_hosts(self._hosts.links)
        return self._hosts

    def _only_process(self, planned: Plan, build: Any, hosts: HostGroup) -> Any:
        """The cores of this host, if this is its only process."""
        from engine.parallel.group import RankSocket

        place = RankSocket(
            self._place.index, self._place.num_hosts, [], self._progress.wait_for, self._place.num_hosts, hosts
        )
        return build.strategy(planned, place)

    def _lead(self, planned: Plan, build: Any, hosts: HostGroup | None) -> Ending:
        """Trains as the leading rank of this host, in one thread for each rank of this process."""
        from engine.parallel.group import RankSocket
        from engine.xla import backend

        processes = self._rank_processes
        assert processes is not None
        ending: Future[Ending] = Future()

        def train(index: int) -> None:
            if index:
                code = self._local_ranks[index - 1].train(
                    planned, processes.num_ranks, processes.local_links[index - 1], index
                )
                if code not in (ExitCode.DONE, PEER_LOST) and not ending.done():
                    rank = processes.first_rank + index
                    ending.set_exception(RuntimeError(f"rank {rank} failed; see rank-{rank}.jsonl"))
                return
            try:
                waits, num_hosts = self._progress.wait_for, self._place.num_hosts
                place = RankSocket(processes.first_rank, processes.num_ranks, processes.links, waits, num_hosts, hosts)
                cores = build.strategy(planned, place, index)
                ending.set_result(self._train_on(planned, build, cores))
            except BaseException as error:  # noqa: BLE001, RUF100 - raised by result() below
                ending.set_exception(error)

        threads = (train, 0, processes.num_processes)
        threading.Thread(target=backend.launch, args=threads, name="tputui-ranks", daemon=True).start()
        return ending.result()

    def _train_on(self, planned: Plan, build: Any, cores: Any) -> Ending:
        from engine.checkpoint.continued import remove_partial_writes
        from engine.loop.build import RunContext

        resume_path = self._resume_path()
        if resume_path is not None:
            remove_partial_writes(resume_path)
        context = RunContext(
            self._run_dir,
            self._reporter,
            self._progress,
            self._requests,
            resume_path,
            self._telemetry,
            self._monitor.server,
        )
        trainer = build.trainer(planned, cores, context)
        if isinstance(self._reporter, HostReporter):
            self._reporter.training = True
        try:
            return Ending("done", ExitCode.DONE, trainer.train())
        except Stopped as stopped:
            return Ending("stopped", ExitCode.STOPPED, str(stopped))
        finally:
            trainer.events.programs.close()

    def _resume_path(self) -> Path | None:
        """The checkpoint to continue from: the newest of this run if its processes were restarted."""
        if self._place.generation and self._place.is_first:
            clear_half_written(self._run_dir)
            # A path that messages may name.
            last = self._run_dir.resolve() / CHECKPOINTS / "last.pt"
            if last.exists():
                return last
        return self._manifest.resume_path

    @property
    def _rank_prefix(self) -> str:
        """Prefix that names this rank; empty if there is only one."""
        processes = self._rank_processes
        return "" if processes is None else f"rank {processes.first_rank} (core {processes.first_rank}): "

    def _start_ranks(self, planned: Plan) -> None:
        """Starts the other processes of the run, if the plan has any."""
        if planned.num_processes == 1:
            return
        each = planned.config.num_cores // planned.num_hosts // planned.num_processes
        first = self._place.index * planned.num_processes * each
        self._local_ranks = [
            ranks.Rank(self._run_dir, self._manifest, rank, self._place, telemetry=self._telemetry)
            for rank in range(first + 1, first + each)
        ]
        self._rank_processes = RankProcesses(
            self._run_dir.resolve(), planned.num_processes, each, self._place, telemetry=self._telemetry
        )

    def _check_ranks(self) -> None:
        """Ends the run if another process of it has failed, on this host or another one."""
        for rank in self._local_ranks:
            rank.beat()
        lost = self._rank_processes.lost() if self._rank_processes is not None else None
        self._report_exits(ending=False)
        if lost is None:
            self._check_hosts()
            return
        if not self._requests.claim_end():
            return
        now, phase, step = time.time(), self._progress.doing.phase, self._progress.step
        if lost.failure is not None:
            failure = replace(lost.failure, t=now, message=f"{lost.who}: {lost.failure.message}")
        else:
            failure = ev.FailureRaised(
                t=now, error="RankLost", message=lost.sentence, traceback="", phase=phase, step=step
            )
        self._reporter.emit(replace(failure, kind=lost.kind, process=lost.process, pid=lost.pid))
        self._ending = Ending("failed", lost.code, lost.sentence)
        self._ended.set()

    def _check_hosts(self) -> None:
        lost = self._hosts.links.lost() if self._hosts is not None else None
        if lost is None or not self._requests.claim_end():
            return
        self._reporter.emit(
            ev.FailureRaised(
                t=time.time(),
                error="HostLost",
                message=lost.sentence,
                traceback="",
                phase=self._progress.doing.phase,
                step=self._progress.step,
                kind="exited",
                process=f"worker-{lost.host}",
            )
        )
        self._ending = Ending("failed", ExitCode.FAILED, lost.sentence)
        self._ended.set()

    def _report_exits(self, *, ending: bool) -> None:
        for event in self._rank_processes.new_exits(ending=ending) if self._rank_processes is not None else []:
            self._reporter.emit(event)

    def _failed(self, error: BaseException) -> Ending:
        crash_report.report(crash_report.failure_event(error, self._progress, self._rank_prefix), self._reporter)
        first = text_of(error).partition("\n")[0]
        code = crash_report.exit_code_of(error)
        return Ending("failed", code, f"{self._rank_prefix}{type(error).__name__}: {first}")


ROOT_CAUSE_WAIT_S = 10.0
"""How long the training thread waits for the main thread to report which process was lost."""
SAVE_WAIT_S = 4.0
"""How long a process may still save and record that, after another process of the run was lost. A launcher kills it a
second later."""
_PAST = {"done": "ended", "stopped": "stopped", "failed": "failed"}


def main(argv: list[str] | None = None) -> int:
    """Entry point; ends the process itself once training has begun."""
    parser = argparse.ArgumentParser(prog="python -P -m engine", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run_dir", type=Path, help="run directory with its manifest")
    parser.add_argument("--host", type=int, default=0, help="index of this host in the run")
    parser.add_argument("--hosts", type=int, default=1, help="number of hosts of the run")
    parser.add_argument("--parent", type=int, help="process id of the launcher, with which this process ends")
    parser.add_argument("--no-telemetry", action="store_true", help="do not record steps (to measure overhead)")
    arguments = parser.parse_args(argv)
    if arguments.parent is not None:
        end_with(arguments.parent, signal.SIGKILL)
    faulthandler.enable()
    try:
        run_dir = held(arguments.run_dir)
        manifest = read_manifest(run_dir)
        place = read_place(os.environ, arguments.host, arguments.hosts)
        worker = Worker(run_dir, place, manifest, telemetry=not arguments.no_telemetry)
    except Unable as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.ENVIRONMENT
    except (RunNotFound, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    dump_stacks_on_signal(run_dir, f"worker-{arguments.host}")
    # Last, so that the user's modules never hide ours.
    sys.path.append(manifest.cwd)
    worker.run()
    return ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(main())
