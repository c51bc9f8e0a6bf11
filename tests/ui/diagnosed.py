"""Runs with something that slows them down, as events of observers show it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tests.diagnosis.runs import change, compiled, fell_back, frame, synced
from tests.ui import made
from tputui.state.evidence import Evidence, Observed, combined
from tputui.state.snapshot import Snapshot
from tputui.state.time_spent import TimeView


def evidence_of(events: Iterable[Observed]) -> Evidence:
    """What the events add up to."""
    process = Evidence()
    for event in events:
        assert process.add(event, steps_done=30, epoch=1)
    return combined([process])


def slowed(*, sync_code: str = "") -> Snapshot:
    """A minute of which recompiles took 8.3 s, a sync and a fallback less; the batch of 6 per core is a hint.

    `sync_code` is the text of the line that reads a value.
    """
    sync_frame = replace(frame(57), code=sync_code)
    events: list[Observed] = [
        *(
            compiled(step, 8.3 / 5, changed_inputs=change("f32[64,3,28,28]", f"f32[{step},3,28,28]", "batch"))
            for step in range(41, 46)
        ),
        synced(count=10, waited_s=0.08, steps=10, window_s=0.131, user_frame=sync_frame),
        fell_back(count=10, seconds=0.02, steps=10, window_s=0.131),
    ]
    run = made.running()
    assert run.plan is not None
    assert run.xla is not None
    return made.changed(
        run,
        evidence=evidence_of(events),
        plan=replace(run.plan, batch_per_core=6, global_batch=48),
        xla=replace(run.xla, recompiles=5),
        details=replace(run.details, cwd="/home/me"),
    )


def time_spent() -> TimeView:
    """A minute of training, of which the newest 80 steps took 1.2 s."""
    began = made.NOW - 50
    return TimeView(
        began=began,
        first_step=1,
        until=made.NOW,
        sections_s={"data": 5.0, "trace": 10.0, "compile": 12.0, "execute": 15.0, "evaluate": 3.0, "stall": 2.0},
        newest_s={"data": 0.3, "trace": 0.24, "execute": 0.3, "wait": 0.12, "report": 0.06, "evaluate": 0.06},
        newest_wall_s=1.2,
        newest_steps=80,
        newest_execute_s=0.72,
        saves={},
    )


def early() -> Snapshot:
    """A run after its 12th step."""
    return made.changed(made.running(), steps=12, step_s=None, throughput=None)
