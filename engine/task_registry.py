"""Finds a task by its name and checks its options. Must not import torch."""

from __future__ import annotations

import difflib
import importlib
from typing import Any, NamedTuple

import msgspec

from engine.errors import NotImported, Problem, Refused, text_of
from engine.task import Options, Task
from tputui.config import RunConfig, data_keys, unknown_key
from tputui.field_docs import field_docs

KNOWN = {
    "digits": "engine.tasks.digits:Digits",
    "image_labels": "engine.tasks.image_labels:ImageLabels",
    "lightning": "engine.lightning.task:Lightning",
    "mask_depth": "engine.tasks.mask_depth:MaskDepth",
    "sentiment": "engine.tasks.sentiment:Sentiment",
    "tabular": "engine.tasks.tabular:Tabular",
}
"""Tasks that ship with tputui."""


class TaskOptions(NamedTuple):
    """A task with its checked options."""

    task: Task
    data: Options
    model: Options


def find(name: str) -> Task:
    """The task called `name`, or the one at `module:Class`. Raises `Refused`."""
    target = KNOWN.get(name, name)
    module_name, colon, class_name = target.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.5)
        hint = f'did you mean "{near[0]}"?' if near else f"known tasks: {', '.join(sorted(KNOWN))}"
        raise Refused([Problem("task", f'there is no task "{name}"; {hint}')])
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
        lacking = _lacking(cls)
        if not lacking:
            task: Task = cls()
            return task
    except (Exception, SystemExit) as error:  # User code: even an exit of the process must become an error.
        raise NotImported([Problem("task", f'"{name}" cannot be imported: {reason(error)}')]) from error
    raise Refused([Problem("task", f'"{name}" is not a task: {"; ".join(lacking)}')])


def reason(error: BaseException) -> str:
    """An exception of user code in one line: its type, and the first line of its message."""
    lines = text_of(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _lacking(cls: Any) -> list[str]:
    """Why a class is not a valid task, one reason each; types of results are checked when they are returned."""
    if not isinstance(cls, type) or not issubclass(cls, Task):
        return ["it is not a subclass of engine.task.Task"]
    lacking = [
        f"{name} is not a subclass of Options"
        for name in ("data_options", "model_options")
        if not _is_options(getattr(cls, name, None))
    ]
    meters = getattr(cls, "meters", None)
    if not isinstance(meters, tuple) or meters[:1] != ("loss",) or not all(isinstance(name, str) for name in meters):
        lacking.append('meters is not a tuple of names that begins with "loss"')
    return lacking + [f"{name}() is missing" for name in sorted(cls.__abstractmethods__)]


def _is_options(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, Options)


def with_options(task: Task, config: RunConfig, source: str) -> TaskOptions:
    """The task with its options from the configuration; `source` names the file. Raises `Refused`."""
    problems: list[Problem] = []
    data = _options(task, config.data.options, "data", source, problems)
    model = _options(task, config.model, "model", source, problems)
    if data is None or model is None:
        raise Refused(problems)
    task.configure(data, model)
    return TaskOptions(task, data, model)


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
