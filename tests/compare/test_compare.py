"""Runs side by side: warm-up, noise, verdicts, differences of configurations, figures."""

from __future__ import annotations

import math
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import T0
from tests.ui import made, paces
from tputui.compare.compare import LABELS, Comparison, compare
from tputui.compare.table import raw_rows
from tputui.compare.verdict import (
    PaceVerdict,
    VerdictSide,
    pace_ratio,
    pace_verdict,
    percent,
    student,
)
from tputui.config_diff import ABSENT, diff, texts
from tputui.state.reducer import RunState
from tputui.state.snapshot import Snapshot
from tputui.state.snapshot_builder import ViewerContext, build_snapshot
from tputui.state.steady_pace import REPORTS_MIN, SteadyPace, steady_pace, warmup
from tputui.telemetry.logged_values import LoggedColumns, values_logged

SECONDS = st.floats(1e-4, 1e3)
REPORTS = st.lists(SECONDS, min_size=REPORTS_MIN * 2, max_size=200)


def pace_of(steps_s: list[float], batch: int = 64) -> SteadyPace:
    found = steady_pace([(step_s, batch / step_s) for step_s in steps_s])
    assert found is not None
    return found


def verdict(run: Snapshot, base: Snapshot) -> PaceVerdict:
    found = compare([base, run]).verdicts[1]
    assert found is not None
    return found


# Statistics.


@pytest.mark.parametrize(("freedom", "quantile"), [(5, 2.571), (7, 2.365), (14, 2.145), (30, 2.042), (1e9, 1.960)])
def test_student_t_quantiles_match_tables(freedom: float, quantile: float) -> None:
    assert student(0.975, freedom) == pytest.approx(quantile, abs=1.5e-3)


def test_the_warm_up_is_the_slow_start() -> None:
    steady_state = [math.log(step_s) for step_s in paces.step_times(200, 0.01, noise=0.02, seed=3, warm=0)]
    slow = [value + 2 * math.exp(-index / 5) for index, value in enumerate(steady_state[:20])]
    assert 10 <= warmup([*slow, *steady_state[20:]]) <= 40


