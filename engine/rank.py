"""A training process of a run besides the worker: `python -P -m engine.rank RUN_DIR ...`.

It trains the ranks that it is given, one a core, in step with the first rank, and keeps a journal for each with its
heartbeat and what breaks in it. The first rank reports, saves and is asked; here requests are seen when it passes them
on, and signals that ask for an end are left to it. This process ends with the one that started it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec

from engine import run_plan
from engine.errors import PEER_LOST, THROUGH, NotFinite, PeerLost, Refused, Unable, text_of
from engine.loop.run_context import RunContext
from engine.parallel.rank_processes import ROLE
from engine.process import crash_report, hardware, monitor, stacks, versions
from engine.process.monitor import POLL_INTERVAL_S, WorkerMonitor
from engine.process.requests import Progress, RequestQueue
from engine.task import Plan
from tputui.config import ConfigError, from_builtins
from tputui.exit_codes import ExitCode
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import Manifest, held, read_manifest

_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG."""


class RankReporter(Reporter):
    """Keeps what a rank alone can tell; all the rest is in the first rank's journal."""

    training = False
    """Until training has begun, the first rank has met the same, and says so."""

    def __init__(self, run_dir: Path, rank: int) -> None:
        self._rank = rank
        super().__init__(run_dir, ROLE, rank)

    def emit(self, event: ev.Event) -> None:
        """Records what is this rank's own."""
        if isinstance(event, ev.TopologyDeclared):
            event = msgspec.structs.replace(event, cores=[self._rank])
        own = (
            ev.JournalOpened
            | ev.TopologyDeclared
            | ev.HeartbeatSent
            | ev.FailureRaised
            | ev.StacksTaken
            | ev.TrainingEnded
        )
        if isinstance(event, own) or (self.training and isinstance(event, ev.WarningRaised | ev.ExampleSkipped)):
            super().emit(event)

    def record_steps(self, first: int, values: object, cores: int, metric: str = "loss") -> None:
        """The first rank records the steps of all."""


class Rank:
    """One rank: its thread, and its journal."""

    def __init__(self, run_dir: Path, manifest: Manifest, rank: int, *, telemetry: bool) -> None:
        self.rank = rank
        self._reporter = RankReporter(run_dir, rank)
        self.stacks = stacks.StackReporter(run_dir, self._reporter)
        """Answers for the stacks of the process."""
        self._progress, control = Progress(), RequestQueue()
        self._watch = WorkerMonitor(run_dir, self._reporter, self._progress, control)
        self._around = RunContext(run_dir, self._reporter, self._progress, control, manifest.resume_path, telemetry)

    def beat(self) -> None:
        """Beats the heart where it is due."""
        self._watch.beat()

    def train(self, planned: Plan, num_ranks: int, link: socket.socket, device_index: int) -> int:
        """Trains to the end; gives the exit code. `link` leads to the first rank. What breaks is told here, and never
        raised."""
        try:
            return self._train(planned, num_ranks, link, device_index)
        except PeerLost:
            return PEER_LOST
        except (Refused, ConfigError) as error:
            return self.failed(error, ExitCode.USAGE)
        except Unable as error:
            return self.failed(error, ExitCode.ENVIRONMENT)
        except BaseException as error:  # noqa: BLE001, RUF100 - told in the journal and the log, then the process ends
            return self.failed(error, ExitCode.FAILED)

    def failed(self, error: BaseException, code: ExitCode) -> ExitCode:
        """Tells what broke."""
        told = crash_report.failure(error, self._progress)
        self._reporter.emit(told)
        self._tell_end("failed", f"{type(error).__name__}: {text_of(error)}")
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"rank {self.rank}:\n{told.traceback or told.message}\n")
        return code

    def close(self) -> None:
        """Writes what is left to write."""
        monitor.close(self._reporter)

    def _train(self, planned: Plan, num_ranks: int, link: socket.socket, device_index: int) -> int:
        from engine.loop import build
        from engine.loop.trainer import Stopped
        from engine.parallel.group import RankSocket

        place = RankSocket(self.rank, num_ranks, [link], self._progress.wait_for)
        cores = build.replica(planned, place, device_index)
        trainer, reports = build.trainer(planned, cores, self._around)
        self._watch.follow(reports.programs.compiling_since, reports.served)
        self._reporter.training = True
        try:
            self._tell_end("done", trainer.train())
        except Stopped as stopped:
            self._tell_end("stopped", str(stopped))
        except NotFinite as error:
            # Every rank has come to it together, and the first one tells it for all.
            self._tell_end("failed", str(error))
        self._progress.enter("ending")
        return ExitCode.DONE

    def _tell_end(self, outcome: ev.Outcome, reason: str) -> None:
        self._reporter.emit(ev.TrainingEnded(t=time.time(), outcome=outcome, step=self._progress.step, reason=reason))


