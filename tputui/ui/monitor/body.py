"""The panels of the monitor: shown, hidden and resized by the user."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from textual import events
from textual.message import Message

from tputui.diagnosis.verdict import Verdict, found
from tputui.state.snapshot import Snapshot
from tputui.ui.base import host_text
from tputui.ui.base.preferences import undo_of, views_of
from tputui.ui.base_app import ShowsNotices
from tputui.ui.monitor.arrangement import (
    DIAGNOSIS,
    FAILURE,
    HOSTS,
    LASTING,
    PANELS,
    Arrangement,
    Axis,
    Border,
    Layout,
    arrange,
)
from tputui.ui.monitor.cores import CoresPanel
from tputui.ui.monitor.diagnosis import DiagnosisPanel, part_of
from tputui.ui.monitor.epochs import EpochsPanel
from tputui.ui.monitor.events import EventsPanel, FailurePanel
from tputui.ui.monitor.hosts import HostsPanel
from tputui.ui.monitor.layouts import ChosenLayout, InvalidLayout, SavedLayouts
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.memory import MemoryPanel
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.monitor.pace import PacePanel
from tputui.ui.monitor.xla import XlaPanel
from tputui.ui.render.lines import clean
from tputui.ui.widgets.panel import Box, Panel, Panels, RunPanel

PANEL_TYPES: tuple[type[RunPanel[Any]], ...] = (
    CoresPanel,
    LossPanel,
    MetersPanel,
    EpochsPanel,
    XlaPanel,
    MemoryPanel,
    LogPanel,
    EventsPanel,
    PacePanel,
    DiagnosisPanel,
    HostsPanel,
    FailurePanel,
)
"""In the order of their keys; the failure, with key 0, is the last."""

PanelT = TypeVar("PanelT", bound=RunPanel[Any])

NAMES = (*PANELS, FAILURE)

_STEP_WIDTH, _STEP_HEIGHT = 2, 1
"""Cells by which a key resizes the selected panel."""
_DIAGNOSED_S = 10.0
"""Seconds without a verdict after which the diagnosis gives its room back, so that panels do not move to and fro."""
_BURST_S = 1.0
"""Seconds within which several sizes set by key are undone as one change."""


class Body(Panels[RunPanel[Any]]):
    """Contains every panel, placed by `arrange` and by the layout of the user."""

    class LayoutChanged(Message):
        """Panels were hidden, shown or resized, or layouts were saved or deleted."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__({name: panel(id=name) for name, panel in zip(NAMES, PANEL_TYPES, strict=True)}, "cores", id=id)
        self._failed = False
        self._diagnosed = False
        """Whether something that slows the run down was found, up to `_DIAGNOSED_S` ago."""
        self._found_at = -math.inf
        """Unix time of the newest snapshot with a verdict."""
        self._num_cores = 0
        self._num_hosts = 0
        self._knows_hosts = False
        """Whether the run was found to have several hosts, whose panel was selected then."""
        self.chosen = ChosenLayout()
        self._wanted = "cores"
        """The panel that was selected last by a command, unlike `selected` not by a click on a visible one."""
        self._arrangement = Arrangement({})
        self._drag: tuple[Border, int, ChosenLayout] | None = None
        """The border that is being dragged, the cell along the axis where that began, and the layout before."""
        self._lit: Border | None = None
        """The border under the mouse."""
        self.clock = time.monotonic
        self._resized_at = -math.inf
        """Time of the newest size set by key."""

    def on_mount(self) -> None:
        """Restore the layout of the last session."""
        try:
            self._use(self.saved.last())
        except InvalidLayout as error:
            self.call_after_refresh(self.notify_user, f"layout ignored: {error}; the default one is shown")

    @property
    def saved(self) -> SavedLayouts:
        """The layouts in the view settings."""
        return SavedLayouts(views_of(self.app))

    @property
    def layout_now(self) -> Layout:
        """The layout in use."""
        return self.chosen.layout

    def boxes(self, width: int, height: int) -> dict[str, Box]:
        """The boxes of the visible panels, in cells."""
        arranged = self._arranged(width, height, self.selected if self.maximised else self._wanted)
        if self.selected not in arranged.boxes:
            self._wanted = self.selected
            arranged = self._arranged(width, height, self.selected)
        self._arrangement = arranged
        return arranged.boxes

    def _arranged(self, width: int, height: int, wanted: str) -> Arrangement:
        return arrange(
            width,
            height,
            wanted,
            num_cores=self._num_cores,
            num_hosts=self._num_hosts,
            failed=self._failed,
            diagnosed=self._diagnosed,
            maximised=self.maximised,
            layout=self.layout_now,
        )

    def names(self) -> Sequence[str]:
        """The panels that can be selected: those that are not hidden, the failure only if there is one, and the hosts
        only if there are several."""
        return [name for name in NAMES if self.layout_now.shows(name) and self.exists(name)]

    @property
    def has_hosts(self) -> bool:
        """Whether the run has several hosts."""
        return self._num_hosts > 1

    def exists(self, name: str) -> bool:
        """Whether the run has what a panel shows."""
        return (name != FAILURE or self._failed) and (name != HOSTS or self.has_hosts)

    def show(self, snapshot: Snapshot, verdicts: tuple[Verdict, ...] = ()) -> None:
        """Give each panel its part."""
        failed = snapshot.failure is not None
        num_cores = len(snapshot.cores) or (snapshot.topology.num_cores if snapshot.topology is not None else 0)
        if found(verdicts):
            self._found_at = snapshot.now
        diagnosed = abs(snapshot.now - self._found_at) < _DIAGNOSED_S
        num_hosts = host_text.num_hosts(snapshot)
        found_now = (failed, num_cores, num_hosts, diagnosed)
        if found_now != (self._failed, self._num_cores, self._num_hosts, self._diagnosed):
            self._failed, self._num_cores, self._num_hosts, self._diagnosed = found_now
            if self.has_hosts and not self._knows_hosts and self.selected == "cores":
                self.select(HOSTS)
            # A moment before the first event of a run has no hosts; they are selected again after it.
            self._knows_hosts = self.has_hosts or (self._knows_hosts and self.selected != HOSTS)
            self.place()
        for panel in self.panels():
            is_diagnosis = isinstance(panel, DiagnosisPanel)
            panel.show(part_of(snapshot, verdicts) if is_diagnosis else panel.pick(snapshot))

    def get(self, panel: type[PanelT]) -> PanelT:
        """The panel of a type."""
        return self._panels[NAMES[PANEL_TYPES.index(panel)]]  # type: ignore[return-value]  # it is of that type

    def select(self, name: str) -> None:
        """Show a panel and focus it, also if it was hidden."""
        if name == HOSTS and not self.has_hosts:
            self.notify_user("this run has one host")
            return
        if name == FAILURE and not self.exists(name):
            self.notify_user("this run has not failed")
            return
        if not self.layout_now.shows(name):
            self.toggle(name)
        self._wanted = name
        super().select(name)

    def action_open(self) -> None:
        """Go to the chosen event, or open the chosen host; else show the selected panel in full screen, or all panels
        again."""
        if not (isinstance(self.panel, EventsPanel | HostsPanel) and self.panel.go()):
            self.action_maximise()

    def on_panel_full_screen_toggled(self, event: Panel.FullScreenToggled) -> None:
        """Show a panel that was double-clicked in full screen, or all panels again."""
        event.stop()
        self.maximise(not self.maximised)

    def on_loss_panel_wanted(self, event: LossPanel.Wanted) -> None:
        """Show the loss panel, also in place of the one in full screen."""
        event.stop()
        self.select(self.get(LossPanel).id or "")

    # Hidden panels.

    def hidden(self) -> list[RunPanel[Any]]:
        """The panels that the user has hidden."""
        return [self._panels[name] for name in PANELS if not self.layout_now.shows(name) and self.exists(name)]

    def toggle(self, name: str) -> None:
        """Hide a panel, or show it again."""
        shown, title = self.layout_now.shows(name), self._panels[name].name_shown
        hidden = self.layout_now.hidden ^ {name}
        if name == FAILURE:
            self.notify_user("the failure cannot be hidden")
        elif hidden >= LASTING:
            self.notify_user(f"{title} is the only panel left and cannot be hidden")
        else:
            self._change(f"{'hide' if shown else 'show'} {title}", self.layout_now._replace(hidden=hidden))
            key = self._panels[name].key
            self.notify_user(f"{title} is hidden; {key} shows it again" if shown else f"{title} is shown again")

    def action_hide_or_show(self, name: str) -> None:
        """Hide a panel, or show it again."""
        self.toggle(name)

    def action_hide(self) -> None:
        """Hide the selected panel."""
        self.toggle(self.selected)

    def action_layouts(self) -> None:
        """Open the dialog of panels and layouts."""
        # Imported here so that the monitor opens faster.
        from tputui.ui.monitor.layouts import LayoutsScreen

        self.app.push_screen(LayoutsScreen(self))

    # Sizes.

    def action_widen(self, by: int) -> None:
        """Make the selected panel wider (1) or narrower (-1)."""
        self._resize("x", by * _STEP_WIDTH)

    def action_heighten(self, by: int) -> None:
        """Make the selected panel taller (1) or lower (-1)."""
        self._resize("y", by * _STEP_HEIGHT)

    def action_reset_sizes(self) -> None:
        """Give the panels their default sizes."""
        if self.layout_now.sizes:
            self._change("default sizes", self.layout_now._replace(sizes={}))
            self.notify_user("the panels have their default sizes; u undoes it")
        else:
            self.notify_user("the panels have their default sizes")

    def _resize(self, axis: Axis, by: int) -> None:
        """Move the border behind the selected panel, or else the one before it."""
        place = self._arrangement.split_of(self.selected, axis)
        title = self.panel.name_shown
        if place is None:
            why = "esc shows all panels" if self.maximised else f"it has the whole {_side(axis)}"
            self.notify_user(f"{title} cannot be resized: {why}")
            return
        split, index = place
        for border, sign in ((index, 1), (index - 1, -1)):
            sizes = split.moved(border, sign * by) if 0 <= border < len(split.parts) - 1 else None
            if sizes is not None:
                now = self.clock()
                joins = now - self._resized_at < _BURST_S
                self._resized_at = now
                self._change("sizes of panels", self._with_sizes(sizes), joins=joins)
                return
        self.notify_user(f"{title if by < 0 else 'the panel beside it'} has its minimum {_side(axis)}")

    def _with_sizes(self, sizes: dict[str, float]) -> Layout:
        return self.layout_now._replace(sizes={**self.layout_now.sizes, **sizes})

    # Layouts.

    def action_choose_layout(self, name: str) -> None:
        """Arrange the panels as saved under a name."""
        try:
            layout = self.saved.get(name)
        except InvalidLayout as error:
            self.notify_user(f"layout {clean(name)} refused: {error}; the panels stay")
            return
        self._change(f"layout {clean(name)}", layout, name)
        self.notify_user(f"layout: {clean(name)}; u undoes it")

    def save_layout(self, name: str) -> None:
        """Save the layout in use under a name."""
        before, replaced = self.chosen, self.saved.stored(name)
        self.saved.save(name, self.layout_now)
        undo_of(self.app).push(f"save layout {clean(name)}", lambda: self._unsave(name, replaced, before))
        self._use(ChosenLayout(self.layout_now, name))
        self.notify_user(f"layout {clean(name)} {'saved' if replaced is None else 'replaced'}; u undoes it")

    def delete_layout(self, name: str) -> None:
        """Delete a saved layout; the panels stay."""
        stored = self.saved.stored(name)
        self.saved.restore(name, None)
        undo_of(self.app).push(f"delete layout {clean(name)}", lambda: self._unsave(name, stored, self.chosen))
        self.post_message(self.LayoutChanged())
        self.notify_user(f"layout {clean(name)} deleted; u undoes it")

    def _unsave(self, name: str, stored: Any, before: ChosenLayout) -> None:
        self.saved.restore(name, stored)
        self._use(self.chosen._replace(name=before.name))

    def _change(self, what: str, layout: Layout, name: str | None = None, *, joins: bool = False) -> None:
        """Use another layout; can be undone."""
        before = self.chosen
        undo_of(self.app).push(what, lambda: self._use(before), joins=joins)
        self._use(ChosenLayout(layout, self.chosen.name if name is None else name))

    def _use(self, chosen: ChosenLayout) -> None:
        self.chosen = chosen
        self.saved.keep(chosen)
        if not self.is_attached:
            return  # undone after the screen was left: the next one shows it
        for name in PANELS:
            # The keys of a disabled panel do nothing but name the key that shows it.
            self._panels[name].disabled = not self.layout_now.shows(name)
        names = self.names()
        if self.selected not in names and self.selected in PANELS:
            self.maximised = False
            # The panel of the next key, or else the last one: of those that are visible without being selected.
            lasting = [name for name in names if name != FAILURE and (name != DIAGNOSIS or self._diagnosed)] or names
            behind = (name for name in lasting if NAMES.index(name) > NAMES.index(self.selected))
            self.select(next(behind, lasting[-1]))
        self.place()
        self.post_message(self.LayoutChanged())

    def notify_user(self, sentence: str) -> None:
        """Show a notice of the screen."""
        if isinstance(self.screen, ShowsNotices):
            self.screen.notices.show(sentence)

    # The mouse.

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to drag the border under the mouse."""
        border = self._border_under(event)
        if border is not None and event.button == 1:
            self._drag = (border, self._along(border, event), self.chosen)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the border that is dragged, else highlight the one under the mouse."""
        if self._drag is None:
            self._light(self._border_under(event))
            return
        # Only now, so that a click on a border still reaches the panel.
        self.capture_mouse()
        border, start, before = self._drag
        sizes = border.split.moved(border.number, self._along(border, event) - start)
        layout = before.layout if sizes is None else self._with_sizes(sizes)
        if layout != self.layout_now:
            self._use(self.chosen._replace(layout=layout))

    def on_mouse_up(self, _: events.MouseUp) -> None:
        """End the drag."""
        self._end_drag()

    def on_resize(self, _: events.Resize) -> None:
        """End a drag, whose border is elsewhere now."""
        self._end_drag()

    def on_leave(self, _: events.Leave) -> None:
        """Remove the highlight once the mouse is outside."""
        over = self.app.mouse_over
        if over is None or self not in over.ancestors:
            self._light(None)
            if self.app.mouse_captured is not self:
                # The mouse left before it moved the border: the release would be missed.
                self._drag = None

    def on_click(self, event: events.Click) -> None:
        """A double click on a border restores the default sizes of its row or column; a title opens its panel."""
        border = self._border_under(event)
        if event.chain != 2 or border is None or event.screen_y - self.region.y == border.title_row:
            return
        keys = {part.key for part in border.split.parts}
        if keys & set(self.layout_now.sizes):
            sizes = {key: share for key, share in self.layout_now.sizes.items() if key not in keys}
            self._change("default sizes", self.layout_now._replace(sizes=sizes))

    def _border_under(self, event: events.MouseEvent) -> Border | None:
        return self._arrangement.border_at(event.screen_x - self.region.x, event.screen_y - self.region.y)

    def _along(self, border: Border, event: events.MouseEvent) -> int:
        return event.screen_x if border.split.axis == "x" else event.screen_y

    def _end_drag(self) -> None:
        if self._drag is None:
            return
        (_, _, before), self._drag = self._drag, None
        self.release_mouse()
        if before != self.chosen:
            undo_of(self.app).push("sizes of panels", lambda: self._use(before))
            self._resized_at = -math.inf

    def _light(self, border: Border | None) -> None:
        """Highlight a border and no other one."""
        if border == self._lit:
            return
        self._lit = border
        edges = border.edges if border is not None else {}
        if border is None:
            self.styles.pointer = "default"
        else:
            self.styles.pointer = "ew-resize" if border.split.axis == "x" else "ns-resize"
        for name, panel in self._panels.items():
            panel.light(edges.get(name, ""))


def _side(axis: Axis) -> str:
    return "width" if axis == "x" else "height"
