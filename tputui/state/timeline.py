"""What happened in a run, on one timeline, combined from what the writers told. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from tputui import formatting as fmt
from tputui.state.chart_data import EpochStart, Mark, MarkKind, Segment
from tputui.state.downsampled import downsample, first_of
from tputui.state.liveness import Liveness
from tputui.state.process_log import TOOL
from tputui.state.process_state import ProcessState, Receipts
from tputui.state.reducer import RunState
from tputui.state.snapshot import (
    CheckpointView,
    DamageRegion,
    DamageView,
    LogLine,
    NonFinite,
    PicturesView,
    Plan,
    RequestView,
    SkippedExample,
    SkippedView,
)
from tputui.state.step_values import NON_FINITE_MAX
from tputui.telemetry.events import FORMAT_VERSION

ALIKE: tuple[MarkKind, ...] = ("epoch", "compile", "recompile", "checkpoint", "best")
"""What the training processes of all hosts tell alike: the first one that does is heard."""
REQUESTS_MARKED = 64


def marks(
    state: RunState, plan: Plan | None, loss: Sequence[Segment], requests: Iterable[RequestView], verdict: Liveness
) -> tuple[list[Mark], int]:
    """What happened, in order of time, and how often anything did. Of a kind that happened often not all are kept."""
    key = tuple(writer.log.marks.count for writer in state.in_order)
    told, placeless, count = state.memoized("marks", key, lambda: _told(state))
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
    return downsample([found[epoch] for epoch in sorted(found)], first_of)


def _told(state: RunState) -> tuple[list[Mark], list[Mark], int]:
    """The marks of all writers: those with a step and those without one, and how many there are in all."""
    found: dict[tuple[str, str, int], tuple[str, list[Mark]]] = {}
    heard: set[MarkKind] = set()
    count = 0
    for writer in [*state.workers, *state.ranks, *state.supervisors]:
        of_kind = writer.log.marks.of_kind
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


LOG_LINES_SHOWN = 1_000
SKIPPED_SHOWN = 100


def checkpoints(state: RunState) -> list[CheckpointView]:
    """What was saved and not removed since, oldest first; a file that several hosts told of stands once."""
    removed = {path: event.t for writer in state.in_order for path, event in writer.dropped_checkpoints.items()}
    found: dict[tuple[str, int], CheckpointView] = {}
    for writer in state.in_order:
        for event in writer.checkpoints.values():
            if removed.get(event.path, -math.inf) > event.t:
                continue
            view = CheckpointView(
                t=event.t,
                path=event.path,
                step=event.step,
                epoch=event.epoch,
                bytes=event.bytes,
                seconds=event.seconds,
                reason=event.reason,
                best=event.best,
            )
            found.setdefault((event.path, event.step), view)
    return sorted(found.values(), key=lambda view: (view.step, view.t, view.path))


def skipped(state: RunState) -> SkippedView:
    """The examples that were left out, over all hosts."""
    told = [writer.skipped[-1] for writer in state.in_order if writer.skipped]
    examples = [
        SkippedExample(split=event.split, where=event.where, why=event.why)
        for writer in state.in_order
        for event in writer.skipped[:SKIPPED_SHOWN]
    ]
    limit = max((event.limit for event in told), default=0)
    return SkippedView(count=sum(event.skipped for event in told), limit=limit, examples=examples)


def pictures(state: RunState) -> PicturesView | None:
    """The newest pictures of predictions."""
    told = [writer.pictures for writer in state.in_order if writer.pictures]
    newest = max(told, key=lambda event: (event.epoch, event.t), default=None)
    if newest is None:
        return None
    return PicturesView(epoch=newest.epoch, step=newest.step, pictures=newest.pictures, legend=newest.legend)


def requests(state: RunState, asked: Iterable[RequestView]) -> list[RequestView]:
    """Requests with the receipts of any writer, oldest first."""
    views = {view.id: view for view in asked}
    receipts: dict[str, list[Receipts]] = {}
    for writer in state.in_order:
        for request, answer in writer.receipts.items():
            receipts.setdefault(request, []).append(answer)
    for request, answers in receipts.items():
        views[request] = _with_receipts(request, views.get(request), answers)
    return sorted(views.values(), key=lambda view: (view.t, view.id))


def _with_receipts(request: str, asked: RequestView | None, answers: list[Receipts]) -> RequestView:
    seen = next((answer.seen for answer in answers if answer.seen), None)
    applied = next((answer.applied for answer in answers if answer.applied), None)
    refused = next((answer.refused for answer in answers if answer.refused), None) if applied is None else None
    first = seen or applied or refused
    assert first is not None, "receipts are made with their first answer"
    return RequestView(
        id=request,
        kind=first.kind,
        state="applied" if applied else "refused" if refused else "seen",
        t=asked.t if asked else first.t,
        by=asked.by if asked else None,
        seen_phase=seen.phase if seen else None,
        applied_step=applied.step if applied else None,
        path=applied.path if applied else None,
        why=refused.why if refused else None,
    )


def non_finite(state: RunState) -> tuple[list[NonFinite], int]:
    """The first NaN and infinite values, by step and core, and how many there are in all."""
    found = [
        NonFinite(core=_core(writer, bad.column, bad.metric), step=bad.step, metric=bad.metric, value=bad.value)
        for writer in state.in_order
        for bad in writer.values.non_finite
    ]
    found.sort(key=lambda bad: (bad.step, bad.core, bad.metric))
    return found[:NON_FINITE_MAX], sum(writer.values.num_non_finite for writer in state.processes.values())


def _core(writer: ProcessState, column: int, metric: str) -> int:
    record = writer.values.newest.get(metric)
    return writer.values.core_of(column, record.cores if record else 0)


def logs(state: RunState, most: int = LOG_LINES_SHOWN) -> list[LogLine]:
    """The newest lines by time, at most `most`. What several hosts tell alike of the tool's doings stands once."""
    lines: list[LogLine] = []
    for writer in state.in_order:
        start = max(0, len(writer.log.logs) - most)
        lines.extend(islice(writer.log.logs, start, None))
    lines.sort(key=lambda line: line.t if math.isfinite(line.t) else -math.inf)
    if len(state.workers) > 1:
        lines = _told_once(lines)
    return lines[-most:]


