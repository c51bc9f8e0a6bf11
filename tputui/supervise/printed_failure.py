"""The failure that ended a command, in the lines that it printed: a traceback, the end of a process in native code, or
the error of a command line. Pure.

Errors that parsers of command lines print before they end a program: argparse, click, typer, tyro, absl, fire,
hydra, and Python itself. Pure.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence

from tputui.supervise.failure_found import PrintedFailure
from tputui.supervise.native_aborts import first_abort
from tputui.supervise.tracebacks import LINES_MAX, Traceback, tracebacks
from tputui.telemetry.events import FailureKind
from tputui.telemetry.process_end import is_lost_peer
from tputui.telemetry.stack_frames import FRAMES_MAX

USAGE_LINES_MAX = 300
"""Lines of a usage message, after which the error may come."""
PLACES_MAX = 50
"""Lines at the end of an output that may belong to such an error."""
_HINT = re.compile(r"sage: |USAGE: |\u256d\u2500 |FATAL Flags|HYDRA_FULL_ERROR|python[\d.]*: ")
_USAGE = re.compile(r"(?:^|(?<=[:\])|>])|(?<=[:\])|>] )) ?[Uu](?:sage|SAGE): (?!\d)")
"""At the begin of a line, or behind what a launcher puts there."""
_AFTER_USAGE = re.compile(r"^ ?(?:\S[^:]{0,200}: )?(error|Error): (\S.*)$")
"""`train.py: error: unrecognized arguments: --x` of argparse, `Error: No such option: --x` of click."""
_BEFORE_USAGE = re.compile(r"^ ?(ERROR): (\S.*)$")
"""Of fire."""
_CORNER = "\u256d\u2500 "
_BOX = re.compile(r"^\u256d\u2500 (.*?) \u2500{2,}\u256e$")
_BOX_TITLE = re.compile(r"[Ee]rror|^(?:Unrecognized|Required|Invalid|Missing) ")
"""Titles of the boxes in which typer and tyro report an error."""
_BOX_LINE = re.compile(r"^\u2502 (.*?)\s*\u2502$")
_HYDRA = re.compile(r"Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace")
"""Below the errors of hydra, also below the traceback of an exception in the function that it calls."""
_HYDRA_FIRST = re.compile(
    r"Could not |Error |Primary config |Cannot find primary |In '|You must specify |Ambiguous |Multiple "
)
_HYDRA_TRACEBACK = ("Error executing job with overrides", "Traceback (most recent call last)")
_HYDRA_LINES_MAX = 40
_ABSL = re.compile(r"FATAL (Flags parsing error):\s?(.*)")
_PYTHON = re.compile(
    r"(?:^|[\s/])(python[\d.]*): ((?:can't open file|No module named|Error while finding module specification for) .+)$"
)


def last_usage_error(lines: Sequence[str]) -> PrintedFailure | None:
    """The last error of a command line in an output."""
    places = [place for place, line in enumerate(lines) if _HINT.search(line)]
    errors = (error for place in places[-PLACES_MAX:] for error in _usage_errors(lines, place, lines[place]))
    return max(errors, key=lambda error: error.first_line, default=None)


def _usage_errors(lines: Sequence[str], place: int, line: str) -> Iterator[PrintedFailure]:
    if (usage := _USAGE.search(line)) is not None:
        yield from _beside_usage(lines, place, line[: usage.start()])
    elif (at := line.find(_CORNER)) >= 0:
        yield from _in_box(lines, place, at)
    elif (flags := _ABSL.search(line)) is not None:
        message = flags.group(2) or "".join(lines[place + 1 : place + 2])[flags.start() :].strip()
        yield _made(flags.group(1), message, place)
    elif (hydra := _HYDRA.search(line)) is not None:
        yield from _of_hydra(lines, place, line[: hydra.start()])
    elif (python := _PYTHON.search(line)) is not None:
        yield _made(python.group(1), python.group(2), place)


def _beside_usage(lines: Sequence[str], place: int, prefix: str) -> Iterator[PrintedFailure]:
    """The error before or after the usage message at `place`; `prefix` is what a launcher puts before each line."""
    for index in range(max(0, place - 2), min(len(lines), place + USAGE_LINES_MAX)):
        pattern = _BEFORE_USAGE if index < place else _AFTER_USAGE
        line = lines[index]
        match = pattern.match(line[len(prefix) :]) if line.startswith(prefix) else None
        if match is not None:
            yield _made(match.group(1), match.group(2), index)
            return


def _of_hydra(lines: Sequence[str], place: int, prefix: str) -> Iterator[PrintedFailure]:
    """The error above the hint at `place`."""
    places = reversed(range(max(0, place - _HYDRA_LINES_MAX), place))
    above = [(at, lines[at].removeprefix(prefix).strip()) for at in places]
    if any(mark in text for _, text in above for mark in _HYDRA_TRACEBACK):
        return
    first = next((numbered_line for numbered_line in above if _HYDRA_FIRST.match(numbered_line[1])), None)
    first = first or next((numbered_line for numbered_line in above if numbered_line[1]), None)
    if first is not None:
        yield _made("hydra", first[1], first[0])


def _in_box(lines: Sequence[str], place: int, start: int) -> Iterator[PrintedFailure]:
    title = _BOX.match(lines[place][start:])
    if title is None or not _BOX_TITLE.search(title.group(1)):
        return
    message_lines: list[str] = []
    for line in lines[place + 1 : place + 20]:
        inner = _BOX_LINE.match(line[start:])
        if inner is None or not inner.group(1).strip("\u2500 "):
            break
        message_lines.append(inner.group(1).strip())
    if message_lines:
        yield _made(title.group(1), " ".join(message_lines), place)


def _made(error: str, message: str, place: int) -> PrintedFailure:
    """`error` stands before the message: `error`, `Error`, `python3`, or the title of its box."""
    return PrintedFailure(error, message, "refused", [], "", place)


_OF_LAUNCHERS = frozenset(
    {
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        "torch.distributed.elastic.multiprocessing.api.SignalException",
        "torch.multiprocessing.spawn.ProcessRaisedException",
        "torch.multiprocessing.spawn.ProcessExitedException",
        "subprocess.CalledProcessError",
    }
)
"""Exceptions of launchers about the end of a process that they started."""
_LOST_PROCESS = re.compile(
    r"(?:^|\.)(?:BrokenProcessPool|BrokenExecutor|TerminatedWorkerError|WorkerCrashedError|\w*ActorDiedError|EOFError"
    r"|BrokenPipeError|Connection\w*Error|CalledProcessError)(?:: |$)"
    r"|DataLoader worker \(pid|exited unexpectedly|terminated (?:abruptly|unexpectedly)|unexpectedly terminated"
    r"|killed by signal|died with <Signals|device-side assert"
)
"""In the exception of a process that lost one that it had started or was connected to."""
_AT_EXIT_LINES = 50
"""An abort this many lines after a traceback, or fewer, is that of the interpreter which ends by the exception."""

_AT_CHILD_EXIT_LINES = 5
"""Lines that a program prints between its traceback and that of the process which started it, at most."""


def cause_in(lines: Sequence[str], returncode: int = 1) -> PrintedFailure | None:
    """The failure that ended a command, in the lines that it printed; None if there is none. `returncode` is its exit
    code, or the negative number of the signal that ended it.

    Of tracebacks it is the last one. If a launcher reports the end of a process that it started, or if several ranks
    print tracebacks, it is the first one of a process that did not only lose another one. Exceptions that end no
    process count only if there are no others. The error of a command line counts if no such traceback follows it.
    An abort in native code counts if the traceback only reports that the process is gone, or was printed long before.
    No exception counts after which the command went on until a signal ended it, and then no error of a command line.
    """
    candidates = [traceback for traceback in tracebacks(lines) if not _is_survived(traceback, len(lines), returncode)]
    real = [traceback for traceback in candidates if not _is_of_launcher(traceback)]
    fatal = [traceback for traceback in real if not traceback.is_aside] or real
    usage, abort = last_usage_error(lines) if returncode > 0 else None, first_abort(lines)
    newest = {traceback.source: traceback for traceback in fatal}
    of_ranks = (
        fatal if len(real) < len(candidates) else sorted(newest.values(), key=lambda traceback: traceback.first_line)
    )
    cause = _of_child(_first_of_ranks(of_ranks), fatal)
    if abort is not None and _is_first(abort, cause):
        return _of_abort(abort, cause or next(iter(candidates), None))
    if usage is not None and (cause is None or cause.first_line < usage.first_line):
        return usage
    cause = cause or next(iter(candidates), None)
    return _of_traceback(cause) if cause is not None else None


def _is_survived(traceback: Traceback, num_lines: int, returncode: int) -> bool:
    """Whether a command went on after it printed a traceback, because a signal ended it later."""
    return returncode == -signal.SIGKILL or (returncode < 0 and _is_long_after(num_lines, traceback))


def _is_long_after(line: int, traceback: Traceback) -> bool:
    return line > _last_line(traceback) + _AT_EXIT_LINES


def _first_of_ranks(fatal: Sequence[Traceback]) -> Traceback | None:
    """The first traceback that does not only report the loss of another rank."""
    causes = (traceback for traceback in fatal if not is_lost_peer(traceback.message))
    return next(causes, next(iter(fatal), None))


def _of_child(cause: Traceback | None, fatal: Sequence[Traceback]) -> Traceback | None:
    """The traceback directly before an exception which only says that a program failed: that of the program."""
    if cause is None or cause.error != "subprocess.CalledProcessError":
        return cause
    before = [
        traceback for traceback in fatal if traceback.source == cause.source and traceback.first_line < cause.first_line
    ]
    is_near = before and cause.first_line - _last_line(before[-1]) <= _AT_CHILD_EXIT_LINES
    return before[-1] if is_near else cause


def _last_line(traceback: Traceback) -> int:
    return traceback.first_line + len(traceback.text.splitlines())


def _is_first(abort: PrintedFailure, cause: Traceback | None) -> bool:
    """Whether an abort in native code came before the exception that ended the command."""
    if cause is None:
        return True
    if cause.first_line < abort.first_line:
        return _is_long_after(abort.first_line, cause)
    if is_lost_peer(abort.message):
        return False
    return is_lost_peer(cause.message) or _LOST_PROCESS.search(f"{cause.error}: {cause.message}") is not None


def _is_of_launcher(traceback: Traceback) -> bool:
    """Whether a launcher raised it because a process that it started has ended."""
    if traceback.error == "subprocess.CalledProcessError":
        return any("/accelerate/" in frame.file for frame in traceback.frames)
    return traceback.error in _OF_LAUNCHERS


def _of_traceback(traceback: Traceback) -> PrintedFailure:
    return PrintedFailure(
        traceback.error,
        traceback.message,
        _kind_of(traceback),
        traceback.frames,
        _shortened(traceback.text),
        traceback.first_line,
        _is_of_launcher(traceback),
    )


def _shortened(text: str) -> str:
    """The text of a traceback without the middle, if it is very long."""
    lines = text.split("\n")
    num_left_out = len(lines) - LINES_MAX
    if num_left_out <= 0:
        return text
    half = LINES_MAX // 2
    return "\n".join([*lines[:half], f"  ... {num_left_out} lines left out ...", *lines[-half:]])


def _of_abort(abort: PrintedFailure, later: Traceback | None) -> PrintedFailure:
    """`later` is the exception of a process that lost the one which was aborted."""
    calls = later.frames if later is not None and later.first_line > abort.first_line else []
    text = [abort.text, *([later.text] if later is not None and any(call.owner == "user" for call in calls) else [])]
    return abort._replace(frames=[*abort.frames, *calls][:FRAMES_MAX], text="\n".join(text))


def _kind_of(traceback: Traceback) -> FailureKind:
    if traceback.error in ("ImportError", "ModuleNotFoundError"):
        return "import"
    is_memory = (
        traceback.error.endswith(("MemoryError", "OutOfMemoryError")) or "RESOURCE_EXHAUSTED" in traceback.message
    )
    return "memory" if is_memory else "exception"
