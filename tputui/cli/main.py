"""`tputui`: finds the command and runs it.

Imports a command's module only when it is chosen, so that `--help` and the light commands answer at once.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
import traceback
from typing import Protocol

from tputui import __version__
from tputui.cli.console import (
    DISK_TROUBLE,
    CommandError,
    drop_stdout,
    end_with_parent,
    in_browser,
    narrate,
    open_missing_streams,
    restore_terminal,
)
from tputui.cli.parser import Parser, nearest
from tputui.exit_codes import ExitCode

COMMANDS: dict[str, str] = {
    "run": "train what a configuration file describes, and show it live",
    "folds": "train every fold in turn, and lay them side by side",
    "attach": "show a running run; leaving it does not end it",
    "replay": "play a recorded run through the same screen",
    "runs": "list the runs",
    "show": "print what is true of a run",
    "compare": "lay 2 to 8 runs side by side, and tell which is faster",
    "stop": "ask a run to save and end",
    "checkpoint": "ask a run to save a checkpoint now",
    "stacks": "tell where every process of a run is, without stopping it",
    "predict": "predict on the CPU from the weights of a run",
    "export": "write the weights of a run as a plain state dict",
    "check": "tell whether a run's journals are sound",
    "repair": "write a sound copy of a damaged run beside it",
    "doctor": "tell what stands in the way of training on this machine",
    "data": "list the data sets there are, and fetch one",
    "serve": "show the screen in a browser on this machine",
}
"""Every command with one line about it; the module of the same name is its code."""

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
    "save": "checkpoint",
    "evaluate": "predict",
}
"""What other tools call a command of ours."""

HELP_COLUMNS = 78

_VIEW_OPTIONS = ("--read-only", "--ascii", "--reset-view")
"""Options of the list that the commands with a screen have too; before a command they are the command's."""


class Command(Protocol):
    """What a command's module offers."""

    DESCRIPTION: str
    """What it does and what it prints."""
    EXIT_CODES: str
    """What it exits with."""

    def add_arguments(self, parser: Parser) -> None:
        """Declares its arguments."""

    def run(self, args: argparse.Namespace) -> ExitCode:
        """Does it. Raises `CommandError`."""


def main(argv: list[str] | None = None) -> int:
    """Runs a command line; returns its exit code. Never raises but for `SystemExit` after `--help`."""
    open_missing_streams()
    if in_browser():
        end_with_parent()
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _dispatch(words)
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
            return _fault()
        drop_stdout()
        narrate(f"the output cannot be written: {error.strerror}")
        return ExitCode.USAGE
    except Exception:
        return _fault()


def _fault() -> ExitCode:
    """Tells of the exception that is being handled, which no command expected."""
    restore_terminal()
    narrate(f"this is a fault of tputui {__version__}, not of your run:\n{traceback.format_exc()}")
    return ExitCode.BROKEN


def _dispatch(words: list[str]) -> ExitCode:
    place = _command_place(words)
    top = _top_parser().parse(words[:place])
    if place == len(words):
        return _without_a_command(top)
    name = words[place]
    if name == "help":
        return _dispatch([*words[place + 1 : place + 2], "--help"])
    if name not in COMMANDS:
        near = OTHER_NAMES.get(name) or nearest(name, COMMANDS)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(COMMANDS)}"
        raise CommandError(ExitCode.USAGE, f'there is no command "{name}"; {hint}')
    command = _load(name)
    parser = Parser(f"tputui {name}", textwrap.fill(command.DESCRIPTION, HELP_COLUMNS), command.EXIT_CODES)
    _add_runs_dir(parser, top.runs_dir)
    command.add_arguments(parser)
    given_before = [word for word in words[:place] if word in _VIEW_OPTIONS]
    return command.run(parser.parse(given_before + words[place + 1 :]))


def _load(name: str) -> Command:
    module: Command = importlib.import_module(f"tputui.cli.{name}")
    return module


def _command_place(words: list[str]) -> int:
    """Index of the first word that is neither an option nor an option's value."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if words[place] == "--runs-dir" else 1
    return min(place, len(words))


def _top_parser() -> Parser:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {line}" for name, line in COMMANDS.items())
    parser = Parser(
        "tputui",
        "Launch PyTorch/XLA training, and see the truth about it in the terminal.\n"
        "Without a command: the list of runs.\n\n"
        f"commands:\n{lines}",
        "`tputui COMMAND --help` says what a command prints and what it exits with.",
    )
    parser.usage = "tputui [--runs-dir DIR] [OPTION ...] [COMMAND ...]"
    parser.add_option("--version", action="version", version=f"tputui {__version__}")
    _add_runs_dir(parser, None)
    parser.add_option("--read-only", action="store_true", help="ask nothing of any run from the screen")
    parser.add_option("--ascii", action="store_true", help="draw with ASCII characters alone")
    parser.add_option("--reset-view", action="store_true", help="forget theme, axes and sorting, as you left them")
    return parser


def _add_runs_dir(parser: Parser, default: str | None) -> None:
    parser.add_option(
        "--runs-dir", metavar="DIR", default=default, help="where runs live; else $TPUTUI_RUNS, else ./runs"
    )


def _without_a_command(args: argparse.Namespace) -> ExitCode:
    """The list of runs: live in a terminal, else printed."""
    from tputui.cli import runs
    from tputui.cli.arguments import existing_parent
    from tputui.cli.console import has_screen

    parent = existing_parent(args)
    if not has_screen():
        return runs.print_table(parent)
    from tputui.cli.launcher_service import EngineLaunchService
    from tputui.ui.app import ViewOptions, run_list

    options = ViewOptions(ascii_only=args.ascii, reset_view=args.reset_view)
    run_list(parent, service=EngineLaunchService(parent), read_only=args.read_only, options=options)
    return ExitCode.DONE
