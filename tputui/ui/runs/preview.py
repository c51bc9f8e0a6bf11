"""The preview of the run under the cursor: its key facts and its loss curve."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.ui.base import status_text
from tputui.ui.charts.series_chart import chart_over_steps
from tputui.ui.render.lines import Line, Span, clean, fit, paragraph, width_of, wrap
from tputui.ui.runs.rows import RunRow
from tputui.ui.runs.table import sign_of
from tputui.ui.terminal.themes import shows_no_colour
from tputui.ui.widgets.panel import Drawing, Panel

_FACTS_WIDTH = 46
_REASON_LINES = 4
_MIN_CHART_WIDTH = 40


class PreviewPart(NamedTuple):
    """The input of `RunPreview`."""

    row: RunRow | None


class RunPreview(Panel[PreviewPart]):
    """Facts and loss curve of the run under the cursor."""

    can_focus = False
    key = ""
    name_shown = "preview (enter to open)"
    what = "the run under the cursor"

    def draw(self, part: PreviewPart, width: int, height: int) -> Drawing:
        """The facts on the left, the loss curve on the right if there is room."""
        row = part.row
        if row is None:
            return Drawing(paragraph("No run selected", width, height))
        facts = _facts(row, min(_FACTS_WIDTH, width))[:height]
        note = clean(row.name)
        if width < _FACTS_WIDTH + _MIN_CHART_WIDTH:
            return Drawing(facts, note=note)
        colourless = self.is_attached and shows_no_colour(self.app)
        chart, is_log = _chart(row, width - _FACTS_WIDTH - 1, height, colourless=colourless)
        lines: list[Line] = []
        for index in range(max(len(facts), len(chart))):
            left = fit(facts[index], _FACTS_WIDTH) if index < len(facts) else []
            right = chart[index] if index < len(chart) else []
            lines.append([*left, Span(" " * (_FACTS_WIDTH + 1 - width_of(left))), *right])
        return Drawing(lines, note=f"{note} \u00b7 log axis" if is_log else note)


def _chart(row: RunRow, width: int, height: int, *, colourless: bool) -> tuple[list[Line], bool]:
    """The loss curve or why there is none, and whether its axis is logarithmic."""
    if row.curve is None:
        unread = row.is_log and row.steps is None
        reason = "not read yet" if unread else "no loss was reported" if row.ended else "no loss reported yet"
        return [[], [Span(reason, "dim")]], False
    chart = chart_over_steps(row.curve.segments(), width, height, colourless=colourless)
    if chart is None:
        return [], False
    if chart.axes.y is None:
        chart.lines[0] = [Span("every loss is NaN or infinite", "bad")]
    return chart.lines, chart.axes.y is not None and chart.axes.y.log


def _facts(row: RunRow, width: int) -> list[Line]:
    sign = sign_of(row)
    lines: list[Line] = [[Span(f" {sign.mark} {sign.word.lower()}", sign.tone)]]
    if row.reason:
        lines += paragraph(row.reason, width - 1, _REASON_LINES, "label")
    if row.is_log:
        lines += [[Span(" "), Span(piece, "dim")] for piece in wrap(_short_path(row.path), width - 2, 3)]
    lines += [piece for alarm in row.alarms for piece in paragraph(f"! {alarm}", width - 1, 2, "alert")]
    if not row.ended and row.phase not in (None, "unknown"):
        lines.append(_fact("phase", status_text.phase_with_age(row.phase, row.phase_s)))
    epochs = "" if row.num_epochs is None else f"{row.epoch} of {row.num_epochs}" if row.num_epochs else str(row.epoch)
    eta = f", {fmt.duration(row.eta_s)} to go" if row.eta_s is not None and not row.ended else ""
    best = "" if row.best is None else f"{fmt.number(row.best)} valid {clean(row.best_name)} in epoch {row.best_epoch}"
    saved = fmt.counted(row.num_checkpoints, "checkpoint") if row.num_checkpoints else ""
    pairs = (
        ("step", f"{row.steps:,}" if row.is_log and row.steps is not None else ""),
        ("loss", fmt.number(row.loss) if row.is_log and row.loss is not None else ""),
        ("task", clean(row.task)),
        ("epoch", epochs + eta if epochs else ""),
        ("best", best),
        ("on", row.machine),
        ("batch", row.batch),
        ("lr", row.lr_rule),
        ("keeps", saved),
        ("tags", clean(" ".join(row.labels.tags))),
    )
    lines += paragraph(row.labels.note, width - 1, 3, "info") if row.labels.note else []
    return lines + [_fact(name, value) for name, value in pairs if value]


def _short_path(path: Path) -> str:
    """A path; one below the current directory is relative to it."""
    with contextlib.suppress(OSError, ValueError):
        path = path.relative_to(Path.cwd())
    return clean(str(path))


def _fact(name: str, value: str) -> Line:
    return [Span(f" {name:<6}", "label"), Span(value)]
