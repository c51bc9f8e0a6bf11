"""What a module logged, as figures of a split: Lightning has one pot for all of them. Pure but for reading numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tputui.telemetry.events import MeterReading

PREFIXES: dict[str, tuple[str, ...]] = {
    "train": ("train_", "train/", "training_", "training/"),
    "valid": ("val_", "val/", "valid_", "valid/", "validation_", "validation/"),
    "test": ("test_", "test/"),
}
"""Beginnings of names that say the split, which our meters say besides."""
REDUCED = "as Lightning reduced it: by default the mean over batches, weighted by their examples; told as one value"
"""How a logged figure came about, in words."""


def meters(logged: Mapping[str, float], split: str, taken: Iterable[str] = ()) -> dict[str, MeterReading]:
    """The figures of a split under names without the split; a name that is taken already stays as it was logged."""
    found: dict[str, MeterReading] = {}
    names = set(taken)
    for name, value in logged.items():
        short = _short(name, split)
        chosen = name if short in names else short
        names.add(chosen)
        found[chosen] = MeterReading(val=value, avg=value, sum=value, count=1)
    return found


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What was logged since: Lightning puts a new tensor in the pot each time."""
    return {name: value for name, value in now.items() if before.get(name) is not value}


def monitored(name: str, found: Mapping[str, MeterReading]) -> float | None:
    """The figure that tells the best epoch, by its name with or without the split; None where it was not logged."""
    reading = found.get(name) or found.get(_short(name, "valid"))
    return None if reading is None else reading.avg


def _short(name: str, split: str) -> str:
    for prefix in PREFIXES[split]:
        if name.startswith(prefix) and name != prefix:
            return name[len(prefix) :]
    return name
