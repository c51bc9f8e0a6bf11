"""`tputui check` looks for damage of journals and state cache of a run; `tputui repair` writes a repaired copy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tputui.cache.cache_file import CacheFinding, CacheVerifier
from tputui.cli.arguments import add_run_argument, chosen_run, find_local_run, parent_of, words_of_mirror
from tputui.cli.console import CommandError, UsageError, say, say_json
from tputui.cli.parser import Command, Parser, add_hosts_option, exit_codes
from tputui.exit_codes import ExitCode
from tputui.formatting import counted, inert
from tputui.session import truncation
from tputui.session.session import manifest_damage
from tputui.session.truncation import JournalFile
from tputui.state.reducer import RunState
from tputui.state.step_values import makes_sense
from tputui.telemetry import rundir
from tputui.telemetry.codec import Damage
from tputui.telemetry.events import (
    JournalOpened,
    RunEnded,
    StepsDropped,
    StepsRecorded,
    TopologyDeclared,
    TrainingEnded,
)
from tputui.telemetry.merge import JournalTail, events_of, open_tail
from tputui.telemetry.repair import REPORT, NothingReadable, RepairedRun, repair_run
from tputui.telemetry.rundir import MANIFEST, ProcessId
from tputui.text import phrases

DESCRIPTION = """Reads every event of a run and verifies its checksum and sequence number. Prints one line per
damaged region (file, bytes, reason, events lost), then the totals. With --json one object. A last line that a
running process has not finished is not damage. The cached states from which long runs open are compared with the
journals: one that differs is damage; one of another version, or of a journal that was sealed since, is only
reported. The run is never changed."""
EXIT_CODES = exit_codes(DONE="no damage", DAMAGED="something is damaged", USAGE="no such run")


class ReadJournal(NamedTuple):
    name: str
    """Name of the writer, from the file name."""
    journal: str
    bytes: int
    num_events: int
    writer: ProcessId | None
    """The process that writes it; None if its first event cannot be read."""
    tail: JournalTail | None
    """None if the file cannot be opened."""
    trouble: Damage | None = None
    """Why the file could not be opened or read to its end."""
    inconsistent: int = 0
    """Events with a valid checksum and inconsistent values, which every view ignores."""
    ended: bool = False
    """Whether it contains the end of training or of the run."""
    dropped_steps: int = 0
    """Steps whose values are in no event: the disk was too slow, or training ended before they were read."""


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    add_hosts_option(parser)
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    run_dir = chosen_run(args)
    verifier = CacheVerifier(run_dir)
    readings, regions = examine(run_dir, verifier)
    findings = verifier.findings()
    regions += [
        Damage(finding.name, 0, finding.bytes, finding.why_not, 0)
        for finding in findings
        if finding.why_not and not finding.is_outdated
    ]
    if args.json:
        say_json(_as_json(run_dir, readings, regions, findings), indent=2)
    else:
        _print(words_of_mirror(args, run_dir) or run_dir.name, readings, regions, findings)
    return ExitCode.DAMAGED if regions else ExitCode.DONE


def examine(run_dir: Path, verifier: CacheVerifier | None = None) -> tuple[list[ReadJournal], list[Damage]]:
    """Reads every journal to its end, passing every event to `verifier`; returns the readings and the damaged regions.

    Raises `CommandError`.
    """
    state = RunState()
    try:
        readings = [_read(path, writer, state, verifier) for writer, path in rundir.journal_paths(run_dir)]
    except OSError as error:
        raise UsageError(f"{run_dir}: cannot be read: {error.strerror}") from None
    regions = [*manifest_damage(run_dir, state), *_regions(readings)]
    files = {item.name: JournalFile(item.journal, item.bytes) for item in readings}
    manifest = rundir.manifest_if_readable(run_dir)
    regions += truncation.misplaced(state, files, manifest.run if manifest else None)
    regions += truncation.missing(state, files, regions, over=_is_over(readings, state))
    for reading in readings:
        if reading.tail is not None:
            reading.tail.close()
    return readings, regions


def _read(path: Path, name: str, state: RunState, verifier: CacheVerifier | None) -> ReadJournal:
    """Reads a journal to its end. Events that show whether other journals are complete go into `state`."""
    try:
        tail = open_tail(path)
    except OSError as error:
        why = f"it cannot be opened: {error.strerror}"
        return ReadJournal(name, path.name, 0, 0, None, None, Damage(path.name, 0, 0, why, None))
    num_events, inconsistent, dropped, unread, ended, writer, trouble = 0, 0, 0, 0, False, None, None
    try:
        for numbered in events_of(tail):
            num_events += 1
            if verifier is not None:
                verifier.take(name, numbered.seq, numbered.event)
            if isinstance(numbered.event, StepsRecorded | TopologyDeclared):
                inconsistent += not makes_sense(numbered.event)
            elif isinstance(numbered.event, StepsDropped):
                num_steps = max(0, numbered.event.num_steps)
                dropped, unread = (dropped, unread + num_steps) if numbered.event.why else (dropped + num_steps, unread)
            ended = ended or isinstance(numbered.event, RunEnded | TrainingEnded)
            if isinstance(numbered.event, truncation.EVIDENCE):
                state.apply(name, numbered.seq, numbered.event)
            if isinstance(numbered.event, JournalOpened):
                # The process that takes the place of one trains again what that one had not read from its device.
                unread = 0
                writer = writer or rundir.process_of(numbered.event)
    except OSError as error:
        offset, size = tail.position
        trouble = Damage(path.name, offset, size, f"it cannot be read: {error.strerror}", None)
    dropped += unread
    return ReadJournal(
        name, path.name, tail.position.size, num_events, writer, tail, trouble, inconsistent, ended, dropped
    )


def _regions(readings: list[ReadJournal]) -> list[Damage]:
    """Damaged regions of all journals.

    A half line at the end is damage only if its writer is gone; if the writer is unknown, if no process is alive.
    """
    alive = {reading.journal: is_alive(reading) for reading in readings}
    any_alive = any(alive.values())
    regions: list[Damage] = []
    for reading in readings:
        if reading.tail is not None:
            regions += reading.tail.regions(final=not (alive[reading.journal] if reading.writer else any_alive))
        if reading.trouble is not None:
            regions.append(reading.trouble)
    return regions


def is_alive(reading: ReadJournal) -> bool | None:
    """Whether the writer is alive; None if unknown: it runs on another host, or its first event cannot be read."""
    return rundir.is_alive(reading.writer) if reading.writer else None


def _is_over(readings: list[ReadJournal], state: RunState) -> bool:
    """Whether an end event was read, or no process of the run is known to be alive."""
    ended = any(process.run_ended or process.training_ended for process in state.processes.values())
    return ended or not any(is_alive(reading) for reading in readings)


def _print(name: str, readings: list[ReadJournal], regions: list[Damage], findings: list[CacheFinding]) -> None:
    for region in regions:
        say(inert(phrases.damage(region)))
    for finding in findings:
        if finding.is_outdated:
            say(f"{inert(finding.name)}: not used: {inert(finding.why_not)}")
    for reading in readings:
        if reading.dropped_steps:
            say(f"{inert(reading.journal)}: the losses of {counted(reading.dropped_steps, 'step')} were not recorded")
        if reading.name.startswith("supervisor-") and not reading.ended and not is_alive(reading):
            say(f"{inert(reading.journal)}: no end event: the supervisor was killed, or the last events are missing")
        if reading.inconsistent:
            say(f"{inert(reading.journal)}: {reading.inconsistent} inconsistent events are ignored")
    num_events, cached = (
        sum(reading.num_events for reading in readings),
        sum(not finding.why_not for finding in findings),
    )
    states = f", {counted(cached, 'cached state')}" if cached else ""
    read = f"{counted(num_events, 'event')} in {counted(len(readings), 'journal')}{states}"
    if regions:
        lost = phrases.lost([region for region in regions if region.journal != rundir.MANIFEST])
        say(f"{inert(name)}: {counted(len(regions), 'damaged region')}, {lost}; read {read}")
    else:
        say(f"{inert(name)}: no damage: {read}")


def lost_records(regions: list[Damage]) -> int:
    """Number of lost events, as far as the sequence numbers show."""
    return sum(region.lost_records or 0 for region in regions)


def _as_json(
    run_dir: Path, readings: list[ReadJournal], regions: list[Damage], findings: list[CacheFinding]
) -> dict[str, Any]:
    return {
        "run": run_dir.name,
        "dir": str(run_dir),
        "sound": not regions,
        "journals": [{"journal": item.journal, "bytes": item.bytes, "records": item.num_events} for item in readings],
        "places": [
            {"place": finding.name, "bytes": finding.bytes, "why_not": finding.why_not or None} for finding in findings
        ],
        "regions": regions,
        "lost_records": lost_records(regions),
        "dropped_steps": sum(item.dropped_steps for item in readings),
        "without_end": [item.journal for item in readings if not item.ended and not is_alive(item)],
        "senseless": sum(item.inconsistent for item in readings),
    }


REPAIR_DESCRIPTION = """Writes a repaired copy of a damaged run beside it, to RUN-repaired or DIR: all readable events,
unchanged and in order, without the damaged regions. An unreadable run.json is rebuilt from the supervisor's journal;
checkpoints are hard-linked, or copied if the disk does not support links, and every other file is copied. Prints
each damaged region, then what was kept and lost; repair.json in the copy lists the regions. The run itself is never
changed, and no file is overwritten. A run without damage is not copied."""
REPAIR_EXIT_CODES = exit_codes(
    DONE="the copy was written, or the run is not damaged",
    DAMAGED="nothing of the run can be read",
    USAGE="no such run, it is still running, or the copy cannot be written",
)


def add_repair_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    parser.add_option("--to", metavar="DIR", help="directory of the copy (default RUN-repaired beside the run)")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run_repair(args: argparse.Namespace) -> ExitCode:
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
        say_json(_as_json_copied(run_dir, target, repaired, regions, remaining), indent=2)
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


def _as_json_copied(
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


COMMANDS = {
    "check": Command(DESCRIPTION, EXIT_CODES, add_arguments, run),
    "repair": Command(REPAIR_DESCRIPTION, REPAIR_EXIT_CODES, add_repair_arguments, run_repair),
}
