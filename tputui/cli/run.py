"""`tputui run`: trains a configuration file."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tputui import config
from tputui.cli import launch, open_run
from tputui.cli.arguments import find_run, parent_of
from tputui.cli.console import CommandError, narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.environment import environment_problem
from tputui.exit_codes import ExitCode
from tputui.telemetry import rundir

DESCRIPTION = """Checks the configuration and this machine, creates a run directory and starts training in its own
processes, which survive a closed terminal. In a terminal it opens the live screen; otherwise, or with --no-ui, it
prints one line per event to stdout; with --json the events as JSON lines. Without the screen, Ctrl-C requests save
and stop; pressed again, stop at once. --set values use TOML syntax: --set epochs=3 --set optim.lr=0.01"""
EXIT_CODES = exit_codes(
    DONE="every epoch was trained, or the viewer left and training continues",
    USAGE="the command line or the configuration is not valid; nothing was created",
    FAILED="training failed",
    STOPPED="training was stopped on request",
    LOST="the processes of the run are gone without an end event",
    ENVIRONMENT="this machine cannot train: no torch_xla, wrong versions, or the device is in use",
)


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    parser.add_argument("config", metavar="CONFIG", help="TOML file, such as those in sample_configs/")
    parser.add_option(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the configuration; repeatable"
    )
    parser.add_option("--name", metavar="NAME", help="name of the run (default time and task)")
    parser.add_option("--resume", metavar="RUN", help="resume from the last checkpoint of RUN")
    parser.add_option("--detach", action="store_true", help="start the run, print its name and exit")
    open_run.add_view_options(parser)
    parser.suggest_set(config.keys_by_name())


def run(args: argparse.Namespace) -> ExitCode:
    """Checks, starts and shows the run."""
    parent = parent_of(args)
    if args.name is not None and not rundir.is_name(args.name):
        raise CommandError(
            ExitCode.USAGE,
            f"--name {args.name!r}: run names may contain letters, digits, . - _ (at most 128 characters) "
            "and start with a letter or digit",
        )
    loaded, resume = _checked(args, parent)
    run_dir = launch.create_run(
        parent, loaded, config_path=args.config, name=args.name, resume=resume, argv=["tputui", *sys.argv[1:]]
    )
    with open_run.ctrl_c_stops(run_dir) as interrupts:
        supervisor = launch.start_supervisor(run_dir)
        if args.detach:
            return _print_started(run_dir, as_json=args.json)
        if not open_run.wants_screen(no_ui=args.no_ui, as_json=args.json):
            return _show(run_dir, supervisor, args, interrupts)
    return _show(run_dir, supervisor, args)


def _checked(args: argparse.Namespace, parent: Path) -> tuple[config.RunConfig, Path | None]:
    """The configuration and the checkpoint to resume from, after all checks. Creates nothing. Raises `CommandError`."""
    try:
        loaded = config.load(Path(args.config), args.set)
    except config.ConfigError as error:
        raise CommandError(ExitCode.USAGE, str(error)) from None
    problem = environment_problem(os.environ)
    if problem is not None:
        raise CommandError(ExitCode.ENVIRONMENT, problem)
    resume = launch.last_checkpoint(find_run(args.resume, parent)) if args.resume is not None else None
    launch.check_with_engine(loaded, args.config, resume, args.set)
    return loaded, resume


def _print_started(run_dir: Path, *, as_json: bool) -> ExitCode:
    if as_json:
        say_json({"run": run_dir.name, "dir": str(run_dir)})
    else:
        say(run_dir.name)
    return ExitCode.DONE


def _show(
    run_dir: Path,
    supervisor: subprocess.Popen[bytes],
    args: argparse.Namespace,
    interrupts: open_run.Interrupts | None = None,
) -> ExitCode:
    narrate(f"run {run_dir.name} in {run_dir}")
    snapshot = open_run.watch(run_dir, args, interrupts=interrupts)
    code = open_run.exit_code_of(snapshot)
    if snapshot.exit_code is not None:
        launch.wait_settled(supervisor)
    return code


COMMANDS = {"run": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
