"""TensorBoard event files: records with checksums (TFRecord), each an `Event` with a time, a step and values.

Every record is verified with CRC-32C. A record that does not match is reported and skipped; if its length is damaged,
reading continues at the next header whose own checksum matches. An incomplete last record is left for the next call.

Pure.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c

from tputui.logs.damage_notes import DamageNotes
from tputui.logs.growing import CHUNK_BYTES, GrowingFile, RecordReader
from tputui.logs.rows import TAG_CHARS_MAX, LoggedValue
from tputui.telemetry.files import read_at
from tputui.wire import BYTES, VARINT, WireError, WireField, fields, signed, varint, varints

_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_STRING, _STRING_VAL = 7, 8
_FLOAT_VAL, _DOUBLE_VAL, _INT_VAL, _INT64_VAL, _HALF_VAL, _UINT32_VAL, _UINT64_VAL = 5, 6, 7, 10, 13, 16, 17


class _Type(NamedTuple):
    """How one element type is encoded."""

    layout: str
    """Of `tensor_content`, for `struct`; `bf16` is handled apart."""
    typed_field: int


_TYPES = {
    1: _Type("<f", _FLOAT_VAL),
    2: _Type("<d", _DOUBLE_VAL),
    3: _Type("<i", _INT_VAL),
    4: _Type("<B", _INT_VAL),
    5: _Type("<h", _INT_VAL),
    6: _Type("<b", _INT_VAL),
    9: _Type("<q", _INT64_VAL),
    14: _Type("bf16", _HALF_VAL),
    17: _Type("<H", _INT_VAL),
    19: _Type("<e", _HALF_VAL),
    22: _Type("<I", _UINT32_VAL),
    23: _Type("<Q", _UINT64_VAL),
}
"""By the number of TensorFlow's `DataType`."""


def scalar(tensor: bytes) -> float | None:
    """The value of a tensor with one element of a number type; None for any other tensor. Raises `WireError`."""
    dtype, content, typed = 0, b"", {}
    for field in fields(tensor):
        if field.number == _DTYPE:
            dtype = field.integer
        elif field.number == _SHAPE and not _has_one_element(field.content):
            return None
        elif field.number == _CONTENT:
            content = field.content
        else:
            typed[field.number] = field
    kind = _TYPES.get(dtype)
    if kind is None:
        return None
    if content:
        return _of_content(kind.layout, content)
    return _of_typed(kind, typed.get(kind.typed_field))


def text(tensor: bytes) -> str | None:
    """The first text of a tensor of strings; None for any other tensor. Raises `WireError`."""
    tensor_fields = list(fields(tensor))
    if not any(field.number == _DTYPE and field.integer == _STRING for field in tensor_fields):
        return None
    return next((field.text for field in tensor_fields if field.number == _STRING_VAL), None)


def _has_one_element(shape: bytes) -> bool:
    """Whether every dimension of a `TensorShapeProto` is 1."""
    sizes = [
        signed(inner.integer)
        for dim in fields(shape)
        if dim.number == 2
        for inner in fields(dim.content)
        if inner.number == 1
    ]
    return all(size == 1 for size in sizes)


def _of_content(layout: str, content: bytes) -> float:
    if layout == "bf16":
        return _bfloat16(content)
    try:
        (value,) = struct.unpack(layout, content)
    except struct.error:
        raise WireError("the content of a scalar has the wrong size") from None
    return float(value)


def _of_typed(kind: _Type, field: WireField | None) -> float:
    if field is None:
        return 0.0  # Protocol buffers omit zeros.
    if kind.typed_field == _FLOAT_VAL:
        return field.float32
    if kind.typed_field == _DOUBLE_VAL:
        return field.double
    value = field.integer if field.kind == VARINT else next(varints(field.content), 0) if field.kind == BYTES else 0
    if kind.typed_field == _HALF_VAL:
        return _of_content(kind.layout, (value & 0xFFFF).to_bytes(2, "little"))
    return float(value if kind.typed_field in (_UINT32_VAL, _UINT64_VAL) else signed(value))


