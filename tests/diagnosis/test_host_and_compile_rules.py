"""Recompilations, reads and fallbacks: found with their line and cost, and not found just below the thresholds."""

from __future__ import annotations

from itertools import pairwise
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
    plan,
    recompiled,
    reports,
    snapshot_of,
    synced,
    topology,
    verdicts,
    window,
)
from tests.recorded import T0
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import RuleName, Verdict, found
from tputui.telemetry import events as ev
from tputui.text import verdict_lines


def one(rule: RuleName, *events: ev.Event, device: str = "CPU") -> Verdict:
    (verdict,) = by_rule(verdicts(*events, device=device), rule)
    return verdict


def test_a_healthy_run_has_no_verdict() -> None:
    healthy = verdicts(compiled(1, warm_up=True), compiled(2, warm_up=True), counters(), window())
    assert found(healthy) == ()
    assert found(verdicts()) == ()


def test_a_recompile_names_line_change_and_seconds() -> None:
    verdict = one("recompile", *recompiled(30, 2.0, changed_inputs=change("f32[8,28]", "f32[7,28]")))
    assert (verdict.where, verdict.lost_s, verdict.share) == ("train.py:41", 2.0, 2.0 / WALL_S)
    assert (
        verdict.text
        == "`step` compiles again 4 times after warm-up, a storm (every 8 steps): input x f32[8,28] -> f32[7,28]"
    )
    assert "drop_last" in verdict.fix
    assert verdict.speedup == pytest.approx((STEPS * STEP_S + 2.0) / (STEPS * STEP_S))


@pytest.mark.parametrize(
    ("before", "now", "advice"),
    [
        ("True", "False", "nothing, if there are no further values: each compiles once; else pass the changing"),
        ("f32[8]", "f64[8]", "use one type for x"),
    ],
)
def test_the_hint_about_a_flag_needs_no_change(before: str, now: str, advice: str) -> None:
    late = compiled(30, runtime="jax", changed_inputs=change(before, now))
    [hint] = by_rule(verdicts(late), "recompile", "hint")
    assert hint.fix.startswith(advice)


@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        (["f32[5,16]", "f32[6,16]", "f32[7,16]", "f32[8,16]", "f32[9,16]"], "allocate it once"),
        (["size 5 in dimension 0", "size 6 in dimension 0", "size 7 in dimension 0", "size 8 in dimension 0",
          "size 9 in dimension 0"], "allocate it once"),
        (["f32[5,16]", "f32[9,16]", "f32[7,16]", "f32[8,16]", "f32[6,16]"], "batches of one size"),
    ],
)  # fmt: skip
def test_an_input_that_grows_is_to_be_allocated_once(sizes: list[str], advice: str) -> None:
    late = [compiled(20 + n, changed_inputs=change(*pair)) for n, pair in enumerate(pairwise(sizes))]
    assert advice in one("recompile", *late).fix


def test_a_number_of_inputs_that_goes_up_and_down_is_that_of_a_list() -> None:
    late = [
        compiled(20 + n, changed_inputs=change(*(("", "f32[8]"), ("f32[8]", ""))[n % 2], "an input")) for n in range(6)
    ]
    assert "lists of one length" in one("recompile", *late).fix


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
        ("list of length 2", "list of length 3", "lists of one length"),
        ("'a'", "'b'", "no text that changes"),
    ],
)
def test_the_fix_follows_from_what_changed(before: str, now: str, advice: str) -> None:
    assert advice in one("recompile", *recompiled(30, changed_inputs=change(before, now))).fix


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("constant of pow", "the exponent a tensor"),
        ("constant of aten::pow", "the exponent a tensor"),
        ("constant of layer_norm", "keep eps"),
        ("constant of aten::mul", "the changing number as a tensor"),
        ("xla::select", "index_select"),
    ],
)
def test_the_fix_of_a_number_that_changes_names_its_operation(name: str, advice: str) -> None:
    changed = [ev.ChangedInput(name=name, before="1.5", now="2.5")]
    assert advice in one("recompile", *recompiled(30, changed_inputs=changed)).fix


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
    few = one("recompile", *(compiled(step, changed_inputs=change("0.1", str(step))) for step in (20, 50, 90)))
    assert few.text == "`step` compiles again 3 times after warm-up: input x 0.1 -> 90"


