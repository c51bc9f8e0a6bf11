"""What a configuration comes to: the task with its options, sizes and step counts, checked in full.

Torch-free and quick: the strict check prints it before anything starts, and the worker trains by it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from engine import machine as machines
from engine import schedule
from engine.errors import BadSource, Problem, Refused
from engine.machine import Machine
from engine.tasks import registry
from engine.tasks.base import Options, Sizes, Task
from tputui.config import RunConfig

A_KEY = re.compile(r"data\.\w+")


class Plan(NamedTuple):
    """A configuration that can be trained."""

    config: RunConfig
    """With the number of cores in place of `device.cores = "all"`."""
    task: Task
    data: Options
    """The task's keys of `[data]`."""
    model: Options
    """The task's keys of `[model]`."""
    machine: Machine
    sizes: Sizes

    @property
    def steps_per_epoch(self) -> int:
        """Whole global batches in the training split, or as many of them as the configuration says, for a whole number
        of updates; what is left over is dropped, another part each epoch."""
        whole = self.sizes.train // self.config.global_batch
        steps, accumulate = min(whole, self.config.data.batches_per_epoch or whole), self.config.optim.accumulate
        return steps - steps % accumulate

    def learning_rate(self, epoch: int, batch: int) -> float:
        """Learning rate of the update that the batch, from 0, of the epoch, from 1, belongs to."""
        return schedule.learning_rate(self.config, self.steps_per_epoch, epoch, batch)

    def updates(self, batch: int) -> bool:
        """Whether the weights are updated by the batch of an epoch, from 0."""
        return (batch + 1) % self.config.optim.accumulate == 0

    @property
    def max_bad_rows(self) -> int:
        """Examples that may be left out."""
        return getattr(self.data, "max_bad_rows", 0)

    @property
    def has_own_loop(self) -> bool:
        """Whether the task is trained by a loop of its own, which alone knows sizes and figures."""
        return self.task.builder != Task.builder

    @property
    def num_processes(self) -> int:
        """How many processes train."""
        return machines.num_processes(self.config, self.machine)

    @property
    def keeps_norms(self) -> bool:
        """Whether each step works out the norm of its gradient: only where something is done about it."""
        return self.config.non_finite.policy != "continue"

    @property
    def valid_steps(self) -> int:
        """Evaluation batches; the last is padded."""
        return -(-self.sizes.valid // self.config.global_batch)

    def facts(self) -> dict[str, Any]:
        """The plan's figures for a person and for programs; what only a loop of its own will know is None."""
        facts = self._facts()
        unknown = ("steps_per_epoch", "valid_steps", "total_steps", "train_examples", "valid_examples", "meters")
        return {**facts, **dict.fromkeys(unknown)} if self.has_own_loop else facts

    def _facts(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "device": self.machine.device,
            "device_reason": self.machine.reason,
            "device_warning": self.machine.warning,
            "num_cores": self.config.num_cores,
            "batch_per_core": self.config.batch_per_core,
            "global_batch": self.config.global_batch,
            "steps_per_epoch": self.steps_per_epoch,
            "valid_steps": self.valid_steps,
            "total_steps": self.steps_per_epoch * self.config.epochs,
            "train_examples": self.sizes.train,
            "valid_examples": self.sizes.valid,
            "lr": self.config.scaled_lr,
            "lr_rule": self.config.lr_rule,
            "meters": list(self.task.meters),
            "scores": list(self.task.scores),
            "num_folds": self.task.num_folds(self.data),
        }


def make(config: RunConfig, machine: Machine, source: str) -> Plan:
    """Checks the configuration against the task and the machine. Raises `Refused` with every problem found."""
    problems = machines.core_problems(config, machine)
    config = machines.resolved(config, machine)
    if (why := config.share_problem) is not None:
        # Every size follows from the share of a core.
        raise Refused([*problems, Problem("data.global_batch", why)])
    try:
        task, data, model = registry.with_options(registry.find(config.task), config, source)
        plan = Plan(config, task, data, model, machine, _sizes(task, data, config.seed))
    except Refused as refused:
        raise Refused(problems + refused.problems) from refused
    problems += _problems(plan)
    if problems:
        raise Refused(problems)
    return plan


def _sizes(task: Task, data: Options, seed: int) -> Sizes:
    """The splits' sizes. What cannot be read or used is told of its key in `[data]`, any other failure of the task."""
    try:
        found: Any = task.sizes(data, seed)
    except Refused:
        raise
    except (OSError, ValueError) as error:
        raise Refused([_of_data(error)]) from error
    except (Exception, SystemExit) as error:  # It is the user's code, and a script may even end the process.
        raise Refused([Problem("task", f"sizes() failed: {registry.reason(error)}")]) from error
    if (
        not isinstance(found, tuple)
        or len(found) != 2
        or not all(isinstance(size, int) and size >= 0 for size in found)
    ):
        raise Refused([Problem("task", f"sizes() returned {found!r}; it is to return Sizes(train, valid)")])
    return Sizes(*found)


def _of_data(error: OSError | ValueError) -> Problem:
    """What the task says of the user's files; where it only broke over them, that it was in `sizes`."""
    if isinstance(error, OSError) and error.filename is not None:
        return Problem("data", f"{error.filename}: {error.strerror}")
    if isinstance(error, BadSource) or (isinstance(error, OSError) and error.errno is None):
        key, _, words = str(error).partition(": ")
        return Problem(key, words) if A_KEY.fullmatch(key) else Problem("data", str(error))
    return Problem("data", f"sizes() failed: {registry.reason(error)}")


def _problems(plan: Plan) -> list[Problem]:
    config, problems = plan.config, plan.task.problems(plan)
    if plan.has_own_loop:
        if plan.num_processes > 1:
            message = '"replica" is not for a task with a loop of its own; write "spmd"'
            problems = [*problems, Problem("device.strategy", message)]
        return problems
    if config.device.precision not in ("fp32", "bf16"):
        message = f'"{config.device.precision}" is no format that a TPU computes in; write "bf16"'
        problems.append(Problem("device.precision", message))
    batches = min(plan.sizes.train // config.global_batch, config.data.batches_per_epoch or plan.sizes.train)
    if 0 < batches < config.optim.accumulate:
        message = f"{config.optim.accumulate} batches for an update are more than the {batches} of an epoch"
        problems.append(Problem("optim.accumulate", message))
    elif plan.steps_per_epoch == 0:
        key = "data.batch_per_core" if config.data.batch_per_core is not None else "data.global_batch"
        largest = plan.sizes.train // config.num_cores
        fits = f"at most {largest} a core" if largest else f"at most {plan.sizes.train} cores"
        problems.append(
            Problem(key, f"a global batch of {config.global_batch} is more than the {plan.sizes.train} training "
                         f"examples, so there would be no step; {fits} would do")
        )  # fmt: skip
    if plan.sizes.valid == 0:
        problems.append(Problem("data", "the validation split holds no example"))
    figures = plan.task.meters + plan.task.scores
    if config.checkpoint.monitor not in figures:
        message = f'"{config.checkpoint.monitor}" is not a figure of the task; its figures: {", ".join(figures)}'
        problems.append(Problem("checkpoint.monitor", message))
    return problems
