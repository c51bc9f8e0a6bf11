"""Where the wall time of a training process went: sections of its loop, stalls, and what each checkpoint covers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from tputui.state.state_struct import StateStruct
from tputui.telemetry import events as ev
from tputui.telemetry.events import Phase

SAVES_MAX = 256
"""Checkpoints whose time is stored, the newest ones."""
KeyT = TypeVar("KeyT", bound=str)
WINDOW = 8
"""Reports that the pace of the sections is computed over."""
SECTIONS_MAX = 64

Seconds = Annotated[dict[str, float], msgspec.Meta(max_length=SECTIONS_MAX)]
"""Seconds by section."""

SECTION_OF: Mapping[ev.Phase, str] = {
    "data": "data",
    "tracing": "trace",
    "compiling": "compile",
    "executing": "execute",
    "reporting": "report",
    "evaluating": "evaluate",
    "saving": "save",
}
"""Section of the time since the newest measurement, by phase."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The time that was spent up to a report, or on what a checkpoint contains."""

    t: float
    """Unix time of the report, or at which the checkpoint was complete."""
    step: int
    sections_s: Seconds
    """Seconds by section since training began."""
    execute_s: float | None = None
    """Seconds that the runtime attributes to executions since the process started; None for a checkpoint, and if not
    known."""


class TimeView(msgspec.Struct, frozen=True, kw_only=True):
    """Where the wall time of a run went, from its first epoch on."""

    began: float
    """Unix time at which its first epoch began."""
    first_step: int
    """First step of that epoch that it trains."""
    until: float
    """Unix time up to which it is known: the end of training, or the moment of the snapshot."""
    sections_s: dict[str, float]
    """Seconds by section, and `stall` and `other`; their sum is `until - began`."""
    newest_s: dict[str, float]
    """Seconds by section over the newest reports, and `stall` if there was one; empty if there are fewer than two."""
    newest_wall_s: float
    """Wall time of these reports."""
    newest_steps: int
    """Steps in these reports."""
    newest_execute_s: float | None
    """Seconds of these reports that the runtime attributes to executions; None if not known."""
    saves: dict[str, Measured]
    """By path of the checkpoint."""


