"""`tputui doctor`: checks whether this machine can train, and what to type next; with a run, why it is slow.

Opens no device.
"""

from __future__ import annotations

import argparse
import locale
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from tputui import __version__, environment
from tputui import formatting as fmt
from tputui.cli.arguments import parent_of, positive_number
from tputui.cli.console import UsageError, narrate, say, say_json
from tputui.cli.foreign_logs import chosen_run_or_log
from tputui.cli.orphans import end_orphan, find_training_process
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.device.probe import probe
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.verdict import found
from tputui.environment import version_problem
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session import session
from tputui.session.family import family_goodput
from tputui.state.snapshot import hides_steps
from tputui.telemetry.codec import spell_non_finite
from tputui.text import verdict_lines
from tputui.ui.terminal.picture_protocol import detect, terminal_fd

DESCRIPTION = """With RUN, prints what slows that run down or keeps it from learning: the line of code, the time lost,
the evidence and the fix. Without RUN, checks this machine: prints one line per finding: ok, warn or bad, the subject,
what was found and the command to type next. Checks Python, tputui, torch and torch_xla, libtpu, TPU chips, the
processes that use them and the metrics of the TPU runtime, disk and terminal. Opens no device and imports no torch.
With --json one object. If a training process of yours still uses a TPU although the supervisor of its run is gone,
doctor offers to end it in a terminal; --end-stale ends it without asking. It is first requested to save and stop. No
other process is ever ended."""
EXIT_CODES = exit_codes(
    DONE="training can start, possibly with warnings; with RUN: nothing was found that slows it down",
    DAMAGED="training cannot start; with RUN: something was found",
    USAGE="no such run",
)
RUN_HELP = "run to diagnose, by name or directory, or a log by path (default: check this machine)"

Level = Literal["ok", "warn", "bad"]
LIBTPU_MIN = {"TPU v7x": "0.0.42.1"}
"""Versions of libtpu that kinds of chips need, where one is documented. v7x: AI-Hypercomputer/maxdiffusion, pull
request 471, where an older one ended with `No ba16c7433 device found`."""
FREE_BYTES_WARN = 2 << 30
COLUMNS_MIN, LINES_MIN = 80, 24


class Finding(NamedTuple):
    level: Level
    about: str
    text: str
    next: str | None = None
    """The command to type; None if nothing needs to be done."""


def add_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help=RUN_HELP)
    parser.add_option("--json", action="store_true", help="print one JSON object")
    parser.add_option(
        "--price", type=positive_number, metavar="N", help="with RUN: price of an hour, to print what the time cost"
    )
    parser.add_option("--end-stale", action="store_true", help="end your training processes whose supervisor is gone")


def run(args: argparse.Namespace) -> ExitCode:
    if args.run is not None:
        return _diagnose(args)
    if args.end_stale:
        _end_stale(ask=False)
    findings = list(find(parent_of(args), environment.ROOT))
    if args.json:
        say_json({"able": not _is_bad(findings), "findings": [finding._asdict() for finding in findings]}, indent=2)
    else:
        for finding in findings:
            say(f"{finding.level:<4}  {finding.about:<9}  {finding.text}")
            if finding.next is not None:
                say(f"{'':<4}  {'':<9}  next: {finding.next}")
        if not args.end_stale and sys.stdin.isatty() and sys.stdout.isatty() and _end_stale(ask=True):
            findings = list(find(parent_of(args), environment.ROOT))
    return ExitCode.DAMAGED if _is_bad(findings) else ExitCode.DONE


