"""Which metrics are kept if there are too many: losses first, then validation values. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tputui.telemetry.events import Split

LOSS = "loss"
LOSS_NAMES = (
    "loss", "loss_step", "step_loss", "batch_loss", "loss_batch", "total_loss", "loss_total", "global_avg_loss",
    "avg_loss", "loss_avg", "mean_loss", "loss_mean", "lm_loss", "nll_loss", "ce_loss", "cross_entropy_loss",
    "cross_entropy", "loss_epoch", "epoch_loss",
)  # fmt: skip
"""Names of the training loss, the preferred one first."""
NUM_CLASSES = 3
_WORDS = re.compile(r"[^a-z0-9]+")

T = TypeVar("T")


def in_form(name: str) -> str:
    """A name in the form in which names of losses are compared."""
    return name.lower().replace(" ", "_").replace("-", "_").replace(".", "_")


def class_of(name: str, split: Split) -> int:
    """0 for a loss of `LOSS_NAMES`, 1 for other losses and for validation values, 2 for other metrics."""
    if in_form(name) in LOSS_NAMES:
        return 0
    form = name.lower()
    is_loss = LOSS in _WORDS.split(form) or form.rpartition("/")[2] in LOSS_NAMES
    return 1 if is_loss or split == "valid" else 2


def first_of(found: Sequence[T], most: int, class_of_one: Callable[[T], int]) -> list[T]:
    """At most so many, those of the lowest classes first, in their order."""
    if len(found) <= most:
        return list(found)
    places = sorted(range(len(found)), key=lambda place: class_of_one(found[place]))[:most]
    return [found[place] for place in sorted(places)]
