"""The loss of each core over a run: exact in short runs, a fair sample in long ones, always bounded in size."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import T0, steps_recorded
from tests.state.drawn_rows import Rows, runs_of_records
from tputui.state import core_series
from tputui.state.chart_data import CoreColumn
from tputui.state.core_series import CELLS_MAX, COLUMNS_LEAST, COLUMNS_MAX, AllCoreSeries, CombinedColumns, CoreSeries
from tputui.telemetry import float_blocks
from tputui.telemetry.events import StepsRecorded

float32 = st.floats(width=32, min_value=-1e3, max_value=1e3) | st.sampled_from([math.nan, math.inf])


RUNS_OF_RECORDS = runs_of_records(float32)


def decode(event: StepsRecorded) -> array[float]:
    return float_blocks.unpack(event.block, event.n * event.cores)


def columns_of(blocks: list[Rows], most: int = COLUMNS_MAX) -> AllCoreSeries:
    made, first = AllCoreSeries(most), 1
    for rows in blocks:
        made.take(steps_recorded(T0, first, rows), None, decode)
        first += len(rows)
    return made


def shown(made: AllCoreSeries, num_cores: int = 3) -> list[CoreColumn]:
    return CombinedColumns().of([(made, range(num_cores))])


@given(RUNS_OF_RECORDS, st.sampled_from([4, 8, 20, 40]))
def test_column_of_a_short_run_is_the_mean_of_its_steps(blocks: list[Rows], most: int) -> None:
    rows = [row for rows in blocks for row in rows]
    found = shown(columns_of(blocks, most))
    assert 0 < len(found) <= most
    assert [column.first_step for column in found] == [1, *(c.last_step + 1 for c in found[:-1])]
    assert found[-1].last_step == len(rows)
    for column in found:
        assert not column.is_sampled
        assert column.middle == pytest.approx((column.first_step + column.last_step) / 2)
        part = rows[column.first_step - 1 : column.last_step]
        for core in range(3):
            finite = [row[core] for row in part if math.isfinite(row[core])]
            assert (core in column.bad_cores) == (len(finite) < len(part))
            if finite:
                mean = math.fsum(finite) / len(finite)
                assert column.means[core] == pytest.approx(mean, rel=1e-4, abs=max(map(abs, finite)) * 1e-5 + 1e-9)
            else:
                assert math.isnan(column.means[core])


@contextmanager
def sampled_from(whole_values: int) -> Iterator[None]:
    """Samples reports once this many values were added."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_series, "WHOLE_VALUES_MAX", whole_values)
        yield


SAMPLED = pytest.mark.parametrize("whole", [0, 60, core_series.WHOLE_VALUES_MAX])


@SAMPLED
@given(RUNS_OF_RECORDS, st.sampled_from([4, 8, 40]))
def test_extremes_cover_every_step_and_name_the_core(whole: int, blocks: list[Rows], most: int) -> None:
    rows = [row for block in blocks for row in block]
    with sampled_from(whole):
        found = shown(columns_of(blocks, most))
    for column in found:
        part = rows[column.first_step - 1 : column.last_step]
        finite = [value for row in part for value in row if math.isfinite(value)]
        assert (column.highest is None, column.lowest is None) == (not finite, not finite)
        if column.highest is not None and column.lowest is not None:
            assert (column.highest.value, column.lowest.value) == (max(finite), min(finite))
            for one in (column.highest, column.lowest):
                assert column.first_step <= one.step <= column.last_step
                assert rows[one.step - 1][one.core] == one.value


def pod(first: int, num_steps: int, num_cores: int, value: float) -> StepsRecorded:
    raw = struct.pack("<f", value) * (num_steps * num_cores)
    return StepsRecorded(
        t=T0, first=first, n=num_steps, cores=num_cores, mean=value, min=value, max=value, block=float_blocks.pack(raw)
    )


