"""Failures of runs under a real supervisor: reported at once, with their cause.

The runs train at one time: most of what each takes is the start of the runtime.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.data.sampler import permutation
from tests import forked
from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.engine.curve_task import NUM_TRAIN
from tests.engine.test_strategies import BATCH, CURVE, HERE
from tests.engine.workers import Run, make
from tests.supervise.harness import events_in, wait_for
from tputui.session.session import load
from tputui.state.snapshot import Failure
from tputui.supervise import spawn
from tputui.telemetry import events as ev

pytestmark = pytest.mark.xla

WITHIN_S = 20.0
"""Less than any timeout after which a process counts as gone. An idle machine takes less than two seconds."""
RAISES_IN_RANK_1 = int(permutation(NUM_TRAIN, 0, 1)[3 * BATCH + BATCH // 2])
IN_RANK_0 = int(permutation(NUM_TRAIN, 0, 1)[3 * BATCH])
REPLICA = ["device.cores=2", "device.strategy=replica"]
FOREVER = ["epochs=1000000", "checkpoint.every_epochs=1000000"]
SETUPS = {
    "import": ["task=tests.engine.unimported:Task"],
    "raise-spmd": ["device.cores=2", f"data.break_at={IN_RANK_0}"],
    "abort-spmd": ["device.cores=2", f"data.break_at={IN_RANK_0}", "data.how=abort"],
    "raise-rank": [*REPLICA, f"data.break_at={RAISES_IN_RANK_1}"],
    "hang-rank": [*REPLICA, *FOREVER, f"data.break_at={RAISES_IN_RANK_1}", "data.how=hang", "stall.after_s=1"],
    "exit-rank": [*REPLICA, *FOREVER, f"data.break_at={RAISES_IN_RANK_1}", "data.how=exit"],
    "unprintable": ["device.cores=1", f"data.break_at={IN_RANK_0}", "data.how=unprintable"],
}
OF_SLOW_TESTS = {"abort-spmd", "exit-rank"}


class Watched:
    """A run and its supervisor, which starts training with torch imported."""

    def __init__(self, run: Run) -> None:
        self.dir = run.dir
        self.supervisor = self._start()

    def _start(self) -> forked.Process | subprocess.Popen[bytes]:
        log = self.dir / spawn.supervisor_log(0)
        with log.open("ab") as output, open(os.devnull, "rb") as nothing:
            return forked.Process(
                "tests.forked_tree",
                ["tputui.supervise", str(self.dir)],
                cwd=Path.cwd(),
                env=spawn.environment(os.environ),
                streams=[nothing.fileno(), output.fileno(), output.fileno()],
            )

    def reported(self) -> ev.FailureReported:
        """Waits for the report of its failure."""
        return wait_for(lambda: events_in(self.dir, "supervisor-0", ev.FailureReported), "the report")[0]

    def failure(self) -> Failure:
        """The failure as views show it, once the run has ended."""
        self.supervisor.wait(DEADLINE_S)
        failure = load(self.dir).failure
        assert failure is not None
        return failure

    def late_s(self) -> float:
        """Seconds from the failure to its report."""
        return self.reported().t - self.failure().t

    def clean_up(self) -> None:
        """EndingTask all processes."""
        for started in events_in(self.dir, "supervisor-0", ev.WorkerStarted):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
        self.supervisor.wait(DEADLINE_S)


class Runs(dict[str, Watched]):
    """Runs by name, each started when it is first asked for."""

    def __init__(self, parent: Path) -> None:
        super().__init__()
        self._parent = parent

    def __missing__(self, name: str) -> Watched:
        text = CURVE.replace("tests.engine.curve_task:CurveTask", "tests.engine.ending_task:EndingTask")
        self[name] = Watched(make(self._parent, name, SETUPS[name], text=text, cwd=HERE.parents[1]))
        return self[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """The runs; those of tests that are not slow are started."""
    started = Runs(tmp_path_factory.mktemp("ends"))
    for name in SETUPS.keys() - OF_SLOW_TESTS:
        started[name]
    yield started
    for watched in started.values():
        watched.clean_up()


def stall_of(run: Path) -> ev.StallFound:
    """Waits until the run whose rank 1 hangs is known to stall."""
    stalls = wait_for(
        lambda: [stall for stall in events_in(run, "supervisor-0", ev.StallFound) if "all-reduce" in stall.text],
        "the stall",
    )
    return stalls[0]


def test_no_process_of_a_run_of_several_ranks_opens_a_port(runs: dict[str, Watched]) -> None:
    run = runs["hang-rank"].dir
    stall_of(run)
    pids = [events_in(run, writer, ev.JournalOpened)[0].pid for writer in ("worker-0", "rank-1", "supervisor-0")]
    assert [psutil.Process(pid).net_connections("inet") for pid in pids] == [[], [], []]


def test_hanging_rank_is_named_with_waiters_and_stack(runs: dict[str, Watched]) -> None:
    watched = runs["hang-rank"]
    stall = stall_of(watched.dir)
    assert "core 1 waiting for data for " in stall.text
    assert "1 other in all-reduce at step 3" in stall.text
    done = tputui("stacks", watched.dir, "--wait", f"{DEADLINE_S:g}")
    assert done.code == 0, done.err
    rank = done.out[done.out.index("rank-1") :]
    assert "in EndingCurve._end" in rank
    assert "worker-0 (core 0, pid " in done.out


# Last of the three with this run, since it ends there.
def test_killed_rank_is_reported_at_once(runs: dict[str, Watched]) -> None:
    watched = runs["hang-rank"]
    stall_of(watched.dir)
    pid = events_in(watched.dir, "rank-1", ev.JournalOpened)[0].pid
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    report = watched.reported()
    assert report.t - killed < WITHIN_S
    assert (report.process, report.pid, report.kind) == ("rank-1", pid, "killed")
    assert report.memory
    assert watched.failure().cores == [1]


def test_import_error_of_user_module_names_its_line(runs: dict[str, Watched]) -> None:
    failure = runs["import"].failure()
    assert failure.kind == "import"
    assert "No module named 'a_package_that_nobody_has'" in failure.message
    assert [Path(frame.file).name for frame in failure.frames] == ["unimported.py"]
    assert "ModuleNotFoundError" in failure.traceback
    assert runs["import"].late_s() < WITHIN_S


def test_exception_in_user_data_starts_at_their_line(runs: dict[str, Watched]) -> None:
    failure = runs["raise-spmd"].failure()
    assert (failure.kind, failure.writer, failure.cores) == ("exception", "worker-0", [0, 1])
    assert [frame.function for frame in failure.frames][:2] == ["EndingCurve._end", "EndingCurve.fetch"]
    assert "shard 7 is cut short" in failure.message
    assert "shard 7 is cut short" in (runs["raise-spmd"].dir / "failure.txt").read_text()
    assert runs["raise-spmd"].late_s() < WITHIN_S


def test_all_steps_before_a_data_error_are_in_the_journal(runs: dict[str, Watched]) -> None:
    for name in ("raise-spmd", "unprintable"):
        runs[name].failure()
        steps = events_in(runs[name].dir, "worker-0", ev.StepsRecorded)
        # The fourth batch cannot be read.
        assert [step for record in steps for step in range(record.first, record.first + record.n)] == [1, 2, 3]
        assert not events_in(runs[name].dir, "worker-0", ev.StepsDropped)


def test_unprintable_error_ends_the_run_with_its_type(runs: dict[str, Watched]) -> None:
    failure = runs["unprintable"].failure()
    assert (failure.error, failure.writer) == ("Unprintable", "worker-0")
    assert "__str__ raised RuntimeError" in failure.message
    assert failure.frames[0].function == "EndingCurve._end"


@pytest.mark.slow
def test_exited_rank_is_named_for_any_exit_code(runs: dict[str, Watched]) -> None:
    failure = runs["exit-rank"].failure()
    assert (failure.writer, failure.kind) == ("rank-1", "exited")
    assert "rank 1 (core 1, pid" in failure.message
    assert "exit code 4 during training" in failure.message
    # Two ranks read together, so what the loss of one leaves unread is counted.
    recorded = events_in(runs["exit-rank"].dir, "worker-0", ev.StepsRecorded)
    unread = events_in(runs["exit-rank"].dir, "worker-0", ev.StepsDropped)
    (ended,) = events_in(runs["exit-rank"].dir, "worker-0", ev.TrainingEnded)
    losses = [record.n for record in recorded if record.metric == "loss"]
    assert sum(losses) + sum(drop.num_steps for drop in unread) == ended.step


@pytest.mark.slow
def test_native_abort_is_reported_with_its_stack(runs: dict[str, Watched]) -> None:
    watched = runs["abort-spmd"]
    failure = watched.failure()
    assert (failure.kind, failure.error) == ("aborted", "SIGABRT")
    assert "in _end" in failure.stack
    (exited,) = events_in(watched.dir, "supervisor-0", ev.WorkerExited)
    assert watched.reported().t - exited.t < WITHIN_S


def test_rank_exception_is_the_cause_of_other_ends(runs: dict[str, Watched]) -> None:
    failure = runs["raise-rank"].failure()
    assert (failure.writer, failure.cores, failure.kind) == ("rank-1", [1], "exception")
    assert failure.frames[0].function == "EndingCurve._end"
    assert [words.partition(" ")[0] for words in failure.followers] == ["worker-0"]
    assert runs["raise-rank"].late_s() < WITHIN_S
