"""Batches read by several threads."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.data.batch_reader import WINDOW_S, BadExampleBudget, BadExamples, DataWait, Reader, WrongBatch, remedy
from engine.data.feed import DatasetError, Feed
from engine.data.sampler import train_shares
from engine.errors import BadExample, Refused
from engine.memory import estimate
from tests.deadline import DEADLINE_S

COUNT, BATCH = 96, 32


class Numbers:
    """Examples equal to their index, some of which cannot be used."""

    def __init__(self, bad: tuple[int, ...] = (), broken: int = -1) -> None:
        self._bad = bad
        self._broken = broken

    def __len__(self) -> int:
        return COUNT

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        for index in indices.tolist():
            if index in self._bad:
                raise BadExample(index, f"list.csv row {index + 2}", "the file is empty")
            if index == self._broken:
                raise OSError("the file is cut short")
        return {"number": torch.from_numpy(indices), "pair": torch.from_numpy(np.stack([indices, indices], 1))}


class Together(Numbers):
    """Returns examples only when `callers` threads fetch at once."""

    def __init__(self, callers: int) -> None:
        super().__init__()
        self._all = threading.Barrier(callers)

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        self._all.wait(DEADLINE_S)
        return super().fetch(indices)


class Returns(Numbers):
    """A dataset that returns what it is given."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self._value = value

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        return self._value  # type: ignore[no-any-return]


def epoch(dataset: Numbers, workers: int, messages: list[str] | None = None) -> list[dict[str, torch.Tensor]]:
    """Two epochs of batches, and the examples left out of them."""
    budget = BadExampleBudget(
        len(dataset), lambda split, bad, skipped, limit: (messages if messages is not None else []).append(str(bad))
    )
    skips, found = BadExamples("train", len(dataset), budget), []
    for number in (1, 2):
        shares = train_shares(len(dataset), 1, BATCH, seed=0, epoch=number)
        with Feed(dataset, shares, lambda tensors: tensors, 2, skips, workers) as feed:
            found += [batch.tensors for batch in feed]
    return found


def test_batches_and_skips_are_equal_for_any_thread_count() -> None:
    bad = (3, 4, 5, 40, 41, 90)
    expected: list[str] = []
    batches = epoch(Numbers(bad), 1, expected)
    assert len(expected) == len(bad)
    for workers in (2, 8, 100):
        messages: list[str] = []
        for one, other in zip(epoch(Numbers(bad), workers, messages), batches, strict=True):
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) for name in one)
        assert messages == expected


def test_as_many_threads_as_configured_call_fetch_at_once() -> None:
    assert len(epoch(Together(8), 8)) == 2 * COUNT // BATCH


def test_read_ahead_is_bounded() -> None:
    read: list[int] = []
    third, lock, depth = threading.Event(), threading.Lock(), 1

    class Counted(Numbers):
        def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
            with lock:
                read.extend(indices.tolist())
                if len(read) > (depth + 1) * BATCH:
                    third.set()
            return super().fetch(indices)

    skips = BadExamples("train", COUNT, BadExampleBudget(0, lambda *_: None))
    with Feed(Counted(), train_shares(COUNT, 1, BATCH, seed=0, epoch=1), lambda t: t, depth, skips, 8) as feed:
        assert feed.wait(None)
        # The one taken, one that is ready, one that waits for room: all three of the epoch, and no part of a second.
        assert third.wait(DEADLINE_S)
        assert len(read) <= (depth + 2) * BATCH
        assert sum(1 for _ in feed) == COUNT // BATCH
    assert sorted(read) == list(range(COUNT))


@pytest.mark.parametrize("workers", [1, 8])
def test_an_example_that_cannot_be_read_is_named(workers: int) -> None:
    with pytest.raises(DatasetError, match="training example 57 cannot be read: OSError: the file is cut short"):
        epoch(Numbers(broken=57), workers)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], r"fetch\(\) returned a list; it must return a dict of tensors by name, each with one row per example"),
        (None, r"fetch\(\) returned a NoneType; it must"),
        ({}, r"fetch\(\) returned an empty dict; it must"),
        ({"x": np.zeros(3)}, r'fetch\(\) returned a ndarray as "x"; it must'),
        ({"x": torch.zeros(5)}, r'fetch\(\) returned "x" of shape \[5\] for 3 indices; it must'),
        ({"x": torch.tensor(1.0)}, r'fetch\(\) returned "x" of shape \[\] for 3 indices; it must'),
    ],
)
def test_invalid_batch_names_the_method_that_returned_it(value: Any, message: str) -> None:
    with pytest.raises(WrongBatch, match=message):
        Reader(Returns(value)).read(np.arange(3))
    with pytest.raises(Refused, match=r"task: load\(\): the training dataset's fetch\(\) returned"):
        estimate.shapes(Returns(value))


def test_in_training_a_wrong_batch_names_method_and_split() -> None:
    with pytest.raises(DatasetError, match=r"the training dataset: fetch\(\) returned a list; it must return a dict"):
        epoch(Returns([1]), 1)


def test_inconsistent_parts_of_a_batch_are_rejected() -> None:
    class Ragged(Numbers):
        def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
            return {"x": torch.zeros(len(indices), 1 + int(indices[0]))}

    message = r'"x" float32 \[1\] for some examples of a batch and "x" float32 \[3\] for others'
    with closing(Reader(Ragged(), 2)) as reader, pytest.raises(WrongBatch, match=message):
        reader.read(np.arange(4))


def test_custom_dataset_uses_one_thread_by_default() -> None:
    assert Reader(Numbers()).workers == 1
    assert Reader(Numbers(), 6).workers == 6


def test_mostly_waiting_for_data_is_reported_once_with_key() -> None:
    waiting = DataWait(remedy(Numbers(), 0))
    said = [waiting.add(0.96, 1.0) for _ in range(int(WINDOW_S) * 3)]
    assert [text for text in said if text] == [
        "96% of 30 s of training waited for data: data.workers is 1; set it to 8 if fetch() can be called by several "
        "threads at once, or make fetch() cheaper"
    ]


def test_waiting_less_than_half_the_time_is_not_reported() -> None:
    waiting = DataWait(remedy(Numbers(), 8))
    assert not any(waiting.add(0.4, 1.0) for _ in range(200))
    # A slow minute is reported even after a long fast run.
    assert any("data.workers = 8" in (waiting.add(0.9, 1.0) or "") for _ in range(60))
