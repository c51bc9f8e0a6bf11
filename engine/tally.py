"""What every step leaves on the device, fetched once a report: the outcomes of its examples.

A step shifts its outcomes into a register of fixed shape that stays on the device, so that a step after a report and
a step after a step are the same program, and a report is one transfer however many steps it covers. Summing over
each core's examples is left to the report: every operation costs the host some 30 us to trace, in every step.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import torch

from engine.cadence import DEPTH, Cadence
from engine.data.feed import Batch
from engine.meters import Float32s, Meters
from engine.sections import Sections
from engine.strategies.base import Strategy
from engine.xla import backend
from engine.xla.metrics import Programs


class Tally:
    """The steps of one pass over a split, from the device to the meters."""

    def __init__(
        self,
        names: tuple[str, ...],
        global_batch: int,
        strategy: Strategy,
        programs: Programs,
        sections: Sections,
        interval_s: float,
    ) -> None:
        self.meters = Meters(names, len(strategy.core_ids))
        self.cadence = Cadence(interval_s)
        self._names = names
        self._strategy = strategy
        self._programs = programs
        self._sections = sections
        self._counts: list[npt.NDArray[np.int64]] = []
        self._fetched_at = time.perf_counter()
        # [steps x meters, examples], the oldest step first.
        self._register = strategy.shard(torch.zeros(DEPTH * len(names), global_batch).to(strategy.device), 1)

    @property
    def pending(self) -> int:
        """Steps on the device that were not fetched yet."""
        return len(self._counts)

    @property
    def due(self) -> bool:
        """Whether a report is due."""
        return self.cadence.due(self.pending, time.perf_counter() - self._fetched_at)

    def restart(self) -> None:
        """Begins a new pass; what was not fetched is given up."""
        self._counts = []
        self._fetched_at = time.perf_counter()
        self.meters = Meters(self._names, len(self._strategy.core_ids))

    def push(self, outcomes: dict[str, torch.Tensor], batch: Batch) -> None:
        """Traces what keeps one step's outcomes, [global_batch] each. Reads nothing."""
        with torch.no_grad():
            values = torch.stack([outcomes[name].float() for name in self._names])
            if batch.real is not None:
                # Not a product: padding may well come to NaN.
                values = torch.where(batch.real > 0, values, 0.0)
            kept = self._register.narrow(0, len(self._names), (DEPTH - 1) * len(self._names))
            register = torch.cat((kept, values))
        # Marked each time: left to the compiler, the sharding changes between steps, and with it the program.
        self._register = self._strategy.shard(register, 1)
        self._counts.append(batch.counts)

    def fetch(self, program: str, waiting: str) -> Float32s:
        """Folds the pending steps into the meters; one transfer from the device.

        Returns each step's per-core mean of the first meter, [steps, cores]. `program` names the read in the
        compiler's books, `waiting` the section that is charged until the steps have run.
        """
        with self._sections.section(waiting):
            backend.wait()
        by_core = self._register.view(DEPTH, len(self._names), len(self._strategy.core_ids), -1).sum(-1)
        whole = self._strategy.replicate(by_core)
        self._programs.run(program)
        sums = backend.read(whole)[DEPTH - self.pending :]
        counts = np.stack(self._counts)
        self._counts = []
        self._fetched_at = time.perf_counter()
        self.meters.add(sums, counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Float32s = np.divide(sums[:, 0, :], counts, dtype=np.float32)
        return means
