"""The screen on which the user chooses the configuration of a new run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from textual import events, work
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from tputui.ui.base import keymap
from tputui.ui.help import HelpScreen
from tputui.ui.launch import configs
from tputui.ui.launch.configs import BLANK, ConfigChoice, DataReadiness
from tputui.ui.launch.form import PickedConfig
from tputui.ui.render.lines import Line, Span, Tone, cells_of, clean, crop, fit, paragraph, width_of
from tputui.ui.widgets.dialogs import Notices
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.panel import ListPanel
from tputui.ui.widgets.player_bar import KeyBar

_HEADINGS = {"file": "Configuration files", "blank": "", "run": "Re-run or resume"}
_NAME_WIDTHS = (20, 46)
_TASK_WIDTH = 14
_LABEL_WIDTH = 16
_GAPS_WIDTH = 3 + 2 + 2
"""Cells of the marker before a name, and between the columns."""
_NOTE_WIDTH_MIN = 12
"""Fewer cells have no room for a useful part of the summary of a configuration."""


class ConfigsPart(NamedTuple):
    """The input of `ConfigsPanel`."""

    choices: tuple[ConfigChoice, ...]
    is_searching: bool
    directory: str
    """The directory that was searched."""
    readiness: tuple[DataReadiness, ...] = ()
    """Of each configuration, once it is known."""


class ConfigsPanel(ListPanel[ConfigsPart]):
    """The configurations, grouped by kind."""

    name_shown = "configurations"
    what = "configurations for a new run"

    class ConfigChosen(Message):
        """The configuration under the cursor was clicked."""

    class Moved(Message):
        """The cursor is on another configuration."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._index = 0
        self._row_indices: list[int] = []
        """Index of the configuration in each row; -1 for headings and blank lines."""

    @property
    def current(self) -> ConfigChoice | None:
        """The configuration under the cursor."""
        return self._part.choices[self._index] if self._part is not None and self._part.choices else None

    def show(self, part: ConfigsPart) -> None:
        """Replaces the list; the cursor stays on its configuration."""
        current = self.current
        indices = [index for index, choice in enumerate(part.choices) if current and choice.path == current.path]
        self._index = indices[0] if indices and self._index else 0
        super().show(part)

    def move(self, by: int) -> None:
        """Moves the cursor, down if positive."""
        if self._part is not None and self._part.choices:
            self._index = min(max(self._index + by, 0), len(self._part.choices) - 1)
            self.redraw()
            self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to a configuration; chooses the one that is already under it."""
        row = self.row_at(event)
        index = self._row_indices[row] if 0 <= row < len(self._row_indices) else -1
        if index < 0:
            return
        if index == self._index:
            self.post_message(self.ConfigChosen())
        self._index = index
        self.redraw()
        self.post_message(self.Moved())

    @property
    def command(self) -> str:
        """The command that gets the data of the configuration under the cursor; empty if none is needed."""
        readiness = self._part.readiness if self._part is not None else ()
        return readiness[self._index].command if self._index < len(readiness) else ""

    def draw_rows(self, part: ConfigsPart, width: int, height: int) -> list[Line]:
        """One row per configuration, with a heading for each kind."""
        rows: list[Line] = []
        self._row_indices = []
        kind = ""
        names = max((cells_of(clean(listed.name)) for listed in part.choices), default=0)
        names = max(_NAME_WIDTHS[0], min(names, _NAME_WIDTHS[1], width - _TASK_WIDTH - _LABEL_WIDTH - _GAPS_WIDTH))
        for index, choice in enumerate(part.choices):
            if _HEADINGS[choice.kind] and choice.kind != kind:
                rows += [[]] if rows else []
                rows.append([Span(f" {_HEADINGS[choice.kind]}", "title")])
            kind = choice.kind
            self._row_indices += [-1] * (len(rows) - len(self._row_indices))
            if index == self._index:
                self.cursor_row = len(rows)
            self._row_indices.append(index)
            label = part.readiness[index].label if index < len(part.readiness) else ""
            rows.append(_line(choice, label, names, width, is_current=index == self._index))
        if part.is_searching:
            rows.append([Span(" searching ...", "dim")])
        elif not any(listed.kind == "file" for listed in part.choices):
            rows += [[], *paragraph(f"no configuration files below {part.directory}", width, 3)]
        return rows


def _line(choice: ConfigChoice, label: str, names: int, width: int, *, is_current: bool) -> Line:
    name = crop(clean(choice.name), names)
    line: Line = [
        Span(" \u276f " if is_current else "   ", "accent"),
        Span(name + " " * (names - cells_of(name)) + "  ", "strong" if is_current else "plain"),
        Span(f"{crop(clean(choice.task), _TASK_WIDTH):<{_TASK_WIDTH}}  ", "label"),
    ]
    note = Span(clean(choice.error), "warn") if choice.error is not None else Span(clean(choice.summary), "dim")
    tone: Tone = "good" if label == "ready" else "warn"
    if choice.error is None:
        line.append(Span(f"{label:<{_LABEL_WIDTH}}", tone))
        note = note._replace(text=f"  {note.text}")
    return fit([*line, note] if width - width_of(line) >= _NOTE_WIDTH_MIN or choice.error is not None else line, width)


class PickerHeader(Drawn):
    """The title and a notice."""

    def __init__(self) -> None:
        super().__init__(id="head")
        self._notice = ""
        self._hint = ""

    def hint(self, hint: str) -> None:
        """Shows a hint while there is no notice; an empty one removes it."""
        self._hint = hint
        self.redraw()

    def tell(self, notice: str) -> None:
        """Shows a notice; an empty one removes it."""
        self._notice = notice
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        title: Line = [Span(" new run ", "strong"), Span("Choose a configuration", "label")]
        second = Span(f" {self._notice}", "warn") if self._notice else Span(f" {self._hint}", "info")
        return [fit(title, width), fit([second], width)]


class ConfigPicker(Screen[PickedConfig | None]):
    """Lists the configurations; its result is the chosen one. Starts nothing."""

    BINDINGS = keymap.bindings(keymap.CONFIGS)
    CSS_PATH = "../launcher.tcss"

    def __init__(
        self, config_dir: Path, runs: Sequence[tuple[Path, str]], data_sets: Callable[[], Mapping[str, bool]]
    ) -> None:
        """Files are searched below `config_dir`; `runs` are earlier runs, each with its state in words.

        `data_sets` returns the data sets that can be fetched, each with whether it was. It is called from a thread.
        """
        super().__init__()
        self._config_dir = config_dir
        self._runs = runs
        self._data_sets = data_sets
        self.notices = Notices(self, self._put_notice)

    def compose(self) -> ComposeResult:
        """Header, configurations, keys."""
        yield PickerHeader()
        yield ConfigsPanel(id="configs")
        yield KeyBar(keymap.CONFIGS, id="keys")

    def on_mount(self) -> None:
        """Starts the search."""
        self.query_one(ConfigsPanel).focus()
        self._show((BLANK,), is_searching=True)
        self._search()

    @work(thread=True, group="configs")
    def _search(self) -> None:
        choices = (*configs.files(self._config_dir), BLANK)
        self.call_later(self._show, choices, is_searching=bool(self._runs))
        if self._runs:
            choices = (*choices, *configs.runs(self._runs))
            self.call_later(self._show, choices, is_searching=False)
        data_sets = self._data_sets()
        ready = tuple(configs.readiness(choice, data_sets, self._config_dir) for choice in choices)
        self.call_later(self._show, choices, ready, is_searching=False)

    def _show(
        self, choices: tuple[ConfigChoice, ...], readiness: tuple[DataReadiness, ...] = (), *, is_searching: bool
    ) -> None:
        directory = clean(str(self._config_dir))
        self.query_one(ConfigsPanel).show(ConfigsPart(choices, is_searching, directory, readiness))
        self.on_configs_panel_moved()

    def on_configs_panel_moved(self) -> None:
        """Names the command that gets the data of the configuration under the cursor, and shows the keys that act on
        it."""
        command = clean(self.query_one(ConfigsPanel).command)
        self.query_one(PickerHeader).hint(f"fetch its data first: {command}" if command else "")
        choice = self.query_one(ConfigsPanel).current
        resumes = choice is not None and choice.kind == "run" and choice.can_resume
        self.query_one(KeyBar).show([key for key in keymap.CONFIGS if resumes or key.action != "resume"])

    def keys_in_force(self) -> Sequence[keymap.Key]:
        """The keys of this screen."""
        return keymap.CONFIGS

    def panel_descriptions(self) -> Sequence[tuple[str, str]]:
        """Nothing: this screen has no numbered panels."""
        return ()

    def action_move(self, by: int) -> None:
        """Moves the cursor by rows."""
        self.query_one(ConfigsPanel).move(by)

    def action_page(self, pages: int) -> None:
        """Moves the cursor by pages."""
        panel = self.query_one(ConfigsPanel)
        panel.move(pages * panel.page_rows)

    def action_take(self) -> None:
        """Chooses the configuration under the cursor."""
        self._choose(resume=False)

    def on_configs_panel_config_chosen(self) -> None:
        """Chooses the configuration that was clicked."""
        self._choose(resume=False)

    def action_resume(self) -> None:
        """Resumes the last checkpoint of the run under the cursor."""
        self._choose(resume=True)

    def _choose(self, *, resume: bool) -> None:
        choice = self.query_one(ConfigsPanel).current
        if choice is None:
            return
        error = choice.error
        if resume and choice.kind != "run":
            error = "only runs can be resumed; press enter to use this configuration"
        elif resume and not choice.can_resume:
            error = "it saved no checkpoint to resume; press enter to start from its configuration"
        if error is not None:
            self.notices.show(f"{choice.name}: {error}")
        else:
            self.dismiss(PickedConfig(choice, resume))

    def _put_notice(self, sentence: str) -> None:
        self.query_one(PickerHeader).tell(clean(sentence))

    def action_help(self) -> None:
        """Shows the keys of this screen."""
        self.app.push_screen(HelpScreen(keymap.CONFIGS))

    def action_close(self) -> None:
        """Returns to the run list."""
        self.dismiss(None)
