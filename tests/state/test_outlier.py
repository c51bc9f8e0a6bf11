"""The core that is named as an outlier: none in a healthy run, the bad one soon in a run that has one."""

from __future__ import annotations

import math
import random
import statistics
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import T0, opened, steps_recorded
from tputui.state.chart_data import CoreColumn, OutlierView
from tputui.state.combined_rows import CombinedRows
from tputui.state.outlier import (
    NAMED,
    OFF,
    OutlierCache,
    OutlierRow,
    OutlierSearch,
    deviating_cores,
    deviating_cores_of,
    distance_of,
)
from tputui.state.reducer import RunState
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev

LOSSES = Path(__file__).parents[1] / "fixtures/digits_losses.f32"
"""Each core's loss in the first and the last 300 steps of 400 epochs of `sample_configs/digits.toml` on 8 cores."""
NUM_CORES = 8
BAD = 5


def healthy() -> list[list[float]]:
    """The recorded losses, [steps][cores]."""
    values = array("f", LOSSES.read_bytes())
    return [list(values[first : first + NUM_CORES]) for first in range(0, len(values), NUM_CORES)]


def off_by(row: list[float], deviations: float) -> list[float]:
    """The same step with the bad core so many deviations above the median, both over all cores and itself."""
    values = [*row[:BAD], 1e3 * max(row), *row[BAD + 1 :]]
    median = statistics.median(values)
    values[BAD] = median + deviations * statistics.median(abs(value - median) for value in values)
    return values


def find_outlier(rows: Iterable[OutlierRow], *, now: bool = False) -> OutlierView | None:
    """The core that was off for longest in rows in order of steps; with `now` only one that still is."""
    search = OutlierSearch()
    for row in rows:
        search.add(row)
    return search.outlier(now=now)


def named(rows: list[list[float]], report_steps: int) -> list[OutlierView | None]:
    """The outlier of the snapshot after every report."""
    state = RunState()
    state.apply("worker-0", 0, opened(T0, "worker"))
    found = []
    for seq, first in enumerate(range(0, len(rows), report_steps), start=1):
        state.apply("worker-0", seq, steps_recorded(T0 + seq, first + 1, rows[first : first + report_steps]))
        found.append(build_snapshot(state, ViewerContext(now=T0 + seq, run="digits", dir="digits")).outlier)
    return found


@pytest.mark.parametrize("report_steps", [1, 7, 22, 100])
def test_a_healthy_run_names_no_core_at_any_moment(report_steps: int) -> None:
    assert named(healthy(), report_steps) == [None] * math.ceil(600 / report_steps)


@pytest.mark.parametrize("report_steps", [1, 5, 20])
@pytest.mark.parametrize("bad_from", [40, 460])
def test_core_off_for_20_steps_is_named_at_the_20th(bad_from: int, report_steps: int) -> None:
    rows = [off_by(row, OFF + 0.1) if step >= bad_from else row for step, row in enumerate(healthy())]
    found = named(rows, report_steps)
    due = (bad_from + NAMED) // report_steps - 1
    assert [one for one in found[: due - 1] if one is not None] == []
    after = found[due:]
    assert {one.core for one in after if one is not None} == {BAD}
    assert None not in after, "as long as it is off it stays named"
    assert all(one is not None and one.by > 0 for one in after)


def test_a_core_that_recovers_is_no_longer_named() -> None:
    rows = [off_by(row, OFF + 0.1) if 100 <= step < 200 else row for step, row in enumerate(healthy())]
    found = named(rows, 20)
    assert found[9] is not None
    assert found[11:] == [None] * len(found[11:])


def test_single_step_never_names_an_outlier() -> None:
    rows = [off_by(row, 1e6) if step == 300 else row for step, row in enumerate(healthy())]
    assert set(named(rows, 10)) == {None}


def column(first: int, num_steps: int, rows: list[list[float]]) -> CoreColumn:
    """A column of these steps."""
    means = array("f", [statistics.fmean(values) for values in zip(*rows, strict=True)])
    return CoreColumn(
        first_step=first, last_step=first + num_steps - 1, means=means, bad_cores=(), num_steps=num_steps, middle=first
    )


@pytest.mark.parametrize("width", [2, 8, 30])
def test_the_columns_of_a_long_run_are_judged_alike(width: int) -> None:
    def found(change: Callable[[int, list[float]], list[float]]) -> OutlierView | None:
        rows = [change(step, row) for step, row in enumerate(healthy())]
        parts = [rows[first : first + width] for first in range(0, len(rows), width)]
        return find_outlier(deviating_cores_of(column(width * n + 1, width, part)) for n, part in enumerate(parts))

    assert found(lambda _, row: row) is None
    bad = found(lambda step, row: off_by(row, 2 * OFF) if 180 <= step < 420 else row)
    assert bad is not None
    assert bad.core == BAD
    assert abs(bad.first_step - 181) <= 2 * width
    assert abs(bad.last_step - 420) <= 6 * width


