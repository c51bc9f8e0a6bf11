"""A run in a notebook: one output that is updated in place, at most once a second.

`tputui.start()` shows the run that it reports to by itself; `watch` shows any other. Outside of a notebook both show
nothing. The run is read from its directory like by any other viewer, by a thread of the notebook's process.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tputui.telemetry import rundir

INTERVAL_S = 1.0
"""Shortest time between two updates."""
COST_MAX = 0.01
"""Largest share of a CPU that updates take: expensive ones come less often."""
_log = logging.getLogger("tputui")
_shown: dict[Path, Watcher] = {}
"""The outputs that are being updated, by the directory of their run."""


class Watcher:
    """The output of a run. Updated until the run has ended, or `stop` is called."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._shell = _shell()
        self._handle: Any = None
        """The output; None outside of a notebook."""
        self._lock = threading.Lock()
        """Held while the run is read and drawn."""
        self._session: Any = None
        self._html = ""
        """The content of the output."""
        self._done = threading.Event()

    def show(self) -> None:
        """Adds the output to the current cell, and begins to update it. Does nothing outside of a notebook."""
        if self._shell is None:
            self._done.set()
            return
        from tputui.session.session import Session

        self._session = Session.live(self._run_dir)
        self._update()
        if self._done.is_set():
            self._session.close()
            return
        self._shell.events.register("post_run_cell", self._after_cell)
        threading.Thread(target=self._update_until_done, name="tputui-notebook", daemon=True).start()

    def stop(self) -> None:
        """Stops updating; the run goes on, and the output stays."""
        self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run has ended, or `stop` was called; returns False after `timeout_s` seconds."""
        return self._done.wait(timeout_s)

    def _update_until_done(self) -> None:
        pause_s = INTERVAL_S
        while not self._done.wait(pause_s):
            before = time.thread_time()
            self._update()
            pause_s = max(INTERVAL_S, (time.thread_time() - before) / COST_MAX)
        with self._lock:
            self._session.close()

    def _after_cell(self, result: object = None) -> None:
        """After a cell: shows the end of a run that the cell has ended, since the notebook may close now."""
        if not self._done.is_set():
            self._update(only_end=True)
        if self._done.is_set():
            self._shell.events.unregister("post_run_cell", self._after_cell)

    def _update(self, *, only_end: bool = False) -> None:
        """Reads the run and draws it, if it has changed; with `only_end` only if it has ended. Never raises."""
        try:
            with self._lock:
                if not self._done.is_set():
                    self._draw(only_end=only_end)
        except Exception as error:  # noqa: BLE001, RUF100 - a viewer must not end the training that it shows
            self._done.set()
            _log.warning("the run is not shown any more: %s: %s", type(error).__name__, error)

    def _draw(self, *, only_end: bool) -> None:
        from tputui.report.card import card, summary
        from tputui.state.run_condition import ENDED

        self._session.read_all()
        snapshot = self._session.snapshot()
        ended = snapshot.condition in ENDED
        if only_end and not ended:
            return
        html = card(snapshot)
        if html != self._html:
            self._html = html
            self._publish({"text/html": html, "text/plain": summary(snapshot)})
        if ended:
            self._done.set()
            _shown.pop(self._run_dir, None)

    def _publish(self, content: dict[str, str]) -> None:
        if self._handle is None:
            display: Any = importlib.import_module("IPython.display").display
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def _ipython_display_(self) -> None:
        """Shows nothing more when a cell ends with a `Watcher`."""


def watch(run: str | Path) -> Watcher:
    """Shows a run below the current cell until it has ended, and returns at once.

    `run`: a name in `$TPUTUI_RUNS`, else in `./runs`; or a directory. Raises `ValueError` if there is no such run.
    """
    parent = rundir.runs_dir(None, os.environ)
    try:
        run_dir = rundir.find(str(run), parent)
    except rundir.RunNotFound:
        raise ValueError(f"no run {str(run)!r}: neither a run directory nor a name in {parent}") from None
    return _shown_watcher(run_dir)


def show_started(run_dir: Path) -> None:
    """Shows a run that this process reports, if it is a notebook. Never raises."""
    try:
        if _shell() is not None and run_dir not in _shown:
            _shown_watcher(run_dir)
    except Exception as error:  # noqa: BLE001, RUF100 - a viewer must not end the training that it shows
        _log.warning("the run is not shown in the notebook: %s: %s", type(error).__name__, error)


def _shown_watcher(run_dir: Path) -> Watcher:
    """A new output; an earlier one of the same run is not updated any more."""
    if (before := _shown.pop(run_dir, None)) is not None:
        before.stop()
    watcher = _shown[run_dir] = Watcher(run_dir)
    watcher.show()
    if watcher.wait(0):
        _shown.pop(run_dir, None)
    return watcher


def _shell() -> Any:
    """The IPython shell of a notebook: Jupyter, Colab or Kaggle; None elsewhere, also in IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None
