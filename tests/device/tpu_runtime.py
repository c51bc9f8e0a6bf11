"""A server that speaks the messages of libtpu's metric service, as `tpu-info` defines them.

Run as a program it is a training process with TPUs: `python -m tests.device.tpu_runtime '[8431, 8432]'`, which logs a
loss and then hangs.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
from tpu_info.proto import tpu_metric_service_pb2 as pb
from tpu_info.proto import tpu_telemetry_pb2 as telemetry

SERVICE = "tpu.monitoring.runtime.RuntimeMetricService"
GIB = 1 << 30
USED, TOTAL = "tpu.runtime.hbm.memory.usage.bytes", "tpu.runtime.hbm.memory.total.bytes"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
IDLE = "tpu.runtime.tensorcore.idle_duration.seconds"
BANDWIDTH = "tpu.runtime.hbm.utilization.percent"
QUEUE = "hlo.queue.size.gauge"


def gauges(values: Mapping[int, float]) -> list[Any]:
    """A value per device, as most metrics have them."""
    return [
        pb.Metric(
            attribute=pb.Attribute(key="device-id", value=pb.AttrValue(int_attr=device)),
            gauge=pb.Gauge(as_int=value) if isinstance(value, int) else pb.Gauge(as_double=value),
        )
        for device, value in values.items()
    ]


def queues(sizes: Sequence[tuple[str, str, int]]) -> list[Any]:
    """Sizes of queues by device and kind of core: attributes in a list, the device as a text."""
    return [
        pb.Metric(
            attribute=pb.Attribute(
                value=pb.AttrValue(
                    kvlist_attr=pb.KeyValueList(
                        attributes=[
                            pb.Attribute(key="core_type", value=pb.AttrValue(string_attr=kind)),
                            pb.Attribute(key="device_ordinal", value=pb.AttrValue(string_attr=device)),
                        ]
                    )
                )
            ),
            gauge=pb.Gauge(as_int=size),
        )
        for device, kind, size in sizes
    ]


def core_state(core: int, launch_id: int, pc: int, location: str, queued: int = 0, error: str | None = None) -> Any:
    """The state of a TensorCore with two sequencers."""
    return telemetry.CurrentCoreStateSummary(
        core_id=telemetry.TpuCoreIdentifier(
            global_core_id=core,
            chip_id=core,
            core_on_chip=telemetry.TpuCoreOnChipProto(type="TPU_CORE_TYPE_TENSOR_CORE", index=0),
        ),
        sequencer_info=[
            telemetry.SequencerInfo(sequencer_type="TPU_SEQUENCER_TYPE_SPARSE_CORE_SEQUENCER", pc=1, run_id=1),
            telemetry.SequencerInfo(
                sequencer_type="TPU_SEQUENCER_TYPE_TENSOR_CORE_SEQUENCER",
                pc=pc,
                run_id=9_000_000_000 + launch_id,
                hlo_location=location,
                hlo_detailed_info=f"%{location} = f32[8]{{0}} all-reduce(f32[8]{{0}} %p0)",
            ),
        ],
        program_fingerprint=b"\xca\xfe" * 8,
        launch_id=launch_id,
        queued_program_info=[telemetry.QueuedProgramInfo(launch_id=launch_id + 1 + n) for n in range(queued)],
        error_message=error,
    )


class TpuRuntime:
    """A metric service on a port of its own. Change `metrics` and `states` at any time."""

    def __init__(self, metrics: Mapping[str, list[Any]] | None = None, *, port: int = 0, lists: bool = True) -> None:
        """`lists`: whether it implements ListSupportedMetrics."""
        self.metrics = dict(metrics or {})
        self.states: dict[int, Any] | None = None
        """None: GetTpuRuntimeStatus is not implemented."""
        self.garbage: bytes | None = None
        """Sent as the answer to everything."""
        self.hang = threading.Event()
        """While set, nothing is answered until the server stops."""
        self.requests: list[Any] = []
        self._ended = threading.Event()
        handlers = {"GetRuntimeMetric": (pb.MetricRequest, self._metric)}
        if lists:
            handlers["ListSupportedMetrics"] = (pb.ListSupportedMetricsRequest, self._list)
        handlers["GetTpuRuntimeStatus"] = (pb.GetTpuRuntimeStatusRequest, self._status)
        methods = {name: self._handler(request, answer) for name, (request, answer) in handlers.items()}
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self.port: int = self._server.add_secure_port(f"localhost:{port}", grpc.local_server_credentials())
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.stop(None).wait()

    def _handler(self, request: Any, answer: Callable[[Any, Any], Any]) -> Any:
        def handle(asked: Any, context: Any) -> bytes:
            self.requests.append(asked)
            if self.hang.is_set():
                self._ended.wait()
            if self.garbage is not None:
                return self.garbage
            made: bytes = answer(asked, context).SerializeToString()
            return made

        return grpc.unary_unary_rpc_method_handler(handle, request_deserializer=request.FromString)

    def _metric(self, request: Any, context: Any) -> Any:
        if request.metric_name not in self.metrics:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no metric {request.metric_name}")
        entries = self.metrics[request.metric_name]
        return pb.MetricResponse(metric=pb.TPUMetric(name=request.metric_name, metrics=entries))

    def _list(self, request: Any, context: Any) -> Any:
        names = [pb.SupportedMetric(metric_name=name) for name in self.metrics]
        return pb.ListSupportedMetricsResponse(supported_metric=names)

    def _status(self, request: Any, context: Any) -> Any:
        if self.states is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        return pb.GetTpuRuntimeStatusResponse(host_name="t1v-n-0", core_states=self.states)


def typical(devices: Sequence[int], duty: float = 91.5) -> dict[str, list[Any]]:
    """The metrics of a process with these devices."""
    return {
        USED: gauges({device: (3 + device) * GIB for device in devices}),
        TOTAL: gauges({device: 16 * GIB for device in devices}),
        DUTY: gauges({device: duty for device in devices}),
        IDLE: gauges({device: 0.25 * device for device in devices}),
        QUEUE: queues([(str(device), "tensor_core", device % 3) for device in devices]),
    }


if __name__ == "__main__":
    ports = json.loads(sys.argv[1])
    runtimes = [TpuRuntime(typical([index]), port=port) for index, port in enumerate(ports)]
    for index, runtime in enumerate(runtimes):
        runtime.states = {index: core_state(index, 812, 0x1A40, "all-reduce.17", queued=2)}
    sys.stdout.write("step 1 loss 0.5\n")
    sys.stdout.flush()
    signal.pause()
