"""The checklist of a run before its first step, drawn in place of the loss."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tputui import formatting as fmt
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.ui.base import host_text, status_text
from tputui.ui.render.lines import Line, Span, Tone, clean

_SIGNS: dict[str, tuple[str, Tone, Tone]] = {
    "done": ("\u2714", "good", "plain"),
    "running": ("\u25cc", "info", "strong"),
    "waiting": ("\u00b7", "dim", "dim"),
}
"""Sign, its tone, and the tone of the name."""

_COMPILING = ("tracing", "compiling")
_COMMAND_STARTED = "start the command"
_HOSTS = "meet the other hosts"


class StartupStep(NamedTuple):
    """A step of starting a run."""

    name: str
    state: Literal["done", "running", "waiting"]
    seconds: int | None = None
    """How long it took, or has been running; None if unknown."""
    detail: str = ""


def checklist(snapshot: Snapshot) -> tuple[StartupStep, ...]:
    """The steps up to the first report, by the events of the run; none if it has reports or has ended."""
    if snapshot.loss or snapshot.condition in ENDED:
        return ()
    if snapshot.phase == "unknown":
        return _of_command(snapshot)
    return (*_hosts(snapshot), _process(snapshot), _build(snapshot), *_first_step(snapshot))


def _of_command(snapshot: Snapshot) -> tuple[StartupStep, ...]:
    """The steps of a user's command that does not report itself: its loss comes from its logs and its output."""
    ran_s = int(max(snapshot.phase_s, 0.0))
    return (
        StartupStep(_COMMAND_STARTED, "done"),
        StartupStep("find a loss in its logs or output", "running", ran_s, "or call tputui.start() in the script"),
    )


def _hosts(snapshot: Snapshot) -> tuple[StartupStep, ...]:
    """The hosts of a run with several: how many have joined, and which are missing."""
    if not host_text.has_hosts(snapshot):
        return ()
    missing = [host.index for host in snapshot.hosts if host.condition == "missing"]
    every = host_text.num_hosts(snapshot)
    if not missing:
        return (StartupStep(_HOSTS, "done", detail=f"{every:,} hosts"),)
    waited = int(max(snapshot.now - snapshot.created, 0)) if snapshot.created is not None else None
    joined = f"{every - len(missing):,} of {every:,} joined; missing: {host_text.listed(missing)}"
    return (StartupStep(_HOSTS, "running", waited, joined),)


def _process(snapshot: Snapshot) -> StartupStep:
    if snapshot.phase is not None or snapshot.plan is not None:
        return StartupStep("start the training process", "done")
    waited = int(max(snapshot.now - snapshot.created, 0)) if snapshot.created is not None else None
    return StartupStep("start the training process", "running", waited)


def _build(snapshot: Snapshot) -> StartupStep:
    """The engine reports imports, data and model as one phase."""
    name, plan = "imports, data and model", snapshot.plan
    if plan is not None:
        begun = snapshot.epoch_starts[0].t if snapshot.epoch_starts else None
        took = int(begun - snapshot.started) if begun is not None and snapshot.started is not None else None
        examples = f"{fmt.count(plan.train_examples)} + {fmt.count(plan.valid_examples)} examples"
        parameters = f", {fmt.counted(plan.num_parameters, 'parameter')}" if plan.num_parameters else ""
        return StartupStep(name, "done", took, f"{examples}{parameters}")
    if snapshot.phase is None:
        return StartupStep(name, "waiting")
    return StartupStep(name, "running", int(snapshot.phase_s))


def _first_step(snapshot: Snapshot) -> tuple[StartupStep, StartupStep]:
    compiling, first = "trace and compile", "first step"
    if snapshot.plan is None:
        return StartupStep(compiling, "waiting"), StartupStep(first, "waiting")
    begun = snapshot.epoch_starts[0].t if snapshot.epoch_starts else None
    since = int(max(snapshot.now - begun, 0)) if begun is not None else None
    phase, phase_s = snapshot.phase, snapshot.phase_s
    if phase in _COMPILING or phase in (None, "starting"):
        return StartupStep(compiling, "running", since), StartupStep(first, "waiting")
    doing = StartupStep(first, "running", int(phase_s), fmt.PHASES[phase] if phase is not None else "")
    # Before the first compilation the process waits for its first batch.
    return StartupStep(compiling, "waiting" if phase == "data" and not snapshot.steps else "done"), doing


def lines(steps: tuple[StartupStep, ...], devices: str) -> list[Line]:
    """The checklist, one line per step."""
    width = max(len(step.name) for step in steps)
    title = " no loss yet" if steps[0].name == _COMMAND_STARTED else " starting"
    drawn: list[Line] = [[Span(title, "title"), Span(f"  {devices}" if devices else "", "dim")]]
    for step in steps:
        sign, sign_tone, tone = _SIGNS[step.state]
        took = status_text.seconds(step.seconds) if step.seconds is not None else ""
        line: Line = [Span(f" {sign} ", sign_tone), Span(f"{step.name:<{width}}", tone), Span(f"  {took:>10}", tone)]
        drawn.append([*line, Span(f"  {clean(step.detail)}", "dim")])
    return drawn


def devices_of(snapshot: Snapshot) -> str:
    """The cores of the run, once they are known: `8 TPU cores`."""
    topology = snapshot.topology
    if topology is None:
        return ""
    device = "" if topology.device == "unknown" else f"{clean(topology.device)} "
    return fmt.counted(topology.num_cores, f"{device}core")
