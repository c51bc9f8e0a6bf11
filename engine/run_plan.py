"""Checks a configuration in full and computes its sizes and step counts: the `Plan` that the worker trains by.

Quick and without torch: the check before a run prints it before anything starts.
"""

from __future__ import annotations

import re
from typing import Any

from engine import task_registry
from engine.errors import BadSource, Problem, Refused
from engine.process import hardware as machines
from engine.process.hardware import Machine
from engine.task import Options, Plan, Sizes, Task
from tputui.config import RunConfig

A_KEY = re.compile(r"data\.\w+")


def make(config: RunConfig, machine: Machine, source: str) -> Plan:
    """Checks the configuration against the task and the machine. Raises `Refused` with every problem found."""
    problems = machines.core_problems(config, machine)
    config = machines.resolved(config, machine)
    if (why := config.share_problem) is not None:
        # Every size depends on the batch of a core.
        raise Refused([*problems, Problem("data.global_batch", why)])
    try:
        task, data, model = task_registry.with_options(task_registry.find(config.task), config, source)
        plan = Plan(config, task, data, model, machine, _sizes(task, data, config.seed))
    except Refused as refused:
        raise Refused(problems + refused.problems) from refused
    problems += _problems(plan)
    if problems:
        raise Refused(problems)
    return plan


def _sizes(task: Task, data: Options, seed: int) -> Sizes:
    """The sizes of the splits. Raises `Refused` under the key of `[data]` for unusable data, under `task` for other
    errors."""
    try:
        found: Any = task.sizes(data, seed)
    except Refused:
        raise
    except (OSError, ValueError) as error:
        raise Refused([_of_data(error)]) from error
    except (Exception, SystemExit) as error:  # User code: even an exit of the process must become an error.
        raise Refused([Problem("task", f"sizes() failed: {task_registry.reason(error)}")]) from error
    if (
        not isinstance(found, tuple)
        or len(found) != 2
        or not all(isinstance(size, int) and size >= 0 for size in found)
    ):
        raise Refused([Problem("task", f"sizes() returned {found!r}; it must return Sizes(train, valid)")])
    return Sizes(*found)


def _of_data(error: OSError | ValueError) -> Problem:
    """The task's error about the user's files; for other errors, that `sizes` failed."""
    if isinstance(error, OSError) and error.filename is not None:
        return Problem("data", f"{error.filename}: {error.strerror}")
    if isinstance(error, BadSource) or (isinstance(error, OSError) and error.errno is None):
        key, _, words = str(error).partition(": ")
        return Problem(key, words) if A_KEY.fullmatch(key) else Problem("data", str(error))
    return Problem("data", f"sizes() failed: {task_registry.reason(error)}")


def _problems(plan: Plan) -> list[Problem]:
    config, problems = plan.config, plan.task.problems(plan)
    if plan.has_own_loop:
        if plan.num_processes > 1:
            message = '"replica" is not for a task with a loop of its own; write "spmd"'
            problems = [*problems, Problem("device.strategy", message)]
        return problems
    if config.device.precision not in ("fp32", "bf16"):
        message = f'"{config.device.precision}" is not supported by the TPU; write "bf16"'
        problems.append(Problem("device.precision", message))
    batches = min(plan.sizes.train // config.global_batch, config.data.batches_per_epoch or plan.sizes.train)
    if 0 < batches < config.optim.accumulate:
        message = f"{config.optim.accumulate} batches per update are more than the {batches} of an epoch"
        problems.append(Problem("optim.accumulate", message))
    elif plan.steps_per_epoch == 0:
        key = "data.batch_per_core" if config.data.batch_per_core is not None else "data.global_batch"
        largest = plan.sizes.train // config.num_cores
        fits = f"at most {largest} a core" if largest else f"at most {plan.sizes.train} cores"
        problems.append(
            Problem(key, f"a global batch of {config.global_batch} is more than the {plan.sizes.train} training "
                         f"examples, so there would be no step; use {fits}")
        )  # fmt: skip
    if plan.sizes.valid == 0:
        problems.append(Problem("data", "the validation split has no examples"))
    figures = plan.task.meters + plan.task.scores
    if config.checkpoint.monitor not in figures:
        message = f'"{config.checkpoint.monitor}" is not a figure of the task; its figures: {", ".join(figures)}'
        problems.append(Problem("checkpoint.monitor", message))
    return problems
