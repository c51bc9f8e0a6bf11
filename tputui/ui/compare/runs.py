"""The runs of a comparison: the head with the verdict in words, and the list that is the legend of every panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.message import Message

from tputui import formatting as fmt
from tputui.compare.compare import ComparedRun
from tputui.state.snapshot import ENDED
from tputui.ui.base import status_text
from tputui.ui.compare.compare_view import TONES, ComparedPart, CompareView
from tputui.ui.render import table
from tputui.ui.render.lines import Line, Span, Tone, clean, crop, fit, spread
from tputui.ui.render.table import Cell
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.panel import FRAME, Drawing, Panel

_TITLES = ("", "run", "state", "beside {}", "train loss", "step", "epoch", "duration")
_NAME_LEAST = 14
_OTHERS_WIDTH = 58
"""Cells of a line for what is most wanted besides the name."""


class CompareHead(Drawn):
    """What is compared, which run is best, the speed of the chosen run, and how that is."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._part: ComparedPart | None = None
        self._notice = ""

    def show(self, part: ComparedPart) -> None:
        """Takes a newer comparison."""
        self._part = part
        self.redraw()

    def tell(self, notice: str) -> None:
        """Shows a sentence in place of the state; an empty one gives the line back."""
        self._notice = notice
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Four lines."""
        part = self._part
        if part is None:
            return [[Span(" reading the runs ...", "dim")]]
        runs = part.comparison.runs
        alive = sum(run.condition not in ENDED for run in runs)
        reading = f"{len(part.unread)} being read, " if part.unread else ""
        left: Line = [Span(" compare ", "strong"), Span(f"{len(runs)} runs, base ", "label"), *_base(runs, part.sight)]
        first = spread(left, [Span(f"{reading}{alive} in training ", "dim")], width)
        last: Line = [Span(f" \u276f {self._notice}", "info")] if self._notice else _state(part, width)
        return [first, _quality(part, width), _sentence(part), last]


class ComparedRunsPanel(Panel[ComparedPart]):
    """A line a run."""

    key = "1"
    name_shown = "runs"
    what = "the runs, each with its letter and colour; n and p choose, b makes the base, space hides a curve"

    class Chosen(Message):
        """A run was clicked."""

        def __init__(self, run: int) -> None:
            super().__init__()
            self.run = run

    follows_end: ClassVar[bool] = False

    @property
    def part(self) -> ComparedPart | None:
        """What it shows."""
        return self._part

    def draw(self, part: ComparedPart, width: int, height: int) -> Drawing:
        """The runs in their order; the chosen one is marked."""
        base = part.comparison.runs[part.sight.base].label
        titles = [title.format(base) for title in _TITLES]
        name = max(_NAME_LEAST, width - _OTHERS_WIDTH)
        found = table.align(
            titles, [_row(part, run, name) for run in range(len(part.snapshots))], width - 2, left=frozenset({0, 1, 2})
        )
        rows: list[Line] = [
            [Span("\u276f " if run == part.sight.chosen else "  ", "accent"), *row]
            for run, row in enumerate(found.rows)
        ]
        hidden = len(part.sight.hidden)
        note = f"{hidden} curve{'s' if hidden > 1 else ''} hidden" if hidden else ""
        return Drawing(rows, head=([Span("  "), *found.head],), note=note)

    def keep_in_sight(self, run: int) -> None:
        """Scrolls so far that a run is in sight."""
        room = self.size.height - FRAME - 1
        top = self._first_row()
        if run < top:
            self.scroll_rows(run - top)
        elif room > 0 and run >= top + room:
            self.scroll_rows(run - top - room + 1)

    def on_click(self, event: events.Click) -> None:
        """Chooses a run."""
        run = self._first_row() + event.y - 2
        if self._part is not None and 0 <= run < len(self._part.snapshots) and event.y >= 2:
            self.post_message(self.Chosen(run))


def letter(part: ComparedPart, run: int) -> Span:
    """The letter of a run in its colour, dimmed where its curve is hidden."""
    return Span(part.comparison.runs[run].label, TONES[run])


def _row(part: ComparedPart, index: int, name_width: int) -> list[Cell]:
    run, sight = part.comparison.runs[index], part.sight
    sign = status_text.sign_of(run.condition, part.snapshots[index].num_non_finite)
    hidden = index in sight.hidden
    swatch = f"{run.label} hidden" if hidden else f"\u2500{run.label}\u2500"
    tone: Tone = "dim" if hidden else TONES[index]
    bad = bool(part.snapshots[index].num_non_finite)
    total = f"/{run.total_steps:,}" if run.total_steps else ""
    state = (
        Cell("\u2026 reading", "dim") if index in part.unread else Cell(f"{sign.mark} {sign.word.lower()}", sign.tone)
    )
    return [
        Cell(swatch, tone),
        Cell(_named(clean(run.run), name_width), "strong" if index == sight.chosen else "plain"),
        state,
        _beside(part, index),
        Cell(fmt.number(run.loss) + (" \u2716" if bad else ""), "bad" if bad else "plain"),
        Cell(f"{run.steps:,}{total}"),
        Cell(f"{run.epoch}/{run.num_epochs}" if run.num_epochs else fmt.UNKNOWN),
        Cell(fmt.duration(run.duration_s), "label"),
    ]


def _named(name: str, width: int) -> str:
    """A name that may be too long: its end tells runs of one day apart."""
    return name if cell_len(name) <= width else "\u2026" + name[len(crop(name, cell_len(name) - width + 2)) - 1 :]


def _beside(part: ComparedPart, index: int) -> Cell:
    verdict = part.comparison.verdicts[index]
    if verdict is None:
        return Cell("base", "label")
    if not verdict.stands_out or verdict.ratio is None:
        return Cell(part.pretty(verdict.short), "dim")
    return Cell(part.pretty(verdict.short), "good" if verdict.ratio > 1 else "warn")


def _base(runs: Sequence[ComparedRun], sight: CompareView) -> Line:
    base = runs[sight.base]
    return [Span(base.label, TONES[sight.base]), Span(f" {clean(base.run)}", "strong")]


def _quality(part: ComparedPart, width: int) -> Line:
    """Which run is best: what one compares for."""
    quality = part.comparison.quality
    return fit([Span(f" {clean(quality.sentence)}", "strong" if quality.best is not None else "label")], width)


def _sentence(part: ComparedPart) -> Line:
    """The verdict on the speed of the chosen run."""
    run, verdict = part.comparison.runs[part.sight.chosen], part.comparison.verdicts[part.sight.chosen]
    if verdict is None:
        return [
            Span(f" {run.label} is what the others stand beside; n chooses the next run, b makes it the base", "label")
        ]
    return [Span(f" {part.pretty(clean(verdict.sentence))}", "strong" if verdict.ratio is not None else "label")]


def _state(part: ComparedPart, width: int) -> Line:
    """How the chosen run is, and why."""
    chosen = part.sight.chosen
    run, snapshot = part.comparison.runs[chosen], part.snapshots[chosen]
    if run.trouble is not None:
        return fit([Span(f" {run.label}: {clean(run.trouble)}", "warn")], width)
    sign = status_text.sign_of(run.condition, snapshot.num_non_finite)
    line: Line = [Span(f" {run.label} ", TONES[chosen]), Span(f"{clean(run.run)} "), Span(f"{sign.mark} ", sign.tone)]
    reason = "" if run.condition_reason.startswith(run.condition) else f"{run.condition}: "
    line.append(Span(f"{reason}{clean(run.condition_reason)}", "label"))
    age = snapshot.now - snapshot.newest_fact if snapshot.newest_fact is not None else 0.0
    if run.condition not in ENDED and age >= 1:
        line.append(Span(f", newest fact {status_text.seconds(age)} ago", "label"))
    return fit(line, width)
