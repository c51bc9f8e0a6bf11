"""The step budget as lines: a bar of the host's sections with their shares, and a bar of the device beneath it."""

from __future__ import annotations

from tputui import formatting as fmt
from tputui.diagnosis.step_budget import DeviceLane, Lane, StepBudget
from tputui.text.verdict_lines import percent
from tputui.ui.monitor.epochs import SECTION_GLYPHS, SECTIONS
from tputui.ui.render.lines import Line, Span, clean, paragraph, width_of

_LABEL = 8
_LEAST_BAR = 8
_BAR_MOST = 80
_LEGEND_MOST = 2
"""Lines of the shares in a panel that shares the screen."""
_IDLE = "\u00b7"


def budget_rows(budget: StepBudget | None, width: int, room: int, *, is_full: bool) -> list[Line]:
    """The newest reports, then the whole run, each only if all of its lines fit; in full screen also why there is no
    budget."""
    if budget is None:
        text = " step budget: not measured by the program of this run"
        return paragraph(text, width, 2) if is_full and room >= 2 else []
    rows: list[Line] = []
    newest = budget.newest
    lanes = [("newest", newest, f"{fmt.counted(budget.newest_steps, 'step')}, ")] if newest is not None else []
    for label, lane, of in [*lanes, ("total", budget.whole, "")]:
        if lane is None or not lane.sections_s:
            continue
        host = _host(label, lane, of, width, is_full, room - len(rows))
        device = _device(lane.device, width)
        for lines in (host, device):
            if len(rows) + len(lines) > room:
                return rows
            rows += lines
    return rows


def _host(label: str, lane: Lane, of: str, width: int, is_full: bool, room: int) -> list[Line]:
    """A bar divided into sections, and the shares of the longest ones."""
    names = [*(name for name in SECTIONS if name in lane.sections_s), *sorted(set(lane.sections_s) - set(SECTIONS))]
    total = sum(lane.sections_s.values())
    if total <= 0:
        return []
    taken = Span(f" {of}{fmt.duration(lane.wall_s)}" if is_full else "", "label")
    wide = min(width - _LABEL - 2 - width_of([taken]), _BAR_MOST)
    if wide < _LEAST_BAR:
        return []
    bar: Line = [Span(f" {label:<{_LABEL}}", "label")]
    spent, filled = 0.0, 0
    for name in names:
        spent += lane.sections_s[name]
        end = min(round(spent / total * wide), wide)
        glyph, tone = SECTION_GLYPHS.get(name, SECTION_GLYPHS["other"])
        bar.append(Span(glyph * (end - filled), tone))
        filled = end
    shares = {name: lane.sections_s[name] / total for name in names}
    return [[*bar, taken], *_legend(shares, width, min(len(names) if is_full else _LEGEND_MOST, max(room - 1, 1)))]


def _legend(shares: dict[str, float], width: int, most: int) -> list[Line]:
    """The shares, the largest first; those that do not fit are joined to the rest, which a single line may lack."""
    lines: list[Line] = [[]]
    rest = 1.0
    for name in sorted(shares, key=lambda name: -shares[name]):
        if shares[name] < 0.005:
            break
        glyph, tone = SECTION_GLYPHS.get(name, SECTION_GLYPHS["other"])
        entry = [Span(f" {glyph} ", tone), Span(f"{clean(name)} ", "label"), Span(percent(shares[name]), "plain")]
        is_last = len(lines) == most
        tail = f"  rest {percent(rest - shares[name])}" if rest - shares[name] >= 0.005 and is_last and most > 1 else ""
        if width_of([*lines[-1], *entry]) + len(tail) > width and lines[-1]:
            if is_last:
                break
            lines.append([])
        lines[-1] += entry
        rest -= shares[name]
    others = [Span("  rest ", "label"), Span(percent(rest))]
    if rest >= 0.005 and width_of([*lines[-1], *others]) <= width:
        lines[-1] += others
    return lines


def _device(device: DeviceLane, width: int) -> list[Line]:
    """Busy and idle with what they were measured by, or why they are not known."""
    label = Span(f" {'device':<{_LABEL}}", "label")
    if device.busy is None:
        return [[label, Span(device.by, "dim")]]
    wide = min(width - _LABEL - 2, _BAR_MOST)
    if wide < _LEAST_BAR:
        return []
    busy = round(device.busy * wide)
    figures: Line = [Span(f" {'':<{_LABEL}}"), Span(f"busy {percent(device.busy)}")]
    idle = [Span(f", idle {percent(1 - device.busy)}", "label")]
    by = [Span(f" by {device.by}", "dim")]
    if width_of([*figures, *idle, *by]) <= width:
        figures += idle
    elif width_of([*figures, *by]) > width:
        figures[0] = Span(" ")
    return [[label, Span("\u2588" * busy, "accent"), Span(_IDLE * (wide - busy), "label")], [*figures, *by]]
