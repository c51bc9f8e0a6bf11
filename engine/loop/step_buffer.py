"""Per-step results on the device, fetched once a report: `StepBuffer`, and the `Meters` that are made of them.

A step shifts its sums into a register of fixed shape that stays on the device. So every step is the same program,
whether a report came before it or not, and a report is one transfer of an existing tensor: it runs nothing, and can be
read while the next step runs.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from engine.data.feed import Batch
from engine.parallel.base import Strategy
from engine.task import MAX_REPORT_STEPS
from tputui.reporting import AverageMeter
from tputui.reporting import events as ev

Float32s = npt.NDArray[np.float32]


class ReportInterval:
    """A report is due after a number of steps, which follows from the step time, or when the interval is over.

    The interval counts as well since steps may become slower before the number is adapted. With several processes,
    which have several clocks, `engine.parallel.coordinator.Coordinator` makes them agree.
    """

    def __init__(self, interval_s: float, every_steps: int | None = None) -> None:
        """`every_steps` fixes the number of steps; the interval still counts."""
        self._interval_s = interval_s
        self._fixed = every_steps
        self.steps = min(MAX_REPORT_STEPS, every_steps or 1)
        """Steps of a report. Unless the number is fixed, the first report is of one step."""

    def due(self, steps: int, waited_s: float) -> bool:
        """Whether a report of that many steps is due, `waited_s` after the last one."""
        return steps >= self.steps or (steps > 0 and waited_s >= self._interval_s)

    def retune(self, step_s: float) -> None:
        """Adapts the number of steps to the measured step time, without the time of compiling."""
        if self._fixed is None:
            steps = int(self._interval_s / step_s) if step_s > 0 else MAX_REPORT_STEPS
            self.steps = max(1, min(MAX_REPORT_STEPS, steps))


class Meters:
    """The meters of one pass over a split.

    Sums are folded on the host in float64 and strictly in the order of steps, so that the values do not depend on when
    reports were due, and a resumed epoch continues exactly where it stopped.
    """

    def __init__(self, names: tuple[str, ...], num_cores: int) -> None:
        self._meters = {name: AverageMeter() for name in names}
        self.reduced = f"sum over the examples of {num_cores:,} cores divided by their number, padding not counted"
        """How a reading is computed, in words."""

    def add(self, sums: Float32s, counts: npt.NDArray[np.int64]) -> None:
        """Adds steps in order: `sums` [steps, meters, cores], and the number of examples `counts` [steps, cores]."""
        totals = sums.sum(axis=2, dtype=np.float64)
        numbers = counts.sum(axis=1)
        for row, number in zip(totals.tolist(), numbers.tolist(), strict=True):
            for meter, total in zip(self._meters.values(), row, strict=True):
                meter.add(total, number)

    def readings(self) -> dict[str, ev.MeterReading]:
        """Readings of the meters that have seen an example."""
        return {name: meter.reading() for name, meter in self._meters.items() if meter.count}

    def state(self) -> dict[str, list[float]]:
        return {name: [meter.val, meter.sum, float(meter.count)] for name, meter in self._meters.items()}

    def restore(self, state: dict[str, list[float]]) -> None:
        for name, (val, total, count) in state.items():
            meter = self._meters[name]
            meter.val, meter.sum, meter.count = val, total, int(count)


class Detached(NamedTuple):
    """Steps on the device that are to be read as one report."""

    register: torch.Tensor
    """[MAX_REPORT_STEPS x rows of a step, traced cores], oldest step first; the newest rows belong to these steps."""
    counts: npt.NDArray[np.int64]
    """[steps, own cores] examples."""
    compute_s: npt.NDArray[np.float64]
    """[steps, own cores] compute time; NaN if not known."""


class FetchedSteps(NamedTuple):
    sums: Float32s
    """[steps, cores] sum of the first meter over the examples of each core."""
    means: Float32s
    """[steps, cores] mean of the first meter; NaN for a core without an example."""
    norms: list[float]
    """Gradient norm of each step; empty if norms are not kept."""
    compute_s: Float32s | None
    """[steps, cores] seconds that each core computed before it waited for the others; None if not known of each."""


class StepBuffer:
    """The steps of one pass over a split, on their way from the device to the meters."""

    def __init__(
        self, names: tuple[str, ...], strategy: Strategy, interval: ReportInterval, *, with_norm: bool = False
    ) -> None:
        """`names` are the meters. With `with_norm` each step also keeps the norm of its gradient."""
        self.meters = Meters(names, len(strategy.core_ids))
        self.interval = interval
        self._names = names
        self._strategy = strategy
        self._num_cores = len(strategy.core_ids)
        self._num_own = len(strategy.own)
        self._num_traced = strategy.traced
        self._counts: list[npt.NDArray[np.int64]] = []
        self._compute_s: list[float] = []
        self._detached_at = time.perf_counter()
        self._with_norm = with_norm
        self._num_rows = len(names) + with_norm
        empty = torch.zeros(MAX_REPORT_STEPS * self._num_rows, self._num_traced)
        self._register = strategy.shard(empty.to(strategy.device), 1)

    @property
    def pending(self) -> int:
        """Number of steps since the last `detach`."""
        return len(self._counts)

    def is_due_after(self, steps: int) -> bool:
        """Whether a report of that many steps is due now, by the clock of this process."""
        return self.interval.due(steps, time.perf_counter() - self._detached_at)

    def restart(self) -> None:
        """Begins a new pass; steps that were not fetched are dropped."""
        self._counts, self._compute_s = [], []
        self._detached_at = time.perf_counter()
        self.meters = Meters(self._names, self._num_cores)

    def append(
        self,
        outcomes: dict[str, torch.Tensor],
        batch: Batch,
        norm: torch.Tensor | None = None,
        compute_s: float = math.nan,
    ) -> None:
        """Traces the shift of one step into the register: its outcomes, [rows of the batch] for each meter, and the
        norm of its gradient, []. Reads nothing. `compute_s` is the compute time of this process; NaN if not known."""
        with torch.no_grad():
            values = torch.stack([outcomes[name].float() for name in self._names])
            if batch.real is not None:
                # Not a product: the outcome of padding may be NaN.
                values = torch.where(batch.real > 0, values, 0.0)
            sums = values.view(len(self._names), self._num_traced, -1).sum(-1)
            rows = [self._register[self._num_rows :], sums]
            if self._with_norm:
                norm = torch.zeros((), device=sums.device) if norm is None else norm
                rows.append(norm.float().expand(1, self._num_traced))
            register = torch.cat(rows)
        # Marked in each step: the sharding that the compiler would choose changes between steps, and so the program.
        self._register = self._strategy.shard(register, 1)
        self._counts.append(batch.counts)
        self._compute_s.append(compute_s)

    def detach(self) -> Detached:
        """Takes the pending steps, which must have been dispatched, to be fetched at any later moment."""
        compute_s = np.repeat(np.array(self._compute_s)[:, np.newaxis], self._num_own, axis=1)
        detached = Detached(self._register, np.stack(self._counts), compute_s)
        self._counts, self._compute_s = [], []
        self._detached_at = time.perf_counter()
        return detached

    def fetch(self, detached: Detached) -> FetchedSteps:
        """Reads detached steps into the meters; one transfer, which waits until they have run."""
        rows = self._strategy.read(detached.register).reshape(MAX_REPORT_STEPS, self._num_rows, self._num_cores)
        # In one exchange; a float64 holds the counts exactly.
        gathered = self._strategy.gather(np.stack([detached.counts.astype(np.float64), detached.compute_s]), 2)
        counts, compute_s = gathered[0].astype(np.int64), gathered[1].astype(np.float32)
        rows = rows[MAX_REPORT_STEPS - len(counts) :]
        sums = rows[:, : len(self._names)]
        self.meters.add(sums, counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Float32s = np.divide(sums[:, 0, :], counts, dtype=np.float32)
        norms = rows[:, -1, 0].tolist() if self._with_norm else []
        return FetchedSteps(sums[:, 0, :], means, norms, None if np.isnan(compute_s).any() else compute_s)
