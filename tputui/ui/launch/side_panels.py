"""The header of the launcher and the panels beside the fields: help on one field, and the summary of the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from tputui import formatting as fmt
from tputui.config import RunConfig, ScriptConfig
from tputui.telemetry.events import MemoryForecast
from tputui.ui.launch.field_values import Field, describe_type, format_value
from tputui.ui.launch.form import PickedConfig, Readiness, State
from tputui.ui.render.lines import Line, Span, Tone, bar, clean, fit, spread, wrap
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.panel import Drawing, Panel

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
        self.readiness = Readiness("checking", "Validating")
        """The readiness that is displayed."""
        self._notice = ""

    def show(self, picked: PickedConfig, num_changed: int, readiness: Readiness) -> None:
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
    facts: Mapping[str, Any]
    """`CheckResult.facts`."""
    memory: MemoryForecast | None
    memory_why: str | None
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
    config, facts = part.config, part.facts
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
    return rows + _fact("lr", f"{config.scaled_lr:g} = {config.lr_rule}", width)


def _memory(part: SummaryPart, width: int) -> list[Line]:
    core = part.memory
    if core is None:
        reason = "Estimating memory \u2026" if part.is_estimating else part.memory_why or fmt.UNKNOWN
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
    first, *rest = wrap(clean(value), max(width - _NAME_WIDTH - 2, 8))
    rows: list[Line] = [[Span(f" {name:<{_NAME_WIDTH}}", "label"), Span(first, tone)]]
    return rows + [[Span(" " * (_NAME_WIDTH + 1)), Span(piece, tone)] for piece in rest]


def _wrapped(text: str, width: int, tone: Tone) -> list[Line]:
    return [[Span(" "), Span(piece, tone)] for piece in wrap(clean(text), max(width - 2, 8))]
