"""Batches on their way to the device."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.data.feed import DatasetError, Feed
from engine.data.sampler import train_shares, valid_shares

BROKEN = 37


class Squares:
    """Squares of the indices, one of which may be unreadable."""

    def __init__(self, broken: int | None = None) -> None:
        self._broken = broken

    def __len__(self) -> int:
        return 64

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        if self._broken in indices:
            raise OSError("no such image")
        return {"square": torch.from_numpy(indices**2)}


def stay(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return tensors


def test_batches_come_in_order_with_their_counts() -> None:
    with Feed(Squares(), valid_shares(10, 2, 3), stay, depth=2, what="validation") as feed:
        batches = list(feed)
    assert [batch.tensors["square"].tolist()[0] for batch in batches] == [0, 36]
    assert batches[1].real is not None
    assert batches[1].real.tolist() == [1, 1, 1, 1, 0, 0]
    assert batches[1].counts.tolist() == [3, 1]


def test_an_unreadable_example_is_raised_in_the_loop_with_its_index() -> None:
    shares = list(train_shares(64, 2, 4, seed=0, epoch=1))
    due = next(place for place, share in enumerate(shares) if BROKEN in share.indices)
    with Feed(Squares(BROKEN), shares, stay, depth=2, what="training") as feed:
        batches = iter(feed)
        assert sum(1 for _ in itertools.islice(batches, due)) == due
        with pytest.raises(DatasetError, match=f"training example {BROKEN} cannot be read: OSError: no such image"):
            next(batches)


def test_leaving_early_ends_the_thread() -> None:
    with Feed(Squares(), train_shares(64, 1, 1, seed=0, epoch=1), stay, depth=1, what="training") as feed:
        next(iter(feed))
    assert not feed._thread.is_alive()
