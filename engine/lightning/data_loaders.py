"""What the user's own loaders give, and in which order: checked once, and made a pure function of seed and epoch.

An order that depends on nothing else lets a run that was stopped in the middle of an epoch go on with the examples
that were left. Must not move a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from engine.checkpoint.position import Position
from engine.errors import Problem, Refused
from tputui.config import RunConfig


class Ordered:
    """A sampler whose order is tied to the epoch, and which leaves out what its first epoch has behind it."""

    def __init__(self, sampler: Any, seed: int, at: Position, global_batch: int) -> None:
        self._sampler = sampler
        self._seed = seed
        self._first = at.epoch - 1
        self._skip = at.batch * global_batch
        self._epoch = self._first

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._sampler, "generator"):
            self._sampler.generator = torch.Generator().manual_seed((self._seed << 32) + self._epoch)
        yield from islice(self._sampler, self._skip if self._epoch == self._first else 0, None)

    def set_epoch(self, epoch: int) -> None:
        """Lightning says so before each epoch, counting from 0."""
        self._epoch = epoch


class Shape(NamedTuple):
    """What a loader gives in an epoch."""

    examples: int
    batches: int
    """Those that are taken."""
    ragged: int
    """Examples of a last batch that is not whole; 0 where it is."""


def training(loader: Any, config: RunConfig, at: Position) -> Shape:
    """Checks the training loader and ties its order to seed and epoch; a ragged end is not taken. Raises `Refused`."""
    shape = _shape(loader, "the training loader")
    batch_size = loader.batch_size
    if batch_size != config.global_batch:
        raise _refused(
            f"the training loader gives batches of {batch_size} where {config.global_batch} are configured; let the "
            "LightningDataModule take batch_size, or configure what it gives"
        )
    whole = shape.examples // config.global_batch
    if whole == 0:
        raise _refused(f"a global batch of {config.global_batch} is more than the {shape.examples} training examples")
    if isinstance(loader.batch_sampler, BatchSampler):
        # The loader itself lets none of its parts be changed; this is not one of its own.
        loader.batch_sampler.sampler = Ordered(loader.batch_sampler.sampler, config.seed, at, config.global_batch)
    batches = min(whole, config.data.batches_per_epoch or whole)
    return shape._replace(batches=batches)


def validation(loaders: Any) -> Shape:
    """What the validation loaders give together."""
    shapes = [_shape(loader, "a validation loader") for loader in _each(loaders)]
    return Shape(
        sum(shape.examples for shape in shapes),
        sum(shape.batches for shape in shapes),
        max((shape.ragged for shape in shapes), default=0),
    )


def _each(loaders: Any) -> list[Any]:
    if isinstance(loaders, dict):
        return list(loaders.values())
    return list(loaders) if isinstance(loaders, list | tuple) else [loaders]


def _shape(loader: Any, what: str) -> Shape:
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        raise _refused(f"{what} must be a DataLoader over a dataset with a length and a batch_size: a stream has none")
    examples = len(loader.sampler)  # type: ignore[arg-type]  # every sampler of a dataset with a length has one
    ragged = 0 if loader.drop_last else examples % loader.batch_size
    return Shape(examples, len(loader), ragged)


def _refused(message: str) -> Refused:
    return Refused([Problem("data", message)])
