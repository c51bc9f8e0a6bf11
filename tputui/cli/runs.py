"""`tputui runs`: prints the runs of a directory as a table."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tputui import formatting as fmt
from tputui.cli.arguments import existing_parent, runs_in
from tputui.cli.console import narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.log_import.scan import FoundLog, find_logs
from tputui.session import session
from tputui.telemetry import run_labels, rundir
from tputui.telemetry.run_labels import RunLabels
from tputui.user_config import LogSource, read_user_config, user_config_path

DESCRIPTION = """Prints a table of the runs, pinned ones first, then newest first: name, state, epoch, step, training
loss, age, cores, configuration file and tags. Archived runs are listed only with --all. With --json one list of
objects, newest first. The line of a run that cannot be read says so. Logs of other programs below the directory
and below the [[sources]] of the user's configuration file follow, with the state `log`: steps and loss as of the
last time they were opened, by `tputui replay PATH` or from the list of runs."""
EXIT_CODES = exit_codes(DONE="printed, also if there are no runs yet", USAGE="the directory cannot be listed")

_HEAD = ("RUN", "STATE", "EPOCH", "STEP", "TRAIN LOSS", "AGE", "CORES", "CONFIG", "TAGS")
_GAP = "  "
_CONFIG_LEAST = 12
"""Minimum number of cells of the configuration."""
_RIGHT = frozenset({"EPOCH", "STEP", "TRAIN LOSS", "AGE", "CORES"})


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    parser.add_option("--json", action="store_true", help="print one list of objects")
    parser.add_option("--all", action="store_true", help="list archived runs too")
    parser.add_option("--tag", metavar="TAG", help="list only runs with this tag")
    parser.add_option("--host", metavar="HOST", help="list the runs of another machine, [user@]HOST[:port], over ssh")


def run(args: argparse.Namespace) -> ExitCode:
    """Prints the runs."""
    if args.host is not None:
        return print_remote(args, as_json=args.json, archived=args.all, tag=args.tag)
    parent = existing_parent(args)
    if not args.json:
        return print_table(parent, archived=args.all, tag=args.tag)
    rows = [_row(path, labels) for path, labels in _chosen(parent, archived=args.all, tag=args.tag)]
    say_json([*rows, *map(_log_row, _logs(parent, args.tag))], indent=2)
    return ExitCode.DONE


def print_table(parent: Path, *, archived: bool = False, tag: str | None = None) -> ExitCode:
    """Prints the runs in `parent` for a person; with `archived` also those, with `tag` only runs that have it."""
    chosen, logs = _chosen(parent, archived=archived, tag=tag), _logs(parent, tag)
    if not chosen and not logs:
        narrate(_why_empty(parent, tag, archived=archived))
        return ExitCode.DONE
    pinned_first = sorted(chosen, key=lambda pair: not (pair[1] and pair[1].pinned))
    _print_cells(
        [_cells(_row(path, labels)) for path, labels in pinned_first] + [_cells(_log_row(log)) for log in logs]
    )
    return ExitCode.DONE


def print_remote(
    args: argparse.Namespace, *, as_json: bool = False, archived: bool = False, tag: str | None = None
) -> ExitCode:
    """Prints the runs of the machine of `--host`. Raises `CommandError`."""
    # Imported here so that the runs of this machine are listed faster.
    from msgspec import to_builtins

    from tputui.cli.remote_runs import runs_of

    rows = [to_builtins(run) for run in runs_of(args)]
    rows = [row for row in rows if (archived or not row["archived"]) and (tag is None or tag in (row["tags"] or ()))]
    if as_json:
        say_json(rows, indent=2)
    elif rows:
        _print_cells([_cells(row) for row in sorted(rows, key=lambda row: not row["pinned"])])
    else:
        narrate(f"no runs on {fmt.inert(args.host)}")
    return ExitCode.DONE


def _print_cells(rows: Sequence[tuple[str, ...]]) -> None:
    head = _HEAD if any(cells[-1] for cells in rows) else _HEAD[:-1]
    table = _fitted([head, *(row[: len(head)] for row in rows)])
    widths = _widths(table)
    for line in table:
        cells = (
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for cell, width, name in zip(line, widths, head, strict=False)
        )
        say(_GAP.join(cells).rstrip())


def _widths(table: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def _fitted(table: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The table with the column CONFIG cut so that no line is wrapped in a terminal."""
    if not sys.stdout.isatty():
        return table
    widths, at = _widths(table), _HEAD.index("CONFIG")
    others = sum(widths) - widths[at] + len(_GAP) * (len(widths) - 1)
    room = max(shutil.get_terminal_size().columns - others, _CONFIG_LEAST)
    return [(*line[:at], _shortened(line[at], room), *line[at + 1 :]) for line in table]


