"""Starting a run: every field of its configuration, checked while it is edited, and what it comes to.

The engine is asked in a thread; the screen says at every moment whether the run may be started, and why not.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen

from tputui.ui.base import keymap
from tputui.ui.help import HelpScreen
from tputui.ui.launch.checker import Checker, Told
from tputui.ui.launch.field_values import document, shown
from tputui.ui.launch.fields_panel import FieldsPanel, FieldsPart
from tputui.ui.launch.form import FormState, Picked
from tputui.ui.launch.service import Launch, LaunchError, LaunchService
from tputui.ui.launch.side_panels import ComesToPanel, ComesToPart, FieldPanel, FieldPart, LaunchHead
from tputui.ui.render.lines import clean
from tputui.ui.widgets.bars import KeyBar
from tputui.ui.widgets.dialogs import Leave, LeaveChanged
from tputui.ui.widgets.line_input import LineInput
from tputui.ui.widgets.notices import Notices

NOTICE_S = 8.0
SIDES_FROM = 60
"""Cells of the terminal from which there is room beside the fields."""


class LauncherScreen(Screen[Path | None]):
    """A configuration that is to be trained. Results in the directory of the run, or None."""

    BINDINGS = keymap.bindings(keymap.LAUNCH)
    CSS_PATH = "../launcher.tcss"

    class News(Message):
        """The checking thread knows something."""

        def __init__(self, told: Told) -> None:
            super().__init__()
            self.told = told

    class Here(Message):
        """Whether this machine can train is known."""

        def __init__(self, why_not: str) -> None:
            super().__init__()
            self.why_not = why_not

    class Started(Message):
        """The run was started, or could not be."""

        def __init__(self, run_dir: Path | None, why_not: str) -> None:
            super().__init__()
            self.run_dir, self.why_not = run_dir, why_not

    def __init__(self, service: LaunchService, picked: Picked, start: Path, taken: Collection[str]) -> None:
        """`start` is the directory that files are written to; `taken` are names that runs have already."""
        super().__init__()
        self._service = service
        self._start = start
        self._draft = FormState(picked, taken)
        self._checker = Checker(service, lambda told: self.post_message(self.News(told)))
        self._words = ""
        """What fields must have to be in sight."""
        self._asking: Literal["find", "write"] = "find"
        """What the line edit asks for."""
        self._num_shown = 0
        self.notices = Notices(self, self._put_notice, NOTICE_S)

    def compose(self) -> ComposeResult:
        """Head, fields with what stands beside them, keys."""
        yield LaunchHead(id="head")
        yield LineInput("/", id="ask")
        with Horizontal(id="body"):
            yield FieldsPanel(id="fields")
            with Vertical(id="sides"):
                yield FieldPanel(id="field")
                yield ComesToPanel(id="comes")
        yield KeyBar(keymap.LAUNCH, id="keys")

    def on_mount(self) -> None:
        """Begins to check."""
        self.query_one(LineInput).rest("")
        self.query_one(FieldsPanel).focus()
        self._look_here()
        self.run_worker(self._checker.run, thread=True, group="checker")
        self._changed()

    def on_unmount(self) -> None:
        """Stops checking."""
        self._checker.stop()

    def on_resize(self, event: events.Resize) -> None:
        """Gives the fields the greater part."""
        width = event.size.width
        sides = self.query_one("#sides")
        sides.display = width >= SIDES_FROM
        sides.styles.width = 34 if width < 100 else min(max(width * 2 // 5, 42), 64)

    @work(thread=True, group="here")
    def _look_here(self) -> None:
        self.post_message(self.Here(self._service.why_not_here() or ""))

    def on_launcher_screen_here(self, message: Here) -> None:
        """This machine can train, or cannot."""
        message.stop()
        self._draft.why_not_here = message.why_not
        self._show()

    def _changed(self) -> None:
        """Something of the form is another."""
        self.notices.clear()
        self._checker.ask(self._draft.changed())
        self._show()

    def on_launcher_screen_news(self, message: News) -> None:
        """The engine said something."""
        message.stop()
        asked = self._draft.take(message.told)
        if asked is not None:
            self._checker.ask(asked)
        self._show()

    # Drawing.

    def _show(self) -> None:
        """Draws what is true now."""
        draft, form = self._draft, self._draft.form
        by_key = {problem.key: problem.message for problem in reversed(draft.problems)}
        in_sight = tuple(field.key for field in form.fields if self._has_words(field.key, field.doc))
        self._num_shown += 1
        self.query_one(FieldsPanel).show(FieldsPart(form, in_sight, by_key, self._num_shown))
        self._note_found(len(in_sight), len(form.fields))
        self._show_field(by_key)
        verdict = draft.verdict
        self.query_one(ComesToPanel).show(
            ComesToPart(
                config=draft.config(),
                facts=verdict.facts if verdict is not None else {},
                memory=verdict.memory if verdict is not None else None,
                memory_why=verdict.memory_why if verdict is not None else None,
                is_checking=draft.is_checking,
                is_measuring=draft.is_measuring,
                command=draft.command(),
            )
        )
        self.query_one(LaunchHead).show(draft.picked, len(form.changed()), draft.readiness())
        self._show_keys()

    def _show_keys(self) -> None:
        """The keys of typing while a line is typed; else those of the screen."""
        is_typing = self.query_one(LineInput).is_typing or self.query_one(FieldsPanel).is_editing
        self.query_one(KeyBar).show(keymap.TYPING if is_typing else keymap.LAUNCH)

    def _note_found(self, num_found: int, num_fields: int) -> None:
        if self._asking == "find":
            self.query_one(LineInput).note_found(num_found, num_fields)

    def _has_words(self, key: str, doc: str) -> bool:
        text = f"{key} {doc}".lower()
        return all(word in text for word in self._words.lower().split())

    def _show_field(self, by_key: dict[str, str]) -> None:
        key = self.query_one(FieldsPanel).cursor
        if not key:
            return
        form = self._draft.form
        field = form.field(key)
        came = shown(field, form.original(key))
        self.query_one(FieldPanel).show(FieldPart(field, by_key.get(key, ""), came, form.is_given(key)))

    # The cursor.

    def on_fields_panel_moved(self) -> None:
        """Tells of another field."""
        self._show()

    def on_fields_panel_edit(self) -> None:
        """Checks what is typed."""
        self._changed()

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        self.query_one(FieldsPanel).move(by)

    def action_page(self, pages: int) -> None:
        """Moves it by nearly a screen."""
        panel = self.query_one(FieldsPanel)
        panel.move(pages * panel.page_rows)

    def action_table(self, by: int) -> None:
        """Moves it to another table."""
        self.query_one(FieldsPanel).move_table(by)

    def action_next_problem(self) -> None:
        """Moves it to the next field that is wrong or was changed."""
        panel = self.query_one(FieldsPanel)
        wanted = {problem.key for problem in self._draft.problems} | set(self._draft.form.changed())
        order = [field.key for field in self._draft.form.fields]
        here = order.index(panel.cursor) if panel.cursor in order else 0
        for key in [*order[here + 1 :], *order[: here + 1]]:
            if key in wanted:
                self._go(key)
                return
        self.notices.show("every field is as it came, and none is wrong")

    def _go(self, key: str) -> None:
        self._find("")
        self.query_one(FieldsPanel).go(key)

    # Editing.

    def action_edit(self) -> None:
        """Types into the field."""
        self.query_one(FieldsPanel).begin_edit()
        self._show_keys()

    def action_turn(self, by: int) -> None:
        """Takes a neighbour of the choice."""
        key = self.query_one(FieldsPanel).cursor
        if key and self._draft.form.turn(key, by):
            self._changed()
        elif key:
            self.notices.show(f"{key}: enter types a value")

    def action_reset(self) -> None:
        """Puts back what the field came with."""
        key = self.query_one(FieldsPanel).cursor
        if key and (self._draft.form.is_changed(key) or self._draft.form.wrong(key)):
            self._draft.form.reset(key)
            self._changed()

    # Finding a field, and writing a file: one line asks for both.

    def action_find(self) -> None:
        """Asks for words."""
        self._ask("find", "/", self._words)

    def action_write(self) -> None:
        """Asks for a file."""
        if not self._draft.is_sound:
            self.notices.show(f"nothing is written while something is wrong: {self._draft.problems[0].message}")
            return
        self._ask("write", "write to", self._free_name())

    def _ask(self, what: Literal["find", "write"], prompt: str, text: str) -> None:
        self._asking = what
        edit = self.query_one(LineInput)
        edit.note("enter writes a new file, esc does not")
        edit.begin(text, prompt)
        self._show()

    def _find(self, words: str) -> None:
        """Shows the fields that have these words, and keeps in sight that others are hidden."""
        self._asking, self._words = "find", words
        self.query_one(LineInput).rest(words, "/")
        self._show()

    def take_key(self, event: events.Key) -> bool:
        """Hands keys to the line while it is in sight, whatever has the focus."""
        return self.query_one(LineInput).take_key(event)

    def on_line_input_changed(self, message: LineInput.Changed) -> None:
        """Shows what is found as one types."""
        message.stop()
        if self._asking == "find":
            self._words = message.text
            self._show()

    def on_line_input_done(self, message: LineInput.Done) -> None:
        """Keeps the words, or writes the file."""
        message.stop()
        self.query_one(FieldsPanel).focus()
        if self._asking == "find":
            self._find(message.text if message.kept else "")
            return
        self._find(self._words)
        if message.kept:
            self._write_file(self._start / message.text.strip(), message.text.strip())

    def _free_name(self) -> str:
        stem = Path(self._draft.picked.offer.source).stem or "config"
        names = (f"{stem}-{number}.toml" for number in range(2, 1000))
        return next((name for name in names if not (self._start / name).exists()), f"{stem}-new.toml")

    @work(thread=True, group="write")
    def _write_file(self, path: Path, name: str) -> None:
        if not name:
            self.app.call_from_thread(self.notices.show, "nothing was written: it needs a name")
            return
        text = document(self._draft.form.tables(), [f"From {self._draft.form.source}."])
        try:
            # Never over another file.
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            said = f"{name} exists, and is left as it is; ctrl+o asks for another name"
        except (OSError, ValueError) as error:
            said = f"{name} cannot be written: {getattr(error, 'strerror', None) or error}"
        else:
            said = f"written to {name}; `tputui run {shlex.quote(name)}` trains it"
        self.app.call_from_thread(self.notices.show, said)

    # Starting and leaving.

    def action_start(self) -> None:
        """Starts it, unless something stands in the way."""
        readiness = self._draft.readiness()
        if readiness.state == "wrong":
            self.notices.show(f"not started: {readiness.said}")
            problems = [problem.key for problem in self._draft.problems if problem.key]
            if problems and problems[0] in {field.key for field in self._draft.form.fields}:
                self._go(problems[0])
        elif readiness.state != "starting":
            self._draft.is_starting = True
            self.notices.clear()
            self._show()
            self._do_start(self._draft.launch())

    @work(thread=True, group="start")
    def _do_start(self, launch: Launch) -> None:
        try:
            run_dir = self._service.start(launch)
        except LaunchError as error:
            self.post_message(self.Started(None, str(error)))
        else:
            self.post_message(self.Started(run_dir, ""))

    def on_launcher_screen_started(self, message: Started) -> None:
        """Hands the run over, or says why there is none."""
        message.stop()
        if message.run_dir is not None:
            self.dismiss(message.run_dir)
            return
        self._draft.failed(message.why_not)
        self._show()
        self.notices.show(f"not started: {message.why_not}")

    def action_close(self) -> None:
        """Shows all fields again; leaves where they all are shown, after a question where something would be lost."""
        if self._words:
            self._find("")
            return
        if self._draft.is_starting:
            self.notices.show("it is being started; leave once the run is on the screen, which does not end it")
            return
        changed = len(self._draft.form.changed())
        if not changed:
            self.dismiss(None)
            return
        fields = f"{changed} changed field{'' if changed == 1 else 's'}"
        self.app.push_screen(LeaveChanged(fields), self._close_as)

    def _close_as(self, wanted: Leave | None) -> None:
        if wanted == "discard":
            self.dismiss(None)
        elif wanted == "write":
            self.action_write()

    def _put_notice(self, sentence: str) -> None:
        self.query_one(LaunchHead).tell(clean(sentence))

    def keys_in_force(self) -> Sequence[keymap.Key]:
        """The keys that do something."""
        return keymap.LAUNCH

    def panels_told(self) -> Sequence[tuple[str, str]]:
        """No panel is selected here."""
        return ()

    def action_help(self) -> None:
        """Shows the keys."""
        self.app.push_screen(HelpScreen(keymap.LAUNCH))
