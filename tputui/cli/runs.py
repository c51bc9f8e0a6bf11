"""`tputui runs`: prints the runs of a directory as a table."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.cli.arguments import existing_parent, runs_in
from tputui.cli.console import GAP, narrate, say, say_json, table_lines
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.log_import.scan import FoundLog, find_logs
from tputui.session import session
from tputui.state import facts
from tputui.state.listed_run import ListedRun, with_progress
from tputui.telemetry import run_labels, rundir
from tputui.telemetry.run_labels import RunLabels
from tputui.user_config import LogSource, read_user_config, user_config_path

DESCRIPTION = """Prints a table of the runs, pinned ones first, then newest first: name, state, epoch, step, training
loss, age, cores, configuration file and labels: pinned, archived, tags. Archived runs are listed only with --all. With
--json one list of objects, newest first. The line of a run that cannot be read says so. Logs of other programs below
the directory and below the [[sources]] of the user's configuration file follow, with the state `log`: steps and loss
as of the last time they were opened, by `tputui replay PATH` or from the list of runs."""
EXIT_CODES = exit_codes(DONE="printed, also if there are no runs yet", USAGE="the directory cannot be listed")

_HEAD = ("RUN", "STATE", "EPOCH", "STEP", "TRAIN LOSS", "AGE", "CORES", "CONFIG", "LABELS")
_CONFIG_LEAST = 12
"""Minimum number of cells of the configuration."""
_RIGHT = frozenset({"EPOCH", "STEP", "TRAIN LOSS", "AGE", "CORES"})


def add_arguments(parser: Parser) -> None:
    parser.add_option("--json", action="store_true", help="print one list of objects")
    parser.add_option("--all", action="store_true", help="list archived runs too")
    parser.add_option("--tag", metavar="TAG", help="list only runs with this tag")
    parser.add_option("--host", metavar="HOST", help="list the runs of another machine, [user@]HOST[:port], over ssh")


def run(args: argparse.Namespace) -> ExitCode:
    if args.host is not None:
        return print_remote(args, as_json=args.json, archived=args.all, tag=args.tag)
    parent = existing_parent(args)
    if not args.json:
        return print_table(parent, archived=args.all, tag=args.tag)
    runs = [_run(*found) for found in _found(parent, args.tag) if args.all or not _is_archived(found)]
    say_json([each.to_json() for each in (*runs, *map(_log, _logs(parent, args.tag)))], indent=2)
    return ExitCode.DONE


def print_table(parent: Path, *, archived: bool = False, tag: str | None = None) -> ExitCode:
    """Prints the runs in `parent` for a person; with `archived` also those, with `tag` only runs that have it."""
    found, logs = _found(parent, tag), _logs(parent, tag)
    chosen = [pair for pair in found if archived or not _is_archived(pair)]
    if not chosen and not logs:
        narrate(_why_empty(parent, tag, archived=archived))
        return ExitCode.DONE
    pinned_first = sorted(chosen, key=lambda pair: not (pair[1] and pair[1].pinned))
    _print_table([*(_run(path, labels) for path, labels in pinned_first), *map(_log, logs)])
    if left_out := len(found) - len(chosen):
        narrate(f"{fmt.counted(left_out, 'archived run')} not listed; --all lists {'it' if left_out == 1 else 'them'}")
    return ExitCode.DONE


def print_remote(
    args: argparse.Namespace, *, as_json: bool = False, archived: bool = False, tag: str | None = None
) -> ExitCode:
    """Prints the runs of the machine of `--host`. Raises `CommandError`."""
    # Imported here so that the runs of this machine are listed faster.
    from tputui.cli.remote_runs import runs_of

    runs = [
        each for each in runs_of(args) if (archived or not each.archived) and (tag is None or tag in (each.tags or ()))
    ]
    if as_json:
        say_json([each.to_json() for each in runs], indent=2)
    elif runs:
        _print_table(sorted(runs, key=lambda each: not each.pinned))
    else:
        narrate(f"no runs on {fmt.inert(args.host)}")
    return ExitCode.DONE


def _print_table(runs: Iterable[ListedRun]) -> None:
    rows = list(map(_cells, runs))
    head = _HEAD if any(cells[-1] for cells in rows) else _HEAD[:-1]
    right = [at for at, name in enumerate(head) if name in _RIGHT]
    say("\n".join(table_lines(_fitted([head, *(row[: len(head)] for row in rows)]), right)))


def _fitted(table: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The table with the column CONFIG cut so that no line is wrapped in a terminal."""
    if not sys.stdout.isatty():
        return table
    widths, at = [max(map(len, column)) for column in zip(*table, strict=True)], _HEAD.index("CONFIG")
    others = sum(widths) - widths[at] + len(GAP) * (len(widths) - 1)
    room = max(shutil.get_terminal_size().columns - others, _CONFIG_LEAST)
    return [(*line[:at], _shortened(line[at], room), *line[at + 1 :]) for line in table]


