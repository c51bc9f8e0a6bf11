"""W&B's offline files, `run-ID.wandb`: a log in blocks with checksums, each record a message of W&B's protocol.

The file is written in blocks of 32 KiB, as LevelDB's log is. After damage, reading continues at
the next sound record, or at the next block. W&B buffers what it writes, so the newest values may be some seconds late.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

from tputui.logs.damage_notes import DamageNotes
from tputui.logs.growing import GrowingFile, RecordReader
from tputui.logs.rows import EPOCH_NAMES, TAG_CHARS_MAX, LoggedValue, decimal, epoch_number, step_number, unix_time_s
from tputui.wire import WireError, WireField, fields, signed

SUFFIX = ".wandb"
IDENT = b":W&B"
HEADER_BYTES = 7
BLOCK_BYTES = 32 << 10
RECORD_BYTES_MAX = 64 << 20
_MAGIC = 0xBEE1
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECORD_HEAD = struct.Struct("<IHB")
_TYPE_AT = 6
"""The checksum covers the kind, which is the last byte of the head, and the content."""
_HISTORY, _CONFIG, _METRIC, _RUN = 2, 5, 12, 17
"""Kinds of records that are read: fields of `Record`."""
_ITEM, _STEP = 1, 2
_KEY, _NESTED_KEY, _BOOLEAN, _INTEGER, _NUMBER, _JSON, _VALUE_JSON = 1, 2, 4, 5, 6, 8, 16
_RUN_CONFIG = 4
_METRIC_NAME, _METRIC_GLOB, _STEP_METRIC = 1, 2, 4
"""Fields of `MetricRecord`, which `wandb.define_metric` writes."""
_AXES_MAX = 4_096
_GLOBAL_STEPS = ("trainer/global_step", "train/global_step", "global_step")
"""Keys under which frameworks log the training step; W&B's own step counts the calls of `wandb.log`."""
_INTERNAL = "_"
_CONFIG_BYTES_MAX = 1 << 20


def is_wandb(head: bytes) -> bool:
    return head.startswith(IDENT + _MAGIC.to_bytes(2, "little"))


class WandbReader(RecordReader):
    form = "W&B offline file"

    def __init__(self, path: Path, part: GrowingFile | None = None, notes: DamageNotes | None = None) -> None:
        super().__init__(path, part, notes)
        self._parts: list[bytes] = []
        """The first parts of a record that continues in the next block."""
        self._parts_bytes = 0
        self._parts_from = 0
        """Offset of the record that is read."""
        self._config: dict[str, Any] = {}
        self._axes = _ChosenAxes()

    @property
    def _incomplete_bytes(self) -> bytes:
        return self._buffer or b"".join(self._parts)

    @property
    def config(self) -> dict[str, Any]:
        """`wandb.config`, as far as the file was read."""
        return self._config

    @property
    def _unused_from(self) -> int:
        return self._parts_from if self._parts and self._lost_from is None else super()._unused_from

    def _go_to(self, offset: int) -> None:
        super()._go_to(offset)
        self._parts, self._parts_bytes = [], 0

    def _part_of(self, file: GrowingFile) -> WandbReader:
        part = WandbReader(self._path, file, self._notes)
        part._config, part._axes = self._config, self._axes
        return part

    def _take(self, chunk: bytes) -> list[LoggedValue]:
        self._buffer += chunk
        values: list[LoggedValue] = []
        buffer = self._buffer
        start = self._file.offset - len(buffer)
        position, size = 0, len(buffer)
        if start == 0:
            if size < HEADER_BYTES:
                return []
            position = HEADER_BYTES
        while True:
            block_left = BLOCK_BYTES - (start + position) % BLOCK_BYTES
            if block_left < _RECORD_HEAD.size:
                position += block_left
                continue
            if position + _RECORD_HEAD.size > size:
                break
            length, kind, crc = _head(buffer, position)
            end = position + _RECORD_HEAD.size + length
            fits = _RECORD_HEAD.size + length <= block_left and _FULL <= kind <= _LAST
            if fits and end > size:
                break
            if not fits or zlib.crc32(buffer[position + _TYPE_AT : end]) != crc:
                if self._file.is_unwritten(start + (end if fits else position + _RECORD_HEAD.size)):
                    break
                self._begin_lost(start + position)
                position += end - position if fits and _is_sound(buffer, end) else block_left
                continue
            self._add_part(kind, buffer[position + _RECORD_HEAD.size : end], start + position, values)
            position = end
        self._buffer = self._file.keep(buffer[position:])
        if position > size:
            # The rest of a damaged block is not written yet.
            self._file.offset += position - size
        return values

    def _begin_lost(self, offset: int) -> None:
        if self._lost_from is None:
            super()._begin_lost(self._parts_from if self._parts else offset)
        self._parts, self._parts_bytes = [], 0

    def _add_part(self, kind: int, part: bytes, offset: int, values: list[LoggedValue]) -> None:
        if kind in (_FULL, _FIRST):
            self._parts, self._parts_bytes, self._parts_from = [], 0, offset
            self._end_lost(offset)
        elif not self._parts:
            return  # The beginning of this record is lost, which is reported.
        self._parts.append(part)
        self._parts_bytes += len(part)
        if self._parts_bytes > RECORD_BYTES_MAX:
            self._parts, self._parts_bytes = [], 0
            self._notes.add(f"{self._path}: a record before byte {offset:,} exceeds {RECORD_BYTES_MAX:,} bytes")
        elif kind in (_FULL, _LAST):
            record, self._parts, self._parts_bytes = b"".join(self._parts), [], 0
            try:
                values += self._values(record)
            except WireError as error:
                end = offset + _RECORD_HEAD.size + len(part)
                sentence = f"{self._path}: the record at byte {self._parts_from:,} is not valid: {error}"
                self._note(self._parts_from, end, sentence)

    def _values(self, record: bytes) -> list[LoggedValue]:
        """The metrics in a record. Raises `WireError`."""
        values: list[LoggedValue] = []
        for field in fields(record):
            if field.number == _HISTORY:
                values += _history(field.content, self._axes)
            elif field.number == _METRIC:
                self._axes.add(field.content)
            elif field.number == _CONFIG:
                self._add_config(field.content)
            elif field.number == _RUN:
                for inner in fields(field.content):
                    if inner.number == _RUN_CONFIG:
                        self._add_config(inner.content)
        return values

    def _add_config(self, content: bytes) -> None:
        for field in fields(content):
            if field.number == 1 and len(field.content) <= _CONFIG_BYTES_MAX:
                key, value = _item(field.content)
                if key and not key.startswith(_INTERNAL):
                    self._config[key] = _plain(value)


