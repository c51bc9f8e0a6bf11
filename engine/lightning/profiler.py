"""Charges the time of Lightning's loop to our sections, by what its profiler is told of. Must not measure anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from lightning.pytorch.profilers import Profiler

from engine.section_timer import SectionTimer

_ACTIONS = {
    "[_TrainingEpochLoop].train_dataloader_next": "data",
    "run_training_batch": "trace",
}
"""Section by the name that Lightning gives an action."""
_MOVE = ".batch_to_device"


class SectionProfiler(Profiler):
    """Lightning tells it when an action starts and stops."""

    def __init__(self, sections: SectionTimer, evaluating: Callable[[], bool]) -> None:
        """What happens while it is `evaluating` is charged to that as a whole."""
        super().__init__()
        self._evaluating = evaluating
        self._sections = sections
        self._running: dict[str, AbstractContextManager[None]] = {}

    def start(self, action_name: str) -> None:
        """An action starts."""
        name = _ACTIONS.get(action_name) or ("data" if action_name.endswith(_MOVE) else None)
        if name is not None and not self._evaluating():
            running = self._running[action_name] = self._sections.section(name)
            running.__enter__()

    def stop(self, action_name: str) -> None:
        """An action stops."""
        running = self._running.pop(action_name, None)
        if running is not None:
            running.__exit__(None, None, None)
