"""The examples of each step: a pure function of seed, epoch and batch, so that a resumed run continues exactly.

As DistributedSampler: every epoch is a fresh permutation, and no two cores get the same example. A batch is a slice of
the permutation, and each core takes a contiguous share of the batch; hence the number of cores does not change which
examples a step trains on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class BatchShare(NamedTuple):
    """The examples of one batch; core r has the rows from r * batch_per_core on."""

    indices: Indices
    """[global_batch]"""
    real: npt.NDArray[np.float32] | None
    """[global_batch] 1 for an example, 0 for padding; None if there is no padding."""
    counts: Indices
    """[cores] examples of each core, without padding."""


def permutation(num_examples: int, seed: int, epoch: int) -> Indices:
    """[num_examples] the order of an epoch. Uses the raw bit stream, which numpy guarantees never to change."""
    stream = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    return np.argsort(stream.random_raw(num_examples), kind="stable").astype(np.int64)


def train_shares(
    num_examples: int,
    num_cores: int,
    batch_per_core: int,
    *,
    seed: int,
    epoch: int,
    start: int = 0,
    end: int | None = None,
) -> Iterator[BatchShare]:
    """The full batches of an epoch from batch `start` to `end`; a partial last batch is dropped."""
    size = num_cores * batch_per_core
    order = permutation(num_examples, seed, epoch)
    counts = np.full(num_cores, batch_per_core, dtype=np.int64)
    whole = num_examples // size
    for batch in range(start, whole if end is None else min(end, whole)):
        yield BatchShare(order[batch * size : (batch + 1) * size], None, counts)


def valid_shares(num_examples: int, num_cores: int, batch_per_core: int) -> Iterator[BatchShare]:
    """Every example exactly once, in order; the last batch is padded to the full size to avoid a new shape."""
    size = num_cores * batch_per_core
    for first in range(0, num_examples, size):
        indices = np.arange(first, first + size, dtype=np.int64)
        real = indices < num_examples
        counts = real.reshape(num_cores, batch_per_core).sum(axis=1).astype(np.int64)
        yield BatchShare(np.where(real, indices, 0), real.astype(np.float32), counts)


def cut(shares: Iterable[BatchShare], own_cores: range) -> Iterator[BatchShare]:
    """The part of each share for the cores in the range `own_cores`, with their counts."""
    for indices, real, counts in shares:
        per_core = len(indices) // len(counts)
        rows = slice(own_cores.start * per_core, own_cores.stop * per_core)
        yield BatchShare(indices[rows], None if real is None else real[rows], counts[own_cores.start : own_cores.stop])
