"""The application: one of its doors opens a run, one the list of runs, one runs side by side. Blocks until it is left.

The terminal is drawn to first: what a screen is made of takes longer to import than the first frame to draw, so each
door imports its own once that frame stands.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from tputui.ui.base.preferences import Views, state_path
from tputui.ui.base_app import BaseApp
from tputui.ui.terminal.capabilities import Capabilities, looks_of
from tputui.ui.terminal.hangup import ending_with_it

if TYPE_CHECKING:
    from textual.types import CSSPathType

    from tputui.ui.base.reader_thread import Source
    from tputui.ui.launch.service import LaunchService
    from tputui.ui.monitor.screen import MonitorResult


class ScreenBroke(Exception):
    """The screen ended by an exception, which is the cause; the text says what becomes of the run, and where it is."""


class ViewOptions(NamedTuple):
    """What a command line says of the view."""

    ascii_only: bool = False
    reset_view: bool = False


NO_OPTIONS = ViewOptions()


class ScreenApp(BaseApp["MonitorResult"]):
    """Opens one screen and ends with it; until it stands, says that it is being opened."""

    # What the monitor asks for is read at once, under the name that it asks for: a style sheet that comes later has
    # all of them parsed again.
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
    ) -> None:
        """Without `views` nothing is kept; without `looks` the terminal shows everything. `opening` stands in the
        first line until the screen does. `alone` says that the process has nothing else to do than this."""
        super().__init__(looks or Capabilities(), views or Views(), export_to=export_to)
        self._open_screen = open_screen
        self._opening = opening
        self._alone = alone

    def compose(self) -> ComposeResult:
        """The first frame."""
        yield Static(self._opening, id="opening", markup=False)

    def on_mount(self) -> None:
        """Opens the screen once the first frame is drawn."""
        self.call_after_refresh(self._open)

    def _fatal_error(self) -> None:
        # Textual's own prints the local variables of every call, and a terminal full of them tells a user nothing.
        self._close_messages_no_wait()

    @property
    def cause(self) -> Exception | None:
        """The exception that ended the app, where one did."""
        return self._exception

    def _open(self) -> None:
        self.push_screen(self._open_screen(), self.exit)
        self.call_after_refresh(self.keep_views)
        if self._alone:
            self.call_after_refresh(spare_collector)


def run_monitor(
    session: Source, run_dir: Path, *, read_only: bool = False, options: ViewOptions = NO_OPTIONS
) -> MonitorResult:
    """Shows a run, live or replayed, until the user leaves; closes the session. Training goes on."""

    def opened() -> Screen[MonitorResult]:
        from tputui.ui.monitor.screen import MonitorScreen

        return MonitorScreen(session, run_dir, read_only=read_only)

    result = _run(opened, options, " reading the run ...", f"the run is in {run_dir} and is not affected")
    if result is not None:
        return result
    from tputui.ui.monitor.screen import MonitorResult

    return MonitorResult("quit", None)


def run_list(
    runs_dir: Path, *, service: LaunchService | None = None, read_only: bool = False, options: ViewOptions = NO_OPTIONS
) -> None:
    """Shows the runs of a directory until the user leaves; Enter opens one. `service` starts runs."""

    def opened() -> Screen[MonitorResult]:
        from tputui.ui.runs.screen import RunsScreen

        return RunsScreen(runs_dir, service=service, read_only=read_only)

    _run(opened, options, " reading the runs ...", f"the runs are in {runs_dir} and are not affected")


def run_compare(
    run_dirs: Sequence[Path], *, base: int = 0, read_only: bool = False, options: ViewOptions = NO_OPTIONS
) -> None:
    """Shows 2 to 8 runs side by side until the user leaves; `base` is the index of the run that others stand beside."""

    def opened() -> Screen[MonitorResult]:
        from tputui.ui.compare.screen import CompareScreen

        return CompareScreen(run_dirs, base=base, read_only=read_only)

    where = ", ".join(map(str, run_dirs))
    _run(opened, options, " reading the runs ...", f"the runs {where} are not affected")


def _run(
    open_screen: Callable[[], Screen[MonitorResult]], options: ViewOptions, opening: str, unharmed: str
) -> MonitorResult | None:
    """Runs the app until it is left. Raises `ScreenBroke`; `unharmed` says then what goes on."""
    views = Views.opened(state_path(os.environ))
    if options.reset_view:
        views.reset()
    looks = looks_of(os.environ, ascii_only=options.ascii_only)
    with ending_with_it():
        try:
            app = ScreenApp(open_screen, looks=looks, views=views, opening=opening, alone=True)
            result = app.run()
        finally:
            views.write()
    if app.cause is not None:
        raise ScreenBroke(f"the screen broke; {unharmed}") from app.cause
    return result


def spare_collector() -> None:
    """Has the garbage collector pass over what stands by now, and look for cycles less often.

    What is loaded stays for as long as the process: to look through it took 45 ms at a time, in which no key was
    answered. Frames leave few cycles behind, and what they are made of goes without the collector.
    """
    gc.freeze()
    gc.set_threshold(_CYCLES_LOOKED_FOR, *gc.get_threshold()[1:])


_CYCLES_LOOKED_FOR = 10_000
"""Objects made and not yet freed after which cycles are looked for."""