def test_one_of_two_alternating_outliers_is_named() -> None:
    chance = random.Random(3)
    rows = []
    for step in range(1, 41):
        means = [chance.gauss(1.0, 0.1) for _ in range(16)]
        means[2], means[9] = (9.0, 8.0) if step % 2 else (8.0, 9.0)
        rows.append(deviating_cores(step, step, 1, means))
    found = find_outlier(rows, now=True)
    assert found is not None
    assert found.core in (2, 9)


def test_the_rows_of_hosts_are_judged_together() -> None:
    def row(step: int, *values: float) -> tuple[int, array[float]]:
        return step, array("f", values)

    combined, left, right = CombinedRows(), [row(1, 1.0, 2.0), row(2, 3.0, 4.0)], [row(2, 5.0, 6.0), row(3, 7.0, 8.0)]
    before = combined.of([(left, [0, 1]), (right, [2, 3])])
    assert before == [row(2, 3.0, 4.0, 5.0, 6.0)]
    rows = combined.of([([*left, row(3, 9.0, 10.0)], [0, 1]), (right, [2, 3])])
    assert rows == [*before, row(3, 9.0, 10.0, 7.0, 8.0)]
    assert rows[0][1] is before[0][1], "an unchanged row is not combined again"
    again = combined.of([([row(2, 0.0, 0.5)], [0, 1]), (right, [2, 3])])
    assert again == [row(2, 0.0, 0.5, 5.0, 6.0)], "the step was trained again"


def test_rows_do_not_wait_for_a_silent_host() -> None:
    combined, cores = CombinedRows(), [[0], [1], [2], [3]]
    rows = [[(step, array("f", [step + host / 10])) for step in range(1, 9)] for host in range(4)]
    del rows[2][2:]
    shown = combined.of(list(zip(rows, cores, strict=True)), 4)
    assert [step for step, _ in shown] == [5, 6, 7, 8]
    assert [math.isnan(value) for value in shown[-1][1]] == [False, False, True, False]
    rows[2] += [(step, array("f", [step + 0.2])) for step in range(3, 9)]
    returned = combined.of(list(zip(rows, cores, strict=True)), 4)
    assert returned[-1][1] == array("f", [8.0, 8.1, 8.2, 8.3])
    assert math.isnan(shown[-1][1][2]), "a row that was judged does not change"
    del rows[2][2:], rows[3][2:]
    assert CombinedRows().of(list(zip(rows, cores, strict=True)), 4) == [], "no majority to differ from"


def exact(rows: Sequence[tuple[int, array[float]]]) -> list[tuple[int, bytes]]:
    """Rows so that NaN equals NaN."""
    return [(step, values.tobytes()) for step, values in rows]


_CHANGES = st.sampled_from(["add", "add", "add", "gap", "forget", "cut", "again", "back"])


@given(st.lists(st.tuples(st.integers(0, 2), _CHANGES, st.integers(1, 4)), max_size=60), st.integers(2, 9))
def test_rows_read_while_they_are_added_equal_rows_read_at_once(changes: list[tuple[int, str, int]], most: int) -> None:
    parts: list[tuple[list[tuple[int, array[float]]], list[int]]] = [
        ([], [2 * part, 2 * part + 1]) for part in range(3)
    ]
    kept, value = CombinedRows(), 0.0
    for part, kind, size in changes:
        rows, last = parts[part][0], parts[part][0][-1][0] if parts[part][0] else 0
        if kind == "forget":
            del rows[:size]
        elif kind == "cut":
            del rows[-size:]
        else:
            first = {"add": last + 1, "gap": last + 3, "again": last, "back": last - size}[kind]
            for step in range(first, first + size):
                value += 1.0
                rows.append((step, array("f", [value, -value])))
        assert exact(kept.of(parts, most)) == exact(CombinedRows().of(parts, most))


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 40]), st.integers(1, 4), st.booleans()), max_size=20))
def test_an_outlier_found_while_rows_change_equals_one_found_at_once(changes: list[tuple[int, int, bool]]) -> None:
    chance, cache = random.Random(4), OutlierCache()
    rows: list[tuple[int, int, int, array[float]]] = []
    for num_gone, num_steps, is_again in changes:
        del rows[:num_gone]
        if is_again and rows:
            del rows[-1]
        first = rows[-1][1] + 1 if rows else 1
        for _ in range(12):
            means = array("f", [chance.gauss(1.0, 0.1) for _ in range(6)])
            means[2], means[4] = (9.0, -7.0) if chance.random() < 0.7 else (-9.0, 1.0)
            rows.append((first, first + num_steps - 1, num_steps, means))
            first += num_steps
        # Joined in pairs, they may be the rows of a later call; half of them are others by then.
        ahead = [
            (first, last, size + chance.randrange(2), means)
            for (first, _, size, means), (_, last, _, _) in zip(rows[::2], rows[1::2], strict=False)
        ]
        assert cache.find(rows, ahead) == find_outlier((deviating_cores(*row) for row in rows), now=True)
        assert cache.find(ahead) == find_outlier((deviating_cores(*row) for row in ahead), now=True)


