"""The metric service of one TPU process: calls with deadlines, and why they fail.

Messages of the TPU runtime's metric service: requests as bytes, answers as readings and states of cores. Pure.

The service is `tpu.monitoring.runtime.RuntimeMetricService`, which libtpu serves inside each process that holds a TPU.
Its messages are decoded by field number, and fields that are absent or unknown are accepted: versions of libtpu differ.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tputui.telemetry.events import INT_MAX, CoreState
from tputui.wire import BYTES, FIXED64, VARINT, WireError, WireField, fields, signed

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


DEADLINE_S = 2.0
ANSWER_BYTES_MAX = 4 << 20

METRICS = {
    "hbm_used": "tpu.runtime.hbm.memory.usage.bytes",
    "hbm_total": "tpu.runtime.hbm.memory.total.bytes",
    "hbm_bandwidth_percent": "tpu.runtime.hbm.utilization.percent",
    "duty_cycle_percent": "tpu.runtime.tensorcore.dutycycle.percent",
    "tensorcore_idle_s": "tpu.runtime.tensorcore.idle_duration.seconds",
    "queued_programs": "hlo.queue.size.gauge",
    "throttle_score": "tpu_throttle_score",
    "ici_link_health": "ici_link_health",
}
"""Names of metrics in the service. For the last two libtpu has a name, but no version that we know serves it here."""
_SERVICE = "/tpu.monitoring.runtime.RuntimeMetricService"


def import_problem() -> str | None:
    """Why the service cannot be called from here; None if it can. Does not import gRPC, which takes 10 MB."""
    if importlib.util.find_spec("grpc") is None:
        return "the TPU runtime cannot be read without gRPC: `pip install grpcio`"
    return None


class ServiceError(Exception):
    """A port cannot be read now; the text is the reason, without the port."""


Metrics = Mapping[str, list[DeviceReading]]
"""What the service of one process measured, by key of `METRICS`; absent metrics have no key."""

_Answer = TypeVar("_Answer")


class RuntimeService:
    """The service at a port of this host. Not for several threads at once."""

    def __init__(self, port: int, *, is_only: bool = True, deadline_s: float = DEADLINE_S) -> None:
        """`is_only`: no other port is read, so this one should answer for all processes of the host."""
        import grpc

        self._grpc = grpc
        self._address = f"localhost:{port}"
        self._is_only = is_only
        self._deadline_s = deadline_s
        self._channel: Any = None
        self._offered: dict[str, str] = {}
        """Keys and names of the metrics that the service offers."""

    @property
    def is_connected(self) -> bool:
        """Whether the last call was answered."""
        return self._channel is not None

    def read_metrics(self) -> Metrics:
        """Reads all metrics at once. Raises `ServiceError`."""
        if not self.is_connected:
            self._connect()
        calls = {
            key: self._start("GetRuntimeMetric", metric_request(name, skip_node_aggregation=not self._is_only))
            for key, name in self._offered.items()
        }
        readings_by_key: dict[str, list[DeviceReading]] = {}
        for key, call in calls.items():
            answer = self._answer(call, readings)
            if answer:
                readings_by_key[key] = answer
        return readings_by_key

    def read_core_states(self) -> list[CoreState]:
        """Reads what the cores execute. Raises `ServiceError`."""
        if not self.is_connected:
            self._connect()
        states = self._answer(self._start("GetTpuRuntimeStatus", status_request()), core_states)
        if states is None:
            raise ServiceError("the TPU runtime does not report what its cores execute")
        return states

    def close(self) -> None:
        """Closes the connection; the next call opens a new one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _connect(self) -> None:
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),  # else a new channel waits for the pause of a closed one
            ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
        ]
        self._channel = self._grpc.secure_channel(
            self._address, self._grpc.local_channel_credentials(), options=options
        )
        names = self._answer(self._start("ListSupportedMetrics", b""), metric_names)
        self._offered = dict(METRICS)
        if names:
            self._offered = {key: offered for key, name in METRICS.items() if (offered := _find(name, names))}

    def _start(self, method: str, request: bytes) -> Any:
        call = self._channel.unary_unary(f"{_SERVICE}/{method}")
        return call.future(request, timeout=self._deadline_s)

    def _answer(self, call: Any, decode: Callable[[bytes], _Answer]) -> _Answer | None:
        """The decoded answer; None if the service does not know the method or metric, or answers with something else.

        Raises `ServiceError` if there is no service, and closes the connection.
        """
        code = self._grpc.StatusCode
        try:
            return decode(call.result())
        except WireError:
            return None
        except self._grpc.RpcError as error:
            if error.code() == code.UNAVAILABLE:
                reason = "no TPU runtime answers"
            elif error.code() in (code.DEADLINE_EXCEEDED, code.CANCELLED):
                reason = f"the TPU runtime did not answer within {self._deadline_s:g} s"
            else:
                return None
            self.close()
            raise ServiceError(reason) from None


def _find(name: str, names: list[str]) -> str | None:
    """The offered name of a metric, which may have a prefix or dots: `tpu.runtime.ici_link_health.gauge`."""
    if name in names:
        return name
    if "." in name:
        return None
    return next((offered for offered in names if name in offered.replace(".", "_") and len(offered) < 0x80), None)
