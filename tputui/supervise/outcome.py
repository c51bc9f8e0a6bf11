"""How a run ended: outcome, exit code and reason, once its training process is gone."""

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
    """Outcome, exit code and reason for the end event."""

    outcome: Outcome
    exit_code: ExitCode
    reason: str


class WorkerEnd(NamedTuple):
    """How the training process ended, as the operating system and the supervisor saw it."""

    returncode: int
    """Exit code, or the negative number of the signal that ended it."""
    stop_asked: bool
    """Whether a stop had been requested."""
    killed: bool
    """Whether the supervisor killed it, because it did not obey a request to stop at once."""
    memory: str = ""
    """Whether the kernel killed it for lack of memory, in words; empty unless it was killed by SIGKILL."""


def run_ending(
    end: WorkerEnd, training_ended: TrainingEnded | None, failure: FailureRaised | None, last_lines: Sequence[str]
) -> RunEnding:
    """How the run ended. `last_lines` are the last lines of its output."""
    if training_ended is not None:
        return _reported_ending(end, training_ended)
    if end.killed:
        return RunEnding("stopped", ExitCode.STOPPED, "killed: it did not obey the request to stop at once")
    if end.returncode == ExitCode.STOPPED and end.stop_asked:
        return RunEnding("stopped", ExitCode.STOPPED, "stopped on request before training began")
    # The exit code is ours only if the worker reported a failure: user code may exit with any number.
    ours = failure is not None and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT)
    code = ExitCode(end.returncode) if ours else ExitCode.FAILED
    return RunEnding("failed", code, _failure_reason(end, failure, last_lines))


def returncode_text(returncode: int) -> str:
    """A return code as text: `exit code 3`, `signal SIGKILL`."""
    return f"signal {signal_name(returncode)}" if returncode < 0 else f"exit code {returncode}"


def signal_name(returncode: int) -> str | None:
    """The name of the signal of a negative return code; None for an exit code."""
    if returncode >= 0:
        return None
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return str(-returncode)


def _reported_ending(end: WorkerEnd, training_ended: TrainingEnded) -> RunEnding:
    code = _CODES[training_ended.outcome]
    if training_ended.outcome == "failed" and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT):
        code = ExitCode(end.returncode)
    reason = training_ended.reason
    if end.returncode < 0 and not end.killed:
        reason += f" (its process then ended by {returncode_text(end.returncode)})"
    return RunEnding(training_ended.outcome, code, reason)


def _failure_reason(end: WorkerEnd, failure: FailureRaised | None, last_lines: Sequence[str]) -> str:
    reason = f"the training process ended by {returncode_text(end.returncode)}"
    if end.memory:
        reason += f" ({end.memory})"
    if failure is not None and end.returncode in (ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.FAILED):
        reason = "the training process gave up"
    elif end.returncode >= 0:
        reason = f"the training process ended with {returncode_text(end.returncode)} without an end event"
    if failure is not None:
        reason += f": {failure.error}: {failure.message.partition(chr(10))[0]}"
    elif last_lines:
        reason += f"; it last printed: {' | '.join(list(last_lines)[-_LAST_LINES:])}"
    else:
        reason += "; it printed nothing"
    return reason if len(reason) <= _REASON_CHARS_MAX else reason[:_REASON_CHARS_MAX] + " ..."
