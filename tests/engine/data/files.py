"""Writes small images, tables and TFRecord files for tests."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine.data.tfrecord import masked_crc


def write_image(path: Path, value: int, size: tuple[int, int] = (8, 6)) -> Path:
    """Writes an image of one colour, size (width, height), in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size[1], size[0], 3), value, dtype=np.uint8)).save(path)
    return path


def write_table(path: Path, header: str, *rows: str) -> str:
    """Writes a CSV; returns its path."""
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def varint(number: int) -> bytes:
    number %= 1 << 64
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of an encoded message."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def feature(value: Any) -> bytes:
    """An encoded Feature of one value."""
    if isinstance(value, bytes):
        return field(1, field(1, value))
    if isinstance(value, int):
        return field(3, field(1, varint(value)))
    return field(2, field(1, struct.pack("<f", value)))


def write_records(path: Path, records: list[dict[str, Any]]) -> str:
    """Writes a TFRecord file of Examples; returns its path."""
    out: list[bytes] = []
    for record in records:
        entries = b"".join(
            field(1, field(1, name.encode()) + field(2, feature(value))) for name, value in record.items()
        )
        example = field(1, entries)
        head = struct.pack("<Q", len(example))
        out.append(head + struct.pack("<I", masked_crc(head)) + example + struct.pack("<I", masked_crc(example)))
    path.write_bytes(b"".join(out))
    return str(path)
