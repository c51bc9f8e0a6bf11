"""The metrics that a script logged itself, from events to the snapshot and the curves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import T0, opened
from tputui.cache import state_codec
from tputui.state.chart_data import LoggedView
from tputui.state.logged_series import NAMES_MAX, PIECES_OF_ALL_MAX, SPLITS
from tputui.state.metric_series import Metrics, MetricSource, metric_series
from tputui.state.process_state import ProcessState
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.state.state_struct import POINTS_MAX
from tputui.supervise.alerts import newest_metrics
from tputui.telemetry import events as ev
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import CONSOLE, LoggedColumns, values_logged
from tputui.text.prometheus import METRICS_MAX, exposition
from tputui.text.show_page import LOGGED_MAX
from tputui.text.show_stream import stream_object


def logged(
    values: Sequence[float], first: int = 1, name: str = "accuracy", split: Split = "train", source: str = "a.csv"
) -> ev.ValuesLogged:
    """Values of consecutive steps, one second each."""
    steps = list(range(first, first + len(values)))
    times = [T0 + step for step in steps]
    return values_logged(times[-1], name, split, f"{split}/{name}", source, LoggedColumns(values, steps, times, None))


def reduced(events: Sequence[ev.Event]) -> Snapshot:
    state = RunState()
    for seq, event in enumerate([opened(T0, "worker"), *events]):
        state.apply("worker-0", seq, event)
    cached = state_codec.decode("worker-0", state_codec.encode(state.processes["worker-0"]))
    assert repr(cached.logged) == repr(state.processes["worker-0"].logged)
    return build_snapshot(state, ViewerContext(now=T0 + 10**6, run="a", dir="a"))


def only(events: Sequence[ev.Event]) -> LoggedView:
    (view,) = reduced(events).logged
    return view


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(4, 3_000), min_size=1, max_size=6), st.booleans())
def test_spike_and_nan_survive_however_long_the_series(sizes: list[int], single: bool) -> None:
    values = [0.5] * sum(sizes)
    spike, bad = len(values) // 3, len(values) // 2
    values[spike], values[bad] = 77.0, math.nan
    events, first = [], 0
    for size in sizes:
        pieces = [values[first + row : first + row + 1] for row in range(size)] if single else [values[first:][:size]]
        for piece in pieces:
            events.append(logged(piece, first + 1))
            first += len(piece)
    view = only(events)
    assert len(view.points) <= POINTS_MAX
    assert (view.num_values, view.num_bad) == (len(values) - 1, 1)
    assert view.max == 77.0
    assert sum(point.num_values + point.num_bad for point in view.points) == len(values)
    assert view.points[-1].last_step == view.step == len(values)
    (where,) = [point for point in view.points if point.max == 77.0]
    assert where.first_step <= spike + 1 <= where.last_step


def test_newest_value_is_exact_and_has_step_time_and_source() -> None:
    view = only([logged([0.1, 0.2]), logged([1 / 3], 3)])
    assert (view.value, view.step, view.t, view.source, view.tag) == (1 / 3, 3, T0 + 3, "a.csv", "train/accuracy")


def test_steps_may_go_back_and_stay_in_order_on_the_chart() -> None:
    view = only([logged([3.0, 2.0, 1.0], 10), logged([2.5, 1.5], 11)])
    assert [point.last_step for point in view.points] == [10, 11, 11, 12, 12]
    assert view.step == 12


def test_metrics_come_in_the_order_in_which_they_were_logged_first() -> None:
    snapshot = reduced(
        [logged([1.0], name="b"), logged([1.0], name="a", split="valid"), logged([2.0], name="b", split="valid")]
    )
    assert [(view.name, view.split) for view in snapshot.logged] == [("b", "train"), ("b", "valid"), ("a", "valid")]


def test_too_many_metrics_are_left_out_with_one_warning() -> None:
    snapshot = reduced([logged([1.0], step, f"m{number}") for step in (1, 2) for number in range(NAMES_MAX + 9)])
    assert len(snapshot.logged) == NAMES_MAX
    (warning,) = snapshot.warnings
    assert f"more than {NAMES_MAX:,} metrics" in warning


def test_losses_and_validation_values_are_kept_however_many_metrics_come_first() -> None:
    first = [logged([1.0], 1, f"layer{number}/grad_norm") for number in range(NAMES_MAX + 9)]
    later = [
        logged([0.5], 1, "loss"),
        logged([0.25], 1, "loss", split="valid"),
        logged([0.75], 1, "acc", split="valid"),
    ]
    found = {(view.name, view.split): view.value for view in reduced([*first, *later]).logged}
    assert len(found) == NAMES_MAX + 3
    assert (found["loss", "train"], found["loss", "valid"], found["acc", "valid"]) == (0.5, 0.25, 0.75)
    text = exposition(reduced([*first, *later]))
    assert 'metric="loss",split="valid"' in text.replace(", ", ",")
    metrics = newest_metrics(reduced([*first, *later]))
    assert (metrics["train.loss"], metrics["valid.loss"], metrics["valid.acc"]) == (0.5, 0.25, 0.75)


def test_views_of_at_most_256_metrics_say_how_many_more_there_are() -> None:
    first = [logged([1.0], 1, "loss"), logged([0.25], 1, "loss", split="valid")]
    names = [f"layer{number}/grad_norm" for number in range(2 * LOGGED_MAX)]
    # Each name counts once for Prometheus, and once per split in `show --follow`.
    few = reduced([*first, *(logged([1.0], 1, name) for name in names[: LOGGED_MAX - 2])])
    assert "tputui_metrics_omitted" not in exposition(few)
    assert (len(stream_object(few, is_first=True)["logged"]), few.warnings) == (LOGGED_MAX, [])
    assert stream_object(few, is_first=True)["warnings"] == []

    many = reduced([*first, *(logged([1.0], 1, name, split=split) for name in names for split in SPLITS)])
    shown = stream_object(many, is_first=True)
    kept = {(one["name"], one["split"]) for one in shown["logged"]}
    assert (len(kept), {("loss", "train"), ("loss", "valid")} <= kept) == (LOGGED_MAX, True)
    assert shown["warnings"][-1] == f"{len(many.logged) - LOGGED_MAX:,} logged metrics more are left out of this line"

    more = reduced([*(logged([1.0], 1, f"loss/{number}") for number in range(METRICS_MAX + 5)), *first])
    (line,) = [row for row in exposition(more).splitlines() if row.startswith("tputui_metrics_omitted{")]
    assert float(line.split()[-1]) == len(more.logged) - 1 - METRICS_MAX


def test_unreadable_values_count_by_their_summary_and_are_reported_as_damage() -> None:
    good = logged([0.5, 0.25, 0.75])
    bad = ev.ValuesLogged(**{name: getattr(good, name) for name in good.__struct_fields__} | {"values": "z!"})
    state = ProcessState("worker-0")
    state.apply(0, bad)
    ((name, split, series),) = state.logged.items()
    view = series.view(name, split)
    assert (view.min, view.max, view.num_values) == (0.25, 0.75, 3)
    assert "the values of accuracy cannot be read" in state.values.unreadable[0]


def test_senseless_counts_are_left_out() -> None:
    good = logged([0.5, 0.25])
    bad = ev.ValuesLogged(**{name: getattr(good, name) for name in good.__struct_fields__} | {"n": 10**12})
    snapshot = reduced([bad])
    assert (snapshot.logged, snapshot.num_senseless) == ([], 1)


def test_logged_metrics_are_curves_like_any_other() -> None:
    snapshot = reduced([logged([0.5, 0.75]), logged([0.25], 2, split="valid", source=CONSOLE)])
    (series,) = metric_series(MetricSource.of(snapshot))
    assert (series.name, series.basis, series.source) == ("accuracy", "logged", CONSOLE)
    assert [(point.step, point.t, point.value) for point in series.train] == [(1, T0 + 1, 0.5), (2, T0 + 2, 0.75)]
    assert [(point.step, point.value) for point in series.valid] == [(2, 0.25)]
    assert snapshot.steps == 2


def test_x_axis_covers_the_steps_of_all_metrics() -> None:
    snapshot = reduced([logged([0.5, 0.75], 10), logged([0.25], 99, split="valid"), logged([0.1], 2, "lr")])
    segments = MetricSource.of(snapshot).axis_segments()
    assert (segments[0].first_step, segments[-1].last_step) == (2, 99)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(SPLITS), st.integers(1, 90), st.integers(0, 9)), max_size=40)
)
def test_metrics_kept_between_reports_equal_those_made_anew(reports: list[tuple[int, Split, int, int]]) -> None:
    state, kept = RunState(), None
    state.apply("worker-0", 0, opened(T0, "worker"))
    for seq, (number, split, count, shown) in enumerate(reports, 1):
        state.apply("worker-0", seq, logged([seq / 7] * count, seq, f"m{number}", split))
        snapshot = build_snapshot(state, ViewerContext(now=T0 + 10**6, run="a", dir="a"))
        kept = Metrics(MetricSource.of(snapshot), kept)
        for name in kept.names[:shown]:
            _ = kept[name]
        anew = Metrics(MetricSource.of(snapshot))
        assert [kept[name] for name in kept.names[shown:]] == [anew[name] for name in anew.names[shown:]]
        assert [kept[name] for name in kept.names[:shown]] == [anew[name] for name in anew.names[:shown]]


def test_a_snapshot_keeps_its_curves_while_the_run_goes_on() -> None:
    state = ProcessState("worker-0")
    state.apply(0, logged([0.5], 1))
    ((name, split, series),) = state.logged.items()
    view = series.view(name, split)
    assert series.view(name, split) is view
    for step in range(2, 3 * POINTS_MAX):
        state.apply(step, logged([step / 2], step))
    assert [(point.last_step, point.mean) for point in view.points] == [(1, 0.5)]
    assert series.view(name, split).points[-1].last_step == 3 * POINTS_MAX - 1


def test_thousands_of_metrics_share_a_bounded_number_of_points_and_keep_spikes() -> None:
    state, number = ProcessState("worker-0"), 5_000
    values = [0.5] * 200
    values[77] = 99.0
    for at in range(number):
        state.apply(at, logged(values, name=f"layer{at}/norm"))
    views = [series.view(name, split) for name, split, series in state.logged.items()]
    assert len(views) == number
    assert 32 < max(len(view.points) for view in views) <= 64
    assert sum(len(view.points) for view in views) <= PIECES_OF_ALL_MAX
    assert {(view.num_values, view.max) for view in views} == {(200, 99.0)}
    assert {max(point.max for point in view.points) for view in views} == {99.0}
    assert {sum(point.num_values for point in view.points) for view in views} == {200}
