"""The thread that has a configuration checked while it is edited. Only the newest one counts.

A check that was asked for waits a moment for the next keystroke; whatever runs for one that is out of date is given
up. Must not know Textual.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tputui.check_result import CheckResult, TaskDescription
from tputui.ui.base.polling_thread import PollingThread
from tputui.ui.launch.service import Launch, LaunchError, LaunchService

CALM_S = 0.15
"""Seconds without a change before a check begins."""
MEMORY_CALM_S = 0.7
"""The same before memory is predicted, which takes seconds and a core."""


class Asked(NamedTuple):
    """What is to be checked."""

    number: int
    """Greater for a newer one."""
    task: str
    launch: Launch | None
    """None where it cannot be checked yet; the task is described all the same."""


class Told(NamedTuple):
    """What became of it. Only what is there is news."""

    number: int
    task: str
    description: TaskDescription | None = None
    verdict: CheckResult | None = None
    is_whole: bool = False
    """Whether memory was predicted, or cannot be."""
    why_not: str = ""
    """Why the task cannot be described, or the configuration not checked."""


class Checker(PollingThread):
    """Checks until stopped."""

    def __init__(self, service: LaunchService, tell: Callable[[Told], object], *, calm_s: float = CALM_S) -> None:
        """`tell` is called from the thread."""
        super().__init__()
        self._service = service
        self._tell = tell
        self._calm_s = calm_s
        self._lock = threading.Lock()
        self._asked: Asked | None = None
        self._due = 0.0
        """Monotonic time at which the check begins, unless another one is asked for."""
        self._out_of_date = threading.Event()
        """Set when the check that runs is no longer wanted."""
        self._described: dict[str, TaskDescription] = {}

    def ask(self, asked: Asked) -> None:
        """Replaces the check that waits or runs."""
        with self._lock:
            self._asked = asked
            self._due = time.monotonic() + self._calm_s
            self._out_of_date.set()
        self.wake()

    def stop(self) -> None:
        """Ends the thread soon, giving up what runs."""
        super().stop()
        with self._lock:
            self._out_of_date.set()

    def poll(self) -> float | None:
        """Checks what was asked for, once nothing else was for a while."""
        with self._lock:
            if self._asked is None or self.is_stopped:
                return None
            wait_s = self._due - time.monotonic()
            if wait_s > 0:
                return wait_s
            asked, self._asked = self._asked, None
            self._out_of_date = threading.Event()
        try:
            self._check(asked)
        except LaunchError as error:
            if not self._out_of_date.is_set():
                self._tell(Told(asked.number, asked.task, why_not=str(error)))
        return 0.0

    def _check(self, asked: Asked) -> None:
        stop = self._out_of_date
        if asked.task not in self._described:
            self._described[asked.task] = self._service.describe(asked.task, stop)
        self._tell(Told(asked.number, asked.task, self._described[asked.task]))
        if asked.launch is None or stop.is_set():
            return
        verdict = self._service.check(asked.launch, stop, memory=False)
        if stop.is_set():
            return
        whole = bool(verdict.problems)
        self._tell(Told(asked.number, asked.task, verdict=verdict, is_whole=whole))
        if whole or stop.wait(MEMORY_CALM_S):
            return
        verdict = self._service.check(asked.launch, stop, memory=True)
        if not stop.is_set():
            self._tell(Told(asked.number, asked.task, verdict=verdict, is_whole=True))
