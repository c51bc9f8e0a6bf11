"""The hosts on the page of `tputui show`, if a run has several, and the restarts of training."""

from __future__ import annotations

from collections.abc import Sequence

from tputui import formatting as fmt
from tputui.state.snapshot import GenerationView, HostView, SlowHostView, Snapshot
from tputui.text.phrases import row

HOSTS_SHOWN = 16
"""With more hosts, only those with a problem have a line each."""
PROCESSES_SHOWN = 16
"""With more processes, only those with most memory have a line."""


def lines(snapshot: Snapshot) -> list[str]:
    """The hosts, the one for which the others wait, and the restarts."""
    rows = [line for generation in snapshot.generations[1:] for line in _restart(generation)]
    if len(snapshot.hosts) > 1:
        rows = [*_hosts(snapshot.hosts), *rows]
    if snapshot.slow_host is not None:
        rows.append(row("slow host", slowness(snapshot.slow_host)))
    return rows


def slowness(slow: SlowHostView) -> str:
    """`host 3 (vm-3): 12 % slower than the others in computing, 1.2 ms per step; 7 hosts wait for it`."""
    part = {"compute": " in computing", "data": " in waiting for batches", "step": ""}[slow.part]
    wait = f"{fmt.counted(slow.waiting, 'host')} {'waits' if slow.waiting == 1 else 'wait'} for it"
    by = f"{fmt.slower(slow.share)} than the others{part}, {fmt.duration(slow.seconds)} per step"
    return f"{named(slow.index, slow.name)}: {by}; {wait}"


def named(index: int, name: str) -> str:
    """`host 3 (vm-3)`."""
    return f"host {index} ({name})" if name else f"host {index}"


def unanswered(hosts: Sequence[int]) -> str:
    """`no answer from hosts 2, 5`; empty if all have answered."""
    named = ", ".join(map(str, hosts[:8]))
    more = f" and {len(hosts) - 8} more" if len(hosts) > 8 else ""
    return f"no answer from host{'' if len(hosts) == 1 else 's'} {named}{more}" if hosts else ""


def _hosts(hosts: Sequence[HostView]) -> list[str]:
    if len(hosts) <= HOSTS_SHOWN:
        return [_host(host) for host in hosts]
    wrong = [host for host in hosts if host.condition in ("missing", "lost", "stalled")]
    counts = {condition: 0 for condition in (host.condition for host in hosts)}
    for host in hosts:
        counts[host.condition] += 1
    total = ", ".join(f"{number:,} {condition}" for condition, number in counts.items())
    shown = [_host(host) for host in wrong[:HOSTS_SHOWN]]
    more = [row("hosts", f"{len(wrong) - HOSTS_SHOWN} more of these")] if len(wrong) > HOSTS_SHOWN else []
    return [row("hosts", f"{len(hosts):,}: {total}"), *shown, *more]


def _host(host: HostView) -> str:
    return row(
        f"host {host.index}",
        host.name,
        host.condition,
        f"({host.reason})" if host.reason and host.condition != "ended" else "",
        f"{fmt.cores(host.cores)}" if host.cores else "",
        f"step {host.step:,}" if host.step else "",
        f"{host.lag_steps:,} behind" if host.lag_steps else "",
        f"loss {fmt.number(host.loss)}" if host.loss is not None else "",
        _clock(host),
        host.link or "",
    )


def _clock(host: HostView) -> str:
    """`clock 90 s ahead (+-1.2 ms), corrected`; empty for the first host, to whose clock the others are compared."""
    offset, error = host.clock_offset_s, host.clock_error_s
    if host.index == 0 or offset is None or error is None:
        return ""
    if abs(offset) <= error:
        return f"clock as host 0 (+-{fmt.duration(error)})"
    side = "ahead" if offset > 0 else "behind"
    return f"clock {fmt.duration(abs(offset))} {side} (+-{fmt.duration(error)}), corrected"


def processes(snapshot: Snapshot) -> list[str]:
    """Memory and CPU of the processes, of many only the largest; with their hosts if there are several."""
    listed = [("", process) for process in snapshot.memory.processes]
    if len(snapshot.hosts) > 1:
        listed = [(f"host {host.index}", process) for host in snapshot.hosts for process in host.processes]
    more = len(listed) - PROCESSES_SHOWN
    if more > 0:
        listed = sorted(listed, key=lambda entry: -entry[1].rss_bytes)[:PROCESSES_SHOWN]
    lines = [
        row(sample.role, of, f"pid {sample.pid}", fmt.size(sample.rss_bytes), f"CPU {fmt.percent(sample.cpu_percent)}")
        for of, sample in listed
    ]
    return [*lines, row("processes", f"{more:,} more with less memory")] if more > 0 else lines


def _restart(generation: GenerationView) -> list[str]:
    lost = fmt.counted(generation.lost_steps, "step")
    took = f"{fmt.duration(generation.lost_s)} lost" if generation.lost_s is not None else ""
    at = (
        f"from step {generation.first_step:,}, {lost} again"
        if generation.first_step is not None
        else "not yet training"
    )
    return [row(f"restart {generation.number}", at, took, generation.reason)]
