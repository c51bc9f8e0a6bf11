"""The thread that validates the configuration while the user edits it.

A check starts after a short pause in typing, and a newer request cancels it. Does not import Textual.

The command line implements it with engine processes. Every call blocks, so the screens call it from threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Protocol

from tputui.check_result import CheckResult, TaskDescription
from tputui.ui.base.reader_thread import PollingThread


class LaunchError(Exception):
    """The task cannot be described, or the configuration cannot be checked or started; the text is for the user."""


class Launch(NamedTuple):
    """A run to start."""

    tables: Mapping[str, Any]
    """The configuration, as `config.from_builtins` takes it."""
    source: str
    """The configuration's file, or the run that it was copied from."""
    name: str | None
    """Name of the run; None for a name made from the time and the task."""
    resume: Path | None
    """Directory of the run whose last checkpoint is resumed."""
    argv: Sequence[str]
    """The equivalent command line."""


class LaunchService(Protocol):
    """What the launcher needs from the engine. Setting `stop` cancels a call."""

    def machine_error(self) -> str | None:
        """Why this machine cannot train; None if it can."""

    def data_sets(self) -> Mapping[str, bool]:
        """The data sets that `tputui data fetch` knows, each with whether it was fetched; empty if not available."""

    def describe(self, task: str, stop: Event) -> TaskDescription:
        """Returns the options of a task. Raises `LaunchError`."""

    def check(self, launch: Launch, stop: Event, *, memory: bool) -> CheckResult:
        """Validates a configuration; with `memory`, also estimates its memory. Raises `LaunchError`."""

    def start(self, launch: Launch) -> Path:
        """Validates and starts a run, detached; returns its directory. Raises `LaunchError`."""


TYPING_PAUSE_S = 0.15
"""Seconds without a change before a check starts."""
MEMORY_PAUSE_S = 0.7
"""Seconds without a change before memory is estimated, which takes seconds of one CPU core."""


class CheckRequest(NamedTuple):
    """A form to check."""

    version: int
    """Version of the form; grows with every change."""
    task: str
    launch: Launch | None
    """None if the form has errors of its own; then only the task is described."""
    is_script: bool = False
    """Whether a command of the user is run, so that there is no task to describe."""


class CheckUpdate(NamedTuple):
    """A part of the answer to a request; fields that are None are not part of this update."""

    version: int
    task: str
    description: TaskDescription | None = None
    result: CheckResult | None = None
    is_final: bool = False
    """Whether the result has a memory estimate, or none is coming."""
    error: str | None = None
    """Why the task cannot be described, or the configuration cannot be checked."""


class Checker(PollingThread):
    """Checks the newest request."""

    def __init__(
        self,
        service: LaunchService,
        on_update: Callable[[CheckUpdate], object],
        *,
        typing_pause_s: float = TYPING_PAUSE_S,
    ) -> None:
        """`on_update` is called in the thread."""
        super().__init__()
        self._service = service
        self._on_update = on_update
        self._typing_pause_s = typing_pause_s
        self._lock = threading.Lock()
        self._request: CheckRequest | None = None
        self._due = 0.0
        """Monotonic time at which the check starts, unless a newer request comes."""
        self._cancelled = threading.Event()
        """Set once the running check is out of date."""
        self._descriptions: dict[str, TaskDescription] = {}

    def submit(self, request: CheckRequest) -> None:
        """Replaces the waiting or running check; callable from any thread."""
        with self._lock:
            self._request = request
            self._due = time.monotonic() + self._typing_pause_s
            self._cancelled.set()
        self.wake()

    def stop(self) -> None:
        """Ends the thread and cancels the running check."""
        super().stop()
        with self._lock:
            self._cancelled.set()

    def poll(self) -> float | None:
        """Runs the newest check once the user has paused typing."""
        with self._lock:
            if self._request is None or self.is_stopped:
                return None
            wait_s = self._due - time.monotonic()
            if wait_s > 0:
                return wait_s
            request, self._request = self._request, None
            self._cancelled = threading.Event()
        try:
            self._check(request)
        except LaunchError as error:
            if not self._cancelled.is_set():
                self._on_update(CheckUpdate(request.version, request.task, error=str(error)))
        return 0.0

    def _check(self, request: CheckRequest) -> None:
        version, task, launch, is_script = request
        cancelled = self._cancelled
        if is_script:
            result = self._service.check(launch, cancelled, memory=False) if launch is not None else None
            self._on_update(CheckUpdate(version, task, result=result, is_final=True))
            return
        if task not in self._descriptions:
            self._descriptions[task] = self._service.describe(task, cancelled)
        self._on_update(CheckUpdate(version, task, self._descriptions[task]))
        if launch is None or cancelled.is_set():
            return
        result = self._service.check(launch, cancelled, memory=False)
        if cancelled.is_set():
            return
        is_final = bool(result.problems)
        self._on_update(CheckUpdate(version, task, result=result, is_final=is_final))
        if is_final or cancelled.wait(MEMORY_PAUSE_S):
            return
        result = self._service.check(launch, cancelled, memory=True)
        if not cancelled.is_set():
            self._on_update(CheckUpdate(version, task, result=result, is_final=True))
