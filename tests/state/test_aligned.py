"""Series that are combined piece by piece give what combining all of them at once gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle, islice
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recorded import T0, steps_recorded
from tputui.state import series as of_hosts
from tputui.state.aligned import AheadAligner, Aligner, Found
from tputui.state.series import Series
from tputui.state.state_struct import join_pairs

Piece = tuple[int, int, str]
"""First step, last step, name."""
Cell = tuple[int, tuple[tuple[int, Piece], ...]]


def cell(setting: Piece, found: Found[Piece]) -> Cell:
    return setting[0], tuple((part, piece) for part, pieces in found for piece in pieces)


def aligner() -> Aligner[Piece, Cell]:
    return Aligner(lambda piece: piece[0], lambda piece: piece[1], cell)


def joined(left: Piece, right: Piece) -> Piece:
    return left[0], right[1], f"{left[2]}+{right[2]}"


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    """What happens to one of four series: it grows, its last piece grows, it is halved, or it goes back."""
    kinds = st.sampled_from(["add", "add", "add", "widen", "halve", "back", "gap"])
    return draw(st.lists(st.tuples(st.integers(0, 3), kinds, st.integers(1, 5)), max_size=60))


def changed(series: list[Piece], kind: str, size: int) -> list[Piece]:
    last = series[-1][1] if series else 0
    if kind == "widen" and series:
        return [*series[:-1], joined(series[-1], (last + 1, last + size, "w"))]
    if kind == "halve":
        return join_pairs(series, joined)
    if kind == "back":
        return series[: -size or None]
    first = last + 1 + (size if kind == "gap" else 0)
    return [*series, (first, first + size - 1, f"{kind}{first}")]


@given(changes(), st.integers(0, 4))
def test_cells_that_were_left_are_combined_by_later_calls(steps: list[tuple[int, str, int]], most: int) -> None:
    series: list[list[Piece]] = [[], [], [], []]
    kept = aligner()
    for index, kind, size in steps:
        series[index] = changed(series[index], kind, size)
        found, whole = kept.cells("abcd", series, most), aligner().cells("abcd", series)
        assert [first for first, _ in found] == [first for first, _ in whole], "no cell has steps of another one"
        assert kept.is_behind or found == whole
    calls = 0
    while kept.is_behind:
        found = kept.cells("abcd", series, 2)
        assert kept.num_combined <= 2
        calls += 1
        assert calls <= len(found)
    assert kept.cells("abcd", series, most) == aligner().cells("abcd", series)


@given(changes())
def test_repeated_combining_equals_combining_once(steps: list[tuple[int, str, int]]) -> None:
    series: list[list[Piece]] = [[], [], [], []]
    kept = aligner()
    for index, kind, size in steps:
        series[index] = changed(series[index], kind, size)
        found = kept.cells("abcd", series)
        assert found == aligner().cells("abcd", series)
        pieces = sorted(piece for _, own in found for _, piece in own)
        assert pieces == sorted(piece for own in series for piece in own), "every piece is in one cell"
        assert [first for first, _ in found] == sorted({first for first, _ in found})


def test_only_cells_that_changed_are_new_objects() -> None:
    kept = aligner()
    series = [[(step, step, f"{part}") for step in range(1, 20)] for part in range(5)]
    before = kept.cells("abcde", series)
    series[3] = [*series[3], (20, 20, "new")]
    after = kept.cells("abcde", series)
    assert len(after) == 20
    assert all(old is new for old, new in zip(before[:-1], after, strict=False))


def test_other_series_are_combined_from_the_start() -> None:
    kept = aligner()
    series = [[(1, 1, "a")], [(1, 1, "b")]]
    assert kept.cells("ab", series) == [(1, ((0, (1, 1, "a")), (1, (1, 1, "b"))))]
    assert kept.cells("b", series[1:]) == [(1, ((0, (1, 1, "b")),))]
    assert kept.cells("", []) == []


def test_only_the_beginnings_of_new_pieces_are_asked_for() -> None:
    asked: list[tuple[int, int]] = []

    def first(piece: tuple[int, int]) -> float:
        asked.append(piece)
        return piece[0]

    aligner: Aligner[tuple[int, int], int] = Aligner(first, lambda piece: piece[1], lambda _, found: len(found))
    series = [[(step, step) for step in range(1, 100)] for _ in range(3)]
    aligner.cells("names", series)
    asked.clear()
    for own in series:
        own.append((100, 100))
    assert aligner.cells("names", series) == [3] * 100
    assert set(asked) == {(99, 99), (100, 100)}, "of the cells that changed"


def pieces_of(widths: Iterable[int]) -> list[Piece]:
    first, pieces = 1, list[Piece]()
    for width in widths:
        pieces.append((first, first + width - 1, "piece"))
        first += width
    return pieces


def test_cells_stay_while_reports_of_any_length_arrive_host_by_host() -> None:
    # The mean width of the pieces of each host passes the limit between two classes again and again.
    hosts = [pieces_of(islice(cycle([4, 3, 4, 4, 3, 4]), host, 400)) for host in range(4)]
    kept, before, new_frames, num_frames = aligner(), list[Cell](), 0, 0
    for newest in range(20, 390):
        for ahead in range(4):
            cells = kept.cells("abcd", [own[: newest + (host < ahead)] for host, own in enumerate(hosts)])
            new_frames += sum(old is not new for old, new in zip(before, cells, strict=False)) > 4
            num_frames, before = num_frames + 1, cells
    assert new_frames < num_frames / 50


def add_step(series: Series, step: int) -> None:
    series.add(steps_recorded(T0, step, [[float(step), 1.0]]), None)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), max_size=40), st.integers(0, 60))
def test_cells_that_were_combined_ahead_equal_those_combined_at_once(grown: list[tuple[int, int]], cut: int) -> None:
    hosts, newest = [Series(16) for _ in range(3)], [0, 0, 0]
    kept = of_hosts.piece_aligner()
    for index, num_steps in grown:
        for _ in range(num_steps):
            newest[index] += 1
            add_step(hosts[index], newest[index])
        if num_steps == 30 and newest[index] > cut:
            hosts[index].cut(cut + 1)
            newest[index] = cut
        segments = of_hosts.combined(hosts, aligner=kept, names="abc")
        assert segments == of_hosts.combined(hosts)
        pieces = [piece for series in hosts for piece in series.pieces]
        assert sum(segment.num_values for segment in segments) == sum(piece.num_values for piece in pieces)


@pytest.mark.parametrize(
    "is_late",
    [lambda host, frame: False, lambda host, frame: frame % 5 != host, lambda host, frame: host == 2 and frame > 1000],
    ids=["together", "one by one", "one is silent"],
)
def test_no_frame_combines_more_than_a_few_cells(is_late: Callable[[int, int], bool]) -> None:
    combined, at_once = 0, list[int]()

    def combine(setting: of_hosts.Piece, found: Found[of_hosts.Piece]) -> int:
        nonlocal combined
        combined += 1
        return setting.first

    ahead = AheadAligner(lambda: Aligner(attrgetter("first"), attrgetter("last"), combine))
    hosts, newest = [Series(128) for _ in range(4)], [0] * 4
    for frame in range(1, 2_200):
        for index, series in enumerate(hosts):
            if not is_late(index, frame):
                for step in range(newest[index] + 1, frame + 1):
                    add_step(series, step)
                newest[index] = frame
        before = combined
        cells = ahead.cells("abcd", hosts)
        at_once.append(combined - before)
    assert hosts[0].stride == 32
    assert len(cells) > 64
    # Each frame shows up to five new steps, and combines them ahead as well.
    assert max(at_once) < 24
