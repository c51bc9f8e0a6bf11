"""Recorded runs with extreme numbers, and a function that draws every view of a run without an app."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests import recorded
from tests.ui.test_panels import joined
from tputui.compare.compare import compare
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.codec import decode, encode
from tputui.text.lines import LineWriter, last_lines
from tputui.text.loss_chart import loss_chart
from tputui.text.show_page import show_text, to_show
from tputui.ui.charts.axis import X_KINDS
from tputui.ui.charts.chart_view import VIEWS, ChartView, Window
from tputui.ui.compare.compare_view import ComparedPart, CompareView
from tputui.ui.compare.screen import PANEL_TYPES as COMPARED_TYPES
from tputui.ui.monitor.body import PANEL_TYPES
from tputui.ui.monitor.header import Header
from tputui.ui.monitor.log_lines import LogRows, folded
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.runs.preview import PreviewPart, RunPreview
from tputui.ui.runs.rows import row_of
from tputui.ui.runs.table import COLUMNS, cell
from tputui.ui.widgets.panel import Panel

FLOATS = (math.nan, math.inf, -math.inf, 1e308, -1e308, -1.0, 0.0, 5e-324, 253402300800.0)
INTS = (0, -1, ev.INT_MAX, -ev.INT_MAX, 1 << 53, 1 << 31)

LOOKS = [
    *(ChartView(kind=view, x=x) for view, x in zip(VIEWS, X_KINDS, strict=True)),
    ChartView(kind="band", x="time", log=True, smoothing=2),
    ChartView(kind="heat", x="epoch", window=Window(20, None)),
]

Journals = dict[str, list[ev.Event]]


def whole_run() -> Journals:
    """A run with an event of every type that has a number."""
    worker, supervisor = recorded.worker_events(), recorded.supervisor_events(recorded.T0 + 12)
    t = recorded.T0 + 9
    hbm = [ev.HbmReading(core=0, used_bytes=1 << 30, limit_bytes=16 << 30, peak_bytes=2 << 30)]
    module = ev.ModuleMemory(name="conv", bytes=1 << 20)
    forecast = ev.MemoryForecast(
        total_bytes=6 << 20, parameters_bytes=1 << 20, gradients_bytes=1 << 20, optimizer_bytes=1 << 20,
        activations_bytes=1 << 20, inputs_bytes=1 << 20, telemetry_bytes=1 << 20, biggest=[module], batch_per_core=8,
        precision="fp32", rematerialised=False, limit_bytes=16 << 30, limit="HBM",
    )  # fmt: skip
    worker[-1:-1] = [
        ev.MemoryPredicted(t=t, core=forecast),
        ev.MemorySampled(t=t, hbm=hbm),
        ev.DeviceSampled(
            t=t,
            cores=[
                ev.CoreSample(
                    core=0,
                    duty_cycle_percent=91.5,
                    hbm_bandwidth_percent=30.0,
                    tensorcore_idle_s=0.5,
                    queued_programs=2,
                    throttle_score=1,
                    ici_link_health=6,
                )
            ],
        ),
        ev.CoreStatesRead(
            t=t, request="1", cores=[ev.CoreState(core=0, pc=64, run_id=7, launch_id=8, queued_programs=1)]
        ),
        ev.StepsDropped(t=t, num_records=1, num_steps=3),
        ev.ExampleSkipped(t=t, split="train", where="a.csv:3", why="cut", skipped=1, limit=9),
        ev.RequestSeen(t=t, request="1", kind="checkpoint", phase="executing", step=60),
        ev.RequestApplied(t=t, request="1", kind="checkpoint", step=60, path="a.pt", bytes=9, seconds=0.1),
        ev.StallFound(t=t, text="it waits", step=60, policy="notify"),
        ev.NonFiniteFound(
            t=t,
            text="a NaN",
            split="train",
            metric="loss",
            step=60,
            cores=[0],
            value=math.nan,
            others_step=61,
            until_step=62,
            gradient_norms=[1.0, 2.0],
            policy="continue",
        ),
        ev.RankExited(t=t, process="rank-1", pid=7, exit_code=1, signal=None, ending=False),
    ]
    return {"worker-0": worker, "supervisor-0": supervisor}


def places(event: ev.Event) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The paths and values of the numbers in an event."""

    def walk(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        if isinstance(value, dict | list):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                yield from walk(inner, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield path, value

    yield from walk(msgspec.to_builtins(event), ())


def changed(event: ev.Event, path: tuple[Any, ...], value: float) -> ev.Event:
    """The event with one number replaced, decoded as from a journal; unchanged if it cannot be decoded."""
    fields = msgspec.to_builtins(event)
    inside = fields
    try:
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        return decode(encode(msgspec.convert(fields, type(event), strict=False), 0)).event
    except (ValueError, TypeError):
        return event


def absurd_runs() -> Iterator[tuple[str, Journals]]:
    """The run with one number replaced, in every event of its type, by each extreme one."""
    base = whole_run()
    absurd: dict[tuple[type[ev.Event], tuple[Any, ...]], Any] = {}
    for event in itertools.chain.from_iterable(base.values()):
        absurd |= {(type(event), path): value for path, value in places(event)}
    for (kind, path), before in absurd.items():
        for value in FLOATS if isinstance(before, float) else INTS:
            yield (
                f"{kind.__name__}.{'.'.join(map(str, path))} = {value!r}",
                {
                    name: [changed(event, path, value) if type(event) is kind else event for event in events]
                    for name, events in base.items()
                },
            )


def disordered_runs() -> Iterator[tuple[str, Journals]]:
    """The run with its steps or all events reordered, and with clock jumps."""
    base = whole_run()
    for seed in range(8):
        chance = random.Random(seed)
        worker = list(base["worker-0"])
        steps = [place for place, event in enumerate(worker) if seed % 2 or isinstance(event, ev.StepsRecorded)]
        order = chance.sample(steps, len(steps))
        for place, taken in zip(steps, order, strict=True):
            worker[place] = base["worker-0"][taken]
        yield f"order {seed}", {**base, "worker-0": worker}
    for by in (-1e9, -3600.0, 3600.0, 1e9):
        half = len(base["worker-0"]) // 2
        moved = [msgspec.structs.replace(event, t=event.t + by) for event in base["worker-0"][half:]]
        yield f"clock {by}", {**base, "worker-0": [*base["worker-0"][:half], *moved]}


def reduced(journals: Journals) -> RunState:
    """The state reduced from the journals."""
    state = RunState()
    for name, events in journals.items():
        for seq, event in enumerate(events):
            state.apply(name, seq, event)
    return state


def look(journals: Journals) -> None:
    """Draws every view of a run at its end and an hour later; lets their errors propagate."""
    teller = LineWriter(timestamps=True)
    for name, events in journals.items():
        for seq, event in enumerate(events):
            teller.lines(name, seq, event)
    state = reduced(journals)
    around = ViewerContext(now=recorded.T0 + 13, run="a", dir="/a", created=recorded.T0)
    snapshot = build_snapshot(state, around)
    draw(snapshot)
    last_lines(snapshot)
    show_text(snapshot)
    loss_chart(snapshot.loss)
    msgspec.json.encode(to_show(snapshot, whole=True))


def draw(snapshot: Snapshot) -> None:
    """Draws every panel of every screen."""
    for size in ((60, 12), (200, 50)):
        for kind in PANEL_TYPES:
            _drawn(kind(), kind.pick(snapshot), *size)
        header = Header()
        header.show(snapshot, replaying=False)
        header.paint(size[0], 4)
    for look in LOOKS:
        loss = LossPanel()
        loss.look = look
        _drawn(loss, loss.pick(snapshot), 120, 30)
    row = row_of(Path("/a"), snapshot, complete=True)
    for field in COLUMNS:
        cell(row, field, recorded.T0 + 20)
    _drawn(RunPreview(), PreviewPart(row), 120, 20)
    joined(list(LogRows(folded(snapshot.logs), 120, wrapped=True, with_source=True)))
    both = [snapshot, msgspec.structs.replace(snapshot, run="b")]
    part = ComparedPart(compare(both, 0), both, CompareView(2), frozenset())
    for compared in COMPARED_TYPES:
        _drawn(compared(), part, 120, 30)


def _drawn(panel: Panel[Any], part: Any, width: int, height: int) -> None:
    drawing = panel.draw(part, width, height)
    joined([*drawing.head, *drawing.rows])
