"""`tputui run --strict`: findings make a run fail; `tputui doctor RUN` prints them with an exit code of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import tputui
from tests.diagnosis.runs import change, frame, plan, recompiled, reports, snapshot_of, topology
from tputui.compare.verdict import cause

SCRIPT = """
import sys, time
from tputui.observers.sinks import process_sink
from tputui.telemetry import events as ev

process_sink.open_journal()
frame = ev.CodeFrame(file=__file__, line=7, function="train", owner="user")
for step in range(10, 10 + int(sys.argv[1])):
    process_sink.emit(ev.CompileObserved(
        t=time.time(), runtime="torch_xla", program="step", cause="sync", warm_up=False, seconds=0.01, step=step,
        user_frame=frame, changed_inputs=None))
"""


@pytest.mark.parametrize(("recompiles", "code"), [(4, 3), (3, 0), (0, 0)])
def test_strict_turns_findings_into_exit_code_3(tmp_path: Path, recompiles: int, code: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "train.py", str(recompiles)]
    words = ["run", "--name", "a", "--strict=recompile,fallback", "--no-ui", "--", *command]
    result = tputui("--runs-dir", tmp_path / "runs", *words, cwd=tmp_path)
    assert result.code == code, result.err
    assert ("strict: recompile at train.py:7" in result.out) is bool(code)
    assert ("recompile was not checked: this run records no compilations" in result.out) is (recompiles == 0)
    doctor = tputui("--runs-dir", tmp_path / "runs", "doctor", "a", "--json", cwd=tmp_path)
    assert doctor.code == (1 if code else 0)
    verdicts = json.loads(doctor.out)["verdicts"]
    assert [one["where"] for one in verdicts if one["status"] == "found"] == ["train.py:7"] * bool(code)
    shown = tputui("--runs-dir", tmp_path / "runs", "show", "a", cwd=tmp_path)
    assert ("diagnosis    recompile at train.py:7" in shown.out) is bool(code)


LIMIT = """
process_sink.emit(ev.CompileLimitReached(
    t=time.time(), runtime="torch_xla", program="step", limit=8, user_frame=frame, changed_inputs=None))
"""


def test_strict_counts_recompiles_that_reached_the_limit_of_programs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT + LIMIT)
    words = ["run", "--name", "a", "--strict=recompile", "--no-ui", "--", sys.executable, "train.py", "8"]
    result = tputui("--runs-dir", tmp_path / "runs", *words, cwd=tmp_path)
    assert (result.code, "strict: compile_limit at train.py:7" in result.out) == (3, True), result.err


def test_an_unknown_rule_is_refused(tmp_path: Path) -> None:
    result = tputui("--runs-dir", tmp_path, "run", "--strict=speed", "--", "true", cwd=tmp_path)
    assert (result.code, "none of recompile, fallback, sync" in result.err) == (2, True)


def test_compare_names_the_cause_of_a_slower_run() -> None:
    healthy = snapshot_of({"worker-0": [topology(), plan(), *reports()]}, now=20.0)
    late = recompiled(30, 17.0, changed_inputs=change("f32[8]", "f32[7]"), user_frame=frame(41))
    slow = snapshot_of({"worker-0": [topology(), plan(), *reports(), *late]}, now=40.0)
    said = "B: 2.0x slower than A in wall time, 85 % of it recompile at train.py:41"
    assert cause("B", slow, "A", healthy) == said
    assert cause("A", healthy, "B", slow) == said
    assert cause("B", healthy, "A", healthy) is None