LENGTHS = ("s64[8,16]", "s64[8,32]", "s64[8,64]", "s64[8,128]", "s64[8,256]")


def of_lengths(*places: int, runtime: str = "torch_xla") -> list[ev.Event]:
    """Compilations for texts of these lengths, ten steps apart; those of the first length are warm-up."""
    changes = [change(LENGTHS[0], LENGTHS[place], "tokens") for place in places]
    late = [compiled(20 + 10 * at, changed_inputs=one, runtime=runtime) for at, one in enumerate(changes)]
    return [compiled(1, warm_up=True, runtime=runtime), *late]


@pytest.mark.parametrize("runtime", ["torch_xla", "jax"])
def test_the_first_compilation_for_each_of_a_few_sizes_is_a_hint(runtime: str) -> None:
    late = of_lengths(1, 2, 3, runtime=runtime)
    counted = [counters(recompiles=3)] if runtime == "torch_xla" else []
    [hint] = by_rule(verdicts(*late, *counted), "recompile", "hint")
    assert found(verdicts(*late, *counted)) == ()
    assert hint.text.startswith("`step` compiles 3 times after warm-up, once for each of its new inputs: input tokens")
    assert (hint.where, hint.lost_s) == ("train.py:41", None)
    assert "each compiles once" in hint.fix


@pytest.mark.parametrize(
    "late",
    [
        of_lengths(1, 2, 3, 4),
        of_lengths(1, 1),
        [compiled(step, changed_inputs=change("0.1", f"0.{step}", "a constant")) for step in (20, 30, 40)],
        [compiled(step, changed_inputs=change("", f"f32[{step}]")) for step in (20, 30, 40)],
        [compiled(step) for step in (20, 30, 40, 50)],
    ],
    ids=["five lengths", "a length again", "a number keeps changing", "inputs keep being added", "unknown inputs"],
)
def test_inputs_that_keep_changing_are_a_finding(late: list[ev.Event]) -> None:
    assert by_rule(verdicts(*late), "recompile")


def test_operations_of_jax_share_the_verdict_of_their_line() -> None:
    def at(step: int, program: str, line: int, **fields: Any) -> ev.CompileObserved:
        return compiled(step, 0.1, runtime="jax", program=program, cause="call", user_frame=frame(line), **fields)

    steps = range(20, 70, 10)
    sizes = [at(step, "step", 41, changed_inputs=change("f32[8]", f"f32[{step}]")) for step in steps]
    helpers = [at(step, name, 41) for name in ("true_divide", "add", "stage", "pow") for step in steps]
    own = [at(step, name, 57) for name in ("_mean", "subtract") for step in steps]
    [first, second] = by_rule(verdicts(*helpers, *sizes, *own), "recompile")
    assert first.where == "train.py:41"
    assert first.lost_s == pytest.approx(2.5)
    assert first.text.startswith("`step` compiles again 5 times")
    assert first.evidence[-1] == "with 20 compilations of `add`, `pow`, `stage` and 1 more at the same line"
    assert second.where == "train.py:57"
    assert second.lost_s == pytest.approx(1.0)
    assert second.evidence[-1] == "with 5 compilations of `subtract` at the same line"


def test_operations_of_jax_with_a_new_last_batch_are_one_hint() -> None:
    last = change("f32[64,8]", "f32[40,8]")
    late = [compiled(20, runtime="jax", changed_inputs=last), compiled(20, runtime="jax", program="true_divide")]
    [hint] = by_rule(verdicts(*late), "recompile", "hint")
    assert found(verdicts(*late)) == ()
    assert hint.text.startswith("`step` compiles once after warm-up")


def test_the_first_two_steps_with_an_input_may_both_compile() -> None:
    longer = change(LENGTHS[0], LENGTHS[1], "tokens")
    assert found(verdicts(compiled(20, changed_inputs=longer), compiled(21, changed_inputs=longer))) == ()
    assert found(verdicts(compiled(20, changed_inputs=longer), compiled(60, changed_inputs=longer))) != ()
    assert found(verdicts(*(compiled(step, changed_inputs=longer) for step in range(20, 24)))) != ()


