"""Builds the event for an error that ends a rank: kind, message, traceback and user frames.

Must not raise, whatever the error is.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from engine.errors import NotFinite, NotImported, OutOfMemory, Refused, TooManyBad, Unable, printable, text_of
from engine.process import stacks
from engine.process.requests import Progress
from tputui.config import ConfigError
from tputui.telemetry import events as ev

COMPLETE_MESSAGES = (Refused, ConfigError, Unable, TooManyBad, NotFinite)
"""Errors whose message is complete: a traceback would add nothing about the user's data or configuration."""
TRACEBACK_CHARS_MAX = 131_072
_Made = TypeVar("_Made")


def failure_event(error: BaseException, progress: Progress, who: str = "") -> ev.FailureRaised:
    """The event for an error that ended a rank; `who` is put before the message."""
    return ev.FailureRaised(
        t=time.time(),
        error=type(error).__name__,
        message=f"{who}{text_of(error)}",
        traceback=_tried(lambda: printable(traceback_of(error), TRACEBACK_CHARS_MAX), ""),
        phase=progress.doing.phase,
        step=progress.step,
        kind=_tried(lambda: kind_of(error), "exception"),
        frames=_tried(lambda: stacks.error_frames(error), []),
    )


def _tried(make: Callable[[], _Made], otherwise: _Made) -> _Made:
    """The result of `make`, or `otherwise` if it raises: every method of the error's class may raise."""
    try:
        return make()
    except BaseException:  # noqa: BLE001, RUF100 - the error itself is being reported
        return otherwise


def traceback_of(error: BaseException) -> str:
    """The traceback, if it adds information to the message."""
    refusal = _refused_import(error)
    if refusal is not None and refusal.__cause__ is not None:
        # The user's own module failed; its traceback is what they need.
        return "".join(traceback.format_exception(refusal.__cause__))
    return "" if isinstance(error, COMPLETE_MESSAGES) else "".join(traceback.format_exception(error))


def kind_of(error: BaseException) -> ev.FailureKind:
    """The kind of failure."""
    if isinstance(error, ImportError) or _refused_import(error) is not None:
        return "import"
    if isinstance(error, Refused | ConfigError):
        return "refused"
    if isinstance(error, Unable):
        return "unable"
    if isinstance(error, NotFinite):
        return "non_finite"
    return "memory" if isinstance(error, OutOfMemory | MemoryError) else "exception"


def _refused_import(error: BaseException) -> NotImported | None:
    """The refusal of a module that does not import, possibly chained with others."""
    link: BaseException | None = error
    while isinstance(link, Refused):
        if isinstance(link, NotImported):
            return link
        link = link.__cause__ or link.__context__
    return None