@given(st.lists(st.floats(-20, 20), max_size=60))
def test_warm_up_is_between_first_report_and_half(values: list[float]) -> None:
    cut = warmup(values)
    assert cut == 0 if len(values) < 2 else 1 <= cut <= max(len(values) // 2, 1)


def test_constant_pace_has_one_warm_up_report_and_no_error() -> None:
    found = pace_of([0.05] * 40)
    assert (found.num_warmup, found.num_reports, found.error, found.spread) == (1, 39, 0.0, 0.0)
    assert found.examples_per_s == pytest.approx(64 / 0.05)


@settings(max_examples=40)
@given(REPORTS, REPORTS)
def test_exchanging_the_runs_inverts_the_ratio(one: list[float], other: list[float]) -> None:
    there, back = pace_ratio(pace_of(one), pace_of(other)), pace_ratio(pace_of(other), pace_of(one))
    assert there is not None
    assert back is not None
    assert (there.ratio * back.ratio, there.low * back.high) == pytest.approx((1, 1))
    assert there.stands_out == back.stands_out


@settings(max_examples=40)
@given(REPORTS)
def test_equal_runs_do_not_differ(steps_s: list[float]) -> None:
    found = pace_ratio(pace_of(steps_s), pace_of(steps_s))
    assert found is not None
    assert found.ratio == 1
    assert not found.stands_out


@settings(max_examples=40)
@given(REPORTS, st.floats(0.01, 100))
def test_the_unit_of_time_does_not_matter(steps_s: list[float], unit: float) -> None:
    one, other = pace_of(steps_s), pace_of([step_s * unit for step_s in steps_s])
    assert other.examples_per_s * unit == pytest.approx(one.examples_per_s, rel=1e-6)
    assert other.error == pytest.approx(one.error, rel=1e-3, abs=1e-6)


def widths(num: int) -> list[float]:
    """How wide the interval is for runs of so many reports."""
    found = []
    for seed in range(40):
        sides = [pace_of(paces.step_times(num, 0.01, noise=0.05, seed=side, warm=0)) for side in (seed, 1000 + seed)]
        ratio = pace_ratio(*sides)
        assert ratio is not None
        found.append(ratio.high - ratio.low)
    return found


def test_more_reports_narrow_the_interval() -> None:
    short, long = (sum(widths(num)) / 40 for num in (100, 400))
    # Four times the reports halve it; pieces that are alike widen the short ones a little more.
    assert long < 0.65 * short


@pytest.mark.parametrize(("num", "alike", "at_most"), [(100, 0.0, 0.06), (100, 0.5, 0.08), (400, 0.8, 0.09)])
def test_false_positive_rate_matches_the_stated_level(num: int, alike: float, at_most: float) -> None:
    significant, tries = 0, 300
    for seed in range(tries):
        sides = [
            pace_of(paces.step_times(num, 0.01, noise=0.05, seed=2 * seed + side, alike=alike, warm=0))
            for side in (0, 1)
        ]
        ratio = pace_ratio(*sides)
        assert ratio is not None
        significant += ratio.stands_out
    assert significant / tries <= at_most


def test_a_difference_beyond_the_noise_is_found() -> None:
    found = 0
    for seed in range(50):
        base = pace_of(paces.step_times(120, 0.0100, noise=0.03, seed=seed))
        run = pace_of(paces.step_times(120, 0.0093, noise=0.03, seed=1000 + seed))
        ratio = pace_ratio(run, base)
        assert ratio is not None
        found += ratio.stands_out and ratio.ratio > 1
    assert found >= 49


def test_invalid_reports_are_ignored() -> None:
    assert steady_pace([]) is None
    assert steady_pace([(0.0, math.inf), (math.nan, 3.0), (-1.0, -64.0)]) is None
    sound = [(0.1, 640.0)] * 8
    assert steady_pace([*sound, (math.inf, 0.0)]) == steady_pace(sound)


# Words.


def test_verdict_is_symmetric_in_run_order() -> None:
    base, run = paces.pair()
    there, back = verdict(run, base), verdict(base, run)
    assert there.sentence.startswith("B is ")
    assert there.sentence.endswith(" faster than A")
    assert back.sentence == there.sentence.replace("faster", "slower")
    assert there.stands_out is True
    assert there.ratio == pytest.approx(0.0131 / 0.0122, rel=0.03)


@given(st.floats(0.51, 1.99), st.floats(0.001, 0.3))
def test_significant_difference_has_bounds_that_exclude_1(ratio: float, error: float) -> None:
    def side(label: str, examples_per_s: float) -> VerdictSide:
        pace = SteadyPace(
            num_reports=90, num_warmup=0, step_s=0.1, spread=0.1, examples_per_s=examples_per_s, error=error
        )
        return VerdictSide(
            label=label, pace=pace, no_pace=None, condition="running", num_cores=8, device="TPU", global_batch=64,
            task="digits",
        )  # fmt: skip

    found = pace_verdict(side("B", 100 * ratio), side("A", 100.0))
    if found.stands_out:
        value, off = map(float, re.findall(r"([0-9.e-]+) %", found.short))
        assert value >= off if "+-" in found.short else 0 < value < off


def test_noise_is_called_noise() -> None:
    found = verdict(paces.run("b", seed=9), paces.run("a", seed=4))
    assert found.stands_out is False
    assert found.sentence.startswith("no significant difference between B and A (")


def test_run_compared_with_itself_has_no_difference() -> None:
    found = verdict(paces.run("b"), paces.run("a"))
    assert (found.ratio, found.stands_out) == (1.0, False)
    assert "difference between B and A (0 % +- " in found.sentence


def test_different_core_counts_are_reported_as_scaling() -> None:
    one = paces.run("one", cores=1, step_s=0.0084, noise=0.01, seed=3)
    eight = paces.run("eight", cores=8, step_s=0.0131, noise=0.01, seed=4)
    there, back = verdict(eight, one), verdict(one, eight)
    expected = 8 * 0.0084 / 0.0131
    assert there.ratio == pytest.approx(expected, rel=0.02)
    assert there.scaling == back.scaling == pytest.approx(expected / 8, rel=0.02)
    assert there.sentence.startswith("B's 8 cores do 5.1")
    assert there.sentence.endswith(f"x of A's 1 core, {expected / 8 * 100:.0f} % of linear")
    assert back.sentence.startswith("A's 8 cores do 5.1")
    assert "of B's 1 core" in back.sentence
    assert back.short.startswith("0.196x +- 0.001x")


def test_other_devices_are_named_and_no_scaling_is_claimed() -> None:
    cpu = paces.run("cpu", step_s=0.131, seed=3)
    assert cpu.topology is not None
    cpu = made.changed(cpu, topology=msgspec.structs.replace(cpu.topology, device="CPU", num_cores=1))
    found = verdict(paces.run("tpu", seed=4), cpu)
    assert found.scaling is None
    assert found.sentence.startswith("B's 8 TPU cores do ")
    assert found.sentence.endswith("x of A's 1 CPU core")


def test_other_batch_sizes_compare_examples_per_second() -> None:
    base = paces.run("a", noise=0.01)
    other = paces.run("b", noise=0.01, seed=2)
    assert other.throughput is not None
    assert other.plan is not None
    history = [msgspec.structs.replace(p, examples_per_s=2 * p.examples_per_s) for p in other.throughput.history]
    other = made.changed(
        other,
        plan=msgspec.structs.replace(other.plan, global_batch=128),
        throughput=msgspec.structs.replace(other.throughput, history=history),
    )
    found = verdict(other, base)
    assert found.ratio == pytest.approx(2, rel=0.02)
    assert found.sentence.endswith("faster than A in examples/s") or found.sentence.endswith("as A in examples/s")


def test_runs_of_other_tasks_get_no_verdict() -> None:
    other = paces.run("b")
    assert other.plan is not None
    found = verdict(made.changed(other, plan=msgspec.structs.replace(other.plan, task="tabular")), paces.run("a"))
    assert (found.ratio, found.short) == (None, "another task")
    assert found.sentence == "speed of B not compared: its task is tabular, that of A digits"


def test_uncertain_ratio_is_reported_by_its_bounds() -> None:
    base, run = paces.run("a", noise=0.8, reports=70), paces.run("b", noise=0.8, reports=70, step_s=0.0004, seed=3)
    found = verdict(run, base)
    assert found.low is not None
    assert found.low > 2
    assert re.fullmatch(r"B is \d+x to \d+x as fast as A", found.sentence)
    assert re.fullmatch(r"B is \d+x to \d+x as slow as A", verdict(base, run).sentence)


def test_too_few_reports_state_the_number_needed() -> None:
    found = verdict(paces.run("b", reports=12), paces.run("a"))
    assert (found.ratio, found.stands_out, found.short) == (None, None, "too few samples")
    assert re.fullmatch(r"too few samples to compare speed: B \d+, need 32 after warm-up", found.sentence), (
        "the run that lacks them is named, and not the base"
    )
    turned = verdict(paces.run("b"), paces.run("a", reports=12))
    assert turned.sentence.startswith("too few samples to compare speed: A ")
    assert "B has" not in turned.sentence
    assert turned.short == "A: too few samples"
    both = verdict(paces.run("b", reports=12), paces.run("a", reports=9))
    assert re.match(r"too few samples to compare speed: A \d+, B \d+, need 32", both.sentence)


def with_best(name: str, loss: float) -> Snapshot:
    """A run whose second epoch is its best."""
    run = paces.run(name)
    epochs = [
        msgspec.structs.replace(epoch, valid={"loss": made.reading(value, 360)}, best=value == loss)
        for epoch, value in zip(made.epochs(3), (1.0, loss, 2 * loss), strict=True)
    ]
    return made.changed(run, epochs=epochs)


def test_first_line_names_best_run_on_validation() -> None:
    quality = compare([with_best("a", 0.05), with_best("b", 0.04), with_best("c", 0.06)]).quality
    assert quality.best == "B"
    assert quality.sentence == "B is best: valid loss 0.0400 in epoch 2; A 0.0500 (+25 %), C 0.0600 (+50 %)"


def test_no_single_best_run_on_tie_or_single_value() -> None:
    equal = compare([with_best("a", 0.05), with_best("b", 0.05)]).quality
    assert (equal.best, equal.sentence) == (None, "A and B share the best valid loss, 0.0500")
    alone = compare([with_best("a", 0.05), made.starting()]).quality
    assert (alone.best, alone.sentence) == (None, "A is the only run with a valid loss yet: 0.0500 in epoch 2")
    none = compare([made.starting(), made.starting()]).quality
    assert (none.best, none.sentence) == (None, "no run has a valid loss yet")
    ended = compare([with_best("a", 0.05), made.changed(made.starting(), condition="failed")]).quality
    assert ended.sentence == "A is the only run with a valid loss: 0.0500 in epoch 2"


def test_first_line_is_limited_to_the_task_of_the_base() -> None:
    other = with_best("b", 1.9)
    assert other.plan is not None
    other = made.changed(other, plan=msgspec.structs.replace(other.plan, task="mask_depth"))
    assert compare([with_best("a", 0.05), other]).quality.sentence == (
        "A is the only run of task digits with a valid loss: 0.0500 in epoch 2"
    )
    assert compare([made.starting(), with_best("a", 0.05), other], base=1).quality.sentence == (
        "B is the only run of task digits with a valid loss yet: 0.0500 in epoch 2"
    )


def test_run_without_reports_states_it() -> None:
    found = verdict(made.starting(), paces.run("a"))
    assert found.sentence == "speed of B unknown: it has reported no steps yet"
    assert verdict(paces.run("a"), made.starting()).sentence == "speed of A unknown: it has reported no steps yet"


@pytest.mark.parametrize(
    ("value", "within", "text"),
    [
        (0.07, 0.02, ("7 %", "2 %")),
        (0.004, 0.018, ("0.4 %", "1.8 %")),
        (0.123, 0.0042, ("12.3 %", "0.4 %")),
        (0.0123, 0.0004, ("1.23 %", "0.04 %")),
        (0.5, 0.0, ("50 %", "0 %")),
        (0.012, 0.0, ("1.2 %", "0.0 %")),
    ],
)
def test_percents_have_the_digits_that_the_noise_allows(value: float, within: float, text: tuple[str, str]) -> None:
    assert percent(value, within) == text


# Configurations.

LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab-1", max_size=3)
CONFIGS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | LEAVES, max_size=3),
    max_leaves=8,
)


