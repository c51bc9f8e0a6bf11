"""What happened in a run, combined from what the writers said: checkpoints, requests, failures, lines, damage. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import islice

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
    RequestView,
    SkippedExample,
    SkippedView,
)
from tputui.state.step_values import NON_FINITE_MAX
from tputui.telemetry.events import FORMAT_VERSION

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
    return found[:NON_FINITE_MAX], sum(writer.values.num_non_finite for writer in state.writers.values())


def _core(writer: ProcessState, column: int, metric: str) -> int:
    record = writer.values.newest.get(metric)
    return writer.values.core_of(column, record.cores if record else 0)


def logs(state: RunState, most: int = LOG_LINES_SHOWN) -> list[LogLine]:
    """The newest lines by time, at most `most`. What several hosts tell alike of the tool's doings stands once."""
    lines: list[LogLine] = []
    for writer in state.in_order:
        start = max(0, len(writer.told.logs) - most)
        lines.extend(islice(writer.told.logs, start, None))
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
    newest = max((w.opened.format for w in state.writers.values() if w.opened), default=FORMAT_VERSION)
    unknown: Counter[str] = Counter()
    for writer in state.writers.values():
        unknown.update(writer.unknown)
    parts: list[str] = []
    if newest > FORMAT_VERSION:
        parts.append(f"the run is written in format {newest}, and this tputui reads up to {FORMAT_VERSION}")
    if unknown:
        kinds = ", ".join(f"{kind} ({times})" for kind, times in sorted(unknown.items()))
        parts.append(f"it holds kinds of facts that this tputui does not know: {kinds}")
    return "; ".join(parts) + "; a newer tputui shows all of it" if parts else None
