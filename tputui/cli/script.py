"""Starts a command of the user as a run: checks the command, creates the run directory, starts its supervisor."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from tputui import config
from tputui.cli.console import UsageError
from tputui.cli.hosts import LaunchPlace
from tputui.formatting import inert
from tputui.logs.console import check_pattern
from tputui.logs.tags import BadPattern, TagRule
from tputui.supervise.command import RunCommand, environment
from tputui.telemetry import redaction
from tputui.telemetry.rank_environment import RUN_HOST_INDEX, RUN_NUM_HOSTS

_NONE: Mapping[str, object] = MappingProxyType({})


def from_words(command: Sequence[str], tables: Mapping[str, object] = _NONE) -> config.ScriptRun:
    """The configuration of the command after `tputui run --`, with further tables. Raises `CommandError`."""
    if not command or not command[0]:
        words_missing = "there is no command after --, such as `tputui run -- python train.py`"
        raise UsageError(f"run: {words_missing}")
    return config.ScriptRun(
        script=config.ScriptConfig(command=list(command)),
        alerts=msgspec.convert(tables.get("alerts", {}), config.AlertsConfig),
        diagnosis=msgspec.convert(tables.get("diagnosis", {}), config.DiagnosisConfig),
        launch=msgspec.convert(tables.get("launch", {}), config.LaunchConfig),
    )


def prepared(run: config.ScriptRun, source: str, environ: Mapping[str, str] | None = None) -> RunCommand:
    """The command as the operating system runs it, after checking that it can. Raises `CommandError`.

    Its environment does not have the place of a host in another run; `at_host` adds its own.
    """
    script = run.script
    if masked := _masked_value(script):
        raise UsageError(f"{inert(source)}: {inert(masked)}: a run does not keep secrets; enter this value again")
    cwd = Path(script.cwd) if script.cwd is not None else Path.cwd()
    if not cwd.is_dir():
        raise UsageError(f"{inert(source)}: script.cwd: {inert(str(cwd))} is not a directory")
    try:
        TagRule(script.tags.pattern)
    except BadPattern as error:
        raise UsageError(f"{inert(source)}: script.tags.pattern: {inert(str(error))}") from None
    pattern = script.console.pattern
    if pattern is not None and (reason := check_pattern(pattern)) is not None:
        raise UsageError(f"{inert(source)}: script.console.pattern: {inert(reason)}")
    env = environment(os.environ if environ is None else environ, script.env)
    for name in (RUN_HOST_INDEX, RUN_NUM_HOSTS):
        env.pop(name, None)
    program = script.command[0]
    problem = _problem(program, cwd, env.get("PATH", os.defpath))
    if problem is not None:
        raise UsageError(f"{inert(source)}: {inert(program)}: {problem}")
    return RunCommand(script.command, env, str(cwd.resolve()))


def shown_command(words: Sequence[str]) -> str:
    """The command as a line of a shell, with its secrets masked."""
    return shlex.join(redaction.masked_argv(words))


def at_host(command: RunCommand, place: LaunchPlace) -> RunCommand:
    """The command with the index of its host, and the number of hosts, in its environment."""
    of_host = {RUN_HOST_INDEX: str(place.host_index), RUN_NUM_HOSTS: str(place.launch.num_hosts)}
    return command._replace(environ={**command.environ, **of_host})


def _masked_value(script: config.ScriptConfig) -> str | None:
    """The key of a value that was masked in the record of an earlier run; None if there is none."""
    if any(redaction.MASK in word for word in script.command):
        return "script.command"
    return next((f"script.env.{name}" for name, value in script.env.items() if redaction.MASK in value), None)


def _problem(program: str, cwd: Path, path: str) -> str | None:
    """Why a program cannot be executed; None if it can."""
    if os.sep not in program:
        if shutil.which(program, path=path) is not None:
            return None
        there = cwd / program
        if there.is_file():
            return f"no such command in PATH; the file {program} of this directory is run as ./{program}"
        return "no such command in PATH"
    file = cwd / program
    if not file.exists():
        return "no such file"
    if file.is_dir():
        return "a directory, not a program"
    return None if os.access(file, os.X_OK) else "not executable; run it with its interpreter, or `chmod +x` it"
