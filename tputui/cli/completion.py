"""`tputui completion`: completes command lines in bash, zsh and fish, by argcomplete.

The shell calls `tputui` with the unfinished line in its environment whenever Tab is pressed, so what it offers is what
the installed version takes.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from tputui.cli.console import say
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = """Prints a script that makes a shell complete commands, options, names of runs, keys of --set and forms
of --to when Tab is pressed."""
EXIT_CODES = """load it where the shell starts:
  ~/.bashrc                   eval "$(tputui completion bash)"
  ~/.zshrc, after compinit    eval "$(tputui completion zsh)"
  ~/.config/fish/config.fish  tputui completion fish | source

""" + exit_codes(DONE="printed", USAGE="no such shell")


def add_arguments(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> ExitCode:
    from argcomplete.shell_integration import shellcode

    say(shellcode(["tputui"], shell=args.shell))
    return ExitCode.DONE


def complete_line(top: Parser, summaries: Mapping[str, str], load: Callable[[str], Command]) -> None:
    """Completes the line in `COMP_LINE`, and ends the process. `top`: the options before a command; `summaries`
    describes each command, and `load` loads one."""
    import argcomplete

    words = os.environ.get("COMP_LINE", "").split()
    commands = top.add_subparsers(parser_class=Parser)
    for name, summary in summaries.items():
        parser = commands.add_parser(name, help=summary)
        if name in words:
            parser.add_argument("--runs-dir", metavar="DIR", default=argparse.SUPPRESS)
            load(name).add_arguments(parser)
            is_own = "--" in words
            _add_completers(parser, is_own=is_own)
            if is_own:
                # What follows is a command of the user's own.
                parser.add_argument("command", nargs="*")
    argcomplete.autocomplete(top, always_complete_options=False)


def _add_completers(parser: argparse.ArgumentParser, *, is_own: bool) -> None:
    """`is_own`: the line has a command of the user's own, so that no configuration belongs to it."""
    from argcomplete.completers import FilesCompleter

    by_metavar: dict[str, Any] = {
        "RUN": _runs,
        "CONFIG": None if is_own else FilesCompleter(("toml",)),
        "KEY=VALUE": _keys,
        "FORM|FILE": _forms,
        "RULES": _rules,
    }
    for action in parser._actions:
        completer = by_metavar.get(str(action.metavar))
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _add_completers(each, is_own=is_own)
        elif completer is not None:
            action.completer = completer  # type: ignore[attr-defined]  # where argcomplete looks for it


def _runs(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Names of the runs, newest first."""
    from tputui.telemetry import rundir

    return [path.name for path in rundir.listing(rundir.runs_dir(parsed_args.runs_dir, os.environ))]


def _keys(**_: object) -> dict[str, str]:
    """The keys of a configuration file, with the first sentence of their documentation."""
    from tputui.config import tables

    docs = tables.field_docs(tables.RunConfig) | {
        f"{table}.{key}": text for table, cls in tables.TABLES.items() for key, text in tables.field_docs(cls).items()
    }
    return {f"{key}=": docs[key].partition(". ")[0] for key in tables.keys_by_name().values()}


def _forms(**_: object) -> tuple[str, ...]:
    from tputui.cli.export import FORMS

    return FORMS


def _rules(**_: object) -> tuple[str, ...]:
    from tputui.cli.arguments import RULES

    return RULES


COMMANDS = {"completion": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
