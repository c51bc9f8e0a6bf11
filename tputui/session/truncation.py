"""Detects truncated, missing or foreign journals, and a manifest that contradicts them.

A file that was cut between two lines, or removed, looks valid by itself, so journals are checked against one another.
Only proven losses are reported: a killed process writes no end event, and then nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tputui.config_diff import ABSENT, texts
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState, command_writer
from tputui.telemetry import events as ev
from tputui.telemetry.codec import Damage
from tputui.telemetry.journal import SUFFIX

EVIDENCE: tuple[type[ev.Event], ...] = (
    ev.JournalOpened,
    ev.RunStarted,
    ev.WorkerStarted,
    ev.WorkerExited,
    ev.TrainingEnded,
    ev.RunEnded,
)
"""Events that the checks use; a state reduced from these alone gives the same result."""
END_MISSING = "the end of the journal is missing"
JOURNAL_MISSING = "the journal is missing"
KEYS_NAMED = 4
_NOT_FINITE = ('"NaN"', '"Infinity"', '"-Infinity"')


class JournalFile(NamedTuple):
    name: str
    size: int
    """Bytes."""


def missing(state: RunState, files: Mapping[str, JournalFile], damage: Iterable[Damage], *, over: bool) -> list[Damage]:
    """Journals, or ends of journals, that are provably missing, after everything was read.

    `files`: journals by process. `damage`: damage found in them; a damaged end is not reported twice. `over`: an end
    event was read, or no process of the run is alive.
    """
    if not over:
        return []
    regions = list(damage)
    missing_parts: list[Damage] = []
    for writer in _incomplete(state, files):
        file = files.get(writer)
        if file is None:
            missing_parts.append(Damage(f"{writer}{SUFFIX}", 0, 0, JOURNAL_MISSING, None))
        elif not any(_explains(region, file) for region in regions):
            missing_parts.append(Damage(file.name, file.size, file.size, END_MISSING, None))
    return missing_parts


def misplaced(state: RunState, files: Mapping[str, JournalFile], run: str | None) -> list[Damage]:
    """Journals of another process than their file name says, or of another run.

    `run`: name of the run by the manifest, if that can be read.
    """
    foreign: list[Damage] = []
    for name, file in files.items():
        head = state.processes[name].opened if name in state.processes else None
        if head is None:
            continue
        if head.writer != name:
            foreign.append(Damage(file.name, 0, file.size, f"it is the journal of {head.writer}", 0))
        elif run is not None and head.run not in ("", run):
            foreign.append(Damage(file.name, 0, file.size, f"it is a journal of the run {head.run}", 0))
    return foreign


def contradicted(state: RunState, config: Mapping[str, Any]) -> str:
    """How the configuration of the manifest differs from the recorded one; empty if it does not."""
    started = next((w.run_started for w in state.supervisors if w.run_started), None)
    if started is None:
        return ""
    recorded, asked = texts(started.config), texts(config)
    pairs = {key: (asked.get(key, ABSENT), recorded.get(key, ABSENT)) for key in sorted(recorded.keys() | asked.keys())}
    keys = [key for key, pair in pairs.items() if not _same(*pair)]
    if not keys:
        return ""
    shown = ", ".join(f"{key} is {pairs[key][0]}, and {pairs[key][1]} there" for key in keys[:KEYS_NAMED])
    more = f", and {len(keys) - KEYS_NAMED} more" if len(keys) > KEYS_NAMED else ""
    return f"it differs from what the supervisor's journal recorded: {shown}{more}"


def _same(asked: str, recorded: str) -> bool:
    """Whether two values, as text, are the same; a manifest cannot contain NaN or infinity."""
    return asked == recorded or (asked == "null" and recorded in _NOT_FINITE)


def _incomplete(state: RunState, files: Mapping[str, JournalFile]) -> list[str]:
    """Processes whose journal, or its end, is missing."""
    writers: list[str] = []
    for supervisor in state.supervisors:
        name = command_writer(state.processes, supervisor.index)
        worker = state.processes.get(name)
        if _last_word_was_heard(supervisor) and (worker is None or worker.training_ended is None):
            writers.append(name)
        # A supervisor reports that it starts a worker long before the worker can write anything.
        if name in files and supervisor.worker_started is None and _ends_at_its_start(supervisor):
            writers.append(supervisor.name)
    # A supervisor records the start of the run before any other process of its host can write.
    for name, file in files.items():
        role, _, host = name.rpartition("-")
        others = (files.get(f"{other}-{host}") for other in ("worker", "logs"))
        if role == "supervisor" and not file.size and any(other and other.size for other in others):
            writers.append(name)
    return writers


def _last_word_was_heard(supervisor: ProcessState) -> bool:
    """Whether the supervisor proves that the training process wrote its end event.

    An exit code other than 0 proves nothing: a process that fails early exits without one.
    """
    ended, exited = supervisor.run_ended, supervisor.worker_exited
    if ended is None:
        return exited is not None and exited.exit_code == 0
    return ended.outcome == "done" if ended.training_ended is None else ended.training_ended


def _ends_at_its_start(supervisor: ProcessState) -> bool:
    """Whether nothing after the start of the training process was read, so that its start is not just a lost line."""
    return supervisor.worker_exited is None and supervisor.run_ended is None


def _explains(region: Damage, file: JournalFile) -> bool:
    """Whether a damaged region already explains the missing end: it reaches the end, or the whole file is
    unreadable."""
    return region.journal == file.name and (region.end >= file.size or region.end == 0)
