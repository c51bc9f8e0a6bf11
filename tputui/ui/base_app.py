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
from tputui.ui.terminal.output_filter import OutputFilter, filtered_driver
from tputui.ui.terminal.themes import DARK, MONO, THEMES, VARIABLES, after, title_of
from tputui.ui.widgets.dialogs import ExportScreen
from tputui.ui.widgets.notices import Notices

ResultT = TypeVar("ResultT")

AUTOSAVE_S = 2.0
"""Seconds between two checks for unsaved view settings."""


@runtime_checkable
class ShowsNotices(Protocol):
    """A screen that shows notices itself."""

    @property
    def notices(self) -> Notices: ...


class BaseApp(KeyQueueApp[ResultT], Generic[ResultT]):
    """Themes, undo, copy, export and palette."""

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = True
    COMMANDS = {ActionsProvider}  # noqa: RUF012 - annotated by the base class

    class FileWritten(Message):
        """A file was written, or writing failed."""

        def __init__(self, sentence: str) -> None:
            super().__init__()
            self.sentence = sentence

    def __init__(
        self,
        capabilities: Capabilities,
        views: Views,
        *,
        export_to: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`export_to` is the directory of exported files; None is the current directory."""
        super().__init__()
        self.views = views
        self.undo = Undo()
        self.ascii_only = capabilities.ascii_only
        self._colour = capabilities.colour and not self.no_color
        self._export_to = export_to
        self._clock = clock
        self.output_filter = OutputFilter(ascii_only=capabilities.ascii_only, colour=self._colour)
        self.driver_class = filtered_driver(self.driver_class, self.output_filter)
        for theme in THEMES.values():
            self.register_theme(theme)
        self._set_theme(views.get("theme", DARK.name))

    @property
    def without_colour(self) -> bool:
        """Whether the terminal shows no colours, so that pictures must be drawn with characters."""
        return not self.output_filter.colour or self.console.color_system is None

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The variables that the style sheet needs before a theme is set."""
        return VARIABLES

    def get_line_filters(self) -> list[LineFilter]:
        """No filters in the mono theme: they would turn dim text into colours."""
        return [] if self.theme == MONO.name else list(super().get_line_filters())

    def start_autosave(self) -> None:
        """Start saving changed view settings, and show any error from reading them."""
        self.set_interval(AUTOSAVE_S, self._autosave)
        self._show_views_notice()

    def show_notice(self, sentence: str) -> None:
        """Show a sentence for some seconds."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ShowsNotices):
                screen.notices.show(sentence)
                return
        self.notify(clean(sentence), markup=False)

    def interrupted(self) -> None:
        """Ctrl-C does not quit, to prevent accidents: show the key that does."""
        in_force = self.screen.keys_in_force() if isinstance(self.screen, Keyed) else ()
        leave = next((key.shown for key in in_force if key.action in ("leave", "close")), "esc")
        self.show_notice(f"Ctrl-C does not quit: {leave} leaves this screen, ctrl+q quits; runs continue")

    async def action_on_widget(self, widget_id: str, action: str) -> None:
        """Run an action of the widget with this id, if the screen has one."""
        for widget in self.screen.query(f"#{widget_id}"):
            await self.run_action(action, default_namespace=widget)

    # Themes.

    def action_next_theme(self) -> None:
        """Switch to the next theme."""
        self.action_choose_theme(after(self.theme).name)

    def action_choose_theme(self, name: str) -> None:
        """Switch to the theme of this name, unless colours are disabled."""
        if not self._colour:
            self.show_notice("theme: mono, because NO_COLOR is set")
            return
        before = self.theme
        if name != before:
            self.undo.push(f"theme {title_of(name)}", lambda: self._set_theme(before))
        self._set_theme(name)
        self.show_notice(f"theme: {title_of(name)}; u undoes it")

    def _set_theme(self, name: str) -> None:
        known = any(theme.name == name for theme in THEMES.values())
        chosen = name if known else DARK.name
        if self._colour:
            self.views.set("theme", chosen)
        else:
            chosen = MONO.name
        self.output_filter.colour = self._colour and chosen != MONO.name
        self.theme = chosen

    # View settings.

    def action_undo_view(self) -> None:
        """Undo the newest change of the view."""
        undone = self.undo.undo()
        self.show_notice(f"undone: {undone}" if undone else "undo: no changes to undo")

    def _autosave(self) -> None:
        if self.views.is_changed:
            self._write_views()

    @work(thread=True, group="views")
    def _write_views(self) -> None:
        self.views.write()
        self.call_from_thread(self._show_views_notice)

    def _show_views_notice(self) -> None:
        notice, self.views.notice = self.views.notice, ""
        if notice:
            self.show_notice(notice)

    # Copies.

    def action_copy_panel(self) -> None:
        """Copy the selected panel to the clipboard as text."""
        widget = self._selected()
        if not isinstance(widget, export.HasText):
            self.show_notice("copy: no panel is selected")
            return
        text = widget.as_text()
        self.copy_to_clipboard(text)
        self.show_notice(
            f"copied {_name_of(widget)}, {len(text.splitlines())} lines (if the terminal allows clipboard access)"
        )

    def action_export_panel(self) -> None:
        """Ask for a format, and export the selected panel."""
        widget = self._selected()
        if widget is None:
            self.show_notice("export: no panel is selected")
            return
        # An SVG must show the screen without the dialog.
        self.push_screen(ExportScreen(_name_of(widget)), lambda form: self._export_after_drawing(widget, form))

    def _export_after_drawing(self, widget: Widget, form: Form | None) -> None:
        if form is not None:
            self.call_after_refresh(self._export, widget, form)

    def _export(self, widget: Widget, form: Form) -> None:
        content, part = self._content(widget, form)
        if content is None:
            self.show_notice(f"export: {_name_of(widget)} has no figures; export it as text or SVG")
            return
        name = export.file_name(self._run_name(), _name_of(widget), form, self._clock())
        prefix = f"export: {part}, " if part else "export: "
        if self.is_web:
            self.deliver_text(StringIO(content), save_filename=name)
            self.show_notice(f"{prefix}{name} was sent to your browser")
        else:
            self._write_new(name, content, prefix)

    def _content(self, widget: Widget, form: Form) -> tuple[str | None, str]:
        """The content of the file, and which part of the panel it covers if not all."""
        if form == "svg":
            self._clear_notices()
            return self.export_screenshot(title=self._run_name()), ""
        if form == "txt":
            return widget.as_text() + "\n" if isinstance(widget, export.HasText) else None, ""
        table = export.figures_of(widget, widget.id, self._snapshot())
        return (export.as_csv(table), table.part) if table is not None else (None, "")

    def _clear_notices(self) -> None:
        """Remove notices: the picture should show the run, not the last action."""
        self.clear_notifications()
        screen = next((each for each in reversed(self.screen_stack) if isinstance(each, ShowsNotices)), None)
        if screen is not None:
            screen.notices.clear()

    @work(thread=True, group="export")
    def _write_new(self, name: str, content: str, prefix: str) -> None:
        directory = self._export_to or Path.cwd()
        try:
            path = export.write_new(directory, name, content)
        except OSError as error:
            self.post_message(self.FileWritten(f"export failed: {error.strerror or error}: {directory}"))
        else:
            self.post_message(self.FileWritten(f"{prefix}written to {path}"))

    def on_base_app_file_written(self, message: FileWritten) -> None:
        """Show the result of writing a file."""
        message.stop()
        self.show_notice(message.sentence)

    def _selected(self) -> Widget | None:
        """The focused widget if it has text, else the first widget that has."""
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
        """Run a palette entry on the screen below the palette, or show why it is not possible now."""
        if command.why_not:
            self.show_notice(f"{command.word or command.title}: {command.why_not}")
        elif isinstance(screen, DOMNode):
            await self.run_action(command.action, default_namespace=screen)


def _name_of(widget: Widget) -> str:
    """The name of a widget for the user."""
    return str(getattr(widget, "name_shown", "") or widget.id or "screen")
