"""Whole runs of `tputui run` on two hosts of one core on this machine, with training over gloo."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests import forked
from tests.deadline import DEADLINE_S
from tests.launch.hosts import is_listening, pids_alive
from tests.ports import reserved_port
from tests.system_clock import SystemClock
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry.journal import SUFFIX, Tail

pytestmark = pytest.mark.slow
SAMPLE = Path(__file__).parents[2] / "sample_configs" / "digits_two_hosts.toml"
LOST_AFTER_S = 600.0
"""Silence after which a host is lost, for a test in which none is silent on the slowest machine."""
SMALL = ["epochs=15", "data.batches_per_epoch=20", "device.virtual_cores=1", "launch.max_restarts=0"]


class PodRun:
    """A run on two hosts, each with a command `tputui run`."""

    def __init__(
        self,
        folder: Path,
        *changes: str,
        shared: bool,
        sample: Path = SAMPLE,
        environs: Sequence[dict[str, str]] = ({}, {}),
    ) -> None:
        """`environs`: variables that the command of each host has besides."""
        self._outputs = [folder / f"out-{index}" for index in range(2)]
        self.dirs = [folder / ("runs" if shared else f"runs-{index}") / "pod" for index in range(2)]
        self.port = reserved_port()
        endpoint = f"127.0.0.1:{self.port}"
        words = ["run", str(sample), "--no-ui", "--name", "pod", "--rdzv-endpoint", endpoint]
        for change in (*SMALL, *changes):
            words += ["--set", change]
        self.commands: list[forked.Process | subprocess.Popen[bytes]] = []
        for index, run_dir in enumerate(self.dirs):
            own = [*words, "--runs-dir", str(run_dir.parent), "--host-index", str(index)]
            with self._outputs[index].open("wb") as out:
                self.commands.append(_started(["tputui", *own], out, environs[index]))

    def output(self, index: int) -> str:
        """What the command of a host has printed."""
        return self._outputs[index].read_text()

    def events(self, writer: str) -> list[ev.Event]:
        """The events of a journal so far."""
        path = self.dirs[int(writer[-1])] / f"{writer}{SUFFIX}"
        if not path.exists():
            return []
        with contextlib.closing(Tail(path)) as tail:
            return [each.event for each in tail.read(1 << 26)]

    def of_kind(self, writer: str, kind: type[ev.Event]) -> list[ev.Event]:
        """Those of a kind."""
        return [event for event in self.events(writer) if isinstance(event, kind)]

    def until(self, condition: Callable[[], object]) -> None:
        """Waits until a condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "".join(self.output(index) for index in range(2))
            assert any(command.poll() is None for command in self.commands), self.output(0) + self.output(1)
            time.sleep(0.05)

    def until_saved(self) -> None:
        """Waits until host 0 has saved a checkpoint."""
        self.until(lambda: self.of_kind("worker-0", ev.CheckpointSaved))

    def worker_pid(self, index: int) -> int:
        """The newest training process of a host."""
        started = self.of_kind(f"supervisor-{index}", ev.WorkerStarted)[-1]
        assert isinstance(started, ev.WorkerStarted)
        return started.pid

    def wait(self) -> list[int]:
        """The exit codes of the commands."""
        return [command.wait(DEADLINE_S) for command in self.commands]

    def end(self) -> None:
        """EndingTask what is left."""
        for index, command in enumerate(self.commands):
            command.kill()
            command.wait()
            opened = self.of_kind(f"supervisor-{index}", ev.JournalOpened)
            for head in opened:
                assert isinstance(head, ev.JournalOpened)
                if pids_alive([head.pid]):
                    os.kill(head.pid, signal.SIGKILL)
        self.commands = []


def _started(argv: list[str], out: IO[bytes], environ: dict[str, str]) -> forked.Process | subprocess.Popen[bytes]:
    """A command with torch imported; or in an interpreter of its own, if it has an environment of its own."""
    if environ:
        words, env = [sys.executable, "-P", "-m", *argv], {**os.environ, **environ}
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
    with open(os.devnull, "rb") as nothing:
        streams = [nothing.fileno(), out.fileno(), out.fileno()]
        return forked.Process("tests.forked_tree", argv, cwd=Path.cwd(), env=os.environ, streams=streams)


