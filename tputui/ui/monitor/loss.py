"""The loss panel: the loss over the run in four views, with a cursor that reads values."""

from __future__ import annotations

import bisect
import functools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from textual import events
from textual.message import Message

from tputui.state.metric_series import MetricSource
from tputui.state.snapshot import CoreView, Snapshot
from tputui.ui.base import status_text
from tputui.ui.base.export import Figures
from tputui.ui.base.preferences import Views, undo_of, views_of
from tputui.ui.base.reader_thread import FRAME_S
from tputui.ui.base_app import ShowsNotices
from tputui.ui.charts import loss, metric_page
from tputui.ui.charts.axis import X_KINDS, axis_info_of
from tputui.ui.charts.chart_view import VIEWS, Chart, ChartSeries, ChartView, VisibleData, Window
from tputui.ui.charts.columns import WEIGHTS
from tputui.ui.charts.loss import REUSE_S, DrawnLoss, LossChart
from tputui.ui.charts.metric_layout import Choice
from tputui.ui.charts.metric_page import MetricCharts, MetricPage
from tputui.ui.charts.scale import RANGES, RangeKind, YRange, limits_of, limits_text, lines_of, ranges_of
from tputui.ui.monitor.metric_choice import PINNED_MAX, MetricSearch, keep_choice, kept_choice
from tputui.ui.monitor.startup import StartupStep, checklist, devices_of
from tputui.ui.monitor.startup import lines as startup_lines
from tputui.ui.render.braille import DOTS_X
from tputui.ui.render.lines import Ramp, Span, clean, fit, paragraph, width_of
from tputui.ui.terminal.themes import paints_grounds, ramp_of, shows_no_colour
from tputui.ui.widgets.dialogs import PromptScreen
from tputui.ui.widgets.panel import FRAME, Drawing, RunPanel


def kept_look(app: object) -> ChartView:
    """How the user looked at the loss last; part and cursor are of a run, so they are not kept."""
    views = views_of(app)
    view, x = views.get("loss.view", "band"), views.get("loss.x", "step")
    return ChartView(
        kind=next((name for name in VIEWS if name == view), "band"),
        log=views.get("loss.log_axis", False),
        smoothing=min(max(views.get("loss.smoothing", 0), 0), len(WEIGHTS) - 1),
        x=next((kind for kind in X_KINDS if kind == x), "step"),
        y=_kept_range(views),
        other_y=tuple(ranges_of(views.get("metrics.y_ranges", list[str]()))),
    )


def _kept_range(views: Views) -> YRange:
    kept = views.get("loss.y_range", "robust")
    kind: RangeKind = next((name for name in RANGES if name == kept), "robust")
    y = YRange(kind, views.get("loss.y_low", 0.0), views.get("loss.y_high", 1.0))
    return y if y.is_sound else YRange("robust" if kind == "manual" else kind)


def keep_look(app: object, look: ChartView) -> None:
    """Remembers how the user looks at the loss."""
    views = views_of(app)
    views.set("loss.view", look.kind)
    views.set("loss.log_axis", look.log)
    views.set("loss.smoothing", look.smoothing)
    views.set("loss.x", look.x)
    views.set("loss.y_range", look.y.kind)
    views.set("loss.y_low", look.y.low)
    views.set("loss.y_high", look.y.high)
    if lines := lines_of(look.other_y):
        views.set("metrics.y_ranges", lines)
    else:
        views.remove("metrics.y_ranges")


