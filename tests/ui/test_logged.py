"""Metrics that a script logged itself, on the screen."""

from __future__ import annotations

from tests.recorded import T0, opened
from tests.ui.driving import AppPilot, drive, monitor
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import CONSOLE, LoggedColumns, values_logged
from tputui.text.show_page import show_text, to_show
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.meters import LOGGED_MAX, MetersPanel
from tputui.ui.widgets.line_widget import plain_text


def logged(name: str, values: list[float], split: Split = "train", source: str = "a.csv") -> ev.ValuesLogged:
    steps = [10 * (row + 1) for row in range(len(values))]
    columns = LoggedColumns(values, steps, [T0 + step for step in steps], None)
    return values_logged(T0 + steps[-1], name, split, name, source, columns)


def snapshot_of(*events: ev.Event, role: str = "worker") -> Snapshot:
    state = RunState()
    beat = ev.HeartbeatSent(t=T0 + 60, phase="executing", phase_s=1.0, step=30, epoch=0)
    for seq, event in enumerate([opened(T0, role), *events, beat]):
        state.apply(f"{role}-0", seq, event)
    return build_snapshot(state, ViewerContext(now=T0 + 60, run="a", dir="a", alive={f"{role}-0": True}))


def test_script_without_a_loss_has_its_metrics_in_the_place_of_the_loss() -> None:
    snapshot = snapshot_of(
        logged("reward", [1.0, 2.0, 3.0]), logged("score", [0.25, 0.5], "valid"), logged("grad", [7.0], source=CONSOLE)
    )

    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        text = plain_text(panel._lines)
        assert "reward" in text
        assert "3.0000" in text
        names = set()
        for _ in range(3):
            names |= {series.name for series in panel._page.shown} if panel._page else set()
            await pilot.press("m")
        assert names == {"reward", "score", "grad"}
        meters = plain_text(pilot.app.screen.query_one(MetersPanel)._lines)
        assert "score" in meters
        assert "0.5000" in meters

    drive(monitor(snapshot), script, size=(120, 36))


def test_the_best_epoch_of_a_script_has_its_values_beside_the_newest() -> None:
    epochs = [
        ev.EpochEnded(
            t=T0 + 20 * epoch, epoch=epoch, step=10 * epoch, train={}, train_s=1.0, valid_s=1.0, best=epoch == 1,
            monitor="loss", valid={"loss": ev.MeterReading(val=loss, avg=loss, sum=loss, count=1)}, scores={"f1": 0.9},
            sections_s={}, trace_s={}, lr=0.1,
        )
        for epoch, loss in ((1, 0.25), (2, 0.75))
    ]  # fmt: skip
    snapshot = snapshot_of(
        logged("loss", [0.25, 0.75], "valid"), logged("f1", [0.9, 0.8], "valid"), *epochs, role="logs"
    )

    async def script(pilot: AppPilot) -> None:
        rows = plain_text(pilot.app.screen.query_one(MetersPanel)._lines).splitlines()
        cells = [row.strip("\u2502 ").split() for row in rows]
        values = {name: of for name, *of in filter(None, cells) if name in ("loss", "f1")}
        assert values == {"loss": ["-", "0.7500", "0.2500"], "f1": ["-", "0.8000", "0.9000"]}

    drive(monitor(snapshot), script, size=(120, 36))


def test_values_from_the_console_are_marked_on_the_metric_page() -> None:
    snapshot = snapshot_of(logged("reward", [1.0, 2.0], source=CONSOLE), logged("score", [0.25, 0.5]))

    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        lines = plain_text(panel._lines).splitlines()
        marked = [line for line in lines if "from console" in line]
        assert len(marked) == 1
        assert "reward" in marked[0]

    drive(monitor(snapshot), script, size=(200, 50))


def test_value_after_the_newest_loss_is_drawn() -> None:
    loss = ev.StepsRecorded(t=T0 + 1, first=1, n=1, cores=1, mean=0.5, min=0.5, max=0.5, block="rAAAAPw==")
    snapshot = snapshot_of(loss, logged("score", [0.25, 0.75], "valid"))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("m")
        panel = pilot.app.screen.query_one(LossPanel)
        assert "0.7500" in plain_text(panel._lines)
        assert panel._drawn is not None
        assert panel._drawn[0].segments[-1].last_step == 20

    drive(monitor(snapshot), script, size=(120, 36))


def test_hundreds_of_metrics_have_charts_and_the_table_says_how_many_more_there_are() -> None:
    names = [f"layer{number}/grad_norm" for number in range(LOGGED_MAX + 40)]
    snapshot = snapshot_of(*(logged(name, [1.0, 2.0]) for name in names), logged("score", [0.25, 0.5], "valid"))

    async def script(pilot: AppPilot) -> None:
        meters = pilot.app.screen.query_one(MetersPanel).as_text()
        assert "score" in meters
        assert meters.count("grad_norm") >= LOGGED_MAX - 1
        assert "41 logged metrics more" in meters
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.press("2", "slash", *f"layer{LOGGED_MAX + 39}", "enter")
        assert [series.name for series in panel._page.shown] == [names[-1]] if panel._page else False

    drive(monitor(snapshot), script, size=(120, 36))
    assert "41 metrics more; --json has them" in show_text(snapshot)
    assert len(to_show(snapshot)["logged"]) == LOGGED_MAX + 41
