"""`Facts`: what all rules need of a snapshot, computed once."""

from __future__ import annotations

import os.path
from typing import Any, NamedTuple

from tputui.diagnosis.verdict import RuleName, Verdict, VerdictStatus
from tputui.state.evidence import EvidenceView
from tputui.state.evidence_groups import Line
from tputui.state.snapshot import ENDED, Snapshot

STEPS_MIN = 20
"""Steps that a rule about the pace needs: the first ones contain one-time work."""
TRAINING_SECTIONS = ("data", "trace", "execute", "wait", "other")
"""Sections of an epoch that a training step consists of in the steady state."""


class Facts(NamedTuple):
    """A run as the rules see it."""

    snapshot: Snapshot
    evidence: EvidenceView
    wall_s: float
    """Seconds since the first event; up to the end event, or the newest event of a lost run."""
    steps: int
    """Steps of this run, without those before a resume."""
    step_s: float | None
    """Median wall time of a step; None before the first report."""
    steady_s: float | None
    """Wall time of all steps at the reported pace, without compiling; None before the first report."""
    is_on_tpu: bool
    is_rehearsal: bool = False
    """Whether the run is a rehearsal on CPU cores: what matters is how often something happens, not its time."""

    @classmethod
    def of(cls, snapshot: Snapshot, *, is_rehearsal: bool = False) -> Facts:
        """The facts of a snapshot."""
        until = snapshot.now
        if snapshot.condition in ENDED:
            until = snapshot.ended or snapshot.newest_fact or until
        wall_s = max(0.0, until - snapshot.started) if snapshot.started is not None else 0.0
        before = snapshot.plan.first_step - 1 if snapshot.plan is not None else 0
        steps = max(0, snapshot.steps - max(0, before))
        step_s = snapshot.throughput.step_p50_s if snapshot.throughput is not None else snapshot.step_s
        steady_s = min(steps * step_s, wall_s) if step_s is not None else None
        topology = snapshot.topology
        is_on_tpu = topology is not None and topology.device.upper().startswith("TPU")
        return cls(snapshot, snapshot.evidence, wall_s, steps, step_s, steady_s, is_on_tpu, is_rehearsal)

    @property
    def is_observed(self) -> bool:
        """Whether an observer watched a process of the run: it then reports reads and fallbacks if there are any."""
        return bool(self.evidence.compiles or self.evidence.programs or self.evidence.windows)

    @property
    def is_on_cpu(self) -> bool:
        """Whether the devices are known to be cores of the host's CPU, which compute what the host does not."""
        topology = self.snapshot.topology
        known = [topology.device] if topology is not None else [window.device for window in self.evidence.windows]
        return "CPU" in {device.upper() for device in known}

    @property
    def is_early(self) -> bool:
        """Whether more steps are needed, and may come."""
        return self.steps < STEPS_MIN

    def training_s(self, extra_s: float = 0.0) -> float:
        """Seconds of training at the steady pace with `extra_s` besides; the wall time if there is no pace."""
        return self.wall_s if self.steady_s is None else min(self.wall_s, self.steady_s + extra_s)

    def change(self, key: str, value: object) -> str | None:
        """A change of the configuration as `tputui try` takes it; None unless the engine trains the run by it."""
        config = self.snapshot.config
        has_config = isinstance(config.get("task"), str) and isinstance(config.get("data"), dict)
        return f"{key}={value}" if has_config else None

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


def speedup_of(lost_s: float, of_s: float | None) -> float | None:
    """Factor on the pace if `lost_s` of `of_s` seconds were not lost; None if that makes no sense."""
    if of_s is None or not 0.0 < lost_s < of_s:
        return None
    return of_s / (of_s - lost_s)
