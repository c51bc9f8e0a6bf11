"""Opens the screens: `run_monitor`, `run_list` and `run_compare`. Each blocks until the user leaves.

A screen takes longer to import than the first frame takes to draw, so it is imported after that frame was drawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tputui.ui.base.preferences import Views, state_path
from tputui.ui.base_app import BaseApp
from tputui.ui.terminal.picture_protocol import detect, terminal_fd
from tputui.ui.terminal.themes import Capabilities, capabilities_of
from tputui.user_config import user_config_path

if TYPE_CHECKING:
    from textual.types import CSSPathType

    from tputui.session.session import Session
    from tputui.ui.base.reader_thread import SessionSource
    from tputui.ui.launch.checker import LaunchService
    from tputui.ui.monitor.screen import MonitorResult
    from tputui.ui.runs.remote_rows import RemoteRuns

HANGUP_CHECK_S = 1.0
"""Seconds between checks whether the terminal was closed, once the system has reported that it may be."""

HANGUP_CHECK_LONG_S = 30.0
"""The same before, for the case that the system does not report it."""

HANGUP_EXIT_CODE = 128 + signal.SIGHUP
"""The exit code that shells report for the signal."""


_ENDING = (signal.SIGTERM, signal.SIGHUP)


class ScreenBroke(Exception):
    """The screen ended by an exception, which is the cause. The text names the run and that it is not affected."""


class ViewOptions(NamedTuple):
    """Options of the command line for the view."""

    ascii_only: bool = False
    reset_view: bool = False
    pictures: str = "auto"
    """One of `PICTURE_MODES`."""


NO_OPTIONS = ViewOptions()


class Leaving:
    """Leaves a screen from a signal handler: at once, or as soon as the screen opens."""

    def __init__(self) -> None:
        self._is_requested = False
        self._wake: Callable[[], object] | None = None

    def request(self) -> None:
        """Leaves the screen."""
        self._is_requested = True
        if self._wake is not None:
            # The event loop may have ended already.
            with contextlib.suppress(RuntimeError):
                self._wake()

    @contextmanager
    def at_signals(self) -> Iterator[None]:
        """Within the block, SIGTERM and SIGHUP leave the screen, which restores the terminal, and then end the process.

        A second one ends it at once. A signal that is ignored, or that has a handler of the caller, is left alone.
        """
        came: list[int] = []

        def handle(number: int, frame: FrameType | None) -> None:
            came.append(number)
            signal.signal(number, signal.SIG_DFL)
            if is_gone(_input_fd()):
                signal.raise_signal(number)  # nothing can be restored, and writing would block
            self.request()

        numbers = [number for number in _ENDING if signal.getsignal(number) == signal.SIG_DFL]
        for number in numbers:
            signal.signal(number, handle)
        try:
            yield
        finally:
            for number in numbers:
                signal.signal(number, signal.SIG_DFL)
            if came:
                signal.raise_signal(came[0])

    def connect(self, leave: Callable[[], object]) -> None:
        """Called in the event loop when the screen opens; `leave` is called in the loop."""
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, leave)
        if self._is_requested:
            self.request()


class ScreenApp(BaseApp["MonitorResult"]):
    """Opens one screen and ends with it; until the screen is drawn, shows a line of text."""

    # The style sheet of the monitor is read at once, by the path that the monitor uses: adding it later would parse all
    # style sheets again.
    CSS_PATH: ClassVar[CSSPathType | None] = ["tones.tcss", "monitor/../monitor.tcss"]
    TITLE = "tputui"

    def __init__(
        self,
        open_screen: Callable[[], Screen[MonitorResult]],
        *,
        looks: Capabilities | None = None,
        views: Views | None = None,
        export_to: Path | None = None,
        opening: str = "",
        alone: bool = False,
        leaving: Leaving | None = None,
    ) -> None:
        """Without `views` no view settings are stored; without `looks` the terminal supports everything. `opening` is
        the first line until the screen is drawn. `alone` is whether the process does nothing else."""
        super().__init__(looks or Capabilities(), views or Views(), export_to=export_to)
        self._open_screen = open_screen
        self._opening = opening
        self._alone = alone
        self._leaving = leaving

    def compose(self) -> ComposeResult:
        """The first frame."""
        yield Static(self._opening, id="opening", markup=False)

    def on_mount(self) -> None:
        """Open the screen after the first frame is drawn."""
        if self._leaving is not None:
            self._leaving.connect(self.exit)
        self.call_after_refresh(self._open)

    def _fatal_error(self) -> None:
        # Textual prints the local variables of every call, which does not help a user.
        self._close_messages_no_wait()

    @property
    def cause(self) -> Exception | None:
        """The exception that ended the app, if any."""
        return self._exception

    def _open(self) -> None:
        self.push_screen(self._open_screen(), self.exit)
        self.call_after_refresh(self.start_autosave)
        if self._alone:
            self.call_after_refresh(relax_garbage_collector)


def run_monitor(
    open_session: Callable[[], SessionSource],
    run_dir: Path,
    *,
    read_only: bool = False,
    options: ViewOptions = NO_OPTIONS,
    leaving: Leaving | None = None,
) -> MonitorResult:
    """Show a run, live or replayed, until the user or `leaving` leaves. Training continues. The session is opened after
    the first frame was drawn, and closed at the end."""

    def opened() -> Screen[MonitorResult]:
        from tputui.ui.monitor.screen import MonitorScreen

        return MonitorScreen(open_session(), run_dir, read_only=read_only)

    unharmed = f"the run is in {run_dir} and is not affected"
    result = _run(opened, options, " reading the run ...", unharmed, leaving)
    if result is not None:
        return result
    from tputui.ui.monitor.screen import MonitorResult

    return MonitorResult("quit", None)


def run_list(
    runs_dir: Path,
    *,
    remote: RemoteRuns | None = None,
    service: LaunchService | None = None,
    read_only: bool = False,
    replay: Callable[[Path], Session] | None = None,
    options: ViewOptions = NO_OPTIONS,
) -> None:
    """Shows the runs of a directory, or of another machine, until the user leaves; Enter opens one. `service` starts
    runs. `replay` opens a recording at its start.

    Folders that the user's configuration file names are searched for logs of other programs, but not for recordings.
    """

    def opened() -> Screen[MonitorResult]:
        from tputui.ui.runs.screen import RunsScreen

        config = user_config_path(os.environ) if replay is None else None
        return RunsScreen(
            runs_dir, remote=remote, service=service, read_only=read_only, replay=replay, user_config=config
        )

    _run(opened, options, " reading the runs ...", f"the runs are in {runs_dir} and are not affected")


def run_compare(
    run_dirs: Sequence[Path], *, base: int = 0, read_only: bool = False, options: ViewOptions = NO_OPTIONS
) -> None:
    """Compare 2-8 runs until the user leaves; `base` is the index of the run to compare with."""

    def opened() -> Screen[MonitorResult]:
        from tputui.ui.compare.screen import CompareScreen

        return CompareScreen(run_dirs, base=base, read_only=read_only)

    where = ", ".join(map(str, run_dirs))
    _run(opened, options, " reading the runs ...", f"the runs {where} are not affected")


def _run(
    open_screen: Callable[[], Screen[MonitorResult]],
    options: ViewOptions,
    opening: str,
    unharmed: str,
    leaving: Leaving | None = None,
) -> MonitorResult | None:
    """Run the app until the user leaves. Raises `ScreenBroke`, with `unharmed` in its text."""
    views = Views.opened(state_path(os.environ))
    if options.reset_view:
        views.reset()
    looks = capabilities_of(os.environ, ascii_only=options.ascii_only)
    if not looks.ascii_only:
        looks = looks._replace(pictures=detect(options.pictures, os.environ, fd=terminal_fd()))
    leaving = leaving or Leaving()
    with leaving.at_signals(), exit_on_hangup(), own_signal_handlers():
        try:
            app = ScreenApp(open_screen, looks=looks, views=views, opening=opening, alone=True, leaving=leaving)
            result = app.run()
        finally:
            views.write()
    if app.cause is not None:
        raise ScreenBroke(f"the screen failed; {unharmed}") from app.cause
    return result


@contextmanager
def own_signal_handlers() -> Iterator[None]:
    """Removes the signal handlers that Textual leaves behind, after the block.

    That of SIGCONT would open the screen again in a command that goes on without it and is suspended and resumed.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def relax_garbage_collector() -> None:
    """Exclude all current objects from garbage collection, and collect less often.

    The modules stay loaded as long as the process: to traverse them took 45 ms at a time, in which no key was handled.
    Frames create few cycles, so reference counting frees nearly all of them.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])


_COLLECT_AFTER = 50_000
"""Number of allocated objects after which cycles are collected: a few MB at most, if all of them were garbage. A
collection takes 5 ms and more while a pod is shown, since it traverses the lists of all cores."""


@contextmanager
def exit_on_hangup() -> Iterator[None]:
    """Within the block, the process ends about a second after its terminal, also if SIGHUP is ignored (`nohup`).

    Writing to a closed terminal blocks the event loop forever, so a separate thread waits for the hangup and ends the
    process. A viewer has no state to lose.
    """
    fd = _input_fd()
    left, leave = os.pipe()
    thread = threading.Thread(target=_wait_for_hangup, args=(fd, left), name="terminal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.write(leave, b"\0")
        thread.join()
        os.close(left)
        os.close(leave)


def _input_fd() -> int:
    return sys.__stdin__.fileno() if sys.__stdin__ is not None else 0


def is_gone(fd: int) -> bool:
    """Whether the terminal behind a file descriptor was closed. False for a descriptor that is not a terminal."""
    try:
        termios.tcgetattr(fd)
    except termios.error as error:
        return bool(error.args[0] != errno.ENOTTY)
    return False


def _wait_for_hangup(fd: int, left: int) -> None:
    """Ends the process once the terminal was closed; returns when the pipe `left` has content."""
    poll, check_s = select.poll(), HANGUP_CHECK_LONG_S
    poll.register(left, select.POLLIN)
    poll.register(fd, 0)
    while left not in (ready := dict(poll.poll(1000 * check_s))):
        if fd in ready:
            # Closed, or not a terminal. SIGHUP ends the process first, unless it is ignored.
            poll.unregister(fd)
            check_s = HANGUP_CHECK_S
        elif is_gone(fd):
            os._exit(HANGUP_EXIT_CODE)
