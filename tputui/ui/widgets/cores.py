"""The cores: a table while they fit, a map of their losses when they are many. The outlier is named."""

from __future__ import annotations

import math
from typing import NamedTuple

from tputui.model import format as fmt
from tputui.model.snapshot import CoreView, Snapshot
from tputui.ui import words
from tputui.ui.lines import Line, Span, Tone, paragraph
from tputui.ui.widgets.panel import Drawing, Panel

LEVELS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
"""Blocks of growing height: the higher the loss, the higher the block."""

_COLUMN = 14
"""Cells of a core in the table of several columns."""

_FIXED = 26
"""Cells of a table row without the state: core, loss, step and the gaps between them."""

_OUTLIER = 3.5
"""Robust deviations from the median beyond which a core is called an outlier."""


class CoresPart(NamedTuple):
    """What the panel shows."""

    cores: list[CoreView]
    why_none: str


class Outlier(NamedTuple):
    """The core whose loss is farthest from the others."""

    core: int
    above: bool


class CoresPanel(Panel[CoresPart]):
    """Loss, step and state of every core."""

    key = "1"
    name_shown = "cores"
    what = "loss, step and state of every core; the outlier is named"

    @staticmethod
    def pick(snapshot: Snapshot) -> CoresPart:
        """The cores."""
        return CoresPart(snapshot.cores, "" if snapshot.cores else words.nothing_yet(snapshot, "core"))

    def draw(self, part: CoresPart, width: int, height: int) -> Drawing:
        """A table, a table of several columns, or a map."""
        cores = part.cores
        if not cores:
            return Drawing(paragraph(part.why_none, width, height))
        odd = outlier(cores)
        note = f"{len(cores):,} core{'s' if len(cores) > 1 else ''}"
        if len(cores) <= height - 1 or (self.has_class("-maximised") and len(cores) <= 64):
            return _table(cores, odd, width, note)
        summary = [_summary(cores, odd)]
        per_line = max(width // _COLUMN, 1)
        if math.ceil(len(cores) / per_line) <= height - len(summary):
            return Drawing(_grid(cores, odd, per_line), head=tuple(summary), note=note)
        return _map(cores, odd, width, height, note)


def outlier(cores: list[CoreView]) -> Outlier | None:
    """The core whose loss stands out from the others, if one does: by robust deviations from the median.

    At least four losses are needed, and the one must be farther out than any other.
    """
    losses = sorted(core.loss for core in cores if core.loss is not None and math.isfinite(core.loss))
    if len(losses) < 4:
        return None
    median = losses[len(losses) // 2]
    spread = sorted(abs(loss - median) for loss in losses)[len(losses) // 2] * 1.4826
    finite = [core for core in cores if core.loss is not None and math.isfinite(core.loss)]
    odd = max(finite, key=lambda core: abs((core.loss or 0.0) - median))
    distance = abs((odd.loss or 0.0) - median)
    if distance <= max(_OUTLIER * spread, 1e-9 * abs(median)):
        return None
    return Outlier(odd.core, (odd.loss or 0.0) > median)


def state_of(core: CoreView) -> tuple[str, Tone]:
    """What a core does, in words, and how that looks."""
    if core.condition == "stalled":
        return f"\u25b2 stalled, {words.phase_with_age(core.phase, core.phase_s) or 'silent'}", "warn"
    if core.condition == "ended":
        return "\u25a0 ended", "dim"
    doing = words.phase_with_age(core.phase, core.phase_s) or core.condition
    return f"\u25cf {doing}", "good" if core.condition == "running" else "info"


def loss_span(core: CoreView, odd: Outlier | None, width: int) -> Span:
    """The loss of a core; what is not finite or stands out has a sign besides its colour."""
    text = fmt.number(core.loss)
    if core.loss is not None and not math.isfinite(core.loss):
        return Span(f"{text:>{width - 2}} \u2716", "bad")
    if odd is not None and core.core == odd.core:
        return Span(f"{text:>{width - 2}} {chr(0x25B4 if odd.above else 0x25BE)}", "alert")
    return Span(f"{text:>{width - 2}}  ")


def _table(cores: list[CoreView], odd: Outlier | None, width: int, note: str) -> Drawing:
    hosts = len({core.host for core in cores}) > 1
    steps = max(4, *(len(str(core.step)) for core in cores))
    head = Line([Span(f" core {'loss':>8}    {'step':>{steps}}  state", "label")])
    rows: list[Line] = []
    for core in cores:
        state, tone = state_of(core)
        line = [
            Span(f"{core.core:>5}", "strong"),
            loss_span(core, odd, 11),
            Span(f"  {core.step:>{steps}}  ", "plain"),
            Span(state, tone),
        ]
        if odd is not None and odd.core == core.core and width > _FIXED + 30:
            line.append(Span(f"  {'highest' if odd.above else 'lowest'}, an outlier", "alert"))
        if hosts and width > _FIXED + 20:
            line.append(Span(f"  {core.host}", "dim"))
        rows.append(line)
    return Drawing(rows, head=(head,), note=note)


def _grid(cores: list[CoreView], odd: Outlier | None, per_line: int) -> list[Line]:
    rows: list[Line] = []
    down = math.ceil(len(cores) / per_line)
    for row in range(down):
        line: Line = []
        for core in cores[row::down]:
            mark, tone = _mark(core)
            line += [Span(f"{core.core:>3}", "label"), loss_span(core, odd, 9), Span(f"{mark} ", tone)]
        rows.append(line)
    return rows


def _mark(core: CoreView) -> tuple[str, Tone]:
    state, tone = state_of(core)
    return state[:1], tone


def _summary(cores: list[CoreView], odd: Outlier | None) -> Line:
    finite = sorted(core.loss for core in cores if core.loss is not None and math.isfinite(core.loss))
    stalled = [core.core for core in cores if core.condition == "stalled"]
    bad = [core.core for core in cores if core.loss is not None and not math.isfinite(core.loss)]
    line: Line = []
    if bad:
        line.append(Span(f"\u2716 NaN/inf: {_some(bad)}  ", "bad"))
    if stalled:
        line.append(Span(f"\u25b2 stalled: {_some(stalled)}  ", "warn"))
    if odd is not None:
        sign = "\u25b4" if odd.above else "\u25be"
        loss = next(core.loss for core in cores if core.core == odd.core)
        line.append(Span(f"{sign} core {odd.core}: {fmt.number(loss)}  ", "alert"))
    if finite:
        low, middle, high = finite[0], finite[len(finite) // 2], finite[-1]
        line.append(Span(f"loss {fmt.number(low)} | {fmt.number(middle)} | {fmt.number(high)}", "label"))
    return line


def _some(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:3])
    return f"core {shown}" if len(numbers) <= 3 else f"core {shown} and {len(numbers) - 3} more"


def _map(cores: list[CoreView], odd: Outlier | None, width: int, height: int, note: str) -> Drawing:
    """One block a core, or a group of neighbours told by the worst of them."""
    labels = len(str(cores[-1].core)) + 1
    rows_free, across = max(height - 2, 1), max(width - labels - 1, 1)
    group = math.ceil(len(cores) / (rows_free * across))
    shown = [cores[first : first + group] for first in range(0, len(cores), group)]
    across = _even_width(len(shown), across)
    finite = [core.loss for core in cores if core.loss is not None and math.isfinite(core.loss)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    rows: list[Line] = []
    for first in range(0, len(shown), across):
        line = [Span(f"{shown[first][0].core:>{labels}} ", "dim")]
        line += [_block(members, odd, low, high) for members in shown[first : first + across]]
        rows.append(line)
    legend = "a block a core" if group == 1 else f"a block {group} cores, the worst told"
    head: tuple[Line, ...] = (_summary(cores, odd), [Span(f"{legend}; high is a high loss", "dim")])
    return Drawing(rows, head=head, note=note)


def _even_width(count: int, most: int) -> int:
    """A row length of whole eights, so that a row begins with a round core number where there is room."""
    return most if most < 16 or count <= most else most // 8 * 8


def _block(members: list[CoreView], odd: Outlier | None, low: float, high: float) -> Span:
    losses = [core.loss for core in members if core.loss is not None]
    if any(not math.isfinite(loss) for loss in losses):
        return Span("\u2716", "bad")
    if any(core.condition == "stalled" for core in members):
        return Span("\u25b2", "warn")
    if not losses:
        return Span("\u00b7", "dim")
    share = (max(losses) - low) / (high - low) if high > low else 0.0
    level = LEVELS[min(int(share * len(LEVELS)), len(LEVELS) - 1)]
    if odd is not None and any(core.core == odd.core for core in members):
        return Span(level, "alert")
    return Span(level, "accent" if share > 0.5 else "band")
