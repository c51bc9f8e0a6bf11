"""Which run a command is about, from the name or path that was typed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tputui.cli.console import CommandError
from tputui.cli.parser import Parser, nearest
from tputui.exit_codes import ExitCode
from tputui.telemetry import rundir


def add_run_argument(parser: Parser, *, optional: bool = False, help: str = "name of a run, or its directory") -> None:
    """Declares the argument RUN."""
    parser.add_argument("run", metavar="RUN", nargs="?" if optional else None, help=help)


def parent_of(args: argparse.Namespace) -> Path:
    """The directory in which runs live."""
    return rundir.runs_dir(args.runs_dir, os.environ)


def existing_parent(args: argparse.Namespace) -> Path:
    """The directory in which runs live, for a command that lists them. Raises `CommandError` if `--runs-dir` names a
    directory that does not exist; the default may be created by the first run."""
    parent = parent_of(args)
    if args.runs_dir and not parent.exists():
        raise CommandError(ExitCode.USAGE, f"--runs-dir {args.runs_dir}: no such directory")
    return parent


def chosen_run(args: argparse.Namespace) -> Path:
    """The directory of the run that was named. Raises `CommandError`."""
    return find_run(args.run, parent_of(args))


def find_run(name: str, parent: Path) -> Path:
    """The directory of the run called `name`, or at that path. Raises `CommandError` with the nearest name."""
    try:
        return rundir.find(name, parent)
    except PermissionError:
        raise CommandError(ExitCode.USAGE, f"{name}: this run is {_why_shut(name, parent)}") from None
    except rundir.RunNotFound as error:
        near = nearest(Path(name).name, [path.name for path in runs_in(parent)])
        hint = f"did you mean {near}?" if near else "`tputui runs` lists those there are"
        raise CommandError(ExitCode.USAGE, f"{str(error).partition(';')[0]}; {hint}") from None


def runs_in(parent: Path) -> list[Path]:
    """Directories of the runs, newest first. Raises `CommandError` where they cannot be listed."""
    try:
        return rundir.listing(parent)
    except OSError as error:
        raise CommandError(ExitCode.USAGE, f"{parent}: runs cannot be listed: {error.strerror}") from None


def _why_shut(name: str, parent: Path) -> str:
    reasons = [rundir.why_shut(candidate) for candidate in (parent / name, Path(name)) if os.path.lexists(candidate)]
    return next((why for why in reasons if why), "in a directory that you may not look into")
