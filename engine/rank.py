"""Another training process of a `replica` run: `python -P -m engine.rank RUN_DIR ...`, started by the worker.

It trains one rank per core in step with the others, and writes a journal for each with its heartbeat and failures. The
leading rank of its host, in the worker, reports, and receives requests and signals. This process ends with the worker.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path

from engine import run_plan
from engine.errors import PEER_LOST, RANK_FINISHED, NotFinite, PeerLost, Refused, Stopped, Unable
from engine.host_place import HostPlace
from engine.parallel.rank_processes import ROLE
from engine.process import crash_report, hardware
from engine.process.main_thread import POLL_INTERVAL_S
from engine.process.own_journal import RankReporter
from engine.process.requests import RequestQueue
from engine.task import Plan
from tputui.config import ConfigError, from_builtins
from tputui.engine_api import ExitCode, end_with
from tputui.reporting import Manifest, Progress, ReportedProcess, dump_stacks_on_signal, held, read_manifest, text_of


class Rank(ReportedProcess):
    def __init__(self, run_dir: Path, manifest: Manifest, rank: int, place: HostPlace, *, telemetry: bool) -> None:
        """`place` is that of its host."""
        self.rank = rank
        self._place = place
        journal = RankReporter(run_dir, rank, host_index=place.index, generation=place.generation)
        super().__init__(journal, Progress())
        self._journal, self._requests = journal, RequestQueue()
        self._run_dir = run_dir
        self._resume_path = manifest.resume_path
        self._telemetry = telemetry

    def answer_requests(self) -> None:
        """Answers the requests for the stacks of this process, for all ranks in it; the worker receives the others."""
        for request in self.server.poll():
            if request.kind == "stacks":
                self.server.report_stacks(request)

    def train(self, planned: Plan, num_ranks: int, link: socket.socket, device_index: int) -> int:
        """Trains to the end and returns the exit code; failures are reported, never raised. `link` leads to the leading
        rank of the host."""
        try:
            return self._train(planned, num_ranks, link, device_index)
        except PeerLost:
            return PEER_LOST
        except BaseException as error:  # noqa: BLE001, RUF100 - reported in the journal and the log, then the process ends
            return self.failed(error, crash_report.exit_code_of(error))

    def failed(self, error: BaseException, code: ExitCode) -> ExitCode:
        """Reports a failure and returns the exit code."""
        failure = crash_report.failure_event(error, self.progress)
        crash_report.report(failure, self.reporter, f"rank {self.rank}:\n")
        self.report_end("failed", f"{type(error).__name__}: {text_of(error)}")
        return code

    def _train(self, planned: Plan, num_ranks: int, link: socket.socket, device_index: int) -> int:
        from engine.loop import build
        from engine.parallel.group import RankSocket

        place = RankSocket(self.rank, num_ranks, [link], self.progress.wait_for, self._place.num_hosts)
        cores = build.strategy(planned, place, device_index)
        context = build.RunContext(
            self._run_dir,
            self.reporter,
            self.progress,
            self._requests,
            self._resume_path,
            self._telemetry,
            self.server,
        )
        trainer = build.trainer(planned, cores, context)
        self._journal.training = True
        try:
            self.report_end("done", trainer.train())
        except Stopped as stopped:
            self.report_end("stopped", str(stopped))
        except NotFinite as error:
            # All ranks have found it at the same step, and the first one reports it.
            self.report_end("failed", str(error))
        finally:
            trainer.events.programs.close()
        self.progress.enter("ending")
        return ExitCode.DONE


class Process:
    """The ranks of this process, trained in threads and monitored by the main thread."""

    def __init__(self, arguments: argparse.Namespace, run_dir: Path, manifest: Manifest) -> None:
        self._arguments = arguments
        self._manifest = manifest
        first, last = (int(part) for part in arguments.ranks.split("-"))
        telemetry = not arguments.no_telemetry
        index, num_hosts = (int(part) for part in arguments.host.split("/"))
        self._place = HostPlace(index=index, num_hosts=num_hosts, generation=arguments.generation)
        self._ranks = [
            Rank(run_dir, manifest, rank, self._place, telemetry=telemetry) for rank in range(first, last + 1)
        ]
        self._ended = threading.Event()
        self._code = RANK_FINISHED

    def run(self) -> None:
        threading.Thread(target=self._train, name="tputui-train", daemon=True).start()
        while not self._ended.wait(POLL_INTERVAL_S) and not _parent_has_closed():
            for rank in self._ranks:
                rank.beat()
            self._ranks[0].answer_requests()
        for rank in self._ranks:
            rank.close()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(self._code)

    def _train(self) -> None:
        try:
            planned = self._plan()
            # Imports the runtime.
            from engine.xla import backend
        except (Refused, ConfigError) as error:
            self._end(self._ranks[0].failed(error, ExitCode.USAGE))
            return
        except (Unable, ImportError, OSError) as error:
            self._end(self._ranks[0].failed(error, ExitCode.ENVIRONMENT))
            return
        backend.drop_temporary_directory()
        process, num_processes = (int(part) for part in self._arguments.process.split("/"))
        of = self._arguments.of
        links = [socket.socket(fileno=int(number)) for number in self._arguments.links.split(",")]

        def train(index: int) -> None:
            code = self._ranks[index].train(planned, of, links[index], index)
            if code != ExitCode.DONE:
                self._end(code)

        backend.launch(train, process, num_processes)
        self._end(RANK_FINISHED)

    def _plan(self) -> Plan:
        config = from_builtins(self._manifest.config, self._manifest.config_path)
        found = hardware.find(os.environ)
        os.environ.update(hardware.environment(config, found))
        hardware.require_packages()
        return run_plan.make(config, found, self._manifest.config_path, self._place.num_hosts)

    def _end(self, code: int) -> None:
        """Ends the process with this code, unless it is ending already."""
        if not self._ended.is_set():
            self._code = code
            self._ended.set()


def main(argv: list[str] | None = None) -> int:
    """Entry point; ends the process itself once training has begun."""
    parser = argparse.ArgumentParser(prog="python -P -m engine.rank", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run_dir", type=Path, help="run directory with its manifest")
    parser.add_argument("--process", required=True, help="P/N: number of this process on its host, and of how many")
    parser.add_argument("--host", default="0/1", help="I/N: index of the host, and number of hosts")
    parser.add_argument("--generation", type=int, default=0, help="how often the run was restarted")
    parser.add_argument("--ranks", required=True, help="A-B: ranks of this process")
    parser.add_argument("--of", type=int, required=True, help="number of ranks of all hosts")
    parser.add_argument("--links", required=True, help="inherited file descriptors of the links to the leading rank")
    parser.add_argument("--parent", type=int, required=True, help="process id of the worker")
    parser.add_argument("--no-telemetry", action="store_true", help="do not record steps")
    arguments = parser.parse_args(argv)
    end_with(arguments.parent, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    run_dir = held(arguments.run_dir)
    dump_stacks_on_signal(run_dir, f"{ROLE}-{arguments.ranks.partition('-')[0]}")
    manifest = read_manifest(run_dir)
    # Last, so that the user's modules never hide ours.
    sys.path.append(manifest.cwd)
    Process(arguments, run_dir, manifest).run()
    return ExitCode.FAILED


def _parent_has_closed() -> bool:
    """Whether the parent has closed the pipe to this process; it never writes to it."""
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main())
