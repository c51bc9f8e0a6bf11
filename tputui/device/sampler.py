"""Reads the metric services of the TPU processes of a run every few seconds, in a thread of its own, as events.

The services run inside the training processes, one port each, from the first use of the TPU to the exit.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tputui import environment
from tputui.device import service
from tputui.device.service import DEADLINE_S, METRICS, DeviceReading, Metrics, RuntimeService, ServiceError
from tputui.telemetry.events import (
    CoreSample,
    CoreState,
    CoreStatesRead,
    DeviceSampled,
    Event,
    HbmReading,
    MemorySampled,
)

_SUMMED = "queued_programs"
_FLOATS = frozenset({"duty_cycle_percent", "hbm_bandwidth_percent", "tensorcore_idle_s"})
_HBM = ("hbm_used", "hbm_total")
_OF_CHIPS = frozenset({"duty_cycle_percent", "throttle_score", "ici_link_health"})
"""Measured on every chip, which has one or two cores; others are measured on every core."""


def _host_of(processes: Sequence[Metrics]) -> tuple[list[CoreSample], list[HbmReading], list[str]]:
    """The cores of all processes, their memory, and the names of the values that no core has.

    Processes that number their devices from 0 each are numbered in order.
    """
    tables = [_by_device(metrics) for metrics in processes]
    devices = [device for table in tables for device in table]
    repeat = len(set(devices)) < len(devices)
    rows = [row for table in tables for row in sorted(table.items())]
    numbered = list(enumerate(row for _, row in rows)) if repeat else sorted(rows, key=lambda pair: pair[0])
    cores = [CoreSample(core=core, **_sample(row)) for core, row in numbered]
    hbm = [
        HbmReading(core=core, used_bytes=int(row["hbm_used"]), limit_bytes=int(row["hbm_total"]), peak_bytes=0)
        for core, row in numbered
        if all(name in row for name in _HBM)
    ]
    present = {name for _, row in numbered for name in row} | ({"hbm"} if hbm else set())
    wanted = ["hbm", *(name for name in METRICS if name not in _HBM)]
    return cores, hbm, [name for name in wanted if name not in present]


def _by_device(metrics: Metrics) -> dict[int, dict[str, float]]:
    """The values of each device of a process, by metric."""
    values_by_metric = {name: _values(name, readings) for name, readings in metrics.items()}
    numbered = {name: [device for device in values if device is not None] for name, values in values_by_metric.items()}
    devices = sorted(numbered.get("hbm_used") or max(numbered.values(), key=len, default=[])) or [0]
    rows: dict[int, dict[str, float]] = {device: {} for device in devices}
    for name, values in values_by_metric.items():
        chips = sorted(numbered[name])
        has_pairs = name in _OF_CHIPS and chips == list(range(len(devices) // 2)) and len(devices) == 2 * len(chips)
        for index, device in enumerate(devices):
            source = chips[index // 2] if has_pairs else device
            if source in values:
                rows[device][name] = values[source]
            elif len(devices) == 1 and None in values:
                rows[device][name] = values[None]
    return {device: row for device, row in rows.items() if row}


def _values(name: str, readings: Sequence[DeviceReading]) -> dict[int | None, float]:
    """One value per device: queues are added, since a core may have several; of other readings the greatest counts,
    which is the worst link or the fullest memory."""
    values: dict[int | None, float] = {}
    for device, value in readings:
        before = values.get(device)
        values[device] = value if before is None else before + value if name == _SUMMED else max(before, value)
    return values


def _sample(row: dict[str, float]) -> dict[str, Any]:
    return {name: value if name in _FLOATS else round(value) for name, value in row.items() if name not in _HBM}


PORTS_VARIABLE = "TPU_RUNTIME_METRICS_PORTS"
DEFAULT_PORT = 8431
PORTS_MAX = 64
INTERVAL_S = 5.0
SILENT_S = 1.0
"""Until the first answer ports are read every second; each less often the longer it does not answer."""
PAUSE_MAX_S = 30.0
"""Longest pause between two attempts at a port that does not answer; a runtime may start at any time."""
_THREADS_MAX = 8
_CLOSE_S = 5.0
_PROBE_S = 1.0
_CLOCKS_DIFFER_S = 2.0
"""Start times of processes are counted from the boot, whose time is known to the second."""


def metric_ports(environ: Mapping[str, str], *, has_chips: bool | None = None) -> list[int]:
    """The ports of the metric services of processes with this environment; none if they use no TPU.

    `has_chips`: whether this host has TPU chips; by default the PCI bus is read.
    Raises `ValueError` if the variable contains something else.
    """
    kinds = (environ.get("PJRT_DEVICE", ""), environ.get("JAX_PLATFORMS", "").partition(",")[0])
    if any(kind.lower() not in ("", "tpu") for kind in kinds):
        return []
    text = environ.get(PORTS_VARIABLE)
    if text is None:
        is_tpu = any(kinds) or (bool(environment.pci_chips().known) if has_chips is None else has_chips)
        return [DEFAULT_PORT] if is_tpu else []
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    ports = [int(entry) for entry in entries if entry.isascii() and entry.isdigit() and len(entry) <= 5]
    if len(ports) != len(entries) or any(not 0 < port < 1 << 16 for port in ports) or len(ports) > PORTS_MAX:
        raise ValueError(f"{PORTS_VARIABLE} is not a list of at most {PORTS_MAX} ports: {text[:80]!r}")
    return list(dict.fromkeys(ports))


def start_sampler(environ: Mapping[str, str], began: float) -> DeviceSampler | None:
    """A sampler for processes with this environment that a run started at `began`; None if they use no TPU."""
    try:
        ports = metric_ports(environ)
    except ValueError as error:
        return DeviceSampler([], problem=str(error))
    return DeviceSampler(ports, began=began) if ports else None


class DeviceSampler:
    """Samples the devices of a run until it is closed."""

    def __init__(
        self,
        ports: Sequence[int],
        *,
        began: float = 0.0,
        interval_s: float = INTERVAL_S,
        deadline_s: float = DEADLINE_S,
        problem: str | None = None,
    ) -> None:
        """`began` is the unix time at which the run started its processes: a service of an older process belongs to
        another run. `problem` is reported instead of reading anything."""
        self._ports = [_Port(port, began, len(ports) == 1, deadline_s) for port in ports]
        self._interval_s = interval_s
        self._problem = problem
        self._reported: str | None = None
        self._requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tputui-devices", daemon=True)
        self._thread.start()

    def poll(self) -> list[Event]:
        """The events since the last call. Never waits."""
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        return events

    def request_core_states(self, request: str) -> None:
        """Reads what the cores execute, for the request for stacks with this id."""
        self._requests.put(request)

    def close(self) -> None:
        """Ends the thread and closes the connections; waits a few seconds for calls that hang."""
        self._requests.put(None)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        self._problem = self._problem or service.import_problem()
        if self._problem is not None:
            self._emit_nothing(self._problem)
        with ThreadPoolExecutor(min(len(self._ports), _THREADS_MAX) or 1, "tputui-device") as pool:
            try:
                self._loop(pool)
            except Exception as error:
                self._emit_nothing(f"not read because of a bug in tputui: {type(error).__name__}: {error}")

    def _loop(self, pool: ThreadPoolExecutor) -> None:
        due = time.monotonic()
        while True:
            try:
                request = self._requests.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                answered = self._problem is None and self._sample(pool)
                due = time.monotonic() + (self._interval_s if answered else min(SILENT_S, self._interval_s))
                continue
            if request is None:
                break
            self._events.put(self._core_states(request, pool))
        for port in self._ports:
            port.close()

    def _sample(self, pool: ThreadPoolExecutor) -> bool:
        """Reads all ports that are due; returns whether one answered."""
        answers = list(pool.map(_Port.read_metrics, self._ports))
        reason = _reasons([(port.number, why) for port, why in zip(self._ports, answers, strict=True)])
        measured = [answer for answer in answers if not isinstance(answer, str)]
        cores, hbm, absent = _host_of(measured)
        if not cores:
            self._emit_nothing(reason or "the TPU runtime answers without a value")
            return False
        self._reported = None
        now = time.time()
        hbm_reason = None if hbm else "the TPU runtime does not report its memory"
        self._events.put(MemorySampled(t=now, hbm=hbm or None, hbm_reason=hbm_reason))
        self._events.put(DeviceSampled(t=now, cores=cores, reason=reason, absent=absent))
        return True

    def _emit_nothing(self, reason: str) -> None:
        """Reports once why nothing was read."""
        if reason == self._reported:
            return
        self._reported = reason
        now = time.time()
        self._events.put(MemorySampled(t=now, hbm=None, hbm_reason=reason))
        self._events.put(DeviceSampled(t=now, cores=None, reason=reason))

    def _core_states(self, request: str, pool: ThreadPoolExecutor) -> CoreStatesRead:
        if self._problem is not None:
            return CoreStatesRead(t=time.time(), request=request, cores=None, reason=self._problem)
        answers = list(pool.map(_Port.read_core_states, self._ports))
        reason = _reasons([(port.number, why) for port, why in zip(self._ports, answers, strict=True)])
        read_states = [state for answer in answers if not isinstance(answer, str) for state in answer]
        states = {state.core: state for state in reversed(read_states)}
        cores = [states[core] for core in sorted(states)]
        return CoreStatesRead(t=time.time(), request=request, cores=cores or None, reason=reason)


class _Port:
    """The service at one port, and when it is read again after it did not answer."""

    def __init__(self, number: int, began: float, is_only: bool, deadline_s: float) -> None:
        self.number = number
        self._began = began
        self._is_only = is_only
        self._deadline_s = deadline_s
        self._service: RuntimeService | None = None
        self._pause_s = 0.0
        self._due = 0.0
        self._reason = ""

    def read_metrics(self) -> Metrics | str:
        """What the service measured, or why it did not; after a failure the same reason until the next attempt."""
        if time.monotonic() < self._due:
            return self._reason
        try:
            metrics = self._connected().read_metrics()
        except ServiceError as error:
            self._reason = str(error)
            self._pause_s = min(max(1.0, 2 * self._pause_s), PAUSE_MAX_S)
            self._due = time.monotonic() + self._pause_s
            return self._reason
        self._pause_s = 0.0
        return metrics

    def read_core_states(self) -> list[CoreState] | str:
        """What its cores execute, or why that is not known."""
        try:
            return self._connected().read_core_states()
        except ServiceError as error:
            return str(error)

    def close(self) -> None:
        if self._service is not None:
            self._service.close()

    def _connected(self) -> RuntimeService:
        if self._service is None or not self._service.is_connected:
            check_listener(self.number, self._began)
        if self._service is None:
            self._service = RuntimeService(self.number, is_only=self._is_only, deadline_s=self._deadline_s)
        return self._service


def check_listener(port: int, began: float = 0.0) -> None:
    """Raises `ServiceError` if no process listens at a port, or one that is older than a run that began then."""
    try:
        socket.create_connection(("localhost", port), _PROBE_S).close()
    except OSError:
        raise ServiceError("no TPU runtime answers") from None
    pid = _older_listener(port, began)
    if pid is not None:
        raise ServiceError(f"process {pid}, which is older than this run, answers")


def _older_listener(port: int, began: float) -> int | None:
    """The process that listens at a port, if it was started before `began`; None if not, or if that is not known."""
    import psutil

    began -= _CLOCKS_DIFFER_S

    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            if listens and connection.pid is not None and psutil.Process(connection.pid).create_time() < began:
                return int(connection.pid)
    return None


def _reasons(answers: Sequence[tuple[int, object]]) -> str | None:
    """Why ports were not read: `no TPU runtime answers on port 8431`, `... on ports 8431, 8432`."""
    by_reason: dict[str, list[str]] = {}
    for port, answer in answers:
        if isinstance(answer, str):
            by_reason.setdefault(answer, []).append(str(port))
    texts = [f"{why} on port{'s' if len(ports) > 1 else ''} {', '.join(ports)}" for why, ports in by_reason.items()]
    return "; ".join(texts) or None
