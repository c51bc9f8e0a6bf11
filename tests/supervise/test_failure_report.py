"""The first failure of a run is reported at once, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadline import DEADLINE_S
from tests.supervise.harness import Bench, Watched, wait_for
from tputui.session.session import load
from tputui.supervise import log_tail
from tputui.supervise.out_of_memory import OutOfMemoryWatch
from tputui.telemetry import events as ev
from tputui.text import show_page

ROOT = Path(__file__).parents[2]
WITHIN_S = 20.0
"""Less than any timeout after which a process counts as gone. An idle machine takes less than two seconds."""
FOREVER = "while True: Event().wait(1)"
TOPOLOGY = """
    reporter.emit(ev.TopologyDeclared(t=time.time(), strategy="replica", device="CPU", num_cores=2, num_hosts=1,
                                      host_index=0, cores=[0, 1]))
"""
A_RANK_BREAKS = (
    TOPOLOGY
    + """
    rank = Reporter(run_dir, "rank", 1)
    rank.emit(ev.TopologyDeclared(t=time.time(), strategy="replica", device="CPU", num_cores=2, num_hosts=1,
                                  host_index=0, cores=[1]))
    print("epoch 3: loading shard 7", flush=True)
    frame = ev.CodeFrame(file="reader.py", line=31, function="fetch", owner="user")
    rank.emit(ev.FailureRaised(t=time.time(), error="ValueError", message="the file is cut short", phase="data",
                               step=812, traceback="Traceback\\n  reader.py\\nValueError", frames=[frame]))
    rank.close()
    # The first rank finds out later: when the test has seen the report.
    while not (run_dir / "found-out").exists(): Event().wait(0.02)
    reporter.emit(ev.RankExited(t=time.time(), process="rank-1", pid=77, exit_code=3, signal=None, ending=False))
    reporter.emit(ev.RankExited(t=time.time(), process="rank-2", pid=78, exit_code=None, signal="SIGKILL", ending=True))
    end("failed", 3, reason="rank 1 broke", step=812)
