"""The launcher's way to the engine and to commands of the user: checks, and starting runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Event

from tputui import config, data_sets
from tputui.check_result import CheckResult, TaskDescription
from tputui.cli import alert, script
from tputui.cli.console import CommandError
from tputui.cli.launch import (
    call_engine,
    check_with_engine,
    create_run,
    decode_answer,
    last_checkpoint,
    request_check,
    several_hosts,
    start_supervisor,
)
from tputui.environment import environment_problem, launch_problem
from tputui.telemetry import rundir
from tputui.ui.launch.checker import Launch, LaunchError


class EngineLaunchService:
    """What the launcher on the screen needs: checks by the engine, and starting runs in `parent`.

    Every call blocks; setting `stop` kills the engine process that a call waits for. Errors are the sentences of
    `tputui run --detach`.
    """

    def __init__(self, parent: Path, environ: Mapping[str, str] | None = None) -> None:
        self._parent = parent
        self._environ = os.environ if environ is None else environ
        self.supervisors: list[subprocess.Popen[bytes]] = []
        """Supervisors of the runs started here. They outlive this process; those that end earlier are reaped."""

    def machine_error(self) -> str | None:
        """Why this machine cannot train; None if it can."""
        return environment_problem(self._environ)

    def data_sets(self) -> dict[str, bool]:
        """The data sets of the engine's catalog, each with whether it was fetched; empty if it cannot be read."""
        try:
            return {name: folder is not None for name, folder in data_sets.fetched().items()}
        except OSError:
            return {}

    def describe(self, task: str, stop: Event) -> TaskDescription:
        """The options of a task. Raises `LaunchError`."""
        try:
            done = call_engine(["--", task], stop=stop)
            return decode_answer(done, TaskDescription, f"the options of {task} are not available")
        except (CommandError, OSError) as error:
            raise LaunchError(str(error)) from None

    def check(self, launch: Launch, stop: Event, *, memory: bool) -> CheckResult:
        """Checks a configuration on this machine. Raises `LaunchError`."""
        try:
            if config.is_script(launch.tables):
                of_script = config.script_from_builtins(dict(launch.tables), launch.source)
                alert.check(of_script.alerts, launch.source, environ=self._environ)
                script.prepared(of_script, launch.source)
                return CheckResult(problems=[], facts={})
            loaded = config.from_builtins(dict(launch.tables), launch.source)
            alert.check(loaded.alerts, launch.source, environ=self._environ)
            if (problem := several_hosts(loaded)) is not None:
                return CheckResult(problems=[problem], facts={})
            resume = last_checkpoint(launch.resume) if launch.resume is not None else None
            call = partial(call_engine, stop=stop)
            return request_check(loaded, launch.source, resume, memory=memory, call=call)
        except (CommandError, config.ConfigError, OSError) as error:
            raise LaunchError(str(error)) from None

    def start(self, launch: Launch) -> Path:
        """Checks everything again and starts the run, detached; returns its directory. Raises `LaunchError`."""
        of_script = config.is_script(launch.tables)
        problem = launch_problem() if of_script else self.machine_error()
        if problem is not None:
            raise LaunchError(problem)
        if launch.name is not None and not rundir.is_name(launch.name):
            raise LaunchError(f"name: {launch.name!r}: run names may contain letters, digits, . - _")
        tables, source, command, resume = dict(launch.tables), launch.source, None, None
        loaded: config.RunConfig | config.ScriptRun
        try:
            if of_script:
                loaded = config.script_from_builtins(tables, source)
                alert.check(loaded.alerts, source)
                command = script.prepared(loaded, source)
            else:
                loaded = config.from_builtins(tables, source)
                alert.check(loaded.alerts, source)
                resume = last_checkpoint(launch.resume) if launch.resume is not None else None
                check_with_engine(loaded, source, resume)
            run_dir = create_run(
                self._parent,
                loaded,
                config_path=source,
                name=launch.name,
                resume=resume,
                argv=list(launch.argv),
                command=command,
            )
            self.supervisors = [supervisor for supervisor in self.supervisors if supervisor.poll() is None]
            self.supervisors.append(start_supervisor(run_dir, command))
        except (CommandError, config.ConfigError, OSError) as error:
            raise LaunchError(str(error)) from None
        return run_dir