def _bfloat16(content: bytes) -> float:
    if len(content) != 2:
        raise WireError("the content of a scalar has the wrong size")
    (value,) = struct.unpack("<f", b"\0\0" + content)
    number: float = value
    return number


NAME_PART = "tfevents"
FIRST_BYTES = 1 << 16
"""Bytes of the first read, so that the first curve of a long file does not wait for a large chunk."""
RECORD_BYTES_MAX = 64 << 20
"""A longer record, such as a large image, is skipped without being read."""
_HEAD_BYTES, _CRC_BYTES = 12, 4
_MASK_DELTA = 0xA282EAD8
_SHAPES_MAX = 65_536
_LENGTHS_MAX = 4_096
_UINT32_MASK = 0xFFFFFFFF
_ZEROS = re.compile(rb"\0{4,}")
_WALL_TIME, _STEP, _SUMMARY, _SESSION_LOG = 1, 2, 5, 7
_STATUS, _START = 1, 1
_SESSION_START = re.compile(rb"\x3a[\x02-\x7f]\x08\x01", re.DOTALL)
"""The beginning of a `SessionLog` whose status is START, as part of an event."""
_STEP_BYTES_MAX = 11
STARTS_BYTES_MAX = 16 << 20
"""Bytes of a file that are searched for starts of the writer before it is read."""
_VALUE = 1
_TAG, _SIMPLE_VALUE, _TENSOR, _METADATA = 1, 2, 8, 9
_PLUGIN_DATA = 1
_PLUGIN_NAME, _PLUGIN_CONTENT = 1, 2
_LATEST_S = 1e11
_CONFIG_TEXT = re.compile(
    r"(.{1,200}/)?(config|configuration|cfg|args|arguments|hparams|hyperparameters|hyper_parameters|params)(/text_summary)?",
    re.IGNORECASE,
)
"""Tags of texts that are a configuration; `add_text` adds the last part."""
_TEXT_CHARS_MAX = 1 << 16
_TEXTS_MAX = 1_000
_new_value = partial(tuple.__new__, LoggedValue)
"""`LoggedValue._make` without a call of Python code."""
_crc32c = google_crc32c.value
_double_at = struct.Struct("<d").unpack_from
_float_at = struct.Struct("<f").unpack_from
_uint32_at = struct.Struct("<I").unpack_from
_head_at = struct.Struct("<QI").unpack_from


def masked_crc(data: bytes) -> int:
    """The checksum of the format: CRC-32C, rotated and shifted by a constant."""
    crc = int(_crc32c(data))
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _UINT32_MASK


class Start(NamedTuple):
    """A start of the writer: values of its step and later ones that were written before are not valid any more."""

    offset: int
    """Of its record, in bytes."""
    step: int


