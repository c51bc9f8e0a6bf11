"""`tputui replay` plays back a recorded run; `tputui demo` plays those that the package contains.

Needs no torch and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from contextlib import closing
from pathlib import Path

from tputui.cli import open_run
from tputui.cli.arguments import TIME_FORMS, add_run_argument, local_time, parent_of, parse_time, unix_time
from tputui.cli.console import UsageError, narrate, say, say_json
from tputui.cli.foreign_logs import RUN_OR_LOG, RunOrLog
from tputui.cli.parser import Command, Parser, exit_codes, speed
from tputui.exit_codes import ExitCode
from tputui.session import session
from tputui.session.player import SPEEDS
from tputui.telemetry import run_labels, rundir
from tputui.telemetry.events import StepsRecorded
from tputui.telemetry.merge import events_of, open_tail
from tputui.text import show_page
from tputui.text.lines import follow

DESCRIPTION = """Plays back a recorded run on the live screen, N times as fast, with pause and seek. With --no-ui it
prints one line per event, with --json the events, both without waiting unless --speed is given. With --at TIME --once
it prints a report of the run at that time: state, metrics, loss curve, events and log as text, or one JSON object
with --json. The run is never changed."""
EXIT_CODES = exit_codes(DONE="played, however the run ended", USAGE="no such run, or the time is outside the run")


AT_ONCE = sys.float_info.max
"""A speed at which any run passes within a second, even if the clock of the host jumped."""


def add_arguments(parser: Parser) -> None:
    add_run_argument(parser, help=RUN_OR_LOG)
    parser.add_option("--at", type=parse_time, metavar="TIME", help=f"start paused at this time: {TIME_FORMS}")
    parser.add_option("--once", action="store_true", help="print a report of the run at that time and exit")
    parser.add_option("--speed", type=speed, metavar="N", help="playback speed (default 1 on the screen)")
    parser.add_option("--read-only", action="store_true", help="accepted for symmetry: a recording is always read-only")
    open_run.add_view_options(parser)


def run(args: argparse.Namespace) -> ExitCode:
    screen = open_run.wants_screen(no_ui=args.no_ui or args.quiet, as_json=args.json)
    opened = RunOrLog(args.run, parent_of(args))
    run_dir = opened.run_dir
    if screen and args.at is None and not args.once and not opened.is_read:
        # A long log is shown while it is read; from its end the screen can play it back.
        open_run.watch(run_dir, args, read_only=True)
        return ExitCode.DONE
    opened.wait()
    t = None if args.at is None else unix_time(args.at, run_dir)
    if args.once:
        _print_once(run_dir, t, as_json=args.json)
        return ExitCode.DONE
    writer = open_run.line_writer(args)
    if t is not None and not screen:
        raise UsageError("--at needs a screen, or --once to print a report")
    source = session.Session.replay(run_dir, speed=args.speed or (1.0 if screen else AT_ONCE))
    if t is not None:
        source.player.pause()
        source.player.seek(t)
    if screen:
        from tputui.ui.app import run_monitor

        run_monitor(lambda: source, run_dir, read_only=True, options=open_run.view_options(args))
        return ExitCode.DONE
    try:
        follow(source, sys.stdout, as_json=args.json, writer=writer)
    finally:
        source.close()
    return ExitCode.DONE


def _print_once(run_dir: Path, t: float | None, *, as_json: bool) -> None:
    snapshot = session.load(run_dir) if t is None else session.load_at(run_dir, t)
    if as_json:
        say_json(show_page.to_show(snapshot, whole=True), indent=2)
    else:
        say(show_page.moment_text(snapshot, local_time).rstrip("\n"))


RECORDINGS = Path(__file__).resolve().parent.parent / "recordings"
"""The folder of the runs, of which a script makes each again: `python -m benchmarks.demo`."""
DEMOS = {
    "training": "digits on 8 virtual CPU cores: the loss of each core (1), epochs (4), recompiles (5) and "
    "what they cost (W), pictures (p), and core 5, which was made slow on purpose",
    "failure": "a training that failed by an error planted in its task: the failure panel (0) "
    "and the end of the log (7)",
    "synthetic-pod": "64 hosts with 512 cores: the map of hosts (h), a slow host, a restart, a NaN. A simulation wrote "
    "it; nothing of it was measured",
}
"""What each recording shows, with the keys of the screen."""
PLAYED_S = 90.0
"""The longest time that the steps of a recording take at the default speed ..."""
SPEED_LEAST = 1.0
"""... which is this at least."""
LEAD_S = 2.0
"""Seconds of the viewer that are played before the first step. Importing torch and compiling take far longer."""
NEXT = "`tputui run -- python train.py` watches a script of yours, `tputui demo --help` describes the recordings"

_WIDTH = max(map(len, DEMOS))
DEMO_DESCRIPTION = """Plays recorded runs that tputui contains, to try all screens: in a terminal the list of the runs,
of which Enter plays one from shortly before its first step, or the run NAME. With --no-ui it prints a line per event.
It needs no torch, and nothing is written to your runs."""
DEMO_EXIT_CODES = (
    "recordings:\n"
    + "\n".join(
        textwrap.fill(text, 78, initial_indent=f"  {name:<{_WIDTH}}  ", subsequent_indent=" " * (_WIDTH + 4))
        for name, text in DEMOS.items()
    )
    + "\n\n"
    + exit_codes(DONE="played, or left", USAGE="no such recording")
)


def add_demo_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", choices=tuple(DEMOS), help="the recording to play")
    parser.add_option("--speed", type=speed, metavar="N", help="playback speed (default on the screen: by its length)")
    open_run.add_view_options(parser)


def run_demo(args: argparse.Namespace) -> ExitCode:
    """Plays a recording, or lists all."""
    screen = open_run.wants_screen(no_ui=args.no_ui or args.quiet, as_json=args.json)
    if args.json and args.name is None:
        raise UsageError(f"demo: --json prints the events of one recording: {', '.join(DEMOS)}")
    if not screen and args.name is None:
        say("\n".join(f"{name:<{_WIDTH}}  {run_labels.read(RECORDINGS / name).note}" for name in DEMOS))
        return ExitCode.DONE
    if not screen:
        return run(argparse.Namespace(**vars(args), run=str(RECORDINGS / args.name), at=None, once=False))
    from tputui.ui.app import run_list, run_monitor

    options = open_run.view_options(args)
    if args.name is None:
        run_list(RECORDINGS, read_only=True, replay=lambda run_dir: played(run_dir, args.speed), options=options)
    else:
        run_dir = RECORDINGS / args.name
        run_monitor(lambda: played(run_dir, args.speed), run_dir, read_only=True, options=options)
    narrate(NEXT)
    return ExitCode.DONE


def played(run_dir: Path, chosen_speed: float | None = None) -> session.Session:
    """Plays a recording from shortly before its first step, by default within about `PLAYED_S`."""
    source = session.Session.replay(run_dir)
    first_step_t = _first_step_t(run_dir)
    least = max((source.player.end - first_step_t) / PLAYED_S, SPEED_LEAST)
    chosen = chosen_speed or next((each for each in SPEEDS if each >= least), SPEEDS[-1])
    source.player.set_speed(chosen)
    source.player.seek(first_step_t - LEAD_S * chosen)
    return source


def _first_step_t(run_dir: Path) -> float:
    # Of one journal, since reading all of a pod takes a second.
    with closing(open_tail(dict(rundir.journal_paths(run_dir))["worker-0"])) as tail:
        return next(numbered.event.t for numbered in events_of(tail) if isinstance(numbered.event, StepsRecorded))


COMMANDS = {
    "replay": Command(DESCRIPTION, EXIT_CODES, add_arguments, run),
    "demo": Command(DEMO_DESCRIPTION, DEMO_EXIT_CODES, add_demo_arguments, run_demo),
}
