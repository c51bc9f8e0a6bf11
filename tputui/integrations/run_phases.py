"""Parts of a training loop in time: epochs, and phases such as waiting for data, evaluating or saving."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from tputui.integrations.pace import Pace
from tputui.telemetry import events as ev

if TYPE_CHECKING:
    from tputui.integrations.run import Run
    from tputui.integrations.run_process import RunProcess

SECTIONS: dict[str, tuple[ev.Phase, str]] = {
    "data": ("data", "data"),
    "compile": ("compiling", "compile"),
    "report": ("reporting", "report"),
    **dict.fromkeys(("evaluate", "eval", "evaluation", "valid", "validation"), ("evaluating", "evaluate")),
    **dict.fromkeys(("save", "checkpoint"), ("saving", "save")),
}
"""Phase of the heartbeat and section of the epoch, by the name that a script gives."""
_PAUSES = frozenset({"evaluate", "save", "compile"})
"""Sections whose time is not part of a step."""
SECTIONS_MAX = 64
NAME_CHARS_MAX = 64


class Phases:
    """The phases of one thread, and their time since the epoch began."""

    def __init__(self, process: RunProcess, pace: Pace) -> None:
        self._process = process
        self._pace = pace
        self._nested_s: list[float] = []
        """Seconds inside the phases nested in each open phase."""
        self._sections_s: dict[str, float] = {}

    def context(self, name: str) -> AbstractContextManager[None]:
        """A context for a phase."""
        return _PhaseContext(self, name)

    def take_sections(self) -> dict[str, float]:
        """Seconds by section since the last call. Sections do not overlap."""
        found, self._sections_s = self._sections_s, {}
        return found

    def enter(self, name: str) -> ev.Phase:
        """Begins a phase; returns the one before."""
        self._nested_s.append(0.0)
        phase = SECTIONS.get(name, (self._process.phase, ""))[0]
        return self._process.enter(phase)

    def leave(self, name: str, before: ev.Phase, took_s: float) -> None:
        """Ends a phase that took `took_s` seconds."""
        own_s = max(0.0, took_s - self._nested_s.pop())
        if self._nested_s:
            self._nested_s[-1] += took_s
        self._process.enter(before)
        section = SECTIONS.get(name, (before, name[:NAME_CHARS_MAX]))[1]
        if section in self._sections_s or len(self._sections_s) < SECTIONS_MAX:
            self._sections_s[section] = self._sections_s.get(section, 0.0) + own_s
        if section == "data":
            self._pace.wait_for_data(own_s)
        if section in _PAUSES:
            self._pace.pause(own_s)


class _PhaseContext(AbstractContextManager[None]):
    def __init__(self, phases: Phases, name: str) -> None:
        self._phases = phases
        self._name = str(name)
        self._before: ev.Phase = "executing"
        self._began = 0.0

    def __enter__(self) -> None:
        self._before = self._phases.enter(self._name)
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._phases.leave(self._name, self._before, time.perf_counter() - self._began)


class EpochContext(AbstractContextManager[None]):
    """The context of one epoch. An exception inside leaves the epoch open: it was not trained."""

    def __init__(self, run: Run, number: int, num_epochs: int | None, num_steps: int | None) -> None:
        self.number = number
        """As the script counts."""
        self.num_epochs = num_epochs
        self.num_steps = num_steps
        self.first_step = 1
        self._run = run
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self._run.begin_epoch(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            self._run.end_epoch(time.perf_counter() - self._began)


class Plan:
    """How long training will take, as far as the script said."""

    def __init__(
        self,
        task: str,
        total_steps: int | None = None,
        num_epochs: int | None = None,
        num_parameters: int = 0,
        flops_per_step: float | None = None,
    ) -> None:
        self._task = task
        self._total_steps = _whole(total_steps)
        self._num_epochs = _whole(num_epochs)
        self._steps_per_epoch: int | None = None
        self._num_parameters = int(num_parameters)
        self.flops_per_step = flops_per_step
        self._is_announced = False

    def take_epoch(self, num_epochs: int | None, num_steps: int | None) -> None:
        """Completes the plan by what the script said at the start of an epoch."""
        self._num_epochs = self._num_epochs or _whole(num_epochs)
        self._steps_per_epoch = self._steps_per_epoch or _whole(num_steps)

    def take_steps(self, num_steps: int) -> None:
        """Completes the plan by the number of steps of the first epoch."""
        if self._num_epochs and not self._total_steps:
            self._steps_per_epoch = self._steps_per_epoch or num_steps or None

    def announce(self, examples: int, num_columns: int, world_size: int, first_step: int, lr: float) -> ev.Event | None:
        """The plan, once it is known; None if it was returned before or is not known yet.

        `examples`: examples of a step in this process, 0 if not known.
        """
        steps = self._steps_per_epoch or (self._total_steps or 0) // (self._num_epochs or 1)
        # Without a number of epochs, the steps of one epoch are not the whole training.
        steps = steps if self._num_epochs else self._total_steps or 0
        if self._is_announced or steps <= 0:
            return None
        self._is_announced = True
        global_batch = examples * world_size
        return ev.TrainingPlanned(
            t=time.time(),
            task=self._task,
            num_epochs=self._num_epochs or 0,
            steps_per_epoch=steps,
            valid_steps=0,
            first_step=first_step,
            batch_per_core=examples // max(1, num_columns),
            global_batch=global_batch,
            train_examples=steps * global_batch,
            valid_examples=0,
            num_parameters=self._num_parameters,
            precision="",
            lr=lr,
            lr_rule="as the script reported it",
        )


def _whole(number: int | None) -> int | None:
    """A whole number as an int; arrays of numpy have numbers of other types, which JSON does not have."""
    return None if number is None else int(number)
