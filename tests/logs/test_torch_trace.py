"""Traces that `TORCH_TRACE` makes torch write give the events that the observers give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.observers.observed import PROGRAMS, faults_of
from tputui.logs.torch_trace import TorchTraceReader
from tputui.supervise import torch_traces
from tputui.telemetry import events as ev

_PREFIX = "V1122 20:50:05.295000 18504 torch/_logging/structured.py:28] "
_FILE = "/home/user/train.py"


def _trace(path: Path, *records: Any) -> TorchTraceReader:
    """A trace with records; texts are payloads."""
    lines = [f"\t{one}" if isinstance(one, str) else _PREFIX + json.dumps(one) for one in records]
    with path.open("a") as file:
        file.write("\n".join(lines) + "\n")
    return TorchTraceReader(path)


def _metrics(number: str, **fields: Any) -> dict[str, Any]:
    own = {"compile_id": number, "co_name": "train_step", "duration_us": 65376, "has_guarded_code": True}
    return {"compilation_metrics": {**own, "start_time": 1795380605.29, **fields}}


def test_recompilations_with_their_inputs_and_the_caller(tmp_path: Path) -> None:
    stack = [{"line": 14, "name": "main", "filename": 1}, {"line": 6, "name": "train_step", "filename": 1}]
    reader = _trace(
        tmp_path / "trace.log",
        {"str": [_FILE, 1]},
        {"dynamo_start": {"stack": stack}, "frame_id": 0, "frame_compile_id": 0},
        _metrics("0/0"),
        _metrics("0/1", recompile_reason="0/0: tensor 'x' size mismatch at index 0. expected 8, actual 5"),
        _metrics("0/2", co_name=None, fail_type="RecompileLimitExceeded", has_guarded_code=None),
        _metrics("1/0", has_guarded_code=False),
    )
    first, second, limit = reader.read()
    assert isinstance(first, ev.CompileObserved)
    assert isinstance(second, ev.CompileObserved)
    assert isinstance(limit, ev.CompileLimitReached)
    assert (first.warm_up, second.warm_up, first.seconds) == (True, False, 0.065376)
    assert first.user_frame == ev.CodeFrame(file=_FILE, line=14, function="main", owner="user")
    assert second.changed_inputs == [
        ev.ChangedInput(name="x", before="size 8 in dimension 0", now="size 5 in dimension 0")
    ]
    assert limit.program == "train_step"


def test_batches_of_torch_tpu_that_were_compiled(tmp_path: Path) -> None:
    batch = {"op_name": "aten::add", "cache_hit": False, "reason": "", "aten_graph": "...", "stablehlo": "..."}
    reader = _trace(
        tmp_path / "trace.log",
        {"torch_tpu_batch": batch},
        {"torch_tpu_batch": {**batch, "cache_hit": True}},
        {**batch, "reason": "Tensor.item()"},
        {"torch_tpu_batch": {**batch, "op_name": "aten::mul", "reason": "explicit sync"}},
        {"torch_tpu_batch": {**batch, "op_name": "aten::nonzero", "compile_failed": True}},
        {"torch_tpu_batch": {"op_name": 7, "cache_hit": False}},
    )
    events = [event for event in reader.read() if isinstance(event, ev.CompileObserved)]
    assert {event.runtime for event in events} == {"torch_tpu"}
    assert [(event.program, event.cause, event.warm_up) for event in events] == [
        ("aten::add", "unknown", True),
        ("aten::add", "value_read", False),
        ("aten::mul", "sync", True),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"V1122 {",
        _PREFIX.encode() + b'{"str": [[], {}]}',
        _PREFIX.encode() + b'{"str": ' + b"[" * 200_000,
        _PREFIX.encode() + b'{"dynamo_start": {"stack": [1, {"line": "x", "filename": -3}]}, "frame_id": []}',
        _PREFIX.encode() + b'{"compilation_metrics": {"compile_id": 3, "start_time": 1e999, "has_guarded_code": 1}}',
        _PREFIX.encode() + b'["op_name"]',
        b"\tGraph break in user code at x:1",
        b"\xff\xfe" * 100,
    ],
)
def test_damaged_traces_are_read_on(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "trace.log"
    path.write_bytes(line + b"\n")
    reader = _trace(path, _metrics("0/0"))
    events = reader.read()
    assert isinstance(events[-1], ev.CompileObserved)
    assert reader.read() == []


def test_torch_writes_traces_only_for_torch_tpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_traces.variables({}, tmp_path) == {}
    (tmp_path / "torch_tpu.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert torch_traces.variables({}, tmp_path) == {"TORCH_TRACE": str(tmp_path / "torch-trace")}
    assert torch_traces.variables({"TORCH_TRACE": "/mine"}, tmp_path) == {}


def test_compilations_of_a_trace_count_unless_observed(tmp_path: Path) -> None:
    traces, run_dir, taken = tmp_path / "traces", tmp_path / "run", list[ev.Event]()
    traces.mkdir()
    run_dir.mkdir()
    environ = {**os.environ, "TORCH_TRACE": str(traces)}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environ) as command:
        readers = [torch_traces.TorchTraces(run_dir, command.pid, tmp_path, taken.append) for _ in range(3)]
        while not Path(f"/proc/{command.pid}/environ").read_bytes():
            pass
        for one in readers:
            one.read(final=False)
        assert command.stdin is not None
        command.stdin.close()
    batch = {"torch_tpu_batch": {"op_name": "aten::add", "cache_hit": False}}
    _trace(traces / "dedicated_log_torch_trace_rank_0_x.log", _metrics("0/0"), batch)
    readers[0].read(final=True)
    assert [getattr(event, "runtime", "") for event in taken] == ["torch_compile", "torch_tpu"]
    taken.clear()
    (run_dir / "observer-0.jsonl").touch()
    readers[1].read(final=True)
    assert [getattr(event, "runtime", "") for event in taken] == ["torch_tpu"]
    taken.clear()
    (run_dir / "observer-0.jsonl").unlink()
    failed = ev.ObservationFailed(
        t=1.0, runtime="torch_compile", package="torch", version="3.0", missing=["compilations"], reason="it has moved"
    )
    recorded.write_journal(run_dir / "observer-0.jsonl", [recorded.opened(1.0, "observer"), failed])
    readers[2].read(final=True)
    assert [getattr(event, "runtime", "") for event in taken] == ["torch_compile", "torch_tpu"], "it could not attach"


@pytest.mark.slow
def test_the_trace_of_a_real_program_names_the_line_of_its_graph_break(tmp_path: Path) -> None:
    program = PROGRAMS / "torch_compile" / "item_breaks_graph.py"
    code = f"import os; os.environ['TORCH_TRACE'] = {str(tmp_path)!r}; import runpy; runpy.run_path({str(program)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=DEADLINE_S)
    [trace] = tmp_path.glob("dedicated_log_torch_trace_*.log")
    events = TorchTraceReader(trace).read()
    [broken] = [event for event in events if isinstance(event, ev.GraphBroken)]
    assert broken.user_frame is not None
    assert ("graph_break", broken.user_frame.line) in faults_of(program)
    compiles = [event for event in events if isinstance(event, ev.CompileObserved)]
    assert [event.warm_up for event in compiles][:2] == [True, True]
