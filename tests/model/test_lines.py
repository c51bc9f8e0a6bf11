"""What a report's line says of the losses."""

from __future__ import annotations

import math

import pytest

from tests.recorded import T0, opened, steps_recorded
from tputui.model.lines import Teller
from tputui.telemetry import events as ev

PROGRESS = ev.ProgressReported(
    t=T0 + 2, epoch=1, epoch_step=1, step=1, step_s=0.1, examples_per_s=640.0, lr=0.1, report_steps=1
)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([math.nan, math.nan], "loss NaN on all cores"),
        ([math.nan, math.inf, math.inf], "loss: no core finite (1 NaN, 2 inf)"),
        ([math.inf, -math.inf], "loss: no core finite (1 -inf, 1 inf)"),
        ([1.0, math.nan], "loss 1.0000 (1.0000 core 0 .. 1.0000 core 0, 1 not finite)"),
    ],
)
def test_losses_that_are_not_finite_are_told_as_they_are(losses: list[float], words: str) -> None:
    teller = Teller()
    events = [opened(T0, "worker"), steps_recorded(T0 + 1, 1, [losses]), PROGRESS]
    lines = [line for seq, event in enumerate(events) for line in teller.tell("worker-0", seq, event)]
    assert words in lines[-1].split("  ")
