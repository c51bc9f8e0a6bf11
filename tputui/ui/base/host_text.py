"""Texts about the hosts of a run: which of them stand out, and why. Used if a run has several hosts.

A problem has a word and a sign besides its colour. Nothing here knows the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from tputui import formatting as fmt
from tputui.state.chart_data import OutlierView
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import CoreView, GenerationView, HostView, SlowHostView, Snapshot
from tputui.state.time_spent import SILENT_S
from tputui.ui.render.lines import Sign, Tone, clean

ProblemKind = Literal["missing", "lost", "nan", "stalled", "link", "slow", "outlier", "lag", "memory"]
"""The most severe first."""

NAMED_MAX = 3
"""Maximum number of hosts with one problem that are named one by one."""

_MEMORY_FULL = 0.95
"""Share of the host memory from which the kernel may soon kill a process."""
_LAG_REPORTS, _LAG_S = 2, 5.0
"""Reports, and seconds of training, that a host may be behind: hosts report at different moments."""


class HostProblem(NamedTuple):
    """Why a host stands out."""

    host: int
    """Its index."""
    kind: ProblemKind
    mark: str
    tone: Tone
    text: str
    """`silent 31 s, waiting for data`; without the name of the host."""


SIGNS: dict[ProblemKind, Sign] = {
    "missing": Sign("\u25cb", "bad", "missing"),
    "lost": Sign("?", "bad", "lost"),
    "nan": Sign("\u2716", "bad", "with NaN or inf"),
    "stalled": Sign("\u25b2", "warn", "silent"),
    "link": Sign("!", "warn", "not connected"),
    "slow": Sign("\u25b2", "warn", "slow"),
    "outlier": Sign("\u25b4", "alert", "with an outlier"),
    "lag": Sign("\u25b2", "warn", "behind"),
    "memory": Sign("!", "warn", "with full memory"),
}
_RANK: dict[ProblemKind, int] = {kind: rank for rank, kind in enumerate(SIGNS)}


def has_hosts(snapshot: Snapshot) -> bool:
    """Whether the run has several hosts."""
    return num_hosts(snapshot) > 1


def num_hosts(snapshot: Snapshot) -> int:
    """The number of hosts, as far as known."""
    declared = snapshot.topology.num_hosts if snapshot.topology is not None else 0
    return max(len(snapshot.hosts), declared)


def listed(indices: Sequence[int]) -> str:
    """`host 3`, `hosts 3, 7, 9`, `hosts 3, 7, 9 and 12 more`."""
    named = ", ".join(map(str, indices[:NAMED_MAX]))
    more = f" and {len(indices) - NAMED_MAX} more" if len(indices) > NAMED_MAX else ""
    return f"host{'' if len(indices) == 1 else 's'} {named}{more}"


def problems(
    hosts: Sequence[HostView],
    cores: Iterable[CoreView],
    *,
    slow: SlowHostView | None = None,
    outlier: OutlierView | None = None,
    late_steps: int | None = None,
    is_over: bool = False,
) -> list[HostProblem]:
    """The problems of the hosts, at most one each, the most severe first. A host that is more than `late_steps`
    behind is named; `is_over`: the run has ended, so that nothing is silent or missing."""
    bad = non_finite_cores(cores)
    usual = median_step(hosts)
    least = usual - late_steps if late_steps and not is_over else 0
    listed = []
    for host in hosts:
        problem = _problem(host, bad, slow, outlier, is_over=is_over)
        if problem is None and 0 < host.step < least:
            problem = "lag", f"{fmt.counted(usual - host.step, 'step')} behind"
        if problem is not None:
            kind, text = problem
            sign = SIGNS[kind]
            mark = "\u25be" if kind == "outlier" and outlier is not None and outlier.by < 0 else sign.mark
            listed.append(HostProblem(host.index, kind, mark, sign.tone, text))
    return sorted(listed, key=lambda entry: (_RANK[entry.kind], entry.host))


def non_finite_cores(cores: Iterable[CoreView]) -> set[int]:
    """The cores whose newest loss is NaN or infinite."""
    cores = list(cores)
    # A finite sum is that of finite values, which is much cheaper to test than each of them.
    if math.isfinite(sum([core.loss for core in cores if core.loss is not None])):
        return set()
    return {core.core for core in cores if core.loss is not None and not math.isfinite(core.loss)}


def late_steps(snapshot: Snapshot) -> int | None:
    """Number of steps from which a host is late; None if it is not known how long a step and a report take."""
    if not snapshot.report_steps or not snapshot.step_s or not math.isfinite(steps := _LAG_S / snapshot.step_s):
        return None
    return max(_LAG_REPORTS * snapshot.report_steps, math.ceil(steps))


def median_step(hosts: Iterable[HostView]) -> int:
    """The step of the median host, relative to which others are behind: one that is ahead has reported early."""
    steps = sorted(host.step for host in hosts if host.step)
    return steps[len(steps) // 2] if steps else 0


def _problem(
    host: HostView,
    bad: set[int],
    slow: SlowHostView | None,
    outlier: OutlierView | None,
    *,
    is_over: bool,
) -> tuple[ProblemKind, str] | None:
    if not is_over and host.link is not None and host.link != "connected":
        # Nothing is known of a host that is not connected: it may train.
        return "link", clean(host.link)
    if not is_over and host.condition == "missing":
        return "missing", "has not joined"
    if host.condition == "lost":
        return "lost", clean(host.reason) or "lost without an end event"
    if not bad.isdisjoint(host.cores):
        return "nan", f"NaN or inf on {fmt.cores([core for core in host.cores if core in bad])}"
    if not is_over and host.condition == "stalled":
        return "stalled", _silence(host)
    if slow is not None and slow.index == host.index:
        return "slow", slowness(slow)
    if outlier is not None and outlier.core in host.cores:
        side = "above" if outlier.by > 0 else "below"
        return "outlier", f"core {outlier.core} {side} the others since step {outlier.first_step:,}"
    if host.used_bytes is not None and host.total_bytes and host.used_bytes >= _MEMORY_FULL * host.total_bytes:
        return "memory", f"host memory {fmt.percent(100 * host.used_bytes / host.total_bytes)} used"
    return None


def _silence(host: HostView) -> str:
    if host.reason and max(host.silent_s or 0.0, host.phase_s) < SILENT_S:
        # Its training process has just exited.
        return clean(host.reason)
    doing = f", {fmt.PHASES[host.phase]}" if host.phase not in (None, "unknown") else ""
    if host.silent_s is not None and host.silent_s >= host.phase_s / 2:
        return f"silent {fmt.age(host.silent_s)}{doing}"
    return f"no progress for {fmt.age(host.phase_s)}{doing}"


def slowness(slow: SlowHostView) -> str:
    """`12 % slower in data, 0.8 ms per step; 255 hosts wait`."""
    part = "" if slow.part == "step" else f" in {slow.part}"
    waiting = f"; {fmt.counted(slow.waiting, 'host')} wait{'s' if slow.waiting == 1 else ''}" if slow.waiting else ""
    return f"{fmt.slower(slow.share)}{part}, {fmt.duration(slow.seconds)} per step{waiting}"


def grouped(listed: Iterable[HostProblem]) -> list[tuple[HostProblem, list[int]]]:
    """The problems to list: one by one, or together if many hosts have the same kind of problem."""
    kinds: dict[ProblemKind, list[HostProblem]] = {}
    for problem in listed:
        kinds.setdefault(problem.kind, []).append(problem)
    rows: list[tuple[HostProblem, list[int]]] = []
    for members in kinds.values():
        if len(members) <= NAMED_MAX:
            rows += [(problem, [problem.host]) for problem in members]
        else:
            rows.append((members[0], [problem.host for problem in members]))
    return rows


_ALARMED: tuple[ProblemKind, ...] = ("missing", "lost", "stalled")
"""Kinds of problems that the header names; it has alarms of their own for NaN, slow cores and lost connections."""


def alarms(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The problems of hosts for the header: a key that identifies each, and its text."""
    if not has_hosts(snapshot):
        return []
    is_over = snapshot.condition in ENDED
    of_hosts = problems(snapshot.hosts, (), is_over=is_over)
    alarms: list[tuple[str, str]] = []
    for kind in _ALARMED:
        of_kind = [problem for problem in of_hosts if problem.kind == kind]
        if not of_kind or (is_over and kind == "lost"):
            continue
        indices = [problem.host for problem in of_kind]
        text = f"host {indices[0]} {of_kind[0].text}" if len(of_kind) == 1 else f"{listed(indices)} {SIGNS[kind].word}"
        alarms.append((f"hosts {kind} {indices}", text))
    if (slow := snapshot.slow_host) is not None:
        part = "" if slow.part == "step" else f" in {slow.part}"
        # Without its first step, which moves on: only the newest steps are compared.
        alarms.append((f"slow host {slow.index}", f"host {slow.index}: {fmt.slower(slow.share)}{part}"))
    if restarts := restarted(snapshot):
        alarms.append((f"generation {snapshot.generations[-1].number}", restarts))
    return alarms


