"""Series that are combined piece by piece give what combining all of them at once gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tputui.state.aligned import Aligner, Found
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
    assert asked == [(100, 100)] * 3
