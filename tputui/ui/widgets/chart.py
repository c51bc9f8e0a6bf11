"""The loss over the run: mean, band and the core that stands out, in four views, with a cursor that reads values."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui.model.snapshot import Snapshot
from tputui.ui import words
from tputui.ui.charts import loss
from tputui.ui.charts.domain import X_KINDS, Grounds
from tputui.ui.charts.look import VIEWS, Look
from tputui.ui.charts.loss import LossChart
from tputui.ui.charts.scene import Chart, Scene, Whole
from tputui.ui.charts.smooth import WEIGHTS
from tputui.ui.draw.braille import DOTS_X
from tputui.ui.draw.lines import Line, Span, fit, paragraph, width_of
from tputui.ui.hands.viewstate import undo_of, views_of
from tputui.ui.widgets.panel import FRAME, Drawing, Panel

TWO_HEADS_FROM = 12
"""Lines inside of the frame from which two of them stand above the chart."""

_ON_S = 0.05
"""Seconds after which a drawing that is not complete goes on."""


class LossPart(NamedTuple):
    """What the panel shows."""

    whole: Whole
    num_cores: int
    num_non_finite: int
    why_none: str


class LossPanel(Panel[LossPart]):
    """The loss chart."""

    key = "2"
    name_shown = "loss"
    what = (
        "loss of every step: mean of the cores, their band, and the core that stands out; or a line a core, a small "
        "chart a core, a map of step and core; below it what happened"
    )

    class Read(Message):
        """The cursor went to a moment, in unix time."""

        def __init__(self, t: float) -> None:
            super().__init__()
            self.t = t

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.look = Look()
        self._chart = LossChart()
        self._drawn: tuple[Scene, Chart] | None = None
        """What stands on the terminal."""
        self._above = 0
        """Lines above the chart, within the frame."""
        self._dragging = False

    def on_mount(self) -> None:
        """Looks at the loss as the user left it."""
        self.look = kept_look(self.app)

    @staticmethod
    def pick(snapshot: Snapshot) -> LossPart:
        """The loss over all steps, of every core, and what happened meanwhile."""
        why = "" if snapshot.loss else words.nothing_yet(snapshot, "report")
        whole = Whole(snapshot.loss, snapshot.core_columns, snapshot.marks, grounds_of(snapshot))
        return LossPart(whole, len(snapshot.cores), snapshot.num_non_finite, why)

    def draw(self, part: LossPart, width: int, height: int) -> Drawing:
        """What the lines are, then the chart."""
        whole = part.whole
        if not whole.segments:
            self._drawn = None
            return Drawing(paragraph(part.why_none, width, height))
        scene = self._chart.scene(whole, self.look)
        heads = 2 if height >= TWO_HEADS_FROM else 1
        chart = self._chart.draw(scene, width, height - heads)
        self._drawn = (scene, chart) if chart is not None else None
        self._above = heads
        lines = chart.lines if chart is not None else []
        head = self._cursor_head(part, scene, width) if self.look.cursor is not None else self._head(part, scene, width)
        if not any(segment.num_values for segment in scene.segments) and lines:
            lines[0] = [Span("every loss so far is NaN or infinite", "bad")]
        if not self._chart.complete and self.is_mounted:
            self.set_timer(_ON_S, self.redraw)
        return Drawing(lines, head=tuple(head[:heads]), note=self._note(part, scene, chart, width))

    # How it is looked at.

    def change(self, look: Look, what: str) -> None:
        """Looks another way, and can be taken back."""
        before = self.look
        if look == before:
            return
        undo_of(self.app).push(what, lambda: self._set(before))
        self._set(look)

    def toggle_log(self) -> None:
        """Switches the y axis between linear and logarithmic."""
        self.change(self.look._replace(log=not self.look.log), "loss: y axis")

    def next_view(self, by: int) -> None:
        """The next view."""
        self.change(self.look.next_view(by), "loss: view")

    def next_x(self) -> None:
        """The next x axis that this run can have."""
        look = self.look.next_x()
        if self._part is not None:
            whole = self._part.whole
            while look.x != "step" and whole.grounds.why_not(look.x, whole.segments):
                look = look.next_x()
        self.change(look, "loss: x axis")

    def smooth(self, by: int) -> None:
        """More smoothing, or less."""
        self.change(self.look.smoother(by), "loss: smoothing")

    def zoom(self, closer: bool, at: int | None = None) -> None:
        """Closer or farther, around the cursor or a step."""
        self._to(lambda first, last: self.look.zoomed(closer, at, first, last))

    def pan(self, by: int) -> None:
        """Moves what is in sight."""
        self._to(lambda first, last: self.look.panned(by, first, last))

    def show_all(self) -> None:
        """The whole run."""
        self._set(self.look._replace(window=None))

    def move_cursor(self, by: int) -> None:
        """Moves the cursor by cells; the first move puts it at the newest step in sight."""
        if self._drawn is None or not self._drawn[0].segments:
            return
        scene, chart = self._drawn
        segments, domain = scene.segments, chart.domain
        if self.look.cursor is None:
            self._move_to(segments[-1].last_step)
            return
        dot = domain.dot(domain.at(self.look.cursor))
        at = domain.nearest(dot)
        to = domain.nearest(dot + by * DOTS_X)
        to = at + (1 if by > 0 else -1) if to == at else to
        if 0 <= to < len(segments):
            self._move_to(segments[to].last_step)
        else:
            self._move_to((segments[-1].last_step + 1) if by > 0 else segments[0].first_step - 1)

    def read_at(self, step: int | None) -> None:
        """The cursor at a step, brought into sight; None takes it away."""
        self._to(lambda first, last: self.look.reading(step, first, last))

    def read_at_time(self, t: float) -> None:
        """The cursor at the steps of a moment."""
        segments = self._part.whole.segments if self._part is not None else []
        if segments:
            at = min(bisect.bisect_left(segments, t, key=lambda segment: segment.t), len(segments) - 1)
            self.read_at(segments[at].last_step)

    def _move_to(self, step: int) -> None:
        """The cursor at a step, by the user's hand."""
        self.read_at(step)
        segments = self._part.whole.segments if self._part is not None else []
        at = bisect.bisect_left(segments, step, key=lambda segment: segment.last_step)
        if at < len(segments) and segments[at].t:
            self.post_message(self.Read(segments[at].t))

    def _to(self, change: Callable[[int, int], Look]) -> None:
        if self._part is not None and self._part.whole.segments:
            segments = self._part.whole.segments
            self._set(change(segments[0].first_step, segments[-1].last_step))

    def _set(self, look: Look) -> None:
        if look != self.look:
            self.look = look
            keep_look(self.app, look)
            self.redraw()

    # The mouse.

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zooms in at the mouse."""
        event.stop()
        event.prevent_default()
        self.zoom(True, self._step_under(event.x))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zooms out at the mouse."""
        event.stop()
        event.prevent_default()
        self.zoom(False, self._step_under(event.x))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Puts the cursor there."""
        step = self._step_under(event.x)
        if step is not None and self._is_in_chart(event.y):
            self._dragging = True
            self.capture_mouse()
            self._move_to(step)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Draws the cursor along."""
        step = self._step_under(event.x)
        if self._dragging and step is not None:
            self._move_to(step)

    def on_mouse_up(self, _: events.MouseUp) -> None:
        """Lets the cursor go."""
        if self._dragging:
            self._dragging = False
            self.release_mouse()

    def _is_in_chart(self, y: int) -> bool:
        return y > self._above and y < self.size.height - 1

    def _step_under(self, x: int) -> int | None:
        """The step under a column of the widget; the nearest one where it is beside the chart."""
        if self._drawn is None:
            return None
        scene, chart = self._drawn
        cell = min(max(x - FRAME // 2 - chart.area.left, 0), max(chart.area.across - 1, 0))
        at = chart.domain.nearest(cell * DOTS_X)
        return scene.segments[at].last_step if at >= 0 else None

    # What stands above the chart, and in the frame.

    def _head(self, part: LossPart, scene: Scene, width: int) -> list[Line]:
        first = loss.legend(scene, part.num_cores, part.num_non_finite, width)
        odd = loss.odd_in_short(scene.outlier)
        if self._above == 1 and odd:
            mean = first[:2]
            first = next((line for line in ([*first, *odd], [*mean, *odd]) if width_of(line) <= width), first)
        bad = sorted({core for column in scene.cores for core in column.bad_cores})
        return [first, loss.odd_core(scene.outlier, part.num_cores, width, bad)]

    def _cursor_head(self, part: LossPart, scene: Scene, width: int) -> list[Line]:
        """Place and values, and the nearest event where there is room."""
        where, values = loss.readout(scene)
        event = loss.nearest_mark(part.whole.marks, self.look.cursor or 0)
        if self.size.height - FRAME < TWO_HEADS_FROM:
            return [fit([*where[:1], *values], width)]
        return [[*where, *event] if width_of(where) + 12 < width else where, values]

    def _note(self, part: LossPart, scene: Scene, chart: Chart | None, width: int) -> str:
        """What is not as usual, the most important first, as much as fits."""
        look, whole = scene.look, part.whole
        why_not = whole.grounds.why_not(self.look.x, whole.segments)
        hidden = f", {chart.hidden:,} points <= 0 not shown" if chart is not None and chart.hidden else ""
        parts = [
            f"log axis{hidden}" if look.log else "",
            f"EMA {look.weight:g}" if look.weight else "",
            why_not or (f"by {look.x}" if look.x != "step" else ""),
            f"steps {scene.segments[0].first_step:,} to {scene.segments[-1].last_step:,}"
            if look.window is not None and scene.segments
            else "",
            chart.note if chart is not None else "",
        ]
        note: str = look.view if look.view != "band" else ""
        for text in filter(None, parts):
            longer = f"{note} \u00b7 {text}" if note else text
            if len(longer) < width - 14:
                note = longer
        return note


def grounds_of(snapshot: Snapshot) -> Grounds:
    """What the axes stand on."""
    plan = snapshot.plan
    return Grounds(
        epochs=tuple((start.first_step, start.epoch) for start in snapshot.epoch_starts),
        steps_per_epoch=plan.steps_per_epoch if plan is not None else 0,
        global_batch=plan.global_batch if plan is not None else 0,
        started=snapshot.started,
    )


def kept_look(app: object) -> Look:
    """How the user looked at the loss last; part and cursor are of a run, so they are not kept."""
    views = views_of(app)
    view, x = views.get("loss.view", "band"), views.get("loss.x", "step")
    return Look(
        view=next((one for one in VIEWS if one == view), "band"),
        log=views.get("loss.log_axis", False),
        smoothing=min(max(views.get("loss.smoothing", 0), 0), len(WEIGHTS) - 1),
        x=next((one for one in X_KINDS if one == x), "step"),
    )


def keep_look(app: object, look: Look) -> None:
    """Remembers how the user looks at the loss."""
    views = views_of(app)
    views.set("loss.view", look.view)
    views.set("loss.log_axis", look.log)
    views.set("loss.smoothing", look.smoothing)
    views.set("loss.x", look.x)