def restarted(snapshot: Snapshot) -> str:
    """`restarted 2 of at most 3 times, 120 steps lost`; empty if training was not restarted."""
    times = len(snapshot.generations) - 1
    if times < 1:
        return ""
    launch = snapshot.config.get("launch")
    most = launch.get("max_restarts") if isinstance(launch, Mapping) else None
    of = f" of at most {most}" if isinstance(most, int) and most >= times else ""
    lost = sum(generation.lost_steps for generation in snapshot.generations)
    steps = f", {fmt.counted(lost, 'step')} lost" if lost else ""
    return f"restarted {'once' if times == 1 and not of else f'{times}{of} times'}{steps}"


def lost_by(generation: GenerationView) -> str:
    """`generation 1 from step 221: 29 steps and 14.2 s lost; rank 3: SIGKILL`."""
    begun = f" from step {generation.first_step:,}" if generation.first_step is not None else ""
    lost = [fmt.counted(generation.lost_steps, "step")] if generation.lost_steps else []
    lost += [fmt.duration(generation.lost_s)] if generation.lost_s is not None else []
    parts = [f"{' and '.join(lost)} lost"] if lost else []
    parts += [clean(generation.reason)] if generation.reason else []
    return f"generation {generation.number}{begun}{': ' if parts else ''}{'; '.join(parts)}"


def host_of_cores(snapshot: Snapshot) -> Mapping[int, int]:
    """The index of the host of each core; empty if the run has one host."""
    return {core: host.index for host in snapshot.hosts for core in host.cores} if has_hosts(snapshot) else {}


def size_of(hosts: int, cores: int, device: str) -> str:
    """`256 hosts x 8 TPU cores`, or `26 TPU cores on 4 hosts` if not all have as many."""
    kind = "" if device == "unknown" else f"{clean(device)} "
    if hosts and cores % hosts == 0:
        return f"{hosts:,} hosts x {fmt.counted(cores // hosts, f'{kind}core')}"
    return f"{fmt.counted(cores, f'{kind}core')} on {hosts:,} hosts"
