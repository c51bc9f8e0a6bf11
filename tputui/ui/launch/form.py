"""A configuration that is being edited: every field there is, its text, what is wrong with it, what was changed. Pure.

A field's text is kept as it was typed, right or wrong. What the configuration as a whole comes to is asked of
`tputui.config`, which knows bounds that no schema tells.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tputui import config
from tputui.check_result import CheckResult, Option, Problem, TaskDescription
from tputui.config import BATCH_RIVALS, ConfigError, RunConfig
from tputui.field_docs import field_docs
from tputui.telemetry import rundir
from tputui.ui.launch.checker import Asked, Told
from tputui.ui.launch.configs import ConfigOffer
from tputui.ui.launch.field_values import Field, Wrong, inline, read, shown
from tputui.ui.launch.service import Launch

NAME = "name"
"""Key of the run's name, which is none of the configuration."""
_NAME_FIELD = Field(
    NAME,
    {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    "Name of the run: letters, digits, dots, dashes, underscores. Without one it is named after the time and the task.",
)
_ABOUT_A_KEY = re.compile(r"([a-z_]+(?:\.[A-Za-z_]\w*)?): (.*)", re.S)
_MISSING = re.compile(r'"([a-z_.]+)" is missing')


class Form:
    """The fields, and the configuration that they say."""

    def __init__(self, tables: Mapping[str, Any], source: str) -> None:
        """`tables` is a configuration as its file has it; `source` names it in sentences."""
        self.source = source
        self.task: TaskDescription | None = None
        """The task, once it was described; without, its keys are those of the file."""
        self._original = flat_keys(tables)
        self._texts: dict[str, str] = {}
        """Of the fields that were edited."""
        self.fields: tuple[Field, ...] = ()
        self.describe(None)

    def describe(self, task: TaskDescription | None) -> None:
        """Takes the keys of the task; what was typed stays."""
        self.task = task
        self.fields = tuple(_fields(task, {*self._original, *self._texts}))
        self._by_key = {field.key: field for field in self.fields}

    def field(self, key: str) -> Field:
        """The field of a key."""
        return self._by_key[key]

    def original(self, key: str) -> Any:
        """The value that it came with: the file's, else the default."""
        field = self._by_key[key]
        return self._original.get(key, field.default)

    def is_given(self, key: str) -> bool:
        """Whether the file says it."""
        return key in self._original

    def text(self, key: str) -> str:
        """What stands in the field."""
        return self._texts[key] if key in self._texts else shown(self._by_key[key], self.original(key))

    def value(self, key: str) -> Any:
        """The value of a field. Raises `Wrong`."""
        return read(self._by_key[key], self._texts[key]) if key in self._texts else self.original(key)

    def wrong(self, key: str) -> str:
        """What is wrong with a field by itself; empty where nothing is."""
        if key not in self._texts:
            missing = self._by_key[key].required and self.original(key) is None
            return f"a value is missing: {self._by_key[key].doc}" if missing else ""
        try:
            self.value(key)
        except Wrong as error:
            return str(error)
        return ""

    def is_changed(self, key: str) -> bool:
        """Whether it says something else than what it came with."""
        if key not in self._texts:
            return False
        try:
            value = self.value(key)
        except Wrong:
            return True
        return not _same(value, self.original(key))

    def changed(self) -> list[str]:
        """The keys that were changed, in order."""
        return [field.key for field in self.fields if self.is_changed(field.key)]

    def set(self, key: str, text: str) -> None:
        """Writes into a field. Of the two ways to say the size of a batch, the other one gives way."""
        self._texts[key] = text
        rival = _rival(key)
        if rival is not None and text.strip():
            self._texts[rival] = ""

    def typed(self) -> dict[str, str]:
        """What was typed so far, for `restore`."""
        return dict(self._texts)

    def restore(self, typed: Mapping[str, str]) -> None:
        """Puts back what was typed at an earlier moment."""
        self._texts = dict(typed)

    def reset(self, key: str) -> None:
        """Puts back what a field came with; with a size of the batch, both ways to say it."""
        self._texts.pop(key, None)
        rival = _rival(key)
        if rival is not None:
            self._texts.pop(rival, None)

    def turn(self, key: str, by: int) -> bool:
        """Takes the next choice of a field that has some; whether it has."""
        field = self._by_key[key]
        choices = [None, *field.choices] if field.is_optional else list(field.choices)
        if not field.choices:
            return False
        try:
            at = next(index for index, choice in enumerate(choices) if _same(choice, self.value(key)))
        except (StopIteration, Wrong):
            at = -by
        self.set(key, shown(field, choices[(at + by) % len(choices)]))
        return True

    def tables(self) -> dict[str, Any]:
        """The configuration as a file would have it: what was given or differs from a default. Wrong fields are
        left out."""
        tables: dict[str, Any] = {}
        for field in self.fields:
            if field.key == NAME or self.wrong(field.key):
                continue
            value = self.value(field.key)
            if value is None or not (self.is_given(field.key) or not _same(value, field.default)):
                continue
            table, _, name = field.key.rpartition(".")
            (tables.setdefault(table, {}) if table else tables)[name] = value
        tables.setdefault("data", {})
        # What is no table stands first in a file.
        return dict(sorted(tables.items(), key=lambda item: isinstance(item[1], Mapping)))

    def run_name(self) -> str | None:
        """The name that the run is to have; None names it after time and task."""
        return self.text(NAME).strip() or None

    def config(self) -> RunConfig:
        """The configuration, checked as far as it can be without the engine. Raises `ConfigError`."""
        return config.from_builtins(self.tables(), self.source)

    def problems(self) -> list[Problem]:
        """What is wrong as far as it is known without the engine: fields by themselves, then the whole."""
        found = [Problem(field.key, why) for field in self.fields if (why := self.wrong(field.key))]
        if found:
            return found
        try:
            self.config()
        except ConfigError as error:
            return [_problem(str(error).removeprefix(f"{self.source}: "), self._by_key)]
        return []

    def overrides(self) -> list[str]:
        """The changes as `--set` takes them; a value that is taken away has none."""
        words = []
        for key in self.changed():
            value = None if self.wrong(key) else self.value(key)
            if key != NAME and value is not None:
                words.append(f"{key}={inline(value)}")
        return words


def flat_keys(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration with their values: of its tables, and no deeper, since a value may be a table."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": each for name, each in value.items()}
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value is not None}


