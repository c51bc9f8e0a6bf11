"""AverageMeter: folded on the host, once a report, from the per-core sums that every step left on the device.

Float64 and strictly in the order of steps, so that the figures do not depend on when reports fell due, and a
resumed epoch goes on exactly where it stopped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tputui.telemetry.events import MeterReading

Float32s = npt.NDArray[np.float32]


class AverageMeter:
    """A figure over examples: of the newest step, and of all since the epoch began."""

    def __init__(self) -> None:
        self.val = float("nan")
        self.sum = 0.0
        self.count = 0

    def add(self, total: float, count: int) -> None:
        """Takes one step: the sum over its examples, and their number."""
        if count:
            self.val = total / count
            self.sum += total
            self.count += count

    def reading(self) -> MeterReading:
        """What it shows now; NaN before the first example."""
        avg = self.sum / self.count if self.count else float("nan")
        return MeterReading(val=self.val, avg=avg, sum=self.sum, count=self.count)


class Meters:
    """The meters of one pass over a split."""

    def __init__(self, names: tuple[str, ...], num_cores: int) -> None:
        self._meters = {name: AverageMeter() for name in names}
        self.reduced = f"sum over the examples of {num_cores} cores divided by their number, padding not counted"
        """How a reading comes about, in words."""

    def add(self, sums: Float32s, counts: npt.NDArray[np.int64]) -> None:
        """Takes steps in order: `sums` [steps, meters, cores], `counts` [steps, cores] examples."""
        totals = sums.sum(axis=2, dtype=np.float64)
        numbers = counts.sum(axis=1)
        for row, number in zip(totals.tolist(), numbers.tolist(), strict=True):
            for meter, total in zip(self._meters.values(), row, strict=True):
                meter.add(total, number)

    def readings(self) -> dict[str, MeterReading]:
        """Every meter that has seen an example."""
        return {name: meter.reading() for name, meter in self._meters.items() if meter.count}

    def state(self) -> dict[str, list[float]]:
        """What `restore` takes."""
        return {name: [meter.val, meter.sum, float(meter.count)] for name, meter in self._meters.items()}

    def restore(self, state: dict[str, list[float]]) -> None:
        """Goes on from a saved state."""
        for name, (val, total, count) in state.items():
            meter = self._meters[name]
            meter.val, meter.sum, meter.count = val, total, int(count)
