"""Shows a run for `run`, `attach` and `replay`: on the live screen, as lines or as JSON.

Leaving a view never ends a run. Does not read journals itself: `Session` does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tputui import formatting as fmt
from tputui.cli import remote_runs
from tputui.cli.console import DISK_TROUBLE, UsageError, drop_stdout, handling, has_screen, narrate
from tputui.cli.parser import Parser
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.session.run_directory import RunDirectory
from tputui.state.run_condition import ENDED, RunCondition
from tputui.telemetry import requests, rundir
from tputui.telemetry.events import AlertRaised, RequestKind
from tputui.ui.terminal.bell import is_fresh, notification
from tputui.ui.terminal.picture_protocol import PICTURE_MODES, PICTURES_HELP

if TYPE_CHECKING:
    from tputui.session.session import Session
    from tputui.state.snapshot import Snapshot
    from tputui.text.lines import LineWriter
    from tputui.ui.app import ViewOptions

_CODES: dict[RunCondition, ExitCode] = {
    "done": ExitCode.DONE,
    "stopped": ExitCode.STOPPED,
    "failed": ExitCode.FAILED,
    "lost": ExitCode.LOST,
}


def add_view_options(parser: Parser) -> None:
    parser.add_option("--no-ui", action="store_true", help="print lines (default when stdout is not a terminal)")
    parser.add_option("--json", action="store_true", help="print the events as JSON lines; implies --no-ui")
    parser.add_option(
        "--quiet",
        action="store_true",
        help="print one line an epoch (without epochs one a minute), warnings, failures and the end; implies --no-ui",
    )
    parser.add_option("--timestamps", action="store_true", help="with --no-ui: start each line with its UTC time")
    add_screen_options(parser)


def add_screen_options(parser: Parser) -> None:
    parser.add_option("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_option("--reset-view", action="store_true", help="reset saved view settings")
    parser.add_option("--pictures", choices=PICTURE_MODES, default="auto", help=PICTURES_HELP)


def view_options(args: argparse.Namespace) -> ViewOptions:
    """The options of the live screen. Imports Textual."""
    from tputui.ui.app import ViewOptions

    return ViewOptions(ascii_only=args.ascii, reset_view=args.reset_view, pictures=args.pictures)


def line_writer(args: argparse.Namespace) -> LineWriter:
    """Makes the lines that the options of `add_view_options` choose. Raises `CommandError`."""
    # Imported here, as in `watch`, so that the screen opens faster.
    from tputui.text.lines import LineWriter, QuietWriter

    if not args.quiet:
        return LineWriter(timestamps=args.timestamps)
    if args.json:
        raise UsageError("--quiet chooses lines, and --json prints every event; give one of them")
    return QuietWriter(timestamps=args.timestamps)


def wants_screen(*, no_ui: bool, as_json: bool) -> bool:
    """Whether to draw the live screen instead of printing."""
    return not no_ui and not as_json and has_screen()


def watch(
    run_dir: Path,
    args: argparse.Namespace,
    *,
    read_only: bool = False,
    earlier: int | None = None,
    interrupts: Interrupts | None = None,
) -> Snapshot:
    """Shows a run until it ends or the viewer leaves, then prints on stderr what to type next.

    Returns the state of the run at that time, even if the screen showed an earlier time. `args` has the options of
    `add_view_options`. `earlier` is how many earlier lines are printed first (None: all). If a signal requested a stop
    (`interrupts`) and also ended the reader of the output or the screen, the run is followed to its end without
    printing.
    """
    if wants_screen(no_ui=args.no_ui or args.quiet, as_json=args.json):
        return _watch_on_screen(run_dir, args, read_only=read_only, interrupts=interrupts)
    writer = line_writer(args)
    from tputui.session.session import Session
    from tputui.text.lines import follow

    source = Session.live(run_dir)

    def on_alert(alert: AlertRaised) -> None:
        if alert.bell and not args.json and is_fresh(alert.t, time.time()) and sys.stdout.isatty():
            sys.stdout.write(notification(alert.text, os.environ))
            sys.stdout.flush()

    try:
        snapshot = follow(source, sys.stdout, as_json=args.json, writer=writer, earlier=earlier, on_alert=on_alert)
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        narrate(f"the output cannot be written: {error.strerror}; waiting for the end of the run without printing")
        return wait_for_end(source.run_dir)
    finally:
        run_dir = source.run_dir  # It may have been renamed.
        source.close()
    if snapshot.condition in ENDED:
        return snapshot
    if interrupts is not None and interrupts.requested:
        return wait_for_end(run_dir)
    narrate(_still_running(snapshot, run_dir))
    return snapshot


def _watch_on_screen(
    run_dir: Path, args: argparse.Namespace, *, read_only: bool, interrupts: Interrupts | None
) -> Snapshot:
    from tputui.ui.app import Leaving, run_monitor

    leaving = Leaving()
    sources: list[Session] = []

    def opened() -> Session:
        from tputui.session.session import Session  # After the first frame, which it would delay.

        sources.append(source := Session.live(run_dir))
        return source

    with contextlib.nullcontext() if interrupts is None else interrupts.leaving(leaving.request):
        left = run_monitor(opened, run_dir, read_only=read_only, options=view_options(args), leaving=leaving)
    from tputui.session.session import load

    run_dir = sources[0].run_dir if sources else run_dir  # It may have been renamed.
    snapshot = left.snapshot or load(run_dir)
    if interrupts is not None and interrupts.terminated and snapshot.condition not in ENDED:
        narrate("SIGTERM: requested save and stop; waiting for the end of the run")
        return wait_for_end(run_dir)
    narrate("\n".join(parting(snapshot, run_dir)))
    return snapshot


def wait_for_end(run_dir: Path) -> Snapshot:
    """Follows a run to its end for a command whose output was closed, then prints on stderr how it ended.

    From here on, nothing is written to stdout.
    """
    from tputui.session.session import Session
    from tputui.text.lines import follow

    drop_stdout()
    with contextlib.closing(Session.live(run_dir)) as source, open(os.devnull, "w") as nowhere:
        snapshot = follow(source, nowhere, as_json=True, narrate=nowhere)
    narrate(inert(fmt.with_reason(f"run {snapshot.run} {snapshot.condition}", snapshot.condition_reason)))
    return snapshot


def exit_code_of(snapshot: Snapshot) -> ExitCode:
    """The exit code of `run` and `attach`: that of the run, or `DONE` if the user left the screen of a running run."""
    if snapshot.condition not in ENDED:
        return ExitCode.DONE
    try:
        return ExitCode(snapshot.exit_code) if snapshot.exit_code is not None else _CODES[snapshot.condition]
    except ValueError:
        return _CODES[snapshot.condition]


def parting(snapshot: Snapshot, run_dir: Path) -> list[str]:
    """At most three lines for the shell after the screen was left: state and reason, best metric, what to type next."""
    plan, best = snapshot.plan, _best(snapshot)
    if snapshot.condition not in ENDED:
        done = f"step {fmt.count(snapshot.steps)}" if snapshot.steps else "no step yet"
        done = (
            f"epoch {fmt.epoch_of(snapshot.epoch, plan.num_epochs)}, step {fmt.count(snapshot.steps)}" if plan else done
        )
        return [f"{inert(snapshot.run)} is {snapshot.condition}: {done}", *best, _still_running(snapshot, run_dir)]
    cause, condition = inert(snapshot.condition_reason), snapshot.condition
    ending = cause if cause.startswith(condition) else f"{condition}: {cause}" if cause else condition
    return [
        f"{inert(snapshot.run)} {ending}",
        *best,
        f"`{_command('show', run_dir)}` prints its full status{_how_to_resume(snapshot, run_dir)}",
    ]


def _best(snapshot: Snapshot) -> list[str]:
    from tputui.state.snapshot import best_epoch, monitored

    epoch, name = best_epoch(snapshot.epochs), monitored(snapshot.config, snapshot.epochs)
    value = epoch.figure(name) if epoch is not None else None
    if epoch is None or value is None:
        return []
    return [f"best validation {inert(name)} {fmt.number(value)} in epoch {epoch.epoch}"]


def _still_running(snapshot: Snapshot, run_dir: Path) -> str:
    return f"{inert(snapshot.run)} is still running; `{_command('attach', run_dir)}` shows it again"


def _how_to_resume(snapshot: Snapshot, run_dir: Path) -> str:
    """The command that resumes from the last checkpoint; empty if there is none or training is done."""
    if snapshot.condition == "done" or not snapshot.checkpoints or remote_runs.words_of(run_dir) is not None:
        return ""  # The checkpoints of a run of another machine are there.
    manifest = rundir.manifest_if_readable(run_dir)
    # Imported here so that viewers start faster.
    from tputui import config

    if manifest is None or config.is_script(manifest.config):
        return ""
    source = shlex.join(inert(word) for word in (manifest.config_path, *_overrides(manifest.argv)))
    return f"; `tputui run {source} --resume {_shell_path(run_dir)}` resumes from its last checkpoint"


def _overrides(argv: Sequence[str]) -> list[str]:
    """The options of a command line that set keys of the configuration, without which the run would not continue."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return [word for option, value in pairs if option == "--set" for word in (option, value)] + [
        word for word in argv if word.startswith("--set=")
    ]


