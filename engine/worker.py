"""The training process: `python -P -m engine.worker RUN_DIR [--host 0]`, started by the supervisor.

The main thread keeps signals, heartbeat and requests; training runs in a second one, so that the process answers in
the middle of a long compile. Exits with 0 done, 2 configuration refused, 3 failed, 4 stopped, 7 machine not able.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import os
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from engine import rank as ranks
from engine import run_plan
from engine.errors import PEER_LOST, NotFinite, PeerLost, Refused, Unable, text_of
from engine.loop.run_context import RunContext
from engine.parallel.rank_processes import LAST_STEP_S, RankProcesses
from engine.process import crash_report, hardware, stacks, versions
from engine.process.monitor import WorkerMonitor, leave
from engine.process.requests import Progress, RequestQueue
from engine.task import Plan
from tputui.config import ConfigError, RunConfig, from_builtins
from tputui.exit_codes import ExitCode
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import Manifest, RunNotFound, held, read_manifest


class Ending(NamedTuple):
    """How training ended."""

    outcome: ev.Outcome
    code: ExitCode
    reason: str


class Worker:
    """Trains one run in a thread, watched by the main thread."""

    def __init__(self, run_dir: Path, host: int, manifest: Manifest, *, telemetry: bool) -> None:
        self._run_dir = run_dir
        self._manifest = manifest
        self._telemetry = telemetry
        self._reporter = Reporter(run_dir, "worker", host)
        self._progress = Progress()
        self._control = RequestQueue()
        self._around = RunContext(
            run_dir, self._reporter, self._progress, self._control, manifest.resume_path, telemetry
        )
        self._watch = WorkerMonitor(run_dir, self._reporter, self._progress, self._control)
        self._crew: RankProcesses | None = None
        self._beside: list[ranks.Rank] = []
        self._ended = threading.Event()
        self._ending = Ending("failed", ExitCode.FAILED, "training did not say how it ended")

    def run(self) -> None:
        """Trains and ends the process."""
        self._watch.catch_signals()
        threading.Thread(target=self._train_and_tell, name="tputui-train", daemon=True).start()
        self._watch.until(self._ended, self._look_at_the_others)
        ending = self._ending
        self._watch.refuse_unserved(f"training had {_PAST[ending.outcome]} before it could be served")
        if (unread := self._progress.unread()) is not None:
            self._reporter.emit(unread)
        self._reporter.emit(
            ev.TrainingEnded(t=time.time(), outcome=ending.outcome, step=self._progress.step, reason=ending.reason)
        )
        if self._crew is not None:
            self._tell_exits(ending=False)
            self._crew.end(patience_s=0.0 if ending.outcome == "failed" else LAST_STEP_S)
            self._tell_exits(ending=True)
        for rank in self._beside:
            rank.close()
        leave(self._reporter, ending.code)

    def _train_and_tell(self) -> None:
        try:
            ending = self._train()
        except PeerLost as error:
            # The main thread is about to find which, and why, and then ends the process.
            self._ended.wait(PEER_TOLD_S)
            if self._ended.is_set():
                return
            ending = self._failed(error, ExitCode.FAILED)
        except (Refused, ConfigError) as error:
            ending = self._failed(error, ExitCode.USAGE)
        except Unable as error:
            ending = self._failed(error, ExitCode.ENVIRONMENT)
        except NotFinite as error:
            # It is of no rank alone: all have come to it together.
            self._tell_failure(crash_report.failure(error, self._progress))
            ending = Ending("failed", ExitCode.FAILED, str(error))
        except BaseException as error:  # noqa: BLE001, RUF100 - told in the journal and the log, then the process ends
            ending = self._failed(error, ExitCode.FAILED)
        self._progress.enter("ending")
        if self._control.claim_end():
            self._ending = ending
            self._ended.set()
        if self._crew is not None:
            # The others die with the thread that started them, and they may have last words.
            threading.Event().wait()

    def _train(self) -> Ending:
        config = from_builtins(self._manifest.config, self._manifest.config_path)
        found = hardware.find(os.environ)
        # First, since a user's module may import the runtime.
        _apply_environment(config, found)
        planned = run_plan.make(config, found, self._manifest.config_path)
        versions.require()
        self._call_the_others(planned)
        try:
            build = importlib.import_module(planned.task.builder)
        except (ImportError, OSError) as error:
            raise Unable(f"torch_xla does not import: {error}") from error
        from engine.xla import backend

        backend.drop_temporary_directory()
        if planned.num_processes > 1:
            return self._lead(planned, build)
        return self._train_on(planned, build, build.strategy(planned))

    def _lead(self, planned: Plan, build: Any) -> Ending:
        """Trains as the first of several ranks. The others of this process, where it has more cores than one, train
        in threads beside."""
        from engine.parallel.group import RankSocket
        from engine.xla import backend

        crew = self._crew
        assert crew is not None
        ending: Future[Ending] = Future()

        def train(index: int) -> None:
            if index:
                code = self._beside[index - 1].train(planned, crew.num_ranks, crew.beside[index - 1], index)
                if code not in (ExitCode.DONE, PEER_LOST) and not ending.done():
                    ending.set_exception(RuntimeError(f"rank {index} broke; its own words are in rank-{index}.jsonl"))
                return
            try:
                place = RankSocket(0, crew.num_ranks, crew.links, self._progress.wait_for)
                cores = build.replica(planned, place, index)
                ending.set_result(self._train_on(planned, build, cores))
            except BaseException as error:  # noqa: BLE001, RUF100 - raised where the result is waited for
                ending.set_exception(error)

        threads = (train, 0, crew.num_processes)
        threading.Thread(target=backend.launch, args=threads, name="tputui-ranks", daemon=True).start()
        return ending.result()

    def _train_on(self, planned: Plan, build: Any, cores: Any) -> Ending:
        from engine.loop import checkpoint_manager
        from engine.loop.trainer import Stopped

        if self._manifest.resume_path is not None:
            checkpoint_manager.tidy(self._manifest.resume_path)
        trainer, reports = build.trainer(planned, cores, self._around)
        self._watch.follow(reports.programs.compiling_since, reports.served)
        try:
            return Ending("done", ExitCode.DONE, trainer.train())
        except Stopped as stopped:
            return Ending("stopped", ExitCode.STOPPED, str(stopped))

    @property
    def _who(self) -> str:
        """Which rank this is, where there are several."""
        return "rank 0 (core 0): " if self._crew is not None else ""

    def _call_the_others(self, planned: Plan) -> None:
        """Starts the other processes, where there are to be any."""
        if planned.num_processes == 1:
            return
        each = planned.config.num_cores // planned.num_processes
        self._beside = [
            ranks.Rank(self._run_dir, self._manifest, rank, telemetry=self._telemetry) for rank in range(1, each)
        ]
        self._crew = RankProcesses(self._run_dir.resolve(), planned.num_processes, each, telemetry=self._telemetry)

    def _look_at_the_others(self) -> None:
        """Ends the run where another process of it broke."""
        for rank in self._beside:
            rank.beat()
        lost = self._crew.lost() if self._crew is not None else None
        self._tell_exits(ending=False)
        if lost is None or not self._control.claim_end():
            return
        self._reporter.emit(
            ev.FailureRaised(
                t=time.time(),
                error=lost.failure.error if lost.failure else "RankLost",
                message=f"{lost.who}: {lost.failure.message}" if lost.failure else lost.sentence,
                traceback=lost.failure.traceback if lost.failure else "",
                phase=lost.failure.phase if lost.failure else self._progress.doing.phase,
                step=lost.failure.step if lost.failure else self._progress.step,
                kind=lost.kind,
                frames=lost.failure.frames if lost.failure else [],
                process=lost.process,
                pid=lost.pid,
            )
        )
        self._ending = Ending("failed", lost.code, lost.sentence)
        self._ended.set()

    def _tell_exits(self, *, ending: bool) -> None:
        for exited in self._crew.exits(ending=ending) if self._crew is not None else []:
            self._reporter.emit(exited)

    def _failed(self, error: BaseException, code: ExitCode) -> Ending:
        self._tell_failure(crash_report.failure(error, self._progress, self._who))
        first = text_of(error).partition("\n")[0]
        return Ending("failed", code, f"{self._who}{type(error).__name__}: {first}")

    def _tell_failure(self, told: ev.FailureRaised) -> None:
        self._reporter.emit(told)
        # The journal has it already; a log on a full disk, or a closed stderr, must not stop the end of the run.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(told.traceback or f"{told.message}\n")


PEER_TOLD_S = 10.0
"""How long the loop leaves it to the main thread to say which process it has lost."""
_PAST = {"done": "ended", "stopped": "stopped", "failed": "failed"}


def main(argv: list[str] | None = None) -> int:
    """Entry point; ends the process itself once training has begun."""
    parser = argparse.ArgumentParser(prog="python -P -m engine.worker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run_dir", type=Path, help="directory of the run, with its manifest in it")
    parser.add_argument("--host", type=int, default=0, help="index of this host among those of the run")
    parser.add_argument("--no-telemetry", action="store_true", help="train unseen, to measure what telemetry costs")
    arguments = parser.parse_args(argv)
    faulthandler.enable()
    try:
        run_dir = held(arguments.run_dir)
        manifest = read_manifest(run_dir)
        worker = Worker(run_dir, arguments.host, manifest, telemetry=not arguments.no_telemetry)
    except (RunNotFound, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    stacks.tell_on_signal(run_dir, f"worker-{arguments.host}")
    # The user's own modules come last, so that theirs never hide ours.
    sys.path.append(manifest.cwd)
    worker.run()
    return ExitCode.FAILED


def _apply_environment(config: RunConfig, found: hardware.Machine) -> None:
    """Sets what the runtime reads when it is imported."""
    os.environ.update(hardware.environment(config, found))


if __name__ == "__main__":
    sys.exit(main())
