"""Why one run takes more wall time per step than another: the verdicts that explain the difference."""

from __future__ import annotations

from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.facts import STEPS_MIN, Facts
from tputui.diagnosis.verdict import RuleName, Verdict, found
from tputui.state.snapshot import Snapshot
from tputui.text import verdict_lines

SLOWER_MIN = 1.1
"""Ratio of the times per step from which a cause is given."""
EXPLAINED_MIN = 0.2
"""Share of the difference that a verdict must explain."""


def cause(label: str, run: Snapshot, base_label: str, base: Snapshot) -> str | None:
    """`B: 2.1x slower than A in wall time, 83 % of it recompile at train.py:41`; None if nothing explains a difference.

    Names the slower of the two. Startup, up to the beginning of the first epoch, is left out.
    """
    spent, base_spent = _step_s(run), _step_s(base)
    if spent is None or base_spent is None or _batch(run) != _batch(base):
        return None
    if spent < base_spent:
        return cause(base_label, base, label, run)
    if spent < SLOWER_MIN * base_spent:
        return None
    steps, base_steps = Facts.of(run).steps, Facts.of(base).steps
    usual: dict[RuleName, float] = {}
    for verdict in found(diagnose(base)):
        usual[verdict.rule] = usual.get(verdict.rule, 0.0) + (verdict.lost_s or 0.0) / base_steps
    for verdict in found(diagnose(run)):
        more_s = (verdict.lost_s or 0.0) / steps - usual.get(verdict.rule, 0.0)
        share = min(1.0, more_s / (spent - base_spent))
        if share >= EXPLAINED_MIN:
            times = f"{spent / base_spent:.1f}x slower than {base_label} in wall time"
            return f"{label}: {times}, {share * 100:.0f} % of it {_named(verdict)}"
    return None


def _named(verdict: Verdict) -> str:
    return f"{verdict_lines.TITLES[verdict.rule]}{f' at {verdict.where}' if verdict.where else ''}"


def _step_s(snapshot: Snapshot) -> float | None:
    """Wall time per step since the first epoch began; None before there are enough steps."""
    facts = Facts.of(snapshot)
    begun = snapshot.epoch_starts[0].t if snapshot.epoch_starts else snapshot.started
    if facts.steps < STEPS_MIN or begun is None or snapshot.started is None:
        return None
    lasted_s = facts.wall_s - (begun - snapshot.started)
    return lasted_s / facts.steps if lasted_s > 0 else None


def _batch(snapshot: Snapshot) -> int | None:
    return snapshot.plan.global_batch if snapshot.plan is not None else None