def _shortened(text: str, room: int) -> str:
    """The end of a path, and the beginning of any other text."""
    if len(text) <= room:
        return text
    is_path = "/" in text and " " not in text
    return "..." + text[len(text) - room + 3 :] if is_path else text[: room - 3] + "..."


def _found(parent: Path, tag: str | None) -> list[tuple[Path, RunLabels | None]]:
    """The runs, with `tag` those that have it, with their labels, newest first; None for labels that cannot be read."""
    labelled = [(path, _labels(path)) for path in sorted(runs_in(parent), key=created, reverse=True)]
    return [(path, labels) for path, labels in labelled if tag is None or (labels and tag in labels.tags)]


def _is_archived(found: tuple[Path, RunLabels | None]) -> bool:
    return found[1] is not None and found[1].archived


def _logs(parent: Path, tag: str | None) -> list[FoundLog]:
    """The logs of other programs to list; they have no tags. Prints why some are missing."""
    if tag is not None:
        return []
    config = read_user_config(user_config_path(os.environ))
    scan = find_logs([LogSource(parent, ""), *config.sources])
    for sentence in (*config.problems, *scan.limits):
        narrate(sentence)
    return scan.logs


def _log(log: FoundLog) -> ListedRun:
    """A log in the list; steps and loss only if it was opened before."""
    # Imported here so that lists without logs are printed faster.
    from tputui.log_import import place

    files = f"{fmt.counted(log.num_files, 'file')}, {fmt.size(log.num_bytes)}"
    listed = ListedRun(run=log.name, dir=str(log.path), created=log.newest_t, state="log", format=log.form)
    imported = place.imported(log.path, os.environ)
    if imported is None:
        return replace(listed, config=f"{log.form}, {files}; not read yet")
    snapshot = session.load(imported.run_dir)
    changed = "; changed since it was read" if imported.is_behind(log.newest_t) else ""
    return replace(
        listed,
        step=snapshot.steps or None,
        loss=facts.listed_loss(snapshot).of(snapshot),
        config=f"{log.form}, {files}{changed}",
    )


def _labels(run_dir: Path) -> RunLabels | None:
    try:
        return run_labels.read(run_dir)
    except run_labels.InvalidLabels:
        return None


def _why_empty(parent: Path, tag: str | None, *, archived: bool) -> str:
    if not parent.exists():
        return f"{parent} does not exist yet; the first run creates it: `tputui run CONFIG`"
    if not runs_in(parent):
        return f"no runs in {parent} yet; start one with `tputui run CONFIG`"
    if tag is not None:
        return f"no run in {parent} has the tag {tag}{'' if archived else '; --all searches archived runs too'}"
    return f"all runs in {parent} are archived; --all lists them"


def created(run_dir: Path) -> float:
    """Unix time at which the run was created; the time of its directory if the manifest cannot be read."""
    manifest = rundir.manifest_if_readable(run_dir)
    return manifest.created if manifest else run_dir.stat().st_mtime


def _run(run_dir: Path, labels: RunLabels | None) -> ListedRun:
    listed = ListedRun(run=run_dir.name, dir=str(run_dir), created=created(run_dir), state="unreadable")
    if labels is not None:
        tags = list(labels.tags)
        listed = replace(listed, pinned=labels.pinned, archived=labels.archived, tags=tags, note=labels.note)
    if why := rundir.why_shut(run_dir):
        return replace(listed, why=why)
    manifest = rundir.manifest_if_readable(run_dir)
    listed = replace(listed, config=manifest.config_path if manifest else None)
    return with_progress(listed, session.load(run_dir))


def _cells(listed: ListedRun) -> tuple[str, ...]:
    marks = [name for name, is_set in (("pinned", listed.pinned), ("archived", listed.archived)) if is_set]
    return (
        fmt.inert(listed.run),
        fmt.inert(listed.state),
        listed.epoch_text or "-",
        _or_dash(listed.step),
        listed.loss_text or "-",
        fmt.short_age(time.time() - listed.created),
        _or_dash(listed.num_cores),
        fmt.inert(listed.config or listed.why or "-"),
        fmt.inert(", ".join([*marks, *(listed.tags or ())])),
    )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else fmt.count(value)


COMMANDS = {"runs": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
