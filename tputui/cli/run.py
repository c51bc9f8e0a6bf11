"""`tputui run`: trains a configuration file, or runs a command of the user."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tputui import config
from tputui.cli import alert, arguments, hosts, launch, metrics_server, open_run, script
from tputui.cli.arguments import find_local_run, parent_of
from tputui.cli.console import CommandError, UsageError, narrate, say, say_json, usage_errors
from tputui.cli.parser import Command, Parser, exit_codes, port
from tputui.environment import environment_problem
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.supervise.command import RunCommand
from tputui.telemetry import rundir

DESCRIPTION = """Starts training from a configuration file, or any command of your own after --, such as
`tputui run -- python train.py --lr 0.1`. Checks it and this machine, creates a run directory and starts the run in its
own processes, which survive a closed terminal. In a terminal it opens the live screen; otherwise, or with --no-ui, it
prints one line per event to stdout; with --json the events as JSON lines. Without the screen, Ctrl-C requests save
and stop; pressed again, stop at once. So does SIGTERM, also with the screen. For a run on several hosts, start the
same command on each of them.
--set values use TOML syntax: --set epochs=3 --set optim.lr=0.01"""
EXIT_CODES = exit_codes(
    DONE="every epoch was trained, the command succeeded, or you left the screen and the run continues",
    USAGE="the command line or the configuration is not valid; nothing was created",
    FAILED="training or the command failed, or the run has findings that --strict names",
    STOPPED="the run was stopped on request",
    LOST="the processes of the run died",
    ENVIRONMENT="this machine cannot train: no torch_xla, wrong versions, or the device is in use; or hosts missing",
)


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    parser.usage = "tputui run [OPTION ...] CONFIG\n       tputui run [OPTION ...] -- COMMAND ..."
    config_help = "TOML file, such as those in sample_configs/"
    parser.add_argument("config", metavar="CONFIG", nargs="?", help=config_help)
    parser.take_command()
    parser.add_option(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the configuration; repeatable"
    )
    parser.add_option("--name", metavar="NAME", help="name of the run (default time and task)")
    parser.add_option("--resume", metavar="RUN", help="resume from the last checkpoint of RUN")
    parser.add_option("--detach", action="store_true", help="start the run, print its name and exit")
    parser.add_option(
        "--metrics-port",
        type=port,
        metavar="N",
        help="serve the newest values to Prometheus on this port of 127.0.0.1 (0: any), as `tputui serve --metrics`",
    )
    hosts.add_options(parser)
    alert.add_alert_options(parser)
    arguments.add_strict_option(parser)
    open_run.add_view_options(parser)
    parser.suggest_set(config.keys_by_name())


def run(args: argparse.Namespace) -> ExitCode:
    """Checks, starts and shows the run."""
    launch.check_system()
    parent = parent_of(args)
    if args.name is not None and not rundir.is_name(args.name):
        raise UsageError(
            f"--name {args.name!r}: run names may contain letters, digits, . - _ (at most 128 characters) "
            "and start with a letter or digit",
        )
    _check_words(args)
    open_run.line_writer(args)  # refuses options that contradict each other before anything is created
    listening = _listen(args.metrics_port)
    argv = ["tputui", *sys.argv[1:]]
    command: RunCommand | None = None
    tables = _tables(args)
    if tables is None or config.is_script(tables):
        command, run_dir, place = _create_script_run(args, parent, tables, argv)
    else:
        loaded, resume, place = _checked(args, parent, tables)
        run_dir = launch.create_run(
            parent,
            loaded,
            config_path=args.config,
            name=place.run if place else args.name,
            resume=resume,
            argv=argv,
            host_index=place.host_index if place else None,
        )
    interrupts = open_run.Interrupts(run_dir)
    # A cluster signals the command that it has started before it takes the host away.
    with interrupts.caught(signal.SIGTERM):
        with interrupts.caught(signal.SIGINT):
            supervisor = launch.start_supervisor(run_dir, command, place.host_index if place else None)
            if listening is not None:
                _serve_metrics(run_dir, listening)
            if args.detach:
                return _print_started(run_dir, as_json=args.json)
            if not open_run.wants_screen(no_ui=args.no_ui or args.quiet, as_json=args.json):
                return _show(run_dir, supervisor, args, place, interrupts)
        return _show(run_dir, supervisor, args, place, interrupts)


def _listen(number: int | None) -> socket.socket | None:
    """The socket for `--metrics-port`, opened before anything is created. Raises `CommandError`."""
    try:
        return None if number is None else metrics_server.listen(number)
    except OSError as error:
        raise UsageError(f"run: --metrics-port {number}: {error.strerror}") from None


def _serve_metrics(run_dir: Path, listening: socket.socket) -> None:
    """Serves the values of the run by a process of its own; training goes on without it if it cannot start."""
    with listening:
        try:
            metrics_server.token_of(run_dir)
            metrics_server.start_detached(run_dir, listening)
        except (OSError, CommandError) as error:
            narrate(f"the values are not served to Prometheus: {error}")
            return
        address = metrics_server.address_of(listening)
    narrate(f"serving {address} {metrics_server.how_to_ask(run_dir)}")


def _check_words(args: argparse.Namespace) -> None:
    """Refuses arguments that contradict each other. Raises `CommandError`."""
    if args.command is None:
        if args.config is None:
            raise UsageError(
                "run: the configuration file is missing; to run a command of your own, write tputui run -- COMMAND"
            )
        if Path(args.config).suffix in (".py", ".sh"):
            program = "python" if args.config.endswith(".py") else "sh"
            message = (
                f"run: {args.config} is a script, not a configuration; write tputui run -- {program} {args.config}"
            )
            raise UsageError(inert(message))
        return
    if args.config is not None:
        message = f"run: give either the configuration {args.config} or a command after --, not both"
        raise UsageError(inert(message))
    if args.set:
        raise UsageError("run: --set changes a configuration file; pass options of a command of your own after --")
    _refuse_resume(args)


def _refuse_resume(args: argparse.Namespace) -> None:
    if args.resume is not None:
        message = "run: --resume continues training of the engine; a command of your own resumes by its own options"
        raise UsageError(message)


def _tables(args: argparse.Namespace) -> dict[str, Any] | None:
    """The content of the configuration file; None for a command after --. Raises `CommandError`."""
    if args.command is not None:
        return None
    with usage_errors(config.ConfigError, has_lines=True):
        tables = config.load_tables(Path(args.config), args.set)
    return tables | _option_tables(args, tables)


def _option_tables(args: argparse.Namespace, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a file that options change."""
    changed = {
        "alerts": alert.with_options(tables.get("alerts"), args),
        "diagnosis": arguments.with_option(tables.get("diagnosis"), args),
        "launch": hosts.with_options(tables.get("launch"), args),
    }
    return {name: table for name, table in changed.items() if table is not None}


