"""The pages of metrics: which charts they show, what these draw, and keys, cursor and export on them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import textual

from tests.ui import made, measured
from tests.ui.driving import AppPilot, drive, first_frame, monitor, until
from tests.ui.test_pictures import DRAWN_BY, Compare
from tputui.report import charts as html
from tputui.state.chart_data import LoggedView, Segment
from tputui.state.metric_series import Metrics, MetricSource, metric_series
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base import export
from tputui.ui.charts import metric_layout, metric_page
from tputui.ui.charts.axis import X_KINDS, axis_info_of
from tputui.ui.charts.chart_view import ChartSeries, ChartView
from tputui.ui.charts.loss import LossChart
from tputui.ui.charts.metric_page import MetricCharts, MetricPage
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.render.lines import width_of
from tputui.ui.widgets.line_widget import plain_text

SIZES = [(80, 24), (120, 36), (160, 45), (200, 50)]
same_textual = pytest.mark.skipif(textual.__version__ != DRAWN_BY, reason=f"drawn by Textual {DRAWN_BY}")


def page_of(
    snapshot: Snapshot, width: int = 110, height: int = 30, view: ChartView | None = None, metric: str = "auc"
) -> MetricPage:
    view = view or ChartView()
    series = ChartSeries(snapshot.loss, snapshot.core_columns, snapshot.marks, axis_info_of(snapshot))
    data = LossChart().visible(series, view._replace(kind="multiples"))
    page = MetricCharts().draw(MetricSource.of(snapshot), metric, data, width, height)
    assert page is not None
    return page


def drawn(page: MetricPage) -> str:
    return plain_text(page.chart.lines)


def panel(pilot: AppPilot) -> LossPanel:
    return pilot.app.screen.query_one(LossPanel)


def charts(pilot: AppPilot) -> list[str]:
    """The metrics of the page that is shown."""
    page = panel(pilot)._page
    return [] if page is None else [metric.name for metric in page.shown]


def shown(pilot: AppPilot) -> str:
    """The text of the loss panel alone."""
    return plain_text(panel(pilot)._lines)


def test_validation_loss_is_in_the_loss_chart() -> None:
    async def script(pilot: AppPilot) -> None:
        assert "○ valid 0.4280" in shown(pilot)
        assert shown(pilot).count("○") > 3
        assert "★" in shown(pilot)
        await pilot.press(*["comma"] * 20)
        assert "○ valid 0.3011 epoch 9" in shown(pilot)
        await pilot.press("escape", "v", "v")
        assert "valid" not in shown(pilot)

    drive(monitor(measured.running()), script, size=(160, 45))


def test_m_shows_the_pages_in_turn_and_back() -> None:
    async def script(pilot: AppPilot) -> None:
        names = []
        for _ in range(7):
            await pilot.press("m")
            names.append(panel(pilot).look.metric)
        assert names == ["auc", "accuracy", "grad norm", "lr", "throughput", "step time", ""]
        await pilot.press("M")
        assert "step time" in shown(pilot)
        assert "6 of 6" in shown(pilot)
        await pilot.press("u")
        assert panel(pilot).look.metric == ""
        await pilot.press("m", "v")
        assert (panel(pilot).look.metric, panel(pilot).look.kind) == ("", "overlay")

    drive(monitor(measured.running()), script, size=(72, 24))


@pytest.mark.parametrize(
    ("size", "most"), [((72, 24), 1), ((80, 24), 2), ((120, 36), 2), ((160, 45), 6), ((200, 50), 6)]
)
def test_a_page_has_as_many_charts_as_fit(size: tuple[int, int], most: int) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("m")
        page = panel(pilot)._page
        assert page is not None
        assert len(page.shown) == most
        await pilot.press("2", "z")
        page = panel(pilot)._page
        assert page is not None
        assert len(page.shown) == {72: 2, 80: 4}.get(size[0], 7)

    drive(monitor(measured.running()), script, size=size)


@pytest.mark.parametrize("count", range(1, 41))
def test_charts_are_never_smaller_than_useful(count: int) -> None:
    for width in (20, 36, 42, 76, 112, 196, 300):
        for height in (5, 8, 13, 20, 45, 80):
            tiles = metric_layout.tiling(count, width, height)
            assert tiles.across * tiles.width <= width
            assert tiles.down * tiles.height <= height
            if width >= metric_layout.LEAST_WIDTH and height >= metric_layout.LEAST_HEIGHT:
                assert tiles.width >= metric_layout.LEAST_WIDTH
                assert tiles.height >= metric_layout.LEAST_HEIGHT
            fits = (width // metric_layout.LEAST_WIDTH) * (height // metric_layout.LEAST_HEIGHT) >= count
            assert (tiles.room >= count) or not fits


def test_lines_have_the_width_and_height_of_the_page() -> None:
    for view in (ChartView(), ChartView(log=True, smoothing=3, x="epoch"), ChartView(x="time", cursor=120)):
        for width, height in ((36, 7), (40, 8), (77, 16), (150, 41)):
            page = page_of(measured.running(), width, height, view)
            assert len(page.chart.lines) <= height - page.has_head
            assert all(width_of(line) <= width for line in page.chart.lines)


def test_title_has_newest_and_best_values() -> None:
    text = drawn(page_of(measured.running(), 190, 45))
    assert "auc" in text
    assert "○ valid 0.9390  ★ 0.9667 epoch 9" in text
    assert "accuracy  ─ train 0.9635" in text
    assert "throughput  ─ 5,039 examples/s" in text
    assert "step time  ─ 0.0127 s" in text


def test_title_has_the_values_at_the_cursor() -> None:
    text = drawn(page_of(measured.running(), 190, 45, ChartView(cursor=74)))
    assert "○ valid 0.8500  ★ 0.9667 epoch 9" in text
    assert "accuracy  ─ train 0.8750" in text


def test_curves_differ_without_colour() -> None:
    """GIVEN equal training and validation curves, WHEN each is drawn alone, THEN line and dotted line differ."""
    run = measured.running()
    only_train = made.changed(run, epochs=[msgspec.structs.replace(e, valid={}, scores={}) for e in run.epochs])
    only_valid = made.changed(
        run, meter_history=[], epochs=[msgspec.structs.replace(e, valid=e.train, train={}) for e in run.epochs]
    )
    train, valid = (drawn(page_of(one, 76, 10, metric="accuracy")) for one in (only_train, only_valid))
    dots = [sum(0x2800 <= ord(c) <= 0x28FF and (ord(c) - 0x2800).bit_count() for c in one) for one in (train, valid)]
    assert dots[0] > 2 * dots[1]
    assert "○" not in train
    assert valid.count("○") > 5


def test_star_is_at_the_best_epoch_on_every_axis() -> None:
    for x in X_KINDS:
        page = page_of(measured.running(), 40, 12, ChartView(x=x), metric="auc")
        line = next(line for line in drawn(page).splitlines()[2:] if "★" in line)
        axes = page.chart.axes
        assert line.index("★") == axes.left + axes.cell_of(measured.BEST * measured.STEPS_PER_EPOCH)


def test_nan_is_marked_and_the_rest_is_drawn() -> None:
    run = measured.running()
    epochs = list(run.epochs)
    epochs[4] = msgspec.structs.replace(epochs[4], scores={"auc": math.nan})
    page = page_of(made.changed(run, epochs=epochs), 40, 12)
    assert "✖" in drawn(page).splitlines()[-2]
    every = [msgspec.structs.replace(epoch, scores={"auc": math.inf}) for epoch in run.epochs]
    text = drawn(page_of(made.changed(run, epochs=every), 40, 12))
    assert "all values are NaN or infinite" in text
    assert "○ valid inf" in text


def test_log_axis_counts_what_it_cannot_show() -> None:
    run = measured.running()
    epochs = [msgspec.structs.replace(epoch, scores={"auc": -1.0}) for epoch in run.epochs]
    page = page_of(made.changed(run, epochs=epochs), 40, 12, ChartView(log=True))
    assert "all values are 0 or less" in drawn(page)
    assert page.chart.hidden == measured.EPOCHS


def test_within_narrow_epochs_only_the_mean_of_the_epoch_is_drawn() -> None:
    run = measured.running()
    outlier = [
        msgspec.structs.replace(point, avg={"accuracy": 50.0 if point.step == 110 else 0.5})
        for point in run.meter_history
    ]
    spiky = made.changed(run, meter_history=outlier)
    wide = page_of(spiky, 200, 12, metric="accuracy").chart
    assert wide.axes.y is not None

    def highest(width: int) -> int:
        lines = drawn(page_of(spiky, width, 9, metric="accuracy")).splitlines()[1:-2]
        return min(row for row, line in enumerate(lines) for c in line if 0x2800 < ord(c) <= 0x28FF)

    assert highest(200) == 0
    assert highest(36) > 0


def test_windows_show_the_values_of_their_steps() -> None:
    page = page_of(measured.running(), 40, 12, ChartView().zoomed(True, 200, 1, 305), metric="auc")
    line = drawn(page)
    assert line.count("★") == 2  # in the title and in the chart
    early = page_of(measured.running(), 40, 12, ChartView().zoomed(True, 1, 1, 305).zoomed(True, 1, 1, 305))
    assert drawn(early).count("★") == 1


def test_smoothing_leaves_means_of_epochs_alone() -> None:
    run = measured.running()
    raw, smooth = (page_of(run, 40, 12, ChartView(smoothing=by), metric="accuracy") for by in (0, 4))
    assert drawn(raw) == drawn(smooth)
    raw, smooth = (page_of(run, 40, 12, ChartView(smoothing=by), metric="throughput") for by in (0, 4))
    assert drawn(raw) != drawn(smooth)


def test_learning_rate_is_drawn_in_steps() -> None:
    run = measured.running()
    assert run.throughput is not None
    few = run.throughput.history[::12]
    halves = [msgspec.structs.replace(point, lr=0.1 if 2 * at < len(few) else 0.05) for at, point in enumerate(few)]
    halved = made.changed(run, throughput=msgspec.structs.replace(run.throughput, history=halves), epochs=[])
    lines = drawn(page_of(halved, 60, 12, metric="lr")).splitlines()[1:-2]
    dots = [[x for x, c in enumerate(line) if 0x2800 < ord(c) <= 0x28FF] for line in lines]
    rows = [row for row in dots if row]
    # The jump is upright: between both values there is one column of dots.
    assert all(row == rows[1][:1] for row in rows[1:-1])
    assert len(rows) > 4


def test_cursor_keeps_its_step_on_every_page() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("comma", "comma", "comma")
        step = panel(pilot).look.cursor
        assert step is not None
        await pilot.press("m")
        assert panel(pilot).look.cursor == step
        assert f"step {step:,}" in shown(pilot)
        await pilot.press("comma")
        assert panel(pilot).look.cursor != step
        assert shown(pilot).count("▴") == 6
        await pilot.press("escape")
        assert panel(pilot).look.metric == "auc"
        assert "▴" not in shown(pilot)

    drive(monitor(measured.running()), script, size=(160, 45))


def test_click_reads_in_every_chart_of_the_page() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("m")
        page = panel(pilot)._page
        assert page is not None
        left, every = page.chart.axes.left, page.chart.every
        await pilot.click(LossPanel, offset=(1 + left + 10, 4))
        first = panel(pilot).look.cursor
        await pilot.click(LossPanel, offset=(1 + left + 10 + 2 * every, 4))
        assert first is not None
        assert panel(pilot).look.cursor == first

    drive(monitor(measured.running()), script, size=(160, 45))


def test_new_metric_appears_without_moving_the_page() -> None:
    source = made.HandSource(made.changed(measured.running(1), epochs=[]))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("m", "m")
        assert panel(pilot).look.metric == "grad norm"
        source.served = measured.running(2)
        await until(pilot, lambda: "best epoch 2" in shown(pilot))
        assert "grad norm" in shown(pilot)
        assert "3 of 6" in shown(pilot)

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=(72, 24))


def test_a_run_without_steps_says_so_on_every_page() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("m")
        assert "metrics" not in shown(pilot)

    drive(monitor(made.empty()), script)


@pytest.mark.parametrize(
    ("snapshot", "size", "keys"),
    [(made.starting(), (120, 36), "77m"), (made.starting(), (20, 5), "m"), (made.empty(), (50, 12), "m")],
)
def test_m_without_metrics_changes_nothing(snapshot: Snapshot, size: tuple[int, int], keys: str) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press(*keys)
        assert panel(pilot).look.metric == ""

    drive(monitor(snapshot), script, size=size)


def test_m_shows_metrics_while_another_panel_fills_the_screen() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "7")
        assert not panel(pilot).display
        await pilot.press("m")
        await until(pilot, lambda: panel(pilot).look.metric == "auc")
        assert panel(pilot).display
        assert not pilot.app.screen.query_one(LogPanel).display
        await pilot.press("7", "m")
        await until(pilot, lambda: panel(pilot).display)
        assert panel(pilot).look.metric == "auc"

    drive(monitor(measured.running()), script, size=(120, 36))


def test_search_shows_the_metrics_whose_names_have_all_words() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("m", "slash", "a", "c")
        assert "[1/7]" in shown(pilot)
        assert charts(pilot) == ["accuracy"]
        await pilot.press("backspace", "(", "l")
        assert "not applied" in shown(pilot)
        await pilot.press(*["backspace"] * 3, *"r m$", "enter")
        assert charts(pilot) == ["grad norm"]
        assert "/r m$/ 1 of 1" in shown(pilot)
        await pilot.press("l")
        assert panel(pilot).look.log
        await pilot.press("slash", *"zz")
        assert "no metric matches /r m$zz/: 7 searched" in shown(pilot)
        await pilot.press("enter", "escape")
        assert len(charts(pilot)) > 5

    drive(monitor(measured.running()), script, size=(160, 45))


def test_search_begins_on_the_page_of_metrics_from_any_panel() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("1", "slash", *"qsl", "escape")
        assert isinstance(pilot.app.screen, MonitorScreen)
        assert len(charts(pilot)) > 5
        await pilot.press("7", "slash", "x")
        assert not panel(pilot).is_typing

    drive(monitor(measured.running()), script, size=(160, 45))


@pytest.mark.parametrize("player", [made.HandPlayer, made.LivePlayer], ids=["replay", "live"])
def test_an_earlier_moment_has_the_metrics_of_then(player: Callable[[], made.HandPlayer]) -> None:
    source = made.HandSource(measured.running(), player())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("m")
        await until(pilot, lambda: "best epoch 9" in shown(pilot))
        source.newest_served, source.served = source.served, measured.running(3)
        await pilot.press("left")
        await until(pilot, lambda: "best epoch 2" in shown(pilot))
        assert "★ 0.8500 epoch 2" in shown(pilot)
        assert "0.9390" not in shown(pilot)
        source.served = source.newest_served
        await pilot.press("b")
        await until(pilot, lambda: "best epoch 9" in shown(pilot))

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=(72, 24))


def test_export_has_a_row_per_metric_split_and_step(tmp_path: Path) -> None:
    run = measured.running()

    async def script(pilot: AppPilot) -> None:
        assert panel(pilot).figures() is None
        await pilot.press("2", "m")
        figures = panel(pilot).figures()
        assert figures is not None
        rows = list(csv.DictReader(io.StringIO(export.as_csv(figures))))
        found = {(row["metric"], row["split"], int(row["step"])): row for row in rows}
        for epoch in run.epochs:
            for split, readings in (("train", epoch.train), ("valid", epoch.valid)):
                for name, reading in readings.items():
                    if (name, split) != ("loss", "train"):
                        row = found[name, split, epoch.step]
                        assert (float(row["value"]), row["epoch"]) == (reading.avg, str(epoch.epoch))
            assert float(found["auc", "valid", epoch.step]["value"]) == epoch.scores["auc"]
        assert [float(found["loss", "train", s.last_step]["value"]) for s in run.loss] == [s.mean for s in run.loss]
        assert "auc" in panel(pilot).as_text()

    drive(monitor(run), script, size=(160, 45))


def test_hidden_panel_computes_no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    made_for: list[MetricSource] = []

    def counted(source: MetricSource, before: Metrics | None) -> Metrics:
        made_for.append(source)
        return Metrics(source, before)

    monkeypatch.setattr(metric_page, "Metrics", counted)
    source = made.HandSource(measured.running())

    async def script(pilot: AppPilot) -> None:
        assert made_for == []
        await pilot.press("m")
        await pilot.press("plus", "minus", "l", "x", "comma")
        assert len(made_for) == 1
        await pilot.press("z")
        source.served = made.changed(measured.running(8), now=made.NOW + 1)
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        await until(pilot, lambda: screen.frame is not None and screen.frame.snapshot is source.served)
        assert len(made_for) == 1
        await pilot.press("z")
        await until(pilot, lambda: "epoch 4" in shown(pilot))
        assert len(made_for) == 2

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=(72, 24))


def with_axis(values: list[float], x: str = "tokens") -> Snapshot:
    """A run whose metric `bits` is drawn over another metric with these values, which the script logged with it."""

    def view(name: str, points: list[float], x: str) -> LoggedView:
        steps = range(100, 100 * len(points) + 1, 100)
        t = made.NOW - 1000
        segments = [
            Segment(
                first_step=step, last_step=step, mean=value, min=value, max=value, num_values=1, num_bad=0, t=t + step
            )
            for step, value in zip(steps, points, strict=True)
        ]
        return LoggedView(
            name=name, split="train", tag=name, source="run.wandb", value=points[-1], step=steps[-1], t=t, epoch=None,
            num_values=len(points), num_bad=0, min=min(points), max=max(points), points=segments, x=x,
        )  # fmt: skip

    logged = [view("tokens", values, ""), view("bits", [4.0, 3.0, 2.0, 1.0], x)]
    return msgspec.structs.replace(measured.running(), logged=logged)


def corner(page: MetricPage, metric: str) -> str:
    """The last word of the labels below the chart of a metric, which is alone on its row."""
    lines = drawn(page).splitlines()
    title = next(at for at, line in enumerate(lines) if f"{metric}  " in line)
    return next(
        line.split()[-1] for line, above in zip(lines[title + 1 :], lines[title:], strict=False) if "└" in above
    )


def test_metric_is_drawn_over_the_axis_that_its_author_chose() -> None:
    snapshot = with_axis([1e6, 4e6, 9e6, 16e6])
    page = page_of(snapshot, 56, 12, metric="bits")
    assert [page.chosen, *corner(page, "bits").split()] == ["bits", "tokens"]
    assert [page.chart.axes.x.at(step) for step in (100, 150, 200)] == [1e6, 2.5e6, 4e6]
    assert corner(page_of(snapshot, 56, 12, metric="tokens"), "tokens") != "tokens"
    by_epoch = page_of(snapshot, 56, 12, ChartView(x="epoch"), metric="bits")
    assert corner(by_epoch, "bits") != "tokens"
    (bits,) = (metric for metric in metric_series(MetricSource.of(snapshot)) if metric.name == "bits")
    assert "by tokens" in html.chart(bits)


@pytest.mark.parametrize("values", [[1e6, 4e6, 3e6, 16e6], [2.0] * 4, [1.0, math.nan, 3.0, 4.0]])
def test_axis_that_does_not_rise_is_left_for_steps(values: list[float]) -> None:
    page = page_of(with_axis(values), 56, 12, metric="bits")
    assert corner(page, "bits") != "tokens"


def test_axis_of_time_begins_at_the_first_value() -> None:
    page = page_of(with_axis([1.0] * 4, x="time"), 56, 12, metric="bits")
    assert corner(page, "bits") == "time"
    assert (page.chart.axes.x.at(100), page.chart.axes.x.at(400)) == (0.0, 300.0)


@same_textual
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("keys", ["", "m", "mlx,"])
def test_pictures_of_metrics(snap_compare: Compare, keys: str, size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press(*("comma" if key == "," else key for key in keys))

    assert snap_compare(monitor(measured.running()), terminal_size=size, run_before=script)


@same_textual
def test_picture_of_all_metrics_in_full_screen(snap_compare: Compare) -> None:
    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await pilot.press("2", "z", "m", "plus")

    assert snap_compare(monitor(measured.running()), terminal_size=(200, 50), run_before=script)
