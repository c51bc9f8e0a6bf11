"""Reads batches with several threads, checks what the dataset returns, and leaves out bad examples.

Threads, not processes: reading a file and decoding an image release the interpreter's lock, no data is copied between
processes, and no process is forked while the runtime has threads. The result does not depend on the number of threads:
the parts are joined in the order of the batch, and one batch is read at a time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from engine.data.sampler import BatchShare, Indices
from engine.errors import BadExample, TooManyBad
from engine.task import Dataset
from tputui.reporting import events as ev

READ, DECODE, COLLATE, COPY = "read", "decode", "collate", "copy"
"""Stages of our own datasets. A dataset of yours may use others, such as `augment`, in `with stage(NAME):`."""


class _ThreadTimes(threading.local):
    def __init__(self) -> None:
        self.times: StageTimes | None = None
        self.nested_s = 0.0
        """Seconds of the stages inside the current one."""


_thread = _ThreadTimes()


class StageTimes:
    """Seconds by stage since the start of training, summed over threads. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.batches = 0
        self.waited_s = 0.0
        """Seconds that the training loop waited for batches; added by its thread alone."""
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def totals(self) -> dict[str, float]:
        """Seconds by stage."""
        with self._lock:
            return dict(self._seconds)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Charges the block to a stage, except for the blocks of `stage` in it."""
        outer, _thread.times = _thread.times, self
        try:
            with stage(name):
                yield
        finally:
            _thread.times = outer

    def _add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Charges the block to a stage of the loader that runs in this thread, if one does."""
    times = _thread.times
    if times is None:
        yield
        return
    outer_s, _thread.nested_s = _thread.nested_s, 0.0
    began = times.clock()
    try:
        yield
    finally:
        seconds = times.clock() - began
        times._add(name, max(0.0, seconds - _thread.nested_s))
        _thread.nested_s = outer_s + seconds


AUTOMATIC_MAX = 8
"""Maximum number of threads that are started by default."""

WINDOW_S = 30.0
"""Seconds of training over which the wait for data is averaged."""
MOST = 0.5
"""Share of the time above which training is reported as waiting for data."""


class WrongBatch(TypeError):
    """`fetch` returned something that is not a batch; the text says what."""


