"""Reports an error that ends a rank: the event with kind, message, traceback and user frames, and the exit code.

Must not raise, whatever the error is.
"""

from __future__ import annotations

import contextlib
import sys
import traceback

from msgspec.structs import replace

from engine.errors import NotFinite, NotImported, OutOfMemory, PeerLost, Refused, TooManyBad, Unable
from tputui.config import ConfigError
from tputui.engine_api import ExitCode
from tputui.reporting import Progress, Reporter, failure_of, located
from tputui.reporting import events as ev

COMPLETE_MESSAGES = (Refused, ConfigError, Unable, TooManyBad, NotFinite, PeerLost)
"""Errors whose message is complete: a traceback would add nothing about the user's data or configuration."""


def failure_event(error: BaseException, progress: Progress, who: str = "") -> ev.FailureRaised:
    """The event for an error that ended a rank; `who` is put before the message."""
    failure = located(failure_of(error, kind=kind_of, traceback_of=traceback_of), progress)
    return replace(failure, message=f"{who}{failure.message}")


def report(failure: ev.FailureRaised, reporter: Reporter, heading: str = "") -> None:
    """Writes the failure to the journal, and to stderr under the heading."""
    reporter.emit(failure)
    # The journal has it already; a log on a full disk, or a closed stderr, must not prevent the end of the run.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(heading + (failure.traceback or f"{failure.message}\n"))


def exit_code_of(error: BaseException) -> ExitCode:
    if isinstance(error, Refused | ConfigError):
        return ExitCode.USAGE
    return ExitCode.ENVIRONMENT if isinstance(error, Unable) else ExitCode.FAILED


def traceback_of(error: BaseException) -> str:
    """The traceback, if it adds information to the message."""
    refusal = _refused_import(error)
    if refusal is not None and refusal.__cause__ is not None:
        # The user's own module failed; its traceback is what they need.
        return "".join(traceback.format_exception(refusal.__cause__))
    return "" if isinstance(error, COMPLETE_MESSAGES) else "".join(traceback.format_exception(error))


def kind_of(error: BaseException) -> ev.FailureKind:
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
