"""`tputui rm`: deletes runs after confirmation."""

from __future__ import annotations

import argparse
import os
import sys
from functools import reduce
from pathlib import Path

from tputui.cli.arguments import find_run, parent_of
from tputui.cli.console import CommandError, UsageError, narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.formatting import counted, inert, size
from tputui.session import deletion
from tputui.session.deletion import CannotDelete, RunSize

DESCRIPTION = """Deletes runs: their directories with all journals, checkpoints and other files. Prints what will be
deleted and asks first; without a terminal --yes is required. Refuses if one of the runs is still alive or may not be a
run, before anything is deleted. Symbolic links are deleted, not followed."""
EXIT_CODES = exit_codes(
    DONE="deleted",
    FAILED="a run could not be deleted completely",
    USAGE="no such run, it is still alive, or not confirmed; nothing was deleted",
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="name or directory of a run")
    parser.add_option("--yes", action="store_true", help="do not ask")
    parser.add_option("--json", action="store_true", help="print one list of objects; requires --yes")


def run(args: argparse.Namespace) -> ExitCode:
    parent = parent_of(args)
    if remote := [name for name in args.runs if name.startswith("ssh://")]:
        raise UsageError(f"{inert(remote[0])}: runs of other machines are deleted there, by tputui rm")
    paths = list(dict.fromkeys(Path(os.path.abspath(find_run(name, parent))) for name in args.runs))
    sizes = {path: _examine(path) for path in paths}
    if not args.yes:
        _confirm(sizes, as_json=args.json)
    deleted: list[Path] = []
    problem = ""
    for path in paths:
        try:
            deletion.delete(path)
        except CannotDelete as error:
            problem = f"{inert(path.name)} {inert(str(error))}"
            break
        deleted.append(path)
        if not args.json:
            say(f"deleted {inert(path.name)}: {sizes[path].text}")
    if args.json:
        rows = [
            {"run": path.name, "dir": str(path), "files": sizes[path].num_files, "bytes": sizes[path].num_bytes}
            for path in deleted
        ]
        say_json(rows, indent=2)
    if problem:
        raise CommandError(ExitCode.FAILED, problem)
    return ExitCode.DONE


def _examine(path: Path) -> RunSize:
    try:
        return deletion.examine(path)
    except CannotDelete as error:
        raise UsageError(f"{inert(path.name)} {inert(str(error))}; nothing was deleted") from None


def _confirm(sizes: dict[Path, RunSize], *, as_json: bool) -> None:
    """Asks in the terminal. Raises `CommandError` if the answer is not yes."""
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("rm: pass --yes to delete without being asked; nothing was deleted")
    for path, run_size in sizes.items():
        narrate(f"{path}: {run_size.text}")
    total = reduce(RunSize.plus, sizes.values())
    sys.stderr.write(f"tputui: delete {counted(len(sizes), 'run')}, {size(total.num_bytes)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was deleted")


COMMANDS = {"rm": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
