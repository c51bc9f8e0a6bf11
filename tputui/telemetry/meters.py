"""Meter readings from a training loop: running averages, and values logged by a Lightning module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tputui.telemetry.events import MeterReading

SPLIT_PREFIXES: dict[str, tuple[str, ...]] = {
    "train": ("train_", "train/", "training_", "training/"),
    "valid": ("val_", "val/", "valid_", "valid/", "validation_", "validation/"),
    "test": ("test_", "test/"),
}
"""Prefixes of logged names that only repeat the split of the meter."""


class AverageMeter:
    """A value averaged over examples: of the newest step, and of all steps since the epoch began."""

    def __init__(self) -> None:
        self.val = float("nan")
        self.sum = 0.0
        self.count = 0

    def add(self, total: float, count: int) -> None:
        """Adds a step: the sum over its examples, and their number."""
        if count:
            self.val = total / count
            self.sum += total
            self.count += count

    def reading(self) -> MeterReading:
        """The current reading; NaN before the first example."""
        avg = self.sum / self.count if self.count else float("nan")
        return MeterReading(val=self.val, avg=avg, sum=self.sum, count=self.count)


def logged_meters(logged: Mapping[str, float], split: str, taken: Iterable[str] = ()) -> dict[str, MeterReading]:
    """Readings of the logged values of a split, under their names without the prefix of the split. A name that would
    then be in `taken`, or occur twice, keeps its prefix."""
    readings: dict[str, MeterReading] = {}
    names = set(taken)
    for name, value in logged.items():
        short = without_split(name, split)
        chosen = name if short in names else short
        names.add(chosen)
        readings[chosen] = MeterReading(val=value, avg=value, sum=value, count=1)
    return readings


def without_split(name: str, split: str) -> str:
    for prefix in SPLIT_PREFIXES[split]:
        if name.startswith(prefix) and name != prefix:
            return name[len(prefix) :]
    return name


def newly_logged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of Lightning's `callback_metrics` that were logged since it was `before`: each is a new tensor."""
    return {name: value for name, value in now.items() if before.get(name) is not value}