@pytest.mark.parametrize("places", [(), (1, 2), (1, 2, 3, 4), (1, 1, 1)])
def test_counters_and_verdicts_agree_on_the_recompiles(places: tuple[int, ...]) -> None:
    events = [*of_lengths(*places), counters(recompiles=len(places))]
    snapshot = snapshot_of({"worker-0": [topology(), plan(), *reports(), *events]})
    assert snapshot.xla is not None
    assert snapshot.xla.late_compiles == len(places)
    is_found = bool(by_rule(diagnose(snapshot), "recompile"))
    assert snapshot.xla.recompiles == (len(places) if is_found else 0)
    assert (snapshot.xla.recompiles > 0) is (len(places) > 2)


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
    passed_on = change("1.5", "1.2", "___stack0")
    text = one("recompile", *recompiled(20, runtime="torch_compile", changed_inputs=passed_on)).text
    assert text.endswith(": what the line of a graph break returns 1.5 -> 1.2")


def test_without_events_the_counters_count() -> None:
    verdict = one("recompile", counters(t=1.0), counters(recompiles=4))
    assert (verdict.where, verdict.lost_s) == (None, 4.0)
    assert verdict.line_reason == "only the runtime's counters were recorded"
    assert found(verdicts(counters(recompiles=3))) == (), "they may be the first for three inputs"


def test_a_read_in_every_step_costs_the_overlap() -> None:
    verdict = one("sync", synced(waited_s=0.6), window(), device="TPU v4")
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
    assert (on_tpu.speedup_of, on_cpu.speedup_of) == ("time of steps", None)
    assert (on_cpu.lost_s, on_cpu.speedup) == (None, None)
    assert "no gain is predicted: the device is a CPU" in " ".join(on_cpu.evidence)
    [fallback] = by_rule(verdicts(fell_back(), window(), device="CPU"), "fallback")
    assert fallback.speedup is None
    assert "no gain is predicted" in " ".join(fallback.evidence)


PRINTED = [topology("unknown", "unknown"), *reports(12)]
"""What a log with the losses of twelve steps gives."""


def test_a_printed_loss_hides_no_cpu() -> None:
    on_cpu = msgspec.structs.replace(window(), device="CPU")
    for runtime in ("torch_xla", "jax"):
        read = [msgspec.structs.replace(one, runtime=runtime) for one in (synced(waited_s=0.6), on_cpu)]
        [verdict] = by_rule(diagnose(snapshot_of({"logs-0": PRINTED, "observer-0": read})), "sync")
        assert (verdict.speedup, verdict.lost_s) == (None, None)
        assert "no gain is predicted" in " ".join(verdict.evidence)


@pytest.mark.parametrize("printed", [[], PRINTED], ids=["silent", "prints losses"])
def test_share_and_factor_of_a_script_have_one_base(printed: list[ev.Event]) -> None:
    late = recompiled(30, 3.0, changed_inputs=change("f32[8]", "f32[7]"))
    [verdict] = by_rule(diagnose(snapshot_of({"logs-0": printed, "observer-0": late})), "recompile")
    assert verdict.share == pytest.approx(3.0 / WALL_S)
    assert verdict.speedup == pytest.approx(1 / (1 - 3.0 / WALL_S))
    assert verdict.speedup_of == "wall time"


def test_a_callback_is_named_with_its_cost_and_is_no_read() -> None:
    called = synced(count=100, waited_s=3.0, steps=100, runtime="jax", operation="io_callback")
    verdict = one("sync", called)
    assert (verdict.where, verdict.lost_s, verdict.speedup) == ("train.py:57", 3.0, None)
    assert verdict.text == "`io_callback` calls Python on the host from a compiled program"
    assert found(verdicts(msgspec.structs.replace(called, waited_s=0.5))) == (), "it costs little"
    both = by_rule(verdicts(called, synced(waited_s=0.6, user_frame=frame(60)), window(), device="TPU v4"), "sync")
    alone = one("sync", synced(waited_s=0.6, user_frame=frame(60)), window(), device="TPU v4")
    assert alone in both


