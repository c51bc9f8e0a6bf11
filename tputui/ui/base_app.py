"""The base of the application: themes, undo, copying, exporting and the command palette, the same on every screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from textual import work
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.message import Message
from textual.widget import Widget

from tputui.state.snapshot import Snapshot
from tputui.ui.base import export
from tputui.ui.base.export import Form
from tputui.ui.base.key_queue import KeyQueueApp
from tputui.ui.base.palette import ActionsProvider, Command, Keyed
from tputui.ui.base.preferences import Views
from tputui.ui.base.undo import Undo
from tputui.ui.render.lines import clean
from tputui.ui.terminal.capabilities import Capabilities
from tputui.ui.terminal.output_filter import OutputFilter, gated
from tputui.ui.terminal.themes import DARK, MONO, THEMES, VARIABLES, after, title_of
from tputui.ui.widgets.dialogs import ExportScreen
from tputui.ui.widgets.notices import Notices

ResultT = TypeVar("ResultT")

KEEP_S = 2.0
"""Seconds between two looks at whether the view changed and is to be kept."""


@runtime_checkable
class ShowsNotices(Protocol):
    """A screen that shows notices itself."""

    @property
    def notices(self) -> Notices: ...


class BaseApp(KeyQueueApp[ResultT], Generic[ResultT]):
    """Themes, undo, copy, export and palette."""

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = True
    COMMANDS = {ActionsProvider}  # noqa: RUF012 - annotated by the base class

    class Kept(Message):
        """A file was written, or could not be."""

        def __init__(self, sentence: str) -> None:
            super().__init__()
            self.sentence = sentence

    def __init__(
        self,
        looks: Capabilities,
        views: Views,
        *,
        export_to: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`export_to` is the directory that takes what is written; None is the one that the process is in."""
        super().__init__()
        self.views = views
        self.undo = Undo()
        self.ascii_only = looks.ascii_only
        self._colour = looks.colour and not self.no_color
        self._export_to = export_to
        self._clock = clock
        self.gate = OutputFilter(ascii_only=looks.ascii_only, colour=self._colour)
        self.driver_class = gated(self.driver_class, self.gate)
        for theme in THEMES.values():
            self.register_theme(theme)
        self._put_on(views.get("theme", DARK.name))

    @property
    def without_colour(self) -> bool:
        """Whether nothing may rest on colours: none is drawn, or pictures are to be made of characters."""
        return not self.gate.colour or self.console.color_system is None

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """What the style sheet needs before a theme is on."""
        return VARIABLES

    def get_line_filters(self) -> list[LineFilter]:
        """None where there is no colour: they would make colours of what is dim."""
        return [] if self.theme == MONO.name else list(super().get_line_filters())

    def keep_views(self) -> None:
        """Begins to look at whether the view changed; tells what is wrong with the file."""
        self.set_interval(KEEP_S, self._keep)
        self._tell_of_views()

    def tell(self, sentence: str) -> None:
        """Shows a sentence for a while, where the screen has a place for it."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ShowsNotices):
                screen.notices.show(sentence)
                return
        self.notify(clean(sentence), markup=False)

    def interrupted(self) -> None:
        """Ctrl-C leaves nothing, so that no habit of the hand does: it says which key does."""
        in_force = self.screen.keys_in_force() if isinstance(self.screen, Keyed) else ()
        leave = next((key.shown for key in in_force if key.action in ("leave", "close")), "esc")
        self.tell(f"Ctrl-C does not leave: {leave} leaves this screen, ctrl+q all; no run is stopped by it")

    async def action_on_widget(self, widget_id: str, action: str) -> None:
        """Run an action of the widget with this id, if the screen has one."""
        for widget in self.screen.query(f"#{widget_id}"):
            await self.run_action(action, default_namespace=widget)

    # Themes.

    def action_next_theme(self) -> None:
        """The next theme."""
        self.action_choose_theme(after(self.theme).name)

    def action_choose_theme(self, name: str) -> None:
        """The theme of this name, if colours may be drawn."""
        if not self._colour:
            self.tell("theme: mono stays, since NO_COLOR asks for no colour")
            return
        before = self.theme
        if name != before:
            self.undo.push(f"theme {title_of(name)}", lambda: self._put_on(before))
        self._put_on(name)
        self.tell(f"theme: {title_of(name)}; u takes it back")

    def _put_on(self, name: str) -> None:
        known = any(theme.name == name for theme in THEMES.values())
        chosen = name if known else DARK.name
        if self._colour:
            self.views.set("theme", chosen)
        else:
            chosen = MONO.name
        self.gate.colour = self._colour and chosen != MONO.name
        self.theme = chosen

    # The view, as it is kept.

    def action_undo_view(self) -> None:
        """Takes the newest change of the view back."""
        what = self.undo.undo()
        self.tell(f"undone: {what}" if what else "undo: nothing of the view was changed")

    def _keep(self) -> None:
        if self.views.is_changed:
            self._write_views()

    @work(thread=True, group="views")
    def _write_views(self) -> None:
        self.views.write()
        self.call_from_thread(self._tell_of_views)

    def _tell_of_views(self) -> None:
        notice, self.views.notice = self.views.notice, ""
        if notice:
            self.tell(notice)

    # Copies.

    def action_copy_panel(self) -> None:
        """Copies the selected panel as text."""
        widget = self._selected()
        if not isinstance(widget, export.HasText):
            self.tell("copy: no panel is selected")
            return
        text = widget.as_text()
        self.copy_to_clipboard(text)
        self.tell(f"copied {_name_of(widget)}, {len(text.splitlines())} lines, if the terminal lets programs copy")

    def action_export_panel(self) -> None:
        """Asks in which form to write the selected panel, and writes it."""
        widget = self._selected()
        if widget is None:
            self.tell("export: no panel is selected")
            return
        # The picture is of the screen without the dialog.
        self.push_screen(ExportScreen(_name_of(widget)), lambda form: self._export_after_drawing(widget, form))

    def _export_after_drawing(self, widget: Widget, form: Form | None) -> None:
        if form is not None:
            self.call_after_refresh(self._export, widget, form)

    def _export(self, widget: Widget, form: Form) -> None:
        content, part = self._content(widget, form)
        if content is None:
            self.tell(f"export: {_name_of(widget)} holds no figures; text and SVG work")
            return
        name = export.file_name(self._run_name(), _name_of(widget), form, self._clock())
        what = f"export: {part}, " if part else "export: "
        if self.is_web:
            self.deliver_text(StringIO(content), save_filename=name)
            self.tell(f"{what}{name} goes to your browser")
        else:
            self._write_new(name, content, what)

    def _content(self, widget: Widget, form: Form) -> tuple[str | None, str]:
        """What is written, and what of the panel that is where it is not all."""
        if form == "svg":
            self._hush()
            return self.export_screenshot(title=self._run_name()), ""
        if form == "txt":
            return widget.as_text() + "\n" if isinstance(widget, export.HasText) else None, ""
        table = export.figures_of(widget, widget.id, self._snapshot())
        return (export.as_csv(table), table.part) if table is not None else (None, "")

    def _hush(self) -> None:
        """Takes the sentence to the user away: a picture is of the run, not of what was last done to the view."""
        self.clear_notifications()
        screen = next((each for each in reversed(self.screen_stack) if isinstance(each, ShowsNotices)), None)
        if screen is not None:
            screen.notices.clear()

    @work(thread=True, group="export")
    def _write_new(self, name: str, content: str, what: str) -> None:
        directory = self._export_to or Path.cwd()
        try:
            path = export.write_new(directory, name, content)
        except OSError as error:
            self.post_message(self.Kept(f"export: nothing was written: {error.strerror or error}: {directory}"))
        else:
            self.post_message(self.Kept(f"{what}written to {path}"))

    def on_base_app_kept(self, message: Kept) -> None:
        """Tells what became of a file."""
        message.stop()
        self.tell(message.sentence)

    def _selected(self) -> Widget | None:
        """The widget that a hand is on: the one with the focus, else the first that can be told as text."""
        focused = self.screen.focused
        if isinstance(focused, export.HasText):
            return focused
        return next((each for each in self.screen.query(Widget) if isinstance(each, export.HasText)), None)

    def _snapshot(self) -> Snapshot | None:
        shown = next((s for s in reversed(self.screen_stack) if isinstance(s, export.ShowsRun)), None)
        return shown.frame.snapshot if shown is not None and shown.frame is not None else None

    def _run_name(self) -> str:
        snapshot = self._snapshot()
        return snapshot.run if snapshot is not None else "tputui"

    # The palette.

    async def run_command(self, command: Command, screen: object) -> None:
        """Does what an entry of the palette says on the screen below it, or tells why it is not possible now."""
        if command.why_not:
            self.tell(f"{command.word or command.title}: {command.why_not}")
        elif isinstance(screen, DOMNode):
            await self.run_action(command.action, default_namespace=screen)


def _name_of(widget: Widget) -> str:
    """What a person calls a widget."""
    return str(getattr(widget, "name_shown", "") or widget.id or "screen")
