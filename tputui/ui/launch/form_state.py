"""A run that is being prepared: the form with what is known of it, from the newest check. Pure.

Says at every moment whether the run may be started, and why not. What the engine says of an older state of the form
is not taken.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Literal, NamedTuple

from tputui.check_result import CheckResult, Problem
from tputui.config import ConfigError, RunConfig
from tputui.telemetry import rundir
from tputui.ui.launch.checker import Asked, Told
from tputui.ui.launch.configs import ConfigOffer
from tputui.ui.launch.form import NAME, Form
from tputui.ui.launch.service import Launch

State = Literal["checking", "wrong", "ready", "starting"]


class Picked(NamedTuple):
    """A configuration to begin with."""

    offer: ConfigOffer
    resume: bool
    """Whether to go on from the last checkpoint of the run that it is of."""


class Readiness(NamedTuple):
    """Whether the run may be started."""

    state: State
    said: str
    """Why not, or how."""


class FormState:
    """A form, and what is known of it."""

    def __init__(self, picked: Picked, taken: Collection[str]) -> None:
        """`taken` are names that runs have already."""
        self.picked = picked
        self.form = Form(picked.offer.tables, picked.offer.source)
        self.verdict: CheckResult | None = None
        """What the engine says of the form as it is; None until it did."""
        self.is_checking = True
        self.is_measuring = False
        """Whether memory is still being predicted."""
        self.why_not_here = ""
        """Why this machine cannot train."""
        self.is_starting = False
        self.number = 0
        """Another one whenever the form is."""
        self._taken = taken
        self._own: list[Problem] = []
        self._why_not_checked = ""

    @property
    def task(self) -> str:
        """The task as it stands in the form."""
        return self.form.text("task").strip()

    @property
    def problems(self) -> list[Problem]:
        """Everything that is wrong: what is known at once, else what the engine found."""
        return self._own or list(self.verdict.problems if self.verdict is not None else ())

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong, the run's name aside, as far as it is known at once: then it can be written."""
        return all(problem.key == NAME for problem in self._own)

    def changed(self) -> Asked:
        """The form is another one: looks at what can be known at once, and gives what is to be checked."""
        if self.form.task is not None and self.form.task.task != self.task:
            self.form.describe(None)
        self._look()
        self.verdict, self.is_measuring, self._why_not_checked = None, False, ""
        self.is_checking = True
        self.number += 1
        return Asked(self.number, self.task, None if self._own else self.launch())

    def take(self, told: Told) -> Asked | None:
        """Takes news of the engine; gives what is to be checked anew where the news changed what is known at once."""
        if told.description is not None:
            if told.task == self.task and self.form.task is None:
                self.form.describe(told.description)
                before = self._own
                self._look()
                if before and not self._own:
                    return self.changed()
            if told.number == self.number and self._own:
                self.is_checking = False
        elif told.number == self.number:
            self.is_checking = False
            self.verdict = told.verdict if told.verdict is not None else self.verdict
            key, _, message = told.why_not.partition(": ")
            if message and key in {field.key for field in self.form.fields}:
                self._own = [Problem(key, message)]
            else:
                self._why_not_checked = told.why_not
            self.is_measuring = not told.is_whole and not told.why_not
        return None

    def failed(self, why_not: str) -> None:
        """It could not be started."""
        self.is_starting = False
        self._why_not_checked = why_not

    def config(self) -> RunConfig | None:
        """The configuration; None while something is wrong with it."""
        try:
            return None if self._own else self.form.config()
        except ConfigError:
            return None

    def readiness(self) -> Readiness:
        """Whether it may be started, and why not."""
        problems = self.problems
        if self.is_starting:
            return Readiness("starting", "starting: everything is checked again, then the supervisor begins")
        if problems:
            first = problems[0]
            more = f" (and {len(problems) - 1} more: n goes there)" if len(problems) > 1 else ""
            return Readiness("wrong", f"{first.key + ': ' if first.key else ''}{first.message}{more}")
        if self.why_not_here or self._why_not_checked:
            return Readiness("wrong", self.why_not_here or self._why_not_checked)
        if self.is_checking:
            return Readiness("checking", "checking with the engine")
        return Readiness("ready", "ready: ctrl+s starts it")

    def launch(self) -> Launch:
        """The run as it would be started."""
        offer = self.picked.offer
        resume = offer.path if self.picked.resume else None
        return Launch(self.form.tables(), offer.source, self.form.run_name(), resume, self._argv())

    def command(self) -> str:
        """The command line that starts the same run; empty while something is wrong, or where none does."""
        argv = self._argv()
        return "" if self.problems or len(argv) == 1 else shlex.join(argv)

    def _argv(self) -> list[str]:
        """The command line that would do the same; the program alone where the configuration is in no file."""
        # What a file says cannot be taken away by --set.
        taken_away = any(not self.form.text(key) and self.form.is_given(key) for key in self.form.changed())
        if self.picked.offer.kind != "file" or taken_away:
            return ["tputui"]
        words = ["tputui", "run", self.form.source]
        words += [word for override in self.form.overrides() for word in ("--set", override)]
        words += ["--name", str(self.form.run_name())] if self.form.run_name() else []
        return words + (["--resume", self.picked.offer.path.name] if self.picked.resume else [])

    def _look(self) -> None:
        self._own = [*self.form.problems(), *self._name_problems()]

    def _name_problems(self) -> list[Problem]:
        name = self.form.run_name()
        if name is None:
            return []
        if not rundir.is_name(name):
            what = "letters, digits, dots, dashes and underscores, at most 128, beginning with a letter or a digit"
            return [Problem(NAME, f"{name}: a name has {what}")]
        return [Problem(NAME, f"{name} is taken by another run: choose another one")] if name in self._taken else []
