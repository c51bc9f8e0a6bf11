"""Groups of observations at one line of the user's code, and their bounds: the parts of the evidence."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Annotated, Self

import msgspec
from msgspec.structs import replace

from tputui.state.state_struct import Count
from tputui.telemetry import events as ev
from tputui.telemetry.events import INT_MAX, T_MAX

CHANGES_MAX = 4
"""Changed inputs stored for a line: those of the newest compilations."""
STATES_KEPT = 8
"""States of the inputs that are told apart for a line."""
SETTLES_STEPS = 2
"""Steps in which a program may compile twice for a state: the first may create what the second uses."""
REDEFINED = "the function itself"
"""Name of the change if the program is another function of the same name. Each of them is a state of its own."""
_TEXT_MAX, PATH_MAX = 200, 1_000
TOO_MANY = "too many different lines"

Seconds = Annotated[float, msgspec.Meta(ge=0, le=T_MAX)]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's code, or why it is not known."""

    file: str
    """Path of the source file; empty if the line is not known."""
    line: int
    """Line number; 0 if it is not known."""
    function: str
    """Name of the function."""
    reason: str | None
    """Why the line is not known; null if it is."""
    code: str = ""
    """The text of the line; empty if it is not known."""

    @classmethod
    def of(cls, frame: ev.CodeFrame | None, reason: str | None) -> Line:
        """The line of a frame, with bounded texts."""
        if frame is None or frame.line <= 0:
            return cls(file="", line=0, function="", reason=short(reason or "not recorded"))
        return cls(
            file=frame.file[-PATH_MAX:],
            line=min(frame.line, INT_MAX),
            function=short(frame.function),
            reason=None,
            code=frame.code[:PATH_MAX],
        )


class CompileGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Compilations of one program at one line, for one cause."""

    runtime: ev.Runtime
    program: str
    cause: ev.CompileCause
    warm_up: bool
    line: Line
    count: Count
    seconds: Seconds
    """Time inside the compiler, of the compilations whose time is known."""
    num_timed: Count
    """Compilations whose time is known."""
    num_cached: Count
    """Compilations that a persistent cache answered."""
    first_step: Count
    """Step of the first one; 0 if the process reports no steps."""
    last_step: Count
    num_epochs: Count
    """Epochs in which it was compiled."""
    last_epoch: Count
    changes: list[ev.ChangedInput] | None
    """Different changed inputs, newest first; null if they were not compared."""
    total: Count = 0
    """Compilations in all processes together; the other numbers are those of the process that lost most."""
    states: Annotated[dict[str, Count], msgspec.Meta(max_length=STATES_KEPT)] = {}
    """Step of the first compilation by state of the changed inputs."""
    num_unnamed: Count = 0
    """Compilations whose state is not known."""
    num_repeats: Count = 0
    """Compilations for a state that had settled."""
    num_missed: Count = 0
    """Compilations that a persistent cache did not answer."""
    cached_s: Seconds = 0.0
    """Time of those that it answered."""

    @property
    def num_states(self) -> int:
        """States for which it was compiled; each compilation whose state is not known counts as one."""
        return len(self.states) + self.num_unnamed

    @property
    def key(self) -> object:
        return self.runtime, self.program, self.cause, self.warm_up, self.line

    @property
    def weight(self) -> tuple[float, int]:
        return self.seconds, self.count

    def join(self, later: Self) -> Self:
        """Both together; `later` are compilations of the same process."""
        newest = [*(later.changes or ()), *(change for change in self.changes or () if change not in
                                            (later.changes or ()))][:CHANGES_MAX]  # fmt: skip
        added = {state: step for state, step in later.states.items() if state not in self.states}
        again = [(step, self.states[state]) for state, step in later.states.items() if state in self.states]
        settled = [step for step, first in again if not 0 < step <= first + SETTLES_STEPS]
        room = STATES_KEPT - len(self.states)
        return replace(
            later,
            states={**self.states, **dict(list(added.items())[:room])},
            num_unnamed=add(add(self.num_unnamed, later.num_unnamed), max(0, len(added) - room)),
            num_repeats=add(add(self.num_repeats, later.num_repeats), len(settled)),
            count=add(self.count, later.count),
            seconds=total(self.seconds, later.seconds),
            num_timed=add(self.num_timed, later.num_timed),
            num_cached=add(self.num_cached, later.num_cached),
            num_missed=add(self.num_missed, later.num_missed),
            cached_s=total(self.cached_s, later.cached_s),
            first_step=min(self.first_step, later.first_step),
            last_step=max(self.last_step, later.last_step),
            total=add(self.total, later.total),
            num_epochs=add(self.num_epochs, _epochs_after(self.last_epoch, later)),
            changes=newest if self.changes is not None or later.changes is not None else None,
        )

    def without_line(self) -> Self:
        return replace(self, program="", cause="unknown", line=no_line(TOO_MANY))


class WindowGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in windows of observed steps, of one rank or of all."""

    runtime: ev.Runtime
    count: Count
    steps: Count
    """Steps in the windows."""
    window_s: Seconds
    rank: int | None = None
    """Rank of the core at which it was seen; null if the program has one core, or no ranks are known."""
    ranks: list[int] = []
    """All ranks at which it was seen; the numbers are those of the rank with most per observed step."""

    def join(self, later: Self) -> Self:
        return replace(
            later,
            count=add(self.count, later.count),
            steps=add(self.steps, later.steps),
            window_s=total(self.window_s, later.window_s),
        )


