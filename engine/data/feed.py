"""Prefetches batches onto the device: `Feed`, one pass over a split in a thread of its own, and `BatchFeeds` of a run.

The runtime's own loader swallows an exception of the dataset and silently ends the epoch early; this one raises it in
the loop, with the index of the example. Must not sync the device.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch

from engine.data.batch_reader import (
    COPY,
    BadExampleBudget,
    BadExamples,
    OnBadExample,
    Reader,
    StageTimes,
    WrongBatch,
    default_workers,
    remedy,
)
from engine.data.sampler import BatchShare, Indices, cut, train_shares, valid_shares
from engine.errors import BadExample
from engine.task import Dataset, Plan, Splits
from tputui.reporting import text_of

PUT_INTERVAL_S = 0.1
MASK = "_real"
"""Key of the 0/1 padding mask in a batch."""

Put = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


class DatasetError(Exception):
    """The dataset raised an error; the text names the example."""


class Batch(NamedTuple):
    tensors: dict[str, torch.Tensor]
    """Each [global_batch, ...], sharded over the cores."""
    real: torch.Tensor | None
    """[global_batch] 1 for an example, 0 for padding; None where all are examples."""
    counts: Indices
    """[cores] examples of each core, on the host."""
    present: npt.NDArray[np.bool_] | None
    """`real` on the host."""


class _FeedEnd(NamedTuple):
    error: BaseException | None


class Feed:
    """Iterates over the batches of `shares`, with up to `depth` of them prefetched. A context manager."""

    def __init__(
        self,
        dataset: Dataset,
        shares: Iterable[BatchShare],
        put: Put,
        depth: int,
        bad_examples: BadExamples,
        workers: int = 0,
        times: StageTimes | None = None,
    ) -> None:
        """`put` moves host tensors to the device; `bad_examples` are replaced; `workers` threads read, see
        `engine.data.batch_reader`, and `times` measures them."""
        self._dataset = dataset
        self._times = times or StageTimes()
        self._reader = Reader(dataset, workers, self._times)
        self._shares = shares
        self._put = put
        self._bad_examples = bad_examples
        self._ready: queue.Queue[Batch | _FeedEnd] = queue.Queue(maxsize=depth)
        self._taken: Batch | _FeedEnd | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tputui-feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the thread. A dataset that hangs is abandoned."""
        self._closing.set()
        self._thread.join(timeout=1.0)
        self._reader.close(wait=not self._thread.is_alive())

    def __iter__(self) -> Iterator[Batch]:
        """Batches in order. Raises what the dataset raised."""
        while True:
            self.wait(None)
            item = self._taken
            if isinstance(item, Batch):
                self._taken = None
                yield item
                continue
            if item is not None and item.error is not None:
                raise item.error
            return

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the next batch or the end of the epoch; False on timeout. None waits without limit."""
        if self._taken is None:
            try:
                self._taken = self._ready.get(timeout=timeout_s)
            except queue.Empty:
                return False
        return True

    @property
    def ready(self) -> bool:
        """Whether the next batch is available."""
        return self._taken is not None or not self._ready.empty()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for share in self._shares:
                if not self._hand_over(self._batch(share)):
                    return
        except BaseException as raised:  # noqa: BLE001, RUF100 - every end of this thread is passed to the loop
            error = raised
        self._hand_over(_FeedEnd(error))

    def _batch(self, share: BatchShare) -> Batch:
        share = self._bad_examples.around(share)
        while True:
            try:
                tensors = self._fetch(share.indices)
                break
            except BadExample as bad:
                self._bad_examples.add(bad)
                share = self._bad_examples.around(share)
        self._times.batches += 1
        if share.real is None:
            with self._times.measure(COPY):
                return Batch(self._put(tensors), None, share.counts, None)
        with self._times.measure(COPY):
            on_device = self._put({**tensors, MASK: torch.from_numpy(share.real)})
        return Batch(on_device, on_device.pop(MASK), share.counts, share.real > 0)

    def _fetch(self, indices: Indices) -> dict[str, torch.Tensor]:
        try:
            return self._reader.read(indices)
        except BadExample:
            raise
        except WrongBatch as error:
            raise DatasetError(f"the {self._bad_examples.what} dataset: {error}") from error
        except Exception as error:
            index = self._culprit(indices)
            where = (
                f"{self._bad_examples.what} example {index}"
                if index is not None
                else f"a batch of {self._bad_examples.what} examples"
            )
            raise DatasetError(f"{where} cannot be read: {type(error).__name__}: {text_of(error)}") from error

    def _culprit(self, indices: Indices) -> int | None:
        """The first example that raises an error on its own."""
        for index in np.unique(indices):
            try:
                self._dataset.fetch(np.array([index], dtype=np.int64))
            except Exception:  # noqa: BLE001, RUF100 - the error itself is already being raised
                return int(index)
        return None

    def _hand_over(self, item: Batch | _FeedEnd) -> bool:
        """Waits for room in the queue; False if the feed was closed."""
        while not self._closing.is_set():
            try:
                self._ready.put(item, timeout=PUT_INTERVAL_S)
                return True
            except queue.Full:
                continue
        return False


class BatchFeeds:
    def __init__(self, plan: Plan, splits: Splits, own_cores: range, put: Put, on_skipped: OnBadExample) -> None:
        """`own_cores` are the indices of the cores that are fed, `put` moves their rows to the device, and `on_skipped`
        is called for every example that is left out.

        Raises `engine.errors.TooManyBad` if reading the source alone has left out too many.
        """
        budget = BadExampleBudget(plan.max_bad_rows, on_skipped)
        for bad in splits.skipped:
            budget.spend("train", bad)
        self._config = plan.config
        self._end = plan.steps_per_epoch
        self._splits = splits
        self._own = own_cores
        self._put = put
        self.remedy = remedy(splits.train, plan.config.data.workers)
        """How the training data is read, and what would make it faster."""
        self.times = StageTimes()
        """Where the loader of training batches spends its time."""
        self.workers = plan.config.data.workers or default_workers(splits.train)
        """Threads that read them."""
        self._train_bad = BadExamples("train", len(splits.train), budget)
        self._valid_bad = BadExamples("valid", len(splits.valid), budget)

    def training(self, epoch: int, start: int) -> Feed:
        """The training batches of an epoch, from the batch `start` on."""
        config = self._config
        shares = train_shares(
            len(self._splits.train),
            config.num_cores,
            config.batch_per_core,
            seed=config.seed,
            epoch=epoch,
            start=start,
            end=self._end,
        )
        depth, workers = config.data.prefetch_batches, config.data.workers
        return Feed(self._splits.train, cut(shares, self._own), self._put, depth, self._train_bad, workers, self.times)

    def validation(self) -> Feed:
        """Batches with every validation example once."""
        config = self._config
        shares = valid_shares(len(self._splits.valid), config.num_cores, config.batch_per_core)
        depth, workers = config.data.prefetch_batches, config.data.workers
        return Feed(self._splits.valid, cut(shares, self._own), self._put, depth, self._valid_bad, workers)