def _diagnose(args: argparse.Namespace) -> ExitCode:
    """Prints why a run is slow, or does not learn."""
    if args.end_stale:
        raise UsageError("doctor: --end-stale checks this machine and takes no RUN")
    run_dir = chosen_run_or_log(args)
    snapshot = session.load(run_dir)
    verdicts, goodput = diagnose(snapshot), family_goodput(run_dir, snapshot)
    findings = found(verdicts)
    if args.json:
        fields = {"run": snapshot.run, "dir": snapshot.dir, "verdicts": msgspec.to_builtins(list(verdicts))}
        fields["goodput"] = msgspec.to_builtins(goodput)
        say_json(spell_non_finite(fields), indent=2)
    else:
        wall_s = DiagnosedRun.of(snapshot).wall_s
        steps = (len(snapshot.epochs), "epoch") if hides_steps(snapshot) else (snapshot.steps, "step")
        # A log may have no times.
        passed = [*([fmt.duration(wall_s)] if wall_s else []), fmt.counted(*steps)]
        number = fmt.counted(len(findings), "finding") if findings else "no findings"
        say(inert(f"{snapshot.run}: {number} in {' and '.join(passed)}"))
        for line in verdict_lines.blocks(verdicts, args.run):
            say(inert(line))
        if checked := verdict_lines.checked(verdicts):
            say(f"{'nothing found':<{verdict_lines.INDENT}}{checked}")
        for line in verdict_lines.goodput_blocks(goodput, args.price):
            say(inert(line))
    return ExitCode.DAMAGED if findings else ExitCode.DONE


def _is_bad(findings: list[Finding]) -> bool:
    return any(finding.level == "bad" for finding in findings)


def _end_stale(*, ask: bool) -> bool:
    """Ends processes that use a TPU and whose supervisor is gone, with `ask` after a confirmation each.

    Returns whether any was ended.
    """
    ended = False
    for pid in dict.fromkeys(holder.pid for holder in environment.find_devices(environment.ROOT).holders):
        process = find_training_process(pid)
        if process is None or process.supervised:
            continue
        who = f"process {pid} of your run {inert(process.run_dir.name)}, whose supervisor is gone"
        if ask and not _is_yes(f"End {who}? It can save and stop first. [y/N] "):
            continue
        try:
            narrate(f"{who}: {end_orphan(process)}")
            ended = True
        except OSError as error:
            narrate(f"{who}: cannot be ended: {error.strerror}")
    return ended