class LossPart(NamedTuple):
    """The content of the panel."""

    whole: ChartSeries
    newest: float | None
    """The loss of the newest step."""
    cores: list[CoreView]
    """The newest values of each core."""
    num_non_finite: int
    why_none: str
    startup: tuple[StartupStep, ...]
    """The steps up to the first report; none after it."""
    devices: str
    source: MetricSource
    """What the curves of all metrics are made from."""
    named: str
    """What the script calls the loss, and where it was read; empty if it reports the loss by itself."""
    run_dir: str
    """The directory of the run; the choice of metrics is kept for the folder that contains it."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> LossPart:
        """The loss of all steps and cores, and the events."""
        why = "" if snapshot.loss else status_text.nothing_yet(snapshot, "report")
        startup = checklist(snapshot)
        source = MetricSource.of(snapshot)
        segments = snapshot.loss or source.axis_segments()
        whole = ChartSeries(
            segments, snapshot.core_columns, snapshot.marks, axis_info_of(snapshot), snapshot.outlier
        )  # fmt: skip
        cores, num_bad = snapshot.cores, snapshot.num_non_finite
        named = snapshot.loss_named.text if snapshot.loss_named is not None else ""
        devices, run_dir = devices_of(snapshot), snapshot.dir
        return cls(whole, snapshot.newest_loss, cores, num_bad, why, startup, devices, source, named, run_dir)


TWO_HEADS_FROM = 12
"""Height inside the frame from which the legend has two lines."""

_BURST_S = 1.0
"""Seconds within which several zooms, or several pans, are undone as one change."""
_ON_S = 0.05
"""Seconds until an incomplete drawing continues."""


class LossPanel(RunPanel[LossPart]):
    """The loss chart, and pages of charts of all metrics."""

    key = "2"
    name_shown = "loss"
    what = (
        "loss of every step: mean and band of the cores, and the outlier; or a line per core, a small chart per core, "
        "a map of step and core; below it the events; on more pages every metric in training and validation"
    )

    class Read(Message):
        """The user moved the cursor to a moment, in unix time."""

        def __init__(self, t: float) -> None:
            super().__init__()
            self.t = t

    class TypingChanged(Message):
        """The user started or stopped typing an expression, or changed it."""

    class Wanted(Message):
        """The user asked for a page of metrics while the panel is not on the screen."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.look = ChartView()
        self._pages_wanted = 0
        self._chart = LossChart()
        self._metrics = MetricCharts()
        self._search = MetricSearch()
        self._metrics.choose = self._search.chosen
        self._choice, self._choice_of = Choice(), ""
        """The pinned metrics and folded groups, and the folder of runs that they are kept for."""
        self._page: MetricPage | None = None
        """The page of metrics in the newest drawing; None if that is the loss chart."""
        self._drawn: tuple[VisibleData, Chart] | None = None
        """The newest drawing."""
        self._reusable: DrawnLoss | None = None
        """The newest drawing of the loss chart."""
        self._is_reused = False
        """Whether that drawing is shown with newer losses."""
        self._is_redraw_due = False
        """Whether a timer will draw those losses."""
        self._above = 0
        """Lines of the legend above the chart."""
        self._paints = True
        """False for text without colours."""
        self._dragging = False
        self.clock = time.monotonic
        self._window_changed_at = -math.inf
        """Time of the newest zoom or pan."""

    def on_mount(self) -> None:
        """Restore the view settings."""
        self.look = kept_look(self.app)

    @staticmethod
    def pick(snapshot: Snapshot) -> LossPart:
        """The loss of all steps and cores, and the events."""
        return LossPart.of(snapshot)

    @property
    def title(self) -> str:
        """The name of the page."""
        return "metrics" if self.look.metric else self.name_shown

    def draw(self, part: LossPart, width: int, height: int) -> Drawing:
        """The legend, then the chart or a page of metrics."""
        whole = part.whole
        self._page = None
        if not whole.segments:
            self._drawn = None
            if part.startup:
                return Drawing(startup_lines(part.startup, part.devices))
            return Drawing(paragraph(part.why_none, width, height))
        if self.look.metric or not part.source.loss:
            return self._draw_metrics(part, width, height)
        heads = 2 if height >= TWO_HEADS_FROM else 1
        shows_newest, data, chart = self._charted(part, width, height - heads)
        self._drawn = (data, chart) if chart is not None else None
        self._above = heads
        lines = chart.lines if chart is not None else []
        short = heads == 1
        if self.look.cursor is not None:
            head = loss.readout(data, whole.marks, width, short=short, rows=chart.rows if chart is not None else ())
        else:
            newest = part.newest if shows_newest else None
            of_map = chart.legend if chart is not None else ()
            head = loss.legend(data, newest, len(part.cores), part.num_non_finite, width, short=short, of_map=of_map)
        if not any(segment.num_values for segment in data.segments) and lines:
            lines[0] = [Span("every loss so far is NaN or infinite", "bad")]
        if not self._chart.complete and self.is_mounted:
            self.set_timer(_ON_S, self.redraw)
        note = loss.note(whole, data, chart, self.look.x, width, part.named)
        return Drawing(lines, head=tuple(head[:heads]), note=note)

    def _charted(self, part: LossPart, width: int, height: int) -> tuple[bool, VisibleData, Chart | None]:
        """Whether the newest step is visible, the visible data, and the chart: drawn now, or up to `REUSE_S` ago."""
        whole, ramp, now = part.whole, self._ramp(), self.clock()
        colourless = not self._paints or (self.is_attached and shows_no_colour(self.app))
        sizes = (part.num_non_finite, len(whole.marks), len(part.source.epochs))
        drawn_with = (self.look, width, height, ramp, colourless, sizes)
        newest_step = whole.segments[-1].last_step
        reusable = self._reusable
        if reusable is not None and reusable.holds_for(drawn_with, newest_step, now):
            self._is_reused = True
            if not self._is_redraw_due and self.is_mounted:
                self._draw_later(reusable.drawn_at + REUSE_S - now)
            return reusable.shows_newest, reusable.data, reusable.chart
        data = self._chart.visible(whole, self.look, part.source.epochs)
        shows_newest = data.segments[-1] is whole.segments[-1]
        data = replace(data, ramp=ramp, colourless=colourless, newest=part.cores if shows_newest else ())
        chart = self._chart.draw(data, width, height)
        is_complete = self._chart.complete
        self._reusable = DrawnLoss(drawn_with, newest_step, shows_newest, now, data, chart) if is_complete else None
        self._is_reused = False
        return shows_newest, data, chart

    def _draw_later(self, seconds: float) -> None:
        self._is_redraw_due = True
        # A frame later, since the frames of a run that goes on draw the chart too: a screen of its own costs as much.
        self.set_timer(seconds + FRAME_S, self._redraw_reused)

    def _redraw_reused(self) -> None:
        """Draw the losses that came since the chart was drawn, unless a frame drew it meanwhile."""
        self._is_redraw_due = False
        if not self._is_reused or self._reusable is None:
            return
        left_s = self._reusable.drawn_at + REUSE_S - self.clock()
        if left_s > 0:
            self._draw_later(left_s)
        else:
            self.redraw()

    def _draw_metrics(self, part: LossPart, width: int, height: int) -> Drawing:
        """As many metrics as fit, below the legend or the position of the cursor."""
        # Without cores, whose outlier these charts do not show.
        axis = replace(part.whole, cores=[], segments=part.source.axis_segments())
        data = self._chart.visible(axis, self.look._replace(kind="multiples"))
        search, num_all = self._search, len(self._metrics.metrics(part.source).names)
        count = f"[{self._metrics.num_found(part.source):,}/{num_all:,}]" if search.is_typing else ""
        typed = tuple(search.typed_line(width, count))
        folder = str(Path(part.run_dir).parent)
        if folder != self._choice_of:
            self._choice, self._choice_of = kept_choice(views_of(self.app), folder), folder
        # What is found is shown, also of a group that is folded.
        self._metrics.choice = self._choice._replace(folded=frozenset()) if self.is_searching else self._choice
        page = self._metrics.draw(part.source, self.look.metric, data, width, height - len(typed))
        if page is None:
            self._drawn = None
            why = f"no metric matches /{search.expression}/: {num_all:,} searched" if num_all else "no metric yet"
            return Drawing(paragraph(why, width, height), head=typed)
        drawn = (data, page.chart) if page.shown else None
        self._page, self._drawn, self._above = page, drawn, int(page.has_head) + len(typed)
        chosen = replace(data, view=data.view._replace(metric=page.chosen))
        settings = loss.note(axis, chosen, page.chart, self.look.x, width)
        note = metric_page.note(page, settings, data.view.cursor, width, search=search.expression)
        if not page.has_head:
            return Drawing(page.chart.lines, head=typed, note=note)
        head = loss.cursor_values(data)[0]
        if data.view.cursor is None:
            best_epoch = page.shown[0].best_epoch if page.shown else None
            head = metric_page.legend(best_epoch, part.source.monitored, width)
        while width_of(head) > width and len(head) > 1:
            head.pop()
        return Drawing(page.chart.lines, head=(*typed, fit(head, width)), note=note)

    def figures(self) -> Figures | None:
        """On a page of metrics the curves of every metric; the figures of the loss are those of the snapshot."""
        if self._part is None or not self.look.metric:
            return None
        metrics = self._metrics.metrics(self._part.source)
        return metric_page.metric_figures([metrics[name] for name in metrics.names])

    def _ramp(self) -> Ramp | None:
        """The colours of maps; None if nothing is painted as a background."""
        is_painted = self.is_attached and self._paints and paints_grounds(self.app)
        return ramp_of(self.app.current_theme) if is_painted else None

    def notify_style_update(self) -> None:
        """Draw again in the colours of another theme."""
        super().notify_style_update()
        if self._drawn is not None and self._drawn[0].ramp != self._ramp():
            self.call_next(self.redraw)

    def as_text(self) -> str:
        """The panel without colours, so the band is drawn as dots at its edges."""
        self._paints = False
        try:
            return super().as_text()
        finally:
            self._paints = True

    # View settings.

    def action_page(self, by: int) -> None:
        """Show the next page of metrics, or the one before; the loss chart is the first page."""
        width, height = self.size.width - FRAME, self.size.height - FRAME
        if not self.display:
            self._pages_wanted = by
            self.post_message(self.Wanted())
            return
        if self._part is None or width < 1 or height < 1:
            return
        metric = self._metrics.first_of_page(self._part.source, self.look.metric, by, width, height)
        self.change(self.look._replace(metric=metric), "loss: page")

    def on_show(self) -> None:
        """Show a page of metrics if the user asked for one before the panel was on the screen."""
        by, self._pages_wanted = self._pages_wanted, 0
        if by and not self.look.metric:
            self.action_page(by)
        if self.is_typing:
            self.focus()

    # The choice of metrics.

    def action_pin(self) -> None:
        """Pin the selected metric to the first page, or not any more."""
        metric = self._page.chosen_metric if self._page is not None else ""
        if not metric:
            self._say("m shows the metrics; * pins the selected one")
        elif metric not in self._choice.pinned and len(self._choice.pinned) >= PINNED_MAX:
            self._say(f"{PINNED_MAX} metrics are pinned, which is the most: * on one of them makes room")
        else:
            self._choose(self._choice.with_pin(metric), metric, "metrics: pin")

    def action_fold(self) -> None:
        """Show only the heading of the group of the selected metric, or its charts again."""
        if self._page is None or self.is_searching:
            self._say("m shows the metrics; Z folds a group" if self._page is None else "a search folds no group")
            return
        chosen = self._page.chosen
        group = chosen if not self._page.chosen_metric else self._page.layout.group_of(chosen)
        if not group:
            self._say("this metric is in no group that folds")
            return
        folded = self._choice.folded ^ {group}
        self._choose(self._choice._replace(folded=folded), group, "metrics: fold")

    def action_fold_all(self) -> None:
        """Show only the headings of all groups, or all charts again."""
        if self._page is None or self._part is None or self.is_searching:
            self.action_fold()
            return
        groups = self._metrics.groups(self._part.source)
        folded = frozenset() if groups <= self._choice.folded else self._choice.folded | groups
        self._choose(self._choice._replace(folded=folded), "", "metrics: fold all")

    def _choose(self, choice: Choice, at: str, what: str) -> None:
        """Show other metrics, and select one or a folded group; can be undone."""
        before, look = self._choice, self.look
        undo_of(self.app).push(what, lambda: self._show_choice(before, look.metric))
        self._show_choice(choice, at or look.metric)

    def _show_choice(self, choice: Choice, at: str) -> None:
        self._choice = choice
        keep_choice(views_of(self.app), self._choice_of, choice)
        self.look = self.look._replace(metric=at)
        self.redraw()

    def _say(self, text: str) -> None:
        if isinstance(self.screen, ShowsNotices):
            self.screen.notices.show(text)

    # The search for metrics.

    @property
    def is_typing(self) -> bool:
        """Whether the user types an expression."""
        return self._search.is_typing

    @property
    def is_searching(self) -> bool:
        """Whether only some metrics are shown."""
        return self.is_typing or bool(self._search.expression)

    def action_search(self) -> None:
        """Start typing an expression, on the page of metrics."""
        if not self.look.metric:
            self.action_page(1)
        self._search.begin()
        self._searched()
        self.focus()

    def drop_search(self) -> None:
        """Show all metrics again."""
        self._search.drop()
        self._searched()

    def _searched(self) -> None:
        self.redraw()
        self.post_message(self.TypingChanged())

    def take_key(self, event: events.Key) -> bool:
        """Take every key while an expression is typed."""
        if not self.is_typing:
            return False
        if event.key == "enter":
            self._search.end()
        elif event.key == "escape":
            self._search.drop()
        else:
            self._search.press(event.key, event.character)
        self._searched()
        return True

    def on_paste(self, event: events.Paste) -> None:
        """Paste into the expression."""
        if self.is_typing:
            event.stop()
            self._search.paste(event.text)
            self.redraw()

    def change(self, look: ChartView, what: str) -> None:
        """Change the view settings; can be undone."""
        before = self.look
        if look == before:
            return
        undo_of(self.app).push(what, lambda: self._set(before))
        self._set(look)

    def action_toggle_log(self) -> None:
        """Switch the y axis between linear and logarithmic."""
        self.change(self.look._replace(log=not self.look.log), "loss: y axis")

    def action_next_range(self) -> None:
        """Show the next y range of the selected chart: without outliers, of all values, or as typed by the user."""
        if self.look.kind == "heat" and self._page is None:
            self._say("y range: the heat map has none; v shows the loss as curves")
            return
        metric = self._page.chosen_metric if self._page is not None else ""
        if self._page is not None and not metric:
            self._say("y range: no chart is selected")
            return
        y = self.look.y_of(metric)
        y = y._replace(kind=y.next_kind)
        if y.kind != "manual":
            self._change_range(metric, y)
            return
        scale = self._drawn[1].axes.y if self._drawn is not None else None
        text = limits_text(*(scale.low, scale.high) if scale is not None else (0.0, 1.0))
        title = f"lower and upper y limit of {clean(metric or self.name_shown)}"
        self.app.push_screen(
            PromptScreen(title, limits_of, text),
            functools.partial(self._take_limits, metric, y._replace(kind="robust")),
        )

    def _take_limits(self, metric: str, default: YRange, limits: tuple[float, float] | None) -> None:
        """Use the typed limits; after esc the default range, so that the key always goes on."""
        self._change_range(metric, YRange("manual", *limits) if limits is not None else default)

    def _change_range(self, metric: str, y: YRange) -> None:
        self.change(self.look.with_y(metric, y), f"{metric or self.name_shown}: y range")

    def action_next_view(self, by: int) -> None:
        """Show the next view of the loss, or the one before."""
        self.change(self.look.next_view(by)._replace(metric=""), "loss: view")

    def action_next_x(self) -> None:
        """Show the next x axis that this run has values for."""
        look = self.look.next_x()
        if self._part is not None:
            whole = self._part.whole
            while look.x != "step" and whole.axis_info.why_not(look.x, whole.segments):
                look = look.next_x()
        self.change(look, "loss: x axis")

    def action_smooth(self, by: int) -> None:
        """Smooth more, or less."""
        self.change(self.look.smoother(by), "loss: smoothing")

    def action_zoom(self, closer: int) -> None:
        """Zoom in (1) or out (0), around the cursor."""
        self.zoom(bool(closer))

    def zoom(self, closer: bool, at: int | None = None) -> None:
        """Zoom in or out, around a step or else the cursor."""
        self._change_window(lambda first, last: self.look.zoomed(closer, at, first, last), "loss: zoom")

    def action_pan(self, by: int) -> None:
        """Move the visible steps."""
        self._change_window(lambda first, last: self.look.panned(by, first, last), "loss: visible steps")

    def action_show_all(self) -> None:
        """Show the whole run."""
        self._change_window(lambda first, last: self.look._replace(window=None), "loss: whole run")

    def action_cursor(self, by: int) -> None:
        """Move the cursor by cells; the first move puts it at the newest visible step."""
        if self._drawn is None or not self._drawn[0].segments:
            return
        data, chart = self._drawn
        segments, x_axis = data.segments, chart.axes.x
        if self.look.cursor is None:
            self._move_to(segments[-1].last_step)
            return
        dot = x_axis.dot(x_axis.at(self.look.cursor))
        at = x_axis.nearest(dot)
        to = x_axis.nearest(dot + by * DOTS_X)
        to = at + (1 if by > 0 else -1) if to == at else to
        if 0 <= to < len(segments):
            self._move_to(segments[to].last_step)
        else:
            self._move_to((segments[-1].last_step + 1) if by > 0 else segments[0].first_step - 1)

    def scroll_rows(self, rows: int) -> None:
        """Select another metric, or move the cursor to another row of the map of cores; other views do not scroll."""
        if self._page is not None:
            self._choose_neighbour(self._page.chosen, rows)
            return
        groups = list(dict.fromkeys(self._drawn[1].rows)) if self._drawn is not None else []
        if not groups:
            return
        at = next((index for index, cores in enumerate(groups) if self.look.core in cores), None)
        to = at + rows if at is not None else 0 if rows > 0 else len(groups) - 1
        self._set(self.look._replace(core=groups[min(max(to, 0), len(groups) - 1)].start))
        if self.look.cursor is None:
            self.action_cursor(1)

    def _choose_neighbour(self, chosen: str, by: int) -> None:
        """Select the metric `by` charts after another, on any page."""
        if self._part is not None:
            width, height = self.size.width - FRAME, self.size.height - FRAME
            metric = self._metrics.neighbour(self._part.source, chosen, by, width, height)
            self._set(self.look._replace(metric=metric))

    def read_at(self, step: int | None) -> None:
        """Put the cursor at a step, and make it visible; None removes it."""
        self._to(lambda first, last: self.look.reading(step, first, last))

    def read_at_time(self, t: float) -> None:
        """Put the cursor at the steps of a unix time."""
        segments = self._part.whole.segments if self._part is not None else []
        if segments:
            at = min(bisect.bisect_left(segments, t, key=lambda segment: segment.t), len(segments) - 1)
            self.read_at(segments[at].last_step)

    def _move_to(self, step: int) -> None:
        """Put the cursor at a step, and post `Read`."""
        self.read_at(step)
        segments = self._part.whole.segments if self._part is not None else []
        at = bisect.bisect_left(segments, step, key=lambda segment: segment.last_step)
        if at < len(segments) and segments[at].t:
            self.post_message(self.Read(segments[at].t))

    def _change_window(self, change: Callable[[int, int], ChartView], what: str) -> None:
        """Change the visible steps; can be undone, several changes in a row as one."""
        before = self.look.window
        self._to(change)
        if self.look.window != before:
            now = self.clock()
            undo_of(self.app).push(what, lambda: self._back_to(before), joins=now - self._window_changed_at < _BURST_S)
            self._window_changed_at = now

    def _back_to(self, window: Window | None) -> None:
        self._window_changed_at = -math.inf
        self._set(self.look._replace(window=window))

    def _to(self, change: Callable[[int, int], ChartView]) -> None:
        if self._part is not None and self._part.whole.segments:
            segments = self._part.whole.segments
            self._set(change(segments[0].first_step, segments[-1].last_step))

    def _set(self, look: ChartView) -> None:
        if look != self.look:
            self.look = look
            keep_look(self.app, look)
            self.redraw()

    # The mouse.

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zoom in at the mouse."""
        event.stop()
        event.prevent_default()
        self.zoom(True, self._step_under(event.x))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out at the mouse."""
        event.stop()
        event.prevent_default()
        self.zoom(False, self._step_under(event.x))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        step = self._step_under(event.x)
        if step is not None and self.is_inside(event.x, event.y) and event.y > self._above:
            self._dragging = True
            self.capture_mouse()
            self._read_under(step, event.x, event.y)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the cursor."""
        step = self._step_under(event.x)
        if self._dragging and step is not None:
            self._read_under(step, event.x, event.y)

    def on_mouse_up(self, _: events.MouseUp) -> None:
        """End the drag."""
        if self._dragging:
            self._dragging = False
            self.release_mouse()

    def _read_under(self, step: int, x: int, y: int) -> None:
        """Put the cursor at a step, in the map of cores also in the row, on a page of metrics in the chart."""
        rows = self._drawn[1].rows if self._drawn is not None else ()
        at = y - FRAME // 2 - self._above
        if rows:
            self._set(self.look._replace(core=rows[at].start if 0 <= at < len(rows) else None))
        if self._page is not None and (metric := self._page.layout.item_at(x - FRAME // 2, at)):
            self._set(self.look._replace(metric=metric))
        self._move_to(step)

    def _step_under(self, x: int) -> int | None:
        """The step under a column of the widget, or the nearest one."""
        if self._drawn is None:
            return None
        data, chart = self._drawn
        cell = x - FRAME // 2
        cell = (cell % chart.every if chart.every else cell) - chart.axes.left
        cell = min(max(cell, 0), max(chart.axes.across - 1, 0))
        at = chart.axes.x.nearest(cell * DOTS_X)
        return data.segments[at].last_step if at >= 0 else None