class TimeSpent(StateStruct):
    """The time of one process, from events that contain seconds by section."""

    began_t: float | None = None
    first_step: int = 1
    closed_s: Seconds = msgspec.field(default_factory=dict)
    """Sections of the epochs that ended."""
    running_s: Seconds = msgspec.field(default_factory=dict)
    """Sections of the running epoch at the newest measurement."""
    measured_t: float = 0.0
    stalls_s: Seconds = msgspec.field(default_factory=dict)
    """Time without progress, by the section that contains it."""
    pending_stall_s: float = 0.0
    """Stalled time that the next measurement contains."""
    saves: Annotated[dict[str, Measured], msgspec.Meta(max_length=SAVES_MAX)] = msgspec.field(default_factory=dict)
    died_t: float | None = None
    """Unix time at which the process ended that the present one replaces; None if that is accounted for."""
    restarts_s: Seconds = msgspec.field(default_factory=dict)
    """Time of former processes that is in no section: `lost` work, `restart`, and `stall`."""
    newest: Annotated[list[Measured], msgspec.Meta(max_length=WINDOW)] = msgspec.field(default_factory=list)

    def epoch_started(self, event: ev.EpochStarted) -> None:
        """An epoch begins; the sections restart."""
        if not math.isfinite(event.t):
            return
        if self.began_t is None:
            self.began_t, self.first_step = event.t, event.first_step
        self.measured_t = event.t
        if self.died_t is not None:
            self._add_restart("restart", event.t - self.died_t)
            self.died_t = None

    def restarted(self, died_t: float) -> None:
        """A process takes the place of one that ended at `died_t`."""
        if self.began_t is not None:
            self.died_t = max(died_t, self.began_t)

    def cut(self, first_step: int) -> None:
        """Work from `first_step` on is lost: training continues from the checkpoint before it."""
        if self.began_t is None or self.died_t is None:
            return
        # The process may have ended before it recorded its newest save; then the newest measurement before it counts.
        every: list[Measured] = [*self.newest, *self.saves.values()]
        earlier = [spent for spent in every if spent.step < first_step]
        kept = max(earlier, key=lambda spent: (spent.step, spent.t), default=None)
        self.closed_s = {k: s for k, s in kept.sections_s.items() if k != "stall"} if kept is not None else {}
        self._add_restart("stall", math.fsum(self.stalls_s.values()) + self.pending_stall_s)
        self.running_s, self.stalls_s, self.pending_stall_s, self.newest = {}, {}, 0.0, []
        accounted_s = math.fsum((*self.closed_s.values(), *self.restarts_s.values()))
        self._add_restart("lost", self.died_t - self.began_t - accounted_s)
        self.saves = {path: save for path, save in self.saves.items() if save.step < first_step}

    def _add_restart(self, name: str, seconds: float) -> None:
        if seconds > 0:
            self.restarts_s = {**self.restarts_s, name: self.restarts_s.get(name, 0.0) + seconds}

    def reported(self, event: ev.ProgressReported, execute_s: float | None) -> None:
        """A report with sections, and the newest `execute_s` of the runtime's counters."""
        if self._measure(event.t, event.sections_s):
            sections = self._totals()
            if stall_s := math.fsum(self.stalls_s.values()):
                sections["stall"] = stall_s
            measured = Measured(t=event.t, step=event.step, sections_s=sections, execute_s=execute_s)
            self.newest = [*self.newest, measured][-WINDOW:]

    def saved(self, event: ev.CheckpointSaved) -> None:
        if self._measure(event.t, event.sections_s):
            self.saves.pop(event.path, None)
            self.saves[event.path] = Measured(t=event.t, step=event.step, sections_s=self._totals())
            if len(self.saves) > SAVES_MAX:
                del self.saves[next(iter(self.saves))]

    def epoch_ended(self, event: ev.EpochEnded) -> None:
        if self._measure(event.t, event.sections_s):
            names = itertools.islice(dict.fromkeys((*self.closed_s, *self.running_s)), SECTIONS_MAX)
            self.closed_s = {
                name: min(self.closed_s.get(name, 0.0) + self.running_s.get(name, 0.0), ev.T_MAX) for name in names
            }
            self.running_s = {}

    def stalled(self, seconds: float) -> None:
        """The process made no progress for `seconds`."""
        if self.began_t is not None and seconds > 0:
            self.pending_stall_s += seconds

    def view(self, until: float, phase: ev.Phase | None, stalled_s: float = 0.0) -> TimeView | None:
        """The time up to a moment, if the process measures sections; `phase` is that since the newest measurement.

        `stalled_s`: the time up to that moment that is a stall which has not ended.
        """
        if self.began_t is None or not (self.closed_s or self.running_s):
            return None
        until = max(until, self.began_t)
        sections = self._totals()
        tail_s = max(0.0, until - self.measured_t) - self.pending_stall_s
        stalled_s = max(0.0, min(stalled_s, tail_s))
        tail_s -= stalled_s
        section = SECTION_OF.get(phase) if phase is not None else None
        # A script that measures no execution reports the rest of its loop as "other".
        if tail_s > 0 and section is not None and (section != "execute" or section in sections):
            sections[section] = sections.get(section, 0.0) + tail_s
        if stall_s := math.fsum(self.stalls_s.values()) + self.pending_stall_s + stalled_s:
            sections["stall"] = stall_s
        for name, seconds in self.restarts_s.items():
            sections[name] = sections.get(name, 0.0) + seconds
        rest_s = until - self.began_t - math.fsum(sections.values())
        # The clocks of events and of sections differ a little.
        remainder = "other" if rest_s + sections.get("other", 0.0) >= 0 else max(sections, key=sections.__getitem__)
        sections[remainder] = sections.get(remainder, 0.0) + rest_s
        if sections[remainder] < 0:  # the clock of the events was set back
            sections = partition({**sections, remainder: sections[remainder] - rest_s}, until - self.began_t)
        first, last = (self.newest[0], self.newest[-1]) if len(self.newest) > 1 else (None, None)
        return TimeView(
            began=self.began_t,
            first_step=self.first_step,
            until=until,
            sections_s=sections,
            newest_s=_minus(last.sections_s, first.sections_s) if first and last else {},
            newest_wall_s=max(0.0, last.t - first.t) if first and last else 0.0,
            newest_steps=last.step - first.step if first and last else 0,
            newest_execute_s=(
                last.execute_s - first.execute_s
                if first and last and last.execute_s is not None and first.execute_s is not None
                else None
            ),
            saves=dict(self.saves),
        )

    def _measure(self, t: float, sections_s: Mapping[str, float]) -> bool:
        """Takes the sections of the running epoch; returns whether there are any."""
        sections = {name: s for name, s in itertools.islice(sections_s.items(), SECTIONS_MAX) if 0 <= s <= ev.T_MAX}
        if not sections or self.began_t is None or not math.isfinite(t):
            return False
        if self.pending_stall_s:
            # The stall happened in the section that grew most.
            grown = _minus(sections, self.running_s)
            name = max(grown, key=grown.__getitem__)
            self.stalls_s = {**self.stalls_s, name: self.stalls_s.get(name, 0.0) + self.pending_stall_s}
            self.pending_stall_s = 0.0
        self.running_s, self.measured_t = sections, t
        return True

    def _totals(self) -> dict[str, float]:
        """Seconds by section since training began, without stalls."""
        names = dict.fromkeys((*self.closed_s, *self.running_s))
        sums = {name: self.closed_s.get(name, 0.0) + self.running_s.get(name, 0.0) for name in names}
        return {name: max(0.0, seconds - self.stalls_s.get(name, 0.0)) for name, seconds in sums.items()}


def _minus(later: Mapping[str, float], earlier: Mapping[str, float]) -> dict[str, float]:
    return {name: max(0.0, seconds - earlier.get(name, 0.0)) for name, seconds in later.items()}


def partition(parts: Mapping[KeyT, float], total_s: float) -> dict[KeyT, float]:
    """Parts of a time whose sum is `total_s`, in proportion; none is negative."""
    at_least_zero = {name: max(0.0, seconds) for name, seconds in parts.items()}
    sum_s = math.fsum(at_least_zero.values())
    return {name: seconds * total_s / sum_s if sum_s > 0 else 0.0 for name, seconds in at_least_zero.items()}


def lasts_s(beat: ev.HeartbeatSent, until: float) -> float:
    """Seconds that the phase of a heartbeat has lasted at the unix time `until`."""
    return beat.phase_s + max(0.0, until - beat.t)


STEPPING: frozenset[Phase] = frozenset({"data", "executing", "reporting"})
"""Phases in which steps are expected; any other may take any time."""
SILENT_S = 10.0
"""Seconds without any event that count as a stall; heartbeats are sent every second."""
STUCK_S = 30.0
"""Seconds without a step, in a phase in which steps are expected, that count as a stall ..."""
STUCK_STEPS = 20.0
"""... or this many step times, if that is longer."""
