"""Checks a configuration in full: finds its task, and computes sizes and step counts, the `Plan` of the run.

Quick and without torch: the check before a run prints it before anything starts.
"""

from __future__ import annotations

import difflib
import importlib
import re
from typing import Any

import msgspec

from engine.errors import BadSource, NotImported, Problem, Refused
from engine.process import hardware as machines
from engine.process.hardware import Machine
from engine.task import Options, Plan, Sizes, Task, Workload
from tputui.config import RunConfig, data_keys, field_docs, unknown_key
from tputui.reporting import one_line

KNOWN_TASKS = {
    "digits": "engine.tasks.digits:Digits",
    "image_labels": "engine.tasks.image_labels:ImageLabels",
    "lightning": "engine.lightning.task:Lightning",
    "mask_depth": "engine.tasks.mask_depth:MaskDepth",
    "sentiment": "engine.tasks.sentiment:Sentiment",
    "tabular": "engine.tasks.tabular:Tabular",
}
"""Tasks that ship with tputui."""
A_KEY = re.compile(r"data\.\w+")


def make(config: RunConfig, machine: Machine, source: str, num_hosts: int = 1) -> Plan:
    """Checks the configuration against the task and the machine, one of `num_hosts` alike. Raises `Refused` with every
    problem found."""
    if num_hosts > 1 and find_task(config.task).builder != Task.builder:
        # First, because no other strategy would help.
        message = f'"{config.task}" has a loop of its own, which trains on one host; the run has {num_hosts}'
        raise Refused.of("task", message)
    problems = machines.core_problems(config, machine) + machines.host_problems(config, machine, num_hosts)
    config = machines.resolved(config, machine, num_hosts)
    if (why := config.share_problem) is not None:
        # Every size depends on the batch of a core.
        raise Refused([*problems, Problem("data.global_batch", why)])
    try:
        work = configured(find_task(config.task), config, source)
        sizes = _sizes(work.task, work.data, config.seed)
        plan = Plan(**vars(work), machine=machine, sizes=sizes, num_hosts=num_hosts)
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
        raise Refused.of("task", f"sizes() failed: {one_line(error)}") from error
    if (
        not isinstance(found, tuple)
        or len(found) != 2
        or not all(isinstance(size, int) and size >= 0 for size in found)
    ):
        raise Refused.of("task", f"sizes() returned {found!r}; it must return Sizes(train, valid)")
    return Sizes(*found)


def _of_data(error: OSError | ValueError) -> Problem:
    """The task's error about the user's files; for other errors, that `sizes` failed."""
    if isinstance(error, OSError) and error.filename is not None:
        return Problem("data", f"{error.filename}: {error.strerror}")
    if isinstance(error, BadSource) or (isinstance(error, OSError) and error.errno is None):
        key, _, words = str(error).partition(": ")
        return Problem(key, words) if A_KEY.fullmatch(key) else Problem("data", str(error))
    return Problem("data", f"sizes() failed: {one_line(error)}")


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


def find_task(name: str) -> Task:
    """The task called `name`, or the one at `module:Class`. Raises `Refused`."""
    target = KNOWN_TASKS.get(name, name)
    module_name, colon, class_name = target.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, KNOWN_TASKS, n=1, cutoff=0.5)
        hint = f'did you mean "{near[0]}"?' if near else f"known tasks: {', '.join(sorted(KNOWN_TASKS))}"
        raise Refused.of("task", f'there is no task "{name}"; {hint}')
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
        defects = _defects(cls)
        if not defects:
            task: Task = cls()
            return task
    except (Exception, SystemExit) as error:  # User code: even an exit of the process must become an error.
        raise NotImported.of("task", f'"{name}" cannot be imported: {one_line(error)}') from error
    raise Refused.of("task", f'"{name}" is not a task: {"; ".join(defects)}')


def _defects(cls: Any) -> list[str]:
    """Why a class is not a valid task, one reason each; types of results are checked when they are returned."""
    if not isinstance(cls, type) or not issubclass(cls, Task):
        return ["it is not a subclass of engine.task.Task"]
    defects = [
        f"{name} is not a subclass of Options"
        for name in ("data_options", "model_options")
        if not (isinstance(options := getattr(cls, name, None), type) and issubclass(options, Options))
    ]
    meters = getattr(cls, "meters", None)
    if not isinstance(meters, tuple) or meters[:1] != ("loss",) or not all(isinstance(name, str) for name in meters):
        defects.append('meters is not a tuple of names that begins with "loss"')
    return defects + [f"{name}() is missing" for name in sorted(cls.__abstractmethods__)]


def configured(task: Task, config: RunConfig, source: str) -> Workload:
    """The task with its options from the configuration; `source` names the file. Raises `Refused`."""
    problems: list[Problem] = []
    data = _options(task, config.data.options, "data", source, problems)
    model = _options(task, config.model, "model", source, problems)
    if data is None or model is None:
        raise Refused(problems)
    task.configure(data, model)
    return Workload(config, task, data, model)


def _options(task: Task, given: dict[str, Any], table: str, source: str, problems: list[Problem]) -> Options | None:
    cls = task.data_options if table == "data" else task.model_options
    own = list(cls.__struct_fields__)
    others = {"data": [*task.data_options.__struct_fields__], "model": [*task.model_options.__struct_fields__]}
    unknown = [key for key in given if key not in own]
    known = [*data_keys(), *own] if table == "data" else own
    for key in unknown:
        sentence = unknown_key(source, f"{table}.{key}", known, others).removeprefix(f"{source}: ")
        problems.append(Problem(f"{table}.{key}", sentence))
    if unknown:
        return None
    try:
        return msgspec.convert(given, cls)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        key = path.rstrip("`")
        meaning = field_docs(cls).get(key, "")
        words = (message[:1].lower() + message[1:]).replace("`", "")
        full = f"{table}.{key}" if key else table
        problems.append(
            Problem(full, f"{given.get(key)!r} cannot be used: {words}" + (f": {meaning}" if meaning else ""))
        )
        return None
