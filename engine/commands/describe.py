"""Prints the options of a task, or checks whether a configuration can be trained.

    python -P -m engine.commands.describe TASK

    TASK                     print the options with types, defaults and documentation as JSON
    TASK --check             read a configuration as JSON on stdin; print its problems and figures as JSON
    TASK --check --resume P  as --check, and whether the checkpoint P can be resumed with the configuration
    TASK --check --memory    as --check, and the predicted memory of a step on one core
    TASK --layers CONFIG     print the layers of the network in a TOML file: output shapes and parameter counts

The JSON is that of `tputui.check_result`. Exits with 0 on success, 2 if there is no such task or the input is not a
configuration. Imports torch only to read a checkpoint, to predict memory and to list layers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from engine import run_plan
from engine.errors import Refused
from engine.process import hardware, user_code
from engine.task import Options, Plan
from tputui.config import ConfigError, RunConfig, class_doc, field_docs, from_builtins, load
from tputui.engine_api import CheckResult, ExitCode, Option, TaskDescription
from tputui.reporting import events as ev
from tputui.reporting import one_line


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -P -m engine.commands.describe", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("task", help="name of a task, or module:Class")
    parser.add_argument("--check", action="store_true", help="check the configuration given as JSON on stdin")
    parser.add_argument("--resume", type=Path, metavar="PATH", help="with --check: also check this checkpoint")
    parser.add_argument("--memory", action="store_true", help="with --check: also predict the memory of a step")
    parser.add_argument("--layers", type=Path, metavar="CONFIG", help="print the layers of a configuration as text")
    parser.add_argument("--source", default="configuration", help="name of the configuration in messages")
    arguments = parser.parse_args(argv)
    user_code.allow_imports_from_here()
    answer: str | TaskDescription | CheckResult
    try:
        # Prints of the user's modules must not mix with the answer.
        with contextlib.redirect_stdout(sys.stderr):
            if arguments.check:
                answer = _check(sys.stdin.buffer.read(), arguments.source, arguments.resume, memory=arguments.memory)
            elif arguments.layers is not None:
                answer = _layers(load(arguments.layers), str(arguments.layers))
            else:
                answer = describe(arguments.task)
    except (Refused, ConfigError) as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    sys.stdout.write((answer if isinstance(answer, str) else json.dumps(msgspec.to_builtins(answer))) + "\n")
    return ExitCode.DONE


def describe(name: str) -> TaskDescription:
    """A task with its options. Raises `Refused` if there is no such task."""
    task = run_plan.find_task(name)
    options = {"data": _options(task.data_options), "model": _options(task.model_options)}
    return TaskDescription(name, class_doc(type(task)), list(task.meters), options)


def check(
    config: RunConfig, machine: hardware.Machine, source: str, resume: Path | None = None, *, memory: bool = False
) -> CheckResult:
    """The problems of a configuration on a machine, and its figures if it can be trained.

    `memory` also predicts the memory of a step.
    """
    facts: dict[str, Any] = {}
    try:
        planned = run_plan.make(config, machine, source, config.launch.num_hosts)
        facts = planned.facts()
        if resume is not None:
            from engine.checkpoint import checkpoint_store

            checkpoint_store.load(resume, planned)
        forecast, why_not = _memory(planned) if memory else (None, None)
    except Refused as refused:
        return CheckResult(refused.problems, facts)
    return CheckResult([], facts, forecast, why_not)


def _layers(config: RunConfig, source: str) -> str:
    """The table of layers. Raises `Refused`."""
    planned = run_plan.make(config, hardware.find(os.environ), source)
    if planned.has_own_loop:
        message = "only the task's own loop knows its network; `tputui show RUN --model` lists its layers"
        raise Refused.of("task", message)
    if (lacking := hardware.package_problem()) is not None:
        raise Refused.of("", lacking)
    from engine.memory import estimate, layer_table
    from tputui.engine_api import layers_text

    try:
        return layers_text(
            layer_table.trace_layers(planned, planned.task.load(planned.data, planned.config.seed).train)
        )
    except estimate.Unpredictable as error:
        raise Refused.of("task", str(error)) from error


def _memory(planned: Plan) -> tuple[ev.MemoryForecast | None, str | None]:
    """The predicted memory of a step, or the reason why it is not available."""
    if planned.has_own_loop:
        return None, "only the task's own loop knows its network"
    try:
        from engine.memory import advice, estimate

        splits = planned.task.load(planned.data, planned.config.seed)
        try:
            return advice.to_event(advice.predict(planned, splits.train)), None
        except estimate.Unpredictable as error:
            return None, str(error)
    except Refused:
        raise
    except (Exception, SystemExit) as error:  # Torch may be missing, and loading runs the user's own code.
        lacking = hardware.package_problem() if isinstance(error, ImportError) else None
        return None, lacking or one_line(error)


def _check(text: bytes, source: str, resume: Path | None, *, memory: bool) -> CheckResult:
    try:
        tables = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{source}: not a configuration as JSON: {error}") from None
    return check(from_builtins(tables, source), hardware.find(os.environ), source, resume, memory=memory)


def _options(cls: type[Options]) -> list[Option]:
    docs = field_docs(cls)
    types = get_type_hints(cls, include_extras=True)
    schemas = _schemas(cls)
    return [
        Option(
            key=field.name,
            schema=schemas[field.encode_name],
            doc=docs.get(field.name, ""),
            type=_type_name(types[field.name]),
            default=None if field.default is msgspec.NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(cls)
    ]


def _schemas(cls: type[Options]) -> dict[str, Any]:
    """The JSON schema of each key: bounds, choices, and the default if it has one, including those of factories."""
    _, components = msgspec.json.schema_components([cls])
    properties: dict[str, Any] = components[cls.__name__]["properties"]
    for field in msgspec.structs.fields(cls):
        if field.default_factory is not msgspec.NODEFAULT:
            properties[field.encode_name]["default"] = msgspec.to_builtins(field.default_factory())
    return properties


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")


if __name__ == "__main__":
    sys.exit(main())