class _ChosenAxes:
    """The x axes that `wandb.define_metric` chose: by the name of a metric, or by a pattern that ends with `*`."""

    def __init__(self) -> None:
        self._of_pattern: dict[str, str] = {}
        self._of_key: dict[str, str] = {}

    def add(self, content: bytes) -> None:
        """Adds a definition. Raises `WireError`."""
        texts = {field.number: field.text for field in fields(content) if field.number <= _STEP_METRIC}
        pattern, x = texts.get(_METRIC_NAME) or texts.get(_METRIC_GLOB, ""), texts.get(_STEP_METRIC, "")
        if pattern and len(pattern) <= TAG_CHARS_MAX and len(x) <= TAG_CHARS_MAX and len(self._of_pattern) < _AXES_MAX:
            self._of_pattern[pattern] = x
            self._of_key = {}

    def of(self, key: str) -> str:
        """The axis of a metric: the tag of another one, `epoch`, or `time`; empty for steps."""
        if not self._of_pattern:
            return ""
        if key not in self._of_key:
            globs = [name for name in self._of_pattern if name.endswith("*") and key.startswith(name[:-1])]
            # A name counts more than a pattern, and a longer pattern more than a shorter one.
            x = self._of_pattern.get(key) or self._of_pattern.get(max(globs, key=len, default=""), "")
            known = {"_step": "", "_runtime": "time", "_timestamp": "time", **dict.fromkeys(_GLOBAL_STEPS, ""), key: ""}
            self._of_key[key] = known.get(x, "epoch" if x in EPOCH_NAMES else x)
        return self._of_key[key]


def _head(buffer: bytes, position: int) -> tuple[int, int, int]:
    """Length, kind and checksum of the record at a position."""
    crc, length, kind = _RECORD_HEAD.unpack_from(buffer, position)
    return length, kind, crc


def _is_sound(buffer: bytes, position: int) -> bool:
    """Whether a complete record with the right checksum is at a position."""
    if position + _RECORD_HEAD.size > len(buffer):
        return False
    length, kind, crc = _head(buffer, position)
    end = position + _RECORD_HEAD.size + length
    return _FULL <= kind <= _LAST and end <= len(buffer) and zlib.crc32(buffer[position + _TYPE_AT : end]) == crc


def _history(content: bytes, axes: _ChosenAxes) -> list[LoggedValue]:
    """The metrics of one `wandb.log`. Raises `WireError`."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    step: int | None = None
    for field in fields(content):
        if field.number == _ITEM:
            key, value = _item(field.content)
            number = decimal(value)
            if number is not None and 0 < len(key) <= TAG_CHARS_MAX:
                numbers[key], texts[key] = number, value
        elif field.number == _STEP:
            step = next((signed(inner.integer) for inner in fields(field.content) if inner.number == 1), None)
    framework_key = next((key for key in _GLOBAL_STEPS if key in numbers), None)
    logged_step = step_number(texts.get("_step"))
    step = logged_step if logged_step is not None else step
    if framework_key is not None:
        step = step_number(texts[framework_key])
        del numbers[framework_key]
    t = unix_time_s(numbers.get("_timestamp"))
    epoch_key = next((key for key in EPOCH_NAMES if key in numbers), None)
    epoch = epoch_number(numbers.pop(epoch_key)) if epoch_key is not None else None
    return [
        LoggedValue(key, step, t, number, epoch, axes.of(key))
        for key, number in numbers.items()
        if not key.startswith(_INTERNAL)
    ]


def _item(item: bytes) -> tuple[str, str]:
    """The key of an item, with nested keys joined by `/`, and its value as JSON. Raises `WireError`."""
    # The usual item: one key, then the JSON.
    if len(item) > 5 and item[0] in (0x0A, 0x12) and item[1] < 0x80:
        end = 2 + item[1]
        if item[end : end + 2] == b"\x82\x01" and end + 2 < len(item) and item[end + 2] == len(item) - end - 3 < 0x80:
            return item[2:end].decode("utf-8", "replace"), item[end + 3 :].decode("utf-8", "replace")
    keys: list[str] = []
    value = ""
    for field in fields(item):
        if field.number in (_KEY, _NESTED_KEY):
            keys.append(field.text)
        else:
            value = _as_json(field) or value
    return "/".join(keys), value


def _as_json(field: WireField) -> str:
    if field.number in (_JSON, _VALUE_JSON):
        return field.text
    if field.number == _NUMBER:
        return repr(field.double)
    if field.number == _INTEGER:
        return str(field.integer >> 1 ^ -(field.integer & 1))  # sint64
    if field.number == _BOOLEAN:
        return "true" if field.integer else "false"
    return ""


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
