"""What a run's journals lack, told by the journals beside them: an end that was cut off, a file that is gone or of
another run, a manifest that says something else.

A file that was cut between two lines, or removed, looks sound by itself. Here the writers vouch for one another, and
only what one of them proves is told: a process that was killed says no last word, and nothing is missing then. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tputui.config_diff import ABSENT, flatten
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.telemetry import events as ev
from tputui.telemetry.journal import SUFFIX, Damage

EVIDENCE: tuple[type[ev.Event], ...] = (
    ev.JournalOpened,
    ev.RunStarted,
    ev.WorkerStarted,
    ev.WorkerExited,
    ev.TrainingEnded,
    ev.RunEnded,
)
"""The facts that are looked at; a state that took in no others is judged alike."""
END_MISSING = "the end of the journal is missing"
JOURNAL_MISSING = "the journal is missing"
KEYS_NAMED = 4
_NOT_FINITE = ('"NaN"', '"Infinity"', '"-Infinity"')


class JournalFile(NamedTuple):
    """A journal as it stands in the run's directory."""

    name: str
    size: int
    """Bytes."""


def missing(state: RunState, files: Mapping[str, JournalFile], known: Iterable[Damage], *, over: bool) -> list[Damage]:
    """What is proven to be missing, once everything that is written was read.

    `files` are the journals by writer and `known` is the damage found in them: one whose end is damaged is not told
    twice. `over` says that an end record was read or that no process of the run lives.
    """
    if not over:
        return []
    regions = list(known)
    found: list[Damage] = []
    for writer in _incomplete(state, files):
        file = files.get(writer)
        if file is None:
            found.append(Damage(f"{writer}{SUFFIX}", 0, 0, JOURNAL_MISSING, None))
        elif not any(_explains(region, file) for region in regions):
            found.append(Damage(file.name, file.size, file.size, END_MISSING, None))
    return found


def misplaced(state: RunState, files: Mapping[str, JournalFile], run: str | None) -> list[Damage]:
    """Journals that another process wrote than their files are called after, or another run than this one.

    `run` is the name by the manifest, where that can be read.
    """
    found: list[Damage] = []
    for name, file in files.items():
        head = state.processes[name].opened if name in state.processes else None
        if head is None:
            continue
        if head.writer != name:
            found.append(Damage(file.name, 0, file.size, f"it is the journal of {head.writer}", 0))
        elif run is not None and head.run not in ("", run):
            found.append(Damage(file.name, 0, file.size, f"it is a journal of the run {head.run}", 0))
    return found


def contradicted(state: RunState, config: Mapping[str, Any]) -> str:
    """On which keys the configuration of the manifest is not the one that the run recorded; empty where on none."""
    started = next((w.run_started for w in state.supervisors if w.run_started), None)
    if started is None:
        return ""
    recorded, asked = flatten(started.config), flatten(config)
    pairs = {key: (asked.get(key, ABSENT), recorded.get(key, ABSENT)) for key in sorted(recorded.keys() | asked.keys())}
    keys = [key for key, pair in pairs.items() if not _same(*pair)]
    if not keys:
        return ""
    shown = ", ".join(f"{key} is {pairs[key][0]}, and {pairs[key][1]} there" for key in keys[:KEYS_NAMED])
    more = f", and {len(keys) - KEYS_NAMED} more" if len(keys) > KEYS_NAMED else ""
    return f"it differs from what the supervisor's journal recorded: {shown}{more}"


def _same(asked: str, recorded: str) -> bool:
    """Whether two values of a configuration are the same, as text; a manifest has no NaN and no infinity."""
    return asked == recorded or (asked == "null" and recorded in _NOT_FINITE)


def _incomplete(state: RunState, files: Mapping[str, JournalFile]) -> list[str]:
    """Writers whose journal, or the end of it, was written and is not there."""
    writers: list[str] = []
    for supervisor in state.supervisors:
        name = f"worker-{supervisor.index}"
        worker = state.processes.get(name)
        if _last_word_was_heard(supervisor) and (worker is None or worker.training_ended is None):
            writers.append(name)
        # A worker is started by its supervisor, who tells so long before the worker can say anything.
        if name in files and supervisor.worker_started is None and _ends_at_its_start(supervisor):
            writers.append(supervisor.name)
    return writers


def _last_word_was_heard(supervisor: ProcessState) -> bool:
    """Whether the supervisor proves that the training process told its end.

    An exit code other than 0 alone proves nothing: a process that breaks down early exits so without a word.
    """
    ended, exited = supervisor.run_ended, supervisor.worker_exited
    if ended is None:
        return exited is not None and exited.exit_code == 0
    return ended.outcome == "done" if ended.training_ended is None else ended.training_ended


def _ends_at_its_start(supervisor: ProcessState) -> bool:
    """Whether nothing later than the start of the training process was read, so that a lost line does not explain
    why its start is not told."""
    return supervisor.worker_exited is None and supervisor.run_ended is None


def _explains(region: Damage, file: JournalFile) -> bool:
    """Whether the region already tells why the end was not read: it reaches the end, or nothing could be read."""
    return region.journal == file.name and (region.end >= file.size or region.end == 0)
