"""`ScriptPlan`: how long training will take, as far as a script says."""

from __future__ import annotations

import time

from tputui.telemetry import events as ev


class ScriptPlan:
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
        self._num_examples = 0
        """Of the data set, of which steps may leave out some or repeat some; 0 if not known."""
        self.flops_per_step = flops_per_step
        self._is_announced = False

    def replace(
        self, total_steps: int | None, num_epochs: int | None, steps_per_epoch: int | None, num_examples: int = 0
    ) -> None:
        """Replaces what was said before; announces the plan again if that is not the same."""
        self._num_examples = num_examples
        plan = _whole(total_steps), _whole(num_epochs), _whole(steps_per_epoch)
        if plan != (self._total_steps, self._num_epochs, self._steps_per_epoch):
            self._total_steps, self._num_epochs, self._steps_per_epoch = plan
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
        is_whole = (steps - 1) * global_batch < self._num_examples <= steps * global_batch
        return ev.TrainingPlanned(
            t=time.time(),
            task=self._task,
            num_epochs=self._num_epochs or 0,
            steps_per_epoch=steps,
            valid_steps=0,
            first_step=first_step,
            batch_per_core=examples // max(1, num_columns),
            global_batch=global_batch,
            train_examples=self._num_examples if is_whole else steps * global_batch,
            valid_examples=0,
            num_parameters=self._num_parameters,
            precision="",
            lr=lr,
            lr_rule="from the script",
        )


def _whole(number: int | None) -> int | None:
    """A whole number as an int; arrays of numpy have numbers of other types, which JSON does not have."""
    return None if number is None else int(number)
