"""How training ends in a script: the exception, or the exit code, with which its process leaves.

The interpreter passes no exit code to `atexit`, and forgets `SystemExit` before. Therefore `sys.exit`, `exit` and
`quit` are wrapped: a call is remembered, and counts if the main program was really left by an exception. The code of a
`raise SystemExit(code)` outside of `with run:`, or of a `sys.exit(main())` whose `exit` was looked up before it was
wrapped, is not known here; a supervisor knows it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from msgspec.structs import replace

from tputui.reporting.failures import failure_of
from tputui.reporting.stacks import frames_of
from tputui.telemetry.events import FailureRaised, Outcome
from tputui.telemetry.process_end import PEER_LOST, is_lost_peer
from tputui.telemetry.reporter import Reporter

CLOSE_TIMEOUT_S = 3.0
_EXIT_CODES = 256
_newest: tuple[int, ScriptEnding] | None = None
"""Process id and ending of the newest call of `sys.exit` in the main thread."""


class ScriptEnding(NamedTuple):
    """How training ended."""

    outcome: Outcome | None = None
    """None if the script reached its end: `stopped` if a stop was requested, else `done`."""
    reason: str = ""
    failure: FailureRaised | None = None
    """The error that ended it, without the phase and step of training."""


def ending_of(error: BaseException) -> ScriptEnding:
    """How training ended if an exception left it. Ctrl-C stops a run; `sys.exit()` and `sys.exit(0)` are its end."""
    if isinstance(error, SystemExit):
        cause = error.__cause__ if error.__suppress_context__ else error.__context__
        return _ending_of_exit(error.code, cause, lambda: failure_of(error, traceback_of=_traceback_of))
    if isinstance(error, KeyboardInterrupt):
        return ScriptEnding("stopped", "ended by KeyboardInterrupt")
    failure = failure_of(error, traceback_of=_traceback_of)
    return ScriptEnding("failed", f"{failure.error}: {failure.message}", failure)


def _ending_of_exit(status: object, cause: BaseException | None, describe: Callable[[], FailureRaised]) -> ScriptEnding:
    """`cause`: the exception that was handled at the call; it says more than the exit code."""
    code = 0 if status is None else status % _EXIT_CODES if isinstance(status, int) else 1
    if isinstance(cause, KeyboardInterrupt):
        return ending_of(cause)
    if not code:
        return ScriptEnding()
    if cause is not None and not isinstance(cause, SystemExit):
        failure = failure_of(cause, traceback_of=_traceback_of)
        return ScriptEnding("failed", f"exit code {code} after {failure.error}: {failure.message}", failure)
    text = f"exit code {code}" if isinstance(status, int) else f"exit code {code}: {status}"
    return ScriptEnding("failed", text, replace(describe(), message=text))


def _traceback_of(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(error)
    # `sys.exit` would seem to have failed here.
    shown.stack[:] = [call for call in shown.stack if call.filename != __file__]
    return "".join(shown.format())


def as_consequence(failure: FailureRaised) -> FailureRaised:
    """A failure in a program of several ranks: one because another rank is gone is named so, and is not the first."""
    if not is_lost_peer(failure.message):
        return failure
    return replace(failure, error=PEER_LOST, message=f"{failure.error}: {failure.message}")


def close_journal(reporter: Reporter, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
    """Writes the rest of a journal, and reports on stderr what could not be written.

    A supervisor records stderr in a journal of its own.
    """
    reporter.close(timeout_s)
    if lost := reporter.num_unwritten:
        why = reporter.failure or f"the disk did not write them within {timeout_s:g} s"
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a script may have closed or removed it
            sys.stderr.write(f"tputui: the last {lost} events of {reporter.writer} are in no journal: {why}\n")
            sys.stderr.flush()


class ExitWatch:
    """Finds out how this process ends. Created when the process starts to report."""

    def __init__(self) -> None:
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        while main is not None and main.f_back is not None:
            main = main.f_back
        self._main: FrameType | None = main
        """The outermost call of the main thread: the script."""
        sys.exit = _watched(getattr(sys.exit, "__tputui_original__", sys.exit))
        quitter: Any = sys.modules.get("_sitebuiltins")
        if quitter is not None:
            quitter.Quitter.__call__ = _watched(quitter.Quitter.__call__)

    def ending_at_exit(self, *, is_supervised: bool) -> ScriptEnding:
        """How training ended; called by `atexit`. A supervisor names the exit code of the process itself."""
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException):
            return ending_of(error)
        if not self._was_left_by_exception():
            return ScriptEnding()
        pid, ending = _newest or (0, ScriptEnding())
        if pid == os.getpid():
            return ending
        return (
            ScriptEnding()
            if is_supervised
            else ScriptEnding("done", "ended by SystemExit with an exit code that is not known")
        )

    def _was_left_by_exception(self) -> bool:
        import dis

        if self._main is None:
            return False
        last = self._main.f_code.co_code[self._main.f_lasti]
        return not dis.opname[last].removeprefix("INSTRUMENTED_").startswith("RETURN")


def ending_of_child() -> ScriptEnding:
    """How training ended in a process of `multiprocessing`, which calls its finalizers before it handles exceptions."""
    error = sys.exc_info()[1]
    return ScriptEnding() if error is None else ending_of(error)


def _watched(leave: Any) -> Any:
    """Remembers calls of `sys.exit` or the like. In other threads they end only the thread."""
    if hasattr(leave, "__tputui__"):
        return leave

    @functools.wraps(leave)
    def watched(*args: Any, **given: Any) -> Any:
        try:
            return leave(*args, **given)
        except SystemExit as error:
            if threading.current_thread() is threading.main_thread():
                _remember(error, sys._getframe(1))
            raise

    watched.__dict__["__tputui__"] = True
    return watched


def _remember(error: SystemExit, caller: FrameType) -> None:
    global _newest

    def describe() -> FailureRaised:
        calls = traceback.format_stack(caller)
        lines = ["Traceback (most recent call last):\n", *calls, f"SystemExit: {error.code}\n"]
        frames = [frame for frame in frames_of(caller) if frame.owner == "user"]
        return replace(failure_of(error), traceback="".join(lines), frames=frames)

    try:
        _newest = os.getpid(), _ending_of_exit(error.code, error.__context__, describe)
    except Exception:  # noqa: BLE001, RUF100 - the script exits in any case; its end is reported without the code
        _newest = None