class CallGroup(WindowGroup, frozen=True, kw_only=True):
    """Calls at one line for which the host waited, in the windows in which they were seen."""

    line: Line
    observed_steps: Count = 0
    """Steps in all windows of that rank; 0 without ranks."""

    @property
    def host_s(self) -> float:
        """Time inside the calls, as far as it is known."""
        raise NotImplementedError

    @property
    def weight(self) -> tuple[float, int]:
        return self.host_s, self.count

    @property
    def of_one_rank(self) -> tuple[float, float]:
        """Orders the ranks; the one with the greatest stands for all."""
        return self.count / max(1, self.observed_steps, self.steps), self.host_s


class SyncGroup(CallGroup, frozen=True, kw_only=True):
    """Reads of values from the device at one line."""

    operation: str
    waited_s: Seconds
    each_s: Seconds
    """Time of a read in the window in which they were fastest: others may contain compilations."""
    compiled: Count
    """Reads that made the runtime compile or run a part of the step by itself."""

    @property
    def key(self) -> object:
        return self.runtime, self.operation, self.line, self.rank

    @property
    def host_s(self) -> float:
        return self.waited_s

    def join(self, later: Self) -> Self:
        return replace(
            super().join(later),
            waited_s=total(self.waited_s, later.waited_s),
            each_s=min(self.each_s, later.each_s),
            compiled=add(self.compiled, later.compiled),
        )

    def without_line(self) -> Self:
        return replace(self, operation="", line=no_line(TOO_MANY))


class FallbackGroup(CallGroup, frozen=True, kw_only=True):
    """Operations that ran on the host CPU at one line."""

    operator: str
    transfers: Count | None
    seconds: Seconds | None
    each_s: Seconds | None
    """Time of one in the window in which they were fastest: others may contain compilations."""

    @property
    def key(self) -> object:
        return self.runtime, self.operator, self.line, self.rank

    @property
    def host_s(self) -> float:
        return self.seconds or 0.0

    def join(self, later: Self) -> Self:
        """Both together; transfers and seconds are known only if they are in both."""
        are_known = self.transfers is not None and later.transfers is not None
        timed = self.seconds is not None and later.seconds is not None
        return replace(
            super().join(later),
            transfers=add(self.transfers or 0, later.transfers or 0) if are_known else None,
            seconds=total(self.host_s, later.host_s) if timed else None,
            each_s=min(self.each_s or 0.0, later.each_s or 0.0) if timed else None,
        )

    def without_line(self) -> Self:
        return replace(self, operator="", line=no_line(TOO_MANY))


class BreakGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A line at which a compiled function falls apart into several programs, or runs as Python."""

    runtime: ev.Runtime
    program: str
    line: Line
    reason: str
    """Why, as the runtime states it; empty if it gave up compiling the function."""
    limit: Count | None
    """Maximum number of programs of the function, if it gave up because of that."""
    count: Count
    """Number of compilations that broke there."""
    changes: list[ev.ChangedInput] | None
    """Inputs that differ from the most similar program."""
    in_library: bool = False
    """Whether the graph breaks in code of a library that the line calls."""

    @property
    def key(self) -> object:
        return self.runtime, self.program, self.line, self.reason

    @property
    def weight(self) -> tuple[float, int]:
        return 0.0, self.count

    def join(self, later: Self) -> Self:
        return replace(later, count=add(self.count, later.count))

    def without_line(self) -> Self:
        return replace(self, program="", reason=TOO_MANY if self.reason else "", line=no_line(TOO_MANY))


class Windows(WindowGroup, frozen=True, kw_only=True):
    """The windows in which the hooks of a runtime were armed; of all ranks, those of the rank with most steps."""

    steady_step_s: Seconds | None
    """Wall time of a step without the hooks, by the newest window that has it."""
    device: str = ""
    """Type of the devices in the newest window; empty if it is not known."""

    @property
    def key(self) -> object:
        return self.runtime, self.rank

    @property
    def weight(self) -> tuple[float, int]:
        return self.window_s, self.steps

    def join(self, later: Self) -> Self:
        joined = super().join(later)
        return joined if later.steady_step_s is not None else replace(joined, steady_step_s=self.steady_step_s)

    @property
    def of_one_rank(self) -> tuple[float, float]:
        """Orders the ranks; the one with the greatest stands for all."""
        return self.steps, self.window_s

    def without_line(self) -> Self:
        return self


def state_of(changes: Sequence[ev.ChangedInput] | None) -> str:
    """Identifies the state of the inputs that changed; empty if it is not known."""
    if not changes or any(change.name == REDEFINED for change in changes):
        return ""
    return f"{zlib.crc32(repr(sorted((change.name, change.now) for change in changes)).encode()):08x}"


def _epochs_after(epoch: int, group: CompileGroup) -> int:
    """Epochs of a group without the one that it shares with an earlier group, which ended in `epoch`."""
    since = group.last_epoch - epoch
    return min(group.num_epochs, since) if since >= 0 else group.num_epochs  # a script may count epochs anew


def no_line(reason: str) -> Line:
    return Line(file="", line=0, function="", reason=reason)


def is_duration(seconds: float | None) -> bool:
    """Whether a duration is possible; None is one that is not known."""
    return seconds is None or 0.0 <= seconds <= T_MAX


def add(left: int, right: int) -> int:
    return min(left + right, INT_MAX)


def total(left: float, right: float) -> float:
    return min(left + right, T_MAX)


def short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."
