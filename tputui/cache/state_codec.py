"""The state of one process as bytes, and the validation of such bytes before the reducer continues from them.

The same events give the same bytes, however they were read. Types and sizes are checked by the decoder, from the
annotations of the state; `check` then checks that the values agree with one another. Every state that events can
produce passes. No files and no clock here.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Any

import msgspec

from tputui.state.chart_data import Mark, MarkKind
from tputui.state.core_series import AllCoreSeries
from tputui.state.logged_series import LoggedMetrics, pieces_of_each
from tputui.state.process_history import PaceHistory
from tputui.state.process_log import LOG_CHARS_MAX, OF_A_KIND_MAX, TEXT_CHARS_MAX, TOOL, ProcessLog
from tputui.state.process_state import ProcessState
from tputui.state.series import Piece
from tputui.state.slow_core import CORES_TIMED_MAX, SlowCores
from tputui.state.state_struct import POINTS_MAX, Downsampled, Recent, little_endian
from tputui.state.step_values import StepValues, makes_sense
from tputui.telemetry import events as ev
from tputui.telemetry.codec import check_free, nested

_SHORTENED = 64
"""Characters that may follow a text that was shortened."""
_JSON_SCALARS = (str, float, bool, int, type(None))
_TYPECODES = (b"f", b"Q")


class NotCacheable(ValueError):
    """A state that cannot be encoded, or bytes that contain no valid state; the text is the reason."""


def encode(state: ProcessState) -> bytes:
    """Encodes a state. Raises `NotCacheable` if it is too large or inconsistent."""
    state.values.normalize()
    try:
        content = _encoder.encode(state)
        check(_decoder.decode(content))
        return content
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NotCacheable(f"it cannot be written: {error}") from None


def decode(name: str, content: bytes) -> ProcessState:
    """Decodes the state of the process called `name`. Raises `NotCacheable`."""
    try:
        state = _decoder.decode(content)
        _need(state.name == name, f"it is the state of {state.name[:40]}")
        check(state)
        return state
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NotCacheable(f"it contains no valid state: {error}") from None


def _array_to_bytes(value: Any) -> bytes:
    """Encodes an array: its type code, then float32 or uint64 values, little-endian."""
    if not isinstance(value, array):
        raise TypeError(f"{type(value).__name__} cannot be encoded")
    return value.typecode.encode() + little_endian(value).tobytes()


def _array_from_bytes(kind: Any, content: Any) -> Any:
    if not isinstance(content, bytes) or content[:1] not in _TYPECODES:
        raise TypeError("an array is not stored as bytes")
    return little_endian(array(content[:1].decode(), content[1:]))


_encoder = msgspec.msgpack.Encoder(enc_hook=_array_to_bytes)
_decoder = msgspec.msgpack.Decoder(ProcessState, dec_hook=_array_from_bytes)


def check(state: ProcessState) -> None:
    """Raises `ValueError` if a state contradicts itself."""
    _need(state.last_seq >= 0, "it has no event")
    _check_times(state)
    _check_values(state.values, state.topology)
    _check_columns(state.values.columns)
    _check_logged(state.logged)
    _check_pace(state.pace)
    lists: list[Downsampled[Any]] = [
        state.epoch_starts,
        state.usage,
        state.xla_history,
        state.pace.history,
        state.devices.points,
        *state.meter_history.values(),
    ]
    for points in lists:
        _check_downsampled(points, POINTS_MAX)
    _need(_finite(start.t for start in state.epoch_starts.items), "an epoch has no start time")
    _need(_finite(sample.t for sample in state.usage.items), "a memory sample has no time")
    _need(_finite(point.t for point in state.devices.points.items), "a sample of the devices has no time")
    _check_log(state.log)
    _check_keys(state)
    if state.run_started is not None:
        _check_config(state.run_started.config)


def _check_times(state: ProcessState) -> None:
    times = (state.first_t, state.newest_t, state.moved_t)
    _need(_finite(t for t in times if t is not None), "a time is not finite")
    _need((state.first_t is None) == (state.newest_t is None), "only one of the first and newest time is set")
    if state.first_t is not None and state.newest_t is not None:
        _need(state.first_t <= state.newest_t, "its newest time is before its first")
    step_s = state.smooth_step_s
    _need(step_s is None or (math.isfinite(step_s) and step_s > 0), "the step time is not positive")
    _need(math.isfinite(state.longest_compile_s), "the longest compile time is not finite")


def _check_values(values: StepValues, topology: ev.TopologyDeclared | None) -> None:
    _need(topology is None or makes_sense(topology), "its cores make no sense")
    _need(values.newest.keys() <= values.series.keys(), "its metrics differ")
    newest = values.newest.items()
    _need(
        all(name == event.metric and event.n == 1 and makes_sense(event) for name, event in newest),
        "its newest event makes no sense",
    )
    _need(all(row.values and row.values.typecode == "f" for row in values.recent), "a recent step has no values")
    _check_times_of_cores(values.slow)
    for bad in values.non_finite:
        record = values.newest.get(bad.metric)
        _need(record is not None and bad.core in values.cores_of(record.cores), "a value has no core")
    for series in values.series.values():
        _need(len(series.pieces) <= series.pieces_max, "a series is longer than it may be")
        _check_pieces(series.pieces)


def _check_pieces(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        _need(piece.first <= piece.last, "a piece of a series ends before it begins")
        _need(piece.num_values >= 0 and piece.num_bad >= 0 and math.isfinite(piece.t), "a piece makes no sense")


def _check_times_of_cores(slow: SlowCores) -> None:
    rows = slow.rows
    _need(all(row.values and row.values.typecode == "f" for row in rows), "a step has no compute times")
    _need(len({len(row.values) for row in rows}) <= 1, "steps differ in their number of compute times")
    _need(all(0.0 < value < math.inf for row in rows for value in row.values), "a compute time is not positive")
    width = len(rows[-1].values) if rows else 0
    _need(width <= CORES_TIMED_MAX, "there are more compute times than allowed")
    _need(not slow.search.below, "a core is faster than the others")
    scores = slow.search.above
    _need(all(core == score.view.core < width for core, score in scores.items()), "a slow core has no compute time")
    _need(slow.named is None or slow.named in scores, "the slow core is not one of those found")


def _check_columns(series: AllCoreSeries) -> None:
    _need(len(series.columns) <= series.most, "there are more columns than allowed")
    for column in series.columns:
        _need(column.first <= column.middle <= column.last, "the middle of a column is outside it")
        _need(len(column.means) == series.width > 0 and column.means.typecode == "f", "columns differ in width")
        if column.counts is not None:
            has_counts = len(column.counts) == series.width and column.counts.typecode == "Q"
            _need(has_counts, "a column does not have a count for each core")
            _need(max(column.counts) <= column.rows, "a column counts more values than steps")
        for extreme in filter(None, (column.high, column.low)):
            _need(math.isfinite(extreme.value), "the extreme of a column is not finite")
            _need(extreme.column is None or extreme.column < series.width, "the extreme of a column has no core")


def _check_logged(logged: LoggedMetrics) -> None:
    most = pieces_of_each(sum(map(len, logged.series.values())))
    for of_splits in logged.series.values():
        _need(bool(of_splits), "a metric has no series")
        for series in of_splits.values():
            points = series.points
            _need(points.most == most and len(points.items) <= most, "a series is longer than it may be")
            _need(bool(points.items) and series.whole is not None, "a series has no value")
            _need(points.in_last > 0, "the last piece of a series has no value")
            _check_pieces(points.items)


def _check_pace(pace: PaceHistory) -> None:
    _need(pace.steps.keys() == pace.seconds.keys(), "step times lack steps, or seconds")
    _need(bool(pace.steps) == bool(pace.num_reports), "step times have no report")
    seconds = [*pace.seconds.values(), *(reports.total_s for reports in pace.history.items)]
    _need(all(0 < value < math.inf for value in seconds), "steps took no time")
    _need(all(reports.num_steps > 0 for reports in pace.history.items), "a report has no step")
    _need(all(reports.num_steps > 0 and 0 < reports.total_s < math.inf for reports in pace.recent), "a report is empty")


def _check_downsampled(points: Downsampled[Any], most: int) -> None:
    _need(points.most == most and len(points.items) <= most, "a downsampled list is longer than it may be")
    _need(points.in_last <= points.stride and bool(points.items) == bool(points.in_last), "a list makes no sense")


def _check_log(log: ProcessLog) -> None:
    _need(log.num_logs >= len(log.logs), "it has more log lines than were added")
    for line in log.logs:
        _need(line.source in (TOOL, log.printed_by), "a log line is of another process")
        _need(len(line.text) <= LOG_CHARS_MAX + _SHORTENED, "a log line is too long")
    _need(log.num_alerts >= len(log.alerts), "it has more alerts than were added")
    _need(_finite(alert.t for alert in log.alerts), "an alert has no time")
    for kind, recent in log.marks.of_kind.items():
        _check_marks(kind, recent)


def _check_marks(kind: MarkKind, recent: Recent[Mark]) -> None:
    _need(recent.most == OF_A_KIND_MAX and len(recent.newest) <= recent.most, "there are more marks than allowed")
    _check_downsampled(recent.old, OF_A_KIND_MAX)
    _need(len(recent.items) <= recent.count, "there are more marks than were added")
    for mark in recent.items:
        _need(mark.kind == kind and math.isfinite(mark.t), "a mark is of another kind, or has no time")
        _need(len(mark.text) <= TEXT_CHARS_MAX + _SHORTENED, "the text of a mark is too long")


def _check_keys(state: ProcessState) -> None:
    """Checks that every key is the one that its event contains."""
    named: list[tuple[object, object]] = [(epoch, event.epoch) for epoch, event in state.epochs.items()]
    named += [(split, event.split) for split, event in state.meters.items()]
    named += [(path, event.path) for path, event in state.checkpoints.items()]
    named += [(path, event.path) for path, event in state.dropped_checkpoints.items()]
    named += [(process, event.process) for process, event in state.stacks.items()]
    for request, receipts in state.receipts.items():
        answers = [answer for answer in (receipts.seen, receipts.applied, receipts.refused) if answer is not None]
        _need(bool(answers), "a request has no answer")
        named += [(request, answer.request) for answer in answers]
    _need(all(key == name for key, name in named), "an event has the key of another one")


def _check_config(value: Any) -> None:
    """Rejects values that JSON does not have, and nesting too deep to walk through."""
    check_free(value)
    for item in nested(value):
        if isinstance(item, dict):
            _need(all(isinstance(key, str) for key in item), "a key of the configuration is not a text")
        elif not isinstance(item, list):
            _need(isinstance(item, _JSON_SCALARS), "a value is none that JSON has")


def _finite(times: Iterable[float]) -> bool:
    return all(map(math.isfinite, times))


def _need(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