class Reader:
    """Reads batches of one dataset, for one caller at a time. Must be closed."""

    def __init__(self, dataset: Dataset, workers: int = 0, times: StageTimes | None = None) -> None:
        """`workers` is `data.workers`: the number of threads, or 0 for `default_workers(dataset)`. `times` measures
        them."""
        self.workers = workers or default_workers(dataset)
        """Number of threads."""
        self._dataset = dataset
        self._times = times or StageTimes()
        self._pool: ThreadPoolExecutor | None = None

    def read(self, indices: Indices) -> dict[str, torch.Tensor]:
        """The examples at `indices` [n], in that order: tensors [n, ...] by name.

        Raises what the dataset raises (if several parts fail, the error of the first), and `WrongBatch`.
        """
        parts = np.array_split(indices, min(self.workers, max(1, len(indices))))
        if len(parts) == 1:
            return self._fetch(indices)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="tputui-data")
        futures = [self._pool.submit(self._fetch, part) for part in parts]
        # Wait for every part, so that no part of a failed batch is still being read beside the next batch.
        wait(futures)
        with self._times.measure(COLLATE):
            return _joined(futures)

    def close(self, *, wait: bool = True) -> None:
        """Ends the threads. Without `wait`, a thread that hangs in the dataset is abandoned."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None

    def _fetch(self, indices: Indices) -> dict[str, torch.Tensor]:
        with self._times.measure(READ):
            return check_batch(self._dataset.fetch(indices), len(indices))


def default_workers(dataset: Dataset) -> int:
    """Number of threads for a dataset by default: one per CPU, at most 8, if the dataset is `parallel`, else one,
    because a `fetch` written for one caller may silently fail under several."""
    if not getattr(dataset, "parallel", False):
        return 1
    if sys.platform == "linux":
        return min(AUTOMATIC_MAX, len(os.sched_getaffinity(0)))
    # A process cannot be kept to some of the CPUs there.
    return min(AUTOMATIC_MAX, os.cpu_count() or 1)


def check_batch(batch: Any, count: int) -> dict[str, torch.Tensor]:
    """Returns the batch if it is what `Dataset.fetch` must return for `count` indices. Raises `WrongBatch`."""
    need = "it must return a dict of tensors by name, each with one row per example"
    if not isinstance(batch, dict) or not batch:
        raise WrongBatch(f"fetch() returned {_called(batch)}; {need}")
    for name, value in batch.items():
        if not isinstance(value, torch.Tensor):
            raise WrongBatch(f'fetch() returned {_called(value)} as "{name}"; {need}')
        if value.dim() == 0 or len(value) != count:
            shape = list(value.shape)
            raise WrongBatch(f'fetch() returned "{name}" of shape {shape} for {count} indices; {need}')
    return batch


def one_example(dataset: Dataset, index: int) -> dict[str, torch.Tensor]:
    """An example as a batch of one, [1, ...] each. Raises what the dataset raises, and `WrongBatch`."""
    return check_batch(dataset.fetch(np.array([index], dtype=np.int64)), 1)


def _called(value: Any) -> str:
    if isinstance(value, dict):
        return "an empty dict"
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _joined(futures: list[Future[dict[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    parts = [future.result() for future in futures]
    first = {name: (value.shape[1:], value.dtype) for name, value in parts[0].items()}
    for part in parts[1:]:
        kinds = {name: (value.shape[1:], value.dtype) for name, value in part.items()}
        if kinds != first:
            raise WrongBatch(
                f"fetch() returned {_shown(first)} for some examples of a batch and {_shown(kinds)} for others; names, "
                "types and shapes must be the same for all"
            )
    return {name: torch.cat([part[name] for part in parts]) for name in first}


def _shown(kinds: dict[str, tuple[torch.Size, torch.dtype]]) -> str:
    return ", ".join(
        f'"{name}" {str(dtype).removeprefix("torch.")} {list(shape)}' for name, (shape, dtype) in kinds.items()
    )


class DataWait:
    """Measures how long training waits for its data, and reports once if that is most of the time."""

    def __init__(self, remedy: str) -> None:
        """`remedy` describes the setting in use and what would help."""
        self._remedy = remedy
        self._waited_s = self._took_s = 0.0
        self._said = False

    def add(self, waited_s: float, took_s: float) -> str | None:
        """Adds a training step: its duration and its wait for data, in seconds. Returns a warning when due."""
        self._waited_s += waited_s
        self._took_s += took_s
        if self._said or self._took_s < WINDOW_S:
            return None
        share, took_s = self._waited_s / self._took_s, self._took_s
        self._waited_s = self._took_s = 0.0
        self._said = share > MOST
        return f"{share:.0%} of {took_s:.0f} s of training waited for data: {self._remedy}" if self._said else None


def remedy(dataset: Dataset, workers: int) -> str:
    """How the dataset is read under `data.workers = workers`, and what would make it faster."""
    if getattr(dataset, "parallel", False):
        number = workers or default_workers(dataset)
        return (
            f"{number} threads decode (data.workers); a data.cache_mb that holds all images decodes each of them once, "
            "and smaller files decode sooner"
        )
    if workers > 1:
        return (
            f"data.workers = {workers}; more threads help if fetch() waits for files, not if it computes in Python: "
            "then make it cheaper"
        )
    return (
        f"data.workers is 1; set it to {AUTOMATIC_MAX} if fetch() can be called by several threads at once, or make "
        "fetch() cheaper"
    )


OnBadExample = Callable[[ev.Split, BadExample, int, int], None]
"""Called for each example that is left out: split, error, examples left out so far, limit."""


class BadExampleBudget:
    """The number of examples that a run may leave out, over all splits."""

    def __init__(self, limit: int, on_bad_example: OnBadExample) -> None:
        self._limit = limit
        self._on_bad_example = on_bad_example
        self._spent = 0

    def spend(self, split: ev.Split, bad: BadExample) -> None:
        """Counts one example. Raises `TooManyBad` if the limit is exceeded."""
        if self._spent >= self._limit:
            allowed = f"{self._limit} may be left out (data.max_bad_rows)" if self._limit else "none may be left out"
            raise TooManyBad(f"{bad}; {allowed}: fix it, or raise data.max_bad_rows") from bad
        self._spent += 1
        self._on_bad_example(split, bad, self._spent, self._limit)


class BadExamples:
    """The examples of one split that are left out. They are left out in every epoch."""

    def __init__(self, split: ev.Split, num_examples: int, budget: BadExampleBudget) -> None:
        self.what = {"train": "training", "valid": "validation"}[split]
        """The split as a word for messages."""
        self._split: ev.Split = split
        self._num_examples = num_examples
        self._budget = budget
        self._bad: set[int] = set()

    def add(self, bad: BadExample) -> None:
        """Leaves one more example out. Raises `TooManyBad`; raises the error itself if its index is not an example of
        the split."""
        if bad.index in self._bad or not 0 <= bad.index < self._num_examples:
            raise bad
        self._budget.spend(self._split, bad)
        self._bad.add(bad.index)
        if len(self._bad) == self._num_examples:
            raise TooManyBad(f"no usable {self.what} example is left; the last error: {bad}")

    def around(self, share: BatchShare) -> BatchShare:
        """The share with each bad example replaced by the next usable one; in an evaluation the replacement counts as
        padding."""
        hit = np.isin(share.indices, list(self._bad)) if self._bad else np.zeros(len(share.indices), dtype=bool)
        if not hit.any():
            return share
        indices = share.indices.copy()
        indices[hit] = [self._next(int(index)) for index in share.indices[hit]]
        if share.real is None:
            return share._replace(indices=indices)
        real = np.where(hit, np.float32(0), share.real)
        counts = real.reshape(len(share.counts), -1).sum(axis=1).astype(np.int64)
        return BatchShare(indices, real, counts)

    def _next(self, index: int) -> int:
        while index in self._bad:
            index = (index + 1) % self._num_examples
        return index
