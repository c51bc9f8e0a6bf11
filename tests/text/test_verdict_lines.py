"""Verdicts as text: the end of `--no-ui` has the three worst that cost enough; blocks have evidence and fix."""

from __future__ import annotations

from tests.diagnosis.runs import change, frame, plan, recompiled, reports, snapshot_of, topology
from tputui.diagnosis.diagnose import diagnose
from tputui.telemetry import events as ev
from tputui.text import verdict_lines
from tputui.text.lines import last_lines


def slow_run(*seconds: float) -> list[ev.Event]:
    shape = change("f32[8]", "f32[7]")
    by_line = [
        recompiled(30, each, user_frame=frame(line), changed_inputs=shape) for line, each in enumerate(seconds, 1)
    ]
    return [topology(), plan(), *reports(), *(event for late in by_line for event in late)]


def test_the_end_of_a_run_has_the_three_worst_findings() -> None:
    lines = last_lines(snapshot_of({"worker-0": slow_run(1.0, 4.0, 3.0, 2.0)}))
    slow = [line for line in lines if line.startswith("slow: ")]
    assert [line.partition(":")[2].split(":")[1] for line in slow] == ["2", "3", "4"]
    assert slow[0].startswith("slow: recompile at train.py:2: `step` compiles again 4 times after warm-up, a storm")
    assert slow[0].endswith(": input x f32[8] -> f32[7]; 4.0 s lost (20 % of the wall time)")


def test_findings_below_one_percent_are_left_out() -> None:
    assert not [line for line in last_lines(snapshot_of({"worker-0": slow_run(0.19)})) if line.startswith("slow")]
    assert len([line for line in last_lines(snapshot_of({"worker-0": slow_run(0.21)})) if line.startswith("slow")]) == 1


def test_blocks_have_line_cost_evidence_and_fix() -> None:
    lines = list(verdict_lines.blocks(diagnose(snapshot_of({"worker-0": slow_run(4.0)}))))
    assert lines[0] == "recompile       train.py:1 in train  4.0 s lost (20 % of the wall time)"
    assert lines[2].strip() == "compiled at an explicit sync; in steps 30 to 60; 1.0 s in the compiler each"
    assert lines[3].strip().endswith("; predicted 1.40x as fast (of the time of steps)")
