"""What the launcher on the screen has done for it, on the path that `tputui run --detach` takes.

Refuses in the same sentences, without the exit code. Every call blocks; `stop` gives up a process that is waited for.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Event

from tputui import config
from tputui.check_result import CheckResult, TaskDescription
from tputui.cli import launch as starting
from tputui.cli.console import CommandError
from tputui.cli.environment import environment_problem
from tputui.telemetry import rundir
from tputui.ui.launch.service import Launch, LaunchError


class EngineLaunchService:
    """Asks the engine by command line, and starts runs in `parent`."""

    def __init__(self, parent: Path, environ: Mapping[str, str] | None = None) -> None:
        self._parent = parent
        self._environ = os.environ if environ is None else environ
        self.supervisors: list[subprocess.Popen[bytes]] = []
        """Of the runs that were started here: they outlive this process, and are collected where they end before."""

    def why_not_here(self) -> str | None:
        """Why this machine cannot train; None where it can."""
        return environment_problem(self._environ)

    def describe(self, task: str, stop: Event) -> TaskDescription:
        """The keys of a task. Raises `LaunchError`."""
        try:
            done = starting.call_engine(["--", task], stop=stop)
            return starting.answer_of(done, TaskDescription, f"the options of {task} are not available")
        except (CommandError, OSError) as error:
            raise LaunchError(str(error)) from None

    def check(self, launch: Launch, stop: Event, *, memory: bool) -> CheckResult:
        """Whether it can be trained, and what it comes to. Raises `LaunchError`."""
        try:
            loaded = config.from_builtins(dict(launch.tables), launch.source)
            resume = starting.last_checkpoint(launch.resume) if launch.resume is not None else None
            call = partial(starting.call_engine, stop=stop)
            return starting.ask_engine(loaded, launch.source, resume, memory=memory, call=call)
        except (CommandError, config.ConfigError, OSError) as error:
            raise LaunchError(str(error)) from None

    def start(self, launch: Launch) -> Path:
        """Checks all again and starts it, detached; the directory of the run. Raises `LaunchError`."""
        problem = self.why_not_here()
        if problem is not None:
            raise LaunchError(problem)
        if launch.name is not None and not rundir.is_name(launch.name):
            raise LaunchError(f"name: {launch.name!r} has other characters than letters, digits, dots, dashes and _")
        try:
            loaded = config.from_builtins(dict(launch.tables), launch.source)
            resume = starting.last_checkpoint(launch.resume) if launch.resume is not None else None
            starting.check_with_engine(loaded, launch.source, resume)
            run_dir = starting.create_run(
                self._parent,
                loaded,
                config_path=launch.source,
                name=launch.name,
                resume=resume,
                argv=list(launch.argv),
            )
            self.supervisors = [each for each in self.supervisors if each.poll() is None]
            self.supervisors.append(starting.start(run_dir))
        except (CommandError, config.ConfigError, OSError) as error:
            raise LaunchError(str(error)) from None
        return run_dir