def _is_yes(question: str) -> bool:
    sys.stdout.write(question)
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def find(runs_dir: Path, root: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    yield Finding("ok", "python", f"{sys.version.split()[0]} at {sys.executable}")
    yield Finding("ok", "tputui", f"{__version__} at {Path(__file__).parent.parent}")
    if (problem := environment.launch_problem()) is not None:
        yield Finding("bad", "launch", problem, "ssh HOST")
    else:
        yield _torch()
        devices = environment.find_devices(root)
        yield from _device(devices, environ, root)
        yield _metric_service(environ, has_chips=bool(devices.chips.known))
    yield _disk(runs_dir)
    yield from _terminal()


def _torch() -> Finding:
    torch, torch_xla = environment.installed("torch"), environment.installed("torch_xla")
    problem = version_problem(torch, torch_xla)
    if problem is None:
        return Finding("ok", "torch", f"torch {torch} and torch_xla {torch_xla} match")
    fault, _, command = problem.rpartition("; ")
    return Finding("bad", "torch", fault, command)


def _device(devices: environment.Devices, environ: Mapping[str, str], root: Path) -> Iterator[Finding]:
    libtpu, chips = environment.installed("libtpu"), devices.chips
    if not chips.known:
        cores = os.cpu_count() or 1
        text = f"no TPU on the PCI bus; training uses virtual cores on {cores} host CPUs"
        if signs := environment.tpu_signs(chips, environ, root / "dev"):
            text = f"no known TPU, but signs of one: {', '.join(signs)}; training would use virtual cores"
            yield Finding("warn", "device", text, "lspci -nn -d 1ae0:")
        else:
            yield Finding("ok", "device", text)
        if libtpu is not None:
            yield Finding("ok", "libtpu", f"{libtpu}, not used without a TPU")
        return
    num_cores = sum(kind.cores for kind in chips.known)
    files = ", ".join(devices.files) or "none"
    yield Finding("ok", "device", f'{chips.summary}: device.cores = "all" is {num_cores} cores; device files: {files}')
    if len(set(chips.known)) > 1:
        text = "chips of different kinds cannot be used together; training would use virtual cores"
        yield Finding("warn", "device", text, "lspci -nn -d 1ae0:")
    if environ.get("PJRT_DEVICE", "").upper() == "CPU":
        text = "PJRT_DEVICE=CPU is set in the environment, so training would use virtual cores"
        yield Finding("warn", "device", text, "unset PJRT_DEVICE")
    if libtpu is None:
        yield Finding("bad", "libtpu", "not installed; required for the TPU", "pip install 'tputui[tpu]'")
    else:
        yield _libtpu(libtpu, {kind.name for kind in chips.known})
    for holder in devices.holders:
        yield _held(holder)
    if devices.num_hidden:
        text = f"{devices.num_hidden} processes of other users may be using the TPU; their open files cannot be read"
        yield Finding("warn", "device", text, "sudo tputui doctor")


def _libtpu(version: str, chips: set[str]) -> Finding:
    """Whether the runtime is new enough for the chips, as far as a bound is known."""
    for chip in sorted(chips & LIBTPU_MIN.keys()):
        if _numbers(version) < _numbers(needed := LIBTPU_MIN[chip]):
            text = f"{version} may not know {chip} chips, for which others needed {needed}: training would find no TPU"
            return Finding("warn", "libtpu", text, f"pip install 'libtpu>={needed}'")
    return Finding("ok", "libtpu", version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def _metric_service(environ: Mapping[str, str], *, has_chips: bool) -> Finding:
    """Whether the TPU runtime reports memory, duty cycle and links of the cores."""
    answer = probe(environ, has_chips=has_chips)
    return Finding("ok" if answer.works else "warn", "metrics", answer.text, answer.next)


def _held(holder: environment.Holder) -> Finding:
    """The process that uses a device, and the command that frees the device."""
    text = f"{holder.device} is in use by process {holder.pid} ({holder.command})"
    process = find_training_process(holder.pid)
    if process is None:
        return Finding("bad", "device", text, f"kill {holder.pid}")
    text += f", which trains your run {inert(process.run_dir.name)}"
    if process.supervised:
        return Finding("bad", "device", text, f"tputui stop {inert(str(process.run_dir))}")
    return Finding("bad", "device", f"{text} and whose supervisor is gone", "tputui doctor --end-stale")


def _disk(runs_dir: Path) -> Finding:
    here = runs_dir.absolute()
    while not here.exists():
        here = here.parent
    if not os.access(here, os.W_OK | os.X_OK):
        return Finding("bad", "disk", f"{here} is not writable", "export TPUTUI_RUNS=~/runs")
    free = shutil.disk_usage(here).free
    text = f"{fmt.size(free)} free for runs in {runs_dir}"
    if free < FREE_BYTES_WARN:
        return Finding("warn", "disk", text, f"df -h {here}")
    return Finding("ok", "disk", text)


def _terminal() -> Iterator[Finding]:
    if not sys.stdout.isatty():
        yield Finding("ok", "terminal", "stdout is not a terminal: `run` prints lines")
        return
    columns, lines = shutil.get_terminal_size()
    size = f"{columns}x{lines}"
    if columns < COLUMNS_MIN or lines < LINES_MIN:
        text = f"{size} is smaller than {COLUMNS_MIN}x{LINES_MIN}, which the screen needs"
        yield Finding("warn", "terminal", text, "enlarge the window, or add --no-ui")
    else:
        yield Finding("ok", "terminal", size)
    term, depth = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    if term in ("", "dumb"):
        yield Finding(
            "warn", "terminal", f"TERM={term or 'unset'}: the screen cannot be drawn", "export TERM=xterm-256color"
        )
    elif depth in ("truecolor", "24bit"):
        yield Finding("ok", "terminal", f"TERM={term}, 16 million colours")
    else:
        yield Finding("ok", "terminal", f"TERM={term}, {'256' if '256' in term else '16'} colours")
    pictures = detect("auto", os.environ, fd=terminal_fd())
    shown = "half blocks" if pictures.protocol == "blocks" else pictures.protocol
    yield Finding("ok", "pictures", f"{shown}: {pictures.why}")
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        yield Finding(
            "warn", "terminal", f"{encoding} cannot encode the characters of the charts", "export LANG=C.UTF-8"
        )


COMMANDS = {"doctor": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