class Process:
    """The ranks of this process, trained in threads and watched by the main one."""

    def __init__(self, arguments: argparse.Namespace, run_dir: Path, manifest: Manifest) -> None:
        self._arguments = arguments
        self._manifest = manifest
        first, last = (int(part) for part in arguments.ranks.split("-"))
        telemetry = not arguments.no_telemetry
        self._ranks = [Rank(run_dir, manifest, rank, telemetry=telemetry) for rank in range(first, last + 1)]
        self._ended = threading.Event()
        self._code = THROUGH

    def run(self) -> None:
        """Trains, and ends the process."""
        threading.Thread(target=self._train, name="tputui-train", daemon=True).start()
        while not self._ended.wait(POLL_INTERVAL_S) and not _parent_has_closed():
            for rank in self._ranks:
                rank.beat()
            # One answer for the process: all its ranks are threads of it.
            self._ranks[0].stacks.look()
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
        self._end(THROUGH)

    def _plan(self) -> Plan:
        config = from_builtins(self._manifest.config, self._manifest.config_path)
        found = hardware.find(os.environ)
        os.environ.update(hardware.environment(config, found))
        versions.require()
        return run_plan.make(config, found, self._manifest.config_path)

    def _end(self, code: int) -> None:
        """The first word on the end of the process counts."""
        if not self._ended.is_set():
            self._code = code
            self._ended.set()


def main(argv: list[str] | None = None) -> int:
    """Entry point; ends the process itself once training has begun."""
    parser = argparse.ArgumentParser(prog="python -P -m engine.rank", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run_dir", type=Path, help="directory of the run, with its manifest in it")
    parser.add_argument("--process", required=True, help="P/N: which of the processes this is")
    parser.add_argument("--ranks", required=True, help="A-B: the ranks that it trains")
    parser.add_argument("--of", type=int, required=True, help="ranks of the run")
    parser.add_argument("--links", required=True, help="inherited file descriptors: each rank's link to the first rank")
    parser.add_argument("--parent", type=int, required=True, help="process id of the worker")
    parser.add_argument("--no-telemetry", action="store_true", help="train unseen")
    arguments = parser.parse_args(argv)
    _die_with(arguments.parent)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    run_dir = held(arguments.run_dir)
    stacks.tell_on_signal(run_dir, f"{ROLE}-{arguments.ranks.partition('-')[0]}")
    manifest = read_manifest(run_dir)
    # The user's own modules come last, so that theirs never hide ours.
    sys.path.append(manifest.cwd)
    Process(arguments, run_dir, manifest).run()
    return ExitCode.FAILED


def _die_with(parent: int) -> None:
    """From now on the end of the parent is the end of this process, whatever it does then."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ExitCode.FAILED)


def _parent_has_closed() -> bool:
    """Whether the parent has closed the pipe to this process: nothing else ever comes through it."""
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable)


if __name__ == "__main__":
    sys.exit(main())
