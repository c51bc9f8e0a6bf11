"""What a persistent cache would save, donations that cannot be used, and inputs with a copy on each device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.diagnosis.runs import by_rule, compiled, frame, verdicts
from tests.recorded import T0
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.telemetry import events as ev


def warm_up(seconds: float, cached: bool | None = None, **fields: Any) -> ev.CompileObserved:
    return compiled(1, seconds, warm_up=True, cached=cached, program=f"f{seconds}", **fields)


def program(**fields: Any) -> ev.ProgramObserved:
    given: dict[str, Any] = {
        "t": T0, "runtime": "jax", "program": "train_step", "inputs": None, "matmuls": None, "num_operations": None,
        "flops": None, "user_frame": frame(18),
    }  # fmt: skip
    return ev.ProgramObserved(**{**given, **fields})


def one(rule: RuleName, *events: ev.Event, status: str = "hint") -> Verdict:
    (verdict,) = by_rule(verdicts(*events, now=400.0), rule, status)
    return verdict


def test_a_minute_of_compilations_without_a_cache_is_what_the_next_start_would_save() -> None:
    verdict = one("compile_cache", warm_up(50.0), warm_up(25.0, user_frame=frame(7)), status="found")
    assert verdict.text == "2 programs compiled in 1 min 15 s without a persistent cache"
    assert (verdict.lost_s, verdict.line) == (75.0, 41)
    assert "XLA_PERSISTENT_CACHE_PATH" in verdict.fix
    assert "JAX_COMPILATION_CACHE_DIR" in one("compile_cache", warm_up(90.0, runtime="jax"), status="found").fix


def test_a_cache_that_missed_is_a_hint() -> None:
    verdict = one("compile_cache", warm_up(50.0, False), warm_up(25.0, False))
    assert verdict.text == "the persistent cache had not 2 programs: 1 min 15 s in the compiler"


@pytest.mark.parametrize("events", [[warm_up(59.0)], [warm_up(70.0, True), warm_up(20.0, False)]])
def test_a_cache_that_works_and_a_short_compilation_are_fine(events: list[ev.Event]) -> None:
    found = verdicts(*events, now=400.0)
    assert [one for one in found if one.rule == "compile_cache"] == []


def test_unused_donations_have_their_bytes_and_line() -> None:
    batch = ev.TensorSpec(dtype="f32", shape=[128, 256])
    verdict = one("donation", program(unused_donations=[batch]))
    assert verdict.text == "128 KiB of donated inputs of `train_step` cannot be reused"
    assert (verdict.where, verdict.evidence) == ("train.py:18", ["no result has the type and shape of f32[128,256]"])
    counter = ev.TensorSpec(dtype="s32", shape=[])
    assert [found for found in verdicts(program(unused_donations=[counter])) if found.rule == "donation"] == []


def test_devices_that_compute_the_same_are_named() -> None:
    verdict = one("replicated", program(num_devices=8, replicated_bytes=1 << 20, is_replicated=True))
    assert verdict.text == "`train_step` computes the same on all 8 devices"
    large = one("replicated", program(num_devices=8, replicated_bytes=4 << 30))
    assert large.text == "each of 8 devices has a whole copy of 4.0 GiB of inputs of `train_step`"
    usual = verdicts(program(num_devices=8, replicated_bytes=1 << 20))
    assert [found for found in usual if found.rule == "replicated"] == []


def calls(kind: ev.DispatchKind, line: int, count: int, **fields: Any) -> ev.DispatchedCalls:
    given: dict[str, Any] = {"names": ["add"], "num_bytes": 0, "samples": 10, "user_frame": frame(line)}
    return ev.DispatchedCalls(kind=kind, count=count, **{**given, **fields})


def counted(*lines: ev.DispatchedCalls, program: str = "gradient") -> ev.DispatchesCounted:
    return ev.DispatchesCounted(
        t=T0, runtime="jax", program=program, steps=10, window_s=0.1, samples=50, lines=list(lines)
    )


def test_operations_of_a_step_have_one_verdict_at_the_line_with_most() -> None:
    event = counted(calls("operation", 7, 40), calls("operation", 9, 80, names=["sqrt", "add"], samples=15))
    verdict = one("op_by_op", event, status="found")
    assert verdict.text == (
        "12 operations per step run one by one, outside of `jax.jit`: the host is there 50 % of the time"
    )
    assert (verdict.where, verdict.lost_s, verdict.speedup) == ("train.py:9", None, None)
    assert verdict.evidence[0].startswith("8 at train.py:9, 4 at train.py:7, such as sqrt, add")
    assert "10 calls of `gradient`" in verdict.evidence[1]


def test_operations_that_take_little_time_are_a_hint_and_a_few_are_fine() -> None:
    assert one("op_by_op", counted(calls("operation", 7, 120, samples=2))).line == 7
    assert one("op_by_op", counted(calls("operation", 7, 120, samples=None))).text.endswith("outside of `jax.jit`")
    few = verdicts(counted(calls("operation", 7, 90, samples=50)))
    assert [found for found in few if found.rule == "op_by_op"] == []


def test_arrays_that_each_step_moves_or_copies_again_have_their_bytes_and_line() -> None:
    moved = calls("moved", 7, 10, num_bytes=10 << 20, names=["jax.device_put"])
    verdict = one("device_put", counted(moved), status="found")
    assert verdict.text.startswith("1.0 MiB on the device move to another device or sharding in every step: the host")
    assert (verdict.where, verdict.evidence[0]) == ("train.py:7", "10 calls of jax.device_put")
    again = calls("constant", 7, 10, num_bytes=10 << 12, samples=0)
    assert one("device_put", counted(again)).text == "4.0 KiB of equal values go to the device in every step"
    rare = verdicts(counted(calls("moved", 7, 2, num_bytes=10 << 20), calls("moved", 8, 10, num_bytes=400)))
    assert [found for found in rare if found.rule == "device_put"] == []


def test_a_run_whose_steps_were_not_counted_says_why_there_is_no_answer() -> None:
    (verdict,) = by_rule(verdicts(warm_up(1.0, runtime="jax")), "op_by_op", "not available")
    assert verdict.text == "too few steps without compilations"


def test_counts_that_make_no_sense_are_ignored() -> None:
    found = verdicts(counted(calls("operation", 7, -1)), warm_up(1.0, runtime="jax"))
    assert by_rule(found, "op_by_op", "not available")
