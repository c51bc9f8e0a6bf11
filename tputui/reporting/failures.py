"""What is reported of an error that ends training: its message, its traceback, and the calls in the user's code.

Never raises, whatever the error is: each method of an exception class of the user may.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from tputui.reporting.progress import Progress
from tputui.reporting.stacks import code_frame
from tputui.telemetry.events import CodeFrame, FailureKind, FailureRaised
from tputui.telemetry.stack_frames import FRAMES_MAX

TEXT_CHARS_MAX = 32_768
"""Maximum length of a reported exception message: it may contain a whole printed tensor."""
TRACEBACK_CHARS_MAX = 131_072
_Made = TypeVar("_Made")


def failure_of(
    error: BaseException,
    *,
    kind: Callable[[BaseException], FailureKind] = lambda error: "exception",
    traceback_of: Callable[[BaseException], str] = lambda error: "".join(traceback.format_exception(error)),
) -> FailureRaised:
    """The event for an error that ends training; `located` adds where training was. `kind` and `traceback_of` may
    raise."""
    return FailureRaised(
        t=time.time(),
        error=type(error).__name__,
        message=text_of(error),
        traceback=_tried(lambda: printable(traceback_of(error), TRACEBACK_CHARS_MAX), ""),
        phase="unknown",
        step=0,
        kind=_tried(lambda: kind(error), "exception"),
        frames=_tried(lambda: _error_frames(error), []),
    )


def located(failure: FailureRaised, progress: Progress) -> FailureRaised:
    """The failure as it is reported now, with the phase and step of training."""
    return replace(failure, t=time.time(), phase=progress.doing.phase, step=progress.step)


def one_line(error: BaseException) -> str:
    """An exception of user code in one line: its type, and the first line of its message."""
    lines = text_of(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def text_of(error: BaseException) -> str:
    """`str(error)`, at most `TEXT_CHARS_MAX` characters, encodable as UTF-8. Never raises, even if `__str__` does."""
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001, RUF100 - any exception class of the user's comes through here
        text = f"(its message is not available: __str__ raised {type(broken).__name__})"
    return printable(text, TEXT_CHARS_MAX)


def printable(text: str, chars_max: int) -> str:
    """The text, shortened in the middle to `chars_max` characters, with lone surrogates escaped."""
    if len(text) > chars_max:
        half = chars_max // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters omitted ...\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def _tried(make: Callable[[], _Made], otherwise: _Made) -> _Made:
    """The result of `make`, or `otherwise` if it raises."""
    try:
        return make()
    except BaseException:  # noqa: BLE001, RUF100 - the error itself is being reported
        return otherwise


def _error_frames(error: BaseException) -> list[CodeFrame]:
    """The calls in user code that led to an error, innermost first, beginning with the exception that caused it."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    calls = [call for broke in reversed(chain) for call in [*traceback.walk_tb(broke.__traceback__)][::-1]]
    frames = [code_frame(frame, line) for frame, line in calls]
    return list(dict.fromkeys(frame for frame in frames if frame.owner == "user"))[:FRAMES_MAX]
