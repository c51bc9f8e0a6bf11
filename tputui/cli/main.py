"""`tputui`: parses the command line and runs the command.

A command's module is imported only when the command is chosen, so that `--help` and the light commands start fast.
Other packages add commands by the entry point group `tputui.commands` (docs/guide/extensions.md).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
import textwrap
import traceback
from collections import namedtuple
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tputui import __version__
from tputui.cli.console import (
    DISK_TROUBLE,
    CommandError,
    UsageError,
    drop_stdout,
    in_browser,
    narrate,
    open_missing_streams,
    restore_terminal,
)
from tputui.cli.parser import Command, Parser, nearest
from tputui.exit_codes import ExitCode

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS: dict[str, str] = {
    "run": "train a configuration file and show it live",
    "rehearse": "find what would be slow on a TPU, on virtual CPU cores",
    "try": "measure what a change of a configuration or a command gains",
    "folds": "train every fold in turn and compare the results",
    "attach": "show a running run; leaving does not end it",
    "replay": "play back a recorded run on the same screen",
    "demo": "play recorded runs that tputui contains: no torch, no setup",
    "runs": "list the runs",
    "show": "print a run's full status",
    "compare": "compare 2-8 runs",
    "wait": "wait until a run has ended or a condition holds",
    "alert": "test where alerts of runs are sent to",
    "stop": "save a checkpoint and end a run",
    "checkpoint": "save a checkpoint of a running run now",
    "stacks": "show Python stacks of all processes of a run",
    "trace": "profile the next steps of a run, for XProf and TensorBoard",
    "predict": "predict on the CPU with the weights of a run",
    "export": "write a run as tables or for TensorBoard, or its weights",
    "check": "check the journals of a run for damage",
    "repair": "write a repaired copy of a damaged run",
    "rm": "delete runs",
    "doctor": "check this machine, or what slows a run down",
    "data": "list and download data sets",
    "stream": "send a run to a viewer on another machine (ssh starts it)",
    "serve": "show the screen in a browser on this machine",
    "mcp": "let an agent watch runs, by the Model Context Protocol",
    "completion": "complete command lines in bash, zsh and fish",
}
"""Every command of tputui with a one-line summary, in the order of `tputui --help`."""

GROUP = "tputui.commands"
"""Entry points of other packages: name of the command, and a mapping of such names to `Command`s, as in our modules."""

MODULES = {
    "demo": "replay",
    "repair": "check",
    "stop": "requests",
    "checkpoint": "requests",
    "stacks": "requests",
    "try": "trial",
}
"""Modules of the commands that have no module of their own name."""

OTHER_NAMES = {
    "ls": "runs",
    "list": "runs",
    "ps": "runs",
    "train": "run",
    "start": "run",
    "resume": "run CONFIG --resume RUN",
    "watch": "attach",
    "monitor": "attach",
    "logs": "attach RUN --no-ui",
    "tail": "attach RUN --no-ui",
    "status": "show",
    "info": "show",
    "diff": "compare",
    "kill": "stop RUN --now",
    "delete": "rm",
    "remove": "rm",
    "save": "checkpoint",
    "evaluate": "predict",
    "benchmark": "try",
}
"""Names that other tools use for our commands."""

HELP_COLUMNS = 78

_VIEW_OPTIONS = ("--read-only", "--ascii", "--reset-view")
_WITH_VALUE = ("--runs-dir", "--pictures", "--host")
"""Options of the run list that commands with a screen have too. Before a command they apply to that command."""

_COLLECT_AFTER = 10_000
"""Number of allocated objects after which cycles are collected."""


def main(argv: list[str] | None = None) -> int:
    """Runs a command line; returns its exit code. Raises only `SystemExit`, after `--help` and `--version`."""
    open_missing_streams()
    if in_browser():
        from tputui.child_process import end_with

        end_with(None, signal.SIGTERM)
    if argv is None:
        # Imports create many objects and hardly any garbage: looking for it was a tenth of the CPU time of a start.
        gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if "_ARGCOMPLETE" in os.environ:
            _complete()
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except CommandError as error:
        narrate(str(error))
        return error.code
    except BrokenPipeError:
        drop_stdout()
        return ExitCode.DONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            return _report_crash()
        drop_stdout()
        narrate(f"the output cannot be written: {error.strerror}")
        return ExitCode.USAGE
    except Exception:
        return _report_crash()
    finally:
        # Python makes named tuples by running a text. A Ctrl-C in such a text would end Python by SIGINT, although it
        # was caught, unless another text runs to its end.
        namedtuple("Unused", ())


def _report_crash() -> ExitCode:
    """Prints the exception that is being handled, which no command expected."""
    restore_terminal()
    narrate(f"this is a bug in tputui {__version__}, not in your run:\n{traceback.format_exc()}")
    return ExitCode.BROKEN


def _dispatch(arguments: list[str]) -> ExitCode:
    index = _command_place(arguments)
    asks_for_help = index == len(arguments) and not {"-h", "--help"}.isdisjoint(arguments)
    top = _top_parser(_of_packages() if asks_for_help else {}).parse(arguments[:index])
    if index == len(arguments):
        return _without_a_command(top)
    name = arguments[index]
    if top.host is not None:
        hint = f"`tputui runs --host {top.host}`" if name == "runs" else f"`tputui {name} ssh://{top.host}/RUN`"
        raise UsageError(f"--host before a command shows the list of runs; write {hint}")
    if name == "help":
        return _dispatch([*arguments[index + 1 : index + 2], "--help"])
    command = _load(name)
    parser = Parser(f"tputui {name}", textwrap.fill(command.description, HELP_COLUMNS), command.exit_codes)
    _add_runs_dir(parser, top.runs_dir)
    command.add_arguments(parser)
    given_before = [word for word in arguments[:index] if word in _VIEW_OPTIONS]
    if top.pictures != "auto":
        given_before.append(f"--pictures={top.pictures}")
    return command.run(parser.parse(given_before + arguments[index + 1 :]))


def _complete() -> None:
    """Completes the line that a shell has put into the environment, and ends the process."""
    from tputui.cli import completion

    words = os.environ.get("COMP_LINE", "").split()
    # Those of packages are looked for if the line has none of ours.
    others = {} if any(word in COMMANDS for word in words) else _of_packages()
    completion.complete_line(_top_parser({}), COMMANDS | {name: entry.value for name, entry in others.items()}, _load)


def _load(name: str) -> Command:
    """A command of tputui, or of another package. Raises `CommandError`."""
    if name in COMMANDS:
        ours: Command = importlib.import_module(f"tputui.cli.{MODULES.get(name, name)}").COMMANDS[name]
        return ours
    of_packages = _of_packages()
    if name not in of_packages:
        commands = [*COMMANDS, *of_packages]
        near = OTHER_NAMES.get(name) or nearest(name, commands)
        hint = f"did you mean {near}?" if near else f"commands: {', '.join(commands)}"
        raise UsageError(f'unknown command "{name}"; {hint}')
    entry = of_packages[name]
    try:
        command = entry.load()[name]
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"{_source(entry)} cannot be loaded: {why}") from error
    if not isinstance(command, Command):
        raise UsageError(f"{_source(entry)} is no tputui.cli.parser.Command, but {command!r:.100}")
    return command


def _of_packages() -> dict[str, EntryPoint]:
    """The commands of other packages, except those with our names. To look for them takes a tenth of a second."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in COMMANDS}


