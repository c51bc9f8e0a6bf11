"""Reads TFRecord files of `tf.train.Example` without TensorFlow. Must not import torch.

A file is indexed first, by skipping from one record length to the next: examples are then fetched by number as from any
other source, so that no two readers yield the same record. Images stay in the file; only small features are read here.
The checksum of each length is verified, the checksum of the data is not: a damaged image fails when it is decoded.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import polars as pl

from engine.data.options import ImageData
from engine.data.rows import Names, Raw, refuse
from tputui.engine_api import expanded

SUFFIX = re.compile(r"\.(tfrec|tfrecords?)(-\d+-of-\d+)?$|tfrecord", re.IGNORECASE)
HEAD_BYTES, FOOT_BYTES = 12, 4
LARGE_BYTES = 4096
"""A longer bytes feature is not a label and stays in the file."""

View = mmap.mmap | memoryview


class Malformed(Exception):
    """A record or file is damaged; the text says how."""


class Blob(NamedTuple):
    """Offset and size of bytes that stay in the file."""

    start: int
    size: int


def is_tfrecord(source: str) -> bool:
    """Whether the name or glob pattern is that of TFRecord files."""
    return bool(SUFFIX.search(Path(source).name))


def read_records(options: ImageData) -> Raw:
    """Every record of the files, in order, numbered from 0 in each file. Raises `ValueError` or `FileNotFoundError`."""
    rows: list[dict[str, Any]] = []
    paths: list[str] = []
    numbers: list[int] = []
    bad: list[tuple[int, str, str]] = []
    for path in _files(options.source):
        with path.open("rb") as file, _mapped(file, path) as data:
            for number, (start, size) in enumerate(_spans(data, path)):
                try:
                    row = dict(example(data, start, start + size, options.image))
                    wrong = _wrong(row, options)
                except Malformed as error:
                    row, wrong = {}, ("", str(error))
                if wrong is not None:
                    bad.append((len(rows), *wrong))
                rows.append(row)
                paths.append(str(path))
                numbers.append(number)
    return _raw(options, rows, paths, numbers, bad)


def index(path: Path) -> list[tuple[int, int]]:
    """Offset and size of every record of a file. Raises `ValueError` if the file is damaged."""
    with path.open("rb") as file, _mapped(file, path) as data:
        return list(_spans(data, path))


def _files(source: str) -> list[Path]:
    path = expanded(source)
    if path.is_file():
        return [path]
    paths = sorted(path.parent.glob(path.name)) if path.parent.is_dir() else []
    if not paths:
        raise FileNotFoundError(f"{source}: no such file; data.source names it from the folder the run is started in")
    return paths


def _mapped(file: Any, path: Path) -> mmap.mmap:
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        refuse(f"{path} is empty; it should hold TFRecord examples")


def _spans(data: mmap.mmap, path: Path) -> Iterator[tuple[int, int]]:
    at, number = 0, 0
    while at < len(data):
        head = data[at : at + HEAD_BYTES]
        if len(head) < HEAD_BYTES:
            refuse(f"{path} is cut short in record {number}; copy it again")
        size, check = struct.unpack("<QI", head)
        if masked_crc(head[:8]) != check:
            refuse(f"{path} is not a TFRecord file, or it is damaged in record {number}, byte {at}")
        if at + HEAD_BYTES + size + FOOT_BYTES > len(data):
            refuse(f"{path} is cut short in record {number}; copy it again")
        yield at + HEAD_BYTES, size
        at += HEAD_BYTES + size + FOOT_BYTES
        number += 1


def masked_crc(data: bytes) -> int:
    """The checksum of the format: masked CRC-32C."""
    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def example(data: View, start: int, end: int, image: str = "") -> Iterator[tuple[str, Any]]:
    """Name and value of each feature of an encoded Example; the one named `image` stays in the file even if its bytes
    are valid text. Raises `Malformed`."""
    for features in _parts(data, start, end):
        for entry in _parts(data, features.start, features.start + features.size):
            name, value = _entry(data, entry, image)
            yield name, value


def _parts(data: View, start: int, end: int) -> Iterator[Blob]:
    """The length-delimited fields with number 1 of a message."""
    return (value for field, value in _fields(data, start, end) if field == 1 and isinstance(value, Blob))


def _entry(data: View, entry: Blob, image: str) -> tuple[str, Any]:
    name, feature = "", None
    for field, part in _fields(data, entry.start, entry.start + entry.size):
        if not isinstance(part, Blob):
            continue
        if field == 1:
            name = bytes(data[part.start : part.start + part.size]).decode("utf-8", "replace")
        else:
            feature = part
    return name, None if feature is None else _value(data, feature, is_image=name == image)


def _value(data: View, feature: Blob, *, is_image: bool) -> Any:
    """The first value of a feature; bytes as text, or as `Blob` if they are long or not UTF-8."""
    for kind, values in _fields(data, feature.start, feature.start + feature.size):
        if not isinstance(values, Blob):
            continue
        for _, value in _fields(data, values.start, values.start + values.size):
            if kind == 1 and isinstance(value, Blob):
                return value if is_image else _text(data, value)
            if kind == 2:
                return _first_float(data, values, value)
            if kind == 3:
                return _first_int(data, value)
    return None


def _text(data: View, blob: Blob) -> Any:
    if blob.size > LARGE_BYTES:
        return blob
    try:
        return bytes(data[blob.start : blob.start + blob.size]).decode("utf-8")
    except UnicodeDecodeError:
        return blob


def _first_float(data: View, values: Blob, value: Any) -> float:
    start = value.start if isinstance(value, Blob) else values.start + 1
    if start + 4 > values.start + values.size:
        raise Malformed("the record is damaged")
    return float(struct.unpack("<f", bytes(data[start : start + 4]))[0])


def _first_int(data: View, value: Any) -> int:
    number = _varint(data, value.start, value.start + value.size)[0] if isinstance(value, Blob) else int(value)
    return number - (1 << 64) if number >> 63 else number


def _fields(data: View, start: int, end: int) -> Iterator[tuple[int, Blob | int]]:
    """Number and value of each field of an encoded message, in order."""
    at = start
    while at < end:
        key, at = _varint(data, at, end)
        field, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at, end)
            yield field, value
            continue
        if kind == 2:
            size, at = _varint(data, at, end)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise Malformed("the record is damaged or not a tf.train.Example")
        if at + size > end:
            raise Malformed("the record is damaged or not a tf.train.Example")
        yield field, Blob(at, size)
        at += size


def _varint(data: View, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise Malformed("the record is damaged or not a tf.train.Example")


def _wrong(row: dict[str, Any], options: ImageData) -> tuple[str, str] | None:
    """The first feature that is missing or of the wrong kind, and the reason; None if there is none."""
    for name, kind in {options.image: "byte", **options.features}.items():
        value = row.get(name)
        stored_kind = "byte" if isinstance(value, str | Blob) else "int" if isinstance(value, int) else "float"
        if value is None:
            return name, f"the record has no such feature; it has {', '.join(sorted(row)) or 'none'}"
        if stored_kind != kind:
            return name, f"the feature holds {stored_kind}, not {kind}"
    return None


def _raw(
    options: ImageData,
    rows: list[dict[str, Any]],
    paths: list[str],
    numbers: list[int],
    bad: list[tuple[int, str, str]],
) -> Raw:
    if not rows:
        refuse(f"{options.source} has no records")
    names = sorted({name for row in rows for name in row})
    small = {name: [_small(row.get(name)) for row in rows] for name in names if name != options.image}
    frame = pl.DataFrame({name: pl.Series(name, cells, strict=False) for name, cells in small.items()})
    if not small:
        frame = pl.DataFrame({"record": numbers})
    spans = np.array([_span(row.get(options.image)) for row in rows], dtype=np.int64)
    called = Names(options.source, np.array(numbers, dtype=np.int64), "record", sources=paths)
    return Raw(options.source, frame, called, Path(paths[0]).parent, paths, spans, tuple(bad))


def _small(value: Any) -> Any:
    return None if isinstance(value, Blob) else value


def _span(value: Any) -> Blob:
    return value if isinstance(value, Blob) else Blob(0, 0)
