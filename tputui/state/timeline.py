"""What happened in a run, combined from all processes: timeline marks, checkpoints, requests, log lines, damage."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from tputui import formatting as fmt
from tputui.state.chart_data import AlertView, Mark, MarkKind, NonFinite, Segment
from tputui.state.liveness import Liveness
from tputui.state.process_log import TOOL
from tputui.state.process_state import Receipts
from tputui.state.reducer import RunState
from tputui.state.snapshot import DamageView, HostReceipt, LogLine, PlanView, RequestView, SkippedView
from tputui.state.state_struct import downsample, first_of
from tputui.state.step_values import NON_FINITE_MAX
from tputui.telemetry import events as ev
from tputui.telemetry.codec import Damage
from tputui.telemetry.events import FORMAT_VERSION, RequestApplied, RequestRefused, RequestSeen

ALIKE: tuple[MarkKind, ...] = ("epoch", "compile", "recompile", "checkpoint", "best", "restart")
"""Kinds that the training processes of all hosts report identically; only the first report counts."""
REQUESTS_MARKED = 64
_ANSWERS: dict[type[ev.RequestReceipt], Literal["seen", "applied", "refused"]] = {
    RequestSeen: "seen",
    RequestApplied: "applied",
    RequestRefused: "refused",
}


def marks(
    state: RunState, plan: PlanView | None, loss: Sequence[Segment], requests: Iterable[RequestView], liveness: Liveness
) -> tuple[list[Mark], int]:
    """The timeline marks in order of time, and the number of all marks, including those not stored."""
    key = tuple(process.log.marks.count for process in state.in_order)
    with_step, without_step, count = state.memoized("marks", key, lambda: _process_marks(state))
    others = [*without_step, *_of_requests(state, requests), *_end(state, liveness)]
    if not others:
        return with_step, count
    placed = _placed(others, plan, loss)
    return sorted([*with_step, *placed], key=lambda mark: mark.t), count + len(others) - len(without_step)


def alerts(state: RunState) -> list[AlertView]:
    """The newest alerts, oldest first."""
    return sorted((alert for process in state.in_order for alert in process.log.alerts), key=lambda alert: alert.t)


def traces(state: RunState) -> list[ev.TraceWritten]:
    """The newest profiles of steps, oldest first."""
    return sorted((trace for process in state.in_order for trace in process.log.traces), key=lambda trace: trace.t)


def epoch_starts(state: RunState) -> list[ev.EpochStarted]:
    """When the epochs began, each by the first host that reported it."""
    starts: dict[int, ev.EpochStarted] = {}
    for process in state.workers:
        for start in process.epoch_starts.items:
            starts.setdefault(start.epoch, start)
    return downsample([starts[epoch] for epoch in sorted(starts)], first_of)


def _process_marks(state: RunState) -> tuple[list[Mark], list[Mark], int]:
    """The marks of all processes: those with a step, those without one, and the number of all marks."""
    by_mark: dict[tuple[str, str, int], tuple[str, list[Mark]]] = {}
    reported: set[MarkKind] = set()
    count = 0
    for process in [*state.workers, *state.ranks, *state.supervisors]:
        of_kind = process.log.marks.of_kind
        for kind, stored in of_kind.items():
            if kind in reported:
                continue
            count += stored.count
            for mark in stored.items:
                writer, same = by_mark.setdefault((kind, mark.text, mark.step), (process.name, []))
                if writer == process.name:
                    same.append(mark)
                else:
                    count -= 1  # another host reported the same
        reported.update(kind for kind in of_kind if kind in ALIKE)
    every = sorted((mark for _, same in by_mark.values() for mark in same), key=lambda mark: mark.t)
    return [mark for mark in every if mark.step], [mark for mark in every if not mark.step], count


def _placed(marks: list[Mark], plan: PlanView | None, loss: Sequence[Segment]) -> list[Mark]:
    """Adds the newest step at that time to marks without a step."""
    before = plan.first_step - 1 if plan else 0
    placed: list[Mark] = []
    for mark in marks:
        index = bisect_right(loss, mark.t, key=lambda segment: segment.t)
        step = mark.step or (loss[index - 1].last_step if index and mark.kind != "resume" else before)
        placed.append(msgspec.structs.replace(mark, step=step))
    return placed


def _of_requests(state: RunState, requests: Iterable[RequestView]) -> list[Mark]:
    """Marks of requests, and of their answers."""
    marks: list[Mark] = []
    for view in list(requests)[-REQUESTS_MARKED:]:
        request_text = f"request to {fmt.REQUESTS[view.kind]}"
        by = f", by {view.by}" if view.by else ""
        marks.append(Mark(t=view.t, step=0, kind="request", text=f"{request_text}{by}", core=None))
        answers = [process.receipts[view.id] for process in state.in_order if view.id in process.receipts]
        applied = min((answer.applied for answer in answers if answer.applied), key=lambda event: event.t, default=None)
        if applied is not None:
            text = f"{request_text}: {fmt.applied(applied.step, applied.path, applied.lack)}"
            marks.append(Mark(t=applied.t, step=applied.step, kind="request", text=text, core=None))
            continue
        refused = next((answer.refused for answer in answers if answer.refused), None)
        if refused is not None:
            text = f"{request_text}: refused: {refused.why}"
            marks.append(Mark(t=refused.t, step=0, kind="request", text=text, core=None))
    return [mark for mark in marks if math.isfinite(mark.t)]


def _end(state: RunState, liveness: Liveness) -> list[Mark]:
    """The mark of the end of the run, if it ended."""
    step = state.steps_done
    if liveness.ended_t is not None and math.isfinite(liveness.ended_t):
        text = fmt.with_reason(f"run {liveness.condition}", liveness.reason)
        return [Mark(t=liveness.ended_t, step=step, kind="end", text=text, core=None)]
    if liveness.condition == "lost" and state.newest_t is not None:
        text = "newest event of the run; it has no end event"
        return [Mark(t=state.newest_t, step=step, kind="end", text=text, core=None)]
    return []


LOG_LINES_SHOWN = 1_000
SKIPPED_SHOWN = 100


def checkpoints(state: RunState) -> list[ev.CheckpointSaved]:
    """The saved checkpoints that still exist, oldest first; a file reported by several hosts counts once."""
    removed = {path: event.t for process in state.in_order for path, event in process.dropped_checkpoints.items()}
    saved: dict[tuple[str, int], ev.CheckpointSaved] = {}
    for process in state.in_order:
        for event in process.checkpoints.values():
            if removed.get(event.path, -math.inf) > event.t:
                continue
            saved.setdefault((event.path, event.step), event)
    return sorted(saved.values(), key=lambda event: (event.step, event.t, event.path))


def skipped(state: RunState) -> SkippedView:
    newest = [process.skipped[-1] for process in state.in_order if process.skipped]
    examples = [event for process in state.in_order for event in process.skipped[:SKIPPED_SHOWN]]
    limit = max((event.limit for event in newest), default=0)
    return SkippedView(count=sum(event.skipped for event in newest), limit=limit, examples=examples)


def pictures(state: RunState) -> list[ev.PicturesKept]:
    """The pictures of each epoch that has some, in order of the epochs; of several processes the newest ones."""
    reported = sorted((event for process in state.in_order for event in process.pictures), key=lambda event: event.t)
    return sorted({event.epoch: event for event in reported}.values(), key=lambda event: event.epoch)


def requests(state: RunState, submitted: Iterable[RequestView]) -> list[RequestView]:
    """Requests with the receipts of any process, oldest first."""
    views = {view.id: view for view in submitted}
    receipts: dict[str, list[Receipts]] = {}
    for process in state.in_order:
        for request, answer in process.receipts.items():
            receipts.setdefault(request, []).append(answer)
    for request, answers in receipts.items():
        views[request] = _with_receipts(request, views.get(request), answers)
    if len(state.by_host) > 1:
        views = {request: _of_hosts(state, view) for request, view in views.items()}
    return sorted(views.values(), key=lambda view: (view.t, view.id))


def _of_hosts(state: RunState, view: RequestView) -> RequestView:
    """A request with the answers of each host, and the hosts that train and have not answered."""
    receipts: list[HostReceipt] = []
    silent: list[int] = []
    for host, own in sorted(state.by_host.items()):
        answers = [process.receipts[view.id] for process in own if view.id in process.receipts]
        events = [event for answer in answers if (event := answer.applied or answer.refused or answer.seen) is not None]
        # The supervisor answers for a training process that has only seen the request.
        event = min(events, key=lambda event_of_host: isinstance(event_of_host, RequestSeen), default=None)
        if event is not None:
            step = None if isinstance(event, RequestRefused) else event.step
            receipts.append(HostReceipt(index=host, state=_ANSWERS[type(event)], step=step, t=event.t))
        elif any(
            trainer.role == "worker" and (not trainer.training_ended or trainer.training_ended.t > view.t)
            for trainer in own
        ):
            silent.append(host)
    return msgspec.structs.replace(view, receipts=receipts, unanswered=silent)


def _with_receipts(request: str, submitted: RequestView | None, answers: list[Receipts]) -> RequestView:
    seen = next((answer.seen for answer in answers if answer.seen), None)
    # Of several hosts, one writes the checkpoint.
    applied = min(
        (answer.applied for answer in answers if answer.applied), key=lambda receipt: not receipt.path, default=None
    )
    refused = next((answer.refused for answer in answers if answer.refused), None) if applied is None else None
    first = seen or applied or refused
    assert first is not None, "receipts are made with their first answer"
    return RequestView(
        id=request,
        kind=first.kind,
        state="applied" if applied else "refused" if refused else "seen",
        t=submitted.t if submitted else first.t,
        by=submitted.by if submitted else None,
        seen_phase=seen.phase if seen else None,
        applied_step=applied.step if applied else None,
        path=applied.path if applied else None,
        why=refused.why if refused else applied.lack if applied else None,
        answered_t=(applied or refused or first).t,
    )


def non_finite(state: RunState) -> tuple[list[NonFinite], int]:
    """The first NaN and infinite values, by step and core, and the number of all."""
    values = [bad for process in state.in_order for bad in process.values.non_finite]
    values.sort(key=lambda bad: (bad.step, bad.core, bad.metric))
    return values[:NON_FINITE_MAX], sum(process.values.num_non_finite for process in state.processes.values())


def logs(state: RunState, most: int = LOG_LINES_SHOWN) -> list[LogLine]:
    """The newest `most` lines by time. Lines of tputui that several hosts repeat are shown once."""
    lines: list[LogLine] = []
    for process in state.in_order:
        start = max(0, len(process.log.logs) - most)
        lines.extend(islice(process.log.logs, start, None))
    lines.sort(key=lambda line: line.t if math.isfinite(line.t) else -math.inf)
    if len(state.workers) > 1:
        lines = _without_repeats(lines)
    return lines[-most:]


def _without_repeats(lines: list[LogLine]) -> list[LogLine]:
    seen: set[str] = set()
    unique: list[LogLine] = []
    for line in lines:
        if line.source == TOOL and line.level == "info":
            if line.text in seen:
                continue
            seen.add(line.text)
        unique.append(line)
    return unique


def damage(state: RunState, regions: Iterable[Damage]) -> DamageView:
    """Damage: regions of files, and valid records whose values cannot be decoded."""
    all_regions = list(regions)
    lost = sum(region.lost_records or 0 for region in all_regions)
    for process in state.in_order:
        for seq, why in process.values.unreadable.items():
            reason = f"event {seq}: {why}"
            all_regions.append(Damage(journal=process.name, start=0, end=0, reason=reason, lost_records=0))
    return DamageView(regions=all_regions, lost_records=lost)


def newer_format(state: RunState) -> str | None:
    newest = max((w.opened.format for w in state.processes.values() if w.opened), default=FORMAT_VERSION)
    unknown: Counter[str] = Counter()
    for process in state.processes.values():
        unknown.update(process.unknown)
    parts: list[str] = []
    if newest > FORMAT_VERSION:
        parts.append(f"the run is in format {newest}; this tputui reads up to {FORMAT_VERSION}")
    if unknown:
        kinds = ", ".join(f"{kind} ({times})" for kind, times in sorted(unknown.items()))
        parts.append(f"unknown event kinds: {kinds}")
    return "; ".join(parts) + "; use a newer tputui to see everything" if parts else None
