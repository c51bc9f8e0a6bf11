"""Out of memory in both texts of XLA, and memory that grows until there is none left."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.diagnosis.runs import by_rule, plan, verdicts
from tests.recorded import T0, opened
from tputui.diagnosis.memory_rules import parse, trend_of
from tputui.diagnosis.verdict import Verdict, found
from tputui.telemetry import events as ev

GIB = 1 << 30
TABLE = """

Total hbm usage >= 20.48G:
    reserved        530.00M
    program          19.96G
    arguments            0B

  Largest program allocations in hbm:

  1. Size: 2.00G
     Operator: op_name="jit(step)/attention/softmax" source_file="/x/site-packages/lib/nn.py" source_line=77
     Shape: f32[8,16,4096,1000]{3,2,1,0:T(8,128)}
     Unpadded size: 1.95G
     Extra memory due to padding: 48.0M (1.0x expansion)
     XLA label: fusion.12 = fusion(copy.1), kind=kLoop
     Allocation type: HLO temp
     ==========================

  2. Size: 4.00G
     Operator: op_type="aten__add" op_name="aten__add.3" source_file="/home/me/net.py" source_line=31
     Shape: bf16[4096,64]{1,0:T(8,128)(2,1)}
     Unpadded size: 2.00G
     Extra memory due to padding: 2.00G (2.0x expansion)
     Allocation type: HLO temp
"""
COMPILE = "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 19.96G of 15.48G hbm. "
OLD = f"RESOURCE_EXHAUSTED: {COMPILE}Exceeded hbm capacity by 4.48G.{TABLE}"
NEW = f"RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: {COMPILE}Exceeded hbm capacity by 4.48G.{TABLE}"
ALLOCATE = (
    "RESOURCE_EXHAUSTED: Attempting to allocate 1.96G. That was not possible. There are 1.25G free.; (0x0x0_HBM0)"
)


LONG = msgspec.structs.replace(plan(), num_epochs=1_000)
"""A plan whose end is 5,000 seconds away."""


def failed(message: str, kind: ev.FailureKind = "exception") -> ev.FailureRaised:
    frame = ev.CodeFrame(file="/home/me/train.py", line=88, function="main", owner="user")
    return ev.FailureRaised(
        t=T0 + 19, error="RuntimeError", message=message, traceback="", phase="compiling", step=1, kind=kind,
        frames=[frame],
    )  # fmt: skip


def the_failure(message: str, kind: ev.FailureKind = "exception") -> Verdict:
    (verdict,) = by_rule(verdicts(failed(message, kind)), "out_of_memory")
    assert verdict.fatal
    return verdict


@pytest.mark.parametrize("text", [OLD, NEW], ids=["old", "new"])
def test_both_texts_of_the_compiler_name_the_largest_buffer_and_its_line(text: str) -> None:
    verdict = the_failure(text)
    assert verdict.text == "a program does not fit into device memory: 20.0 GiB needed, 15.5 GiB available"
    assert verdict.where == "net.py:31"
    shown = "; ".join(verdict.evidence)
    assert "4.0 GiB bf16[4096,64] aten__add.3 (HLO temp) at me/net.py:31, 2x by padding" in shown
    assert ("E1000" in shown) is (text is NEW)


def test_a_failed_allocation_names_the_call() -> None:
    verdict = the_failure(ALLOCATE)
    assert verdict.text == "a buffer could not be allocated: 2.0 GiB needed, 1.2 GiB free"
    assert verdict.where == "train.py:88"


def test_a_host_without_memory() -> None:
    assert the_failure("std::bad_alloc", "memory").text == "the host ran out of memory"
    assert found(verdicts(failed("ValueError: no such column"))) == ()


@pytest.mark.parametrize("cut", range(0, len(NEW), 97))
def test_any_part_of_the_text_is_parsed(cut: int) -> None:
    for part in (NEW[:cut], NEW[cut:], NEW.replace("G", "\0")):
        parse(part)


def test_a_text_without_the_error_is_none() -> None:
    assert parse("loss 0.3, memory 2.0G") is None
    found_error = parse("jaxlib: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes.")
    assert found_error is not None
    assert (found_error.when, found_error.needed) == ("allocate", 7406166528)


def test_the_error_of_a_cpu_device_has_no_mark() -> None:
    error = parse("Error preparing computation: Out of memory allocating 140737488355328 bytes.")
    assert error is not None
    assert (error.when, error.needed, error.available) == ("allocate", 1 << 47, None)


def hbm(used: list[float]) -> list[ev.Event]:
    """Samples of the memory of a core of 16 GiB, five seconds apart."""
    return [
        ev.MemorySampled(
            t=T0 + 5 * place,
            hbm=[ev.HbmReading(core=0, used_bytes=round(value * GIB), limit_bytes=16 * GIB, peak_bytes=0)],
        )
        for place, value in enumerate(used)
    ]


def leak(per_sample: float, number: int = 80, noise: float = 0.05) -> list[float]:
    chance = random.Random(3)
    return [6.0 + per_sample * place + chance.uniform(-noise, noise) for place in range(number)]


def test_memory_that_grows_steadily_ends_the_run() -> None:
    (verdict,) = by_rule(verdicts(LONG, *hbm(leak(0.05)), now=400.0), "memory_trend")
    assert verdict.text.startswith("the device memory grows by 6")
    # 10 GiB used at the end, 50 MiB in 5 s: 6 GiB more take 10 minutes.
    assert "is exhausted in 10 min" in verdict.text
    assert verdict.fatal


@pytest.mark.parametrize(
    "used",
    [
        leak(0.0),
        leak(0.0, noise=1.0),
        leak(0.05, number=20),
        [10 - 8 * 0.95**place for place in range(80)],
        [6.0] * 60 + [9.0] * 20,
    ],
    ids=["level", "noisy", "short", "approaches a level", "one step"],
)
def test_other_memory_is_no_finding(used: list[float]) -> None:
    assert not by_rule(verdicts(LONG, *hbm(used), now=5.0 * len(used)), "memory_trend")
    assert not by_rule(verdicts(*hbm(leak(0.05)), now=400.0), "memory_trend"), "the run ends before"


def test_memory_that_grows_before_training_is_no_finding() -> None:
    def starting(phase: ev.Phase) -> list[Verdict]:
        beat = ev.HeartbeatSent(t=T0 + 399, phase=phase, phase_s=399.0, step=0, epoch=0)
        return by_rule(verdicts(*hbm(leak(0.05)), beat, steps=0, now=400.0), "memory_trend")

    assert not starting("starting"), "modules and data are being loaded"
    assert starting("unknown"), "a command that reports no phase"


def test_memory_that_grows_before_training_again_is_no_finding() -> None:
    # They import modules and load data; the memory of those before was returned.
    again = msgspec.structs.replace(opened(T0 + 150, "worker"), generation=1)
    used = hbm([6.0] * 30 + leak(0.05, number=50))
    assert by_rule(verdicts(LONG, *used, now=400.0), "memory_trend")
    assert not by_rule(verdicts(LONG, *used[:30], again, *used[30:], now=400.0), "memory_trend")


def test_a_trend_ignores_outliers() -> None:
    samples = [(float(t), 100.0 + t) for t in range(100)]
    samples[70] = (70.0, 10_000.0)
    trend = trend_of(samples, 1_000.0)
    assert trend is None, "49 seconds are too short"
    samples = [(2 * t, value) for t, value in samples]
    trend = trend_of(samples, 1_000.0)
    assert trend is not None
    assert trend.per_s == pytest.approx(0.5, rel=0.05)