def _create_script_run(
    args: argparse.Namespace, parent: Path, tables: dict[str, Any] | None, argv: list[str]
) -> tuple[RunCommand, Path, hosts.LaunchPlace | None]:
    """Checks a command and creates the directory of its run, on this host of several. Raises `CommandError`."""
    if tables is None:
        loaded, source = script.from_words(args.command, _option_tables(args, {})), "run"
    else:
        _refuse_resume(args)
        source = args.config
        with usage_errors(config.ConfigError, has_lines=True):
            loaded = config.script_from_builtins(tables, source, args.set)
    alert.check(loaded.alerts, source, args.set)
    place = hosts.place_of_command(loaded.launch, args, os.environ)
    if place is not None:
        place = hosts.at_attempt(place, parent)
        loaded = msgspec.structs.replace(loaded, launch=place.launch)
    command = script.prepared(loaded, source)
    if place is not None:
        command = script.at_host(command, place)
    run_dir = script.create_run(
        parent,
        loaded,
        command,
        config_path=args.config or script.shown_command(loaded),
        name=place.run if place else args.name,
        argv=argv,
        host_index=place.host_index if place else None,
    )
    return command, run_dir, place


def _checked(
    args: argparse.Namespace, parent: Path, tables: dict[str, Any]
) -> tuple[config.RunConfig, Path | None, hosts.LaunchPlace | None]:
    """The configuration, the checkpoint to resume from, and the place of this host among several, after all checks.
    Creates nothing. Raises `CommandError`."""
    with usage_errors(config.ConfigError, has_lines=True):
        loaded = config.from_builtins(tables, args.config, args.set)
    alert.check(loaded.alerts, args.config, args.set)
    place = hosts.place_of(loaded.launch, args, os.environ)
    if place is not None:
        place = hosts.at_attempt(place, parent)
        loaded = msgspec.structs.replace(loaded, launch=place.launch)
    problem = environment_problem(os.environ)
    if problem is not None:
        raise CommandError(ExitCode.ENVIRONMENT, problem)
    resume = _resume_path(args, parent, place)
    launch.check_with_engine(loaded, args.config, resume, args.set)
    return loaded, resume, place


def _resume_path(args: argparse.Namespace, parent: Path, place: hosts.LaunchPlace | None) -> Path | None:
    """The checkpoint to resume from: of an earlier attempt of a cluster, else of `--resume`. Raises `CommandError`."""
    earlier = hosts.earlier_checkpoint(place, parent) if place is not None else None
    if earlier is not None or args.resume is None:
        return earlier
    try:
        return launch.last_checkpoint(find_local_run(args.resume, parent))
    except CommandError:
        if place is None or not place.host_index:
            raise
        # The first host reads the file for all, and the others may have directories of their own.
        return None


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
    place: hosts.LaunchPlace | None,
    interrupts: open_run.Interrupts,
) -> ExitCode:
    narrate(f"run {run_dir.name} in {run_dir}")
    # The command may have renamed it already.
    snapshot = open_run.watch(interrupts.run_dir, args, interrupts=interrupts)
    code = open_run.exit_code_of(snapshot)
    if snapshot.exit_code is not None:
        launch.wait_settled(supervisor, hosts.SETTLED_S if place else launch.SUPERVISOR_EXIT_S)
    return hosts.exit_code(
        code, place, [request.by for request in snapshot.requests if request.kind.startswith("stop")]
    )


COMMANDS = {"run": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
