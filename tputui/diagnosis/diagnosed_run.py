"""`DiagnosedRun`: what all rules need of a snapshot, computed once."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Any, NamedTuple

from tputui.diagnosis.verdict import GainBase, RuleName, Verdict, VerdictStatus, is_ignored
from tputui.state.evidence import Evidence
from tputui.state.evidence_groups import Line
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.telemetry.events import Observation

STEPS_MIN = 20
"""Steps that a rule about the pace needs: the first ones contain one-time work."""
UNKNOWN = "unknown"
"""Strategy and device of a run of which only the log is known."""
TRAINING_SECTIONS = ("data", "trace", "execute", "wait", "other")
"""Sections of an epoch that a training step consists of in the steady state."""


class DiagnosedRun(NamedTuple):
    """A run as the rules see it."""

    snapshot: Snapshot
    evidence: Evidence
    wall_s: float
    """Seconds since the first event; up to the end event, or the newest event of a lost run."""
    steps: int
    """Steps of this run, without those before a resume."""
    step_s: float | None
    """Median wall time of a step; None before the first report, and if only lines of a log are known, each of which may
    cover many steps."""
    steady_s: float | None
    """Wall time of all steps at the reported pace, without compiling; None without a step time."""
    is_on_tpu: bool
    is_rehearsal: bool = False
    """Whether the run is a rehearsal on CPU cores: what matters is how often something happens, not its time."""

    @classmethod
    def of(cls, snapshot: Snapshot, *, is_rehearsal: bool = False) -> DiagnosedRun:
        """The run of a snapshot, measured."""
        until = snapshot.now
        if snapshot.condition in ENDED:
            until = snapshot.ended or snapshot.newest_fact or until
        wall_s = max(0.0, until - snapshot.started) if snapshot.started is not None else 0.0
        before = snapshot.plan.first_step - 1 if snapshot.plan is not None else 0
        steps = max(0, snapshot.steps - max(0, before))
        topology = snapshot.topology
        step_s = snapshot.throughput.step_p50_s if snapshot.throughput is not None else snapshot.step_s
        if topology is not None and topology.strategy == UNKNOWN:
            step_s = None
        steady_s = min(steps * step_s, wall_s) if step_s is not None else None
        is_on_tpu = topology is not None and topology.device.upper().startswith("TPU")
        return cls(snapshot, snapshot.evidence, wall_s, steps, step_s, steady_s, is_on_tpu, is_rehearsal)

    @property
    def is_observed(self) -> bool:
        """Whether an observer watched a process of the run: it then reports reads and fallbacks if there are any."""
        return bool(self.evidence.compiles or self.evidence.programs or self.evidence.windows)

    def unsupported(self, observation: Observation) -> str | None:
        """Why the run does not record something that an observer would have seen; None if all could attach."""
        gaps = [gap for gap in self.evidence.unsupported if observation in gap.missing]
        return (
            "; ".join(f"{f'{gap.package} {gap.version}'.strip()} is not supported: {gap.reason}" for gap in gaps)
            or None
        )

    @property
    def is_on_cpu(self) -> bool:
        """Whether the devices are known to be cores of the host's CPU, which compute what the host does not."""
        topology = self.snapshot.topology
        if topology is not None and topology.device != UNKNOWN:
            return topology.device.upper() == "CPU"
        return "CPU" in {window.device.upper() for window in self.evidence.windows}

    @property
    def is_early(self) -> bool:
        """Whether more steps are needed, and may come."""
        return self.steps < STEPS_MIN

    def training_s(self, extra_s: float = 0.0) -> float:
        """Seconds of training at the steady pace with `extra_s` besides; the wall time if there is no pace."""
        return self.wall_s if self.steady_s is None else min(self.wall_s, self.steady_s + extra_s)

    def gain(self, lost_s: float | None, of_s: float | None = None) -> dict[str, Any]:
        """The fields of a verdict about the pace without `lost_s`; `of_s`: time of the steps that contains them.

        Without a known time of steps, they are a part of the wall time, as the share of the verdict is.
        """
        of: GainBase = "wall time" if self.steady_s is None else "time of steps"
        if of == "wall time" or of_s is None:
            of_s = self.wall_s
        speedup = speedup_of(lost_s, of_s) if lost_s is not None else None
        return {"speedup": speedup, "speedup_of": of if speedup is not None else None}

    def change(self, key: str, value: object) -> str | None:
        """A change of the configuration as `tputui try` takes it; None unless the engine trains the run by it."""
        return f"{key}={value}" if is_trained_by_engine(self.snapshot.config) else None

    def verdict(
        self, rule: RuleName, text: str, *, line: Line | None = None, lost_s: float | None = None, **fields: Any
    ) -> Verdict:
        """A verdict that was found, with its line, and its cost as a share of the wall time."""
        if lost_s is not None:
            lost_s = min(lost_s, self.wall_s)
            fields["lost_s"] = lost_s
            fields["share"] = lost_s / self.wall_s if self.wall_s > 0 else None
        if line is not None and line.file:
            where = f"{self.short_path(line.file)}:{line.line}"
            fields |= {"file": line.file, "line": line.line, "function": line.function, "where": where}
            fields["code"] = line.code or None
            if is_ignored(rule, line.code):
                fields["status"] = "ignored"
        elif line is not None:
            fields["line_reason"] = line.reason or "not recorded"
        status: VerdictStatus = fields.pop("status", "found")
        return Verdict(rule=rule, status=status, text=text, **fields)

    def short_path(self, path: str) -> str:
        """A path relative to the working directory of the run, if it is in it; else its last two parts."""
        cwd = self.snapshot.details.cwd
        if cwd and path.startswith(cwd.rstrip("/") + "/"):
            return os.path.relpath(path, cwd)
        return path if not path.startswith("/") else "/".join(path.split("/")[-2:])

    def too_early(self, rule: RuleName) -> Verdict:
        """The answer of a rule about the pace before there are enough steps."""
        return Verdict(rule=rule, status="not enough data yet", text=f"{self.steps} of the {STEPS_MIN} steps it needs")


def is_trained_by_engine(config: Mapping[str, Any]) -> bool:
    """Whether a recorded configuration is one of the engine, not that of a command or a script."""
    return isinstance(config.get("task"), str) and isinstance(config.get("data"), dict)


def speedup_of(lost_s: float, of_s: float | None) -> float | None:
    """Factor on the pace if `lost_s` of `of_s` seconds were not lost; None if that makes no sense."""
    if of_s is None or not 0.0 < lost_s < of_s:
        return None
    return of_s / (of_s - lost_s)
