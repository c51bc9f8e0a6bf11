"""Reads the wire format of protocol buffers: the fields of a message, without a schema. Pure.

Few messages are read: those of logs, and of the service of the TPU runtime. So neither `protobuf` nor generated
classes are needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_UINT64_MASK = (1 << 64) - 1
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """Bytes are not a message; the message of the error is the reason."""


class WireField(NamedTuple):
    """One field of a message, as it is encoded."""

    number: int
    kind: int
    """`VARINT`, `FIXED64`, `BYTES` or `FIXED32`."""
    integer: int
    """The value of a varint, unsigned; 0 for other kinds."""
    content: bytes
    """The bytes of other kinds; empty for a varint."""

    @property
    def text(self) -> str:
        """The content as text; invalid UTF-8 is replaced."""
        return self.content.decode("utf-8", "replace")

    @property
    def double(self) -> float:
        """The content as a float64."""
        return _unpacked("<d", self.content)

    @property
    def float32(self) -> float:
        """The content as a float32, widened exactly."""
        return _unpacked("<f", self.content)


def fields(message: bytes) -> Iterator[WireField]:
    """The fields of a message in their order. Raises `WireError`."""
    offset, size = 0, len(message)
    while offset < size:
        key, offset = varint(message, offset)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            integer, offset = varint(message, offset)
            yield WireField(number, kind, integer, b"")
            continue
        if kind == BYTES:
            length, offset = varint(message, offset)
        elif kind in _FIXED_SIZES:
            length = _FIXED_SIZES[kind]
        else:
            raise WireError(f"field {number} has the unknown wire type {kind}")
        if offset + length > size:
            raise WireError(f"field {number} is longer than its message")
        yield WireField(number, kind, 0, message[offset : offset + length])
        offset += length


def varint(message: bytes, offset: int) -> tuple[int, int]:
    """An unsigned integer of up to 64 bits, and the offset after it. Raises `WireError`."""
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if offset + index >= len(message):
            raise WireError("a number is cut off")
        byte = message[offset + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & _UINT64_MASK, offset + index + 1
    raise WireError("a number is too long")


def varints(content: bytes) -> Iterator[int]:
    """The unsigned integers of a packed field. Raises `WireError`."""
    offset = 0
    while offset < len(content):
        value, offset = varint(content, offset)
        yield value


def signed(value: int) -> int:
    """An int64 from its unsigned form."""
    return value - (1 << 64) if value >> 63 else value


def _unpacked(layout: str, content: bytes) -> float:
    try:
        (value,) = struct.unpack(layout, content)
    except struct.error:
        raise WireError("a number has the wrong size") from None
    number: float = value
    return number
