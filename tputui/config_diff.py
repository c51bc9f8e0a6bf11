"""Differences between configurations, and between a configuration and the defaults, by dotted key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

ABSENT = "-"
"""Value of a key that a configuration does not have."""


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key on which the runs differ."""

    key: str
    values: list[str]
    """One per run, as text; `ABSENT` if not set."""
    changed: list[bool]
    """One per run: whether it differs from the base."""


class ConfigDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that differ, and the number of equal ones."""

    rows: list[DiffRow]
    num_equal: int
    """Keys with the same value everywhere."""


def diff(configs: Sequence[Mapping[str, Any]], base: int) -> ConfigDiff:
    """Compares configurations. Keys are in the order of the base, followed by those it lacks."""
    flat = [texts(config) for config in configs]
    ordered = (
        [flat[base], *(values_of_run for index, values_of_run in enumerate(flat) if index != base)] if flat else []
    )
    rows, num_equal = [], 0
    for key in dict.fromkeys(key for values_of_run in ordered for key in values_of_run):
        values = [values_of_run.get(key, ABSENT) for values_of_run in flat]
        if len(set(values)) == 1:
            num_equal += 1
        else:
            rows.append(DiffRow(key=key, values=values, changed=[value != values[base] for value in values]))
    return ConfigDiff(rows=rows, num_equal=num_equal)


class ConfigLine(NamedTuple):
    key: str
    value: str
    """As in a TOML file."""
    is_set: bool
    """Whether the value differs from the default, or the key has none, such as most keys of a task."""


def config_lines(config: Mapping[str, Any]) -> list[ConfigLine]:
    """Every key of a configuration with a value, in its order; top-level keys first, as in a TOML file."""
    # Imported here so that viewers, which compare configurations only, start faster.
    from tputui.config import default_values

    defaults = default_values()
    top = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    return [
        ConfigLine(
            key, json.dumps(value, ensure_ascii=False, default=str), key not in defaults or value != defaults[key]
        )
        for key, value in flatten({**top, **config}).items()
        if value is not None and value != {}
    ]


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by dotted key such as `optim.lr`. A list is one value; an empty table is `{}`."""
    values: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping) and value:
            values |= flatten(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return values


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """As `flatten`, with each value as text."""
    return {key: _text(value) for key, value in flatten(config).items()}


def _text(value: object) -> str:
    """Strings without quotes if unambiguous, everything else as JSON; 1 and 1.0 are equal."""
    if isinstance(value, str):
        return json.dumps(value) if value in ("", ABSENT) or _reads_as_json(value) else value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return json.dumps(value, default=str)


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
