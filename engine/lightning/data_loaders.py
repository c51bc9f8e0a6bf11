"""The DataLoaders of the user: checked, and in an order that a resumed run continues.

The order of examples is made a pure function of seed and epoch, so that a run that was stopped within an epoch resumes
with the examples that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from engine.checkpoint.resume import Position
from engine.errors import Refused
from tputui.config import RunConfig


class ResumableSampler:
    """A sampler whose order depends on seed and epoch; in its first epoch it skips the examples already trained on."""

    def __init__(self, sampler: Any, seed: int, at: Position, global_batch: int) -> None:
        """`at` is the position where training begins."""
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
        """Lightning calls this before each epoch, counting from 0."""
        self._epoch = epoch


class LoaderInfo(NamedTuple):
    examples: int
    batches: int
    """Batches that are used."""
    ragged: int
    """Examples of an incomplete last batch; 0 if it is complete."""


def check_train_loader(loader: Any, config: RunConfig, at: Position) -> LoaderInfo:
    """Checks the training loader and makes its order depend on seed and epoch; an incomplete last batch is not used.

    Raises `Refused`.
    """
    info = _loader_info(loader, "the training loader")
    batch_size = loader.batch_size
    if batch_size != config.global_batch:
        raise Refused.of(
            "data",
            f"the training loader gives batches of {batch_size}, but {config.global_batch} is configured; let the "
            "LightningDataModule take batch_size, or configure what it gives",
        )
    complete = info.examples // config.global_batch
    if complete == 0:
        raise Refused.of(
            "data", f"a global batch of {config.global_batch} is more than the {info.examples} training examples"
        )
    if isinstance(loader.batch_sampler, BatchSampler):
        # Replaced here, since a DataLoader does not allow its own attributes to be changed.
        loader.batch_sampler.sampler = ResumableSampler(
            loader.batch_sampler.sampler, config.seed, at, config.global_batch
        )
    batches = min(complete, config.data.batches_per_epoch or complete)
    return info._replace(batches=batches)


def check_valid_loaders(loaders: Any) -> LoaderInfo:
    """Sizes of all validation loaders together. Raises `Refused`."""
    infos = [_loader_info(loader, "a validation loader") for loader in _as_list(loaders)]
    return LoaderInfo(
        sum(info.examples for info in infos),
        sum(info.batches for info in infos),
        max((info.ragged for info in infos), default=0),
    )


def _as_list(loaders: Any) -> list[Any]:
    if isinstance(loaders, dict):
        return list(loaders.values())
    return list(loaders) if isinstance(loaders, list | tuple) else [loaders]


def _loader_info(loader: Any, what: str) -> LoaderInfo:
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        raise Refused.of(
            "data", f"{what} must be a DataLoader over a dataset with a length and a batch_size: a stream has none"
        )
    examples = len(loader.sampler)  # type: ignore[arg-type]  # every sampler of a dataset with a length has one
    ragged = 0 if loader.drop_last else examples % loader.batch_size
    return LoaderInfo(examples, len(loader), ragged)