def _source(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "an installed package"
    return f'the command "{entry.name}" of {package} ({entry.value})'


def _command_place(arguments: list[str]) -> int:
    """Index of the first word that is neither an option nor the value of one."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in _WITH_VALUE else 1
    return min(index, len(arguments))


def _top_parser(of_packages: Mapping[str, EntryPoint]) -> Parser:
    from tputui.ui.terminal.picture_protocol import PICTURE_MODES, PICTURES_HELP

    width = max(map(len, [*COMMANDS, *of_packages]))
    summaries = COMMANDS | {name: f"by {entry.value}" for name, entry in of_packages.items()}
    lines = "\n".join(f"  {name:<{width}}  {line}" for name, line in summaries.items())
    parser = Parser(
        "tputui",
        "Launch PyTorch/XLA training and monitor it live in the terminal.\n"
        "Without a command: the list of runs.\n\n"
        f"commands:\n{lines}",
        "See `tputui COMMAND --help` for the output and the exit codes of a command.",
    )
    parser.usage = "tputui [--runs-dir DIR] [OPTION ...] [COMMAND ...]"
    parser.add_option("--version", action="version", version=f"tputui {__version__}")
    _add_runs_dir(parser, None)
    parser.add_option("--host", metavar="HOST", help="list the runs of another machine, [user@]HOST[:port], over ssh")
    parser.add_option("--read-only", action="store_true", help="do not allow requests to runs from the screen")
    parser.add_option("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_option("--reset-view", action="store_true", help="reset saved view settings")
    parser.add_option("--pictures", choices=PICTURE_MODES, default="auto", help=PICTURES_HELP)
    return parser


def _add_runs_dir(parser: Parser, default: str | None) -> None:
    parser.add_option(
        "--runs-dir", metavar="DIR", default=default, help="directory of the runs (default $TPUTUI_RUNS, else ./runs)"
    )


def _without_a_command(args: argparse.Namespace) -> ExitCode:
    """Shows the list of runs: live in a terminal, else as a table."""
    from tputui.cli import runs
    from tputui.cli.arguments import existing_parent
    from tputui.cli.console import has_screen

    if args.host is not None:
        if not has_screen():
            return runs.print_remote(args)
        from tputui.cli import open_run, remote_runs

        return remote_runs.show_list(args, open_run.view_options(args))
    parent = existing_parent(args)
    if not has_screen():
        return runs.print_table(parent)
    from tputui.cli.launch_service import EngineLaunchService
    from tputui.ui.app import ViewOptions, run_list

    options = ViewOptions(ascii_only=args.ascii, reset_view=args.reset_view, pictures=args.pictures)
    run_list(parent, service=EngineLaunchService(parent), read_only=args.read_only, options=options)
    return ExitCode.DONE