@given(st.lists(CONFIGS, min_size=2, max_size=8), st.data())
def test_every_key_differs_or_is_counted(configs: list[dict[str, object]], data: st.DataObject) -> None:
    base = data.draw(st.integers(0, len(configs) - 1))
    found = diff(configs, base)
    flat = [texts(config) for config in configs]
    assert len(found.rows) + found.num_equal == len({key for one in flat for key in one})
    for row in found.rows:
        assert len(set(row.values)) > 1
        assert row.values == [one.get(row.key, ABSENT) for one in flat]
        assert row.changed == [value != row.values[base] for value in row.values]
        assert not row.changed[base]


@given(CONFIGS)
def test_equal_configurations_have_no_difference(config: dict[str, object]) -> None:
    assert diff([config, config, config], 1).rows == []


def test_only_differences_are_listed_in_base_order() -> None:
    one = {"task": "digits", "optim": {"lr": 0.001, "name": "adam"}, "data": {"size": [32, 32]}}
    other = {"optim": {"lr": 1e-3, "name": "sgd", "momentum": 0.9}, "data": {"size": [64, 64]}, "task": "digits"}
    found = diff([one, other], 0)
    assert [(row.key, row.values) for row in found.rows] == [
        ("optim.name", ["adam", "sgd"]),
        ("data.size", ["[32, 32]", "[64, 64]"]),
        ("optim.momentum", [ABSENT, "0.9"]),
    ]
    assert found.num_equal == 2