def test_a_long_run_is_sampled_all_along_and_stays_small() -> None:
    made, decoded = AllCoreSeries(), 0

    def counted(event: StepsRecorded) -> array[float]:
        nonlocal decoded
        decoded += 1
        return decode(event)

    for report in range(20_000):
        made.take(pod(report * 100 + 1, 100, 8, float(report)), None, counted)
    found = shown(made, 8)
    assert (found[0].first_step, found[-1].last_step) == (1, 2_000_000)
    assert 128 <= len(found) <= COLUMNS_MAX
    assert decoded < 20_000 // 20, "opening a long run must not decode it"
    for column in found:
        # The value of each event is its number, so the mean shows which steps were sampled.
        assert column.middle == pytest.approx(column.means[0] * 100 + 50.5, abs=50)
        assert column.is_sampled == (column.num_steps < column.last_step - column.first_step + 1)
        value, middle = column.means[0], (column.first_step + column.last_step) / 200
        assert column.first_step / 100 - 1 <= value <= column.last_step / 100
        assert abs(value - middle) <= (column.last_step - column.first_step + 1) / 100
    assert max(column.last_step - column.first_step + 1 for column in found) <= 2_000_000 // 128


SERIES: dict[str, Callable[[int], float]] = {
    "falling": lambda report: 1e4 - report,
    "rising": float,
    "noisy": lambda report: math.sin(report * report),
}


@pytest.mark.parametrize("value", SERIES.values(), ids=list(SERIES))
def test_locating_extremes_decodes_two_reports_per_column(
    monkeypatch: pytest.MonkeyPatch, value: Callable[[int], float]
) -> None:
    decoded = 0

    def counted(block: str, num_values: int, value: float) -> int | None:
        nonlocal decoded
        decoded += 1
        return find(block, num_values, value)

    find = float_blocks.find
    monkeypatch.setattr(float_blocks, "find", counted)
    made = AllCoreSeries()
    for report in range(10_000):
        made.take(pod(report * 100 + 1, 100, 8, value(report)), None, decode)
    assert decoded == 0
    found = shown(made, 8)
    assert decoded <= 2 * len(found)
    shown(made, 8)
    assert decoded <= 2 * len(found), "found once"
    highest = max(one.highest.value for one in found if one.highest is not None)
    assert highest == pytest.approx(max(map(value, range(10_000))))


def test_blocks_held_for_extremes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_series, "WHOLE_VALUES_MAX", 0)
    monkeypatch.setattr(core_series, "HELD_CHARS_MAX", 1_000)
    made = AllCoreSeries()
    for report in range(2_000):
        made.take(pod(report * 4 + 1, 4, 8, float(-report)), None, decode)
        ends = [end for column in made.columns for end in (column.high, column.low)]
        assert sum(len(end.event.block) for end in ends if isinstance(end, core_series.Unlocated)) <= 1_000


def test_spike_of_one_of_2048_cores_is_found_in_a_sampled_run() -> None:
    made = AllCoreSeries()
    for report in range(1_000):
        rows = [[1.0] * 2_048 for _ in range(4)] if report == 777 else []
        if rows:
            rows[2][1_234] = 9.5
        first = report * 4 + 1
        made.take(steps_recorded(T0, first, rows) if rows else pod(first, 4, 2_048, 1.0), None, decode)
    highest = max((one.highest for one in shown(made, 2_048) if one.highest is not None), key=lambda one: one.value)
    assert (highest.value, highest.core, highest.step) == (9.5, 1_234, 3_111)


def test_extreme_of_an_unreadable_block_names_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_series, "WHOLE_VALUES_MAX", 0)
    made = columns_of([[[1.0, 2.0, 3.0]]] * 2)
    broken = msgspec.structs.replace(steps_recorded(T0, 3, [[1.0, 9.0, 2.0]]), block="z!")
    made.take(broken, None, lambda record: None)
    newest = shown(made)[-1]
    assert newest.highest is None
    assert newest.lowest is not None
    assert newest.lowest.core == 0


def test_2000_cores_use_no_more_memory_than_few() -> None:
    made = AllCoreSeries()
    for report in range(400):
        made.take(pod(report * 4 + 1, 4, 2_048, 1.0), None, decode)
    found = shown(made, 2_048)
    assert COLUMNS_LEAST // 2 <= len(found) <= CELLS_MAX // 2_048
    assert {len(column.means) for column in found} == {2_048}


