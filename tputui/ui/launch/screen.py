"""The launcher screen: every field of a configuration, checked while the user edits it, and the start of the run."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen

from tputui import formatting as fmt
from tputui.check_result import CheckResult
from tputui.telemetry import files
from tputui.ui.base import keymap
from tputui.ui.help import HelpScreen
from tputui.ui.launch.checker import Checker, CheckUpdate, Launch, LaunchError, LaunchService
from tputui.ui.launch.field_values import document, format_value
from tputui.ui.launch.form import FormState, PickedConfig
from tputui.ui.launch.panels import (
    FieldPanel,
    FieldPart,
    FieldsPanel,
    FieldsPart,
    LaunchHeader,
    SummaryPanel,
    SummaryPart,
)
from tputui.ui.render.lines import clean
from tputui.ui.widgets.dialogs import Leave, LeaveChanged, Notices
from tputui.ui.widgets.line_widget import LineInput
from tputui.ui.widgets.player_bar import KeyBar

NOTICE_S = 8.0
SIDES_MIN_WIDTH = 60
"""Narrower terminals show the fields alone."""


class LauncherScreen(Screen[Path | None]):
    """Edits a configuration and starts a run. Its result is the directory of the run, or None."""

    BINDINGS = keymap.bindings(keymap.LAUNCH)
    CSS_PATH = "../launcher.tcss"

    def __init__(
        self, service: LaunchService, picked: PickedConfig, config_dir: Path, taken_names: Collection[str]
    ) -> None:
        """Files are written to `config_dir`; `taken_names` are the names of existing runs."""
        super().__init__()
        self._service = service
        self._config_dir = config_dir
        self._state = FormState(picked, taken_names)
        self._checker = Checker(service, partial(self.call_later, self._take_update))
        self._search = ""
        """Words that a field must contain to be shown."""
        self._input_use: Literal["find", "write"] = "find"
        """What the input line is used for."""
        self._num_shown = 0
        self.notices = Notices(self, self._put_notice, NOTICE_S)

    def compose(self) -> ComposeResult:
        """Header, input line, fields, side panels, keys."""
        yield LaunchHeader(id="head")
        yield LineInput("/", id="input")
        with Horizontal(id="body"):
            yield FieldsPanel(id="fields")
            with Vertical(id="sides"):
                yield FieldPanel(id="field")
                yield SummaryPanel(id="summary")
        yield KeyBar(keymap.LAUNCH, id="keys")

    def on_mount(self) -> None:
        """Starts checking the machine and the configuration."""
        self.query_one(LineInput).rest("")
        self.query_one(FieldsPanel).focus()
        self._check_machine()
        self.run_worker(self._checker.run, thread=True, group="checker")
        self._check_form()

    def on_unmount(self) -> None:
        """Stops the checking thread."""
        self._checker.stop()

    def on_resize(self, event: events.Resize) -> None:
        """Divides the width between the fields and the side panels."""
        width = event.size.width
        sides = self.query_one("#sides")
        sides.display = width >= SIDES_MIN_WIDTH
        sides.styles.width = 34 if width < 100 else min(max(width * 2 // 5, 42), 64)

    @work(thread=True, group="machine")
    def _check_machine(self) -> None:
        self.call_later(self._take_machine_error, self._service.machine_error())

    def _take_machine_error(self, error: str | None) -> None:
        """Shows whether this machine can train."""
        self._state.machine_error = error
        self._show()

    def _check_form(self) -> None:
        """Checks and draws the edited form."""
        self.notices.clear()
        self._checker.submit(self._state.on_edit())
        self._show()

    def _take_update(self, update: CheckUpdate) -> None:
        """Applies an update of the checking thread."""
        request = self._state.apply(update)
        if request is not None:
            self._checker.submit(request)
        self._show()

    # Drawing.

    def _show(self) -> None:
        """Draws the form, the summary and the header."""
        state, form = self._state, self._state.form
        by_key = {problem.key: problem.message for problem in reversed(state.problems)}
        shown = tuple(field.key for field in form.fields if self._is_found(field.key, field.doc))
        self._num_shown += 1
        self.query_one(FieldsPanel).show(FieldsPart(form, shown, by_key, self._num_shown))
        self._show_search_note(len(shown), len(form.fields))
        self._show_field(by_key)
        self.query_one(SummaryPanel).show(
            SummaryPart(
                config=state.config(),
                checked=state.result or CheckResult([], {}),
                is_checking=state.is_checking,
                is_estimating=state.is_estimating,
                command=state.command(),
                script=state.script(),
            )
        )
        self.query_one(LaunchHeader).show(state.picked, len(form.changed()), state.readiness())
        self._show_keys()

    def _show_keys(self) -> None:
        """Shows the keys of text editing while the user types, else those of the screen."""
        is_typing = self.query_one(LineInput).is_typing or self.query_one(FieldsPanel).is_editing
        self.query_one(KeyBar).show(keymap.TYPING if is_typing else keymap.LAUNCH)

    def _show_search_note(self, num_found: int, num_fields: int) -> None:
        if self._input_use == "find":
            self.query_one(LineInput).note_found(num_found, num_fields)

    def _is_found(self, key: str, doc: str) -> bool:
        text = f"{key} {doc}".lower()
        return all(word in text for word in self._search.lower().split())

    def _show_field(self, by_key: dict[str, str]) -> None:
        key = self.query_one(FieldsPanel).cursor
        if not key:
            return
        form = self._state.form
        field = form.field(key)
        original = format_value(field, form.original(key))
        self.query_one(FieldPanel).show(FieldPart(field, by_key.get(key), original, form.is_given(key)))

    # The cursor.

    def on_fields_panel_field_reached(self) -> None:
        """Shows the documentation of the field under the cursor."""
        self._show()

    def on_fields_panel_edited(self) -> None:
        """Checks the form while the user types."""
        self._check_form()

    def action_move(self, by: int) -> None:
        """Moves the cursor by fields."""
        self.query_one(FieldsPanel).move(by)

    def action_page(self, pages: int) -> None:
        """Moves the cursor by pages."""
        panel = self.query_one(FieldsPanel)
        panel.move(pages * panel.page_rows)

    def action_table(self, by: int) -> None:
        """Moves the cursor to another table."""
        self.query_one(FieldsPanel).move_table(by)

    def action_next_problem(self) -> None:
        """Moves the cursor to the next field that is invalid or was changed."""
        panel = self.query_one(FieldsPanel)
        wanted = {problem.key for problem in self._state.problems} | set(self._state.form.changed())
        order = [field.key for field in self._state.form.fields]
        current = order.index(panel.cursor) if panel.cursor in order else 0
        for key in [*order[current + 1 :], *order[: current + 1]]:
            if key in wanted:
                self._go(key)
                return
        self.notices.show("no field is invalid or changed")

    def _go(self, key: str) -> None:
        self._find("")
        self.query_one(FieldsPanel).go(key)

    # Editing.

    def action_edit(self) -> None:
        """Starts editing the field under the cursor."""
        self.query_one(FieldsPanel).begin_edit()
        self._show_keys()

    def action_turn(self, by: int) -> None:
        """Selects the next or previous choice."""
        key = self.query_one(FieldsPanel).cursor
        if key and self._state.form.cycle(key, by):
            self._check_form()
        elif key:
            self.notices.show(f"{key}: press enter to type a value")

    def action_reset(self) -> None:
        """Restores the original value of the field."""
        key = self.query_one(FieldsPanel).cursor
        if key and (self._state.form.is_changed(key) or self._state.form.error(key) is not None):
            self._state.form.reset(key)
            self._check_form()

    # Searching fields and writing a file use the same input line.

    def action_find(self) -> None:
        """Asks for the words to search for."""
        self._open_input("find", "/", self._search)

    def action_write(self) -> None:
        """Asks for the name of the file to write."""
        if not self._state.can_be_saved:
            self.notices.show(f"not written: {self._state.problems[0].sentence}")
            return
        self._open_input("write", "write to", self._free_name())

    def _open_input(self, use: Literal["find", "write"], prompt: str, text: str) -> None:
        self._input_use = use
        line = self.query_one(LineInput)
        line.note("enter: write a new file, esc: cancel")
        line.begin(text, prompt)
        self._show()

    def _find(self, typed: str) -> None:
        """Shows only the fields that contain these words; the input line stays visible while it hides any."""
        self._input_use, self._search = "find", typed
        self.query_one(LineInput).rest(typed, "/")
        self._show()

    def take_key(self, event: events.Key) -> bool:
        """Passes keys to the input line while the user types there, whatever has the focus."""
        return self.query_one(LineInput).take_key(event)

    def on_line_input_changed(self, message: LineInput.Changed) -> None:
        """Searches while the user types."""
        message.stop()
        if self._input_use == "find":
            self._search = message.text
            self._show()

    def on_line_input_done(self, message: LineInput.Done) -> None:
        """Applies the search, or writes the file."""
        message.stop()
        self.query_one(FieldsPanel).focus()
        if self._input_use == "find":
            self._find(message.text if message.accepted else "")
            return
        self._find(self._search)
        if message.accepted:
            self._write_file(self._config_dir / message.text.strip(), message.text.strip())

    def _free_name(self) -> str:
        stem = Path(self._state.picked.choice.source).stem or "config"
        names = (f"{stem}-{number}.toml" for number in range(2, 1000))
        return next((name for name in names if not (self._config_dir / name).exists()), f"{stem}-new.toml")

    @work(thread=True, group="write")
    def _write_file(self, path: Path, name: str) -> None:
        if not name:
            self.app.call_from_thread(self.notices.show, "not written: the file name is empty")
            return
        text = document(self._state.form.tables(), [f"From {self._state.form.source}."])
        try:
            files.write(path, lambda file: file.write(text.encode()), replace=False, only_owner=False)
        except FileExistsError:
            notice = f"{name} already exists; press ctrl+o to choose another name"
        except (OSError, ValueError) as error:
            notice = f"cannot write {name}: {getattr(error, 'strerror', None) or error}"
        else:
            notice = f"written to {name}; run it with `tputui run {shlex.quote(name)}`"
        self.app.call_from_thread(self.notices.show, notice)

    # Starting and leaving.

    def action_start(self) -> None:
        """Starts the run, or shows what prevents it."""
        readiness = self._state.readiness()
        if readiness.state == "invalid":
            self.notices.show(f"not started: {readiness.message}")
            problems = [problem.key for problem in self._state.problems if problem.key]
            if problems and problems[0] in {field.key for field in self._state.form.fields}:
                self._go(problems[0])
        elif readiness.state != "starting":
            self._state.is_starting = True
            self.notices.clear()
            self._show()
            self._do_start(self._state.launch())

    @work(thread=True, group="start")
    def _do_start(self, launch: Launch) -> None:
        try:
            result: Path | LaunchError = self._service.start(launch)
        except LaunchError as error:
            result = error
        self.call_later(self._take_start, result)

    def _take_start(self, result: Path | LaunchError) -> None:
        """Returns the run, or shows why it could not be started."""
        if isinstance(result, Path):
            self.dismiss(result)
            return
        self._state.fail_start(str(result))
        self._show()
        self.notices.show(f"not started: {result}")

    def action_close(self) -> None:
        """Ends a search, else leaves; asks first if changes would be lost."""
        if self._search:
            self._find("")
            return
        if self._state.is_starting:
            self.notices.show("the run is being started; you can leave as soon as its screen opens")
            return
        changed = len(self._state.form.changed())
        if not changed:
            self.dismiss(None)
            return
        fields = fmt.counted(changed, "changed field")
        self.app.push_screen(LeaveChanged(fields), self._close_as)

    def _close_as(self, wanted: Leave | None) -> None:
        if wanted == "discard":
            self.dismiss(None)
        elif wanted == "write":
            self.action_write()

    def _put_notice(self, sentence: str) -> None:
        self.query_one(LaunchHeader).tell(clean(sentence))

    def keys_in_force(self) -> Sequence[keymap.Key]:
        """The keys of this screen."""
        return keymap.LAUNCH

    def panel_descriptions(self) -> Sequence[tuple[str, str]]:
        """Nothing: this screen has no numbered panels."""
        return ()

    def action_help(self) -> None:
        """Shows the keys of this screen."""
        self.app.push_screen(HelpScreen(keymap.LAUNCH))