def test_values_of_other_types_are_not_equal() -> None:
    found = diff([{"a": 1, "b": "-", "c": True, "d": 1.0}, {"a": "1", "c": 1, "d": 1}], 0)
    assert [(row.key, row.values) for row in found.rows] == [
        ("a", ["1", '"1"']),
        ("b", ['"-"', "-"]),
        ("c", ["true", "1"]),
    ]
    assert found.num_equal == 1


# Figures.


def test_it_takes_two_to_eight_runs_and_a_base_among_them() -> None:
    run = paces.run("a")
    for snapshots, base in (([run], 0), ([run] * 9, 0), ([run, run], 2), ([run, run], -1)):
        with pytest.raises(ValueError, match="runs with base"):
            compare(snapshots, base)
    assert [each.label for each in compare([run] * 8).runs] == list(LABELS)


def test_metrics_of_a_run() -> None:
    first = compare(paces.pair()).runs[0]
    assert (first.run, first.condition, first.steps, first.total_steps) == ("digits-20251009-100000", "done", 440, 440)
    assert (first.compiles, first.compile_s, first.recompiles, first.duration_s) == (4, 3.52, 0, 59)
    assert (first.device, first.num_cores, first.global_batch) == ("TPU", 8, 64)
    assert first.pace is not None
    assert first.pace.step_s == pytest.approx(0.0131, rel=0.02)
    assert 2 <= first.pace.num_warmup <= 60


