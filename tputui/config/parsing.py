"""Reads a configuration from TOML and `--set` overrides, checks its form, and phrases the errors."""

from __future__ import annotations

import contextlib
import copy
import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from tputui.config.checks import ConfigError, SourceOf, check, check_launch, check_values, number_problem
from tputui.config.script import SCRIPT, SCRIPT_TABLES, ScriptRun, is_script
from tputui.config.tables import (
    TABLES,
    TASK_TABLES,
    RunConfig,
    Table,
    data_keys,
    field_docs,
)

BYTES_MAX = 1 << 20
"""Maximum size of a configuration file."""
BATCH_RIVALS = {"data.batch_per_core": "global_batch", "data.global_batch": "batch_per_core"}
"""Two keys for the same thing: an override of one replaces the other."""
_DATA_SOURCE = "data.source"
_Config = TypeVar("_Config", RunConfig, ScriptRun)


def load(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Reads and checks a configuration file of the engine. Raises `ConfigError`; see `load_tables` for `overrides`."""
    return from_builtins(load_tables(path, overrides), str(path), overrides)


def load_tables(path: Path, overrides: list[str] | None = None) -> dict[str, Any]:
    """The content of a configuration file, not checked.

    `overrides` are `key.path=value` strings, the value as TOML or, failing that, as a plain string.
    Raises `ConfigError`.
    """
    try:
        text = _read(path).decode()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {_near_file(path)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid UTF-8: {error}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{path}: cannot be read: {why}; expected a TOML file, such as those in sample_configs/"
        ) from None
    return _parsed(text, str(path), overrides)


def parse(text: str, source: str, overrides: list[str] | None = None) -> RunConfig:
    """Parses and checks TOML text; `source` names it in errors. Raises `ConfigError`."""
    return from_builtins(_parsed(text, source, overrides), source, overrides)


def _parsed(text: str, source: str, overrides: list[str] | None) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid TOML: {_toml_problem(error)}") from None
    for override in overrides or []:
        _override(tables, override)
    return tables


def with_overrides(tables: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The tables with `key.path=value` strings applied, as in `load_tables`. Raises `ConfigError`."""
    changed: dict[str, Any] = msgspec.to_builtins(tables)
    for override in overrides:
        _override(changed, override)
    return changed


def from_builtins(tables: dict[str, Any], source: str, overrides: Sequence[str] | None = None) -> RunConfig:
    """Checks a configuration that is already a dictionary, as in the manifest of a run. Raises `ConfigError`.

    `overrides` are already applied; errors in their values name them instead of `source`.
    """

    def source_of(key: str) -> str:
        return source_of_key(source, key, overrides)

    check_values(tables, source_of)
    if is_script(tables):
        message = (
            "this file describes a command of yours ([script]), not training by the engine; `tputui run` starts it"
        )
        raise ConfigError(f"{source_of(SCRIPT)}: {message}")
    tables = _without_task_keys(tables, source_of)
    config = _converted(tables, RunConfig, TABLES, source_of)
    check(config, source_of)
    return config


def script_from_builtins(tables: dict[str, Any], source: str, overrides: Sequence[str] | None = None) -> ScriptRun:
    """Checks the configuration of a command; as `from_builtins`. Raises `ConfigError`."""

    def source_of(key: str) -> str:
        return source_of_key(source, key, overrides)

    def refuse(key: str, why: str) -> None:
        raise ConfigError(f"{source_of(key)}: {key}: {why}")

    check_values(tables, source_of)
    run = _converted(tables, ScriptRun, SCRIPT_TABLES, source_of)
    script = run.script
    if not script.command or not script.command[0]:
        refuse("script.command", "the name of the program is missing")
    if problem := number_problem(script.stop_grace_s):
        refuse("script.stop_grace_s", problem)
    if problem := number_problem(script.exit_grace_s, or_zero=True):
        refuse("script.exit_grace_s", problem)
    for name, value in script.env.items():
        if not name or "=" in name or "\0" in name + value:
            refuse("script.env", f"{name!r} cannot be set as an environment variable")
    check_launch(run.launch, refuse)
    if any("\0" in text for text in (*script.command, script.cwd or "")):
        refuse("script.command" if not script.cwd else "script", "contains a NUL character")
    return run


def source_of_key(source: str, key: str, overrides: Sequence[str] | None, message: str | None = None) -> str:
    """The source of the value of a key: `--set ...` for the last override that set it, else `source`.

    A problem of a whole table may come from any of its keys. If its `message` is given, only an override counts whose
    key it names, or that of the data source it begins with.
    """
    for override in reversed(overrides or []):
        given, _, value = override.partition("=")
        given = given.strip()
        named = message is None or given in message
        from_source = given == _DATA_SOURCE and message is not None and message.startswith(value.strip(" \"'"))
        inside = given.startswith(f"{key}.") and (named or from_source)
        if key and (given == key or key.startswith(f"{given}.") or inside):
            return f"--set {override}"
    return source


def to_builtins(config: RunConfig) -> dict[str, Any]:
    """The configuration as a dictionary for `from_builtins`, with all defaults."""
    tables: dict[str, Any] = msgspec.to_builtins(config)
    data = tables["data"]
    data.update(data.pop("options"))
    return tables


def unknown_key(source: str, key: str, known_keys: list[str], others: Mapping[str, Sequence[str]] | None = None) -> str:
    """The error for an unknown key, with the table where it belongs or the nearest known key.

    `known_keys` are the keys of its table. `others` are the keys of the task by table, or those of `[script]` and the
    top of its file.
    """
    table, _, name = key.rpartition(".")
    common = {} if others is not None and SCRIPT in others else _common_keys()
    elsewhere = {other: [*keys, *(others or {}).get(other, ())] for other, keys in common.items()}
    elsewhere |= {other: list(keys) for other, keys in (others or {}).items() if other not in elsewhere}
    elsewhere.pop(table, None)
    where = f"[{table}] has no key" if table else "unknown key"
    owner = next((other for other, keys in elsewhere.items() if name in keys), None)
    if owner is not None:
        hint = (
            f'"{name}" is a key of [{owner}]'
            if owner
            else f'"{name}" belongs at the top of the file, before the first table'
        )
    elif near := difflib.get_close_matches(name, known_keys, n=1, cutoff=0.5):
        hint = f'did you mean "{near[0]}"?'
    elif far := [(alike, other) for other, keys in elsewhere.items() for alike in _alike(name, keys)]:
        hint = f'did you mean "{far[0][0]}"' + (f" of [{far[0][1]}]?" if far[0][1] else ", at the top of the file?")
    else:
        hint = f"known keys: {', '.join(sorted(known_keys))}"
    return f'{source}: {where} "{name}"; {hint}'


def _alike(name: str, keys: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(name, keys, n=1, cutoff=0.75)


def _common_keys() -> dict[str, list[str]]:
    """The keys of every task by table; those at the top of the file under an empty name."""
    top = [name for name in RunConfig.__struct_fields__ if name not in (*TABLES, *TASK_TABLES)]
    return {"": top} | {
        name: data_keys() if name == "data" else [*cls.__struct_fields__] for name, cls in TABLES.items()
    }


def _read(path: Path) -> bytes:
    """The content of a regular file. Raises `OSError`, and `ValueError` for other kinds of files and long files."""
    if path.exists() and not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise ValueError(f"larger than {BYTES_MAX:,} bytes")
    return content


def _near_file(path: Path) -> str:
    """A suggestion for a file that does not exist."""
    files: list[Path] = []
    for folder in (path.parent, Path("sample_configs")):
        with contextlib.suppress(OSError):
            files += sorted(file for file in folder.iterdir() if file.suffix == ".toml")
    by_name = {file.name: file for file in reversed(files)}
    near = difflib.get_close_matches(path.name, by_name, n=1) or difflib.get_close_matches(
        f"{path.name}.toml", by_name, n=1
    )
    return f"did you mean {by_name[near[0]]}?" if near else "expected a TOML file, such as those in sample_configs/"


def _toml_problem(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    message = str(error)
    return "a number has too many digits" if "integer string conversion" in message else message


def _override(tables: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals or not key:
        raise ConfigError(f'--set {override}: expected key=value, for example "--set optim.lr=0.01"')
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {override[:60]}: {_toml_problem(error)}") from None
    *path, name = key.strip().split(".")
    alternative, data = BATCH_RIVALS.get(key.strip()), tables.get("data", {})
    if alternative is not None and isinstance(data, dict):
        data.pop(alternative, None)
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise ConfigError(f'--set {override}: "{part}" is a value, not a table')
    tables[name] = value


def _without_task_keys(tables: dict[str, Any], source_of: SourceOf) -> dict[str, Any]:
    """Moves the keys of the task in `[data]` to `options`, so that the rest can be checked strictly."""
    data = tables.get("data", {})
    if not isinstance(data, dict):
        raise ConfigError(f"{source_of('data')}: data must be a table: [data]")
    common_keys = data_keys()
    options = {key: value for key, value in data.items() if key not in common_keys}
    common = {key: value for key, value in data.items() if key in common_keys}
    return {**tables, "data": {**common, "options": options}}


def _converted(
    tables: dict[str, Any], cls: type[_Config], known: Mapping[str, type[Table]], source_of: SourceOf
) -> _Config:
    """The tables as a record. Raises `ConfigError` with every key that is unknown or has a value of the wrong type."""
    left: dict[str, Any] = copy.deepcopy(tables)
    keys_of = _keys_of({"": cls, **known})
    problems: list[str] = []
    for name, keys in keys_of.items():
        table: Any = left
        for part in name.split(".") if name else ():
            table = table.get(part, {})
        if not isinstance(table, dict):
            raise ConfigError(*problems, f"{source_of(name)}: {name} must be a table: [{name}]")
        for key in [key for key in table if key not in keys]:
            full = f"{name}.{key}" if name else key
            problems.append(unknown_key(source_of(full), full, keys, keys_of if "" in known else None))
            del table[key]
    wrong: set[str] = set()
    while True:
        try:
            converted = msgspec.convert(left, cls)
            break
        except msgspec.ValidationError as error:
            key, message = _describe(str(error), known)
            # A required key that was removed because of its value is not missing.
            if key not in wrong:
                problems.append(f"{source_of(key)}: {message}")
            wrong.add(key)
            if not _removed(left, key):
                break
    if problems:
        raise ConfigError(*problems)
    return converted


def _keys_of(tables: Mapping[str, type[msgspec.Struct]]) -> dict[str, list[str]]:
    return {name: [*table.__struct_fields__] for name, table in tables.items()}


def _removed(tables: dict[str, Any], key: str) -> bool:
    """Removes a key, so that the others can be checked; False if it is not there."""
    *path, name = key.split("[")[0].split(".")
    table: Any = tables
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    return isinstance(table, dict) and table.pop(name, None) is not None


def _describe(error: str, tables: Mapping[str, type[Table]] = TABLES) -> tuple[str, str]:
    """The key of a validation error, and a sentence about it."""
    message, _, path = error.partition(" - at `$.")
    key = path.rstrip("`") if path else ""
    if message.startswith("Object missing required field"):
        name = message.split("`")[1]
        full = f"{key}.{name}" if key else name
        return full, f'"{full}" is missing: {_doc(full, tables)}'
    expected = message[:1].lower() + message[1:]
    if message.startswith("Invalid enum value"):
        expected = f"{message.split()[-1]} is not one of {', '.join(_choices(key, tables))}"
    return key, f"{key}: {expected}: {_doc(key, tables)}" if key else expected


def _choices(key: str, tables: Mapping[str, type[Table]]) -> list[str]:
    """The choices of a key with a fixed set of values."""
    table, _, name = key.rpartition(".")
    choices: list[object] = []
    for choice in get_args(get_type_hints(tables.get(table, RunConfig))[name]):
        # Of an optional key, the choices are those of the first part of its union.
        choices += get_args(choice) or ([] if choice is type(None) else [choice])
    return [str(choice) for choice in choices]


def _doc(key: str, tables: Mapping[str, type[Table]]) -> str:
    table, _, name = re.sub(r"\[.*", "", key).rpartition(".")
    cls = tables.get(table, RunConfig)
    return field_docs(cls).get(name, "see the README")
