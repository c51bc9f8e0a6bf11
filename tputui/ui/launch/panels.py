"""The header of the launcher and the panels beside the fields: help on one field, and the summary of the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from textual import events
from textual.message import Message

from tputui import config
from tputui import formatting as fmt
from tputui.check_result import CheckResult
from tputui.config import RunConfig, ScriptConfig
from tputui.config.tables import field_docs
from tputui.ui.base.export import Figure, Figures
from tputui.ui.launch.field_values import Field, describe_type, format_value
from tputui.ui.launch.form import Form, FormReadiness, PickedConfig, State
from tputui.ui.render.lines import Line, Span, Tone, bar, cells_of, clean, crop, fit, spread, width_of, wrap
from tputui.ui.terminal.themes import key_names
from tputui.ui.widgets.line_widget import Drawn, EditedText, press, spans
from tputui.ui.widgets.panel import Drawing, ListPanel, Panel

_SIGNS: dict[State, tuple[str, Tone]] = {
    "checking": ("\u2026", "info"),
    "invalid": ("\u2716", "bad"),
    "ready": ("\u2714", "good"),
    "starting": ("\u25cc", "info"),
}
_NAME_WIDTH = 8


class LaunchHeader(Drawn):
    """Where the configuration comes from, and whether the run can be started."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picked: PickedConfig | None = None
        self._num_changed = 0
        self.readiness = FormReadiness("checking", "Validating")
        """The readiness that is displayed."""
        self._notice = ""

    def show(self, picked: PickedConfig, num_changed: int, readiness: FormReadiness) -> None:
        """Updates the header."""
        self._picked, self._num_changed, self.readiness = picked, num_changed, readiness
        self.redraw()

    def tell(self, notice: str) -> None:
        """Shows a notice in place of the readiness; an empty one removes it."""
        self._notice = notice
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """Two lines."""
        sign, tone = _SIGNS[self.readiness.state]
        second: Line = [Span(f" {sign} ", tone), Span(clean(self.readiness.message), tone)]
        if self._notice:
            second = [Span(f" {self._notice}", "info")]
        changed = f"{self._num_changed} changed " if self._num_changed else ""
        return [spread(self._title(), [Span(changed, "accent")], width), fit(second, width)]

    def _title(self) -> Line:
        title = Span(" new run ", "strong")
        if self._picked is None:
            return [title]
        choice, resume = self._picked
        if choice.kind == "run":
            origin = "resumes the last checkpoint of" if resume else "with the configuration of"
            return [title, Span(f"{origin} {clean(choice.path.name)}", "label")]
        return [title, Span(f"from {clean(choice.name)}", "label")]


class FieldPart(NamedTuple):
    """The input of `FieldPanel`."""

    field: Field
    error: str | None
    original: str
    """Text of the value before any edit."""
    is_given: bool
    """Whether that value is from the file."""


class FieldPanel(Panel[FieldPart]):
    """The documentation of the field under the cursor."""

    can_focus = False
    key = ""
    name_shown = "field"
    what = "documentation, type and default of the field under the cursor"

    def draw(self, part: FieldPart, width: int, height: int) -> Drawing:
        """The error first, then the documentation."""
        field = part.field
        rows = [*_wrapped(f"\u2716 {part.error}", width, "bad"), []] if part.error is not None else []
        rows += _wrapped(field.doc or "No documentation.", width, "plain")
        rows += [[], *_wrapped(describe_type(field.schema), width, "label")]
        if field.default is not None and field.known:
            rows += _wrapped(f"Default: {format_value(field, field.default) or 'empty'}", width, "label")
        if part.is_given:
            rows += _wrapped(f"From file: {part.original or 'empty'}", width, "label")
        return Drawing(rows, note=clean(field.key))


class SummaryPart(NamedTuple):
    """The input of `SummaryPanel`."""

    config: RunConfig | None
    """None while the form is invalid."""
    checked: CheckResult
    is_checking: bool
    is_estimating: bool
    """Whether the memory estimate is still to come."""
    command: str | None
    """The equivalent command line."""
    script: ScriptConfig | None = None
    """The command of the user that is run instead of the engine."""


class SummaryPanel(Panel[SummaryPart]):
    """What follows from the configuration: cores, batch, learning rate, steps, memory."""

    can_focus = False
    key = ""
    name_shown = "summary"
    what = "cores, batch, learning rate, steps and memory of the run"

    def draw(self, part: SummaryPart, width: int, height: int) -> Drawing:
        """The summary, and the equivalent command below it."""
        rows = _summary(part, width)
        if part.command is not None:
            rows += [[], [Span(" equivalent command", "label")], *_wrapped(part.command, width, "info")]
        return Drawing(rows, note="validating" if part.is_checking else "")


