"""How a run ended, from what is known when its training process is gone. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple

from tputui.exit_codes import ExitCode
from tputui.telemetry.events import FailureRaised, Outcome, TrainingEnded

_CODES: dict[Outcome, ExitCode] = {"done": ExitCode.DONE, "stopped": ExitCode.STOPPED, "failed": ExitCode.FAILED}
_REASON_CHARS_MAX = 600
_LAST_LINES = 3


class RunEnding(NamedTuple):
    """The words of the end record."""

    outcome: Outcome
    exit_code: ExitCode
    reason: str


class WorkerEnd(NamedTuple):
    """What the operating system and the supervisor know of the end of the training process."""

    returncode: int
    """Exit code, or the negative number of the signal that ended it."""
    stop_asked: bool
    """Whether somebody had asked to stop."""
    killed: bool
    """Whether the supervisor ended it by force, since a request to stop at once was not obeyed."""
    memory: str = ""
    """What the kernel's counters say of memory, where it was killed."""


def judge(
    end: WorkerEnd, training_ended: TrainingEnded | None, failure: FailureRaised | None, last_lines: Sequence[str]
) -> RunEnding:
    """How the run ended."""
    if training_ended is not None:
        return _by_its_own_word(end, training_ended)
    if end.killed:
        return RunEnding("stopped", ExitCode.STOPPED, "stopped by force: it was asked to stop at once and did not")
    if end.returncode == ExitCode.STOPPED and end.stop_asked:
        return RunEnding("stopped", ExitCode.STOPPED, "stopped on request before training began")
    # An exit code is ours only if the worker reported a failure before: the user's own code may exit with any number.
    ours = failure is not None and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT)
    code = ExitCode(end.returncode) if ours else ExitCode.FAILED
    return RunEnding("failed", code, _why_it_failed(end, failure, last_lines))


def words_for(returncode: int) -> str:
    """A return code in words: `exit code 3`, `signal SIGKILL`."""
    return f"signal {signal_name(returncode)}" if returncode < 0 else f"exit code {returncode}"


def signal_name(returncode: int) -> str | None:
    """The name of the signal behind a negative return code; None where it is an exit code."""
    if returncode >= 0:
        return None
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return str(-returncode)


def _by_its_own_word(end: WorkerEnd, training_ended: TrainingEnded) -> RunEnding:
    code = _CODES[training_ended.outcome]
    if training_ended.outcome == "failed" and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT):
        code = ExitCode(end.returncode)
    reason = training_ended.reason
    if end.returncode < 0 and not end.killed:
        reason += f" (its process then ended by {words_for(end.returncode)})"
    return RunEnding(training_ended.outcome, code, reason)


def _why_it_failed(end: WorkerEnd, failure: FailureRaised | None, last_lines: Sequence[str]) -> str:
    reason = f"the training process ended by {words_for(end.returncode)}"
    if end.memory:
        reason += f" ({end.memory})"
    if failure is not None and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.FAILED):
        reason = "the training process gave up"
    elif end.returncode >= 0:
        reason = f"the training process ended with {words_for(end.returncode)} and did not say that training ended"
    if failure is not None:
        reason += f": {failure.error}: {failure.message.partition(chr(10))[0]}"
    elif last_lines:
        reason += f"; it last printed: {' | '.join(list(last_lines)[-_LAST_LINES:])}"
    else:
        reason += "; it printed nothing"
    return reason if len(reason) <= _REASON_CHARS_MAX else reason[:_REASON_CHARS_MAX] + " ..."
