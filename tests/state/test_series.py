"""A bounded series agrees with the raw values that it was built from."""

from __future__ import annotations

import math
import struct
from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import T0, steps_recorded, worker_events
from tests.state.drawn_rows import Rows, runs_of_records
from tputui.state.chart_data import Segment
from tputui.state.core_series import COLUMNS_MAX, columns_max
from tputui.state.reducer import RunState
from tputui.state.series import PIECES_LEAST, PIECES_MAX, Piece, Series, combined, pieces_max
from tputui.telemetry import float_blocks
from tputui.telemetry.events import StepsRecorded, TopologyDeclared

float32 = st.floats(width=32, min_value=-1e6, max_value=1e6) | st.sampled_from([math.nan, math.inf, -math.inf])


RUNS_OF_RECORDS = runs_of_records(float32)


def taken_in(series: Series, event: StepsRecorded) -> None:
    values = float_blocks.unpack(event.block, event.n * event.cores) if series.wants_values(event) else None
    series.add(event, values)


def series_of(blocks: list[Rows], pieces_max: int) -> Series:
    series, first = Series(pieces_max), 1
    for rows in blocks:
        taken_in(series, steps_recorded(T0, first, rows))
        first += len(rows)
    return series


def assert_summarises(segment: Segment, raw: list[float]) -> None:
    finite = [value for value in raw if math.isfinite(value)]
    assert (segment.num_values, segment.num_bad) == (len(finite), len(raw) - len(finite))
    if finite:
        assert (segment.min, segment.max) == (min(finite), max(finite))
        assert segment.mean == pytest.approx(math.fsum(finite) / len(finite), rel=1e-9, abs=1e-6)
    else:
        assert math.isnan(segment.mean)
        assert math.isnan(segment.min)
        assert math.isnan(segment.max)


@given(RUNS_OF_RECORDS, st.integers(2, 40))
def test_segments_match_the_raw_values_of_their_steps(blocks: list[Rows], pieces_max: int) -> None:
    segments = combined([series_of(blocks, pieces_max)])
    rows = [row for rows in blocks for row in rows]
    assert 0 < len(segments) <= pieces_max
    assert [segment.first_step for segment in segments] == [1, *(s.last_step + 1 for s in segments[:-1])]
    assert segments[-1].last_step == len(rows)
    for segment in segments:
        assert_summarises(segment, [v for row in rows[segment.first_step - 1 : segment.last_step] for v in row])


@given(RUNS_OF_RECORDS, RUNS_OF_RECORDS, st.integers(2, 40))
def test_writers_are_combined_without_losing_values(left: list[Rows], right: list[Rows], most: int) -> None:
    segments = combined([series_of(left, 40), series_of(right, 40)], most)
    raw = [value for rows in left + right for row in rows for value in row]
    finite = [value for value in raw if math.isfinite(value)]
    assert 0 < len(segments) <= most
    assert sum(segment.num_values for segment in segments) == len(finite)
    assert sum(segment.num_bad for segment in segments) == len(raw) - len(finite)
    if finite:
        assert min(s.min for s in segments if s.num_values) == min(finite)
        assert max(s.max for s in segments if s.num_values) == max(finite)


def test_hosts_with_other_report_steps_keep_resolution() -> None:
    ragged = [[[1.0, 1.0]] * 10] * 30
    even = [[[2.0, 2.0]] * 15] * 20
    segments = combined([series_of(ragged, 40), series_of(even, 40)])
    assert len(segments) >= 15
    assert {(segment.min, segment.max) for segment in segments} == {(1.0, 2.0)}


def test_short_run_has_every_step() -> None:
    rows = [[float(step), float(step) + 0.5] for step in range(264)]
    segments = combined([series_of([rows[:100], rows[100:]], PIECES_MAX)])
    assert [(s.first_step, s.min, s.max) for s in segments] == [(k + 1, float(k), k + 0.5) for k in range(264)]


def summary(first: int, num_steps: int, greatest: float, bad: int = 0) -> StepsRecorded:
    """An event whose values are never decoded."""
    return StepsRecorded(
        t=T0, first=first, n=num_steps, cores=8, mean=1.0, min=0.5, max=greatest, bad=bad, block="not decoded"
    )