@contextlib.contextmanager
def pod_run(folder: Path, *changes: str, shared: bool, **more: Any) -> Iterator[PodRun]:
    """A run on two hosts; nothing of it is left afterwards."""
    run = PodRun(folder, *changes, shared=shared, **more)
    try:
        yield run
    finally:
        run.end()


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
def test_a_killed_training_process_is_named_everywhere_and_all_hosts_resume(tmp_path: Path, shared: bool) -> None:
    silence = f"launch.lost_after_s={LOST_AFTER_S}"
    with pod_run(tmp_path, "launch.max_restarts=1", "epochs=6", silence, shared=shared) as run:
        # Five epochs before the end, since this process may have to wait for a processor.
        run.until_saved()
        os.kill(run.worker_pid(1), signal.SIGKILL)
        killed = time.time()
        assert run.wait() == [0, 0]
        for index in range(2):
            (reported,) = run.of_kind(f"supervisor-{index}", ev.FailureReported)
            assert isinstance(reported, ev.FailureReported)
            assert reported.t - killed < LOST_AFTER_S, "known at once, not by the silence of the host"
            assert (reported.process, reported.error) == ("worker-1", "SIGKILL")
            page = (run.dirs[index] / ("failure-1.txt" if index else "failure.txt")).read_text()
            assert "SIGKILL" in page
        (named,) = run.of_kind("supervisor-0", ev.FailureReported)
        assert isinstance(named, ev.FailureReported)
        assert named.other_host is not None
        assert named.other_host.startswith("host 1 (")
        assert named.other_host.endswith("rank 1 (core 1)")
        plans = run.of_kind("worker-0", ev.TrainingPlanned)
        firsts = [plan.first_step for plan in plans if isinstance(plan, ev.TrainingPlanned)]
        assert firsts[0] in (0, 1)
        assert firsts[1] >= 20
        snapshot = session.load(run.dirs[0])
        assert snapshot.condition == "done"
        again = snapshot.generations[1]
        assert again.reason.startswith("host 1 ("), again.reason
        assert "SIGKILL" in again.reason


TORCHRUN = "--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id again --max-restarts 1 --local-addr 127.0.0.1"


