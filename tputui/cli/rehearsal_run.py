"""The run of a rehearsal: its configuration or environment, when it has done its steps, and how it ends."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tputui import config
from tputui import formatting as fmt
from tputui.cli import launch, open_run
from tputui.diagnosis.facts import Facts
from tputui.diagnosis.rehearsal import runtimes_of, steps_of
from tputui.formatting import inert
from tputui.logs import xla_programs
from tputui.observers.sinks import OBSERVE_VARIABLE
from tputui.session import session
from tputui.session.session import Session
from tputui.state.snapshot import ENDED, Snapshot
from tputui.supervise.command import UserCommand, unobserved_reason
from tputui.telemetry import requests
from tputui.telemetry.events import RequestKind

CORES = 8
EPOCHS = 2
"""Epochs of a configuration: what only the second one compiles would compile in every later one."""
EVALUATION_S = 120.0
"""Time after which an evaluation is stopped."""
UNCOUNTED_S = 60.0
"""Time without a step or a compilation after which a program is stopped whose steps are not counted reliably."""
STOP_GRACE_ENGINE_S = 60.0
POLL_S = 0.1
DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"
PROGRAM_SIZES = "xla-programs.txt"
"""File in the run directory in which torch_xla reports the sizes of its programs."""


class Rehearsed(NamedTuple):
    """How the run ended."""

    snapshot: Snapshot
    is_stopped: bool
    """Whether the rehearsal stopped it."""
    problem: str | None
    """Why nothing can be concluded; None if the report is complete."""


class Setup(NamedTuple):
    """What is run."""

    program: str
    """The configuration file, or the command line."""
    cores: int
    cores_from: str
    """Why there are so many, such as `by --cores`; empty for the default."""
    command: UserCommand | None
    """None for a configuration."""
    sizes: Path | None
    """File in which torch_xla reports the sizes of its programs; None if the user has it written elsewhere."""


def shortened(run: config.RunConfig, steps: int, cores: int | None) -> config.RunConfig:
    """The configuration of a rehearsal: two short epochs, and nothing that reaches beyond it, such as alerts."""
    batches = max(1, -(-steps // EPOCHS), run.optim.accumulate)
    batches = min(batches, run.data.batches_per_epoch or batches)
    device = run.device
    if cores is not None:
        device = replace(
            device, virtual_cores=cores, cores="all" if not isinstance(device.cores, list) else device.cores
        )
    elif isinstance(device.cores, int):
        device = replace(device, virtual_cores=max(device.cores, device.virtual_cores))
    return replace(
        run,
        epochs=EPOCHS,
        data=replace(run.data, batches_per_epoch=batches),
        optim=replace(run.optim, warmup_epochs=min(run.optim.warmup_epochs, float(EPOCHS))),
        device=device,
        report=replace(run.report, pictures=0),
        stall=replace(run.stall, policy="notify"),
        alerts=config.AlertsConfig(targets=()),
        diagnosis=config.DiagnosisConfig(),
    )


def virtual_cores(environ: Mapping[str, str], cores: int | None) -> tuple[dict[str, str], int, str]:
    """The environment in which torch_xla and JAX use virtual CPU cores, their number, and who chose it."""
    chosen, flags = "--cores" if cores else "", environ.get("XLA_FLAGS", "")
    kept = [flag for flag in flags.split() if not flag.startswith(f"{DEVICE_COUNT_FLAG}=")]
    counts = {
        "CPU_NUM_DEVICES": environ.get("CPU_NUM_DEVICES", ""),
        "XLA_FLAGS": next((flag.partition("=")[2] for flag in flags.split() if flag not in kept), ""),
        "JAX_NUM_CPU_DEVICES": environ.get("JAX_NUM_CPU_DEVICES", ""),
    }
    for name, count in counts.items():
        if cores is None and count.isdecimal() and int(count) > 0:
            cores, chosen = int(count), name
    cores = cores or CORES
    changed = {
        "PJRT_DEVICE": "CPU",
        "CPU_NUM_DEVICES": str(cores),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": " ".join([*kept, f"{DEVICE_COUNT_FLAG}={cores}"]),
        OBSERVE_VARIABLE: "all",
    }
    others = {name: value for name, value in environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    return others | changed, cores, chosen


def sizes_file(environ: Mapping[str, str], run_dir: Path) -> Path | None:
    """Where torch_xla reports the sizes of its programs; None if the user has set one of its variables."""
    if any(name in environ for name in xla_programs.VARIABLES):
        return None
    return run_dir.resolve() / PROGRAM_SIZES


def run_to_end(setup: Setup, run_dir: Path, steps: int, timeout_s: float) -> Rehearsed:
    """Starts the run, stops it after its steps, and returns how it ended. No process of it is left afterwards."""
    interrupts = open_run.Interrupts(run_dir)
    with interrupts.caught(signal.SIGINT, signal.SIGTERM):
        supervisor = launch.start_supervisor(run_dir, setup.command)
        watch = _Watch(steps, timeout_s, has_epochs=setup.command is None)
        try:
            with contextlib.closing(Session.live(run_dir)) as source:
                is_done = False
                while not is_done:
                    settled = source.settled
                    events = source.poll()
                    snapshot = source.snapshot()
                    is_done = snapshot.condition in ENDED and settled and not events
                    kind = watch.request(snapshot, time.monotonic()) if snapshot.condition not in ENDED else None
                    if kind is not None:
                        requests.submit(run_dir, kind, by="rehearse", now=time.time())
                    if not is_done:
                        time.sleep(POLL_S)
            launch.wait_settled(supervisor)
        finally:
            watch.clear()
            _end(supervisor)
    snapshot = session.load(run_dir)
    is_stopped = watch.is_stopped or interrupts.requested
    return Rehearsed(snapshot, is_stopped, watch.problem or _problem(snapshot, setup, is_stopped))


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Ends a run whose rehearsal was interrupted."""
    if supervisor.poll() is None:
        supervisor.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(STOP_GRACE_ENGINE_S)


