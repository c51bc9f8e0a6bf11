"""Bounded lists represent every added item, in order, and stay short."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tputui.state.state_struct import Downsampled, Recent, downsample, first_of, last_of

Span = tuple[int, int]


def both(left: Span, right: Span) -> Span:
    return left[0], right[1]


@given(st.integers(0, 500), st.sampled_from([2, 4, 8, 64]))
def test_every_item_is_in_exactly_one_of_few(number: int, most: int) -> None:
    made: Downsampled[Span] = Downsampled(most)
    for item in range(number):
        made.add((item, item), both)
    assert len(made.items) <= most
    assert [item for first, last in made.items for item in range(first, last + 1)] == list(range(number))
    widths = {last - first + 1 for first, last in made.items[:-1]}
    assert len(widths) <= 1


@given(st.integers(0, 600), st.sampled_from([2, 8, 64]))
def test_first_and_newest_are_kept_with_samples_between(number: int, most: int) -> None:
    made: Recent[int] = Recent(most)
    for item in range(number):
        made.add(item)
    assert made.count == number
    assert len(made.items) <= 2 * most
    assert made.items == sorted(set(made.items))
    assert made.items[-most:] == list(range(max(0, number - most), number))
    assert made.items[:1] == [0][:number]


@given(st.integers(0, 100), st.integers(0, 100))
def test_forks_are_independent(before: int, after: int) -> None:
    made: Recent[int] = Recent(4)
    for item in range(before):
        made.add(item)
    fork, was = made.fork(), made.items
    for item in range(before, before + after):
        fork.add(item)
    straight: Recent[int] = Recent(4)
    for item in range(before + after):
        straight.add(item)
    assert (made.items, fork.items, fork.count) == (was, straight.items, straight.count)


def test_a_list_is_thinned_by_pairs() -> None:
    assert downsample(list(range(9)), first_of, 4) == [0, 4, 8]
    assert downsample(list(range(9)), last_of, 4) == [3, 7, 8]
    assert downsample([1, 2], first_of, 4) == [1, 2]
