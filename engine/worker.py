"""The training process: `python -P -m engine.worker RUN_DIR [--host 0]`, started by the supervisor.

The main thread keeps signals, heartbeat and requests; training runs in a second one, so that the process answers in
the middle of a long compile. Exits with 0 done, 2 configuration refused, 3 failed, 4 stopped, 7 machine not able.
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
import traceback
from pathlib import Path
from typing import NamedTuple

from engine import machine, plan, versions
from engine.control import Control, Progress
from engine.errors import Refused, Unable
from engine.watch import Watch, leave
from tputui.config import ConfigError, RunConfig, from_builtins
from tputui.exit_codes import ExitCode
from tputui.telemetry import events as ev
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.rundir import Manifest, RunNotFound, read_manifest


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
        self._control = Control()
        self._watch = Watch(run_dir, self._reporter, self._progress, self._control)
        self._ended = threading.Event()
        self._ending = Ending("failed", ExitCode.FAILED, "training did not say how it ended")

    def run(self) -> None:
        """Trains and ends the process."""
        self._watch.catch_signals()
        threading.Thread(target=self._train_and_tell, name="tputui-train", daemon=True).start()
        self._watch.until(self._ended)
        ending = self._ending
        self._watch.refuse_unserved(f"training had {_PAST[ending.outcome]} before it could be served")
        self._reporter.emit(
            ev.TrainingEnded(t=time.time(), outcome=ending.outcome, step=self._progress.step, reason=ending.reason)
        )
        leave(self._reporter, ending.code)

    def _train_and_tell(self) -> None:
        try:
            ending = self._train()
        except (Refused, ConfigError) as error:
            ending = self._failed(error, ExitCode.USAGE)
        except Unable as error:
            ending = self._failed(error, ExitCode.ENVIRONMENT)
        except BaseException as error:  # noqa: BLE001, RUF100 - told in the journal and the log, then the process ends
            ending = self._failed(error, ExitCode.FAILED)
        self._progress.enter("ending")
        if self._control.claim_end():
            self._ending = ending
            self._ended.set()

    def _train(self) -> Ending:
        config = from_builtins(self._manifest.config, self._manifest.config_path)
        found = machine.find(os.environ)
        # First, since a user's module may import the runtime.
        _apply_environment(config, found)
        planned = plan.make(config, found, self._manifest.config_path)
        versions.require()
        try:
            build = importlib.import_module(planned.task.builder)
        except (ImportError, OSError) as error:
            raise Unable(f"torch_xla does not import: {error}") from error
        from engine.trainer import Stopped

        cores = build.strategy(planned)
        named = self._manifest.resume_from
        resume_from = Path(self._manifest.cwd, named) if named else None
        trainer, reports = build.trainer(
            planned,
            self._run_dir,
            cores,
            self._reporter,
            self._progress,
            self._control,
            resume_from=resume_from,
            telemetry=self._telemetry,
        )
        self._watch.follow(reports.programs.compiling_since, reports.served)
        try:
            return Ending("done", ExitCode.DONE, trainer.train())
        except Stopped as stopped:
            return Ending("stopped", ExitCode.STOPPED, str(stopped))

    def _failed(self, error: BaseException, code: ExitCode) -> Ending:
        text = "".join(traceback.format_exception(error))
        sys.stderr.write(text)
        self._reporter.emit(
            ev.FailureRaised(
                t=time.time(),
                error=type(error).__name__,
                message=str(error),
                traceback=text,
                phase=self._progress.doing.phase,
                step=self._progress.step,
            )
        )
        return Ending("failed", code, f"{type(error).__name__}: {error}")


_PAST = {"done": "ended", "stopped": "stopped", "failed": "failed"}


def main(argv: list[str] | None = None) -> int:
    """Entry point; ends the process itself once training has begun."""
    parser = argparse.ArgumentParser(prog="python -P -m engine.worker", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run_dir", type=Path, help="directory of the run, with its manifest in it")
    parser.add_argument("--host", type=int, default=0, help="index of this host among those of the run")
    parser.add_argument("--no-telemetry", action="store_true", help="train unseen, to measure what telemetry costs")
    arguments = parser.parse_args(argv)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        manifest = read_manifest(arguments.run_dir)
        worker = Worker(arguments.run_dir, arguments.host, manifest, telemetry=not arguments.no_telemetry)
    except (RunNotFound, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    # The user's own modules come last, so that theirs never hide ours.
    sys.path.append(manifest.cwd)
    worker.run()
    return ExitCode.FAILED


def _apply_environment(config: RunConfig, found: machine.Machine) -> None:
    """Sets what the runtime reads when it is imported."""
    os.environ.update(machine.environment(config, found))


if __name__ == "__main__":
    sys.exit(main())
