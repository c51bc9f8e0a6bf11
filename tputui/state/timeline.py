"""What happened in a run, on one timeline, combined from what the writers told. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from tputui import formatting as fmt
from tputui.state.downsampled import first_of, thinned
from tputui.state.liveness import Liveness
from tputui.state.reducer import RunState
from tputui.state.snapshot import EpochStart, Mark, MarkKind, Plan, RequestView, Segment

ALIKE: tuple[MarkKind, ...] = ("epoch", "compile", "recompile", "checkpoint", "best")
"""What the training processes of all hosts tell alike: the first one that does is heard."""
REQUESTS_MARKED = 64


def marks(
    state: RunState, plan: Plan | None, loss: Sequence[Segment], requests: Iterable[RequestView], verdict: Liveness
) -> tuple[list[Mark], int]:
    """What happened, in order of time, and how often anything did. Of a kind that happened often not all are kept."""
    key = tuple(writer.told.marks.count for writer in state.in_order)
    told, placeless, count = state.remembered("marks", key, lambda: _told(state))
    others = [*placeless, *_of_requests(state, requests), *_end(state, verdict)]
    if not others:
        return told, count
    placed = _placed(others, plan, loss)
    return sorted([*told, *placed], key=lambda mark: mark.t), count + len(others) - len(placeless)


def epoch_starts(state: RunState) -> list[EpochStart]:
    """When the epochs began, each by the first host that told."""
    found: dict[int, EpochStart] = {}
    for writer in state.workers:
        for start in writer.epoch_starts.items:
            found.setdefault(start.epoch, start)
    return thinned([found[epoch] for epoch in sorted(found)], first_of)


def _told(state: RunState) -> tuple[list[Mark], list[Mark], int]:
    """The marks of all writers: those with a step and those without one, and how many there are in all."""
    found: dict[tuple[str, str, int], tuple[str, list[Mark]]] = {}
    heard: set[MarkKind] = set()
    count = 0
    for writer in [*state.workers, *state.ranks, *state.supervisors]:
        of_kind = writer.told.marks.of_kind
        for kind, kept in of_kind.items():
            if kind in heard:
                continue
            count += kept.count
            for mark in kept.items:
                said_by, same = found.setdefault((kind, mark.text, mark.step), (writer.name, []))
                if said_by == writer.name:
                    same.append(mark)
                else:
                    count -= 1  # another host has told the same, word for word
        heard.update(kind for kind in of_kind if kind in ALIKE)
    every = sorted((mark for _, same in found.values() for mark in same), key=lambda mark: mark.t)
    return [mark for mark in every if mark.step], [mark for mark in every if not mark.step], count


def _placed(found: list[Mark], plan: Plan | None, loss: Sequence[Segment]) -> list[Mark]:
    """Marks whose writer knew no step, with the step that was reported newest then."""
    times = [segment.t for segment in loss]
    before = plan.first_step - 1 if plan else 0
    placed: list[Mark] = []
    for mark in found:
        place = bisect_right(times, mark.t)
        step = mark.step or (loss[place - 1].last_step if place and mark.kind != "resume" else before)
        placed.append(msgspec.structs.replace(mark, step=step))
    return placed


def _of_requests(state: RunState, requests: Iterable[RequestView]) -> list[Mark]:
    """When something was asked, and when it was done or refused."""
    found: list[Mark] = []
    for view in list(requests)[-REQUESTS_MARKED:]:
        what = f"request to {fmt.REQUESTS[view.kind]}"
        by = f", by {view.by}" if view.by else ""
        found.append(Mark(t=view.t, step=0, kind="request", text=f"{what}{by}", core=None))
        answers = [writer.receipts[view.id] for writer in state.in_order if view.id in writer.receipts]
        applied = min((answer.applied for answer in answers if answer.applied), key=lambda event: event.t, default=None)
        if applied is not None:
            path = f": {applied.path}" if applied.path else ""
            text = f"{what}: applied after step {applied.step:,}{path}"
            found.append(Mark(t=applied.t, step=applied.step, kind="request", text=text, core=None))
            continue
        refused = next((answer.refused for answer in answers if answer.refused), None)
        if refused is not None:
            text = f"{what}: refused: {refused.why}"
            found.append(Mark(t=refused.t, step=0, kind="request", text=text, core=None))
    return [mark for mark in found if math.isfinite(mark.t)]


def _end(state: RunState, verdict: Liveness) -> list[Mark]:
    """The end of the run, where there is one."""
    step = max((worker.steps_done for worker in state.workers), default=0)
    if verdict.ended_t is not None and math.isfinite(verdict.ended_t):
        text = f"run {verdict.condition}: {verdict.reason}"
        return [Mark(t=verdict.ended_t, step=step, kind="end", text=text, core=None)]
    if verdict.condition == "lost" and state.newest_t is not None:
        text = "the last word of the run: it vanished without an end record"
        return [Mark(t=state.newest_t, step=step, kind="end", text=text, core=None)]
    return []
