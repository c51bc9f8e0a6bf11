"""Scalars and texts in TensorFlow's `TensorProto`: the form in which TensorFlow 2 and `tensorboard.summary` write.

Pure.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tputui.wire import BYTES, VARINT, Field, WireError, fields, signed, varints

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
    found = list(fields(tensor))
    if not any(field.number == _DTYPE and field.integer == _STRING for field in found):
        return None
    return next((field.text for field in found if field.number == _STRING_VAL), None)


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


def _of_typed(kind: _Type, field: Field | None) -> float:
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
    found: float = value
    return found