def _summary(part: SummaryPart, width: int) -> list[Line]:
    """The most important values first, since a small terminal shows few lines."""
    if part.script is not None:
        return _script(part.script, width)
    if part.config is None:
        return _wrapped("Fix the errors to see the summary.", width, "dim")
    config, facts = part.config, part.checked.facts
    waiting = "\u2026" if part.is_checking else fmt.UNKNOWN
    rows = _cores(config, facts, waiting, width)
    epoch = facts.get("steps_per_epoch")
    unknown = "known once the task runs" if facts else waiting
    rows += _fact("epoch", f"{epoch:,} steps" if epoch is not None else unknown, width)
    total, epochs = facts.get("total_steps"), fmt.counted(config.epochs, "epoch")
    rows += _fact("total", f"{total:,} steps, {epochs}" if total is not None else epochs, width)
    rows += _memory(part, width)
    if facts.get("train_examples") is not None:
        examples = f"{facts['train_examples']:,} train, {facts['valid_examples']:,} valid examples"
        rows += _fact("data", examples, width)
    if facts.get("device_reason"):
        rows += _fact("no TPU" if facts.get("device") != "TPU" else "", str(facts["device_reason"]), width, "dim")
    return rows


def _script(script: ScriptConfig, width: int) -> list[Line]:
    rows = _fact("runs", shlex.join(script.command), width)
    rows += _fact("in", script.cwd or "the current directory", width)
    rows += _fact("sets", ", ".join(script.env), width) if script.env else []
    grace = fmt.duration(script.stop_grace_s)
    first = "SIGTERM or SIGINT" if script.stop_signal == "auto" else script.stop_signal
    return rows + _fact("stop", f"{first}, then SIGTERM after {grace}, then SIGKILL", width)


def _cores(config: RunConfig, facts: Mapping[str, Any], waiting: str, width: int) -> list[Line]:
    """Cores, batch and learning rate. Only the engine knows how many cores "all" means."""
    strategy = config.device.strategy
    if config.device.cores == "all":
        num_cores = facts.get("num_cores")
        if num_cores is None:
            rows = _fact("on", f"all cores, {strategy}", width) + _fact("batch", waiting, width)
            return rows + _fact("lr", waiting, width)
        config = config.on_cores(num_cores)
    cores = f"core{'' if config.num_cores == 1 else 's'}, {strategy}"
    rows = _fact("on", f"{config.num_cores:,} {facts.get('device', '')} {cores}".replace("  ", " "), width)
    if facts.get("device_warning"):
        rows += _fact("", str(facts["device_warning"]), width, "warn")
    batch = f"{config.batch_per_core:,} x {config.num_cores:,} = {config.global_batch:,} per step"
    accumulate = config.optim.accumulate
    more = f", x {accumulate:,} = {config.global_batch * accumulate:,} per update" if accumulate > 1 else ""
    rows += _fact("batch", batch + more, width)
    return rows + _fact("lr", fmt.ruled_rate(config.scaled_lr, config.lr_rule), width)


def _memory(part: SummaryPart, width: int) -> list[Line]:
    core = part.checked.memory
    if core is None:
        reason = "Estimating memory \u2026" if part.is_estimating else part.checked.memory_why or fmt.UNKNOWN
        return _fact("memory", reason, width, "dim")
    rows = _fact("memory", f"about {fmt.size(core.total_bytes)} per core", width)
    if core.limit_bytes is None:
        return rows + _fact("", core.limit, width, "dim")
    share = core.total_bytes / max(core.limit_bytes, 1)
    tone: Tone = "bad" if share > 1 else "warn" if share > 0.9 else "accent"
    limit = f" of {fmt.size(core.limit_bytes)}"
    room = max(width - _NAME_WIDTH - 2 - len(limit), 4)
    rows.append([Span(" " * (_NAME_WIDTH + 1)), *bar(share, room, tone), Span(limit, "label")])
    return rows + (_fact("", "exceeds the memory of a core: training would fail", width, "bad") if share > 1 else [])


def _fact(name: str, value: str, width: int, tone: Tone = "plain") -> list[Line]:
    first, *continued = wrap(clean(value), max(width - _NAME_WIDTH - 2, 8))
    rows: list[Line] = [[Span(f" {name:<{_NAME_WIDTH}}", "label"), Span(first, tone)]]
    return rows + [[Span(" " * (_NAME_WIDTH + 1)), Span(piece, tone)] for piece in continued]