def test_nan_outside_the_samples_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_series, "WHOLE_VALUES_MAX", 80)
    made = AllCoreSeries(4)
    for report in range(1_000):
        rows = [[1.0] * 8 for _ in range(10)]
        if report == 777:
            rows[3][5] = math.nan
        made.take(steps_recorded(T0, report * 10 + 1, rows), None, decode)
    [bad] = [column for column in shown(made, 8) if column.bad_cores]
    assert bad.bad_cores == (5,)
    assert bad.first_step <= 7_774 <= bad.last_step


def test_undecodable_block_or_new_core_count_keeps_columns() -> None:
    made = columns_of([[[1.0, 2.0, 3.0]] * 4])
    made.take(steps_recorded(T0, 5, [[1.0] * 3] * 4), None, lambda event: None)
    made.take(steps_recorded(T0, 9, [[1.0] * 5] * 4), None, decode)
    found = shown(made)
    assert [list(column.means) for column in found] == [[1.0, 2.0, 3.0]] * 4
    assert found[-1].last_step == 12


def test_cores_of_several_hosts_are_side_by_side() -> None:
    left, right = columns_of([[[1.0, 2.0]] * 8]), columns_of([[[3.0, math.nan]] * 8], most=4)
    found = CombinedColumns().of([(left, [0, 1]), (right, [5, 4])])
    assert [(column.first_step, column.last_step) for column in found] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    for column in found:
        assert [column.means[core] for core in (0, 1, 5)] == [1.0, 2.0, 3.0]
        assert [math.isnan(column.means[core]) for core in (2, 3, 4)] == [True] * 3
        assert column.bad_cores == (4,)
        assert column.highest is not None
        assert column.lowest is not None
        assert (column.highest.value, column.highest.core) == (3.0, 5)
        assert (column.lowest.value, column.lowest.core) == (1.0, 0)


def test_columns_are_shared_between_snapshots() -> None:
    made = columns_of([[[1.0, 2.0, 3.0]] * 4])
    assert shown(made)[0].means is shown(made)[0].means


@SAMPLED
@given(RUNS_OF_RECORDS, RUNS_OF_RECORDS)
@settings(max_examples=40)
def test_fork_continues_like_the_original(whole: int, before: list[Rows], after: list[Rows]) -> None:
    with sampled_from(whole):
        first = columns_of(before, most=8)
        fork = first.fork()
        was = repr(shown(first))
        step = sum(map(len, before)) + 1
        for rows in after:
            fork.take(steps_recorded(T0, step, rows), None, decode)
            step += len(rows)
        assert repr(shown(first)) == was
        assert repr(shown(fork)) == repr(shown(columns_of(before + after, most=8)))


@SAMPLED
@given(RUNS_OF_RECORDS, st.sampled_from([4, 8, 40]))
@settings(max_examples=60)
def test_incremental_reads_equal_one_read(whole: int, blocks: list[Rows], most: int) -> None:
    with sampled_from(whole):
        made, first = AllCoreSeries(most), 1
        for number, rows in enumerate(blocks, start=1):
            made.take(steps_recorded(T0, first, rows), None, decode)
            first += len(rows)
            assert repr(shown(made)) == repr(shown(columns_of(blocks[:number], most)))


def test_columns_are_joined_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The hosts of a pod have too many columns at the same step.
    joins, join = list[CoreSeries](), core_series.joined

    def counted(left: CoreSeries, right: CoreSeries) -> CoreSeries:
        joins.append(join(left, right))
        return joins[-1]

    monkeypatch.setattr(core_series, "joined", counted)
    made, at_once = AllCoreSeries(COLUMNS_LEAST), list[int]()
    for step in range(1, 10 * COLUMNS_LEAST):
        before = len(joins)
        made.take(steps_recorded(T0, step, [[1.0, 2.0]]), None, decode)
        shown(made, 2)
        at_once.append(len(joins) - before)
    assert made.stride > 8
    assert max(at_once) < 8


def test_older_columns_are_the_same_objects() -> None:
    made = columns_of([[[1.0, 2.0, 3.0]]] * 6)
    before = shown(made)
    made.take(steps_recorded(T0, 7, [[4.0, 5.0, 6.0]]), None, decode)
    assert all(old is new for old, new in zip(before[:-1], shown(made), strict=False))
