"""Recompilations, reads and fallbacks: found with their line and cost, and not found just below the thresholds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.diagnosis.runs import (
    STEP_S,
    STEPS,
    WALL_S,
    by_rule,
    change,
    compiled,
    counters,
    fell_back,
    frame,
    snapshot_of,
    synced,
    verdicts,
    window,
)
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import RuleName, Verdict, found
from tputui.telemetry import events as ev


def one(rule: RuleName, *events: ev.Event) -> Verdict:
    (verdict,) = by_rule(verdicts(*events), rule)
    return verdict


def test_a_healthy_run_has_no_verdict() -> None:
    healthy = verdicts(compiled(1, warm_up=True), compiled(2, warm_up=True), counters(), window())
    assert found(healthy) == ()
    assert found(verdicts()) == ()


def test_a_recompile_names_line_change_and_seconds() -> None:
    verdict = one("recompile", compiled(30, 2.0, changed_inputs=change("f32[8,28]", "f32[7,28]")))
    assert (verdict.where, verdict.lost_s, verdict.share) == ("train.py:41", 2.0, 2.0 / WALL_S)
    assert verdict.text == "`step` compiles again once after warm-up: input x f32[8,28] -> f32[7,28]"
    assert "drop_last" in verdict.fix
    assert verdict.speedup == pytest.approx((STEPS * STEP_S + 2.0) / (STEPS * STEP_S))


def test_programs_of_the_compile_cache_are_not_recompiles() -> None:
    assert found(verdicts(compiled(30, 0.01, cached=True))) == ()


@pytest.mark.parametrize(
    ("before", "now", "advice"),
    [
        ("f32[8,28]", "f32[8,31]", "buckets"),
        ("f32[8]", "bf16[8]", "one type"),
        ("0.1", "0.05", "as a tensor"),
        ("", "f32[8]", "the same inputs"),
        ("size 8 in dimension 0", "size 9 in dimension 0", "drop_last"),
        ("size 8 in dimension 1", "size 9 in dimension 1", "buckets"),
    ],
)
def test_the_fix_follows_from_what_changed(before: str, now: str, advice: str) -> None:
    assert advice in one("recompile", compiled(30, changed_inputs=change(before, now))).fix


def test_storm_and_epochs_are_told_apart() -> None:
    storm = one("recompile", *(compiled(step) for step in range(20, 60, 4)))
    assert "10 times after warm-up, a storm (every 4 steps)" in storm.text
    started = [ev.EpochStarted(t=10.0, epoch=epoch, first_step=10 * epoch) for epoch in range(1, 7)]
    each_epoch = [event for begun in started for event in (begun, compiled(begun.first_step))]
    assert "6 times after warm-up, once per epoch" in one("recompile", *each_epoch).text
    reads = [
        event
        for begun in started
        for event in (
            begun,
            compiled(begun.first_step, cause="value_read", user_frame=frame() if begun.epoch > 2 else None),
        )
    ]
    assert "6 times after warm-up, once per epoch" in one("recompile", *reads).text, "the line is found in epoch 3"
    few = one("recompile", compiled(20), compiled(50), compiled(90))
    assert few.text == "`step` compiles again 3 times after warm-up"


def test_a_graph_that_grows_lacks_a_sync() -> None:
    programs = [
        ev.ProgramObserved(t=step, runtime="torch_xla", program=f"p{step}", inputs=None, matmuls=None,
                           num_operations=100 * step, flops=None)
        for step in range(1, 6)
    ]  # fmt: skip
    reads = [compiled(step, cause="value_read") for step in range(20, 30)]
    assert "torch_xla.sync()" in one("recompile", *reads, *programs).fix
    assert "torch_xla.sync()" in one("recompile", *reads).fix, "nothing but reads has compiled"
    synced_once = compiled(1, warm_up=True)
    assert "after the sync" in one("recompile", synced_once, *reads, *programs[:3]).fix
    read = synced(user_frame=frame(), compiled=10)
    assert by_rule(verdicts(*reads, read, window()), "sync") == [], "to read less often would make it worse"
    assert by_rule(verdicts(synced_once, *reads, read, window()), "sync") != []


def test_reads_whose_lines_cannot_be_watched_are_found_by_the_counters() -> None:
    unseen = synced(waited_s=0.0, user_frame=None, line_reason="torch.compile is in use")
    verdict = one("sync", unseen, counters(reads=STEPS))
    assert (verdict.line, verdict.line_reason) == (None, "torch.compile is in use")
    assert by_rule(verdicts(unseen, counters(reads=STEPS // 10)), "sync") == []


def test_a_value_passed_over_a_graph_break_has_no_internal_name() -> None:
    text = one(
        "recompile", compiled(20, runtime="torch_compile", changed_inputs=change("1.5", "1.2", "___stack0"))
    ).text
    assert text.endswith(": what the line of a graph break returns 1.5 -> 1.2")


def test_without_events_the_counters_count() -> None:
    verdict = one("recompile", counters(t=1.0), counters(recompiles=3))
    assert (verdict.where, verdict.lost_s) == (None, 3.0)
    assert verdict.line_reason == "only the runtime's counters were recorded"


def test_a_read_in_every_step_costs_the_overlap() -> None:
    verdict = one("sync", synced(waited_s=0.6), window())
    # Waiting 60 ms of 100: the other 40 ms of host work would overlap. Ten reports read once each.
    assert verdict.lost_s == pytest.approx(0.04 * STEPS - 10 * 0.06)
    assert (verdict.where, verdict.text) == ("train.py:57", "`.item()` waits for the device in every step")
    assert verdict.lost_s is not None
    assert verdict.lost_s < 0.6 / 10 * STEPS


def test_no_gain_is_predicted_where_host_and_device_share_the_cpu() -> None:
    read = (synced(waited_s=0.2), window())
    [on_tpu] = by_rule(verdicts(*read, device="TPU v4"), "sync")
    [on_cpu] = by_rule(verdicts(*read, device="CPU"), "sync")
    assert on_tpu.speedup is not None
    assert on_tpu.speedup > 1.1
    assert (on_cpu.lost_s, on_cpu.speedup) == (on_tpu.lost_s, None)
    assert "little of it can overlap" in " ".join(on_cpu.evidence)


def test_two_lines_share_the_loss() -> None:
    both = by_rule(verdicts(synced(waited_s=0.4), synced(waited_s=0.2, user_frame=frame(60)), window()), "sync")
    assert [one.where for one in both] == ["train.py:57", "train.py:60"]
    assert sum(one.lost_s or 0.0 for one in both) <= STEP_S * STEPS / 2
    assert (both[0].lost_s or 0.0) == pytest.approx(2 * (both[1].lost_s or 0.0))


def test_counters_bound_the_reads_of_the_whole_run() -> None:
    everywhere = one("sync", synced(), window(), counters(reads=STEPS)).lost_s
    assert found(verdicts(synced(), window(), counters(reads=STEPS // 10))) == ()
    assert everywhere is not None
    assert everywhere > 0


def test_a_rare_or_cheap_read_is_no_finding() -> None:
    assert found(verdicts(synced(count=1, waited_s=0.01), window())) == ()
    assert found(verdicts(synced(waited_s=0.003), window())) == ()


def test_few_observed_steps_are_not_enough() -> None:
    early = verdicts(synced(count=3, steps=3), window(steps=3))
    assert found(early) == ()
    assert by_rule(early, "sync", "not enough data yet")


def test_reads_are_counted_without_lines() -> None:
    assert one("sync", counters(reads=STEPS)).line_reason
    assert found(verdicts(counters(reads=STEPS // 3))) == ()


def test_a_fallback_names_operator_line_and_replacement() -> None:
    verdict = one("fallback", fell_back(), window(), counters(fallbacks={"aten::nonzero": 200}))
    assert verdict.where == "train.py:63"
    assert verdict.lost_s == pytest.approx(200 * 0.02)
    assert "torch.where" in verdict.fix
    assert "20 transfers" in "; ".join(verdict.evidence)


def test_a_single_cheap_fallback_is_no_finding() -> None:
    once = counters(fallbacks={"aten::nonzero": 1, "aten::_local_scalar_dense": 500})
    assert found(verdicts(once)) == ()
    assert found(verdicts(fell_back(count=1, seconds=0.001, steps=50), window(50), once)) == ()


def test_counters_alone_find_a_frequent_fallback() -> None:
    verdict = one("fallback", counters(fallbacks={"aten::median": STEPS}))
    assert (verdict.where, verdict.lost_s) == (None, None)
    assert "sort" in verdict.fix


def test_extra_executions_need_enough_steps() -> None:
    assert one("extra_execution", counters(executes=3 * STEPS)).text == "a step runs 3 programs in place of 1"
    assert found(verdicts(counters(executes=STEPS + 2))) == ()
    few = ev.StepPrograms(steps=5, executes=15, expected_executes=5, scalar_reads=0)
    assert found(verdicts(counters(steps=few))) == ()


def test_the_greatest_loss_comes_first() -> None:
    ordered = found(verdicts(compiled(30, 1.0), compiled(40, 6.0, user_frame=frame(9)), synced(waited_s=0.6), window()))
    losses = [verdict.lost_s or 0.0 for verdict in ordered]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


def test_a_window_with_a_compilation_is_not_extrapolated() -> None:
    slow = one("fallback", fell_back(seconds=2.0), fell_back(seconds=0.1), counters(fallbacks={"nonzero": 120}))
    assert slow.lost_s == pytest.approx(2.1 + 100 * 0.01)
    usual, beside = one("sync", synced(waited_s=0.6), window()), synced(waited_s=9.0)
    assert one("sync", synced(waited_s=0.6), beside, window(20)).lost_s == usual.lost_s


def test_compiled_functions_that_fall_apart() -> None:
    given: dict[str, Any] = {"t": 1.0, "runtime": "torch_compile", "program": "step", "user_frame": frame(5)}
    verdict = one("graph_break", ev.GraphBroken(reason="Tensor.item", **given))
    assert (verdict.where, verdict.evidence) == ("train.py:5", ["Tensor.item", "in 1 compilation"])
    limit = ev.CompileLimitReached(limit=8, changed_inputs=change("f32[8]", "f32[9]"), **given)
    assert "compiled to 8 programs already" in one("compile_limit", limit).text


def test_a_script_without_steps_is_measured_by_its_transfers() -> None:
    read = counters(transfers_from_device=50, steps=None)
    (verdict,) = by_rule(diagnose(snapshot_of({"observer-0": [synced(waited_s=0.6), window(), read]})), "sync")
    assert verdict.lost_s == pytest.approx(50 * 0.04)


def test_a_process_without_steps_names_none() -> None:
    late = [msgspec.structs.replace(compiled(30), step=None) for _ in range(5)]
    (verdict,) = by_rule(diagnose(snapshot_of({"observer-0": late})), "recompile")
    assert verdict.text == "`step` compiles again 5 times after warm-up, a storm"
    assert not any("step " in line for line in verdict.evidence)


def test_observed_steps_count_if_the_output_names_fewer() -> None:
    few = by_rule(diagnose(snapshot_of({"observer-0": [synced(waited_s=0.6), window()], "logs-0": []})), "sync")
    assert [one.lost_s for one in few] == [pytest.approx(0.04 * 10)]
