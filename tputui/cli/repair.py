"""`tputui repair`: writes a repaired copy of a damaged run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from tputui.cli.arguments import add_run_argument, find_local_run, parent_of
from tputui.cli.check import ReadJournal, examine, is_alive, lost_records
from tputui.cli.console import CommandError, UsageError, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.formatting import counted, inert
from tputui.telemetry.codec import Damage
from tputui.telemetry.repair import REPORT, NothingReadable, RepairedRun, repair_run
from tputui.telemetry.rundir import MANIFEST
from tputui.text import phrases

DESCRIPTION = """Writes a repaired copy of a damaged run beside it, to RUN-repaired or DIR: all readable events,
unchanged and in order, without the damaged regions. An unreadable run.json is rebuilt from the supervisor's journal;
checkpoints are hard-linked, or copied if the disk does not support links, and every other file is copied. Prints
each damaged region, then what was kept and lost; repair.json in the copy lists the regions. The run itself is never
changed, and no file is overwritten. A run without damage is not copied."""
EXIT_CODES = exit_codes(
    DONE="the copy was written, or the run is not damaged",
    DAMAGED="nothing of the run can be read",
    USAGE="no such run, it is still running, or the copy cannot be written",
)


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    parser.add_option("--to", metavar="DIR", help="directory of the copy (default RUN-repaired beside the run)")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    run_dir = find_local_run(args.run, parent_of(args)).absolute()
    readings, regions = examine(run_dir)
    name = inert(run_dir.name)
    if any(is_alive(reading) for reading in readings):
        raise UsageError(f"{name}: the run is still running; repair it after it has ended")
    target = Path(args.to).absolute() if args.to else run_dir.with_name(f"{run_dir.name}-repaired")
    if not regions:
        _print_undamaged(run_dir, readings, as_json=args.json)
        return ExitCode.DONE
    report = msgspec.json.encode({"repaired_from": str(run_dir), "regions": regions})
    repaired = _write_copy(run_dir, target, msgspec.json.format(report))
    _, remaining = examine(target)
    if args.json:
        say_json(_as_json(run_dir, target, repaired, regions, remaining), indent=2)
        return ExitCode.DONE
    for region in regions:
        say(inert(phrases.damage(region)))
    for left in repaired.left_out:
        say(f"left out: {inert(left)}")
    say(f"{inert(target.name)}: {sentence(repaired, regions, remaining)}")
    return ExitCode.DONE


def sentence(repaired: RepairedRun, regions: list[Damage], remaining: list[Damage]) -> str:
    """What the copy contains and what was lost."""
    lost = phrases.lost([region for region in regions if region.journal != MANIFEST])
    manifest = {"kept": "", "rebuilt": "; run.json was rebuilt", "missing": "; run.json could not be rebuilt"}[
        repaired.manifest
    ]
    still = f"; `tputui check` of the copy lists {counted(len(remaining), 'gap')}" if remaining else ""
    kept = f"{counted(repaired.num_events, 'event')} in {counted(repaired.num_journals, 'journal')} kept"
    return f"{kept}; {lost}{manifest}{still}"


def _write_copy(run_dir: Path, target: Path, report: bytes) -> RepairedRun:
    where = inert(str(target))
    if target.resolve().is_relative_to(run_dir.resolve()):
        raise UsageError(f"{where}: the copy cannot be inside the run; choose another --to")
    if target.exists() or target.is_symlink():
        raise UsageError(f"{where}: already exists and is not overwritten; choose another --to")
    try:
        return repair_run(run_dir, target, report)
    except NothingReadable:
        message = f"{inert(run_dir.name)}: neither an event nor {MANIFEST} can be read; nothing to copy"
        raise CommandError(ExitCode.DAMAGED, message) from None
    except OSError as error:
        raise UsageError(f"{where}: the copy cannot be written and was removed: {error.strerror or error}") from None


def _print_undamaged(run_dir: Path, readings: list[ReadJournal], *, as_json: bool) -> None:
    if as_json:
        say_json({"run": run_dir.name, "dir": str(run_dir), "sound": True, "copy": None, "regions": []}, indent=2)
        return
    num_events = sum(reading.num_events for reading in readings)
    read = f"{counted(num_events, 'event')} in {counted(len(readings), 'journal')}"
    say(f"{inert(run_dir.name)}: no damage: {read}; nothing to repair")


def _as_json(
    run_dir: Path, target: Path, repaired: RepairedRun, regions: list[Damage], remaining: list[Damage]
) -> dict[str, Any]:
    return {
        "run": run_dir.name,
        "dir": str(run_dir),
        "sound": False,
        "copy": str(target),
        "records": repaired.num_events,
        "journals": repaired.num_journals,
        "manifest": repaired.manifest,
        "report": str(target / REPORT),
        "regions": regions,
        "lost_records": lost_records(regions),
        "left_out": repaired.left_out,
        "missing": remaining,
    }


COMMANDS = {"repair": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
