"""In what configurations differ: nested tables as keys with dots; what all agree on is only counted. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

ABSENT = "-"
"""Stands where a configuration lacks the key."""


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key on which the runs differ."""

    key: str
    values: list[str]
    """A run each, as text; `ABSENT` where it is not set."""
    changed: list[bool]
    """A run each: whether it differs from the base."""


class ConfigDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What differs, and how much does not."""

    rows: list[DiffRow]
    num_equal: int
    """Keys with the same value everywhere."""


def diff(configs: Sequence[Mapping[str, Any]], base: int) -> ConfigDiff:
    """In what the configurations differ; keys in the order of the base, those that it lacks after them."""
    flat = [flatten(config) for config in configs]
    ordered = [flat[base], *(one for index, one in enumerate(flat) if index != base)] if flat else []
    rows, num_equal = [], 0
    for key in dict.fromkeys(key for one in ordered for key in one):
        values = [one.get(key, ABSENT) for one in flat]
        if len(set(values)) == 1:
            num_equal += 1
        else:
            rows.append(DiffRow(key=key, values=values, changed=[value != values[base] for value in values]))
    return ConfigDiff(rows=rows, num_equal=num_equal)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Every value as text by its key: `optim.lr`. Lists stand as one value; an empty table as `{}`."""
    found: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{name}.")
        else:
            found[name] = _text(value)
    return found


def _text(value: object) -> str:
    """As a person writes it: strings bare where that is clear, the rest as JSON; 1 and 1.0 are the same number."""
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