def test_one_step_spike_and_nan_survive_a_million_steps() -> None:
    series = Series()
    for index in range(10_000):
        spike, bad = (99.0 if index == 7_777 else 2.0), int(index == 123)
        series.add(summary(index * 100 + 1, 100, spike, bad), None)
    segments = combined([series])
    assert len(segments) <= PIECES_MAX
    assert [s.first_step <= 777_701 <= s.last_step for s in segments if s.max == 99.0] == [True]
    assert [s.first_step <= 12_301 <= s.last_step for s in segments if s.num_bad] == [True]
    assert sum(s.num_values for s in segments) == 7_999_999


def test_a_long_run_is_equally_fine_everywhere() -> None:
    series = Series(64)
    for step in range(1, 100_001):
        taken_in(series, steps_recorded(T0, step, [[1.0]]))
    lengths = [piece.last - piece.first + 1 for piece in series.pieces]
    assert max(lengths[:-1]) == min(lengths[:-1])


def test_blocks_are_not_decoded_when_coarser_than_events() -> None:
    series = Series(16)
    for index in range(100):
        taken_in(series, steps_recorded(T0, index * 4 + 1, [[1.0]] * 4))
    assert not series.wants_values(summary(401, 4, 1.0))


def test_pod_with_too_many_values_uses_summaries() -> None:
    wide = struct.pack("<2048f", *([1.0] * 2048)) * 100
    event = StepsRecorded(
        t=T0, first=1, n=100, cores=2048, mean=1.0, min=1.0, max=1.0, block=float_blocks.pack(wide)
    )  # fmt: skip
    series, num_decoded = Series(), 0
    for _ in range(30):
        num_decoded += series.wants_values(event)
        series.add(event, array("f", wide) if series.wants_values(event) else None)
    assert 0 < num_decoded < 20


def test_many_hosts_share_a_fixed_size() -> None:
    assert [pieces_max(hosts) for hosts in (1, 4, 32, 256)] == [PIECES_MAX, PIECES_MAX, 256, PIECES_LEAST]


def test_many_hosts_have_fewer_segments_but_all_values() -> None:
    state = RunState()
    declared = next(event for event in worker_events() if isinstance(event, TopologyDeclared))
    state.apply("worker-0", 0, msgspec.structs.replace(declared, num_hosts=256, num_cores=2_048))
    for report in range(1_000):
        state.apply("worker-0", report + 1, steps_recorded(T0, report * 4 + 1, [[float(report)] * 8] * 4))
    writer = state.processes["worker-0"]
    assert len(writer.values.series["loss"].pieces) <= PIECES_LEAST
    assert sum(piece.num_values for piece in writer.values.series["loss"].pieces) == 32_000
    assert len(writer.values.columns.columns) <= columns_max(2_048) < COLUMNS_MAX


@given(RUNS_OF_RECORDS, st.integers(2, 40))
def test_incremental_reads_equal_one_read(blocks: list[Rows], pieces_max: int) -> None:
    series, first = Series(pieces_max), 1
    for rows in blocks:
        taken_in(series, steps_recorded(T0, first, rows))
        first += len(rows)
        assert repr(series.segments) == repr([piece.to_segment() for piece in series.pieces])


@given(RUNS_OF_RECORDS, RUNS_OF_RECORDS, st.integers(2, 8))
def test_a_fork_continues_like_the_original(before: list[Rows], after: list[Rows], pieces_max: int) -> None:
    fork, first = series_of(before, pieces_max).fork(), sum(map(len, before)) + 1
    for rows in after:
        taken_in(fork, steps_recorded(T0, first, rows))
        first += len(rows)
    assert repr(fork.segments) == repr(series_of(before + after, pieces_max).segments)


def test_pieces_are_joined_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The hosts of a pod have too many pieces at the same step.
    joins, join = list[Piece](), Piece.join

    def counted(one: Piece, other: Piece) -> Piece:
        joins.append(join(one, other))
        return joins[-1]

    monkeypatch.setattr(Piece, "join", counted)
    series, at_once = Series(PIECES_LEAST), list[int]()
    for step in range(1, 10 * PIECES_LEAST):
        before = len(joins)
        taken_in(series, steps_recorded(T0, step, [[1.0, 2.0]]))
        at_once.append(len(joins) - before)
    assert series.stride > 8
    assert max(at_once) < 8


def test_older_segments_are_the_same_objects() -> None:
    series = series_of([[[1.0, 2.0, 3.0]]] * 6, PIECES_MAX)
    before = series.segments
    taken_in(series, steps_recorded(T0, 7, [[4.0, 5.0, 6.0]]))
    assert all(old is new for old, new in zip(before[:-1], series.segments, strict=False))
