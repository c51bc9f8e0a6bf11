"""Logs of JSON objects: one per line, the `trainer_state.json` of Hugging Face's Trainer, and whole histories."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tputui.logs.growing import LineLog, state_of
from tputui.logs.rows import (
    STEP_NAMES,
    TAG_CHARS_MAX,
    LoggedValue,
    LogReader,
    encodable,
    flattened,
    number,
    step_number,
    unix_time_s,
    values_of,
)
from tputui.logs.tags import EPOCH_NAMES, has_direction, in_words, meaning_of, total_of
from tputui.telemetry.files import read_small

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


class JsonlReader(LineLog):
    form = "JSON lines file"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._has_two_steps = False
        """Whether rows have two names of the step; one with one of them, as of MMEngine's evaluation, counts epochs."""
        self._before: dict[str, LoggedValue] = {}
        """The values of the row before by tag."""

    def read(self) -> list[LoggedValue]:
        if values := super().read():
            return values
        # An object is complete with its last brace, also in a file that ends without a newline.
        if self._lines.rest.rstrip().endswith(b"}") and (row := object_of(self._lines.rest)) is not None:
            self._lines.take_rest()
            return self._values_of_row(row)
        return []

    def _values_of(self, lines: list[bytes]) -> list[LoggedValue]:
        values: list[LoggedValue] = []
        for line_number, line in enumerate(lines, self._lines.first_number):
            if not line or line.isspace():
                continue
            row = object_of(line)
            if row is None:
                self._lines.note_line(line_number, "not a JSON object")
            else:
                values += self._values_of_row(row)
        return values

    def _values_of_row(self, row: Mapping[str, Any]) -> list[LoggedValue]:
        if "log_type_name" in row and "seq_id" in row:
            return torchtitan_values(row)
        num_steps = sum(name in STEP_NAMES for name in row)
        self._has_two_steps = self._has_two_steps or num_steps > 1
        values = values_of(row)
        if num_steps == 1 and self._has_two_steps:
            values = [value._replace(step=None) for value in values]
        # The row of an evaluation may repeat what the row before it has of the same step.
        before, self._before = self._before, {value.tag: value for value in values}
        if before.keys() >= self._before.keys():
            return values
        return [value for value in values if value.step is None or before.get(value.tag) != value]


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


FILE_BYTES_MAX = 256 << 20
ENTRIES_PER_READ = 4_096
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_LEFT_OUT = {"log_history", "best_model_checkpoint"}
_decoder = json.JSONDecoder()
HISTORY = "JSON history"
"""The form of other files that are JSON as a whole."""
_HISTORIES = {"history", "log", "logs", "metrics", "results", "training_history", "train_history"}
"""Objects that hold the history of a training, and whose names are no part of those of its metrics."""
_DEPTH_MAX = 3


