"""The metric service of one TPU process: calls with deadlines, and why they fail."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tputui.device import messages
from tputui.device.messages import DeviceReading
from tputui.telemetry.events import CoreState
from tputui.wire import WireError

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
            key: self._start("GetRuntimeMetric", messages.metric_request(name, skip_node_aggregation=not self._is_only))
            for key, name in self._offered.items()
        }
        readings: dict[str, list[DeviceReading]] = {}
        for key, call in calls.items():
            answer = self._answer(call, messages.readings)
            if answer:
                readings[key] = answer
        return readings

    def read_core_states(self) -> list[CoreState]:
        """Reads what the cores execute. Raises `ServiceError`."""
        if not self.is_connected:
            self._connect()
        states = self._answer(self._start("GetTpuRuntimeStatus", messages.status_request()), messages.core_states)
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
        names = self._answer(self._start("ListSupportedMetrics", b""), messages.metric_names)
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
