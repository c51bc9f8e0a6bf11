"""A run as a TensorBoard event file: every core's values, their mean, and every metric, with the original times.

The format is a sequence of records, each with its length and two checksums, and each the serialised message
`tensorflow.Event` with one scalar.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tputui.exports.rows import EpochRow, MetricRow, Row, StepRow
from tputui.logs.tfevents import masked_crc
from tputui.telemetry.events import T_MAX

FILE_VERSION = b"brain.Event:2"
"""Content of the first record of every event file."""
_REPEATED = frozenset({("train", "epoch"), ("valid", "report")})
"""Values that the last report of an epoch, or its end, has as well."""
_FIXED64, _BYTES, _FIXED32 = 1, 2, 5
"""Wire types of protocol buffers; 0 is a varint."""


def write(folder: Path, run: str, rows: Iterator[Row]) -> int:
    """Writes `events.out.tfevents.TIME.RUN` into a folder; returns the number of scalars. Raises `OSError`."""
    count, file = 0, None
    try:
        for row in rows:
            for tag, step, value, t in _scalars(row):
                if file is None:
                    began = int(t) if 0.0 <= t <= T_MAX else 0
                    file = (folder / f"events.out.tfevents.{began}.{run}").open("wb")
                    _put(file, _double(1, t) + _bytes(3, FILE_VERSION))
                _put(file, _event(tag, step, value, t))
                count += 1
    finally:
        if file is not None:
            file.close()
    return count


def _scalars(row: Row) -> Iterator[tuple[str, int, float, float]]:
    """Tag, step, value and unix time of the scalars of a row."""
    if isinstance(row, StepRow):
        yield f"{row.metric}/core{row.core}", row.step, row.value, row.t
    elif isinstance(row, MetricRow) and (row.split, row.kind) not in _REPEATED:
        # A script may log a metric of its own with such a name.
        folder = "progress" if row.kind == "progress" else row.split
        yield f"{folder}/{row.name}", row.step, row.value, row.t or 0.0
    elif isinstance(row, EpochRow):
        yield "epoch/number", row.step, float(row.epoch), row.t
        yield "epoch/train_s", row.step, row.train_s, row.t
        yield "epoch/valid_s", row.step, row.valid_s, row.t
        if not math.isnan(row.lr):
            yield "epoch/lr", row.step, row.lr, row.t


def _event(tag: str, step: int, value: float, t: float) -> bytes:
    """A `tensorflow.Event` with one `simple_value`."""
    scalar = _bytes(1, tag.encode("utf-8", "replace")) + _key(2, _FIXED32) + _float32(value)
    return _double(1, t) + _key(2, 0) + _varint(step) + _bytes(5, _bytes(1, scalar))


def _put(file: IO[bytes], data: bytes) -> None:
    length = struct.pack("<Q", len(data))
    file.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _double(number: int, value: float) -> bytes:
    return _key(number, _FIXED64) + struct.pack("<d", value)


def _bytes(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return bytes([number << 3 | wire_type])


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
