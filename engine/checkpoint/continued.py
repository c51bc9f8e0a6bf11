"""The checkpoints of the run that another one continues: copies its best weights, and removes half-written files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.checkpoint.checkpoint_store import CheckpointStore, SaveFailed
from engine.checkpoint.resume import Checkpoint
from tputui.engine_api import LineSearch, clear_half_written, head_of, is_alive, is_run, journal_paths, process_of
from tputui.reporting import events as ev


def adopt_best(store: CheckpointStore, resumed: Checkpoint, source: Path, warn: Callable[[str], None]) -> Checkpoint:
    """Copies the best weights so far into the new run. Returns the checkpoint, without its best epoch and with a
    warning if those weights were not found."""
    if resumed.best is None:
        return resumed
    try:
        store.adopt_best(resumed, source)
    except SaveFailed as error:
        warn(f"the best weights so far were not found: {error}; the best epoch is chosen from new epochs only")
        return resumed._replace(best=None, best_epoch=0)
    return resumed


def retain_earlier(store: CheckpointStore, journal: Path) -> None:
    """Counts the checkpoints that the processes before have saved, by the journal of this run, for
    `checkpoint.keep`: after a restart they would be kept for ever.

    A process that was killed may not have recorded its newest one, which counts as one at the end of an epoch.
    """
    try:
        events = LineSearch(journal, ev.CheckpointSaved).fresh()
    except OSError:
        return
    saved = [event for event in events if isinstance(event, ev.CheckpointSaved)]
    asked_for = {Path(event.path).name for event in saved if event.reason != "epoch"}
    for name in sorted(store.names()):
        store.note_saved(name, periodic=name not in asked_for)


def remove_partial_writes(source: Path) -> None:
    """Removes what a run that was killed in a save left half written, before another run resumes from `source`.

    Does nothing if a process of that run may still be alive.
    """
    run_dir = source.resolve().parent.parent
    try:
        writers = list(journal_paths(run_dir)) if is_run(run_dir) else []
    except OSError:
        # A checkpoint may be behind a link, in a folder that this user cannot list.
        return
    if writers and all(_has_exited(path) for _, path in writers):
        clear_half_written(run_dir)


def _has_exited(journal: Path) -> bool:
    """Whether the process that wrote a journal is known to have exited."""
    try:
        head = head_of(journal)
    except OSError:
        return False
    return head is not None and is_alive(process_of(head)) is False
