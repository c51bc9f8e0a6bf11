"""The cores of a run as the TPU runtime reports them, over all hosts, and what they executed when a run hung."""

from __future__ import annotations

import math

import pytest

from tests.recorded import T0, opened
from tputui.state import process_stacks
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.state.state_struct import POINTS_MAX
from tputui.telemetry import events as ev
from tputui.text import phrases


def sampled(*duty: float | None, t: float = T0 + 5, reason: str | None = None) -> ev.DeviceSampled:
    cores = [ev.CoreSample(core=core, duty_cycle_percent=percent) for core, percent in enumerate(duty)]
    return ev.DeviceSampled(t=t, cores=cores, reason=reason)


def memory(*used: int) -> ev.MemorySampled:
    hbm = [ev.HbmReading(core=core, used_bytes=each, limit_bytes=9, peak_bytes=0) for core, each in enumerate(used)]
    return ev.MemorySampled(t=T0 + 5, hbm=hbm)


def topology(*cores: int) -> ev.TopologyDeclared:
    return ev.TopologyDeclared(
        t=T0, strategy="spmd", device="TPU", num_cores=8, num_hosts=2, host_index=0, cores=list(cores)
    )


def executing(core: int, launch_id: int, at: str) -> ev.CoreState:
    return ev.CoreState(
        core=core, pc=0x1A40 + len(at), launch_id=launch_id, program="cafe" * 8, queued_programs=1, hlo_location=at,
        hlo=f"%{at} = f32[8] op(%p0)",
    )  # fmt: skip


def state_of(**journals: list[ev.Event]) -> RunState:
    """`worker_0=[...]` are the events of worker-0, after its head."""
    state = RunState()
    for key, events in journals.items():
        role, _, index = key.rpartition("_")
        for seq, event in enumerate([opened(T0, role, int(index), pid=100 + int(index)), *events]):
            state.apply(f"{role}-{index}", seq, event)
    return state


def seen(**journals: list[ev.Event]) -> Snapshot:
    return build_snapshot(state_of(**journals), ViewerContext(now=T0 + 9, run="r", dir="r"))


def duty_of(snapshot: Snapshot) -> list[tuple[int, float | None]]:
    assert snapshot.devices is not None
    return [(core.core, core.duty_cycle_percent) for core in snapshot.devices.cores]


def test_devices_of_hosts_are_the_cores_that_their_processes_declare() -> None:
    snapshot = seen(
        worker_0=[topology(0, 1)],
        worker_1=[topology(2, 3)],
        supervisor_0=[sampled(10.0, 11.0), memory(1, 2)],
        supervisor_1=[sampled(12.0, 13.0), memory(3, 4)],
    )
    assert duty_of(snapshot) == [(0, 10.0), (1, 11.0), (2, 12.0), (3, 13.0)]
    assert [(one.core, one.used_bytes) for one in snapshot.memory.hbm or []] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_devices_that_nobody_declares_are_numbered_by_host() -> None:
    assert duty_of(seen(supervisor_0=[sampled(10.0, 11.0)], supervisor_1=[sampled(12.0)])) == [
        (0, 10.0), (1, 11.0), (2, 12.0)
    ]  # fmt: skip


def test_memory_that_a_process_reports_itself_counts_more() -> None:
    own = ev.MemorySampled(t=T0, hbm=[ev.HbmReading(core=0, used_bytes=7, limit_bytes=9, peak_bytes=8)])
    snapshot = seen(worker_0=[topology(0, 1), own], supervisor_0=[memory(1, 2)])
    assert [(one.core, one.used_bytes) for one in snapshot.memory.hbm or []] == [(0, 7), (1, 2)]


def test_reason_of_the_runtime_replaces_that_of_the_process() -> None:
    own = ev.MemorySampled(t=T0, hbm=None, hbm_reason="the process cannot read it")
    silent = "no TPU runtime answers on port 8431"
    read: list[ev.Event] = [ev.MemorySampled(t=T0, hbm=None, hbm_reason=silent)]
    assert seen(worker_0=[own], supervisor_0=read).memory.hbm_reason == silent
    assert seen(worker_0=[own], supervisor_0=[]).memory.hbm_reason == "the process cannot read it"