def test_losses_that_a_host_adds_to_many_steps_are_judged_a_few_at_a_time() -> None:
    rows = [(step, step, 1, array("f", [1.0, 1.01, 0.99, 1.02, math.nan])) for step in range(1, 41)]
    cache = OutlierCache()
    assert cache.find(rows, changed_max=8) is None
    whole = [(step, step, 1, array("f", [1.0, 1.01, 0.99, 1.02, 9.0])) for step in range(1, 41)]
    found, calls = cache.find(whole, changed_max=8), 1
    assert found is None, "the newest eight steps are too few"
    while cache.is_behind:
        found, calls = cache.find(whole, changed_max=8), calls + 1
    assert found == find_outlier((deviating_cores(*row) for row in whole), now=True)
    assert calls == 5


def test_new_steps_are_judged_however_many_arrive_at_once() -> None:
    rows = [(step, step, 1, array("f", [1.0, 1.01, 0.99, 1.02, 9.0 if step > 80 else 1.0])) for step in range(1, 121)]
    cache = OutlierCache()
    for last in range(40, 121, 20):
        shown = rows[last - 32 : last]
        found = cache.find(shown, changed_max=6)
        assert found == find_outlier((deviating_cores(*row) for row in shown), now=True)
        assert not cache.is_behind
    assert found is not None


def test_steps_that_an_invalid_run_has_twice_are_not_judged_forever() -> None:
    rows = [(7, 7, 1, array("f", [1.0, 1.01, 0.99, 1.02, float(number)])) for number in range(20)]
    cache = OutlierCache()
    for _ in range(3):
        cache.find(rows, changed_max=2)
        assert not cache.is_behind


class Means(list[float]):
    """Losses that count how often all of them are read."""

    reads = 0

    def __iter__(self) -> Iterator[float]:
        self.reads += 1
        return super().__iter__()


def test_rows_judged_ahead_are_not_judged_again() -> None:
    rows = [(step, step, 1, Means([1.0, 1.01, 0.99, 1.02, 9.0])) for step in range(1, 40)]
    cache = OutlierCache()
    cache.find([], rows)
    reads = [row[3].reads for row in rows]
    assert min(reads) > 0
    found = cache.find(rows)
    assert found is not None
    assert found.core == 4
    assert [row[3].reads for row in rows] == reads


@given(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 3)), min_size=1, max_size=8), st.integers(1, 5))
def test_a_core_is_named_at_the_step_at_which_all_steps_name_it(runs: list[tuple[int, int]], first: int) -> None:
    """Runs of steps in which a core is off, and of steps in which it is not."""
    is_off = [off for steps_off, others in runs for off in [True] * steps_off + [False] * others]
    rows = [
        (step, step, 1, array("f", [1.0, 1.01, 0.99, 1.02, 9.0 if off else 1.0]))
        for step, off in enumerate(is_off, first)
    ]
    cache = OutlierCache()
    for last in range(1, len(rows) + 1):
        shown = rows[max(last - 64, 0) : last]
        assert cache.find(shown) == find_outlier((deviating_cores(*row) for row in shown), now=True)


def test_of_a_healthy_run_every_fifth_step_is_judged() -> None:
    chance = random.Random(1)
    rows = [(step, step, 1, Means([chance.gauss(1.0, 0.001) for _ in range(8)])) for step in range(1, 65)]
    assert OutlierCache().find(rows) is None
    assert sum(row[3].reads > 0 for row in rows) == 12


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(-1e6, 1e6))
def test_distances_found_by_bisection_equal_sorted_ones(values: list[float], center: float) -> None:
    values.sort()
    expected = sorted(abs(value - center) for value in values)
    assert [distance_of(values, center, place) for place in range(len(values))] == expected


def test_fewer_than_four_cores_have_no_outlier() -> None:
    rows = [deviating_cores(step, step, 1, [1.0, 1.0, 99.0]) for step in range(1, 99)]
    assert find_outlier(rows) is None


def test_unreadable_block_restarts_the_count() -> None:
    state = RunState()
    state.apply("worker-0", 0, opened(T0, "worker"))
    rows = [[1.0, 1.01, 0.99, 1.02, 1.0, 9.0, 1.0, 1.0]] * 12
    broken = steps_recorded(T0 + 2, 13, rows)
    events: list[ev.Event] = [
        steps_recorded(T0 + 1, 1, rows),
        ev.StepsRecorded(**{**{f: getattr(broken, f) for f in broken.__struct_fields__}, "block": "z!"}),
        steps_recorded(T0 + 3, 25, rows),
    ]
    for seq, event in enumerate(events, start=1):
        state.apply("worker-0", seq, event)
    [writer] = state.workers
    assert [row.step for row in writer.values.recent_rows()] == list(range(25, 37))
