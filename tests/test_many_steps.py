"""The judgement of `benchmarks.many_steps`: a program that was compiled after warm-up fails the case that it was in."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks import many_steps
from tests import recorded
from tputui.telemetry import events as ev
from tputui.telemetry import rundir

STEPS = 3 * recorded.STEPS_PER_EPOCH


def write(parent: Path, *, compiled_late: int = 0, warning: str = "") -> Path:
    """A finished run of three epochs, which compiles in its last epoch, and of which rank 1 warns."""
    run_dir = rundir.create(parent, recorded.manifest("spmd-sgd-step"))
    worker = recorded.worker_events()
    newest = max(index for index, event in enumerate(worker) if isinstance(event, ev.XlaMetricsRead))
    read = worker[newest]
    assert isinstance(read, ev.XlaMetricsRead)
    worker[newest] = msgspec.structs.replace(read, compiles=read.compiles + compiled_late)
    recorded.write_journal(run_dir / "worker-0.jsonl", worker)
    recorded.write_journal(run_dir / "supervisor-0.jsonl", recorded.supervisor_events(worker[-1].t + 0.2))
    if warning:
        recorded.write_journal(run_dir / "rank-1.jsonl", [ev.WarningRaised(t=worker[-1].t, text=warning)])
    return run_dir


def late(printed: str) -> int:
    """The number in the column of compilations after warm-up."""
    return int(printed.splitlines()[0].split()[3])


def test_a_run_without_late_compilations_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert many_steps.print_row(write(tmp_path), STEPS, 1.0)
    assert late(capsys.readouterr().out) == 0


def test_a_compilation_in_the_last_epoch_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not many_steps.print_row(write(tmp_path, compiled_late=2), STEPS, 1.0)
    assert late(capsys.readouterr().out) == 2


def test_a_recompile_of_another_rank_fails_and_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warning = 'program "step", run 6212: compiled again at its sync (1.0 s)'
    assert not many_steps.print_row(write(tmp_path, warning=warning), STEPS, 1.0)
    out = capsys.readouterr().out
    assert late(out) == 1
    assert warning in out


def test_a_run_that_ended_early_fails(tmp_path: Path) -> None:
    assert not many_steps.print_row(write(tmp_path), 2 * STEPS, 1.0)
