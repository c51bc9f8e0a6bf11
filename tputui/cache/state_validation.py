"""What is believed of a state that was read back: what the reducer, going on from it, counts on.

Types and the number of things were checked when the bytes were decoded; here it is what they say of one another. A
state that any records could have added up to passes. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tputui.cache.state_forms import ColumnsForm, PaceForm, RecentForm, ThinnedForm, ValuesForm, WriterForm
from tputui.state.chart_data import Mark, MarkKind
from tputui.state.process_log import OF_A_KIND_MAX, TEXT_CHARS_MAX
from tputui.state.step_values import makes_sense
from tputui.telemetry import events as ev

DEPTH_MAX = 64
"""How deep a configuration may be nested."""
_SHORTENED = len(" [...]")
_PLAIN = (str, float, bool, int, type(None))


def check(form: WriterForm) -> None:
    """Raises `ValueError` where a form contradicts itself."""
    _check_times(form)
    _check_values(form.values, form.topology)
    _check_columns(form.values.columns)
    _check_pace(form.pace)
    lists: list[ThinnedForm[Any]] = [form.epoch_starts, form.usage.samples, *form.meter_history.values()]
    for thinned in lists:
        _check_thinned(thinned)
    _need(_finite(start.t for start in form.epoch_starts.items), "an epoch began at no time")
    _need(_finite(sample.t for sample in form.usage.samples.items), "memory was sampled at no time")
    for kind, recent in form.log.marks.of_kind.items():
        _check_marks(kind, recent)
    _need(form.log.num_logs >= len(form.log.logs), "it has more lines than were told")
    _check_keys(form)
    if form.run_started is not None:
        _check_plain(form.run_started.config)


def _check_times(form: WriterForm) -> None:
    times = (form.first_t, form.newest_t, form.moved_t)
    _need(_finite(t for t in times if t is not None), "a time is none")
    _need((form.first_t is None) == (form.newest_t is None), "it has a first time or a newest one alone")
    if form.first_t is not None and form.newest_t is not None:
        _need(form.first_t <= form.newest_t, "its newest time is before its first")
    pace = form.smooth_step_s
    _need(pace is None or (math.isfinite(pace) and pace > 0), "a step takes no time")
    _need(math.isfinite(form.longest_compile_s), "compiling took no time that can be told")


def _check_values(form: ValuesForm, topology: ev.TopologyDeclared | None) -> None:
    _need(topology is None or makes_sense(topology), "its cores make no sense")
    newest = {record.metric: record for record in form.newest}
    _need(len(newest) == len(form.newest) and newest.keys() == form.series.keys(), "its metrics differ")
    _need(all(record.n == 1 and makes_sense(record) for record in form.newest), "its newest step makes no sense")
    _need(all(row and len(row) % 4 == 0 for _, row in form.recent), "a recent step has no values")
    for series in form.series.values():
        _need(len(series.pieces) <= series.pieces_max, "a series is longer than it may be")
        for piece in series.pieces:
            _need(piece.first <= piece.last, "a piece of a series ends before it begins")
            _need(piece.num_values >= 0 and piece.num_bad >= 0 and math.isfinite(piece.t), "a piece makes no sense")
    for bad in form.non_finite:
        _need(bad.metric in newest and 0 <= bad.column < newest[bad.metric].cores, "a value is of no core")


def _check_columns(form: ColumnsForm) -> None:
    _need(len(form.columns) <= form.most, "there are more columns than there may be")
    width = len(form.columns[0].means) if form.columns else 0
    for column in form.columns:
        _need(column.first <= column.middle <= column.last, "a column has its middle elsewhere")
        _need(len(column.means) == width and width > 0 and width % 4 == 0, "columns differ in width")
        if column.counts is not None:
            _need(len(column.counts) * 4 == width, "a column has not a count for each core")
            _need(max(column.counts) <= column.rows, "a column counts more values than steps")


def _check_pace(form: PaceForm) -> None:
    _need(form.steps.keys() == form.seconds.keys(), "step times lack steps, or time")
    _need(bool(form.steps) == bool(form.num_reports), "step times were told by no report")
    seconds = [*form.seconds.values(), *(reports.total_s for reports in form.history)]
    _need(all(0 < one < math.inf for one in seconds), "steps took no time")
    _need(all(reports.num_steps > 0 for reports in form.history), "a report tells of no step")
    _need(form.in_open < form.stride, "more reports are open than are joined")
    _need(not form.in_open or (form.open_steps > 0 and 0 < form.open_s < math.inf), "open reports took no time")


def _check_thinned(form: ThinnedForm[Any]) -> None:
    _need(form.in_last <= form.stride and bool(form.items) == bool(form.in_last), "a thinned list makes no sense")


def _check_marks(kind: MarkKind, form: RecentForm[Mark]) -> None:
    _check_thinned(form.old)
    marks = [*form.old.items, *form.newest]
    _need(len(form.old.items) <= OF_A_KIND_MAX and len(marks) <= form.count, "there are more marks than were made")
    for mark in marks:
        _need(mark.kind == kind and math.isfinite(mark.t), "a mark stands where it does not belong")
        _need(len(mark.text) <= TEXT_CHARS_MAX + _SHORTENED, "a mark says more than it may")


def _check_keys(form: WriterForm) -> None:
    """What is found by a name of its own stands under that name."""
    named: list[tuple[object, object]] = [(epoch, event.epoch) for epoch, event in form.epochs.items()]
    named += [(split, event.split) for split, event in form.meters.items()]
    named += [(path, event.path) for path, event in form.checkpoints.items()]
    named += [(path, event.path) for path, event in form.dropped_checkpoints.items()]
    named += [(process, event.process) for process, event in form.stacks.items()]
    for request, answer in form.receipts.items():
        told = (answer.seen, answer.applied, answer.refused)
        named += [(request, event.request) for event in told if event is not None]
    _need(all(key == name for key, name in named), "something stands under another name")


def _check_plain(value: Any) -> None:
    """Refuses what no JSON holds, or what is nested so deep that nobody could walk through it."""
    level = [value]
    for _ in range(DEPTH_MAX):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                _need(all(isinstance(key, str) for key in item), "a name is no text")
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, int) and not isinstance(item, bool):
                _need(-ev.INT_MAX <= item <= ev.INT_MAX, "a whole number has more than 64 bits")
            else:
                _need(isinstance(item, _PLAIN), "a value is none that JSON has")
        if not below:
            return
        level = below
    raise ValueError(f"values are nested more than {DEPTH_MAX} deep")


def _finite(times: Iterable[float]) -> bool:
    return all(map(math.isfinite, times))


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
