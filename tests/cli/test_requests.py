"""`tputui stop` and `tputui checkpoint`: receipts as they arrive, and runs that accept no requests."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import recorded
from tests.another_user import another_user, needs_root
from tests.deadline import DEADLINE_S
from tests.supervise.harness import Bench, is_running, wait_for
from tputui.cli.main import main
from tputui.session.session import Session
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.reporter import Reporter

OBEDIENT = """
    while True:
        request = next_request()
        reporter.emit(ev.RequestSeen(t=time.time(), request=request.id, kind=request.kind, phase="compiling", step=6))
        reporter.emit(ev.RequestApplied(t=time.time(), request=request.id, kind=request.kind, step=7,
                                        path="checkpoints/step-00000007.pt", bytes=148654, seconds=0.25))
        if request.kind != "checkpoint":
            end("stopped", 4, reason="stopped on request")
"""


def test_checkpoint_prints_the_receipts(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise(OBEDIENT)

    assert main(["checkpoint", str(watched.run_dir)]) == 0

    requested, seen, applied = capsys.readouterr().out.splitlines()
    assert requested == "requested: checkpoint"
    assert seen == "seen: in phase compiling, step 6"
    assert applied == "applied: after step 7, checkpoints/step-00000007.pt, 145 KiB, 0.25 s"


@pytest.mark.parametrize(
    ("flags", "kind"), [([], "stop"), (["--after-epoch"], "stop_after_epoch"), (["--now"], "stop_now")]
)
def test_stop_requests_the_given_mode(bench: Bench, flags: list[str], kind: str) -> None:
    watched = bench.supervise(OBEDIENT)

    assert main(["stop", *flags, "--runs-dir", str(watched.run_dir.parent), watched.run_dir.name]) == 0

    assert [(request.kind, request.by) for request in requests.read_all(watched.run_dir)] == [(kind, "tputui stop")]
    assert watched.ended().exit_code == 4


def test_busy_run_is_reported_and_request_stays_pending(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise("while True: Event().wait(1)")
    watched.worker_pid()

    assert main(["checkpoint", str(watched.run_dir), "--wait", "0.3"]) == 6

    assert "no answer within 0.3 s" in capsys.readouterr().err
    assert len(requests.read_all(watched.run_dir)) == 1


class TwoHosts:
    """The training processes of a run on two hosts; `answers` of each follow a request."""

    def __init__(self, parent: Path, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.run_dir = rundir.create(parent, recorded.manifest())
        self._hosts = [Reporter(self.run_dir, "worker", index) for index in range(2)]
        self._answers = answers
        self._submit = requests.submit
        for index, host in enumerate(self._hosts):
            host.emit(
                ev.TopologyDeclared(
                    t=time.time(),
                    strategy="replica",
                    device="CPU",
                    num_cores=2,
                    num_hosts=2,
                    host_index=index,
                    cores=[index],
                )
            )
            host.flush()
        monkeypatch.setattr(requests, "submit", self._submitted)

    def _submitted(self, *args: Any, **more: Any) -> requests.Request:
        request = self._submit(*args, **more)
        now = time.time()
        named: dict[str, Any] = {"request": request.id, "kind": request.kind}
        events: dict[str, ev.Event] = {
            "seen": ev.RequestSeen(t=now, phase="executing", step=6, **named),
            "applied": ev.RequestApplied(t=now, step=7, **named),
            "saved": ev.RequestApplied(t=now + 0.1, step=7, path="last.pt", bytes=9, seconds=0.25, **named),
        }
        for host, answers in zip(self._hosts, self._answers, strict=True):
            for answer in answers:
                host.emit(events[answer])
            host.close()
        return request


def test_a_host_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = TwoHosts(tmp_path, monkeypatch, ["seen"], [])

    assert main(["checkpoint", str(pod.run_dir), "--wait", "0.3"]) == 6

    assert f"no answer within 0.3 s from host 1 ({socket.gethostname()}): digits-1 is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "last"),
    [
        ([["seen", "applied"], ["seen", "applied"]], "applied by 2 of 2 hosts"),
        ([["seen", "applied"], []], "applied by 1 of 2 hosts; no answer from host 1 ("),
    ],
)
def test_hosts_that_have_applied_a_request_are_counted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answers: list[list[str]],
    last: str,
) -> None:
    monkeypatch.setattr("tputui.cli.requests.HOSTS_WAIT_S", 0.3)
    pod = TwoHosts(tmp_path, monkeypatch, *answers)

    assert main(["checkpoint", str(pod.run_dir)]) == 0

    _, seen, applied, hosts = capsys.readouterr().out.splitlines()
    assert (seen, applied) == ("seen: in phase executing, step 6", "applied: after step 7")
    assert hosts.startswith(last)


def test_hosts_are_counted_that_answer_after_the_run_has_ended_on_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = TwoHosts(tmp_path, monkeypatch, ["seen", "applied"], ["seen"])
    supervisors = [Reporter(pod.run_dir, "supervisor", index) for index in range(2)]
    submit = requests.submit

    def submit_and_end(*args: Any, **more: Any) -> requests.Request:
        request = submit(*args, **more)
        supervisors[0].emit(ev.RunEnded(t=time.time(), outcome="stopped", exit_code=4, reason=""))
        supervisors[0].close()
        return request

    class Later(threading.Event):
        """The supervisor of host 1 writes its receipt while the command waits."""

        def wait(self, timeout: float | None = None) -> bool:
            (request,) = requests.read_all(pod.run_dir)
            if len(supervisors) == 2:
                late = supervisors.pop()
                late.emit(ev.RequestApplied(t=time.time(), request=request.id, kind=request.kind, step=7))
                late.close()
            return super().wait(timeout)

    monkeypatch.setattr(requests, "submit", submit_and_end)
    monkeypatch.setattr("tputui.cli.requests.Pause", Later)
    assert main(["stop", str(pod.run_dir), "--now"]) == 0

    assert capsys.readouterr().out.splitlines()[-1] == "applied by 2 of 2 hosts"


def test_the_receipt_is_that_of_the_host_that_wrote_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = TwoHosts(tmp_path, monkeypatch, ["seen", "applied"], ["seen", "saved"])

    assert main(["checkpoint", str(pod.run_dir)]) == 0

    _, _, applied, hosts = capsys.readouterr().out.splitlines()
    assert applied == "applied: after step 7, last.pt, 9 B, 0.25 s"
    assert hosts == "applied by 2 of 2 hosts"
    session = Session.live(pod.run_dir)
    session.read_all()
    assert [request.path for request in session.snapshot().requests] == ["last.pt"]


def test_supervisor_rejects_request_of_dead_worker(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise("next_request(); os.kill(os.getpid(), signal.SIGKILL)")
    watched.worker_pid()

    assert main(["stop", str(watched.run_dir)]) == 2

    assert "refused: the run ended before this was done" in capsys.readouterr().out


def test_a_stop_before_training_began_is_applied(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise("next_request(); sys.exit(4)")
    watched.worker_pid()

    assert main(["stop", str(watched.run_dir)]) == 0

    assert "applied: " in capsys.readouterr().out
    assert watched.ended().reason == "stopped on request before training began"


def test_ended_run_rejects_requests(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", str(recorded_run)]) == 2

    assert "digits-1: the run has already ended (it is done" in capsys.readouterr().err
    assert requests.read_all(recorded_run) == []


def test_lost_run_rejects_requests(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise("while True: Event().wait(1)")
    pid = watched.worker_pid()
    watched.process.kill()
    watched.process.wait()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_running(pid), "the end of the training process")

    assert main(["stop", str(watched.run_dir)]) == 2

    assert "it is lost" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "replay", "stop", "checkpoint", "check", "attach"])
def test_unknown_run_suggests_the_closest_name(
    command: str, recorded_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--runs-dir", str(recorded_run.parent), "digit-1"]) == 2

    result = capsys.readouterr()
    assert result.out == ""
    assert result.err == f"tputui: digit-1: no such run in {recorded_run.parent}; did you mean digits-1?\n"


@pytest.mark.parametrize("name", ["../digits-1", "..", "a/b", "-x", "", "x" * 129])
def test_name_outside_the_directory_is_rejected(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Path(__file__).parents[2] / "sample_configs/digits.toml"

    assert main(["run", str(config), f"--name={name}", "--runs-dir", str(tmp_path / "runs")]) == 2

    assert "run names may contain letters, digits" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_stacks_of_a_command_are_printed_once_those_of_all_its_processes_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"script": {"command": ["torchrun", "train.py"]}}
    run_dir = rundir.create(tmp_path, msgspec.structs.replace(recorded.manifest(), config=config))
    logs = Reporter(run_dir, "logs")
    supervisor = Reporter(run_dir, "supervisor")
    looks = 0

    def taken(process: str, pid: int) -> ev.StacksTaken:
        frame = ev.CodeFrame(file="/home/me/train.py", line=3, function=f"in_{process[-1]}", owner="user")
        stack = ev.ThreadStack(name="MainThread", frames=[frame])
        return ev.StacksTaken(t=time.time(), request=request.id, process=process, pid=pid, threads=[stack])

    def read_all(session: Session) -> None:
        """The supervisor writes while the command looks: the leader at the second look, a rank at the sixth."""
        nonlocal looks
        looks += 1
        if looks == 2:
            logs.emit(taken("logs-0", os.getpid()))
        if looks == 6:
            supervisor.emit(taken("rank 1", 4711))
            supervisor.emit(ev.RequestApplied(t=time.time(), request=request.id, kind="stacks", step=0))
        assert logs.flush(DEADLINE_S)
        assert supervisor.flush(DEADLINE_S)
        whole(session)

    whole = Session.read_all
    monkeypatch.setattr(Session, "read_all", read_all)
    request = requests.Request(id="1-1", kind="stacks", t=time.time(), by="test")
    monkeypatch.setattr(requests, "submit", lambda *args, **named: request)
    try:
        assert main(["stacks", str(run_dir)]) == 0
    finally:
        logs.close()
        supervisor.close()
    printed = capsys.readouterr().out
    assert "in_0" in printed
    assert "in_1" in printed


@needs_root
@pytest.mark.parametrize("words", [["stop"], ["stop", "--now"], ["checkpoint"], ["stacks"]])
def test_requests_of_another_user_fail(bench: Bench, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    watched = bench.supervise(OBEDIENT)
    watched.worker_pid()
    assert main(["show", str(watched.run_dir)]) == 0  # everything that it takes is imported
    capsys.readouterr()
    with another_user(watched.run_dir):
        code = main([*words, str(watched.run_dir)])

    (sentence,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert "another user's" in sentence or "Permission denied" in sentence
    assert requests.read_all(watched.run_dir) == []
