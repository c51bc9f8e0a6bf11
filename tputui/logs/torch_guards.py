"""Parses why torch.compile compiled a function again: the guard of an earlier program that did not hold.

Their words change between versions of torch; a guard that is not recognised is returned as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tputui.telemetry.events import ChangedInput

CHARS_MAX = 200
_PROGRAM = re.compile(r"^\s*\d+/\d+(?:_\d+)?:\s*")
_TENSOR = re.compile(
    r"^tensor '(?P<name>.+?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<index>\d+))?\.? *"
    r"expected (?P<before>.+?), actual (?P<now>.+)$"
)
_EQUALS = re.compile(r"^(?P<name>[^=<>!]+?) == (?P<before>.+)$")
_COMMENT = re.compile(r"\s{2,}#.*$")
_LOCAL = re.compile(r"^L\['(\w+)'\]")
_SHORT = (bool, int, float, str)


def parse(reason: str, values: Mapping[str, Any] | None = None) -> list[ChangedInput]:
    """The input that a failed guard names. `values` are the local variables of the call, if they are known."""
    lines = reason.strip()[: 20 * CHARS_MAX].splitlines()
    if not lines:
        return []
    guard = _COMMENT.sub("", _PROGRAM.sub("", lines[0])).strip()
    tensor = _TENSOR.match(guard)
    if tensor:
        where = "" if tensor["index"] is None else f" in dimension {tensor['index']}"
        before, now = (f"{tensor['what']} {tensor[side]}{where}" for side in ("before", "now"))
        return [_changed(tensor["name"], before, now)]
    equals = _EQUALS.match(guard)
    if equals:
        name = _LOCAL.sub(r"\1", equals["name"].strip())
        value = (values or {}).get(name)
        return [_changed(name, equals["before"], repr(value) if isinstance(value, _SHORT) else "another value")]
    return [_changed(guard, "true", "false")] if guard else []


def _changed(name: str, before: str, now: str) -> ChangedInput:
    name = _LOCAL.sub(r"\1", name)
    return ChangedInput(name=name[:CHARS_MAX], before=before[:CHARS_MAX], now=now[:CHARS_MAX])