def test_two_lines_share_the_loss() -> None:
    both = by_rule(verdicts(synced(waited_s=0.4), synced(waited_s=0.2, user_frame=frame(60)), window()), "sync")
    assert [one.where for one in both] == ["train.py:57", "train.py:60"]
    assert sum(one.lost_s or 0.0 for one in both) <= STEP_S * STEPS / 2
    assert (both[0].lost_s or 0.0) == pytest.approx(2 * (both[1].lost_s or 0.0))


def test_counters_bound_the_reads_of_the_whole_run() -> None:
    everywhere = one("sync", synced(), window(), counters(reads=STEPS), device="TPU v4").lost_s
    assert found(verdicts(synced(), window(), counters(reads=STEPS // 10))) == ()
    assert everywhere is not None
    assert everywhere > 0


@pytest.mark.parametrize(("device", "steps", "hints"), [("CPU", 60, 1), ("CPU", 30, 0), ("TPU v4", 60, 0)])
def test_a_cheap_read_in_many_steps_is_a_hint_on_a_cpu(device: str, steps: int, hints: int) -> None:
    made = verdicts(synced(count=steps, waited_s=0.003, steps=steps), window(steps), device=device)
    assert (found(made), len(by_rule(made, "sync", "hint"))) == ((), hints)


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


def of_a_mask(step: int, size: int, **fields: Any) -> ev.CompileObserved:
    changed = change(f"s64[{size},1]", f"s64[{size + 1},1]", f"{ev.RESULT_OF}nonzero")
    return compiled(step, changed_inputs=changed, **{"user_frame": frame(63), **fields})


def test_a_mask_is_one_finding_with_the_cost_of_all_its_parts() -> None:
    before = compiled(20, changed_inputs=change("f32[7,8]", "f32[9,8]", "picked"))
    late = [before, *(of_a_mask(30 + number, number) for number in range(6))]
    reads = recompiled(40, 2.0, program="", cause="value_read", user_frame=frame(63))
    parts = [*late, *reads, fell_back(), fell_back(user_frame=frame(64)), window()]
    [verdict] = found(verdicts(*parts, counters(fallbacks={"aten::nonzero": 20}), device="TPU"))
    assert (verdict.rule, verdict.where) == ("recompile", "train.py:63")
    assert verdict.lost_s == pytest.approx(7 * 0.5 + 2.0 + 2 * STEPS * 0.02)
    assert "the result of nonzero s64[5,1] -> s64[6,1]" in verdict.text
    assert "torch.where(mask, x, 0)" in verdict.fix
    assert "nonzero runs on the host CPU (about 100 times) at train.py:64" in verdict.evidence
    assert verdict.joined == ["fallback"]


def of_a_loader(program: str, steps: range, **fields: Any) -> list[ev.CompileObserved]:
    """Compilations for batches of other lengths, of which the first sizes grow as those of a cache would."""
    return [
        compiled(step, 0.5, program=program, user_frame=frame(12), **fields,
                 changed_inputs=change(f"s64[8,{step}]", f"s64[8,{step + 1}]", f"{ev.OF_LOADER}tokens"))
        for step in steps
    ]  # fmt: skip


def test_programs_that_compile_for_the_batches_of_a_loader_are_one_finding_at_it() -> None:
    parts = [*of_a_loader("train", range(20, 27)), *of_a_loader("validate", range(30, 35))]
    [verdict] = found(verdicts(*parts))
    assert (verdict.rule, verdict.where) == ("recompile", "train.py:12")
    assert verdict.lost_s == pytest.approx(12 * 0.5)
    assert verdict.text.endswith("the loader's tokens s64[8,26] -> s64[8,27]")
    assert any(text.startswith("`validate` compiles again 5 times after warm-up") for text in verdict.evidence)
    assert verdict.fix.startswith("pad to a few fixed lengths")


def test_a_smaller_last_batch_is_a_hint_at_the_loader_to_drop_it() -> None:
    changed = change("f32[16,8]", "f32[4,8]", f"{ev.OF_LOADER}x")
    late = [compiled(30, program=name, user_frame=frame(12), changed_inputs=changed) for name in ("train", "validate")]
    [hint] = by_rule(verdicts(*late), "recompile", "hint")
    assert hint.where == "train.py:12"
    assert "drop_last=True" in hint.fix


def test_a_mask_with_few_sizes_is_a_fallback_only() -> None:
    [verdict] = [
        one
        for one in verdicts(of_a_mask(30, 5), fell_back(), window(), counters(fallbacks={"aten::nonzero": 20}))
        if one.status in ("found", "hint")
    ]
    assert (verdict.rule, verdict.status, verdict.line) == ("fallback", "found", 63)
    assert any("compiles once" in one for one in verdict.evidence)


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
    late = [*recompiled(30, 1.0), *recompiled(40, 6.0, user_frame=frame(9))]
    ordered = found(verdicts(*late, synced(waited_s=0.6), window()))
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


def test_a_function_at_its_limit_is_one_finding_with_its_compilations() -> None:
    given: dict[str, Any] = {"runtime": "torch_compile", "program": "step", "user_frame": frame(5)}
    late = [
        compiled(20 + size, changed_inputs=change(f"size {size - 1} in dimension 1", f"size {size} in dimension 1"),
                 cause="call", **given)
        for size in range(1, 8)
    ]  # fmt: skip
    size = change("size 7 in dimension 1", "size 8 in dimension 1")
    limit = ev.CompileLimitReached(t=T0 + 2, limit=8, changed_inputs=size, **given)
    elsewhere = recompiled(30, 1.0, runtime="torch_compile", program="loss", user_frame=frame(5))
    made = verdicts(*late, limit, *elsewhere)
    [verdict, other] = found(made)
    assert (verdict.rule, verdict.where, verdict.lost_s) == ("compile_limit", "train.py:5", 3.5)
    assert "compiled to 8 programs already" in verdict.text
    assert any("compiles again 7 times after warm-up" in part for part in verdict.evidence)
    assert "buckets" in verdict.fix
    assert verdict.joined == ["recompile"]
    assert other.text.startswith("`loss` compiles again"), "another function that is called in the line"
    [alone] = found(verdicts(*late, limit))
    assert "recompile" not in verdict_lines.checked([alone])


def test_a_graph_break_is_one_finding_with_the_compilations_of_what_follows_it() -> None:
    given: dict[str, Any] = {"t": T0 + 3, "runtime": "torch_compile", "user_frame": frame(5)}
    rest = {**given, "program": "step from line 5"}
    late = [compiled(20 + n, 0.5, changed_inputs=change(f"{n}.5", f"{n}.7", "___stack0"), **rest) for n in range(7)]
    limit = ev.CompileLimitReached(limit=8, changed_inputs=change("7.5", "7.7", "___stack0"), **rest)
    broken = ev.GraphBroken(reason="Tensor.item", program="step", **given)
    [verdict] = found(verdicts(*late, limit, broken))
    assert (verdict.rule, verdict.where, verdict.lost_s) == ("graph_break", "train.py:5", 3.5)
    assert "keep the value on the device" in verdict.fix
    assert verdict.joined == ["recompile", "compile_limit"]
    assert any("compiled to 8 programs already" in part for part in verdict.evidence)
    assert len(found(verdicts(*late, broken))) == 1


def test_graph_breaks_at_one_line_are_one_finding() -> None:
    given: dict[str, Any] = {"t": 1.0, "runtime": "torch_compile", "reason": "Tensor.item", "user_frame": frame(5)}
    verdict = one("graph_break", *(ev.GraphBroken(program=name, **given) for name in ("block", "block", "train")))
    assert verdict.text == "`block` and 1 other function are compiled in parts, because of this line"
    assert verdict.evidence == ["Tensor.item", "in 3 compilations"]


@pytest.mark.parametrize(
    ("given", "hints"),
    [
        ({"user_frame": None, "line_reason": "the graph breaks in code of a library"}, 0),
        ({"user_frame": frame(5), "in_library": True}, 1),
        ({"user_frame": frame(5), "reason": "Call to `torch._dynamo.graph_break()`"}, 1),
    ],
)
def test_graph_breaks_that_are_intended_are_no_finding(given: dict[str, Any], hints: int) -> None:
    event: dict[str, Any] = {"t": 1.0, "runtime": "torch_compile", "program": "step", "reason": "a skip", **given}
    made = verdicts(ev.GraphBroken(**event))
    assert (by_rule(made, "graph_break"), len(by_rule(made, "graph_break", "hint"))) == ([], hints)


@pytest.mark.parametrize(
    ("name", "before", "now", "advice"),
    [
        ("the grad_mode of torch", "one value", "another value", "compile a second function"),
        ("self.drop.training", "True", "another value", "on the whole model"),
        ("x", "requires_grad true", "requires_grad false", "set requires_grad before the first step"),
        ("x", "dispatch key set CPU", "dispatch key set AutogradCPU", "torch.no_grad() in all evaluations"),
    ],
)
def test_the_fix_of_a_mode_that_changes_names_the_mode(name: str, before: str, now: str, advice: str) -> None:
    changed = change(before, now, name)
    late = [compiled(step, runtime="torch_compile", changed_inputs=changed) for step in range(20, 30)]
    assert advice in one("recompile", *late).fix


@pytest.mark.parametrize("observed", [False, True])
def test_a_framework_that_is_not_supported_leaves_its_rules_unanswered(observed: bool) -> None:
    failed = ev.ObservationFailed(
        t=T0 + 1, runtime="torch_compile", package="torch", version="3.0", reason="it has no metrics",
        missing=["compilations", "graph breaks", "compile limits"],
    )  # fmt: skip
    found = diagnose(snapshot_of({"observer-0": [failed, *([window()] if observed else [])], "observer-1": [failed]}))
    text = "torch 3.0 is not supported: it has no metrics"
    rules: tuple[RuleName, ...] = ("recompile", "graph_break", "compile_limit")
    for rule in rules:
        assert [one.text for one in by_rule(found, rule, "not available")] == [text]
    assert all("supported" not in one.text for one in found if one.rule in ("sync", "fallback"))
    assert all("records no compilations" not in one.text for one in found)


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


def test_the_rank_that_reads_most_is_judged_and_named() -> None:
    windows = [msgspec.structs.replace(window(10), rank=rank) for rank in range(8)]
    first = [synced(rank=0)]
    [verdict] = by_rule(verdicts(*windows, *first), "sync")
    assert verdict.text == "`.item()` waits for the device in every step on rank 0"
    some = [synced(rank=rank, count=10 - rank) for rank in range(3)]
    [verdict] = by_rule(verdicts(*windows, *some), "sync")
    assert verdict.text == "`.item()` waits for the device in every step on 3 of 8 ranks"
    ahead = [msgspec.structs.replace(window(60), rank=rank) for rank in range(1, 8)]
    [verdict] = by_rule(verdicts(msgspec.structs.replace(window(10), rank=0), *ahead, *first), "sync")
    assert verdict.text == "`.item()` waits for the device in every step on rank 0", "by its own steps"
    each = [synced(rank=rank) for rank in range(8)]
    [verdict] = by_rule(verdicts(*windows, *each), "sync")
    assert verdict.text == "`.item()` waits for the device in every step"


def test_ranks_that_each_log_now_and_then_are_no_finding() -> None:
    windows = [msgspec.structs.replace(window(10), rank=rank) for rank in range(8)]
    assert by_rule(verdicts(*windows, counters(reads=8 * STEPS // 10)), "sync") == []


def _sizes_at(line: int, sizes: list[int], name: str) -> list[ev.CompileObserved]:
    """A line that compiles for each size of an input."""
    return [
        compiled(
            20 + step,
            1.0,
            runtime="jax",
            user_frame=frame(line),
            changed_inputs=change(f"f32[{before},8]", f"f32[{now},8]", name),
        )
        for step, (before, now) in enumerate(pairwise(sizes))
    ]


def test_lines_that_compile_for_the_same_sizes_have_one_verdict_with_the_cost_of_both() -> None:
    sizes = list(range(10, 20))
    both = [*_sizes_at(41, sizes, "images"), *_sizes_at(44, sizes, "inputs")]
    (verdict,) = by_rule(verdicts(*both), "recompile")
    assert (verdict.line, verdict.lost_s) == (41, 18.0)
    assert any(line.endswith("at train.py:44") for line in verdict.evidence)
    apart = [*_sizes_at(41, sizes, "images"), *_sizes_at(44, list(range(30, 40)), "inputs")]
    assert {one.line for one in by_rule(verdicts(*apart), "recompile")} == {41, 44}
