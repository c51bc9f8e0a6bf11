"""The cores of a run as the TPU runtime reports them: samples, memory and what they execute, over all hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.state.chart_data import DevicePoint
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import DevicesView
from tputui.telemetry.events import CoreSample, CoreState, HbmReading

OfCore = TypeVar("OfCore", CoreSample, HbmReading)
_HEX_DIGITS = 8


def devices_of(state: RunState) -> DevicesView | None:
    """The newest samples of all hosts; None if no supervisor reads a TPU runtime."""
    return state.memoized("devices", _key(state), lambda: _devices_of(state))


def _devices_of(state: RunState) -> DevicesView | None:
    hosts = [(process, process.devices.newest) for process in state.supervisors if process.devices.newest is not None]
    if not hosts:
        return None
    absent = [name for newest in (newest for _, newest in hosts if newest.cores) for name in newest.absent]
    return DevicesView(
        t=max(newest.t for _, newest in hosts),
        cores=_renumbered(state, [(process, newest.cores or []) for process, newest in hosts]),
        reason=_joined_reasons((process, newest.reason) for process, newest in hosts),
        absent=list(dict.fromkeys(absent)),
    )


def history_of(state: RunState) -> list[DevicePoint]:
    """The duty cycle over time, of the first host that reports it."""
    return next((process.devices.points.items for process in state.supervisors if process.devices.points.items), [])


def hbm_of(state: RunState) -> tuple[list[HbmReading], str | None]:
    """The memory of the cores as the TPU runtime reports it, in order, and why it is not known for all of them."""
    return state.memoized("memory of devices", _key(state), lambda: _hbm_of(state))


def _key(state: RunState) -> object:
    """Everything that the views depend on; unchanged events are compared by identity."""
    read = tuple(
        (process.name, process.opened, process.devices.newest, process.memory) for process in state.supervisors
    )
    return read, tuple((process.opened, process.topology) for process in state.workers)


def _hbm_of(state: RunState) -> tuple[list[HbmReading], str | None]:
    hosts = [(process, process.memory) for process in state.supervisors if process.memory is not None]
    reason = _joined_reasons((process, read.hbm_reason) for process, read in hosts)
    return _renumbered(state, [(process, read.hbm or []) for process, read in hosts]), reason


def state_lines(cores: Iterable[CoreState], *, operations: bool = True) -> Iterator[str]:
    """What cores execute, as lines; cores in the same state share one: `cores 0-6: at all-reduce.17, launch 812, ...`.

    The fewest cores come first: they are the ones that differ. `operations`: also print the operation, indented.
    """
    groups = [list(group) for _, group in groupby(sorted(cores, key=_activity), key=_activity)]
    for group in sorted(groups, key=lambda group: (len(group), group[0].core)):
        yield f"{fmt.cores([core.core for core in group])}: {_words(group[0])}"
        if operations and group[0].hlo:
            yield f"  {group[0].hlo}"


def _activity(core: CoreState) -> tuple[object, ...]:
    """What a core executes, without its number and the id of the execution, which may differ between cores."""
    return (core.error, core.launch_id or 0, core.program, core.hlo_location, core.pc or 0, core.queued_programs)


def _words(core: CoreState) -> str:
    """`at all-reduce.17, launch 812, pc 0x1a40, program cafecafe, 2 programs queued`."""
    parts = [
        f"error: {core.error}" if core.error else "",
        f"at {core.hlo_location}" if core.hlo_location else "",
        f"launch {core.launch_id}" if core.launch_id is not None else "",
        f"pc {core.pc:#x}" if core.pc is not None else "",
        f"program {core.program[:_HEX_DIGITS]}" if core.program else "",
        f"{fmt.counted(core.queued_programs, 'program')} queued",
    ]
    return ", ".join(part for part in parts if part)


def _renumbered(state: RunState, of_hosts: Sequence[tuple[ProcessState, Sequence[OfCore]]]) -> list[OfCore]:
    """What supervisors read of their devices, with the indices of cores over all hosts, in order."""
    numbers = _core_numbers(state, {process.name: [read.core for read in reads] for process, reads in of_hosts})
    renumbered = [
        replace(read, core=numbers[process.name].get(read.core, read.core))
        for process, reads in of_hosts
        for read in reads
    ]
    return sorted(renumbered, key=lambda read: read.core)


def _core_numbers(state: RunState, devices: Mapping[str, Sequence[int]]) -> dict[str, dict[int, int]]:
    """Indices of cores over all hosts by supervisor and device.

    As the processes of the host declare them, if these are as many; else in the order of hosts if devices of several
    hosts have the same number.
    """
    declared: dict[str, set[int]] = defaultdict(set)
    for process in state.workers:
        if process.topology is not None and process.opened is not None:
            declared[process.opened.host] |= set(process.topology.cores)
    numbers = [device for of_process in devices.values() for device in of_process]
    are_unique = len(set(numbers)) == len(numbers)
    numbers_by_name: dict[str, dict[int, int]] = {}
    before = 0
    for name, of_host in devices.items():
        opened = state.processes[name].opened
        cores = sorted(declared.get(opened.host, set())) if opened is not None else []
        if len(cores) != len(of_host):
            cores = list(of_host) if are_unique else list(range(before, before + len(of_host)))
        numbers_by_name[name] = dict(zip(sorted(of_host), cores, strict=True))
        before += len(of_host)
    return numbers_by_name


def _joined_reasons(reasons: Iterable[tuple[ProcessState, str | None]]) -> str | None:
    """The reasons of the hosts, each once; the host is named if there are several."""
    given = [(process.opened.host if process.opened else process.name, why) for process, why in reasons]
    texts = [f"{host}: {why}" if len(given) > 1 else why for host, why in given if why]
    return "; ".join(dict.fromkeys(texts)) or None
