"""`tputui repair`: a sound copy of a damaged run, beside it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from tputui.cli.arguments import add_run_argument, chosen_run
from tputui.cli.check import Reading, examine, lives, lost_records, region_line
from tputui.cli.console import CommandError, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.telemetry.journal import Damage
from tputui.telemetry.repair import REPORT, NothingReadable, RepairedRun, mend
from tputui.telemetry.rundir import MANIFEST

DESCRIPTION = """Writes a sound copy of a damaged run beside it, RUN-repaired or DIR: every record that can be
read, as it stands and in its order, without the damage between them and without torn ends; a run.json that
cannot be read is rebuilt from the supervisor's journal; checkpoints are linked, or copied where the disk has
no links, and every other file is copied. Prints each damaged region, then what the copy holds and what is
lost; repair.json in the copy keeps the regions. The run itself is not changed, and nothing is written over. A
sound run is told so and not copied."""
EXIT_CODES = exit_codes(
    DONE="the copy stands, or the run is sound",
    DAMAGED="nothing of the run can be read",
    USAGE="no such run, it is still running, or the copy cannot be made there",
)


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    add_run_argument(parser)
    parser.add_option("--to", metavar="DIR", help="where the copy goes (RUN-repaired beside the run)")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Repairs the run."""
    run_dir = chosen_run(args).absolute()
    readings, regions = examine(run_dir)
    name = inert(run_dir.name)
    if any(lives(reading) for reading in readings):
        raise CommandError(ExitCode.USAGE, f"{name}: it is still running; repair it when it has ended")
    target = Path(args.to).absolute() if args.to else run_dir.with_name(f"{run_dir.name}-repaired")
    if not regions:
        _tell_sound(run_dir, readings, as_json=args.json)
        return ExitCode.DONE
    report = msgspec.json.encode({"repaired_from": str(run_dir), "regions": regions})
    mended = _mend(run_dir, target, msgspec.json.format(report))
    _, remaining = examine(target)
    if args.json:
        say_json(_as_json(run_dir, target, mended, regions, remaining), indent=2)
        return ExitCode.DONE
    for region in regions:
        say(region_line(region))
    for left in mended.left_out:
        say(f"left out: {inert(left)}")
    say(f"{inert(target.name)}: {sentence(mended, regions, remaining)}")
    return ExitCode.DONE


def sentence(mended: RepairedRun, regions: list[Damage], remaining: list[Damage]) -> str:
    """What the copy holds, and what is lost."""
    unknown = sum(region.lost_records is None and region.journal != MANIFEST for region in regions)
    lost = f"{plural(lost_records(regions), 'record')} lost"
    if unknown:
        lost += f", and what {plural(unknown, 'further region')} held is not known"
    manifest = {"kept": "", "rebuilt": "; run.json was rebuilt", "missing": "; run.json is lost"}[mended.manifest]
    still = f"; `tputui check` of it tells what is missing, in {plural(len(remaining), 'place')}" if remaining else ""
    kept = f"{plural(mended.num_records, 'sound record')} in {plural(mended.num_journals, 'journal')} kept"
    return f"{kept}; {lost}{manifest}{still}"


def plural(count: int, word: str) -> str:
    """A count with its word."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _mend(run_dir: Path, target: Path, report: bytes) -> RepairedRun:
    where = inert(str(target))
    if target.resolve().is_relative_to(run_dir.resolve()):
        raise CommandError(ExitCode.USAGE, f"{where}: the copy goes beside the run, not into it; name another --to")
    if target.exists() or target.is_symlink():
        words = f"{where}: this stands already, and nothing is written over; name another --to"
        raise CommandError(ExitCode.USAGE, words)
    try:
        return mend(run_dir, target, report)
    except NothingReadable:
        words = f"{inert(run_dir.name)}: no record and no {MANIFEST} of it can be read, so there is nothing to copy"
        raise CommandError(ExitCode.DAMAGED, words) from None
    except OSError as error:
        words = f"{where}: the copy cannot be made, and nothing of it was kept: {error.strerror or error}"
        raise CommandError(ExitCode.USAGE, words) from None


def _tell_sound(run_dir: Path, readings: list[Reading], *, as_json: bool) -> None:
    if as_json:
        say_json({"run": run_dir.name, "dir": str(run_dir), "sound": True, "copy": None, "regions": []}, indent=2)
        return
    records = sum(reading.records for reading in readings)
    say(
        f"{inert(run_dir.name)}: sound: {records} sound records in {len(readings)} journals; there is nothing to repair"
    )


def _as_json(
    run_dir: Path, target: Path, mended: RepairedRun, regions: list[Damage], remaining: list[Damage]
) -> dict[str, Any]:
    return {
        "run": run_dir.name,
        "dir": str(run_dir),
        "sound": False,
        "copy": str(target),
        "records": mended.num_records,
        "journals": mended.num_journals,
        "manifest": mended.manifest,
        "report": str(target / REPORT),
        "regions": regions,
        "lost_records": lost_records(regions),
        "left_out": mended.left_out,
        "missing": remaining,
    }


COMMANDS = {"repair": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