class Interrupts:
    """Turns Ctrl-C, SIGTERM and SIGHUP into requests to the run: first save and stop, then stop at once."""

    _KINDS: tuple[RequestKind, ...] = ("stop", "stop_now")

    def __init__(self, run_dir: Path) -> None:
        self._directory = RunDirectory(run_dir)
        self._num_requested = 0
        self.terminated = False
        """Whether SIGTERM came."""
        self._leave_screen: Callable[[], None] | None = None
        """Leaves the live screen; None while there is none."""

    @property
    def run_dir(self) -> Path:
        """The directory of the run, also after it was renamed or moved."""
        return self._directory.path

    @property
    def requested(self) -> bool:
        return self._num_requested > 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals. The interrupted wait continues."""
        if number == signal.SIGHUP and self.requested:
            return  # A terminal may send it several times while it closes.
        by = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self.terminated = self.terminated or number == signal.SIGTERM
        if self._leave_screen is not None:
            self._leave_screen()
        if self._num_requested == len(self._KINDS):
            self._narrate("a stop at once was already requested; the supervisor kills training if it does not obey")
            return
        kind = self._KINDS[self._num_requested]
        self._num_requested += 1
        try:
            requests.submit(self._directory.files, kind, by=by, now=time.time())
        except OSError as error:
            self._narrate(f"the request to stop could not be written: {error}")
            return
        if kind == "stop" and number != signal.SIGINT:
            self._narrate(f"{by}: requested save and stop")
        elif kind == "stop":
            self._narrate("requested save and stop; press Ctrl-C again to stop at once without saving")
        else:
            self._narrate("requested stop at once")

    def _narrate(self, text: str) -> None:
        if self._leave_screen is None:
            narrate(text)

    @contextlib.contextmanager
    def leaving(self, leave_screen: Callable[[], None]) -> Iterator[None]:
        """A context with a live screen, which a signal leaves."""
        self._leave_screen = leave_screen
        if self.terminated:
            leave_screen()
        try:
            yield
        finally:
            self._leave_screen = None

    def caught(self, *numbers: signal.Signals) -> AbstractContextManager[None]:
        """A context in which these signals request a stop of the run instead of ending this process."""
        return handling(self.handle, *numbers)


def _command(name: str, run_dir: Path) -> str:
    """A command line for this run that works in the current directory."""
    return f"tputui {name} {_shell_path(run_dir)}"


def _shell_path(run_dir: Path) -> str:
    """The run for a shell: its address, or its directory, relative if that is below the current directory."""
    if (address := remote_runs.words_of(run_dir)) is not None:
        return address
    shown = os.path.relpath(run_dir)
    return shlex.quote(str(run_dir) if shown.startswith("..") else shown)
