"""What every step leaves on the device, fetched once a report: each core's sums over its examples.

A step shifts its sums into a register of fixed shape that stays on the device, so that a step after a report and
a step after a step are the same program, and a report is one transfer of a tensor that is there already: it runs
nothing, and may be read while the next step runs.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.data.feed import Batch
from engine.loop.meters import Float32s, Meters
from engine.parallel.base import Strategy
from engine.report_interval import DEPTH, ReportInterval


class Held(NamedTuple):
    """Steps that wait on the device to be read."""

    register: torch.Tensor
    """[DEPTH x rows of a step, own cores], the oldest step first; the newest rows are theirs."""
    counts: npt.NDArray[np.int64]
    """[steps, own cores] examples."""


class Steps(NamedTuple):
    """Steps that were read."""

    sums: Float32s
    """[steps, cores] sum of the first meter over each core's examples."""
    means: Float32s
    """[steps, cores] its mean; NaN where a core had no example."""
    norms: list[float]
    """Norm of the gradient in each step; empty where it is not kept."""


class StepBuffer:
    """The steps of one pass over a split, from the device to the meters."""

    def __init__(
        self, names: tuple[str, ...], strategy: Strategy, cadence: ReportInterval, *, with_norm: bool = False
    ) -> None:
        """`with_norm` says that each step has the norm of its gradient besides the meters."""
        self.meters = Meters(names, len(strategy.core_ids))
        self.cadence = cadence
        self._names = names
        self._strategy = strategy
        self._num_cores = len(strategy.core_ids)
        self._num_own = len(strategy.own)
        self._counts: list[npt.NDArray[np.int64]] = []
        self._held_at = time.perf_counter()
        self._with_norm = with_norm
        self._num_rows = len(names) + with_norm
        empty = torch.zeros(DEPTH * self._num_rows, self._num_own)
        self._register = strategy.shard(empty.to(strategy.device), 1)

    @property
    def pending(self) -> int:
        """Steps on the device that were not held yet."""
        return len(self._counts)

    @property
    def due(self) -> bool:
        """Whether a report is due."""
        return self.cadence.due(self.pending, time.perf_counter() - self._held_at)

    def is_due_after(self, steps: int) -> bool:
        """Whether a report of so many steps is due, by what the clock says now."""
        return self.cadence.due(steps, time.perf_counter() - self._held_at)

    def restart(self) -> None:
        """Begins a new pass; what was not read is given up."""
        self._counts = []
        self._held_at = time.perf_counter()
        self.meters = Meters(self._names, self._num_cores)

    def push(self, outcomes: dict[str, torch.Tensor], batch: Batch, norm: torch.Tensor | None = None) -> None:
        """Traces what keeps one step's outcomes, [global_batch] each, and the norm of its gradient. Reads nothing."""
        with torch.no_grad():
            values = torch.stack([outcomes[name].float() for name in self._names])
            if batch.real is not None:
                # Not a product: padding may well come to NaN.
                values = torch.where(batch.real > 0, values, 0.0)
            sums = values.view(len(self._names), self._num_own, -1).sum(-1)
            rows = [self._register[self._num_rows :], sums]
            if self._with_norm:
                norm = torch.zeros((), device=sums.device) if norm is None else norm
                rows.append(norm.float().expand(1, self._num_own))
            register = torch.cat(rows)
        # Marked each time: left to the compiler, the sharding changes between steps, and with it the program.
        self._register = self._strategy.shard(register, 1)
        self._counts.append(batch.counts)

    def hold(self) -> Held:
        """Sets the pending steps aside, to be read at any later moment. They must have been dispatched."""
        held = Held(self._register, np.stack(self._counts))
        self._counts = []
        self._held_at = time.perf_counter()
        return held

    def read(self, held: Held) -> Steps:
        """Folds the held steps into the meters; one transfer, which waits until they have run."""
        rows = self._strategy.read(held.register).reshape(DEPTH, self._num_rows, self._num_cores)
        counts = self._strategy.gather(held.counts, 1)
        rows = rows[DEPTH - len(counts) :]
        sums = rows[:, : len(self._names)]
        self.meters.add(sums, counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Float32s = np.divide(sums[:, 0, :], counts, dtype=np.float32)
        norms = rows[:, -1, 0].tolist() if self._with_norm else []
        return Steps(sums[:, 0, :], means, norms)
