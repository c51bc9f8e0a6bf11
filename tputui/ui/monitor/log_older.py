"""Reads the lines of a run's log that a snapshot no longer holds back from its journals, in the words of the screen.

Takes about as long as opening the run; to be called in a thread. Must not touch what the screen reads with.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tputui.state import timeline
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import LogLine
from tputui.telemetry.merge import Merge
from tputui.ui.monitor.log_store import LINES_MAX


class OlderLines(NamedTuple):
    """The log as the journals have it, oldest first, at most `LINES_MAX` of its lines."""

    lines: list[LogLine]
    where: str
    """Where every line is, or why they could not be read."""


def older_lines(run_dir: Path, until: float = math.inf, is_stopped: Callable[[], bool] = lambda: False) -> OlderLines:
    """The log up to the unix time `until`; whoever asks may give up meanwhile."""
    state, merge = RunState(), Merge(run_dir)
    try:
        done = False
        while not done and not is_stopped():
            facts, done = merge.poll(until)
            for fact in facts:
                if fact.writer not in state.processes:
                    state.processes[fact.writer] = _remembering(fact.writer)
                state.apply(*fact)
    except OSError as error:
        return OlderLines([], f"the journals cannot be read: {error.strerror or error}")
    finally:
        merge.close()
    return OlderLines(timeline.logs(state, LINES_MAX), f"all of them are in {_files(run_dir)}")


def _remembering(name: str) -> ProcessState:
    writer = ProcessState(name)
    writer.log.logs = deque(maxlen=LINES_MAX)
    return writer


def _files(run_dir: Path) -> str:
    """What training printed, as files."""
    names = sorted(path.name for path in run_dir.glob("worker-*.log"))
    some = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    return f"{run_dir}/{some}" if names else f"the journals in {run_dir}"
