"""Snapshots of runs on several hosts, made by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec

from tests.ui import made
from tputui.state.snapshot import CoreView, GenerationView, HostView, LogLine, SlowHostView, Snapshot
from tputui.telemetry.events import HbmReading, ProcessSample

CORES = 8


def host(index: int, cores: int = CORES, **changes: Any) -> HostView:
    """A host that runs."""
    noise = random.Random(index)
    first = index * cores
    values: dict[str, Any] = {
        "index": index,
        "name": f"tpu-vm-{index}",
        "condition": "running",
        "cores": list(range(first, first + cores)),
        "step": made.STEPS,
        "phase": "executing",
        "phase_s": 0.3,
        "silent_s": 0.4,
        "loss": sum(made.loss_at(made.STEPS, core % 64) for core in range(first, first + cores)) / cores,
        "step_s": 0.0131,
        "compute_s": 0.0100 + noise.uniform(0, 0.0002),
        "data_s": 0.0011 + noise.uniform(0, 0.0001),
        "wait_s": 0.0018,
        "cpu_percent": 40 + noise.uniform(0, 20),
        "used_bytes": (90 + noise.randrange(20)) << 30,
        "total_bytes": 340 << 30,
        "hbm_used_share": 0.6,
        "clock_offset_s": 0.0 if index == 0 else noise.uniform(-0.02, 0.02),
        "clock_error_s": 0.0 if index == 0 else 0.001,
        "processes": [
            ProcessSample(pid=4243, role="worker", rss_bytes=950 << 20, cpu_percent=171.0),
            ProcessSample(pid=4242, role="supervisor", rss_bytes=31 << 20, cpu_percent=0.7),
        ],
    }
    return HostView(**{**values, **changes})


def pod(num_hosts: int, cores: int = CORES, **changes: Any) -> Snapshot:
    """A run on several hosts in its third epoch."""
    every = num_hosts * cores
    base = made.running(every)
    assert base.topology is not None
    hbm = [
        HbmReading(core=core, used_bytes=(9 << 30) + core % 7 * (100 << 20), limit_bytes=16 << 30, peak_bytes=11 << 30)
        for core in range(every)
    ]
    snapshot = made.changed(
        base,
        run="resnet-pod",
        topology=msgspec.structs.replace(base.topology, num_hosts=num_hosts),
        cores=[core_of(core, cores) for core in range(every)],
        memory=msgspec.structs.replace(base.memory, hbm=hbm),
        hosts=[host(index, cores) for index in range(num_hosts)],
        logs=logs(num_hosts),
    )
    return made.changed(snapshot, **changes) if changes else snapshot


def core_of(core: int, cores: int = CORES, **changes: Any) -> CoreView:
    """A core that runs."""
    view = CoreView(
        core=core,
        host=f"tpu-vm-{core // cores}",
        loss=made.loss_at(made.STEPS, core % 64),
        step=made.STEPS,
        condition="running",
        phase="executing",
        phase_s=0.3,
    )
    return msgspec.structs.replace(view, **changes)


def logs(num_hosts: int) -> list[LogLine]:
    """What all hosts print alike, a line that one of them lacks, and a line of one host."""
    every = [
        LogLine(t=made.NOW - 50, source=f"worker-{h}", level="info", text="epoch 1 begins") for h in range(num_hosts)
    ]
    but_one = [
        LogLine(t=made.NOW - 30, source=f"worker-{h}", level="info", text="shard 12 read")
        for h in range(num_hosts)
        if h != 1
    ]
    alone = LogLine(t=made.NOW - 30, source="worker-1", level="warning", text="shard 12 read again after an error")
    own = LogLine(t=made.NOW - 49, source="tputui", level="info", text="4 programs compiled in 3.52 s")
    return [*every, own, *but_one, alone]


def with_hosts(snapshot: Snapshot, changed: dict[int, dict[str, Any]], **changes: Any) -> Snapshot:
    """The snapshot with some hosts changed."""
    hosts = [
        msgspec.structs.replace(host, **changed[host.index]) if host.index in changed else host
        for host in snapshot.hosts
    ]
    return made.changed(snapshot, hosts=hosts, **changes)


def troubled(num_hosts: int = 256, cores: int = CORES) -> Snapshot:
    """A run with a host that has not joined, one that is silent, one with NaN, a slow one, and a restart."""
    snapshot = pod(num_hosts, cores)
    last = num_hosts - 1
    bad = 2 * cores + 3
    return with_hosts(
        snapshot,
        {
            0: {},
            1: {
                "condition": "stalled",
                "silent_s": 31.0,
                "phase": "data",
                "phase_s": 31.0,
                "step": 290,
                "lag_steps": 40,
            },
            2: {"loss": math.nan},
            3: {"data_s": 0.0026, "wait_s": 0.0001, "generation": 1},
            last: missing(last),
        },
        cores=[
            core_of(core.core, cores, loss=math.nan) if core.core == bad else core
            for core in snapshot.cores
            if core.core // cores != last
        ],
        num_non_finite=4,
        slow_host=SlowHostView(
            index=3, name="tpu-vm-3", part="data", share=0.12, seconds=0.0015, first_step=250, waiting=num_hosts - 3
        ),
        generations=generations(),
    )


def missing(index: int) -> dict[str, Any]:
    """The values of a host that has written nothing."""
    names = ("phase", "silent_s", "loss", "step_s", "compute_s", "data_s", "wait_s", "cpu_percent", "used_bytes")
    names += ("total_bytes", "hbm_used_share", "clock_offset_s", "clock_error_s")  # type: ignore[assignment]
    return {"name": "", "condition": "missing", "cores": [], "step": 0, "processes": [], **dict.fromkeys(names)}


def generations() -> list[GenerationView]:
    """A run whose processes were restarted once."""
    return [
        GenerationView(number=0, t=made.NOW - 60, first_step=1, lost_steps=0, lost_s=None, reason=""),
        GenerationView(
            number=1, t=made.step_t(250), first_step=221, lost_steps=29, lost_s=14.2, reason="host 3, rank 3: SIGKILL"
        ),
    ]
