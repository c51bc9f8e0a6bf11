"""What happened, as marks on a run's timeline: what one writer told, bounded however often it happens. Pure."""

from __future__ import annotations

import math

from tputui.model.snapshot import Mark, MarkKind
from tputui.model.thinned import Recent

OF_A_KIND_MAX = 64
"""The newest marks of a kind that are all kept; of those before there are as many samples."""
TEXT_CHARS_MAX = 300


class Marks:
    """The marks of one writer."""

    def __init__(self) -> None:
        self.of_kind: dict[MarkKind, Recent[Mark]] = {}

    def add(self, kind: MarkKind, t: float, step: int, text: str, core: int | None = None) -> None:
        """Puts a mark in; one without a time has no place on a timeline. Step 0 is to be told from the time."""
        if not math.isfinite(t):
            return
        if len(text) > TEXT_CHARS_MAX:
            text = f"{text[:TEXT_CHARS_MAX]} [...]"
        if kind not in self.of_kind:
            self.of_kind[kind] = Recent(OF_A_KIND_MAX)
        self.of_kind[kind].add(Mark(t=t, step=step, kind=kind, text=text, core=core))

    @property
    def count(self) -> int:
        """All of them, those that are not kept any more included."""
        return sum(kept.count for kept in self.of_kind.values())

    def fork(self) -> Marks:
        """Another one that holds the same and goes on by itself."""
        copy = Marks()
        copy.of_kind = {kind: kept.fork() for kind, kept in self.of_kind.items()}
        return copy
