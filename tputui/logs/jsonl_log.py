"""JSON lines: one object per line; nested keys are joined by `/`. Also the spans and scalars that torchtitan writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tputui.logs.lines import LineLog
from tputui.logs.rows import TAG_CHARS_MAX, encodable, number, step_number, unix_time_s, values_of
from tputui.logs.values import LoggedValue

_SPAN_END = "_end"
_SURROGATE = re.compile(rb"\\u[dD]")


def object_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None if the line is not one."""
    try:
        row = json.loads(line)
        row = encodable(row) if _SURROGATE.search(line) else row
    except (ValueError, RecursionError):
        return None
    return row if type(row) is dict else None


def _continues(old: list[bytes], new: list[bytes]) -> bool:
    return old == new


class JsonlReader(LineLog):
    """Reads a file of JSON lines."""

    form = "JSON lines file"

    def __init__(self, path: Path) -> None:
        super().__init__(path, _continues)

    def read(self) -> list[LoggedValue]:
        """Values of the next complete lines. Raises `OSError`."""
        while lines := self._lines.read():
            if found := self._values_of_lines(lines):
                return found
        # An object is complete with its last brace, also in a file that ends without a newline.
        if self._lines.rest.rstrip().endswith(b"}") and (row := object_of(self._lines.rest)) is not None:
            self._lines.take_rest()
            return _values_of(row)
        return []

    def _values_of_lines(self, lines: list[bytes]) -> list[LoggedValue]:
        found: list[LoggedValue] = []
        for line_number, line in enumerate(lines, self._lines.first_number):
            if not line or line.isspace():
                continue
            row = object_of(line)
            if row is None:
                self._lines.note_line(line_number, "not a JSON object")
            else:
                found += _values_of(row)
        return found


def _values_of(row: Mapping[str, Any]) -> list[LoggedValue]:
    return torchtitan_values(row) if "log_type_name" in row and "seq_id" in row else values_of(row)


def torchtitan_values(row: Mapping[str, Any]) -> list[LoggedValue]:
    """The value of a record of torchtitan's structured logger: a scalar, or the duration of a span as `NAME_ms`.

    Each rank writes a file of its own, so the rank is part of the tag.
    """
    value = number(row.get("value"))
    kind, name = row.get("log_type_name"), row.get("event_name")
    if value is None or not isinstance(kind, str):
        return []
    if kind.endswith(_SPAN_END):
        name = f"{kind.removesuffix(_SPAN_END)}_ms"
    if not isinstance(name, str) or not 0 < len(name) <= TAG_CHARS_MAX:
        return []
    rank = step_number(row.get("rank"))
    tag = name if rank is None else f"{name}/rank{rank}"
    t = unix_time_s(row.get("time_us", row.get("time_ms", row.get("time"))))
    return [LoggedValue(tag, step_number(row.get("step")), t, value)]
