"""The header of the comparison with its verdict, and the panel that lists the runs with letter and colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.compare.compare import ComparedRun
from tputui.state.snapshot import ENDED
from tputui.ui.base import status_text
from tputui.ui.compare.compare_view import TONES, ComparedPart, CompareView
from tputui.ui.render.lines import Cell, Line, Span, Tone, align_table, cells_of, clean, crop, fit, spread, width_of
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.panel import FRAME, Drawing, Panel

_TITLES = ("", "run", "state", "vs {}", "train loss", "step", "epoch", "duration")
_MIN_NAME_WIDTH = 14
_OTHERS_WIDTH = 58
"""Cells reserved for the other columns."""


class CompareHeader(Drawn):
    """The base, the best run, and speed and state of the selected run."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._part: ComparedPart | None = None
        self._notice = ""

    def show(self, part: ComparedPart) -> None:
        """Updates the header."""
        self._part = part
        self.redraw()

    def tell(self, notice: str) -> None:
        """Shows a notice in place of the state; an empty one removes it."""
        self._notice = notice
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Four lines."""
        part = self._part
        if part is None:
            return [[Span(" Reading the runs ...", "dim")]]
        runs = part.comparison.runs
        running = sum(run.condition not in ENDED for run in runs)
        reading = f"{len(part.unread)} loading, " if part.unread else ""
        left: Line = [Span(" compare ", "strong"), Span(f"{len(runs)} runs, base ", "label"), *_base(runs, part.view)]
        first = spread(left, [Span(f"{reading}{running} running ", "dim")], width)
        last: Line = [Span(f" \u276f {self._notice}", "info")] if self._notice else _state(part, width)
        return [first, _quality(part, width), _speed(part, width), last]


class ComparedRunsPanel(Panel[ComparedPart]):
    """One line per run."""

    key = "1"
    name_shown = "runs"
    what = "the runs with their letters and colours; n and N select, B sets the base, space hides a curve"

    class Chosen(Message):
        """A run was clicked."""

        def __init__(self, run: int) -> None:
            super().__init__()
            self.run = run

    follows_end: ClassVar[bool] = False

    @property
    def part(self) -> ComparedPart | None:
        """What the panel shows."""
        return self._part

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The runs, the selected one marked."""
        base = part.comparison.runs[part.view.base].label
        titles = [title.format(base) for title in _TITLES]
        name = max(_MIN_NAME_WIDTH, width - _OTHERS_WIDTH)
        aligned = align_table(
            titles, [_row(part, run, name) for run in range(len(part.snapshots))], width - 2, left=frozenset({0, 1, 2})
        )
        rows: list[Line] = [
            [Span("\u276f " if run == part.view.chosen else "  ", "accent"), *row]
            for run, row in enumerate(aligned.rows)
        ]
        hidden = len(part.view.hidden)
        note = f"{fmt.counted(hidden, 'curve')} hidden" if hidden else ""
        return Drawing(rows, head=([Span("  "), *aligned.head],), note=note)

    def scroll_to_run(self, run: int) -> None:
        """Scrolls until a run is visible."""
        room = self.size.height - FRAME - 1
        top = self._first_row()
        if run < top:
            self.scroll_rows(run - top)
        elif room > 0 and run >= top + room:
            self.scroll_rows(run - top - room + 1)

    def on_click(self, event: events.Click) -> None:
        """Selects the run that was clicked."""
        run = self._first_row() + event.y - 2
        if self._part is not None and 0 <= run < len(self._part.snapshots) and event.y >= 2:
            self.post_message(self.Chosen(run))


def letter(part: ComparedPart, run: int) -> Span:
    """The letter of a run in its colour."""
    return Span(part.comparison.runs[run].label, TONES[run])


