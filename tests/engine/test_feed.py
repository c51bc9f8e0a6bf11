"""Batches prefetched to the device."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.data.batch_reader import BadExampleBudget, BadExamples, StageTimes, stage
from engine.data.feed import DatasetError, Feed
from engine.data.sampler import train_shares, valid_shares
from engine.errors import BadExample, TooManyBad
from tputui.telemetry.events import Split

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


class Rows(Squares):
    """Squares, some of which raise `BadExample`."""

    def __init__(self, bad: set[int]) -> None:
        super().__init__()
        self._bad = bad

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        for index in indices.tolist():
            if index in self._bad:
                raise BadExample(index, f'train.csv row {index + 2}, column "image"', "the file is empty")
        return super().fetch(indices)


def skips(split: Split = "train", limit: int = 0, messages: list[str] | None = None) -> BadExamples:
    def on_bad_example(split: Split, bad: BadExample, skipped: int, limit: int) -> None:
        if messages is not None:
            messages.append(f"{split}: {bad} ({skipped} of {limit})")

    return BadExamples(split, 64, BadExampleBudget(limit, on_bad_example))


def stay(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return tensors


def test_batches_come_in_order_with_their_counts() -> None:
    with Feed(Squares(), valid_shares(10, 2, 3), stay, depth=2, bad_examples=skips("valid")) as feed:
        batches = list(feed)
    assert [batch.tensors["square"].tolist()[0] for batch in batches] == [0, 36]
    assert batches[1].real is not None
    assert batches[1].real.tolist() == [1, 1, 1, 1, 0, 0]
    assert batches[1].counts.tolist() == [3, 1]


def test_unreadable_example_raises_in_the_loop_with_index() -> None:
    shares = list(train_shares(64, 2, 4, seed=0, epoch=1))
    due = next(place for place, share in enumerate(shares) if BROKEN in share.indices)
    with Feed(Squares(BROKEN), shares, stay, depth=2, bad_examples=skips()) as feed:
        batches = iter(feed)
        assert sum(1 for _ in itertools.islice(batches, due)) == due
        with pytest.raises(DatasetError, match=f"training example {BROKEN} cannot be read: OSError: no such image"):
            next(batches)


def test_leaving_early_ends_the_thread() -> None:
    with Feed(Squares(), train_shares(64, 1, 1, seed=0, epoch=1), stay, depth=1, bad_examples=skips()) as feed:
        next(iter(feed))
    assert not feed._thread.is_alive()


def test_bad_row_without_allowance_ends_training() -> None:
    words = r'train.csv row 39, column "image": the file is empty; none may be left'
    shares = train_shares(64, 1, 64, seed=0, epoch=1)
    with (
        Feed(Rows({BROKEN}), shares, stay, depth=1, bad_examples=skips()) as feed,
        pytest.raises(TooManyBad, match=words),
    ):
        next(iter(feed))


def test_bad_training_example_is_replaced_and_reported_once() -> None:
    messages: list[str] = []
    left_out = skips(limit=2, messages=messages)
    for epoch in (1, 2):
        with Feed(
            Rows({4, 5}), train_shares(64, 2, 8, seed=0, epoch=epoch), stay, depth=1, bad_examples=left_out
        ) as feed:
            seen = [int(square) for batch in feed for square in batch.tensors["square"]]
        assert sorted(seen) == sorted([i * i for i in range(64) if i not in (4, 5)] + [36, 36])
    assert len(messages) == 2
    assert {line.partition(":")[2].partition(",")[0] for line in messages} == {" train.csv row 6", " train.csv row 7"}


def test_bad_example_is_not_counted_in_evaluation() -> None:
    with Feed(Rows({1}), valid_shares(10, 2, 3), stay, depth=1, bad_examples=skips("valid", limit=1)) as feed:
        first, last = list(feed)
    assert first.real is not None
    assert first.real.tolist() == [1, 0, 1, 1, 1, 1]
    assert first.counts.tolist() == [2, 3]
    assert last.counts.tolist() == [3, 1]


def test_too_many_bad_rows_end_training() -> None:
    words = r"1 may be left out \(data.max_bad_rows\)"
    shares, left_out = valid_shares(10, 1, 5), skips(limit=1)
    with (
        Feed(Rows({1, 2}), shares, stay, depth=1, bad_examples=left_out) as feed,
        pytest.raises(TooManyBad, match=words),
    ):
        next(iter(feed))


def test_waiting_with_timeout_loses_no_batch() -> None:
    opened = threading.Event()

    class Slow(Squares):
        def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
            opened.wait()
            return super().fetch(indices)

    with Feed(Slow(), valid_shares(64, 2, 16), stay, 2, skips()) as feed:
        assert not feed.wait(0.01)
        assert not feed.ready
        opened.set()
        assert feed.wait(None)
        assert feed.wait(None)
        assert feed.ready
        squares = torch.cat([batch.tensors["square"] for batch in feed])
    assert sorted(squares.tolist()) == [index**2 for index in range(64)]
    assert feed.wait(0)


class Timed(Squares):
    """Squares that take a second to read and three to decode, by a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        self.now += 1.0
        with stage("decode"):
            self.now += 3.0
        return super().fetch(indices)


def test_stages_of_the_loader_are_measured_without_the_stages_inside() -> None:
    dataset = Timed()
    times = StageTimes(lambda: dataset.now)
    with Feed(dataset, valid_shares(10, 2, 3), stay, 2, skips("valid"), workers=1, times=times) as feed:
        assert len(list(feed)) == times.batches == 2
    assert times.totals() == {"read": 2.0, "decode": 6.0, "copy": 0.0}
    with stage("decode"):
        dataset.now += 5.0
    assert times.totals()["decode"] == 6.0, "outside of a loader nothing is measured"
