"""The form of the launcher: every field of a configuration, its text, its errors, and whether the run can start.

A field keeps its text as typed, valid or not. Rules that span fields are checked by `tputui.config`, the rest by the
engine; results for an older version of the form are ignored.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tputui import config
from tputui.check_result import CheckResult, Option, Problem, TaskDescription
from tputui.config import BATCH_RIVALS, ConfigError, RunConfig, ScriptConfig
from tputui.config.tables import field_docs
from tputui.telemetry import rundir
from tputui.ui.launch.checker import CheckRequest, CheckUpdate, Launch
from tputui.ui.launch.configs import ConfigChoice
from tputui.ui.launch.field_values import Field, FieldError, format_value, inline, parse_value

NAME = "name"
"""Key of the run name, the only field that is not part of the configuration."""
_NAME_FIELD = Field(
    NAME,
    {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    "Name of the run: letters, digits, dots, dashes, underscores. Default: the time and the task.",
)
_ABOUT_A_KEY = re.compile(r"([a-z_]+(?:\.[A-Za-z_]\w*)?): (.*)", re.S)
_MISSING = re.compile(r'"([a-z_.]+)" is missing')


class Form:
    """The fields of a configuration and their texts."""

    def __init__(self, tables: Mapping[str, Any], source: str) -> None:
        """`tables` is the configuration of the file; `source` is its name in messages."""
        self.source = source
        self.task: TaskDescription | None = None
        """The description of the task; while None, the task has the keys of the file."""
        self.is_script = config.is_script(tables)
        """Whether a command of the user is run instead of the engine."""
        self._original = flat_keys(tables)
        self._texts: dict[str, str] = {}
        """Texts of the edited fields, by key."""
        self.fields: tuple[Field, ...] = ()
        self.set_task(None)

    def set_task(self, task: TaskDescription | None) -> None:
        """Sets the options of the task; keeps what was typed."""
        self.task = task
        given = {*self._original, *self._texts}
        self.fields = tuple(_script_fields(given) if self.is_script else _fields(task, given))
        self._by_key = {field.key: field for field in self.fields}

    def field(self, key: str) -> Field:
        """The field of a key."""
        return self._by_key[key]

    def original(self, key: str) -> Any:
        """The value before any edit: the one of the file, else the default."""
        field = self._by_key[key]
        return self._original.get(key, field.default)

    def is_given(self, key: str) -> bool:
        """Whether the file sets the field."""
        return key in self._original

    def text(self, key: str) -> str:
        """The text of the field."""
        return self._texts[key] if key in self._texts else format_value(self._by_key[key], self.original(key))

    def value(self, key: str) -> Any:
        """The value of a field. Raises `FieldError`."""
        return parse_value(self._by_key[key], self._texts[key]) if key in self._texts else self.original(key)

    def error(self, key: str) -> str | None:
        """Why the text of a field is invalid; None if it is valid."""
        if key not in self._texts:
            missing = self._by_key[key].required and self.original(key) is None
            return f"missing value: {self._by_key[key].doc}" if missing else None
        try:
            self.value(key)
        except FieldError as error:
            return str(error)
        return None

    def is_changed(self, key: str) -> bool:
        """Whether the value differs from the original one."""
        if key not in self._texts:
            return False
        try:
            value = self.value(key)
        except FieldError:
            return True
        return not _same(value, self.original(key))

    def changed(self) -> list[str]:
        """Keys of the changed fields, in display order."""
        return [field.key for field in self.fields if self.is_changed(field.key)]

    def set(self, key: str, text: str) -> None:
        """Sets the text of a field. Setting one of the two batch sizes clears the other."""
        self._texts[key] = text
        rival = _rival(key)
        if rival is not None and text.strip():
            self._texts[rival] = ""

    def typed(self) -> dict[str, str]:
        """The texts of the edited fields, for `restore`."""
        return dict(self._texts)

    def restore(self, typed: Mapping[str, str]) -> None:
        """Restores texts that `typed` returned."""
        self._texts = dict(typed)

    def reset(self, key: str) -> None:
        """Restores the original value of a field; for a batch size, of both batch sizes."""
        self._texts.pop(key, None)
        rival = _rival(key)
        if rival is not None:
            self._texts.pop(rival, None)

    def cycle(self, key: str, by: int) -> bool:
        """Selects the next choice of a field; returns False if the field has no choices."""
        field = self._by_key[key]
        choices = [None, *field.choices] if field.is_optional else list(field.choices)
        if not field.choices:
            return False
        try:
            current = next(index for index, choice in enumerate(choices) if _same(choice, self.value(key)))
        except (StopIteration, FieldError):
            current = -by
        self.set(key, format_value(field, choices[(current + by) % len(choices)]))
        return True

    def tables(self) -> dict[str, Any]:
        """The configuration as a file would have it: values that were given or differ from the default. Invalid fields
        are skipped."""
        tables: dict[str, Any] = {}
        for field in self.fields:
            if field.key == NAME or self.error(field.key):
                continue
            value = self.value(field.key)
            if value is None or not (self.is_given(field.key) or not _same(value, field.default)):
                continue
            table, _, name = field.key.rpartition(".")
            (tables.setdefault(table, {}) if table else tables)[name] = value
        tables.setdefault(config.SCRIPT if self.is_script else "data", {})
        # TOML needs top-level values before the first table.
        return dict(sorted(tables.items(), key=lambda item: isinstance(item[1], Mapping)))

    def run_name(self) -> str | None:
        """The name of the run; None for a generated one."""
        return self.text(NAME).strip() or None

    def config(self) -> RunConfig:
        """The configuration, validated as far as possible without the engine. Raises `ConfigError`."""
        return config.from_builtins(self.tables(), self.source)

    def script(self) -> ScriptConfig:
        """The command of the user, validated as far as possible without starting it. Raises `ConfigError`."""
        return config.script_from_builtins(self.tables(), self.source).script

    def problems(self) -> list[Problem]:
        """Problems found without the engine: those of single fields, else of the configuration as a whole."""
        problems = [Problem(field.key, error) for field in self.fields if (error := self.error(field.key)) is not None]
        if problems:
            return problems
        try:
            if self.is_script:
                self.script()
            else:
                self.config()
        except ConfigError as error:
            return [_problem(text.removeprefix(f"{self.source}: "), self._by_key) for text in error.problems]
        return []

    def overrides(self) -> list[str]:
        """The changes as arguments of `--set`, which cannot express a removed value."""
        overrides = []
        for key in self.changed():
            value = None if self.error(key) else self.value(key)
            if key != NAME and value is not None:
                overrides.append(f"{key}={inline(value)}")
        return overrides


def flat_keys(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key. Only one level deep, since a value can itself be a table."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            flat[key] = value
    return {key: value for key, value in flat.items() if value is not None}


def _rival(key: str) -> str | None:
    return f"data.{BATCH_RIVALS[key]}" if key in BATCH_RIVALS else None


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, bool) is not isinstance(other, bool) or isinstance(value, str) is not isinstance(other, str):
        return False
    as_list = [list(item) if isinstance(item, tuple) else item for item in (value, other)]
    return bool(as_list[0] == as_list[1])


def _script_fields(given: set[str]) -> Iterator[Field]:
    """The run name, then the fields of a command of the user; unknown keys of the file last."""
    _, components = msgspec.json.schema_components([ScriptConfig])
    schema, docs = components[ScriptConfig.__name__], field_docs(ScriptConfig)
    keys = [NAME, *(f"{config.SCRIPT}.{name}" for name in schema["properties"])]
    yield _NAME_FIELD
    for name, field_schema in schema["properties"].items():
        yield Field(f"{config.SCRIPT}.{name}", field_schema, docs.get(name, ""), required=name in schema["required"])
    doc = "A command of your own has no such key. Clear it to remove it."
    yield from (Field(key, {}, doc, known=False) for key in sorted(given) if key not in keys)


def _fields(task: TaskDescription | None, given: set[str]) -> Iterator[Field]:
    """Every field: the run name, the top level, then table by table with the options of the task last."""
    yield _NAME_FIELD
    schemas = _common_schemas()
    for table in ("", "data", "model", *(name for name in config.TABLES if name != "data")):
        own: Sequence[Option] = ()
        if task is not None and table in config.TASK_TABLES:
            own = task.options.get(table, ())
        yield from schemas.get(table, ())
        yield from (Field(f"{table}.{option.key}", option.schema, option.doc) for option in own)
        keys = {field.key for field in schemas.get(table, ())} | {f"{table}.{option.key}" for option in own}
        doc = _NOT_DESCRIBED if task is None else f"{task.task} has no such key. Clear it to remove it."
        yield from (Field(key, {}, doc, known=False) for key in sorted(given) if _is_in(key, table) and key not in keys)


_NOT_DESCRIBED = "A key of the task. Its documentation is not available; the value is passed on unchanged."


def _is_in(key: str, table: str) -> bool:
    return key != NAME and key.rpartition(".")[0] == table


def _common_schemas() -> dict[str, list[Field]]:
    """The fields that every task has, by table."""
    _, components = msgspec.json.schema_components([RunConfig])
    fields: dict[str, list[Field]] = {}
    classes: dict[str, type[config.Table]] = {"": RunConfig, **config.TABLES}
    for table, cls in classes.items():
        docs = field_docs(cls)
        schema = components[cls.__name__]
        hidden = {*config.TABLES, "model", "options"}
        fields[table] = [
            Field(f"{table}.{name}".lstrip("."), field_schema, docs.get(name, ""), required=name in schema["required"])
            for name, field_schema in schema["properties"].items()
            if name not in hidden
        ]
    return fields


def _problem(sentence: str, fields: Mapping[str, Field]) -> Problem:
    """Finds the field that an error of `tputui.config` is about."""
    missing = _MISSING.match(sentence)
    if missing is not None:
        return Problem(missing.group(1), sentence)
    match = _ABOUT_A_KEY.match(sentence)
    if match is None:
        return Problem("", sentence)
    key, message = match.groups()
    if key == "data" and "batch_per_core" in message:
        key = "data.batch_per_core"
    return Problem(key, message) if key in fields or key in config.TABLES else Problem("", sentence)


State = Literal["checking", "invalid", "ready", "starting"]


class PickedConfig(NamedTuple):
    """The configuration that the user chose for a new run."""

    choice: ConfigChoice
    resume: bool
    """Whether to resume the last checkpoint of the run that the configuration is from."""


class FormReadiness(NamedTuple):
    """Whether the run can be started."""

    state: State
    message: str
    """What prevents the start, or how to start."""


class FormState:
    """A form, the newest check result for it, and whether the run can start."""

    def __init__(self, picked: PickedConfig, taken_names: Collection[str]) -> None:
        """`taken_names` are the names of existing runs."""
        self.picked = picked
        self.form = Form(picked.choice.tables, picked.choice.source)
        self.result: CheckResult | None = None
        """The engine's result for the form as it is now."""
        self.is_checking = True
        self.is_estimating = False
        """Whether the memory estimate is still to come."""
        self.machine_error: str | None = None
        """Why this machine cannot train."""
        self.is_starting = False
        self.version = 0
        """Grows with every change of the form."""
        self._taken_names = taken_names
        self._form_problems: list[Problem] = []
        """Problems found without the engine."""
        self._engine_error: str | None = None
        """Why the engine could not check or start the run."""

    @property
    def task(self) -> str:
        """The task in the form; empty for a command of the user."""
        return "" if self.form.is_script else self.form.text("task").strip()

    @property
    def problems(self) -> list[Problem]:
        """The problems of the form; if there are none, those the engine found."""
        return self._form_problems or list(self.result.problems if self.result is not None else ())

    @property
    def can_be_saved(self) -> bool:
        """Whether the configuration is valid apart from the run name, as far as known without the engine."""
        return all(problem.key == NAME for problem in self._form_problems)

    def on_edit(self) -> CheckRequest:
        """Validates the edited form and returns the request to check it."""
        if self.form.task is not None and self.form.task.task != self.task:
            self.form.set_task(None)
        self._validate()
        self.result, self.is_estimating, self._engine_error = None, False, None
        self.is_checking = True
        self.version += 1
        return CheckRequest(
            self.version, self.task, None if self._form_problems else self.launch(), self.form.is_script
        )

    def apply(self, update: CheckUpdate) -> CheckRequest | None:
        """Applies an update. Returns another request if the task's options made the form valid."""
        if update.description is not None:
            return self._apply_description(update.description, update)
        if update.version != self.version:
            return None
        self.is_checking = False
        self.is_estimating = not update.is_final and update.error is None
        if update.result is not None:
            self.result = update.result
        key, _, message = (update.error or "").partition(": ")
        if message and key in {field.key for field in self.form.fields}:
            self._form_problems = [Problem(key, message)]
        else:
            self._engine_error = update.error
        return None

    def _apply_description(self, description: TaskDescription, update: CheckUpdate) -> CheckRequest | None:
        if update.task == self.task and self.form.task is None:
            self.form.set_task(description)
            was_invalid = bool(self._form_problems)
            self._validate()
            if was_invalid and not self._form_problems:
                return self.on_edit()
        if update.version == self.version and self._form_problems:
            self.is_checking = False
        return None

    def fail_start(self, error: str) -> None:
        """Records why the run could not be started."""
        self.is_starting = False
        self._engine_error = error

    def config(self) -> RunConfig | None:
        """The configuration; None while it is invalid, and for a command of the user."""
        try:
            return None if self._form_problems or self.form.is_script else self.form.config()
        except ConfigError:  # The form was edited after it was validated.
            return None

    def script(self) -> ScriptConfig | None:
        """The command of the user; None while it is invalid, and for training by the engine."""
        try:
            return self.form.script() if self.form.is_script and not self._form_problems else None
        except ConfigError:  # The form was edited after it was validated.
            return None

    def readiness(self) -> FormReadiness:
        """Whether the run can be started, with a sentence for the user."""
        if self.is_starting:
            return FormReadiness("starting", "Starting: validating again, then starting the supervisor")
        if problems := self.problems:
            more = f" (and {len(problems) - 1} more: ctrl+g)" if len(problems) > 1 else ""
            return FormReadiness("invalid", problems[0].sentence + more)
        machine_error = None if self.form.is_script else self.machine_error
        if error := machine_error or self._engine_error:
            return FormReadiness("invalid", error)
        if self.is_checking:
            return FormReadiness("checking", "Validating")
        return FormReadiness("ready", "Ready. Press ctrl+s to start")

    def launch(self) -> Launch:
        """The run to start."""
        choice = self.picked.choice
        resume = choice.path if self.picked.resume else None
        return Launch(self.form.tables(), choice.source, self.form.run_name(), resume, self._argv())

    def command(self) -> str | None:
        """The equivalent command line; None while the form is invalid or if there is none."""
        argv = self._argv()
        return None if self.problems or len(argv) == 1 else shlex.join(argv)

    def _argv(self) -> list[str]:
        """The equivalent command line; the program alone if the configuration is not in a file."""
        # --set cannot remove a value of the file.
        is_removed = any(not self.form.text(key) and self.form.is_given(key) for key in self.form.changed())
        if self.picked.choice.kind != "file" or is_removed:
            return ["tputui"]
        argv = ["tputui", "run", self.form.source]
        argv += [argument for override in self.form.overrides() for argument in ("--set", override)]
        argv += ["--name", str(self.form.run_name())] if self.form.run_name() else []
        return argv + (["--resume", self.picked.choice.path.name] if self.picked.resume else [])

    def _validate(self) -> None:
        self._form_problems = [*self.form.problems(), *self._name_problems()]

    def _name_problems(self) -> list[Problem]:
        name = self.form.run_name()
        if name is None:
            return []
        if not rundir.is_name(name):
            rule = "letters, digits, . - _, at most 128 characters, and start with a letter or digit"
            return [Problem(NAME, f"{name}: run names may contain {rule}")]
        return [Problem(NAME, f"{name} is the name of an existing run")] if name in self._taken_names else []
