"""Encodes blocks of per-core float32 values as text for JSON lines.

A block is `z` or `r` followed by base64. `r` contains the little-endian float32 values row by row. `z` contains the
same bytes, regrouped by significance (all first bytes, then all second bytes, ...) and deflated: neighbouring losses
share sign and exponent, so this is about 20 % smaller. Pure, and without numpy, whose import takes longer than opening
a run.
"""

from __future__ import annotations

import binascii
import math
import sys
import zlib
from array import array
from collections.abc import Sequence

ENCODING = (
    "'r' + base64(values) or 'z' + base64(zlib(values regrouped by byte significance)); "
    "values are little-endian float32, [steps][cores]"
)
"""Description of the encoding, written at the head of every journal."""

VALUES_MAX = 1 << 22
"""Maximum number of values of a block, which is that of the reporter's queue. Larger blocks are not decoded."""
_FLOAT_BYTES = 4
_LEVEL = 1
"""Higher levels of deflate save less than 1 % on losses and take three times as long."""


class BlockError(ValueError):
    """A block does not match the fields of its event."""


def pack(raw: bytes | bytearray | memoryview) -> str:
    """Encodes little-endian float32 bytes as a block, in the shorter of the two forms."""
    packed = zlib.compress(shuffle(raw), _LEVEL)
    form, body = (b"z", packed) if len(packed) < len(raw) else (b"r", raw)
    return (form + binascii.b2a_base64(body, newline=False)).decode("ascii")


def pack_plain(raw: bytes | bytearray | memoryview) -> str:
    """Encodes little-endian float32 bytes without compression, for fast reading of sealed journals."""
    return "r" + binascii.b2a_base64(raw, newline=False).decode("ascii")


def unpack(block: str, num_values: int) -> array[float]:
    """Decodes a block to `num_values` floats. Raises `BlockError`."""
    raw = unpack_bytes(block, num_values)
    values = array("f", raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def unpack_bytes(block: str, num_values: int) -> bytes:
    """Decodes a block to little-endian float32 bytes. Raises `BlockError`."""
    if not 0 <= num_values <= VALUES_MAX:
        raise BlockError(f"it claims {num_values} values; 0 to {VALUES_MAX} are allowed")
    expected = num_values * _FLOAT_BYTES
    try:
        raw = binascii.a2b_base64(block[1:].encode("ascii"))
        if block[:1] == "z":
            inflater = zlib.decompressobj()
            raw = unshuffle(inflater.decompress(raw, expected + 1))
        elif block[:1] != "r":
            raise BlockError(f"unknown form {block[:1]!r}")
    except (UnicodeEncodeError, binascii.Error, zlib.error) as error:
        raise BlockError(str(error)) from None
    if len(raw) != expected:
        raise BlockError(f"{len(raw)} bytes where {expected} were expected")
    return raw


def shuffle(raw: bytes | bytearray | memoryview) -> bytes:
    """Regroups float32 bytes: all first bytes, then all second bytes, and so on."""
    view = bytes(raw)
    return b"".join(view[byte::_FLOAT_BYTES] for byte in range(_FLOAT_BYTES))


def unshuffle(grouped: bytes) -> bytes:
    """Undoes `shuffle`."""
    if len(grouped) % _FLOAT_BYTES:
        raise BlockError("not a whole number of values")
    raw = bytearray(len(grouped))
    quarter = len(grouped) // _FLOAT_BYTES
    for byte in range(_FLOAT_BYTES):
        raw[byte::_FLOAT_BYTES] = grouped[byte * quarter : (byte + 1) * quarter]
    return bytes(raw)


def summarise(values: Sequence[float]) -> tuple[float, float, float, int]:
    """Mean, minimum and maximum of the finite values (NaN if there is none), and the number of other values."""
    total = math.fsum(values) if all(map(math.isfinite, values)) else math.nan
    if math.isfinite(total):
        return total / len(values), min(values), max(values), 0
    finite = [value for value in values if math.isfinite(value)]
    bad = len(values) - len(finite)
    if not finite:
        return math.nan, math.nan, math.nan, bad
    return math.fsum(finite) / len(finite), min(finite), max(finite), bad