"""
)


def reported(watched: Watched) -> ev.FailureReported:
    """The report, once it is there."""
    return wait_for(lambda: watched.events(ev.FailureReported), "the report of the failure")[0]


def test_rank_failure_is_reported_while_worker_lives(bench: Bench) -> None:
    watched = bench.supervise(A_RANK_BREAKS)
    report = reported(watched)
    broke = load(watched.run_dir).failure
    assert broke is not None
    assert report.t - broke.t < WITHIN_S
    assert watched.events(ev.WorkerExited) == [], "the worker lives on"
    (watched.run_dir / "found-out").touch()
    page = (watched.run_dir / "failure.txt").read_text()
    assert "rank-1, core 1, " in page
    assert "ValueError: the file is cut short" in page
    assert "step 812, while waiting for data" in page
    assert page.index("reader.py:31 in fetch") < page.index("traceback"), "the user's code first"
    assert "epoch 3: loading shard 7" in page
    assert "followed" not in page


def test_later_exits_are_consequences_in_every_view(bench: Bench) -> None:
    watched = bench.supervise(A_RANK_BREAKS)
    reported(watched)
    (watched.run_dir / "found-out").touch()
    watched.ended()
    broke = load(watched.run_dir).failure
    assert broke is not None
    assert (broke.writer, broke.cores, broke.kind) == ("rank-1", [1], "exception")
    second, last = broke.followers
    assert second.startswith("rank-2: was ended with the run (signal SIGKILL)")
    assert last.startswith("worker-0 (pid ")
    snapshot = load(watched.run_dir)
    page = (watched.run_dir / "failure.txt").read_text()
    assert page.strip() in show_page.show_text(snapshot), "the same block"
    assert show_page.to_show(snapshot)["failure"]["followers"] == broke.followers


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
def test_native_crash_is_reported_with_output_and_stack(bench: Bench, number: int) -> None:
    watched = bench.supervise(
        f"""
        import faulthandler
        faulthandler.enable()
        def in_the_collective():
            print("F0000 rendezvous.cc:112 Termination timeout", file=sys.stderr, flush=True)
            os.kill(os.getpid(), {int(number)})
            Event().wait(10)
        in_the_collective()
        """
    )
    report = reported(watched)
    exited = wait_for(lambda: watched.events(ev.WorkerExited), "the end of the worker")[0]
    assert report.t - exited.t < WITHIN_S
    assert (report.kind, report.error) == ("aborted", signal.Signals(number).name)
    assert report.log[-1].endswith("Termination timeout")
    assert "in in_the_collective" in report.stack
    assert "Fatal Python error" in (watched.run_dir / "failure.txt").read_text()
    assert watched.ended().reason.endswith("it last printed: F0000 rendezvous.cc:112 Termination timeout")


def test_kill_9_is_reported_at_once_with_kernel_count(bench: Bench) -> None:
    watched = bench.supervise(f"print('step 7', flush=True)\n{FOREVER}")
    pid = watched.worker_pid()
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    report = reported(watched)
    assert report.t - killed < WITHIN_S
    assert (report.kind, report.error, report.pid, report.log) == ("killed", "SIGKILL", pid, ["step 7"])
    assert report.memory == OutOfMemoryWatch().verdict()
    assert (report.phase, report.step) == ("executing", 1)
    assert report.memory in watched.ended().reason


def test_requested_end_is_not_a_failure(bench: Bench) -> None:
    watched = bench.supervise("end('stopped', 4)")
    watched.ended()
    assert watched.events(ev.FailureReported) == []
    assert not (watched.run_dir / "failure.txt").exists()
    assert load(watched.run_dir).failure is None


def test_silent_exit_is_reported(bench: Bench) -> None:
    watched = bench.supervise("print('loading', flush=True); os._exit(9)")
    watched.ended()
    (report,) = watched.events(ev.FailureReported)
    assert (report.kind, report.log) == ("exited", ["loading"])


def counters(root: Path, *, cgroup: str, files: dict[str, str]) -> Path:
    """The files of the kernel below `root`."""
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        ("0::/user.slice/run-7\n", "sys/fs/cgroup/user.slice/run-7/memory.events"),
        ("0::/elsewhere\n", "sys/fs/cgroup/memory.events"),
        ("4:memory:/jobs/7\n3:cpu:/\n", "sys/fs/cgroup/memory/jobs/7/memory.oom_control"),
        ("", "proc/vmstat"),
    ],
)
def test_oom_kill_is_recognised_by_kernel_count(tmp_path: Path, cgroup: str, name: str) -> None:
    root = counters(tmp_path, cgroup=cgroup, files={name: "oom 3\noom_kill 2\n"})
    watch = OutOfMemoryWatch(root)
    watch.sample()
    assert watch.rose() is False
    assert "did not run out" in watch.verdict()
    (root / name).write_text("oom 3\noom_kill 3\n")
    watch.sample()
    assert watch.rose() is True, "a sample between the kill and the look at it hides nothing"
    assert "out of memory: the kernel killed a process" in watch.verdict()


def test_missing_kernel_count_is_stated(tmp_path: Path) -> None:
    watch = OutOfMemoryWatch(tmp_path)
    assert watch.rose() is None
    assert "cannot be read" in watch.verdict()


def test_output_tail_omits_the_traceback(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("epoch 1\nTraceback (most recent call last):\n  File x\nValueError: no\n")
    words = log_tail.read_last(log, "Traceback (most recent call last):\n  File x\nValueError: no\n")
    assert words == log_tail.LastOutput(["epoch 1"], "")
    assert log_tail.read_last(tmp_path / "none.log") == log_tail.LastOutput([], "")


IN_A_GROUP = """
import os, sys
from collections.abc import Iterator
from pathlib import Path
from tests.supervise.harness import Bench, ev

group, folder = Path(sys.argv[1]), Path(sys.argv[2])
(group / "memory.limit_in_bytes").write_text(str(256 << 20))
(group / "cgroup.procs").write_text(str(os.getpid()))
bench = Bench(folder)
try:
    watched = bench.supervise("kept = []\\nwhile True: kept.append(bytearray(os.urandom(1 << 20)))")
    watched.ended()
    (report,) = watched.events(ev.FailureReported)
    print(report.kind, "|", report.memory)
finally:
    bench.clean_up()
"""


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group for this test, if the system allows creating one."""
    groups = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    own = next((group for _, controllers, group in groups if "memory" in controllers.split(",")), None)
    if own is None:
        pytest.skip("no control group of version 1 counts memory here")
    group = Path("/sys/fs/cgroup/memory", own.lstrip("/"), f"tputui-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    # A process leaves its group a moment after it is gone.
    wait_for(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
    group.rmdir()


def test_real_out_of_memory_is_reported(memory_group: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_A_GROUP, str(memory_group), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    kind, _, memory = done.stdout.strip().partition(" | ")
    assert kind == "memory"
    assert "out of memory: the kernel killed a process" in memory