def _wrapped(text: str, width: int, tone: Tone) -> list[Line]:
    return [[Span(" "), Span(piece, tone)] for piece in wrap(clean(text), max(width - 2, 8))]


_MARKS = 4
_FIELD_NAME_WIDTH = 18
_MIN_NOTE_WIDTH = 12
_MIN_DOC_WIDTH = 26
"""Narrower notes do not show documentation."""
NOT_SET = "not set"
_SCREEN_KEYS = " /?"
"""Characters that do not start a value: they cycle choices, search fields and open the help."""


class FieldsPart(NamedTuple):
    """The input of `FieldsPanel`."""

    form: Form
    keys: tuple[str, ...]
    """The fields to show."""
    problems: Mapping[str, str]
    """Error message by key."""
    version: int
    """Changes whenever the form does, as the form is mutable."""


class FieldsPanel(ListPanel[FieldsPart]):
    """The fields, grouped by table."""

    name_shown = "settings"
    what = "the fields of the configuration"

    class Edited(Message):
        """The text of a field changed."""

    class FieldReached(Message):
        """The cursor is on another field."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cursor = ""
        self._edited: EditedText | None = None
        self._before: Mapping[str, str] = {}
        self._row_keys: list[str] = []

    @property
    def cursor(self) -> str:
        """The key of the field under the cursor."""
        return self._cursor

    def show(self, part: FieldsPart) -> None:
        """Updates the panel; the cursor stays on its field."""
        if self._cursor not in part.keys:
            self._cursor = part.keys[0] if part.keys else ""
            self.post_message(self.FieldReached())
        super().show(part)

    def move(self, by: int) -> None:
        """Moves the cursor by fields, down if positive."""
        if self._part is None or not self._part.keys:
            return
        keys = self._part.keys
        index = keys.index(self._cursor) + by if self._cursor in keys else 0
        self.go(keys[min(max(index, 0), len(keys) - 1)])

    def move_table(self, by: int) -> None:
        """Moves the cursor to the first field of another table."""
        if self._part is None or not self._part.keys:
            return
        firsts: dict[str, str] = {}
        for key in self._part.keys:
            firsts.setdefault(self._part.form.field(key).table, key)
        tables = list(firsts)
        current = tables.index(self._part.form.field(self._cursor).table)
        self.go(firsts[tables[(current + by) % len(tables)]])

    def go(self, key: str) -> None:
        """Moves the cursor to a field and ends editing."""
        self.end_edit(kept=True)
        self._cursor = key
        self.redraw()
        self.post_message(self.FieldReached())

    @property
    def is_editing(self) -> bool:
        """Whether the user is typing into the field under the cursor."""
        return self._edited is not None

    def begin_edit(self) -> None:
        """Starts editing the field under the cursor, with the text cursor at its end."""
        if self._part is not None and self._cursor:
            self._before = self._part.form.typed()
            self._edited = EditedText.of(self._part.form.text(self._cursor))
            self.redraw()

    def end_edit(self, *, kept: bool) -> None:
        """Ends editing; unless `kept`, restores the text before it."""
        if self._edited is None or self._part is None:
            return
        self._edited = None
        if not kept:
            self._part.form.restore(self._before)
        self.redraw()
        self.post_message(self.Edited())

    def take_key(self, event: events.Key) -> bool:
        """Edits the field under the cursor; returns False for keys that are left to the screen."""
        if self._edited is None:
            return self._begin_typed(event)
        if event.key in ("enter", "escape", "up", "down", "tab", "shift+tab"):
            self.end_edit(kept=event.key != "escape")
            return event.key in ("enter", "escape")
        edited = press(self._edited, event.key, event.character)
        if edited is not None:
            self._type(edited)
        return edited is not None

    def _begin_typed(self, event: events.Key) -> bool:
        """Replaces the value of a field without choices when the user types a character on it."""
        character = event.character
        if character is None or not event.is_printable or character in _SCREEN_KEYS or self._part is None:
            return False
        if not self._cursor or self._part.form.field(self._cursor).choices:
            return False
        self._before = self._part.form.typed()
        self._type(EditedText("", 0).insert(character))
        return True

    def on_paste(self, event: events.Paste) -> None:
        """Inserts pasted text."""
        if self._edited is not None:
            event.stop()
            self._type(self._edited.insert(event.text))

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to a field; edits the one that is already under it."""
        row = self.row_at(event)
        key = self._row_keys[row] if 0 <= row < len(self._row_keys) else ""
        if key and key == self._cursor:
            self.begin_edit()
        elif key:
            self.go(key)

    def draw_rows(self, part: FieldsPart, width: int, height: int) -> list[Line]:
        """A heading for each table, a line for each field."""
        rows: list[Line] = []
        self._row_keys = []
        table = None
        names = max((cells_of(part.form.field(key).name) for key in part.keys), default=4)
        for key in part.keys:
            field = part.form.field(key)
            if field.table != table:
                rows += [[], _heading(field.table, width)] if rows else [_heading(field.table, width)]
                table = field.table
            self._row_keys += [""] * (len(rows) - len(self._row_keys))
            if key == self._cursor:
                self.cursor_row = len(rows)
            self._row_keys.append(key)
            rows.append(self._field(part, field, min(names, _FIELD_NAME_WIDTH), width))
        return rows or [[Span(" No field matches. Press esc to show all fields.", "dim")]]

    def figures(self) -> Figures:
        """The displayed fields with value and error."""
        head, part = ("key", "value", "changed", "problem"), self._part
        if part is None:
            return Figures(head, [])
        form = part.form
        rows: list[tuple[Figure, ...]] = [
            (key, form.text(key), form.is_changed(key), part.problems.get(key)) for key in part.keys
        ]
        return Figures(head, rows)

    def _type(self, edited: EditedText) -> None:
        self._edited = edited
        if self._part is not None:
            self._part.form.set(self._cursor, edited.text)
        self.redraw()
        self.post_message(self.Edited())

    def _field(self, part: FieldsPart, field: Field, names: int, width: int) -> Line:
        is_current, error = field.key == self._cursor, part.problems.get(field.key)
        changed = part.form.is_changed(field.key)
        mark = Span("\u2716 ", "bad") if error is not None else Span("\u25cf " if changed else "  ", "accent")
        line: Line = [
            Span("\u276f " if is_current else "  ", "accent"),
            mark,
            Span(crop(clean(field.name), names).ljust(names) + "  ", "strong" if is_current else "label"),
        ]
        room = width - width_of(line)
        values = max(min(24, room // 2), min(room, 12))
        if is_current and self._edited is not None:
            value = spans(self._edited, room if room < values + _MIN_NOTE_WIDTH else values)
        else:
            value = [_value(part.form, field, values, is_invalid=error is not None, changed=changed)]
        if is_current and field.choices and error is None:
            note = _choices(part.form, field, key_names(self.app, "\u2190 \u2192"))
        else:
            note = _note(part.form, field, error, changed=changed, room=room - values - 2)
        gap = " " * max(values - width_of(value), 0) + "  "
        return fit([*line, *value, Span(gap), *note], width)


def _heading(table: str, width: int) -> Line:
    if not table:
        return [Span(" the run", "title")]
    docs = field_docs(config.RunConfig) | field_docs(config.ScriptRun)
    doc = f"  {docs.get(table, '')}" if width >= 50 else ""
    return fit([Span(f" [{table}]", "title"), Span(doc, "dim")], width)


def _value(form: Form, field: Field, width: int, *, is_invalid: bool, changed: bool) -> Span:
    text = clean(form.text(field.key))
    tone: Tone = "bad" if is_invalid else "accent" if changed else "plain" if form.is_given(field.key) else "dim"
    if not text:
        return Span('""' if form.is_given(field.key) and not field.is_optional and not is_invalid else NOT_SET, tone)
    return Span(crop(text, width), tone)


def _note(form: Form, field: Field, error: str | None, *, changed: bool, room: int) -> Line:
    """The text right of a value: the error, else the original value, else the documentation."""
    if error is not None:
        return [Span(clean(error), "bad")]
    if changed:
        was = f"was {clean(format_value(field, form.original(field.key))) or NOT_SET}"
        return [Span(was, "label")] if cells_of(was) <= room else []
    return [Span(field.doc.partition(". ")[0].rstrip("."), "dim")] if room >= _MIN_DOC_WIDTH else []


def _choices(form: Form, field: Field, arrows: str) -> Line:
    line: Line = [Span(f"{arrows} ", "accent")]
    texts: Sequence[str] = [format_value(field, choice) for choice in field.choices]
    for text in texts:
        line.append(Span(f"{text} ", "strong" if text == form.text(field.key) else "dim"))
    return line
