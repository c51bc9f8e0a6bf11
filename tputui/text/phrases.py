"""Phrases that the screen, `show`, `check` and the lines of `--no-ui` share: recompiles, damage, origin."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from tputui import formatting as fmt
from tputui.state.snapshot import FlopsView, RunDetails, Snapshot
from tputui.state.xla_view import XlaView
from tputui.telemetry.codec import Damage
from tputui.telemetry.events import CoreSample
from tputui.telemetry.origin import GitState

SCALAR_READS = ".item(), float(), if tensor"
"""Ways in which the code of a task reads a scalar from the device."""


def row(name: str, *values: str) -> str:
    """A row of a page: a name in its column, then the values that are not empty."""
    return f"{name:<12} {'  '.join(value for value in values if value)}"


def core_name(snapshot: Snapshot, core: int) -> str:
    """`core 19`, or `core 19 (host 2)` if the run has several hosts."""
    if len(snapshot.hosts) < 2:
        return f"core {core}"
    return f"core {core}{next((f' (host {host.index})' for host in snapshot.hosts if core in host.cores), '')}"


def recompiles(xla: XlaView) -> str:
    """`0 after warm-up` if that is known; else what is known. First compilations for an input are named beside it."""
    if xla.late_compiles and not xla.recompiles:
        return f"0; {fmt.count(xla.late_compiles)} for inputs that came first after warm-up"
    if xla.recompiles or xla.is_never_recompiled:
        return f"{fmt.count(xla.recompiles)} after warm-up"
    return "0 at syncs, others not counted" if xla.steps is None else "0 (still warming up)"


def executes_a_step(xla: XlaView) -> str:
    """`2.0 a step where 1 is expected`; empty if no step was counted."""
    executes, expected = xla.executes_a_step, xla.expected_a_step
    if executes is None or expected is None:
        return ""
    beside = f" where {expected:.3g} {'is' if expected == 1 else 'are'} expected" if xla.has_extra_executes else ""
    return f"{executes:.1f} a step{beside}"


def reads_a_step(xla: XlaView) -> str:
    """`1.0 scalars a step (.item(), float(), if tensor)`; empty if no step was counted."""
    reads = xla.reads_a_step
    if reads is None:
        return ""
    if reads <= 0:
        return "0 a step"
    return f"{reads:.1f} scalars a step ({SCALAR_READS})" if reads >= 0.1 else f"{reads:.1g} scalars a step"


def device_values(core: CoreSample) -> list[str]:
    """`duty cycle 92 %`, `2 programs queued`, ...: what the TPU runtime reports of a core."""
    values: list[tuple[str, object]] = [
        (f"duty cycle {fmt.percent(core.duty_cycle_percent)}", core.duty_cycle_percent),
        (f"HBM bandwidth {fmt.percent(core.hbm_bandwidth_percent)}", core.hbm_bandwidth_percent),
        (f"idle for {fmt.duration(core.tensorcore_idle_s)}", core.tensorcore_idle_s),
        (f"{fmt.counted(core.queued_programs or 0, 'program')} queued", core.queued_programs),
        (f"throttle score {core.throttle_score}", core.throttle_score),
        (f"ICI link health {core.ici_link_health}", core.ici_link_health),
    ]
    return [text for text, value in values if value is not None]


def device_problems(cores: Iterable[CoreSample]) -> list[str]:
    """Throttled cores and bad links: `core 3: throttled by 30 %`; cores with the same problem share one text."""
    cores_by_problem: dict[str, list[int]] = {}
    for core in cores:
        if core.throttle_score:
            cores_by_problem.setdefault(f"throttled by {10 * core.throttle_score} %", []).append(core.core)
        if core.ici_link_health:
            cores_by_problem.setdefault(_link(core.ici_link_health), []).append(core.core)
    return [f"{fmt.cores(indices)}: {text}" for text, indices in cores_by_problem.items()]


def _link(health: int) -> str:
    """The meaning of the health score of the worst link to another chip, as Google documents it."""
    meaning = "not usable" if health >= 10 else "persistent minor problem" if health > 5 else "transient problem"
    return f"ICI link health {health} of 10, {meaning}"


def damage(region: Damage) -> str:
    """Damage in a journal: `worker-0.jsonl, bytes 120 to 371: its checksum does not match (1 event lost)`."""
    where = f", bytes {region.start} to {region.end}" if region.end > region.start else ""
    lost = "unknown number of events" if region.lost_records is None else fmt.counted(region.lost_records, "event")
    return f"{region.journal}{where}: {region.reason} ({lost} lost)"


def lost(regions: Sequence[Damage]) -> str:
    """`2 events lost`; `2 events lost, and an unknown number in 1 further region`; `unknown number of events lost`."""
    counts = [region.lost_records for region in regions if region.lost_records is not None]
    if regions and not counts:
        return "unknown number of events lost"
    text = f"{fmt.counted(sum(counts), 'event')} lost"
    if unknown := len(regions) - len(counts):
        text += f", and an unknown number in {fmt.counted(unknown, 'further region')}"
    return text


NOT_RECORDED = "not recorded"
_COMMIT_CHARS = 12


def details(run: RunDetails) -> list[tuple[str, str]]:
    """Where a run comes from, as pairs of a name and a text."""
    resumed = [("resumed from", run.resumed_from)] if run.resumed_from else []
    return [
        ("command", command(run.argv)),
        ("directory", run.cwd or NOT_RECORDED),
        ("host", run.host or NOT_RECORDED),
        ("versions", versions(run.versions)),
        ("git", git(run.git)),
        *resumed,
    ]


def command(argv: Sequence[str] | None) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(argv) if argv else NOT_RECORDED


def versions(recorded: Mapping[str, str | None] | None) -> str:
    """`Python 3.11.7, tputui 0.1.0, torch 2.9.1, torch_xla not installed`."""
    by_name = recorded or {}
    unknown = {name: NOT_RECORDED for name in _VERSIONED if name not in by_name}
    versions = {**unknown, **{name: version or "not installed" for name, version in by_name.items()}}
    ordered = sorted(versions, key=lambda name: _VERSIONED.index(name) if name in _VERSIONED else len(_VERSIONED))
    return ", ".join(f"{_NAMES.get(name, name)} {versions[name]}" for name in ordered)


_NAMES = {"python": "Python"}
_VERSIONED = ("python", "tputui", "torch", "torch_xla")
"""Named first, even if a run of an older version did not record them."""


def git(state: GitState | None) -> str:
    """`4c3c74c8b2b1 on main, uncommitted changes`; else why the commit is unknown."""
    if state is None:
        return NOT_RECORDED
    if not state.commit:
        return state.why or NOT_RECORDED
    place = f"on {state.branch}" if state.branch else "no branch"
    changes = {True: "uncommitted changes", False: "no uncommitted changes", None: state.why or "changes unknown"}
    return f"{state.commit[:_COMMIT_CHARS]} {place}, {changes[state.dirty]}"


def flops(view: FlopsView) -> tuple[str, str]:
    """The operations of a step, and how much of the peak they use: `831 MFLOP/step` and `MFU 41 % of 984 TFLOP/s`, or
    why that is not known."""
    if view.flops_per_step is None:
        return "", f"not known: {view.reason}"
    work = f"{fmt.with_prefix(view.flops_per_step)}FLOP/step"
    if view.mfu is None or view.peak_flops_per_s is None:
        return work, f"MFU not known: {view.reason}"
    return work, f"MFU {view.mfu * 100:.3g} % of {fmt.with_prefix(view.peak_flops_per_s)}FLOP/s"
