"""The client of the TPU runtime's metric service, against a server that speaks the messages of `tpu-info`."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from tpu_info import metrics as peer

from tests.device import tpu_runtime
from tests.device.tpu_runtime import BANDWIDTH, DUTY, GIB, IDLE, QUEUE, TOTAL, USED, TpuRuntime, core_state, gauges
from tests.ports import reserved_port
from tests.supervise.harness import wait_for
from tputui.device.sampler import DeviceSampler, metric_ports, start_sampler
from tputui.device.service import RuntimeService, ServiceError
from tputui.telemetry import events as ev

Sampling = Callable[..., DeviceSampler]


@pytest.fixture
def sampling() -> Iterator[Sampling]:
    """Starts samplers that read again at once, and ends them."""
    started: list[DeviceSampler] = []

    def start(*runtimes: TpuRuntime | int, began: float = 0.0, deadline_s: float = 20.0) -> DeviceSampler:
        ports = [one if isinstance(one, int) else one.port for one in runtimes]
        started.append(DeviceSampler(ports, began=began, interval_s=0.05, deadline_s=deadline_s))
        return started[-1]

    yield start
    for sampler in started:
        sampler.close()


def next_of(sampler: DeviceSampler, where: Callable[[ev.DeviceSampled], bool] = lambda _: True) -> ev.DeviceSampled:
    """The next sample of devices that fulfils a condition."""
    return wait_for(
        lambda: next((one for one in sampler.poll() if isinstance(one, ev.DeviceSampled) and where(one)), None),
        "a sample of the devices",
    )


def memory_of(sampler: DeviceSampler) -> ev.MemorySampled:
    return wait_for(
        lambda: next((one for one in sampler.poll() if isinstance(one, ev.MemorySampled)), None), "a sample of memory"
    )


def test_values_equal_those_that_tpu_info_reads_from_the_same_server(sampling: Sampling) -> None:
    with TpuRuntime({**tpu_runtime.typical(range(4)), BANDWIDTH: gauges({0: 5.0, 1: 6.0, 2: 7.5, 3: 0.0})}) as runtime:
        runtime.states = {core: core_state(core, 812 - (core == 2), 64, "all-reduce.17", core) for core in range(4)}
        address = f"localhost:{runtime.port}"
        usage = peer.get_chip_usage_new(None, address)
        idle, queue = peer.get_tensorcore_idle_duration(address), peer.get_hlo_queue_size(None, address)
        bandwidth = peer.get_runtime_hbm_utilization(address)
        states = peer.get_tpuz_info(address, include_hlo_info=True)
        sampler = sampling(runtime)
        memory, sample = memory_of(sampler), next_of(sampler)
        sampler.request_core_states("r1")
        read = wait_for(
            lambda: next((one for one in sampler.poll() if isinstance(one, ev.CoreStatesRead)), None), "core states"
        )
    assert [(one.core, one.used_bytes, one.limit_bytes) for one in memory.hbm or []] == [
        (one.device_id, one.memory_usage, one.total_memory) for one in usage
    ]
    cores = sample.cores or []
    assert [core.duty_cycle_percent for core in cores] == [one.duty_cycle_pct for one in usage] == [91.5] * 4
    assert [(core.core, core.tensorcore_idle_s) for core in cores] == idle
    assert [(core.core, core.hbm_bandwidth_percent) for core in cores] == bandwidth
    assert [(core.core, core.queued_programs) for core in cores] == [(one.device_id, one.queue_size) for one in queue]
    assert (sample.reason, sample.absent) == (None, ["throttle_score", "ici_link_health"])
    assert (read.request, read.reason) == ("r1", None)
    mains = [next(one for one in state.sequencer_states if "TENSOR_CORE" in one.sequencer_type) for state in states]
    assert [(state.core, state.pc, state.run_id, state.hlo_location) for state in read.cores or []] == [
        (state.global_core_id, main.pc, main.run_id, main.hlo_location)
        for state, main in zip(states, mains, strict=True)
    ]
    assert [state.launch_id for state in read.cores or []] == [812, 812, 811, 812]
    assert [state.queued_programs for state in read.cores or []] == [0, 1, 2, 3]
    assert (read.cores or [])[0].program == states[0].program_fingerprint == "cafe" * 8


def test_changing_values_are_read_again(sampling: Sampling) -> None:
    with TpuRuntime(tpu_runtime.typical([0])) as runtime:
        sampler = sampling(runtime)
        assert [core.duty_cycle_percent for core in next_of(sampler).cores or []] == [91.5]
        runtime.metrics[DUTY] = gauges({0: 3.0})
        changed = next_of(sampler, lambda one: bool(one.cores and one.cores[0].duty_cycle_percent != 91.5))
    assert [core.duty_cycle_percent for core in changed.cores or []] == [3.0]


def test_processes_with_a_port_each_are_one_host(sampling: Sampling) -> None:
    """One is dead and one hangs; the others are read nevertheless."""
    dead = reserved_port()
    with (
        TpuRuntime(tpu_runtime.typical([0])) as first,
        TpuRuntime(tpu_runtime.typical([2], duty=4.0)) as second,
        TpuRuntime(tpu_runtime.typical([3])) as hanging,
    ):
        hanging.hang.set()
        # On a busy machine the first samples may be late too.
        sampler = sampling(first, dead, second, hanging, deadline_s=0.5)
        sample = next_of(sampler, lambda one: len(one.cores or []) == 2)
        assert all(request.skip_node_aggregation for request in first.requests if hasattr(request, "metric_name"))
    assert [(core.core, core.duty_cycle_percent) for core in sample.cores or []] == [(0, 91.5), (2, 4.0)]
    assert sample.reason == (
        f"no TPU runtime answers on port {dead}; the TPU runtime did not answer within 0.5 s on port {hanging.port}"
    )


def test_devices_that_each_process_numbers_from_0_are_numbered_in_the_order_of_the_ports(sampling: Sampling) -> None:
    with TpuRuntime(tpu_runtime.typical([0])) as first, TpuRuntime(tpu_runtime.typical([0], duty=4.0)) as second:
        sample = next_of(sampling(first, second))
    assert [(core.core, core.duty_cycle_percent) for core in sample.cores or []] == [(0, 91.5), (1, 4.0)]


def test_a_duty_cycle_per_chip_counts_for_both_cores(sampling: Sampling) -> None:
    with TpuRuntime({**tpu_runtime.typical(range(4)), DUTY: gauges({0: 10.0, 1: 20.0})}) as runtime:
        sample = next_of(sampling(runtime))
    assert [core.duty_cycle_percent for core in sample.cores or []] == [10.0, 10.0, 20.0, 20.0]


@pytest.mark.parametrize("lists", [True, False])
def test_absent_metrics_are_none_and_named(sampling: Sampling, lists: bool) -> None:
    with TpuRuntime({DUTY: gauges({0: 50.0, 1: 60.0}), USED: gauges({0: 1, 1: 2})}, lists=lists) as runtime:
        sampler = sampling(runtime)
        memory, sample = memory_of(sampler), next_of(sampler)
    assert memory.hbm is None
    assert memory.hbm_reason == "the TPU runtime does not report its memory"
    assert [(core.duty_cycle_percent, core.queued_programs) for core in sample.cores or []] == [(50, None), (60, None)]
    assert set(sample.absent) == {
        "hbm", "hbm_bandwidth_percent", "tensorcore_idle_s", "queued_programs", "throttle_score", "ici_link_health",
    }  # fmt: skip
    asked = {one.metric_name for one in runtime.requests if hasattr(one, "metric_name")}
    assert (asked == {DUTY, USED}) is lists, "of a service that lists its metrics only these are read"


def test_scores_are_read_if_a_version_of_libtpu_serves_them(sampling: Sampling) -> None:
    links = tpu_runtime.queues([("tray1.chip0.ici0.int", "", 0), ("tray1.chip0.ici1.int", "", 6)])
    named = {"tpu.runtime.ici.link.health.gauge": links, "tpu_throttle_score": gauges({0: 3})}
    with TpuRuntime({**tpu_runtime.typical([0]), **named}) as runtime:
        (core,) = next_of(sampling(runtime)).cores or []
    assert (core.throttle_score, core.ici_link_health) == (3, 6), "the worst link counts"


def test_a_runtime_without_the_status_method_says_so(sampling: Sampling) -> None:
    with TpuRuntime(tpu_runtime.typical([0])) as runtime:
        sampler = sampling(runtime)
        sampler.request_core_states("r1")
        read = wait_for(
            lambda: next((one for one in sampler.poll() if isinstance(one, ev.CoreStatesRead)), None), "core states"
        )
    assert read.cores is None
    assert read.reason == f"the TPU runtime does not report what its cores execute on port {runtime.port}"


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\x0a\x7f", b"", bytes(range(200)), b"\x0a\x04\x1a\x02\x1a\x00"])
def test_garbage_is_no_value_and_no_error(garbage: bytes) -> None:
    with TpuRuntime(tpu_runtime.typical([0])) as runtime:
        runtime.states = {0: core_state(0, 1, 1, "")}
        runtime.garbage = garbage
        service = RuntimeService(runtime.port)
        assert service.read_metrics() == {}
        with contextlib.suppress(ServiceError):
            assert service.read_core_states() == []
        service.close()


def test_values_that_are_no_finite_numbers_or_of_impossible_devices_are_left_out(sampling: Sampling) -> None:
    metrics = tpu_runtime.typical([0])
    metrics[DUTY] = gauges({0: float("nan")})
    metrics[IDLE] = gauges({0: 0.5, 1 << 40: 7.0, -1: 7.0})
    metrics[QUEUE] = tpu_runtime.queues([("zero", "tensor_core", 3)])
    metrics[TOTAL] = gauges({0: 16 * GIB})
    with TpuRuntime(metrics) as runtime:
        (core,) = next_of(sampling(runtime)).cores or []
    assert core.duty_cycle_percent is None
    assert (core.tensorcore_idle_s, core.queued_programs) == (0.5, 3)


def test_a_port_that_does_not_answer_is_reported_once_and_read_when_it_does(sampling: Sampling) -> None:
    port = reserved_port()
    sampler = sampling(port)
    first = next_of(sampler)
    assert (first.cores, first.reason) == (None, f"no TPU runtime answers on port {port}")
    with TpuRuntime(tpu_runtime.typical([0]), port=port):
        second = next_of(sampler)
        assert second.cores is not None, "the same reason is not reported again"
    third = next_of(sampler, lambda one: one.cores is None)
    assert third.reason == first.reason


def test_a_service_that_is_older_than_the_run_belongs_to_another_one(sampling: Sampling) -> None:
    with TpuRuntime(tpu_runtime.typical([0])) as runtime:
        sample = next_of(sampling(runtime, began=time.time() + 3600))
        assert sample.cores is None
        assert "which is older than this run, answers on port" in (sample.reason or "")
        assert runtime.requests == []


def test_a_port_of_another_protocol_is_no_runtime(sampling: Sampling) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        port = silent.getsockname()[1]
        sample = next_of(sampling(port, deadline_s=0.3))
    assert sample.cores is None
    assert sample.reason in (
        f"the TPU runtime did not answer within 0.3 s on port {port}",
        f"no TPU runtime answers on port {port}",
    )


def test_invalid_ports_are_named() -> None:
    sampler = start_sampler({"TPU_RUNTIME_METRICS_PORTS": "8431;8432"}, time.time())
    assert sampler is not None
    reason = "TPU_RUNTIME_METRICS_PORTS is not a list of at most 64 ports: '8431;8432'"
    assert next_of(sampler).reason == reason
    sampler.close()


def test_ports_come_from_the_environment() -> None:
    assert metric_ports({"TPU_RUNTIME_METRICS_PORTS": "8431, 8432,8431"}) == [8431, 8432]
    assert metric_ports({"TPU_RUNTIME_METRICS_PORTS": ""}) == []
    assert metric_ports({"TPU_RUNTIME_METRICS_PORTS": "8431", "PJRT_DEVICE": "CPU"}) == []
    assert metric_ports({"TPU_RUNTIME_METRICS_PORTS": "8431", "JAX_PLATFORMS": "cpu"}) == []
    for bad in ("x", "8431;8432", "70000", "0", ",".join(map(str, range(1, 200)))):
        with pytest.raises(ValueError, match="TPU_RUNTIME_METRICS_PORTS is not a list"):
            metric_ports({"TPU_RUNTIME_METRICS_PORTS": bad})