class TrainerStateReader(LogReader):
    """Reads the file again when it changed, and returns the entries that are new."""

    def __init__(self, path: Path, form: str = "Hugging Face trainer state") -> None:
        self._path, self.form = path, form
        self._signature: tuple[int, ...] | None = None
        self._entries: list[Any] = []
        self._num_read = 0
        self._last_read: Any = None
        self._config: dict[str, Any] = {}
        self._problem = ""

    @property
    def damage(self) -> list[str]:
        """One sentence while the file is not valid JSON; its entries before the damage are read."""
        return [self._problem] if self._problem else []

    @property
    def config(self) -> dict[str, Any]:
        """The other keys of the state: `max_steps`, `num_train_epochs`, `train_batch_size`."""
        return self._config

    def read(self) -> list[LoggedValue]:
        if self._num_read >= len(self._entries):
            self._refresh()
        entries = self._entries[self._num_read : self._num_read + ENTRIES_PER_READ]
        self._num_read += len(entries)
        self._last_read = entries[-1] if entries else self._last_read
        return [value for entry in entries if type(entry) is dict for value in values_of(encodable(entry))]

    def move_to(self, path: Path) -> None:
        """Goes on with the state in a later checkpoint of the same training, which contains the entries read so far."""
        self._path = path

    def _refresh(self) -> None:
        signature = state_of(os.stat(self._path))
        if signature == self._signature:
            return
        text = read_small(self._path, FILE_BYTES_MAX).decode("utf-8", "replace")
        self._signature = signature
        try:
            state = json.loads(text)
            entries = rows_of_history(state) if self.form == HISTORY else state["log_history"]
            self._problem = "" if type(entries) is list else f"{self._path}: log_history is not a list"
            self._entries = entries if type(entries) is list else self._entries
            if self._num_read and self._entries[self._num_read - 1 : self._num_read] != [self._last_read]:
                self._num_read = 0  # the state of another training
            self._config = {
                key: value
                for key, value in (state.items() if type(state) is dict else ())
                if key not in _LEFT_OUT and type(value) in (bool, int, float, str)
            }
        except (ValueError, RecursionError, KeyError, TypeError):
            readable, offset = _readable_entries(text)
            # A file that is just being rewritten is shorter for a moment.
            self._entries = max(readable, self._entries, key=len)
            self._problem = (
                f"{self._path}: not valid JSON from character {offset:,} on; {len(readable):,} entries were read"
            )


def history_in(path: Path, head: bytes) -> bool:
    """Whether a file is one JSON value with the history of a training."""
    first, _, others = head.partition(b"\n")
    if head.lstrip()[:1] not in (b"{", b"[") or (others.strip() and object_of(first) is not None):
        return False
    try:
        return bool(rows_of_history(json.loads(read_small(path, FILE_BYTES_MAX))))
    except (OSError, ValueError, RecursionError):
        return False


def rows_of_history(state: Any, depth: int = 0) -> list[Any]:
    """The rows of the longest history in a JSON value, which has them, or a list for each metric; empty without one."""
    if type(state) is list:
        is_rows = bool(state) and all(type(row) is dict for row in state)
        return state if is_rows and any(map(_names_metric, flattened(state[-1]))) else []
    if type(state) is not dict or depth > _DEPTH_MAX:
        return []
    columns = dict(_columns(state, "", depth))
    if not any(map(_names_metric, columns)):
        return max((rows_of_history(value, depth + 1) for value in state.values()), key=len, default=[])
    lengths = Counter(map(len, columns.values()))
    length = max(lengths, key=lambda size: (lengths[size], size))
    whole = {name: values for name, values in columns.items() if len(values) == length}
    # One list alone may be of steps as well as of epochs.
    if len(whole) > 1 and {*map(in_words, whole)}.isdisjoint((*STEP_NAMES, *EPOCH_NAMES)):
        whole["epoch"] = list(range(1, length + 1))
    return [dict(zip(whole, row, strict=True)) for row in zip(*whole.values(), strict=True)]


def _columns(state: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """The lists of numbers in an object and the objects in it, by name."""
    for key, value in state.items():
        if type(value) is dict and depth < _DEPTH_MAX:
            yield from _columns(value, prefix if in_words(key) in _HISTORIES else f"{prefix}{key}/", depth + 1)
        elif type(value) is list and len(value) > 1 and all(number(item) is not None or item is None for item in value):
            yield "epoch" if total_of(key) == "total_epochs" else f"{prefix}{key}", value


def _names_metric(name: str) -> bool:
    return has_direction(name.rpartition("/")[2]) or meaning_of(name).name != name


def _readable_entries(text: str) -> tuple[list[Any], int]:
    """The entries of `log_history` before the damage of a file, and the offset of the damage."""
    start = _HISTORY.search(text)
    if start is None:
        return [], len(text)
    entries: list[Any] = []
    offset = start.end()
    while True:
        gap = _BETWEEN.match(text, offset)
        offset = gap.end() if gap else offset
        try:
            entry, offset = _decoder.raw_decode(text, offset)
        except (ValueError, RecursionError):
            return entries, offset
        entries.append(entry)
