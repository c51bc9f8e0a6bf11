"""What stands beside the fields: the documentation of one, and what the configuration comes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tputui import formatting as fmt
from tputui.config import RunConfig
from tputui.telemetry.events import MemoryForecast
from tputui.ui.launch.field_values import Field, shown, takes
from tputui.ui.launch.form import Picked, Readiness, State
from tputui.ui.render.lines import Line, Span, Tone, bar, clean, fit, spread, wrap
from tputui.ui.widgets.line_widget import Drawn
from tputui.ui.widgets.panel import Drawing, Panel

_SIGNS: dict[State, tuple[str, Tone]] = {
    "checking": ("\u2026", "info"),
    "wrong": ("\u2716", "bad"),
    "ready": ("\u2714", "good"),
    "starting": ("\u25cc", "info"),
}


class LaunchHead(Drawn):
    """Two lines."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picked: Picked | None = None
        self._num_changed = 0
        self.readiness = Readiness("checking", "checking")
        """Whether the run may be started, as it is told."""
        self._notice = ""

    def show(self, picked: Picked, num_changed: int, readiness: Readiness) -> None:
        """Takes what is true now."""
        self._picked, self._num_changed, self.readiness = picked, num_changed, readiness
        self.redraw()

    def tell(self, sentence: str) -> None:
        """Shows a sentence in place of whether it may be started; an empty one gives the place back."""
        self._notice = sentence
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """What it begins with; whether it may be started."""
        sign, tone = _SIGNS[self.readiness.state]
        second: Line = [Span(f" {sign} ", tone), Span(clean(self.readiness.said), tone)]
        if self._notice:
            second = [Span(f" {self._notice}", "info")]
        changed = f"{self._num_changed} changed " if self._num_changed else ""
        return [spread(self._begins(), [Span(changed, "accent")], width), fit(second, width)]

    def _begins(self) -> Line:
        title = Span(" new run ", "strong")
        if self._picked is None:
            return [title]
        offer, resume = self._picked
        if offer.kind == "run":
            words = "going on from the last checkpoint of" if resume else "with the configuration of"
            return [title, Span(f"{words} {clean(offer.path.name)}", "label")]
        return [title, Span(f"from {clean(offer.name)}", "label")]


_NAME = 8


class FieldPart(NamedTuple):
    """A field, and what is known of it."""

    field: Field
    wrong: str
    original: str
    """What it came with."""
    is_given: bool
    """Whether the file says that."""


class FieldPanel(Panel[FieldPart]):
    """The documentation of the field under the cursor."""

    can_focus = False
    key = ""
    name_shown = "field"
    what = "what the field under the cursor means, and what it takes"

    def draw(self, part: FieldPart, width: int, height: int) -> Drawing:
        """What is wrong first, then what it means."""
        field = part.field
        rows = [*_wrapped(f"\u2716 {part.wrong}", width, "bad"), []] if part.wrong else []
        rows += _wrapped(field.doc or "nothing is said of it", width, "plain")
        rows += [[], *_wrapped(f"takes {takes(field.schema)}", width, "label")]
        if field.default is not None and field.known:
            rows += _wrapped(f"default {shown(field, field.default) or 'empty'}", width, "label")
        if part.is_given:
            rows += _wrapped(f"came as {part.original or 'empty'}", width, "label")
        return Drawing(rows, note=clean(field.key))


class ComesToPart(NamedTuple):
    """What the configuration comes to."""

    config: RunConfig | None
    """None while something is wrong with it."""
    facts: Mapping[str, Any]
    memory: MemoryForecast | None
    memory_why: str | None
    is_checking: bool
    is_measuring: bool
    """Whether memory is being predicted."""
    command: str
    """The command line that does the same."""


class ComesToPanel(Panel[ComesToPart]):
    """Figures that follow from the fields."""

    can_focus = False
    key = ""
    name_shown = "comes to"
    what = "what follows from the fields: batch, learning rate, steps, memory"

    def draw(self, part: ComesToPart, width: int, height: int) -> Drawing:
        """A line a figure, the command below."""
        rows = _figures(part, width)
        if part.command:
            rows += [[], [Span(" the same from a shell", "label")], *_wrapped(part.command, width, "info")]
        return Drawing(rows, note="checking" if part.is_checking else "")


def _figures(part: ComesToPart, width: int) -> list[Line]:
    """What matters most first, since a small terminal shows few lines."""
    if part.config is None:
        return _wrapped("It is told once every field is right.", width, "dim")
    config, facts = part.config, part.facts
    waiting = "\u2026" if part.is_checking else fmt.UNKNOWN
    rows = _cores(config, facts, waiting, width)
    epoch = facts.get("steps_per_epoch")
    known = "the task's own loop knows" if facts else waiting
    rows += _fact("epoch", f"{epoch:,} steps" if epoch is not None else known, width)
    total, epochs = facts.get("total_steps"), f"{config.epochs:,} epoch{'' if config.epochs == 1 else 's'}"
    rows += _fact("in all", f"{total:,} steps, {epochs}" if total is not None else epochs, width)
    rows += _memory(part, width)
    if facts.get("train_examples") is not None:
        examples = f"{facts['train_examples']:,} to train, {facts['valid_examples']:,} to validate"
        rows += _fact("data", examples, width)
    if facts.get("device_reason"):
        rows += _fact("no TPU" if facts.get("device") != "TPU" else "", str(facts["device_reason"]), width, "dim")
    return rows


def _cores(config: RunConfig, facts: Mapping[str, Any], waiting: str, width: int) -> list[Line]:
    """Cores, batch and learning rate; how many cores "all" is, the engine alone knows."""
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
    batch = f"{config.batch_per_core:,} x {config.num_cores:,} = {config.global_batch:,} a step"
    accumulate = config.optim.accumulate
    more = f", x {accumulate:,} = {config.global_batch * accumulate:,} an update" if accumulate > 1 else ""
    rows += _fact("batch", batch + more, width)
    return rows + _fact("lr", f"{config.scaled_lr:g} = {config.lr_rule}", width)


def _memory(part: ComesToPart, width: int) -> list[Line]:
    core = part.memory
    if core is None:
        why = "is being predicted \u2026" if part.is_measuring else part.memory_why or fmt.UNKNOWN
        return _fact("memory", why, width, "dim")
    rows = _fact("memory", f"about {fmt.size(core.total_bytes)} a core", width)
    if core.limit_bytes is None:
        return rows + _fact("", core.limit, width, "dim")
    share = core.total_bytes / max(core.limit_bytes, 1)
    tone: Tone = "bad" if share > 1 else "warn" if share > 0.9 else "accent"
    said = f" of {fmt.size(core.limit_bytes)}"
    room = max(width - _NAME - 2 - len(said), 4)
    rows.append([Span(" " * (_NAME + 1)), *bar(share, room, tone), Span(said, "label")])
    return rows + (_fact("", "more than a core has: training would run out of it", width, "bad") if share > 1 else [])


def _fact(name: str, value: str, width: int, tone: Tone = "plain") -> list[Line]:
    first, *rest = wrap(clean(value), max(width - _NAME - 2, 8))
    rows: list[Line] = [[Span(f" {name:<{_NAME}}", "label"), Span(first, tone)]]
    return rows + [[Span(" " * (_NAME + 1)), Span(piece, tone)] for piece in rest]


def _wrapped(text: str, width: int, tone: Tone) -> list[Line]:
    return [[Span(" "), Span(piece, tone)] for piece in wrap(clean(text), max(width - 2, 8))]
