"""The base of the application: themes, undo, copying, exporting, palette and the order of keys, the same everywhere."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from textual import events, work
from textual.app import App
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.message_pump import MessagePump
from textual.screen import Screen, SystemModalScreen
from textual.widget import Widget

from tputui.ui.base.palette import ActionsProvider, Keyed, PaletteCommand
from tputui.ui.base.preferences import Undo, Views
from tputui.ui.render.lines import clean
from tputui.ui.terminal.bell import notification
from tputui.ui.terminal.input_driver import InputDriver
from tputui.ui.terminal.output_filter import OutputFilter, filtered_driver
from tputui.ui.terminal.themes import DARK, MONO, THEMES, VARIABLES, Capabilities, PaletteFilter, after, title_of
from tputui.ui.widgets.dialogs import ExportScreen, Notices

if TYPE_CHECKING:
    from tputui.state.snapshot import Snapshot
    from tputui.ui.base.export import Form
    from tputui.ui.base.reader_thread import Frame
    from tputui.ui.terminal.picture_output import PictureOutput
    from tputui.ui.terminal.picture_protocol import Pictures

ResultT = TypeVar("ResultT")

AUTOSAVE_S = 2.0
"""Seconds from a change of the view settings until they are saved, together with the changes after it."""


@runtime_checkable
class HasText(Protocol):
    """A widget that can be exported as text."""

    def as_text(self) -> str: ...


@runtime_checkable
class ShowsRun(Protocol):
    """A screen of one run."""

    frame: Frame | None


@runtime_checkable
class ShowsNotices(Protocol):
    """A screen that shows notices itself."""

    @property
    def notices(self) -> Notices: ...


@runtime_checkable
class TakesKeys(Protocol):
    """A widget or screen that may handle keys before their bindings are looked up."""

    def take_key(self, event: events.Key) -> bool:
        """Handle a key; returns whether it did."""
        ...


class KeyQueueApp(App[ResultT], Generic[ResultT]):
    """An application whose screens receive their keys in order: the action of a key is finished before the next key.

    Textual passes a key from queue to queue, from the focused widget up to the application, and looks up its binding
    only there. Two keys in quick succession are therefore in flight at the same time: the second one may reach a widget
    that the first one is about to leave, or a screen that the first one is about to close. Keys of our own screens wait
    in one queue instead. Widgets and screens that handle keys themselves implement `take_key`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: deque[events.Key] = deque()
        self._num_waits = 0
        self._waits_on: Screen[object] | None = None
        """The screen that has not finished the action of the last key."""

    async def on_event(self, event: events.Event) -> None:
        """Queue the keys of our screens; Textual handles other events, and the keys of its own screens."""
        is_fresh_key = isinstance(event, events.Key) and not event.is_forwarded
        if not is_fresh_key or isinstance(self.screen, SystemModalScreen):
            if isinstance(event, events.Key) and is_fresh_key and event.key == "ctrl+c":
                # Textual's screens cover our notices: close them, as Esc does.
                await super().on_event(events.Key("escape", None))
                self.call_later(self.interrupted)
                return
            await super().on_event(event)
            return
        assert isinstance(event, events.Key)
        self.app_focus = True
        self._keys.append(event)
        # A screen that was closed meanwhile has nothing left to finish.
        if self._waits_on is not self.screen:
            await self._press_next()

    async def _press_next_after(self, number: int) -> None:
        """Handle the next key. Callbacks of the previous one, such as a change of focus, ran before this one."""
        if number == self._num_waits:
            await self._press_next()

    async def _press_next(self) -> None:
        self._waits_on = None
        if not self._keys:
            return
        screen = self.screen
        if screen.is_mounted:
            pumps = [screen.focused, screen]
            await self._press(self._keys.popleft())
            self._wait_for(pumps if screen is self.screen else [self.screen])
        else:
            self._wait_for([screen])

    def _wait_for(self, pumps: Sequence[MessagePump | None]) -> None:
        """Continue with the next key once these pumps have processed their current queues."""
        self._waits_on = self.screen
        self._num_waits += 1
        self._visit(pumps, self._num_waits)

    def _visit(self, pumps: Sequence[MessagePump | None], number: int) -> None:
        for index, pump in enumerate(pumps):
            if pump is not None and pump.call_later(self._visit, pumps[index + 1 :], number):
                return
        self.call_later(self._press_next_after, number)

    def interrupted(self) -> None:
        """Ctrl-C was pressed while no text is selected."""

    async def _press(self, event: events.Key) -> None:
        screen = self.screen
        if event.key == "ctrl+c" and not screen.get_selected_text():
            self.interrupted()
            return
        nodes = screen.focused.ancestors_with_self if screen.focused is not None else [screen]
        active = screen.active_bindings.get(event.key)
        if active is None or not active.binding.priority:
            for node in nodes:
                if isinstance(node, TakesKeys) and node.take_key(event):
                    return
        if active is not None and active.enabled:
            await self.run_action(active.binding.action, active.node)