def _shortened(text: str, room: int) -> str:
    """The end of a path, and the beginning of any other text."""
    if len(text) <= room:
        return text
    is_path = "/" in text and " " not in text
    return "..." + text[len(text) - room + 3 :] if is_path else text[: room - 3] + "..."


def _chosen(parent: Path, *, archived: bool, tag: str | None) -> list[tuple[Path, RunLabels | None]]:
    """The runs to list with their labels, newest first; None for labels that cannot be read."""
    found = [(path, _labels(path)) for path in sorted(runs_in(parent), key=created, reverse=True)]
    return [
        (path, labels)
        for path, labels in found
        if (archived or not (labels and labels.archived)) and (tag is None or (labels and tag in labels.tags))
    ]


def _logs(parent: Path, tag: str | None) -> list[FoundLog]:
    """The logs of other programs to list; they have no tags. Prints why some are missing."""
    if tag is not None:
        return []
    config = read_user_config(user_config_path(os.environ))
    scan = find_logs([LogSource(parent, ""), *config.sources])
    for sentence in (*config.problems, *scan.limits):
        narrate(sentence)
    return scan.logs


def _log_row(log: FoundLog) -> dict[str, Any]:
    """The values of a log in the table; steps and loss only if the log was opened before."""
    # Imported here so that lists without logs are printed faster.
    from tputui.log_import import place

    files = f"{fmt.counted(log.num_files, 'file')}, {fmt.size(log.num_bytes)}"
    row: dict[str, Any] = {"run": log.name, "dir": str(log.path), "created": log.newest_t, "state": "log"}
    row |= {**dict.fromkeys(RunLabels.__struct_fields__), "format": log.form, "step": None, "loss": None}
    imported = place.imported(log.path, os.environ)
    if imported is None:
        return {**row, "config": f"{log.form}, {files}; not read yet"}
    snapshot = session.load(imported.run_dir)
    row |= {"step": snapshot.steps or None, "loss": snapshot.listed_loss}
    is_behind = imported.is_behind(log.newest_t)
    return {**row, "config": f"{log.form}, {files}{'; changed since it was read' if is_behind else ''}"}


def _labels(run_dir: Path) -> RunLabels | None:
    try:
        return run_labels.read(run_dir)
    except run_labels.InvalidLabels:
        return None


def _why_empty(parent: Path, tag: str | None, *, archived: bool) -> str:
    if not runs_in(parent):
        return f"no runs in {parent} yet; start one with `tputui run CONFIG`"
    if tag is not None:
        return f"no run in {parent} has the tag {tag}{'' if archived else '; --all searches archived runs too'}"
    return f"all runs in {parent} are archived; --all lists them"


def created(run_dir: Path) -> float:
    """Unix time at which the run was created; the time of its directory if the manifest cannot be read."""
    manifest = rundir.manifest_if_readable(run_dir)
    return manifest.created if manifest else run_dir.stat().st_mtime


def _row(run_dir: Path, labels: RunLabels | None) -> dict[str, Any]:
    """The values of a run in the table; None if unknown."""
    row: dict[str, Any] = {"run": run_dir.name, "dir": str(run_dir), "created": created(run_dir)}
    row |= {name: getattr(labels, name, None) for name in RunLabels.__struct_fields__}
    if why := rundir.why_shut(run_dir):
        return {**row, "state": "unreadable", "why": why}
    snapshot = session.load(run_dir)
    return {
        **row,
        "state": snapshot.condition,
        "epoch": snapshot.epoch,
        "num_epochs": snapshot.plan.num_epochs if snapshot.plan else None,
        "step": snapshot.steps,
        "loss": snapshot.listed_loss,
        "num_cores": snapshot.topology.num_cores if snapshot.topology else None,
        "config": _config_path(run_dir),
    }


def _config_path(run_dir: Path) -> str | None:
    manifest = rundir.manifest_if_readable(run_dir)
    return manifest.config_path if manifest else None


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    epoch = f"{row['epoch']}/{row.get('num_epochs') or '?'}" if row.get("epoch") or row.get("num_epochs") else "-"
    return (
        fmt.inert(row["run"]),
        fmt.inert(row["state"]),
        epoch,
        _or_dash(row.get("step"), "d"),
        "-" if row.get("loss") is None else fmt.number(row["loss"]),
        fmt.short_age(time.time() - row["created"]),
        _or_dash(row.get("num_cores"), "d"),
        fmt.inert(str(row.get("config") or row.get("why") or "-")),
        fmt.inert(
            ", ".join(
                [
                    *(["pinned"] if row["pinned"] else []),
                    *(["archived"] if row["archived"] else []),
                    *(row["tags"] or ()),
                ]
            )
        ),
    )


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


COMMANDS = {"runs": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
