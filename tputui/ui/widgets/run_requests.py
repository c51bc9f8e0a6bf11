"""Requests to a run from a screen: save a checkpoint, stop, dump stacks. Each is a file, written in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from textual.screen import Screen

from tputui.telemetry import requests
from tputui.telemetry.events import RequestKind
from tputui.telemetry.journal import SUFFIX
from tputui.ui.base.status_text import REQUEST_NAMES
from tputui.ui.widgets.dialogs import ConfirmStop, Notices

REQUEST_ACTIONS: dict[str, RequestKind] = {"checkpoint": "checkpoint", "stop": "stop", "trace": "trace"}
"""The request that each action of the key map makes."""


class RunRequests:
    """Writes requests and reports each one by a notice of the screen."""

    def __init__(
        self,
        screen: Screen[Any],
        notices: Notices,
        refusal: Callable[[Path, RequestKind], str | None],
        *,
        written: str = "requested",
        written_s: float | None = None,
        names_run: bool = False,
        on_written: Callable[[], object] = lambda: None,
    ) -> None:
        """`refusal` returns why a request cannot be made of a run now, or None. `written` is the notice after a request
        was written, shown for `written_s` seconds; with `names_run` every notice begins with the run's name.
        """
        self._screen = screen
        self._notices = notices
        self._refusal = refusal
        self._written = written
        self._written_s = written_s
        self._names_run = names_run
        self._on_written = on_written

    def submit(self, run_dir: Path, kind: RequestKind) -> None:
        """Write a request, or show why it cannot be made."""
        if self._is_possible(run_dir, kind):
            self._screen.run_worker(partial(self._write, run_dir, kind), thread=True, group="requests")

    def confirm_stop(self, run_dir: Path) -> None:
        """Ask how to stop a run, then submit that request."""

        def stop_as(kind: RequestKind | None) -> None:
            if kind is not None:
                self.submit(run_dir, kind)

        if self._is_possible(run_dir, "stop"):
            of_command = (run_dir / f"logs-0{SUFFIX}").exists()
            self._screen.app.push_screen(ConfirmStop(run_dir.name, of_command=of_command), stop_as)

    def _is_possible(self, run_dir: Path, kind: RequestKind) -> bool:
        reason = self._refusal(run_dir, kind)
        if reason is not None:
            self._notify(run_dir, kind, reason)
        return reason is None

    def _write(self, run_dir: Path, kind: RequestKind) -> None:
        result, shown_s = self._written, self._written_s
        try:
            requests.submit(run_dir, kind, by="screen", now=time.time())
        except OSError as error:
            result, shown_s = f"the request cannot be written: {error}", None
        self._screen.call_later(self._finish, run_dir, kind, result, shown_s)

    def _finish(self, run_dir: Path, kind: RequestKind, result: str, shown_s: float | None) -> None:
        self._notify(run_dir, kind, result, shown_s)
        self._on_written()

    def _notify(self, run_dir: Path, kind: RequestKind, result: str, shown_s: float | None = None) -> None:
        run = f"{run_dir.name}: " if self._names_run else ""
        self._notices.show(f"{run}{REQUEST_NAMES[kind]}: {result}", shown_s)
