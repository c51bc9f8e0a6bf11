"""The examples of each step."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.data.sampler import permutation, train_shares, valid_shares

SIZES = st.tuples(st.integers(1, 300), st.integers(1, 9), st.integers(1, 7))


@given(SIZES, st.integers(0, 2**31 - 1), st.integers(1, 1000))
def test_epoch_uses_examples_once_and_drops_a_remainder(sizes: tuple[int, int, int], seed: int, epoch: int) -> None:
    examples, cores, batch = sizes
    shares = list(train_shares(examples, cores, batch, seed=seed, epoch=epoch))
    taken = np.concatenate([share.indices for share in shares]) if shares else np.array([], dtype=np.int64)
    assert len(set(taken.tolist())) == len(taken)
    assert all(0 <= index < examples for index in taken)
    assert 0 <= examples - len(taken) < cores * batch


@given(SIZES, st.integers(0, 100), st.integers(1, 50), st.data())
def test_starting_mid_epoch_gives_the_rest(
    sizes: tuple[int, int, int], seed: int, epoch: int, data: st.DataObject
) -> None:
    examples, cores, batch = sizes
    whole = list(train_shares(examples, cores, batch, seed=seed, epoch=epoch))
    start = data.draw(st.integers(0, len(whole)))
    rest = list(train_shares(examples, cores, batch, seed=seed, epoch=epoch, start=start))
    assert [share.indices.tolist() for share in rest] == [share.indices.tolist() for share in whole[start:]]


@given(SIZES)
def test_validation_has_each_example_once_in_equal_batches(sizes: tuple[int, int, int]) -> None:
    examples, cores, batch = sizes
    counted: list[int] = []
    for share in valid_shares(examples, cores, batch):
        assert share.real is not None
        assert len(share.indices) == cores * batch
        real = share.real.astype(bool)
        counted += share.indices[real].tolist()
        per_core = [int(real[core * batch : (core + 1) * batch].sum()) for core in range(cores)]
        assert share.counts.tolist() == per_core
    assert counted == list(range(examples))


def test_epochs_differ_in_order_but_are_reproducible() -> None:
    assert permutation(100, 7, 1).tolist() == permutation(100, 7, 1).tolist()
    assert permutation(100, 7, 1).tolist() != permutation(100, 7, 2).tolist()
    assert permutation(100, 7, 1).tolist() != permutation(100, 8, 1).tolist()


def test_the_order_of_an_epoch_is_the_same_on_every_machine() -> None:
    assert permutation(10, 0, 1).tolist() == [7, 4, 5, 1, 9, 8, 6, 2, 0, 3]


def test_examples_of_a_step_do_not_depend_on_cores() -> None:
    eight = [share.indices.tolist() for share in train_shares(200, 8, 4, seed=3, epoch=2)]
    one = [share.indices.tolist() for share in train_shares(200, 1, 32, seed=3, epoch=2)]
    assert eight == one