class _Watch:
    """Decides when the run has done its steps, and shows its progress in a terminal."""

    def __init__(self, steps: int, timeout_s: float, *, has_epochs: bool) -> None:
        self._steps = steps
        self._timeout_s = timeout_s
        self._has_epochs = has_epochs
        self._newest: object = None
        self._since = time.monotonic()
        self._evaluating: float | None = None
        self._shown = ""
        self.is_stopped = False
        self.problem: str | None = None
        """Why the run was given up."""

    def request(self, snapshot: Snapshot, tick: float) -> RequestKind | None:
        """The request that the run gets now; None most of the time."""
        steps, phase = steps_of(snapshot), snapshot.phase or ""
        self._show(steps, phase)
        if self.is_stopped:
            return None
        compiled = sum(group.count for group in snapshot.evidence.compiles)
        activity = (steps, compiled, phase == "evaluating")
        if activity != self._newest:
            self._newest, self._since = activity, tick
        self._evaluating = (self._evaluating or tick) if phase == "evaluating" else None
        is_done = steps >= self._steps
        if self._has_epochs:
            # It ends by itself after its second epoch.
            is_done = self._evaluating is not None and tick - self._evaluating >= EVALUATION_S
        elif compiled and not _are_steps_counted(snapshot):
            is_done = is_done or tick - self._since >= UNCOUNTED_S
        if is_done:
            self.is_stopped = True
            return "stop"
        if tick - self._since < self._timeout_s:
            return None
        self.is_stopped = True
        after = f"after step {fmt.count(steps)}" if steps else "before the first step"
        self.problem = f"no step within {fmt.duration(self._timeout_s)} {after}, so it was stopped"
        return "stop_now"

    def clear(self) -> None:
        """Removes the line of progress."""
        self._write("")

    def _show(self, steps: int, phase: str) -> None:
        what = f" ({phase})" if phase not in ("", "unknown") else ""
        self._write("stopping" if self.is_stopped else f"step {fmt.count(steps)} of {fmt.count(self._steps)}{what}")

    def _write(self, text: str) -> None:
        if text != self._shown and sys.stderr.isatty():
            with contextlib.suppress(OSError):
                sys.stderr.write(f"\r\x1b[K{inert(text)}")
                sys.stderr.flush()
        self._shown = text


def _are_steps_counted(snapshot: Snapshot) -> bool:
    """Whether an observer counts all steps. Those of JAX are seen only if they read values or are printed."""
    windows = {window.runtime for window in snapshot.evidence.windows}
    return "torch_xla" in runtimes_of(snapshot) or "torch_compile" in windows


def _problem(snapshot: Snapshot, setup: Setup, is_stopped: bool) -> str | None:
    """Why nothing can be concluded from a run; None if it can."""
    if snapshot.condition in ("failed", "lost"):
        return f"the program failed: {snapshot.condition_reason}"
    if not runtimes_of(snapshot):
        if unsupported := Facts.of(snapshot).unsupported("compilations"):
            return unsupported
        reason = unobserved_reason(setup.command.environ) if setup.command is not None else None
        did = "was stopped" if is_stopped else "ended"
        return reason or f"the program {did} before torch_xla, JAX or torch.compile compiled anything in it"
    return None