def _rival(key: str) -> str | None:
    return f"data.{BATCH_RIVALS[key]}" if key in BATCH_RIVALS else None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) is not isinstance(other, bool) or isinstance(one, str) is not isinstance(other, str):
        return False
    as_list = [list(each) if isinstance(each, tuple) else each for each in (one, other)]
    return bool(as_list[0] == as_list[1])


def _fields(task: TaskDescription | None, given: set[str]) -> Iterator[Field]:
    """Every field: the run, the top of the file, then table by table, the task's own keys after the common ones."""
    yield _NAME_FIELD
    schemas = _common_schemas()
    for table in ("", "data", "model", *(name for name in config.TABLES if name != "data")):
        own: Sequence[Option] = ()
        if task is not None and table in config.TASK_TABLES:
            own = task.options.get(table, ())
        yield from schemas.get(table, ())
        yield from (Field(f"{table}.{option.key}", option.schema, option.doc) for option in own)
        known = {field.key for field in schemas.get(table, ())} | {f"{table}.{option.key}" for option in own}
        said = _NOT_DESCRIBED if task is None else f"{task.task} has no such key: empty it to leave it out."
        yield from (
            Field(key, {}, said, known=False) for key in sorted(given) if _is_in(key, table) and key not in known
        )


_NOT_DESCRIBED = "A key of the task, whose description could not be read: it is passed on as it is."


def _is_in(key: str, table: str) -> bool:
    return key != NAME and key.rpartition(".")[0] == table


def _common_schemas() -> dict[str, list[Field]]:
    """The fields that every task has, by table."""
    _, components = msgspec.json.schema_components([RunConfig])
    found: dict[str, list[Field]] = {}
    classes: dict[str, type[config.Table]] = {"": RunConfig, **config.TABLES}
    for table, cls in classes.items():
        docs = field_docs(cls)
        schema = components[cls.__name__]
        hidden = {*config.TABLES, "model", "options"}
        found[table] = [
            Field(f"{table}.{name}".lstrip("."), each, docs.get(name, ""), required=name in schema["required"])
            for name, each in schema["properties"].items()
            if name not in hidden
        ]
    return found


def _problem(sentence: str, known: Mapping[str, Field]) -> Problem:
    """A sentence of the check with the field that it is about."""
    missing = _MISSING.match(sentence)
    if missing is not None:
        return Problem(missing.group(1), sentence)
    about = _ABOUT_A_KEY.match(sentence)
    if about is None:
        return Problem("", sentence)
    key, message = about.groups()
    if key == "data" and "batch_per_core" in message:
        key = "data.batch_per_core"
    return Problem(key, message) if key in known or key in config.TABLES else Problem("", sentence)


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
