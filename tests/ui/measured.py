"""A run with many metrics: training and validation meters, a score, a gradient norm, a learning rate that falls."""

from __future__ import annotations

import math

import msgspec

from tests.ui import made
from tputui.state.chart_data import MeterPoint
from tputui.state.snapshot import Snapshot
from tputui.telemetry.events import EpochEnded, EpochStarted

EPOCHS = 12
STEPS_PER_EPOCH = 25
BEST = 9
"""The epoch with the least validation loss; afterwards the run overfits."""


def running(epochs: int = EPOCHS) -> Snapshot:
    """A run after so many epochs, of 25 steps each, and five steps of the next one."""
    run, steps = made.running(), epochs * STEPS_PER_EPOCH + 5
    assert run.throughput is not None
    history = [msgspec.structs.replace(point, lr=_lr(point.step)) for point in run.throughput.history]
    return made.changed(
        run,
        config={"task": "digits", "checkpoint": {"monitor": "auc", "mode": "max"}},
        epoch=epochs + 1,
        steps=steps,
        loss=made.segments(steps),
        core_columns=made.core_columns(8, steps),
        epochs=[_epoch(number) for number in range(1, epochs + 1)],
        epoch_starts=[
            EpochStarted(epoch=number, first_step=first, t=made.step_t(first))
            for number, first in enumerate(range(1, steps + 1, STEPS_PER_EPOCH), 1)
        ],
        throughput=msgspec.structs.replace(run.throughput, history=[point for point in history if point.step <= steps]),
        meter_history=[_report(step) for step in range(5, steps + 1, 5)],
        plan=msgspec.structs.replace(
            run.plan, num_epochs=20, steps_per_epoch=STEPS_PER_EPOCH, total_steps=20 * STEPS_PER_EPOCH
        )
        if run.plan is not None
        else None,
    )


def _lr(step: int) -> float:
    return 0.004 * (1 + math.cos(math.pi * step / 500)) / 2


def _epoch(number: int) -> EpochEnded:
    train, valid = _figures(number)
    return EpochEnded(
        epoch=number,
        step=number * STEPS_PER_EPOCH,
        t=made.step_t(number * STEPS_PER_EPOCH) + 0.1,
        train={name: made.reading(value, 1400) for name, value in train.items()},
        valid={name: made.reading(value, 360) for name, value in valid.items()},
        train_s=3.4,
        valid_s=0.4,
        sections_s={"execute": 3.0, "evaluate": 0.4, "compile": 3.1 if number == 1 else 0.0},
        lr=_lr(number * STEPS_PER_EPOCH),
        best=number in (1, 2, 4, BEST),
        scores={"auc": 1 - 0.3 / number - 0.004 * max(number - BEST, 0) ** 2},
        trace_s={},
    )


def _figures(number: float) -> tuple[dict[str, float], dict[str, float]]:
    train = {
        "loss": 2.0 / (number + 0.5) + 0.05,
        "accuracy": 1 - 0.5 / (number + 1),
        "grad norm": 3.0 / number,
    }
    valid = {
        "loss": 2.1 / (number + 0.5) + 0.08 + 0.02 * max(number - BEST, 0) ** 2,
        "accuracy": 1 - 0.6 / (number + 1),
    }
    return train, valid


def _report(step: int) -> MeterPoint:
    epoch = (step - 1) // STEPS_PER_EPOCH + 1
    train, _ = _figures(step / STEPS_PER_EPOCH + 0.5)
    return MeterPoint(epoch=epoch, split="train", step=step, avg=train)