class EventFileReader(RecordReader):
    form = "TensorBoard event file"

    def __init__(self, path: Path, part: GrowingFile | None = None, notes: DamageNotes | None = None) -> None:
        super().__init__(path, part, notes)
        self.config: dict[str, Any] = {}
        """Hyperparameters of the hparams plugin, and texts that are named like a configuration."""
        self.session: dict[str, Any] = {}
        """Hyperparameters of the hparams plugin."""
        self._lengths: dict[bytes, int] = {}
        """Record lengths by their verified header."""
        self._shapes: dict[bytes, str] = {}
        """Tags of events with one simple value, by every byte between the step and the value."""
        self._plugins: dict[str, str] = {}
        """Plugin of a tag, which only its first value needs to name."""
        self.starts: list[Start] = []
        """Known starts of the writer, in order."""
        self.purged_from = math.inf
        """Steps from this one on were written again into a later file, so they are left out."""
        self._newest_step = -math.inf

    @property
    def has_session(self) -> bool:
        """Whether there are hyperparameters of the hparams plugin."""
        return bool(self.session)

    @property
    def is_read(self) -> bool:
        """Whether everything that was written so far was read."""
        return self._file.is_read

    def find_starts(self) -> None:
        """Finds the starts of the writer in what is written so far, or the beginning of it. Raises `OSError`."""
        content = read_at(self._path, 0, STARTS_BYTES_MAX)
        self.starts = [
            start for match in _SESSION_START.finditer(content) if (start := _start_at(content, match.start()))
        ]

    @property
    def _chunk_bytes(self) -> int:
        offset = self._file.offset
        usual = max(CHUNK_BYTES if offset else FIRST_BYTES, len(self._buffer))
        # Values before a start are read apart from those after it.
        return min([usual, *(start.offset - offset for start in self.starts if start.offset > offset)])

    def _part_of(self, file: GrowingFile) -> EventFileReader:
        part = EventFileReader(self._path, file, self._notes)
        part.config, part.session = self.config, self.session
        part._shapes, part._plugins = self._shapes, self._plugins
        part.starts, part.purged_from = self.starts, self.purged_from
        return part

    def _take(self, chunk: bytes) -> list[LoggedValue]:
        values: list[LoggedValue] = []
        buffer = self._buffer + chunk
        position = 0
        while position + _HEAD_BYTES <= len(buffer):
            if self._lost_from is not None:
                position = self._next_record(buffer, position)
                if self._lost_from is not None:
                    break
            position = self._read_records(buffer, position, values)
            if self._lost_from is None:
                break
        first = min([self.purged_from, *(start.step for start in self.starts if start.offset >= self._file.offset)])
        self._buffer = self._file.keep(buffer[position:])
        if first < math.inf:
            values = [value for value in values if (value.step or 0) < first]
        if values:
            self._newest_step = max(self._newest_step, values[-1].step or 0)
        return values

    def _read_records(self, buffer: bytes, position: int, values: list[LoggedValue]) -> int:
        """Reads complete records; the offset of the first byte that was not used. The inner loop of opening a log."""
        size = len(buffer)
        lengths, shapes, crc32c = self._lengths, self._shapes, _crc32c
        while position + _HEAD_BYTES <= size:
            head = buffer[position : position + _HEAD_BYTES]
            length = lengths.get(head)
            if length is None:
                length = self._length_of(head)
                if length is None:
                    if self._is_unwritten(buffer, position + _HEAD_BYTES):
                        return position
                    self._begin_lost(self._offset(buffer, position))
                    return position + 1
            end = position + _HEAD_BYTES + length
            if end + _CRC_BYTES > size:
                return self._skipped(buffer, position, length) if length > RECORD_BYTES_MAX else position
            data = buffer[position + _HEAD_BYTES : end]
            crc = crc32c(data)
            if (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _UINT32_MASK != _uint32_at(buffer, end)[0]:
                if self._is_unwritten(buffer, end + _CRC_BYTES):
                    return position
                self._note_record(buffer, position, length, "does not match its checksum")
            elif length > 15 and data[0] == 0x09 and data[9] == 0x10:
                # The usual event: a time, a step and a float. All other bytes are the same for every event of a tag.
                step, after = data[10], 11
                if step >= 0x80:
                    if data[11] < 0x80:
                        step, after = step & 0x7F | data[11] << 7, 12
                    elif data[12] < 0x80:
                        step, after = step & 0x7F | (data[11] & 0x7F) << 7 | data[12] << 14, 13
                    else:
                        step, after = _signed_varint(data, 10)
                tag = shapes.get(data[after:-4])
                t = _double_at(data, 1)[0]
                if tag is not None and 0 < t < _LATEST_S:
                    values.append(_new_value((tag, step, t, _float_at(data, length - 4)[0], None, "")))
                else:
                    self._decode(buffer, position, data, values)
            else:
                self._decode(buffer, position, data, values)
            position = end + _CRC_BYTES
        return position

    def _length_of(self, head: bytes) -> int | None:
        """The length of a record; None if the header does not match its checksum."""
        length, crc = _head_at(head)
        if masked_crc(head[:8]) != crc:
            return None
        if len(self._lengths) < _LENGTHS_MAX:
            self._lengths[head] = length
        return int(length)

    def _skipped(self, buffer: bytes, position: int, length: int) -> int:
        """Continues after a record that is too long to read."""
        start = self._offset(buffer, position)
        self._notes.add(f"{self._path}: the record at byte {start:,} of {length:,} bytes was skipped")
        self._file.offset = start + _HEAD_BYTES + length + _CRC_BYTES
        return len(buffer)

    def _next_record(self, buffer: bytes, position: int) -> int:
        """The position of the next header whose checksum matches, or where to continue with more bytes."""
        for start in _candidates(buffer, position):
            if start + _HEAD_BYTES > len(buffer):
                break
            if self._length_of(buffer[start : start + _HEAD_BYTES]) is not None:
                self._end_lost(self._offset(buffer, start))
                return start
        return max(position, len(buffer) - _HEAD_BYTES + 1)

    def _decode(self, buffer: bytes, position: int, data: bytes, values: list[LoggedValue]) -> None:
        try:
            # All of its values, or none.
            values += list(self._values(data))
        except WireError as error:
            self._note_record(buffer, position, len(data), f"is not an event: {error}")

    def _values(self, data: bytes) -> Iterator[LoggedValue]:
        t: float | None = None
        step = 0
        summaries: list[bytes] = []
        for field in fields(data):
            if field.number == _WALL_TIME:
                t = field.double if 0 < field.double < _LATEST_S else None
            elif field.number == _STEP:
                step = signed(field.integer)
            elif field.number == _SUMMARY:
                summaries.append(field.content)
            elif field.number == _SESSION_LOG and _is_start(field.content) and not self._is_known(step):
                self.note_start(step)
        for summary in summaries:
            for field in fields(summary):
                if field.number != _VALUE:
                    continue
                parts = list(fields(field.content))
                tag, value = self._tag_and_value(parts)
                if value is not None and 0 < len(tag) <= TAG_CHARS_MAX:
                    if t is not None and [part.number for part in parts] == [_TAG, _SIMPLE_VALUE]:
                        self._learn_shape(data, summary, field.content, tag)
                    yield LoggedValue(tag, step, t, value)

    def _is_known(self, step: int) -> bool:
        return any(start.step == step for start in self.starts)

    def note_start(self, step: float) -> None:
        """Notes that the writer started again at a step, if later ones were read before."""
        if self._newest_step >= step:
            self._notes.add(
                f"{self._path}: the writer started again at step {step:,.0f}; what was logged of later steps before "
                "that is shown, too, until the log is opened again"
            )

    def _learn_shape(self, data: bytes, summary: bytes, value: bytes, tag: str) -> None:
        """Remembers the bytes around the value of an event that has nothing but a time, a step and this value."""
        if data[0] != 0x09 or data[9] != 0x10 or not (data.endswith(summary) and summary.endswith(value)):
            return
        _, after = varint(data, 10)
        body = data[after:]
        is_alone = len(list(fields(body))) == 1 and len(list(fields(summary))) == 1
        if is_alone and len(self._shapes) < _SHAPES_MAX:
            self._shapes[body[:-4]] = tag

    def _tag_and_value(self, parts: list[WireField]) -> tuple[str, float | None]:
        tag, value, tensor = "", None, None
        for part in parts:
            if part.number == _TAG:
                tag = part.text
            elif part.number == _SIMPLE_VALUE:
                value = part.float32
            elif part.number == _TENSOR:
                tensor = part.content
            elif part.number == _METADATA:
                self._note_plugin(tag, part.content)
        plugin = self._plugins.get(tag)
        if tensor is not None and plugin == "scalars":
            value = scalar(tensor)
        elif tensor is not None and plugin == "text" and _CONFIG_TEXT.fullmatch(tag):
            self._add_text(tag.removesuffix("/text_summary"), text(tensor))
        return tag, value

    def _note_plugin(self, tag: str, metadata: bytes) -> None:
        for field in fields(metadata):
            if field.number == _PLUGIN_DATA:
                parts = {part.number: part for part in fields(field.content)}
                name = parts[_PLUGIN_NAME].text if _PLUGIN_NAME in parts else ""
                if len(self._plugins) < _SHAPES_MAX:
                    self._plugins.setdefault(tag, name)
                if name == "hparams" and _PLUGIN_CONTENT in parts:
                    config = hyperparameters(parts[_PLUGIN_CONTENT].content)
                    self.session.update(config)
                    self.config.update(config)

    def _add_text(self, name: str, text: str | None) -> None:
        if text is not None and len(text) <= _TEXT_CHARS_MAX and len(self.config) < _TEXTS_MAX:
            self.config[name] = text

    def _note_record(self, buffer: bytes, position: int, length: int, problem: str) -> None:
        start = self._offset(buffer, position)
        end = start + _HEAD_BYTES + length + _CRC_BYTES
        self._note(start, end, f"{self._path}: the record at byte {start:,} {problem}")

    def _is_unwritten(self, buffer: bytes, end: int) -> bool:
        return self._file.is_unwritten(self._offset(buffer, end))

    def _offset(self, buffer: bytes, position: int) -> int:
        """The offset in the file of a position in the buffer, whose end is what was read last."""
        return self._file.offset - len(buffer) + position


def _signed_varint(data: bytes, offset: int) -> tuple[int, int]:
    """An int64, and the offset after it; if it is not valid, the end of the data, before which nothing is known."""
    try:
        value, after = varint(data, offset)
    except WireError:
        return 0, len(data)
    return signed(value), after


def _is_start(session_log: bytes) -> bool:
    return any(field.number == _STATUS and field.integer == _START for field in fields(session_log))


def _start_at(content: bytes, position: int) -> Start | None:
    """The start of the writer whose session log is at a position; None if there is no valid record around it."""
    for step_bytes in range(min(_STEP_BYTES_MAX, position) + 1):
        begin = position - step_bytes - 9
        head = content[max(0, begin - _HEAD_BYTES) : max(0, begin)]
        if len(head) < _HEAD_BYTES or masked_crc(head[:8]) != _head_at(head)[1]:
            continue
        end = begin + _head_at(head)[0]
        data = content[begin:end]
        if content[end : end + _CRC_BYTES] != masked_crc(data).to_bytes(_CRC_BYTES, "little"):
            continue
        try:
            step = next((signed(field.integer) for field in fields(data) if field.number == _STEP), 0)
        except WireError:
            continue
        return Start(begin - _HEAD_BYTES, step)
    return None


def _candidates(buffer: bytes, position: int) -> Iterator[int]:
    """Where a header may be: the upper half of a length is zero, the lower half is not."""
    for run in _ZEROS.finditer(buffer, position):
        for start in range(max(position, run.start() - 4), run.start()):
            if start + 8 <= run.end():
                yield start


def hyperparameters(content: bytes) -> dict[str, Any]:
    """The hyperparameters of a session in the data of the hparams plugin. Raises `WireError`."""
    config: dict[str, Any] = {}
    for field in fields(content):
        if field.number == 3:  # session_start_info
            for entry in fields(field.content):
                if entry.number == 1:  # hparams, a map
                    parts = {part.number: part for part in fields(entry.content)}
                    if 1 in parts and 2 in parts:
                        config[parts[1].text] = _plain_value(parts[2].content)
    return config


def _plain_value(content: bytes) -> Any:
    """A `google.protobuf.Value` that is a number, a text or a boolean; None for any other."""
    for field in fields(content):
        if field.number == 2:
            return field.double
        if field.number == 3:
            return field.text
        if field.number == 4:
            return bool(field.integer)
    return None