class BaseApp(KeyQueueApp[ResultT], Generic[ResultT]):
    """Themes, undo, copy, export and palette."""

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = True
    COMMANDS = {ActionsProvider}  # noqa: RUF012 - annotated by the base class

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
        self.output_filter = OutputFilter(
            ascii_only=capabilities.ascii_only, colour=self._colour, pictures=_output_of(capabilities.pictures)
        )
        self.driver_class = filtered_driver(_without_polling(self.driver_class), self.output_filter)
        self._palette = [PaletteFilter()] if self.console.color_system == "256" else []
        for theme in THEMES.values():
            self.register_theme(theme)
        self._set_theme(views.get("theme", DARK.name))

    @property
    def without_colour(self) -> bool:
        """Whether the terminal shows no colours, so that pictures must be drawn with characters."""
        return not self.output_filter.colour or self.console.color_system is None

    @property
    def picture_output(self) -> PictureOutput | None:
        """Shows pictures at full resolution; None if they are drawn as text."""
        return None if self.output_filter.ascii_only or self.without_colour else self.output_filter.pictures

    @property
    def has_many_colours(self) -> bool:
        """Whether the terminal has at least 256 colours."""
        return self.console.color_system in ("256", "truecolor")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The variables that the style sheet needs before a theme is set."""
        return VARIABLES

    def get_line_filters(self) -> list[LineFilter]:
        """No filters in the mono theme: they would turn dim text into colours."""
        if self.theme == MONO.name:
            return []
        return [*super().get_line_filters(), *self._palette]

    def start_autosave(self) -> None:
        """Start saving changed view settings, and show any error from reading them."""
        self.views.on_change = self._autosave
        if self.views.is_changed:
            self._autosave()
        self._show_views_notice()

    def show_notice(self, sentence: str) -> None:
        """Show a sentence for some seconds."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ShowsNotices):
                screen.notices.show(sentence)
                return
        self.notify(clean(sentence), markup=False)

    def ring(self, text: str) -> None:
        """Ring the bell of the terminal, and show a notification if it can."""
        if self._driver is not None:
            self._driver.write(notification(text, os.environ))

    def interrupted(self) -> None:
        """Ctrl-C does not quit, to prevent accidents: show the key that does."""
        screen = next(
            open_screen for open_screen in reversed(self.screen_stack) if not isinstance(open_screen, SystemModalScreen)
        )
        in_force = screen.keys_in_force() if isinstance(screen, Keyed) else ()
        shown = next((key.shown.split() for key in in_force if key.action in ("leave", "close")), ["esc"])
        leave = "q" if "q" in shown else "esc"
        self.show_notice(f"Ctrl-C does not quit: {leave} leaves this screen, ctrl+q quits; runs continue")

    async def action_on_widget(self, widget_id: str, action: str) -> None:
        """Run an action of the widget with this id, if the screen has one that is not hidden."""
        for widget in self.screen.query(f"#{widget_id}"):
            if widget.disabled:
                self.show_notice(f"{_name_of(widget)} is hidden; {getattr(widget, 'key', '')} shows it again")
            else:
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
        exists = any(theme.name == name for theme in THEMES.values())
        chosen = name if exists else DARK.name
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
        if self.is_running:
            self.set_timer(AUTOSAVE_S, self._write_views)

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
        if not isinstance(widget, HasText):
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
        if form == "svg":
            # Before the refresh: a bar of notices that is hidden after it would cover a line of the picture.
            self._clear_notices()
        if form is not None:
            self.call_after_refresh(self._export, widget, form)

    def _export(self, widget: Widget, form: Form) -> None:
        from tputui.ui.base import export  # After the first frame, which it would delay.

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
        from tputui.ui.base import export

        if form == "svg":
            from tputui.ui.terminal.picture_output import DrawsFullPictures

            with widget.as_text_alone() if isinstance(widget, DrawsFullPictures) else nullcontext():
                return self.export_screenshot(title=self._run_name()), ""
        if form == "txt":
            return widget.as_text() + "\n" if isinstance(widget, HasText) else None, ""
        table = export.figures_of(widget, widget.id, self._snapshot())
        return (export.as_csv(table), table.part) if table is not None else (None, "")

    def _clear_notices(self) -> None:
        """Remove notices: the picture should show the run, not the last action."""
        self.clear_notifications()
        screen = next(
            (open_screen for open_screen in reversed(self.screen_stack) if isinstance(open_screen, ShowsNotices)), None
        )
        if screen is not None:
            screen.notices.clear()

    @work(thread=True, group="export")
    def _write_new(self, name: str, content: str, prefix: str) -> None:
        from tputui.ui.base import export

        directory = self._export_to or Path.cwd()
        try:
            path = export.write_new(directory, name, content)
        except OSError as error:
            self.call_later(self.show_notice, f"export failed: {error.strerror or error}: {directory}")
        else:
            self.call_later(self.show_notice, f"{prefix}written to {path}")

    def _selected(self) -> Widget | None:
        """The focused widget if it has text, else the first widget that has."""
        focused = self.screen.focused
        if isinstance(focused, HasText):
            return focused
        return next((widget for widget in self.screen.query(Widget) if isinstance(widget, HasText)), None)

    def _snapshot(self) -> Snapshot | None:
        shown = next((s for s in reversed(self.screen_stack) if isinstance(s, ShowsRun)), None)
        return shown.frame.snapshot if shown is not None and shown.frame is not None else None

    def _run_name(self) -> str:
        snapshot = self._snapshot()
        return snapshot.run if snapshot is not None else "tputui"

    # The palette.

    async def run_command(self, command: PaletteCommand, screen: object) -> None:
        """Run a palette entry on the screen below the palette, or show why it is not possible now."""
        if command.why_not:
            self.show_notice(f"{command.word or command.title}: {command.why_not}")
        elif isinstance(screen, DOMNode):
            await self.run_action(command.action, default_namespace=screen)


def _name_of(widget: Widget) -> str:
    """The name of a widget for the user."""
    return str(getattr(widget, "name_shown", "") or widget.id or "screen")


def _output_of(pictures: Pictures) -> PictureOutput | None:
    """The output of pictures at full resolution, imported only for a terminal that can show them."""
    if pictures.protocol == "blocks":
        return None
    from tputui.ui.terminal.picture_output import output_of

    return output_of(pictures)


def _without_polling(driver: type[Driver]) -> type[Driver]:
    """The driver to use for one that Textual has chosen: those for terminals and browsers are replaced."""
    if driver.__module__ == "textual.drivers.web_driver":
        # Imported for browsers alone: it delays the first frame.
        from tputui.ui.terminal.web_input_driver import WebInputDriver

        return WebInputDriver
    return InputDriver if driver is LinuxDriver else driver