def _row(part: ComparedPart, index: int, name_width: int) -> list[Cell]:
    run, view = part.comparison.runs[index], part.view
    sign = status_text.sign_of(run.condition, part.snapshots[index].num_non_finite)
    hidden = index in view.hidden
    swatch = f"({run.label})" if hidden else f"\u2500{run.label}\u2500"
    tone: Tone = "dim" if hidden else TONES[index]
    bad = bool(part.snapshots[index].num_non_finite)
    total = f"/{run.total_steps:,}" if run.total_steps else ""
    state = (
        Cell("\u2026 reading", "dim") if index in part.unread else Cell(f"{sign.mark} {sign.word.lower()}", sign.tone)
    )
    return [
        Cell(swatch, tone),
        Cell(_named(clean(run.run), name_width), "strong" if index == view.chosen else "plain"),
        state,
        _versus(part, index),
        Cell(fmt.number(run.loss) + (" \u2716" if bad else ""), "bad" if bad else "plain"),
        Cell(f"{run.steps:,}{total}"),
        Cell(f"{run.epoch}/{run.num_epochs}" if run.num_epochs else fmt.UNKNOWN),
        Cell(fmt.duration(run.duration_s), "label"),
    ]


def _named(name: str, width: int) -> str:
    """Shortens a long name at its start, because runs of one day differ at the end."""
    return name if cells_of(name) <= width else "\u2026" + name[len(crop(name, cells_of(name) - width + 2)) - 1 :]


def _versus(part: ComparedPart, index: int) -> Cell:
    verdict = part.comparison.verdicts[index]
    if verdict is None:
        return Cell("base", "label")
    if not verdict.stands_out or verdict.ratio is None:
        return Cell(part.pretty(verdict.short), "dim")
    return Cell(part.pretty(verdict.short), "good" if verdict.ratio > 1 else "warn")


def _base(runs: Sequence[ComparedRun], view: CompareView) -> Line:
    base = runs[view.base]
    return [Span(base.label, TONES[view.base]), Span(f" {clean(base.run)}", "strong")]


def _quality(part: ComparedPart, width: int) -> Line:
    """Which run is best."""
    quality = part.comparison.quality
    return fit([Span(f" {clean(quality.sentence)}", "strong" if quality.best is not None else "label")], width)


def _speed(part: ComparedPart, width: int) -> Line:
    """The speed verdict on the selected run, and what explains the difference; that alone if both do not fit, since the
    list of runs has the ratio."""
    run, verdict = part.comparison.runs[part.view.chosen], part.comparison.verdicts[part.view.chosen]
    if verdict is None:
        return [Span(f" {run.label} is the base; n selects the next run, B makes it the base", "label")]
    sentence = Span(f" {part.pretty(clean(verdict.sentence))}", "strong" if verdict.ratio is not None else "label")
    causes = part.comparison.causes
    cause = causes[part.view.chosen] if part.view.chosen < len(causes) else None
    if cause is None:
        return [sentence]
    explained = Span(f" {clean(cause)}", "warn")
    both = [sentence, Span(" \u00b7", "dim"), explained]
    return both if width_of(both) <= width else [explained]


def _state(part: ComparedPart, width: int) -> Line:
    """The state of the selected run and its reason."""
    chosen = part.view.chosen
    run, snapshot = part.comparison.runs[chosen], part.snapshots[chosen]
    if run.trouble is not None:
        return fit([Span(f" {run.label}: {clean(run.trouble)}", "warn")], width)
    sign = status_text.sign_of(run.condition, snapshot.num_non_finite)
    line: Line = [Span(f" {run.label} ", TONES[chosen]), Span(f"{clean(run.run)} "), Span(f"{sign.mark} ", sign.tone)]
    reason = "" if run.condition_reason.startswith(run.condition) else f"{run.condition}: "
    line.append(Span(f"{reason}{clean(run.condition_reason)}", "label"))
    age = snapshot.now - snapshot.newest_fact if snapshot.newest_fact is not None else 0.0
    if run.condition not in ENDED and age >= 1:
        line.append(Span(f", updated {status_text.seconds(age)} ago", "label"))
    return fit(line, width)