def _told_once(lines: list[LogLine]) -> list[LogLine]:
    said: set[str] = set()
    kept: list[LogLine] = []
    for line in lines:
        if line.source == TOOL and line.level == "info":
            if line.text in said:
                continue
            said.add(line.text)
        kept.append(line)
    return kept


def damage(state: RunState, regions: Iterable[DamageRegion]) -> DamageView:
    """What cannot be read: regions of the files, and blocks whose lines are sound and whose values are not."""
    all_regions = list(regions)
    lost = sum(region.lost_records or 0 for region in all_regions)
    for writer in state.in_order:
        for seq, why in writer.values.unreadable.items():
            reason = f"record {seq}: {why}"
            all_regions.append(DamageRegion(journal=writer.name, start=0, end=0, reason=reason, lost_records=0))
    return DamageView(regions=all_regions, lost_records=lost)


def newer_format(state: RunState) -> str | None:
    """Says so where the run was written by a newer version."""
    newest = max((w.opened.format for w in state.processes.values() if w.opened), default=FORMAT_VERSION)
    unknown: Counter[str] = Counter()
    for writer in state.processes.values():
        unknown.update(writer.unknown)
    parts: list[str] = []
    if newest > FORMAT_VERSION:
        parts.append(f"the run is written in format {newest}, and this tputui reads up to {FORMAT_VERSION}")
    if unknown:
        kinds = ", ".join(f"{kind} ({times})" for kind, times in sorted(unknown.items()))
        parts.append(f"it holds kinds of facts that this tputui does not know: {kinds}")
    return "; ".join(parts) + "; a newer tputui shows all of it" if parts else None
