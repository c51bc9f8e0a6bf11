"""`tputui folds`: trains every fold in turn and compares their best epochs."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tputui import config
from tputui import formatting as fmt
from tputui.cli import alert, launch, open_run
from tputui.cli.arguments import add_set_option, parent_of
from tputui.cli.console import (
    DISK_TROUBLE,
    CommandError,
    UsageError,
    drop_stdout,
    handling,
    narrate,
    say,
    say_json,
    table_lines,
    usage_errors,
)
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.environment import environment_problem
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot, best_epoch
from tputui.telemetry import rundir
from tputui.telemetry.events import EpochEnded
from tputui.text.lines import follow

DESCRIPTION = """Trains one run per fold of the data, one after the other, and prints one line per event; `tputui
attach` shows the current run live. At the end it prints a table: the best epoch of each fold with its validation
metrics, then their mean and standard deviation; with --json only one object. Ctrl-C, SIGTERM and a closed terminal
request save and stop of the current fold, and no other fold is started; Ctrl-C pressed again stops at once. With the
--name of folds that were started before, finished folds are kept, and an interrupted fold resumes from its last
checkpoint."""
EXIT_CODES = exit_codes(
    DONE="every fold was trained",
    USAGE="the command line or the configuration cannot be used, or its data has no folds; nothing was created",
    FAILED="training of a fold failed; later folds were not started",
    STOPPED="a fold was stopped on request; later folds were not started",
    LOST="the processes of a fold died",
    ENVIRONMENT="this machine cannot train",
)

FOLD_KEY = "data.fold"


class Fold(NamedTuple):
    fold: int
    run: str
    state: str
    best: EpochEnded | None


def add_arguments(parser: Parser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="TOML file whose data has folds")
    add_set_option(parser)
    parser.add_option("--name", metavar="NAME", help="name the runs NAME-fold-0 and so on (default time and task)")
    parser.add_option("--no-ui", action="store_true", help="accepted for symmetry with run: folds has no screen")
    parser.add_option("--json", action="store_true", help="print only one JSON object at the end")


def run(args: argparse.Namespace) -> ExitCode:
    launch.check_system()
    parent = parent_of(args)
    if args.name is not None and not rundir.is_name(f"{args.name}-fold-000"):
        message = "run names may contain letters, digits, . - _ (at most 120 characters here)"
        raise UsageError(f"--name {args.name!r}: {message}")
    num_folds, task = _checked(args)
    base = args.name or rundir.default_name(task, time.time())
    folds: list[Fold] = []
    code = ExitCode.DONE
    signals = FoldStopSignals()
    with signals.caught():
        for number in range(num_folds):
            if signals.first is not None:
                code = ExitCode.STOPPED
                break
            fold, code = _train(args, parent, base, number, num_folds, signals)
            folds.append(fold)
            if code is not ExitCode.DONE:
                break
    if code is ExitCode.STOPPED:
        narrate(f"stopped; the same command with --name {base} continues")
    try:
        if args.json:
            say_json({"name": base, "num_folds": num_folds, "folds": [_plain(fold) for fold in folds], **_over(folds)})
        else:
            say("\n".join(table(folds)))
    except OSError as error:
        if signals.first != signal.SIGHUP or error.errno not in DISK_TROUBLE:
            raise
        drop_stdout()  # The terminal is gone.
    return code


class FoldStopSignals:
    """Turns Ctrl-C, SIGTERM and SIGHUP into requests to the run of the current fold."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.first: int | None = None
        """The first signal that came; after it no fold is started."""
        self._interrupts: open_run.Interrupts | None = None
        """Those of the fold that is trained."""

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.first = number if self.first is None else self.first
        if self._interrupts is not None:
            self._interrupts.handle(number, frame)

    def caught(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the signals do not end this process. SIGHUP stays ignored under `nohup`."""
        return handling(
            self.handle, *(number for number in self.NUMBERS if signal.getsignal(number) is not signal.SIG_IGN)
        )

    @contextlib.contextmanager
    def stop(self, run_dir: Path) -> Iterator[None]:
        """A context in which they stop the run in a directory."""
        self._interrupts = interrupts = open_run.Interrupts(run_dir)
        try:
            if self.first is not None and not interrupts.requested:
                # It came after the decision to train this fold.
                interrupts.handle(self.first, None)
            yield
        finally:
            self._interrupts = None


def table(folds: list[Fold]) -> list[str]:
    """The lines of the table: one per fold, then mean and standard deviation over the folds that have a value."""
    names = list(dict.fromkeys(name for fold in folds for name in metrics(fold.best)))
    rows = [["fold", "run", "state", "best epoch", *names]]
    for fold in folds:
        own = metrics(fold.best)
        epoch = str(fold.best.epoch) if fold.best else fmt.UNKNOWN
        rows.append([str(fold.fold), fold.run, fold.state, epoch, *(fmt.number(own.get(name)) for name in names)])
    over = _over(folds)
    for title in ("mean", "std"):
        rows.append([title, "", "", "", *(fmt.number(over[title].get(name)) for name in names)])
    return [fmt.inert(line) for line in table_lines(rows)]


def metrics(best: EpochEnded | None) -> dict[str, float]:
    """Validation metrics of an epoch: averages of the meters, and scores."""
    return {} if best is None else {name: meter.avg for name, meter in best.valid.items()} | best.scores


def _over(folds: list[Fold]) -> dict[str, dict[str, float]]:
    """Mean and sample standard deviation of each metric over the folds where it is finite."""
    columns: dict[str, list[float]] = {}
    for fold in folds:
        for name, figure in metrics(fold.best).items():
            if math.isfinite(figure):
                columns.setdefault(name, []).append(figure)
    return {
        "mean": {name: statistics.fmean(column) for name, column in columns.items()},
        "std": {name: statistics.stdev(column) for name, column in columns.items() if len(column) > 1},
    }


def _plain(fold: Fold) -> dict[str, Any]:
    best = fold.best.epoch if fold.best else None
    return {"fold": fold.fold, "run": fold.run, "state": fold.state, "best_epoch": best, "valid": metrics(fold.best)}


def _checked(args: argparse.Namespace) -> tuple[int, str]:
    """The number of folds and the task, after checking the configuration of every fold. Raises `CommandError`."""
    problem = environment_problem(os.environ)
    if problem is not None:
        raise CommandError(ExitCode.ENVIRONMENT, problem)
    first = _loaded(args, None)
    alert.check(first.alerts, args.config, args.set)
    num_folds = int(launch.check_with_engine(first, args.config, None, args.set).get("num_folds", 0))
    if num_folds < 2:
        raise UsageError(f'{args.config}: task "{first.task}" found no folds in this data; use `tputui run`')
    for number in range(num_folds):
        launch.check_with_engine(_loaded(args, number), args.config, None, args.set)
    return num_folds, first.task


def _loaded(args: argparse.Namespace, fold: int | None) -> config.RunConfig:
    if any(override.partition("=")[0].strip() == FOLD_KEY for override in args.set):
        raise UsageError(f"--set {FOLD_KEY}: folds trains every fold; use `tputui run` for one of them")
    with usage_errors(config.ConfigError, has_lines=True):
        return config.load(Path(args.config), args.set if fold is None else [*args.set, f"{FOLD_KEY}={fold}"])


def _train(
    args: argparse.Namespace, parent: Path, base: str, number: int, of: int, signals: FoldStopSignals
) -> tuple[Fold, ExitCode]:
    """Trains a fold, unless it is already done."""
    first, resume = f"{base}-fold-{number}", None
    name = first
    for before in _existing_runs(parent, name)[-1:]:
        snapshot = session.load(before)
        if snapshot.condition == "done":
            narrate(f"fold {number} of {of} is done: run {before.name}")
            return _result(number, snapshot, parent, name), ExitCode.DONE
        if snapshot.condition not in ENDED:
            raise UsageError(f"{before.name} is {snapshot.condition}; wait for it or stop it first")
        with contextlib.suppress(CommandError):
            resume = launch.last_checkpoint(before)
        name = next(candidate for candidate in _names(name) if not (parent / candidate).exists())
    run_dir = launch.create_run(parent, _loaded(args, number), config_path=args.config, name=name, resume=resume)
    narrate(f"fold {number} of {of}: run {name}" + (f", resuming from {resume}" if resume else ""))
    with signals.stop(run_dir):
        supervisor = launch.start_supervisor(run_dir)
        snapshot = _follow(run_dir, quiet=args.json)
        launch.wait_settled(supervisor)
    return _result(number, snapshot, parent, first), open_run.exit_code_of(snapshot)


def _follow(run_dir: Path, *, quiet: bool) -> Snapshot:
    """Prints the lines of a run until it has ended, also if the output is closed before."""
    source = session.Session.live(run_dir)
    try:
        with open(os.devnull, "w") if quiet else contextlib.nullcontext(sys.stdout) as out:
            snapshot = follow(source, out, as_json=False)
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        return open_run.wait_for_end(run_dir)
    finally:
        source.close()
    return snapshot if snapshot.condition in ENDED else open_run.wait_for_end(run_dir)


def _result(number: int, snapshot: Snapshot, parent: Path, name: str) -> Fold:
    """The result of a fold; its best epoch may be in a run before an interruption."""
    earlier = [session.load(run_dir).epochs for run_dir in _existing_runs(parent, name)[:-1]]
    epochs = [epoch for epochs_of_run in [*earlier, snapshot.epochs] for epoch in epochs_of_run]
    return Fold(number, snapshot.run, snapshot.condition, best_epoch(epochs))


def _existing_runs(parent: Path, name: str) -> list[Path]:
    """The existing runs of a fold, each a continuation of the previous one."""
    return [*itertools.takewhile(Path.is_dir, (parent / candidate for candidate in _names(name)))]


def _names(name: str) -> Iterator[str]:
    """The names of the runs of a fold: NAME, NAME-2, NAME-3, ..."""
    yield name
    yield from (f"{name}-{again}" for again in itertools.count(2))


COMMANDS = {"folds": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
