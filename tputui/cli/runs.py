"""`tputui runs`: prints the runs of a directory as a table."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tputui.cli.arguments import existing_parent, runs_in
from tputui.cli.console import narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session import session
from tputui.telemetry import rundir

DESCRIPTION = """Prints a table of the runs, newest first: name, state, epoch, step, loss, age, cores and
configuration file. With --json one list of objects. The line of a run that cannot be read says so."""
EXIT_CODES = exit_codes(DONE="printed, also if there are no runs yet", USAGE="the directory cannot be listed")

_HEAD = ("RUN", "STATE", "EPOCH", "STEP", "LOSS", "AGE", "CORES", "CONFIG")
_RIGHT = frozenset({"EPOCH", "STEP", "LOSS", "AGE", "CORES"})


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    parser.add_option("--json", action="store_true", help="print one list of objects")


def run(args: argparse.Namespace) -> ExitCode:
    """Prints the runs."""
    parent = existing_parent(args)
    if not args.json:
        return print_table(parent)
    say_json([_row(path) for path in _newest_first(parent)], indent=2)
    return ExitCode.DONE


def print_table(parent: Path) -> ExitCode:
    """Prints the runs in `parent` for a person."""
    paths = _newest_first(parent)
    if not paths:
        narrate(f"no runs in {parent} yet; start one with `tputui run CONFIG`")
        return ExitCode.DONE
    table = [_HEAD, *(_cells(_row(path)) for path in paths)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    for line in table:
        cells = (
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for cell, width, name in zip(line, widths, _HEAD, strict=True)
        )
        say("  ".join(cells).rstrip())
    return ExitCode.DONE


def _newest_first(parent: Path) -> list[Path]:
    return sorted(runs_in(parent), key=created, reverse=True)


def created(run_dir: Path) -> float:
    """Unix time at which the run was created; the time of its directory if the manifest cannot be read."""
    manifest = rundir.manifest_if_readable(run_dir)
    return manifest.created if manifest else run_dir.stat().st_mtime


def _row(run_dir: Path) -> dict[str, Any]:
    """The values of a run in the table; None if unknown."""
    row: dict[str, Any] = {"run": run_dir.name, "dir": str(run_dir), "created": created(run_dir)}
    if why := rundir.why_shut(run_dir):
        return {**row, "state": "unreadable", "why": why}
    snapshot = session.load(run_dir)
    return {
        **row,
        "state": snapshot.condition,
        "epoch": snapshot.epoch,
        "num_epochs": snapshot.plan.num_epochs if snapshot.plan else None,
        "step": snapshot.steps,
        "loss": snapshot.newest_loss,
        "num_cores": snapshot.topology.num_cores if snapshot.topology else None,
        "config": _config_path(run_dir),
    }


def _config_path(run_dir: Path) -> str | None:
    manifest = rundir.manifest_if_readable(run_dir)
    return manifest.config_path if manifest else None


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    epoch = "-" if row.get("epoch") is None else f"{row['epoch']}/{row.get('num_epochs') or '?'}"
    return (
        inert(row["run"]),
        row["state"],
        epoch,
        _or_dash(row.get("step"), "d"),
        _or_dash(row.get("loss"), ".4g"),
        age(time.time() - row["created"]),
        _or_dash(row.get("num_cores"), "d"),
        inert(str(row.get("config") or row.get("why") or "-")),
    )


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def age(seconds: float) -> str:
    """A duration in its largest unit: `42s`, `7m`, `3h`, `12d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


COMMANDS = {"runs": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