@contextlib.contextmanager
def outer_torchrun(folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two agents of torchrun, each of which runs `tputui run` as one of two hosts, in `folder/runs`."""
    config = folder / "outer.toml"
    config.write_text(SAMPLE.read_text().replace('engine = "torchrun"', 'engine = "external"'))
    words = [*TORCHRUN.split(), "--rdzv-endpoint", f"127.0.0.1:{reserved_port()}"]
    words += ["-m", "tputui", "run", str(config), "--no-ui", "--runs-dir", str(folder / "runs")]
    words += ["--rdzv-endpoint", f"127.0.0.1:{reserved_port()}"]
    for change in (*SMALL, "epochs=6"):
        words += ["--set", change]
    agents: list[subprocess.Popen[bytes]] = []
    try:
        for is_host in ("true", "false"):
            with (folder / f"out-{is_host}").open("wb") as out:
                argv = [sys.executable, "-m", "torch.distributed.run", "--rdzv-conf", f"is_host={is_host}", *words]
                agents.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        yield agents
    finally:
        for agent in agents:
            agent.terminate()
            agent.wait(DEADLINE_S)


def test_what_an_outer_torchrun_restarts_resumes_from_the_last_checkpoint(tmp_path: Path) -> None:
    first = tmp_path / "runs" / "again"
    with outer_torchrun(tmp_path) as agents:
        deadline = time.monotonic() + DEADLINE_S
        while not (first / "checkpoints" / "last.pt").exists():
            assert time.monotonic() < deadline
            assert all(agent.poll() is None for agent in agents), (tmp_path / "out-true").read_text()
            time.sleep(0.05)
        events = [each.event for each in session.read_events(first) if each.writer == "supervisor-1"]
        (started,) = (event for event in events if isinstance(event, ev.WorkerStarted))
        os.kill(started.pid, signal.SIGKILL)
        assert [agent.wait(DEADLINE_S) for agent in agents] == [0, 0], (tmp_path / "out-true").read_text()
    again = first.with_name("again-restart-1")
    assert session.load(again).condition == "done"
    plans = [each.event for each in session.read_events(again) if isinstance(each.event, ev.TrainingPlanned)]
    assert {plan.first_step > 20 for plan in plans} == {True}


def test_sigterm_on_one_host_saves_and_stops_all(tmp_path: Path) -> None:
    with pod_run(tmp_path, "launch.max_restarts=3", shared=False) as run:
        run.until_saved()
        # To the command, as a cluster does before it takes the host away.
        run.commands[1].send_signal(signal.SIGTERM)
        assert run.wait() == [4, 4]
        assert [len(run.of_kind(f"supervisor-{index}", ev.WorkerStarted)) for index in range(2)] == [1, 1]
        ends = [run.of_kind(f"worker-{index}", ev.TrainingEnded)[-1] for index in range(2)]
        steps = {end.step for end in ends if isinstance(end, ev.TrainingEnded)}
        saved = run.of_kind("worker-0", ev.CheckpointSaved)[-1]
        assert isinstance(saved, ev.CheckpointSaved)
        assert steps == {saved.step}


def test_a_stop_of_one_host_before_all_have_joined_stops_the_others(tmp_path: Path) -> None:
    with pod_run(tmp_path, "launch.nnodes=3", shared=False) as run:
        run.until(lambda: is_listening(run.port) and run.of_kind("supervisor-1", ev.RunStarted))
        run.commands[1].send_signal(signal.SIGTERM)
        assert run.wait() == [4, 4]
        for writer in ("supervisor-0", "supervisor-1"):
            (ended,) = run.of_kind(writer, ev.RunEnded)
            assert isinstance(ended, ev.RunEnded)
            assert (ended.outcome, ended.reason) == (
                "stopped",
                "stopped on request before training began, at host 1",
            )
            assert run.of_kind(writer, ev.FailureReported) == []


def test_no_process_of_a_host_outlives_its_supervisor(tmp_path: Path) -> None:
    with pod_run(tmp_path, 'launch.engine="external"', shared=False) as run:
        run.until_saved()
        (head,) = run.of_kind("supervisor-1", ev.JournalOpened)
        assert isinstance(head, ev.JournalOpened)
        pids = [run.worker_pid(1)]
        os.kill(head.pid, signal.SIGKILL)
        run.until(lambda: not pids_alive(pids))
        assert run.commands[0].wait(DEADLINE_S) == 3
        (ended,) = run.of_kind("supervisor-0", ev.RunEnded)
        assert isinstance(ended, ev.RunEnded)
        assert "host 1" in ended.reason


def test_a_launcher_that_is_killed_after_a_restart_is_the_failure_of_its_newest_process(tmp_path: Path) -> None:
    with pod_run(tmp_path, "launch.max_restarts=1", "epochs=500", shared=False) as run:
        run.until_saved()
        os.kill(run.worker_pid(1), signal.SIGKILL)
        run.until(lambda: len(run.of_kind("worker-0", ev.TrainingPlanned)) == 2)
        pid = run.worker_pid(1)
        status = Path(f"/proc/{pid}/status").read_text()
        (launcher,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")]
        os.kill(launcher, signal.SIGKILL)
        assert run.wait() == [3, 3]
        assert not pids_alive([pid])
    for writer in ("supervisor-0", "supervisor-1"):
        reported = run.of_kind(writer, ev.FailureReported)[-1]
        assert isinstance(reported, ev.FailureReported)
        assert (reported.process, reported.pid) == (("worker-1", pid) if writer[-1] == "1" else ("supervisor-1", None))
    (ended,) = run.of_kind("supervisor-1", ev.RunEnded)
    assert isinstance(ended, ev.RunEnded)
    assert ended.reason == "the launcher of this host, and training with it, ended by signal SIGKILL"


SLOW_DIGITS = """
import os, threading
from engine.tasks.digits import Digits

class SlowDigits(Digits):
    def outcomes(self, predictions, batch):
        threading.Event().wait(float(os.environ.get("SLOW_S", "0")))
        return super().outcomes(predictions, batch)
"""


def test_a_clock_that_is_off_and_then_set_and_a_straggler_are_reported_and_change_no_time(tmp_path: Path) -> None:
    (tmp_path / "slow_digits.py").write_text(SLOW_DIGITS)
    sample = tmp_path / "slow.toml"
    sample.write_text(SAMPLE.read_text().replace('task = "digits"', 'task = "slow_digits:SlowDigits"'))
    clock = SystemClock(tmp_path / "clock", 90.0)
    path = f"{clock.env['PYTHONPATH']}:{tmp_path}"
    environs = ({"PYTHONPATH": str(tmp_path)}, {**clock.env, "SLOW_S": "0.15", "PYTHONPATH": path})
    changes = ["epochs=2", "data.batches_per_epoch=60", "stall.after_s=30"]
    with pod_run(tmp_path, *changes, shared=True, sample=sample, environs=environs) as run:
        run.until(lambda: len(run.of_kind("worker-1", ev.HostPaceMeasured)) > 4)
        clock.set(30.0)
        run.until(lambda: session.load(run.dirs[0]).slow_host)
        live = session.load(run.dirs[0])
        assert live.condition == "running"
        assert live.slow_host is not None
        assert (live.slow_host.index, live.slow_host.part) == (1, "compute")
        assert [host.condition for host in live.hosts] == ["running", "running"]
        offset_s = live.hosts[1].clock_offset_s
        assert offset_s is not None
        assert abs(offset_s - 90) < 5
        assert run.wait() == [0, 0]
        assert "host's clock was set back" not in run.output(0) + run.output(1)
    (warning,) = [w for w in run.of_kind("supervisor-1", ev.WarningRaised) if "clock" in getattr(w, "text", "")]
    assert "the clock of this host was set back by 1 min 00 s" in getattr(warning, "text", "")
    assert not run.of_kind("supervisor-0", ev.StallFound)
    assert not run.of_kind("supervisor-1", ev.StallFound)
    # When the first steps of a report were recorded: the hosts train in step.
    found: dict[str, dict[int, float]] = {"worker-0": {}, "worker-1": {}}
    for event in session.read_events(run.dirs[0]):
        if isinstance(event.event, ev.StepsRecorded) and event.event.metric == "loss":
            for step in range(event.event.first, event.event.first + event.event.n):
                found[event.writer][step] = event.event.t
    common = found["worker-0"].keys() & found["worker-1"].keys()
    assert len(common) == 120
    assert max(abs(found["worker-0"][step] - found["worker-1"][step]) for step in common) < 10
