"""Messages of the TPU runtime's metric service: requests as bytes, answers as readings and states of cores. Pure.

The service is `tpu.monitoring.runtime.RuntimeMetricService`, which libtpu serves inside each process that holds a TPU.
Its messages are decoded by field number, and fields that are absent or unknown are accepted: versions of libtpu differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tputui.telemetry.events import INT_MAX, CoreState
from tputui.wire import BYTES, FIXED64, VARINT, WireField, fields, signed

CORES_MAX = 4096
"""Cores, and readings of one metric, that are read from an answer; no host has as many."""
TEXT_MAX = 500
"""Characters of a text that are read."""

_DEVICE_KEYS = frozenset({"device_ordinal", "device-id", "device_id", "chip_id", "core_id"})
_CHIP_NUMBER = re.compile(r"chip_?(\d{1,4})")
_TENSOR_CORE = 1
"""The type of a core, and of its sequencer, that runs XLA programs; others belong to sparse cores."""


DeviceReading = tuple[int | None, float]
"""Number of the device, None if the metric does not name it, and the value."""


def metric_request(name: str, *, skip_node_aggregation: bool) -> bytes:
    """A `MetricRequest`. A primary process answers for all processes of the host unless aggregation is skipped."""
    content = name.encode()
    assert len(content) < 0x80, "a longer name needs a length of more than one byte"
    return bytes([1 << 3 | BYTES, len(content)]) + content + (b"\x10\x01" if skip_node_aggregation else b"")


def status_request() -> bytes:
    """A `GetTpuRuntimeStatusRequest` that includes where in the program each core is."""
    return b"\x08\x01"


def metric_names(answer: bytes) -> list[str]:
    """The names in a `ListSupportedMetricsResponse`. Raises `WireError`."""
    entries = list(_messages(answer, 1))[:CORES_MAX]
    return [text for entry in entries if (text := _text(entry, 1))]


def readings(answer: bytes) -> list[DeviceReading]:
    """The readings in a `MetricResponse`; those that are no finite numbers are left out. Raises `WireError`."""
    device_readings: list[DeviceReading] = []
    for metric in _messages(answer, 1):
        for entry in _messages(metric, 3):
            value = _number(entry)
            if value is not None and math.isfinite(value) and len(device_readings) < CORES_MAX:
                device_readings.append((_device(entry), value))
    return device_readings


def core_states(answer: bytes) -> list[CoreState]:
    """The states of the TensorCores in a `GetTpuRuntimeStatusResponse`, in order, and of other cores that have an
    error. Raises `WireError`."""
    states: dict[int, CoreState] = {}
    for entry in _messages(answer, 2):
        index = _integer(entry, 1) or 0
        summary = b"".join(_messages(entry, 2))
        is_tensor_core, state = _core_state(index, summary)
        if (is_tensor_core or state.error) and len(states) < CORES_MAX:
            states[index] = state
    return [states[index] for index in sorted(states)]


def _core_state(index: int, summary: bytes) -> tuple[bool, CoreState]:
    """Whether a `CurrentCoreStateSummary` is about a TensorCore, and the state."""
    place = b"".join(_messages(b"".join(_messages(summary, 1)), 3))
    sequencers = list(_messages(summary, 2))
    # A core has several sequencers; the first kind runs the program.
    main = next(
        (sequencer for sequencer in sequencers if _integer(sequencer, 1) == _TENSOR_CORE), next(iter(sequencers), b"")
    )
    fingerprint = b"".join(field.content for field in fields(summary) if field.number == 4)
    return (_integer(place, 1) or _TENSOR_CORE) == _TENSOR_CORE, CoreState(
        core=index,
        pc=_integer(main, 3),
        run_id=_integer(main, 7),
        launch_id=_integer(summary, 5),
        program=fingerprint[:16].hex(),
        queued_programs=sum(1 for _ in _messages(summary, 6)),
        hlo_location=_text(main, 8),
        hlo=_text(main, 9),
        error=_text(summary, 7),
    )


def _number(metric: bytes) -> float | None:
    """The value of a gauge or counter; None for distributions, and for texts that are no numbers."""
    for measure in fields(metric):
        if measure.number not in (3, 4) or measure.kind != BYTES:
            continue
        for field in fields(measure.content):
            if field.kind == FIXED64:
                return field.double
            if field.kind == VARINT:
                return float(signed(field.integer))
            if field.kind == BYTES and measure.number == 3:
                return _parsed(field.text)
    return None


def _parsed(text: str) -> float | None:
    try:
        return float(text[:TEXT_MAX])
    except ValueError:
        return None


def _device(metric: bytes) -> int | None:
    """The device of a metric: its attribute is the number itself, a text with it, or a list of attributes."""
    for attribute in _messages(metric, 1):
        for value in _messages(attribute, 2):
            for field in fields(value):
                if field.number == 6:
                    return next(_listed_devices(field.content), None)
                return _device_number(field)
    return None


def _listed_devices(attributes: bytes) -> Iterator[int]:
    for attribute in _messages(attributes, 1):
        if _text(attribute, 1) in _DEVICE_KEYS:
            values = (_device_number(field) for value in _messages(attribute, 2) for field in fields(value))
            yield from (number for number in values if number is not None)


def _device_number(field: WireField) -> int | None:
    if field.kind == VARINT:
        return field.integer if field.integer < CORES_MAX else None
    if field.kind != BYTES:
        return None
    text = field.text[:TEXT_MAX]
    chip = _CHIP_NUMBER.search(text)
    digits = chip.group(1) if chip else text
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 4 else None


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    """The contents of all fields with a number that are messages."""
    return (field.content for field in fields(message) if field.number == number and field.kind == BYTES)


def _text(message: bytes, number: int) -> str:
    """The last text with a number; empty if there is none."""
    text = ""
    for field in fields(message):
        if field.number == number and field.kind == BYTES:
            text = field.text[:TEXT_MAX]
    return text


def _integer(message: bytes, number: int) -> int | None:
    """The last integer with a number; None if there is none."""
    integer = None
    for field in fields(message):
        if field.number == number and field.kind == VARINT:
            integer = max(signed(field.integer), -INT_MAX)
    return integer
