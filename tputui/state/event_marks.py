"""What happened, as marks on a run's timeline: what one writer told, bounded however often it happens. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tputui import formatting as fmt
from tputui.state.downsampled import Recent
from tputui.state.snapshot import Mark, MarkKind
from tputui.telemetry.events import StepsRecorded, XlaMetricsRead

OF_A_KIND_MAX = 64
"""The newest marks of a kind that are all kept; of those before there are as many samples."""
TEXT_CHARS_MAX = 300


class Marks:
    """The marks of one writer."""

    def __init__(self) -> None:
        self.of_kind: dict[MarkKind, Recent[Mark]] = {}
        self._was_bad: set[str] = set()
        """Metrics whose newest record had values that are not finite."""

    def add(self, kind: MarkKind, t: float, step: int, text: str, core: int | None = None) -> None:
        """Puts a mark in; one without a time has no place on a timeline. Step 0 is to be told from the time."""
        if not math.isfinite(t):
            return
        if len(text) > TEXT_CHARS_MAX:
            text = f"{text[:TEXT_CHARS_MAX]} [...]"
        if kind not in self.of_kind:
            self.of_kind[kind] = Recent(OF_A_KIND_MAX)
        self.of_kind[kind].add(Mark(t=t, step=step, kind=kind, text=text, core=core))

    def note_programs(self, before: XlaMetricsRead | None, event: XlaMetricsRead, step: int) -> None:
        """Marks programs that were compiled since the counters were read before."""
        compiles = event.compiles - (before.compiles if before else 0)
        if compiles <= 0:
            return
        took = fmt.duration(max(0.0, event.compile_s - (before.compile_s if before else 0.0)))
        what = f"{compiles} program{'s' if compiles > 1 else ''} compiled"
        if event.recompiles > (before.recompiles if before else 0):
            text = f"recompile: {what} after warm-up in {took}"
            self.add("recompile", event.t, step, text)
        else:
            self.add("compile", event.t, step, f"{what} in {took}")

    def note_values(
        self, event: StepsRecorded, values: Sequence[float] | None, core_of: Callable[[int, int], int]
    ) -> None:
        """Marks where values begin to be not finite. `values`, [steps][cores], are None where they are not known."""
        if not event.bad:
            if self._was_bad:
                self._was_bad.discard(event.metric)
            return
        if event.metric in self._was_bad:
            return
        self._was_bad.add(event.metric)
        steps = f"steps {event.first} to {event.first + event.n - 1}"
        place = next((place for place, value in enumerate(values or ()) if not math.isfinite(value)), None)
        if values is None or place is None:
            text = f"{event.bad} values of {event.metric} are not finite in {steps}"
            self.add("non_finite", event.t, event.first, text)
            return
        row, column = divmod(place, event.cores)
        core, more = core_of(column, event.cores), f", one of {event.bad} values in {steps}"
        text = f"{event.metric} {fmt.number(values[place])} on core {core}{more if event.bad > 1 else ''}"
        self.add("non_finite", event.t, event.first + row, text, core)

    @property
    def count(self) -> int:
        """All of them, those that are not kept any more included."""
        return sum(kept.count for kept in self.of_kind.values())

    def fork(self) -> Marks:
        """Another one that holds the same and goes on by itself."""
        copy = Marks()
        copy.of_kind = {kind: kept.fork() for kind, kept in self.of_kind.items()}
        copy._was_bad = self._was_bad.copy()
        return copy