def test_history_is_bounded_and_ignores_values_that_are_not_numbers() -> None:
    events = [sampled(float(n % 100), 100.0, t=T0 + n) for n in range(3 * POINTS_MAX)]
    snapshot = seen(supervisor_0=[*events, sampled(math.nan, t=T0 + 9_000)])
    points = snapshot.device_history
    assert 0 < len(points) <= POINTS_MAX
    assert points[-1].t == events[-1].t
    assert all(point.lowest_percent <= point.duty_cycle_percent <= 100 for point in points)


def test_a_huge_sample_is_cut() -> None:
    snapshot = seen(supervisor_0=[sampled(*[1.0] * 10_000)])
    assert snapshot.devices is not None
    assert len(snapshot.devices.cores) == 4_096


def test_no_tpu_is_no_view() -> None:
    assert seen(worker_0=[topology(0)], supervisor_0=[]).devices is None


def test_cores_with_the_same_problem_share_a_sentence() -> None:
    cores = [
        ev.CoreSample(core=core, ici_link_health=6 if core < 2 else 0, throttle_score=core == 3) for core in range(4)
    ]
    assert phrases.device_problems(cores) == [
        "cores 0-1: ICI link health 6 of 10, persistent minor problem",
        "core 3: throttled by 10 %",
    ]


STACK = [ev.ThreadStack(name="MainThread", frames=[])]


@pytest.mark.parametrize("answers", [True, False])
def test_stacks_and_core_states_are_merged(answers: bool) -> None:
    """Cores that differ come first; a process that does not answer does not hide what its cores execute."""
    cores = [executing(core, 812 - (core == 2), "fusion.88" if core == 2 else "all-reduce.17") for core in range(4)]
    taken = ev.StacksTaken(t=T0 + 3, request="1", process="worker-0", pid=100, threads=STACK)
    beat = ev.HeartbeatSent(t=T0 + 1, phase="executing", phase_s=90.0, step=812, epoch=1)
    read = ev.CoreStatesRead(t=T0 + 2, request="1", cores=cores)
    state = state_of(worker_0=[topology(0, 1, 2, 3), beat, *([taken] if answers else [])], supervisor_0=[read])
    view = process_stacks.stacks(state)
    assert view is not None
    lines = process_stacks.page(view)
    assert lines[0] == (
        "worker-0 (cores 0-3, pid 100): executing for 1 min 32 s at step 812" if answers else "TPU cores"
    )
    assert lines[1:5] == [
        "  core 2: at fusion.88, launch 811, pc 0x1a49, program cafecafe, 1 program queued",
        "    %fusion.88 = f32[8] op(%p0)",
        "  cores 0, 1, 3: at all-reduce.17, launch 812, pc 0x1a4d, program cafecafe, 1 program queued",
        "    %all-reduce.17 = f32[8] op(%p0)",
    ]


def test_cores_of_several_processes_are_compared_in_a_block_of_their_own() -> None:
    journals: dict[str, list[ev.Event]] = {
        f"worker_{n}": [
            topology(n),
            ev.StacksTaken(t=T0 + 3, request="1", process=f"worker-{n}", pid=100 + n, threads=STACK),
        ]
        for n in range(2)
    }
    cores = [executing(core, 812 - core, "all-reduce.17") for core in range(2)]
    reason = "no TPU runtime answers on port 8433"
    read = ev.CoreStatesRead(t=T0 + 2, request="1", cores=cores, reason=reason)
    view = process_stacks.stacks(state_of(**journals, supervisor_0=[read]))
    assert view is not None
    lines = process_stacks.page(view)
    first = lines.index("TPU cores")
    assert "  core 1: at all-reduce.17, launch 811, pc 0x1a4d, program cafecafe, 1 program queued" in lines[:first]
    assert [line.partition(",")[0] for line in lines[first + 1 :]] == [
        "  core 0: at all-reduce.17", "  core 1: at all-reduce.17", f"  not known: {reason}",
    ]  # fmt: skip


def test_stacks_read_from_outside_are_those_of_the_process_that_reports_itself() -> None:
    beat = ev.HeartbeatSent(t=T0 + 1, phase="data", phase_s=90.0, step=812, epoch=1)
    taken = ev.StacksTaken(t=T0 + 3, request="1", process="logs-0", pid=100, threads=STACK)
    state = state_of(worker_0=[topology(0), beat], logs_0=[], supervisor_0=[taken])
    view = process_stacks.stacks(state)
    assert view is not None
    assert process_stacks.page(view)[0] == "worker-0 (core 0, pid 100): waiting for data for 1 min 32 s at step 812"
