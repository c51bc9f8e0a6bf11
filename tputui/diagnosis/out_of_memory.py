"""Parses the errors of XLA for lack of device memory: of a program that is compiled, and of a buffer.

The compiler's error is `RESOURCE_EXHAUSTED: ... Ran out of memory in memory space hbm`, in newer versions with the code
`E1000: CompileTimeHbmOom`; both contain the same table of the largest buffers. The texts are untrusted.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

TEXT_MAX = 1 << 20
"""Characters of a text that are parsed."""
BUFFERS_MAX = 20
"""As many as XLA prints."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_AMOUNT = r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?([KMGT]?)(?:iB|B)?"
_COMPILE = re.compile(rf"Ran out of memory in memory space \w{{1,20}}\.\s+Used {_AMOUNT} of {_AMOUNT}")
_ALLOCATE = re.compile(
    rf"Attempting to (?:allocate|reserve) {_AMOUNT}[^\n]{{0,200}}?There (?:are|is) {_AMOUNT} free"
)  # fmt: skip
_ASKED = re.compile(
    rf"(?:[Oo]ut of memory (?:while trying to allocate|allocating)|Failed to allocate request for) {_AMOUNT}"
)
_MARKS = re.compile(r"RESOURCE_EXHAUSTED|CompileTimeHbmOom|RuntimeBufferAllocationFailure|Resource exhausted")
_BUFFER = re.compile(rf"\b[0-9]{{1,3}}\. Size: {_AMOUNT}")
_SHAPE = re.compile(r"Shape: ([a-z]+[0-9a-z]*\[[0-9,]*\])")
_SOURCE = re.compile(r'source_file="([^"\n]{1,1000})"\s{1,8}source_line=([0-9]{1,9})')
_OPERATOR = re.compile(r'op_name="([^"\n]{1,2000})')
_PADDING = re.compile(r"\(([0-9.]{1,8})x expansion\)")
_KIND = re.compile(r"Allocation type: ([A-Za-z ]{1,40})")


class Buffer(NamedTuple):
    """A buffer of a program that did not fit."""

    size: int
    shape: str
    """`f32[256,64,256,256]`; empty if not printed."""
    operator: str
    """Last part of the name of the operation; empty if not printed."""
    file: str
    """Source file; empty if the program records no lines."""
    line: int
    expansion: float
    """Factor by which padding enlarges it; 1 if not printed."""
    kind: str
    """`HLO temp`, `argument`, ...; empty if not printed."""


class OutOfMemory(NamedTuple):
    """An error of XLA for lack of device memory."""

    when: Literal["compile", "allocate"]
    needed: int | None
    """Bytes that the program, or the buffer, needs."""
    available: int | None
    """Bytes that the device has, or that were free."""
    code: str
    """`E1000` of newer versions; else empty."""
    buffers: list[Buffer]
    """The largest ones, largest first."""


def parse(text: str) -> OutOfMemory | None:
    """The error in a text; None if it contains none."""
    text = text[:TEXT_MAX]
    if found := _COMPILE.search(text):
        needed, available = _bytes(found[1], found[2]), _bytes(found[3], found[4])
        code = "E1000" if "E1000" in text or "CompileTimeHbmOom" in text else ""
        return OutOfMemory("compile", needed, available, code, _buffers(text))
    if found := _ALLOCATE.search(text):
        return OutOfMemory("allocate", _bytes(found[1], found[2]), _bytes(found[3], found[4]), "", _buffers(text))
    asked = _ASKED.search(text)
    if asked or _MARKS.search(text):  # the error of XLA's CPU devices has no mark
        return OutOfMemory("allocate", _bytes(asked[1], asked[2]) if asked else None, None, "", _buffers(text))
    return None


def _buffers(text: str) -> list[Buffer]:
    starts = [*_BUFFER.finditer(text)][:BUFFERS_MAX]
    ends = [*(found.start() for found in starts[1:]), len(text)]
    made = [_buffer(found, text[found.end() : min(end, found.end() + 5_000)])
            for found, end in zip(starts, ends, strict=False)]  # fmt: skip
    return sorted(made, key=lambda one: -one.size)


def _buffer(found: re.Match[str], block: str) -> Buffer:
    shape, source, operator = _SHAPE.search(block), _SOURCE.search(block), _OPERATOR.search(block)
    padding, kind = _PADDING.search(block), _KIND.search(block)
    return Buffer(
        size=_bytes(found[1], found[2]),
        shape=shape[1][:200] if shape else "",
        operator=operator[1].rpartition("/")[2].partition("[")[0][:100] if operator else "",
        file=source[1] if source else "",
        line=int(source[2]) if source else 0,
        expansion=_number(padding[1]) if padding else 1.0,
        kind=kind[1].strip() if kind else "",
    )


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0
