"""Faults that end a run, at the moments at which they differ: what is reported, and what is saved.

Real processes: `tputui run` without a screen, its supervisor, and the engine on 8 virtual cores.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.helpers import tputui
from tests.faults.gated import BATCH
from tests.faults.harness import HELD, MOMENTS, TRAINED, Moment, Run, last_checkpoint_step, stray_files
from tests.live import processes_of
from tests.supervise.harness import events_in
from tputui.exit_codes import ExitCode
from tputui.telemetry import events as ev

pytestmark = [pytest.mark.xla, pytest.mark.slow]


class Fault(NamedTuple):
    """A fault, and how the run ends."""

    strike: Callable[[Run], None]
    exit_code: ExitCode
    says: str
    """Text on the page of the run."""
    moments: tuple[Moment, ...]
    sees: str
    """What the user sees, in words."""
    saves: bool = False
    """Whether the state of that moment is saved, if anything was trained."""


def kill_worker(run: Run) -> None:
    """As the kernel does."""
    os.kill(run.worker_pid, signal.SIGKILL)


def kill_all(run: Run) -> None:
    """The supervisor first, so that it cannot report it."""
    pids = run.supervisor_pid, run.worker_pid
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def preempt(run: Run) -> None:
    """As a cloud's agent does, before it takes the machine."""
    os.kill(run.supervisor_pid, signal.SIGTERM)
    opened_soon(run)


def stop(run: Run) -> None:
    """By a command that does not wait for the receipts."""
    assert tputui("stop", run.dir, "--wait", "0").code == ExitCode.UNANSWERED
    opened_soon(run)


def opened_soon(run: Run) -> None:
    """Lets go of code that no request reaches: of the user's own that loads, traces or is being saved."""
    if run.moment in ("start", "trace", "save"):
        run.gate.open()


def stop_now(run: Run) -> None:
    """Without a save."""
    tputui("stop", run.dir, "--now")


FAULTS: dict[str, Fault] = {
    "kill -9 of the training process": Fault(
        kill_worker, ExitCode.FAILED, "SIGKILL", MOMENTS, "failed: SIGKILL, in which phase, and what the kernel counted"
    ),
    "kill -9 of every process": Fault(
        kill_all,
        ExitCode.LOST,
        "lost",
        ("start", "train", "save"),
        "lost, and since when: no process was left to report more",
    ),
    "SIGTERM, as before a preemption": Fault(
        # A compilation that is longer than the grace time is ended by force, without a save: nothing was trained.
        preempt,
        ExitCode.STOPPED,
        "stopped",
        MOMENTS,
        "stopped, after which step",
        saves=True,
    ),
    "a request to stop": Fault(
        stop, ExitCode.STOPPED, "stopped on request", MOMENTS, "the receipts, and stopped after which step", saves=True
    ),
    "a request to stop now": Fault(
        stop_now,
        ExitCode.STOPPED,
        "stopped",
        ("start", "compile", "train", "save"),
        "the receipts, and stopped at once",
    ),
    "an exception in the user's code": Fault(
        lambda run: run.gate.open("raise"),
        ExitCode.FAILED,
        "ValueError: shard 7 is cut short",
        HELD,
        "failed: the exception with the user's own lines first",
    ),
    "abort() in native code": Fault(
        lambda run: run.gate.open("abort"),
        ExitCode.FAILED,
        "SIGABRT",
        ("trace", "save"),
        "failed: SIGABRT, with the Python stack there",
    ),
    "an exit without a word": Fault(
        lambda run: run.gate.open("exit"),
        ExitCode.FAILED,
        "exited without a report",
        ("start", "data", "save"),
        "failed: exited without a report, with exit code 0",
    ),
}
CELLS = [(name, moment) for name, fault in FAULTS.items() for moment in fault.moments]


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """A run at the moment."""
    made = Run(tmp_path, request.param)
    try:
        made.reach()
        yield made
    finally:
        made.clean_up()


@pytest.mark.parametrize(("name", "run"), CELLS, indirect=["run"], ids=lambda value: str(value))
def test_fatal_fault_is_reported_and_checkpoint_survives(name: str, run: Run) -> None:
    fault = FAULTS[name]
    step = run.step()

    fault.strike(run)
    result = run.left()
    run.gone()

    page = run.show()
    assert result.code == fault.exit_code, (result, page)
    assert fault.says in page
    reasons = [region["reason"] for region in json.loads(tputui("check", run.dir, "--json").out)["regions"]]
    # The kernel may end a killed process between two pages of the line that it writes.
    assert reasons in ([], ["the last line is truncated"] if "kill -9" in name else [])
    assert not processes_of(run.dir)
    assert accounted(run.dir) >= max(
        (event.step for event in events_in(run.dir, "worker-0", ev.TrainingEnded)), default=0
    )
    saved = last_checkpoint_step(run.dir)
    if run.moment in TRAINED:
        assert saved is not None
        assert saved >= (step if fault.saves else 4)
    if saved is not None and fault.exit_code == ExitCode.STOPPED and fault.saves:
        assert f"after step {saved}; saved as " in page
    if fault.exit_code == ExitCode.STOPPED:
        assert not stray_files(run.dir)


def accounted(run_dir: Path) -> int:
    """Number of steps whose losses are in the journal or reported as dropped."""
    recorded = sum(event.n for event in events_in(run_dir, "worker-0", ev.StepsRecorded))
    return recorded + sum(event.num_steps for event in events_in(run_dir, "worker-0", ev.StepsDropped))


@pytest.mark.parametrize("run", ["train"], indirect=True)
def test_lost_run_resumes_from_last_checkpoint(run: Run, tmp_path: Path) -> None:
    kill_all(run)
    run.left()
    saved = last_checkpoint_step(run.dir)
    assert saved is not None

    keys = [f"epochs={saved // run.steps_per_epoch + 1}", f"data.num_train={run.steps_per_epoch * BATCH}"]
    words = [word for key in (*keys, f"data.gate={run.gate.folder}") for word in ("--set", key)]
    result = tputui("run", "config.toml", "--resume", run.dir, "--name", "again", *words, cwd=tmp_path)

    assert result.code == ExitCode.DONE, result
    planned = events_in(tmp_path / "runs" / "again", "worker-0", ev.TrainingPlanned)[0]
    assert planned.first_step == saved + 1
