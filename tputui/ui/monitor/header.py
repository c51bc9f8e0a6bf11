"""The header of the monitor: run, state, progress, pace, device, and the newest message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.diagnosis.verdict import Verdict
from tputui.state import facts
from tputui.state.run_condition import ENDED, RunCondition
from tputui.state.snapshot import PlanView, RequestState, Snapshot, hides_steps, monitored
from tputui.telemetry.events import TopologyDeclared
from tputui.ui.base import host_text, status_text
from tputui.ui.base.alarms import SLOW, Alarm, alarms_of
from tputui.ui.render.lines import Line, Span, Tone, bar, clean, crop, spread, width_of, wrap
from tputui.ui.widgets.line_widget import Drawn

AWAITED_S = 60.0
"""Seconds after the answer to a request in which it is shown before all other messages."""

_RECEIPT_TONES: dict[RequestState, Tone] = {"requested": "info", "seen": "info", "applied": "good", "refused": "warn"}

_LONG_UNITS_FROM = 100
"""Width in cells from which units have long names."""

_CHIPS: dict[Tone, Tone] = {"good": "chip_good", "warn": "chip_warn", "bad": "chip_bad", "info": "chip_info"}
"""The tone of the state, by the tone of its sign."""

_SEPARATOR = Span(" \u00b7 ", "dim")


class Behind(NamedTuple):
    """How far the moment shown is behind a live run."""

    seconds: float
    steps: int
    """Newest step of the run."""
    condition: RunCondition
    """Current condition of the run."""


class Header(Drawn):
    """Four lines about the run."""

    def __init__(self, *, read_only: bool = False, id: str | None = None) -> None:
        """`read_only` marks a view that cannot make requests."""
        super().__init__(id=id)
        self._read_only = read_only
        self._snapshot: Snapshot | None = None
        self._replaying = False
        self._notice = ""
        self._behind: Behind | None = None
        self._acknowledged: frozenset[str] = frozenset()
        """Keys of the alarms that the user hid."""
        self._verdicts: tuple[Verdict, ...] = ()
        self._is_reading = False

    def show(
        self,
        snapshot: Snapshot,
        *,
        replaying: bool,
        behind: Behind | None = None,
        verdicts: tuple[Verdict, ...] = (),
        is_reading: bool = False,
    ) -> None:
        """Draw a newer snapshot, and what slows the run down; `behind` is given if a live view shows the past,
        `is_reading` if events up to the shown moment are still being read."""
        self._verdicts, self._is_reading = verdicts, is_reading
        self._snapshot, self._replaying, self._behind = snapshot, replaying, behind
        self.redraw()

    def acknowledge(self) -> bool:
        """Hide the alarms until there are new ones; returns whether any were shown."""
        shown = _alarms_of(self._snapshot, self._verdicts) if self._snapshot is not None else []
        keys = {alarm.key for alarm in shown if alarm.key}
        fresh = keys - self._acknowledged
        self._acknowledged |= keys
        self.redraw()
        return bool(fresh)

    def show_notice(self, notice: str) -> None:
        """Show a sentence in the last line; an empty one removes it."""
        self._notice = notice
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """State, progress, pace and the newest message."""
        snapshot = self._snapshot
        if snapshot is None:
            return [[Span(" reading the run ...", "dim")]]
        state = _state_line(snapshot, width, self._role(), self._replaying)
        if self._notice or self._behind is not None:
            last = self._last_line(snapshot, width)
            return [state, _progress_line(snapshot, width), _pace_line(snapshot, width), last]
        return [state, *_progress_and_message(snapshot, width, self._acknowledged, self._unhidden(snapshot))]

    def _role(self) -> Span:
        if self._is_reading:
            return Span("reading ... ", "alert")
        if self._behind is not None:
            return Span("looking back ", "alert")
        return Span("replay " if self._replaying else "read-only " if self._read_only else "", "info")

    def _unhidden(self, snapshot: Snapshot) -> list[Alarm]:
        return [alarm for alarm in alarms_of(snapshot, self._verdicts) if alarm.key not in self._acknowledged]

    def _last_line(self, snapshot: Snapshot, width: int) -> Line:
        """A notice, or which moment is shown; the alarms stay beside it, in short if there is no room."""
        if self._notice:
            left: Line = [Span(f" \u276f {self._notice}", "info")]
        else:
            left = _banner(self._behind, snapshot) if self._behind is not None else []
        listed = self._unhidden(snapshot)
        if not listed:
            return left
        right: Line = [Span(f"  \u25b2 {alarm.text}", "warn") for alarm in listed]
        if width_of([*left, *right]) > width:
            right = [Span(f"  \u25b2 {fmt.counted(len(listed), 'alarm')}", "warn")]
        return spread(left, [*right, Span(" ")], width) if width_of([*left, *right]) < width else left


def _progress_and_message(
    snapshot: Snapshot, width: int, acknowledged: frozenset[str], listed: list[Alarm]
) -> list[Line]:
    """Progress, pace and message. A long reason why a run ended replaces the pace, so that it is shown whole."""
    progress, pace = _progress_line(snapshot, width), _pace_line(snapshot, width)
    message = _message_line(snapshot, acknowledged, listed, width)
    if snapshot.condition in ENDED and width_of(message) > width:
        # The diagnosis panel has what slowed the run down; the pace has no other place.
        listed = [alarm for alarm in listed if not alarm.key.startswith(SLOW)]
        message = _message_line(snapshot, acknowledged, listed, width)
    if snapshot.condition not in ENDED or (snapshot.plan is not None and width_of(message) <= width):
        return [progress, pace, message]
    tone = status_text.sign_of(snapshot.condition, snapshot.num_non_finite).tone
    first, second = _halved(clean(snapshot.condition_reason), width - 2)
    reason, alarms = [Span(f" {first}", tone)], _alarms(snapshot, listed, width)
    return (
        [reason, [Span(f" {second}", tone)], alarms]
        if snapshot.plan is None
        else [progress, reason, [*alarms, Span(second, tone)]]
    )


def _halved(text: str, width: int) -> tuple[str, str]:
    """The part of a text that fits, and the rest."""
    first = wrap(text, width, 1)[0]
    return first, text[len(first) :].lstrip()


def _banner(behind: Behind, snapshot: Snapshot) -> Line:
    """Which past moment is shown, and the key that returns to now."""
    moment = (
        f" \u25c2 viewing {status_text.seconds(behind.seconds)} ago (step {snapshot.steps:,} of {behind.steps:,})  "
    )
    key = Span("b", "strong")
    if behind.condition not in ENDED:
        return [Span(moment, "alert"), key, Span(": live, the run continues", "label")]
    ended = status_text.CONDITIONS[behind.condition]
    state = Span(f"run {ended.word}  ", ended.tone)
    return [Span(moment, "alert"), state, key, Span(": to the end", "label")]


def _state_line(snapshot: Snapshot, width: int, role: Span, replaying: bool) -> Line:
    """Name, state and age; a long name is cut."""
    sign = status_text.sign_of(snapshot.condition, snapshot.num_non_finite)
    non_finite = " NaN" if sign != status_text.CONDITIONS[snapshot.condition] else ""
    state = Span(f" {sign.mark} {sign.word}{non_finite} ", _CHIPS.get(sign.tone, sign.tone))
    name = Span(f" {clean(snapshot.run)} ", "strong")
    right: Line = [role, *_age(snapshot, replaying, short=False)]
    if width_of([name, state, *right]) >= width:
        right = [role, *_age(snapshot, replaying, short=True)]
        name = name._replace(text=crop(name.text.rstrip(), max(width - width_of([state, *right]) - 3, 8)) + " ")
    left: Line = [name, state]
    if snapshot.condition not in ENDED:
        left.append(Span(f" {_doing(snapshot, width - width_of([*left, *right]) - 2)}", "plain"))
    elif snapshot.exit_code and snapshot.command_exit_code is None:
        # That of a user's command is in the reason below; ours beside it would be mistaken for it.
        left.append(Span(f" exit code {snapshot.exit_code}", "plain"))
    size = _size(snapshot.topology)
    return spread([*left, *size] if width_of([*left, *size, *right]) < width else left, right, width)


def _size(topology: TopologyDeclared | None) -> Line:
    """The hosts and their cores, if there are several hosts."""
    if topology is None or topology.num_hosts < 2:
        return []
    return [
        Span("  "),
        Span(f" {host_text.size_of(topology.num_hosts, topology.num_cores, topology.device)} ", "chip_info"),
    ]


def _doing(snapshot: Snapshot, room: int) -> str:
    """The phase with its age; in a narrow terminal the phase is one word, because the age matters more."""
    phase, phase_s = snapshot.phase, snapshot.phase_s
    short = status_text.phase_in_short(phase, phase_s)
    # The condition beside it is STARTING already.
    short = short.replace("starting", "preparing") if phase == "starting" else short
    return next((text for text in (status_text.phase_with_age(phase, phase_s), short) if len(text) <= room), "")


def _age(snapshot: Snapshot, replaying: bool, *, short: bool) -> Line:
    if snapshot.newest_fact is None:
        return [Span("no data yet ", "dim")]
    if snapshot.condition in ENDED and snapshot.started is not None:
        over = snapshot.ended or snapshot.newest_fact
        ago = f", ended {fmt.age(snapshot.now - over)} ago" if snapshot.now - over >= 1 else ""
        return [Span(f"took {facts.DURATION.text(snapshot)}{ago} ", "label")]
    age = max(snapshot.now - snapshot.newest_fact, 0.0)
    late = age > 10 and not replaying
    text = f"{status_text.age(age)} old " if short else f"updated {status_text.age(age)} ago "
    return [Span(text, "warn" if late else "dim")]


def _progress_line(snapshot: Snapshot, width: int) -> Line:
    plan = snapshot.plan
    if plan is None or not plan.total_steps:
        is_training = snapshot.condition == "running" and (snapshot.steps > 0 or hides_steps(snapshot))
        return _steps_so_far(snapshot) if is_training else [Span(f" {clean(snapshot.condition_reason)}", "dim")]
    left: Line = [
        Span(" epoch ", "label"),
        Span(fmt.epoch_of(snapshot.epoch, plan.num_epochs), "strong"),
        Span("  step ", "label"),
        Span(f"{snapshot.steps:,}/{plan.total_steps:,}", "strong"),
        Span("  "),
    ]
    share = snapshot.steps / plan.total_steps if plan.total_steps else 0.0
    right: Line = [Span(f"  {fmt.percent(int(share * 100))}", "strong")]
    if snapshot.condition not in ENDED:
        has_steps = snapshot.eta_s is not None
        eta = status_text.seconds(snapshot.eta_s) if snapshot.eta_s is not None else "not known yet"
        right += [Span("  ETA ", "label"), Span(eta, "strong" if has_steps else "dim")]
    right.append(Span(" "))
    if not snapshot.epoch or width_of([*left, *right]) > width:
        left = left[2:]
    return [*left, *bar(share, width - width_of(left) - width_of(right)), *right]


def _steps_so_far(snapshot: Snapshot) -> Line:
    """The progress of a run that did not report how many steps it will take."""
    line: Line = [Span(" step ", "label"), Span(f"{snapshot.steps:,}" if snapshot.steps else "not known", "strong")]
    if snapshot.epoch:
        num_epochs = snapshot.plan.num_epochs if snapshot.plan is not None else 0
        line += [Span("  epoch ", "label"), Span(fmt.epoch_of(snapshot.epoch, num_epochs), "strong")]
    return line


def _pace_line(snapshot: Snapshot, width: int) -> Line:
    """Pace, learning rate and best metric, then device and batch; without the last of them if there is no room."""
    pace: list[Line] = []
    if step_time := facts.STEP_TIME.text(snapshot):
        pace.append([Span(step_time.removesuffix("/step"), "strong"), Span("/step", "label")])
    if speed := facts.SPEED.text(snapshot):
        number, _, unit = speed.partition(" ")
        unit = unit if width >= _LONG_UNITS_FROM else "ex/s"
        pace.append([Span(number, "strong"), Span(f" {unit}", "label")])
    if rate := facts.LEARNING_RATE.text(snapshot):
        pace.append([Span("lr ", "label"), Span(rate, "strong")])
    best = _best(snapshot)
    fixed = _device(snapshot.topology, snapshot.plan) if snapshot.topology is not None else []
    if snapshot.plan is not None and snapshot.plan.global_batch:
        fixed.append(_batch(snapshot.plan, snapshot.topology))
    parts = [*pace, *best, *fixed]
    used = width_of(_separated(parts))
    while len(parts) > len(pace) and used > width:
        used -= width_of([_SEPARATOR, *parts.pop()])
    return _separated(parts)


def _separated(parts: list[Line]) -> Line:
    line: Line = [Span(" ")]
    for index, part in enumerate(parts):
        line += [_SEPARATOR, *part] if index else part
    return line


def _best(snapshot: Snapshot) -> list[Line]:
    """The best value of the validation metric that chooses the best epoch."""
    value = facts.BEST_VALUE.text(snapshot)
    if not value:
        return []
    label = Span(f"\u2605 best valid {clean(monitored(snapshot.config, snapshot.epochs))} ", "good")
    return [[label, Span(value, "strong"), Span(f" (epoch {facts.BEST_EPOCH.text(snapshot)})", "dim")]]


def _device(topology: TopologyDeclared, plan: PlanView | None) -> list[Line]:
    """The cores of one host, and how they are used; facts that do not change are dim."""
    if topology.device == "unknown" and topology.num_hosts < 2:
        return [[Span(fmt.counted(topology.num_cores, "core"), "dim")]]
    precision = clean(plan.precision) if plan is not None else ""
    how = " ".join(filter(None, (clean(fmt.strategy(topology.strategy)), precision)))
    strategy: list[Line] = [[Span(how, "dim")]] if how else []
    if topology.num_hosts > 1:
        return strategy  # hosts and cores are in the first line
    return [[Span(fmt.counted(topology.num_cores, f"{clean(topology.device)} core"), "dim")], *strategy]


def _batch(plan: PlanView, topology: TopologyDeclared | None) -> Line:
    cores = topology.num_cores if topology is not None else max(plan.global_batch // max(plan.batch_per_core, 1), 1)
    return [Span(f"batch {plan.batch_per_core}/core x {cores:,} = {plan.global_batch:,}", "dim")]


def _message_line(snapshot: Snapshot, acknowledged: frozenset[str], listed: list[Alarm], width: int) -> Line:
    """A recent receipt, then the alarms, then the condition or the newest event.

    Alarms stay until they are hidden, so the newest checkpoint has a place of its own at the right if they take the
    room of its line.
    """
    alarms = _alarms(snapshot, listed, width)
    if snapshot.condition in ENDED:
        sign = status_text.sign_of(snapshot.condition, snapshot.num_non_finite)
        return [*alarms, Span(clean(snapshot.condition_reason), sign.tone)]
    receipts = _receipt(snapshot, acknowledged)
    if receipts and _is_awaited(snapshot):
        left = [Span(" "), *receipts, Span(" ")]
        return [*left, *_alarms(snapshot, listed, width - width_of(left))]
    saved = _newest_checkpoint(snapshot)
    news = receipts or _news(snapshot, acknowledged) or saved
    line = [*alarms, *news]
    if not snapshot.checkpoints or (news == saved and (len(alarms) == 1 or width_of(line) <= width)):
        return line
    right = [Span(f"  saved step {snapshot.checkpoints[-1].step:,} ", "dim")]
    alarms = _alarms(snapshot, listed, width - width_of(right))
    line = [*alarms, *news]
    return spread(alarms if news == saved else line, right, width)


def _alarms(snapshot: Snapshot, listed: list[Alarm], width: int) -> Line:
    """The alarms, in short if that shows more of them; of those without room only the number."""
    forms = [alarm.text for alarm in listed], [alarm.short for alarm in listed]
    _, shown = max((_counted(texts, width - 1) for texts in forms), key=lambda counted: counted[0])
    line: Line = [Span(" "), *shown]
    can_hide = any(alarm.key for alarm in listed) and snapshot.condition not in ENDED
    hint = Span("esc hides  ", "dim")
    return [*line, hint] if can_hide and width_of([*line, hint]) <= width else line


def _counted(texts: Sequence[str], width: int) -> tuple[int, Line]:
    """How many alarms fit, at least one; these alarms and the number of the others."""
    shown: Line = [Span(f"\u25b2 {text}  ", "warn") for text in texts]
    more: Line = []
    while len(shown) > 1 and width_of([*shown, *more]) > width:
        shown.pop()
        more = [Span(f"+{len(texts) - len(shown)} more  ", "warn")]
    return len(shown), [*shown, *more]


def _alarms_of(snapshot: Snapshot, verdicts: tuple[Verdict, ...]) -> list[Alarm]:
    """All messages that can be hidden: alarms, the newest warning, the receipt of a completed request."""
    listed = alarms_of(snapshot, verdicts)
    if snapshot.warnings:
        listed.append(_newest_warning(snapshot))
    listed += [Alarm(f"request {r.id}", "") for r in snapshot.requests[-1:] if r.state in ("applied", "refused")]
    return listed


def _newest_warning(snapshot: Snapshot) -> Alarm:
    text = snapshot.warnings[-1]
    return Alarm(f"warning {len(snapshot.warnings)} {text}", clean(text))


def _receipt(snapshot: Snapshot, acknowledged: frozenset[str]) -> Line:
    """The state of the newest request; of a checkpoint only until a newer one is saved."""
    if not snapshot.requests or f"request {snapshot.requests[-1].id}" in acknowledged:
        return []
    newest = snapshot.requests[-1]
    saved_step = snapshot.checkpoints[-1].step if snapshot.checkpoints else 0
    if newest.kind == "checkpoint" and newest.state == "applied" and saved_step > (newest.applied_step or saved_step):
        return []
    return [Span(status_text.receipt(newest, snapshot.checkpoints), _RECEIPT_TONES[newest.state])]


def _is_awaited(snapshot: Snapshot) -> bool:
    newest = snapshot.requests[-1]
    if newest.state in ("requested", "seen"):
        return True
    return newest.answered_t is not None and snapshot.now - newest.answered_t < AWAITED_S


def _news(snapshot: Snapshot, acknowledged: frozenset[str]) -> Line:
    # Without a plan the line of the progress says it.
    if snapshot.condition == "stalled" and snapshot.plan is not None:
        return [Span(clean(snapshot.condition_reason), status_text.CONDITIONS["stalled"].tone)]
    if snapshot.warnings and (warning := _newest_warning(snapshot)).key not in acknowledged:
        return [Span(f"\u25b2 {warning.text}", "warn")]
    return []


def _newest_checkpoint(snapshot: Snapshot) -> Line:
    if not snapshot.checkpoints:
        return []
    newest = snapshot.checkpoints[-1]
    figures = f"{fmt.size(newest.bytes)}, {fmt.duration(newest.seconds)}{', best so far' if newest.best else ''}"
    return [Span(f"newest checkpoint: step {newest.step:,}, {figures}, {clean(newest.path)}", "dim")]
