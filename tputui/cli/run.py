"""`tputui run`: trains a configuration file, or runs a command of the user."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
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
    arguments.add_config_or_command(parser)
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


def run(args: argparse.Namespace) -> ExitCode:
    """Checks, starts and shows the run."""
    launch.check_system()
    parent = parent_of(args)
    if args.name is not None and not rundir.is_name(args.name):
        raise UsageError(
            f"--name {args.name!r}: run names may contain letters, digits, . - _ (at most 128 characters) "
            "and start with a letter or digit",
        )
    arguments.check_config_or_command(args, "run")
    if args.command is not None:
        _refuse_resume(args)
    open_run.line_writer(args)  # refuses options that contradict each other before anything is created
    listening = _listen(args.metrics_port)
    loaded, command, resume, place = _checked(args, parent)
    run_dir = launch.create_run(
        parent,
        loaded,
        config_path=args.config or script.shown_command(args.command),
        name=place.run if place else args.name,
        resume=resume,
        command=command,
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


def _refuse_resume(args: argparse.Namespace) -> None:
    if args.resume is not None:
        message = "run: --resume continues training of the engine; a command of your own resumes by its own options"
        raise UsageError(message)


def _loaded(args: argparse.Namespace) -> config.RunConfig | config.ScriptRun:
    """The configuration in the file, or that of the command after --. Raises `CommandError`."""
    if args.command is not None:
        return script.from_words(args.command, _option_tables(args, {}))
    with usage_errors(config.ConfigError, has_lines=True):
        tables = config.load_tables(Path(args.config), args.set)
        tables |= _option_tables(args, tables)
        if not config.is_script(tables):
            return config.from_builtins(tables, args.config, args.set)
        _refuse_resume(args)
        return config.script_from_builtins(tables, args.config, args.set)


def _option_tables(args: argparse.Namespace, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a file that options change."""
    changed = {
        "alerts": alert.with_options(tables.get("alerts"), args),
        "diagnosis": arguments.with_option(tables.get("diagnosis"), args),
        "launch": hosts.with_options(tables.get("launch"), args),
    }
    return {name: table for name, table in changed.items() if table is not None}


def _checked(
    args: argparse.Namespace, parent: Path
) -> tuple[config.RunConfig | config.ScriptRun, RunCommand | None, Path | None, hosts.LaunchPlace | None]:
    """The configuration, the command of the user if it runs one, the checkpoint to resume from, and the place of this
    host among several, after all checks. Creates nothing. Raises `CommandError`."""
    source, loaded = args.config or "run", _loaded(args)
    alert.check(loaded.alerts, source, args.set)
    find_place = hosts.place_of if isinstance(loaded, config.RunConfig) else hosts.place_of_command
    place = find_place(loaded.launch, args, os.environ)
    if place is not None:
        place = hosts.at_attempt(place, parent)
        loaded = msgspec.structs.replace(loaded, launch=place.launch)
    if isinstance(loaded, config.ScriptRun):
        command = script.prepared(loaded, source)
        return loaded, command if place is None else script.at_host(command, place), None, place
    problem = environment_problem(os.environ)
    if problem is not None:
        raise CommandError(ExitCode.ENVIRONMENT, problem)
    resume = _resume_path(args, parent, place)
    launch.check_with_engine(loaded, source, resume, args.set)
    return loaded, None, resume, place


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