def test_peak_memory_falls_back_to_host_with_reason() -> None:
    tpu = paces.run("a", memory=made.running().memory)
    host, nothing = paces.run("b"), paces.run("c", memory=made.nothing_measured(), memory_history=[])
    peaks = [run.peak_memory for run in compare([tpu, host, nothing]).runs]
    assert [(peak.of, peak.bytes) for peak in peaks] == [("HBM", 11 << 30), ("host", 981 << 20), (None, None)]
    assert peaks[0].reason is None
    assert peaks[1].reason == "the CPU device does not tell its memory"
    assert peaks[2].reason == "no memory of the device was read"


def test_meters_have_a_final_and_a_best_epoch() -> None:
    epochs = made.epochs(4)
    losses = (0.5, 0.3, math.nan, 0.4)
    epochs = [
        msgspec.structs.replace(
            view, valid={**view.valid, "loss": made.reading(loss, 360)}, scores={"auc": 0.8 + 0.01 * view.epoch}
        )
        for view, loss in zip(epochs, losses, strict=True)
    ]
    found = {(m.split, m.name): m for m in compare([paces.run("a", epochs=epochs), paces.run("b")]).runs[0].meters}
    loss, auc = found["valid", "loss"], found["valid", "auc"]
    assert (loss.final, loss.final_epoch, loss.best, loss.best_epoch, loss.less_is_better) == (0.4, 4, 0.3, 2, True)
    assert (auc.final_epoch, auc.best_epoch, auc.less_is_better) == (4, 4, False)
    assert auc.best == pytest.approx(0.84)


def test_config_gives_direction_of_monitored_meter() -> None:
    run = paces.run("a", config={"checkpoint": {"monitor": "accuracy", "mode": "min"}})
    found = {(m.split, m.name): m.less_is_better for m in compare([run, run]).runs[0].meters}
    assert found == {("train", "loss"): True, ("valid", "loss"): True, ("valid", "accuracy"): True}


def test_unreadable_run_states_reason() -> None:
    gone = made.changed(made.empty(), condition="lost", troubles=["the run's directory /runs/b is gone"])
    found = compare([paces.run("a"), gone])
    assert found.runs[0].trouble is None
    assert found.runs[1].trouble == "the run's directory /runs/b is gone"
    assert found.verdicts[1] is not None
    assert found.verdicts[1].sentence == "speed of B unknown: the run cannot be read"


def test_derived_config_values_are_listed_if_different() -> None:
    found = compare([paces.run("a"), paces.run("b", cores=1)])
    assert {row.key: row.values for row in found.plan.rows} == {"cores": ["8", "1"], "global batch": ["64", "8"]}
    assert [row.key for row in found.config.rows] == ["device.cores"]


def test_the_comparison_is_a_value_that_json_can_hold() -> None:
    found = compare(paces.eight(), 3)
    assert found.verdicts[3] is None
    assert found == compare(paces.eight(), 3)
    again = msgspec.json.decode(msgspec.json.encode(found), type=Comparison)
    assert again.runs[0].label == "A"


@settings(max_examples=30)
@given(st.lists(st.sampled_from([made.running, made.starting, made.empty, made.failed, made.diverged, made.finished]),
                min_size=2, max_size=8), st.data())  # fmt: skip
def test_any_snapshot_can_be_compared(makers: list[object], data: st.DataObject) -> None:
    snapshots = [make() for make in makers]  # type: ignore[operator]
    found = compare(snapshots, data.draw(st.integers(0, len(makers) - 1)))
    assert len(found.runs) == len(found.verdicts) == len(makers)


def test_metrics_that_scripts_logged_are_compared_by_step() -> None:
    runs = []
    for name, values in (("a", [0.5, 0.25, 0.75]), ("b", [0.9, 0.8, 0.7])):
        state = RunState()
        columns = LoggedColumns(values, [10, 20, 30], None, None)
        state.apply("worker-0", 0, values_logged(T0, "loss", "valid", "val_loss", "a.csv", columns))
        runs.append(build_snapshot(state, ViewerContext(now=T0, run=name, dir=name)))
    comparison = compare(runs)
    (meter,) = comparison.runs[0].meters
    assert (meter.final, meter.best, meter.best_epoch, meter.by) == (0.75, 0.25, 20, "step")
    assert comparison.quality.sentence.startswith("A is best: valid loss 0.2500 in step 20")
    assert ("valid loss, best step", [20, 30]) in raw_rows(comparison)
