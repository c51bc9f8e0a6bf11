"""Input, tracing, padding, shapes and precision: found above the thresholds that they cite, and not below."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.diagnosis.runs import by_rule, epoch_ended, plan, reports, snapshot_of, topology, verdicts
from tests.recorded import CONFIG, T0
from tputui.diagnosis.diagnose import diagnose
from tputui.diagnosis.verdict import RuleName, Verdict, found
from tputui.telemetry import events as ev
from tputui.text import verdict_lines


def one(rule: RuleName, *events: ev.Event, device: str = "CPU", status: str = "found") -> Verdict:
    (verdict,) = by_rule(verdicts(*events, device=device), rule, status)
    return verdict


def stages(waited_s: float, **stages_s: float) -> ev.InputStagesMeasured:
    return ev.InputStagesMeasured(t=T0 + 19, stages_s=stages_s, batches=100, threads=4, waited_s=waited_s)


def program(m: int = 1024, k: int = 1024, n: int = 1024, dtype: str = "bf16", count: int = 8) -> ev.ProgramObserved:
    frame = ev.CodeFrame(file="/home/me/net.py", line=12, function="forward", owner="user")
    matmul = ev.MatmulObserved(dtype=dtype, batch=1, m=m, k=k, n=n, count=count, user_frame=frame)
    return ev.ProgramObserved(
        t=T0 + 1, runtime="torch_xla", program="step", inputs=None, matmuls=[matmul], num_operations=500, flops=None
    )


def beats(data_s: float, number: int) -> list[ev.Event]:
    """Heartbeats a second apart, of which a share falls into the wait for a batch."""
    made: list[ev.Event] = []
    for t in range(number):
        made.append(ev.HeartbeatSent(t=T0 + 20 + t, phase="data" if t % 2 else "executing", phase_s=data_s if t % 2 else
                                     1 - data_s, step=100, epoch=2))  # fmt: skip
    return made


def test_input_bound_names_stage_seconds_and_gain() -> None:
    verdict = one("input", stages(4.0, read=1.0, decode=9.0, collate=0.5))
    assert verdict.lost_s == 4.0
    assert verdict.text == "steps wait for their batch for 40 % of their time; most of the loader's time goes to decode"
    assert "decode 9.0 s, read 1.0 s, collate" in "; ".join(verdict.evidence)
    assert "threads" in verdict.fix
    assert verdict.speedup == pytest.approx(1 / 0.6)


def test_a_fix_that_is_a_change_of_the_configuration_has_the_command_that_measures_it() -> None:
    def shown(name: str, config: dict[str, Any], batch: int = 8) -> list[str]:
        events = [topology(), plan(batch), *reports(), stages(4.0, **{name: 9.0})]
        snapshot = msgspec.structs.replace(snapshot_of({"worker-0": events}), config=config)
        lines = verdict_lines.blocks(diagnose(snapshot), "my run")
        return [line.strip() for line in lines if "measure it" in line]

    assert shown("decode", CONFIG) == ["measure it: tputui try 'my run' data.workers=7"]
    assert shown("copy", CONFIG) == ["measure it: tputui try 'my run' data.prefetch_batches=8"]
    assert shown("decode", CONFIG, batch=12)[1:] == ["measure it: tputui try 'my run' data.batch_per_core=16"]
    assert shown("decode", {"lr": 0.1}) == []


def test_input_needs_a_tenth_of_the_step_on_a_tpu_and_a_fifth_elsewhere() -> None:
    for device, found_s, missed_s in (("TPU v4", 1.01, 0.99), ("CPU", 2.01, 1.99)):
        assert one("input", topology(device), stages(found_s), device=device)
        assert found(verdicts(topology(device), stages(missed_s), device=device)) == ()


def test_sections_of_epochs_leave_out_the_first() -> None:
    assert found(verdicts(epoch_ended(1, data=4.0), epoch_ended(2, data=0.4))) == ()
    assert one("input", epoch_ended(1), epoch_ended(2, data=2.0)).lost_s == 2.0


def test_heartbeats_before_the_first_steps_sample_no_steps() -> None:
    before = [ev.HeartbeatSent(t=T0 + t, phase="compiling", phase_s=1.0, step=0, epoch=1) for t in range(70)]
    first = ev.HeartbeatSent(t=T0 + 71, phase="tracing", phase_s=0.04, step=1, epoch=1)
    for steps in (1, 100):
        assert found(verdicts(*before, first, steps=steps, now=72.0)) == ()


def test_heartbeats_sample_the_wait_of_a_running_epoch() -> None:
    assert one("input", *beats(0.9, 120)).text.startswith("steps wait for their batch")
    assert found(verdicts(*beats(0.9, 50))) == ()


def test_a_short_run_has_not_enough_data() -> None:
    early = verdicts(stages(1.0), steps=10, now=2.0)
    assert found(early) == ()
    (verdict,) = by_rule(early, "input", "not enough data yet")
    assert verdict.text == "10 of the 20 steps it needs"


def test_tracing_bound_needs_nine_tenths() -> None:
    assert found(verdicts(epoch_ended(1), epoch_ended(2, trace=9.2, execute=0.4, wait=2.0))) == ()
    assert one("tracing", epoch_ended(1), epoch_ended(2, trace=9.2, execute=0.8)).lost_s is None
    assert found(verdicts(epoch_ended(1), epoch_ended(2, trace=8.8, execute=1.2))) == ()


def test_padding_of_the_evaluation() -> None:
    verdict = one("padding", plan(valid_examples=10), epoch_ended(1, evaluate=2.0), epoch_ended(2, evaluate=2.0))
    assert verdict.text == "84 % of the evaluation is padding"
    assert verdict.lost_s == pytest.approx(4.0 * 54 / 64)
    assert found(verdicts(plan(valid_examples=50), epoch_ended(1, evaluate=2.0))) == ()
    assert found(verdicts(plan(valid_examples=10), epoch_ended(1, evaluate=0.1))) == ()


def test_a_batch_that_fills_no_rows_is_a_hint() -> None:
    assert one("batch_multiple", plan(batch_per_core=12), status="hint").fix.startswith("use 16 examples per core")
    assert not [each for each in verdicts(plan(batch_per_core=16)) if each.rule == "batch_multiple"]


def test_features_that_pad_are_lost_on_a_tpu_only() -> None:
    verdict = one("feature_multiple", topology("TPU"), program(n=130), device="TPU")
    assert verdict.where == "net.py:12"
    assert verdict.evidence == [
        "bf16[1024,1024] x [1024,130] is padded to [1024,1024] x [1024,256], 8 times in a program"
    ]
    assert one("feature_multiple", program(n=130), status="hint")
    assert not [each for each in verdicts(program(n=200)) if each.rule == "feature_multiple"]
    assert not [each for each in verdicts(program(m=8, n=130)) if each.rule == "feature_multiple"]


def test_float32_is_a_hint_where_matrices_are_large() -> None:
    assert one("precision", program(dtype="f32"), status="hint")
    assert one("precision", topology("TPU"), plan(precision="fp32"), device="TPU", status="hint")
    for events in ([program()], [plan(precision="fp32")], [program(dtype="f32", m=8)]):
        assert not [each for each in verdicts(*events) if each.rule == "precision"]
