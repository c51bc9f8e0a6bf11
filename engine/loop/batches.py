"""`BatchFeeds`: makes the feed of each pass over a split, and counts the examples that are left out."""

from __future__ import annotations

from engine.data.batch_reader import BadExampleBudget, BadExamples, OnBadExample, remedy
from engine.data.feed import Feed, Put
from engine.data.sampler import cut, train_shares, valid_shares
from engine.task import Plan, Splits


class BatchFeeds:
    """The feeds of a run."""

    def __init__(self, plan: Plan, splits: Splits, own: range, put: Put, on_skipped: OnBadExample) -> None:
        """`own` are the indices of the cores that are fed, `put` moves their rows to the device, and `on_skipped` is
        called for every example that is left out.

        Raises `engine.errors.TooManyBad` if reading the source alone has left out too many.
        """
        budget = BadExampleBudget(plan.max_bad_rows, on_skipped)
        for bad in splits.skipped:
            budget.spend("train", bad)
        self._config = plan.config
        self._end = plan.steps_per_epoch
        self._splits = splits
        self._own = own
        self._put = put
        self.remedy = remedy(splits.train, plan.config.data.workers)
        """How the training data is read, and what would make it faster."""
        self._train_skips = BadExamples("train", len(splits.train), budget)
        self._valid_skips = BadExamples("valid", len(splits.valid), budget)

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
        return Feed(self._splits.train, cut(shares, self._own), self._put, depth, self._train_skips, workers)

    def validation(self) -> Feed:
        """Batches with every validation example once."""
        config = self._config
        shares = valid_shares(len(self._splits.valid), config.num_cores, config.batch_per_core)
        depth, workers = config.data.prefetch_batches, config.data.workers
        return Feed(self._splits.valid, cut(shares, self._own), self._put, depth, self._valid_skips, workers)
