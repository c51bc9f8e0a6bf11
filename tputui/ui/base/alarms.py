"""The problems of a run that the header and the list of runs name besides its condition."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.verdict import Verdict
from tputui.diagnosis.verdict import found as found_in
from tputui.state.snapshot import Snapshot
from tputui.text import phrases, verdict_lines
from tputui.ui.base import host_text, status_text
from tputui.ui.render.lines import clean


class Alarm(NamedTuple):
    """A problem of a run besides its condition."""

    key: str
    """Identifies the problem: an acknowledged alarm returns if its key changes. Empty if it cannot be acknowledged."""
    text: str

    @property
    def short(self) -> str:
        """The text without the step since which the problem is known."""
        return _SINCE.sub("", self.text)


_SINCE = re.compile(r"(?:,| since) step [\d,]*\d")


def alarms_of(snapshot: Snapshot, verdicts: Iterable[Verdict] = ()) -> list[Alarm]:
    """The problems of a run besides its condition. `verdicts` are those on the snapshot."""
    verdicts = tuple(verdicts)
    shown = [Alarm(trouble, clean(trouble)) for trouble in snapshot.troubles]
    if snapshot.topology is not None and snapshot.topology.device_warning:
        # The log has the full message.
        shown.append(Alarm("", "NOT ON THE TPU"))
    if snapshot.num_non_finite:
        shown.append(Alarm("nan", f"{fmt.count(snapshot.num_non_finite)} NaN/inf{_first_bad(snapshot)}"))
    shown += [Alarm(*alarm) for alarm in host_text.alarms(snapshot)]
    odd = snapshot.outlier
    if odd is not None:
        side = "above" if odd.by > 0 else "below"
        shown.append(
            Alarm(
                f"core {odd.core}",
                f"{phrases.core_name(snapshot, odd.core)} {side} the others since step {odd.first_step:,}",
            )
        )
    if (slow := snapshot.slow_core) is not None:
        text = f"{phrases.core_name(snapshot, slow.core)}: {fmt.slower(slow.share)} since step {slow.first_step:,}"
        shown.append(Alarm(f"slow core {slow.core}", text))
    costly = _slow(verdicts)
    if costly is not None:
        shown.append(costly[1])
    if (vain := next((verdict for verdict in verdicts if verdict.is_severe), None)) is not None:
        text = f"does not learn: {verdict_lines.TITLES[vain.rule]} {verdict_lines.since(vain)}".rstrip()
        shown.append(Alarm(f"{SLOW} {vain.rule}", f"{text}; W: why"))
    if snapshot.damage.regions:
        regions = len(snapshot.damage.regions)
        lost = f", {fmt.count(snapshot.damage.lost_records)} events lost" if snapshot.damage.lost_records else ""
        shown.append(Alarm(f"damage {regions}", f"{fmt.counted(regions, 'damaged region')}{lost}"))
    if snapshot.skipped.count:
        shown.append(Alarm(f"skipped {snapshot.skipped.count}", f"{status_text.left_out(snapshot.skipped)} (d)"))
    if snapshot.dropped_steps:
        steps = "step" if snapshot.dropped_steps == 1 else "steps"
        shown.append(Alarm("dropped", f"{fmt.count(snapshot.dropped_steps)} {steps} dropped"))
    if snapshot.xla is not None and snapshot.xla.recompiles and (costly is None or costly[0].rule != "recompile"):
        count = snapshot.xla.recompiles
        shown.append(Alarm(f"recompiles {count}", f"{fmt.counted(count, 'recompile')}"))
    if snapshot.newer_format:
        shown.append(Alarm("format", clean(snapshot.newer_format)))
    return shown


SLOW = "diagnosis"
"""Begins the key of the alarm about what slows a run down."""
SLOW_FROM = 0.10
"""Share of the wall time from which the header shows what slows a run down."""


def _slow(verdicts: Iterable[Verdict]) -> tuple[Verdict, Alarm] | None:
    """The worst verdict if it costs much: `slow: recompile at train.py:41, 8.3 s lost (12 %); W: why`."""
    worst = next((verdict for verdict in found_in(verdicts) if (verdict.share or 0.0) > SLOW_FROM), None)
    if worst is None:
        return None
    at = f" at {clean(worst.where)}" if worst.where else ""
    text = f"slow: {verdict_lines.TITLES[worst.rule]}{at}, {verdict_lines.cost(worst)}; W: why"
    return worst, Alarm(f"{SLOW} {worst.rule} {worst.where}", text)


def _first_bad(snapshot: Snapshot) -> str:
    """Origin of the first NaN or infinite values: ` from core 3, step 22`, ` from all 8 cores, step 1`."""
    if not snapshot.non_finite:
        return ""
    step = snapshot.non_finite[0].step
    cores = {bad.core for bad in snapshot.non_finite if bad.step == step}
    number = f"all {len(cores)}" if len(cores) == len(snapshot.cores) else f"{len(cores)}"
    origin = f"{number} cores" if len(cores) > 1 else phrases.core_name(snapshot, snapshot.non_finite[0].core)
    return f" from {origin}, step {step:,}"
