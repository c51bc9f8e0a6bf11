"""A supervisor records the events of its run and acts on requests, with real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.supervise.harness import Bench, events_in, is_running, wait_for
from tputui.supervise.__main__ import main
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir

FOREVER = "while True: Event().wait(1)"
ON_REQUEST_STOP = """
    request = next_request()
    reporter.emit(ev.RequestSeen(t=time.time(), request=request.id, kind=request.kind, phase="executing", step=7))
    reporter.emit(ev.RequestApplied(t=time.time(), request=request.id, kind=request.kind, step=7))
    end("stopped", 4, reason=f"asked by {request.by}: {request.kind}")
"""


def test_complete_run_is_recorded_from_start_to_end(bench: Bench) -> None:
    watched = bench.supervise("print('hello'); end('done', 0, reason='3 epochs trained')")

    ended = watched.ended()

    assert (ended.outcome, ended.exit_code, ended.reason) == ("done", 0, "3 epochs trained")
    assert watched.process.returncode == 0
    kinds = [type(event).__name__ for event in watched.events(ev.Event)]
    assert kinds[:3] == ["JournalOpened", "RunStarted", "WorkerStarted"]
    assert kinds[-2:] == ["WorkerExited", "RunEnded"]
    assert [event.line for event in watched.events(ev.LogWritten)] == ["hello"]
    assert (watched.run_dir / "worker-0.log").read_text() == "hello\n"


def test_silently_killed_worker_has_a_failure_reason(bench: Bench) -> None:
    watched = bench.supervise("print('loading'); raise SystemExit('no such file: images')")

    ended = watched.ended()

    assert (ended.outcome, ended.exit_code) == ("failed", 3)
    assert "exited with code 1" in ended.reason
    assert "no such file: images" in ended.reason


@pytest.mark.parametrize("code", [2, 7])
def test_usage_and_environment_errors_are_passed_on(bench: Bench, code: int) -> None:
    watched = bench.supervise(
        f"""
        reporter.emit(ev.FailureRaised(t=time.time(), error="Unable", message="torch_xla is too old", traceback="",
                                       phase="starting", step=0))
        reporter.close()
        os._exit({code})
        """
    )

    ended = watched.ended()

    assert (ended.outcome, ended.exit_code) == ("failed", code)
    assert "torch_xla is too old" in ended.reason


@pytest.mark.parametrize("code", [2, 7])
def test_exit_code_of_user_code_is_a_training_failure(bench: Bench, code: int) -> None:
    watched = bench.supervise(f"sys.stderr.write('usage: mytool FILE'); sys.stderr.flush(); os._exit({code})")

    ended = watched.ended()

    assert (ended.outcome, ended.exit_code) == ("failed", 3)
    assert f"exited with code {code} without an end event" in ended.reason


def test_reported_exception_is_the_reason(bench: Bench) -> None:
    watched = bench.supervise(
        """
        reporter.emit(ev.FailureRaised(t=time.time(), error="ValueError", message="labels run to 11", traceback="",
                                       phase="data", step=3))
        reporter.close()
        sys.exit(3)
        """
    )

    assert watched.ended().reason == "the training process gave up: ValueError: labels run to 11"


def test_kill_9_of_the_worker_is_reported(bench: Bench) -> None:
    watched = bench.supervise(FOREVER)
    pid = watched.worker_pid()

    os.kill(pid, signal.SIGKILL)
    ended = watched.ended()

    assert (ended.outcome, ended.exit_code) == ("failed", 3)
    assert "SIGKILL" in ended.reason
    assert watched.events(ev.WorkerExited)[0].signal == "SIGKILL"


def test_killed_supervisor_leaves_training_and_its_output(bench: Bench) -> None:
    watched = bench.supervise(
        """
        while not (run_dir / "go").exists():
            Event().wait(0.02)
        for step in range(1000):
            print("step", step)
        end("done", 0)
        """
    )
    pid = watched.worker_pid()

    watched.process.kill()
    watched.process.wait()
    assert is_running(pid)
    (watched.run_dir / "go").touch()

    ended = wait_for(lambda: events_in(watched.run_dir, "worker-0", ev.TrainingEnded), "the worker's last word")
    assert ended[0].outcome == "done"
    assert (watched.run_dir / "worker-0.log").read_text().endswith("step 999\n")


@pytest.mark.parametrize("broken", ["StackSignal.check", "FailureReport.worker_ended"])
def test_a_bug_of_the_supervisor_does_not_end_it(bench: Bench, broken: str) -> None:
    fault = f"from tputui.supervise import supervisor\nsupervisor.{broken} = lambda *given: 1 / 0\n"
    watched = bench.supervise("request = next_request(); end('done', 0, request.kind)", fault=fault)
    watched.worker_pid()
    requests.submit(watched.run_dir, "stop", by="test", now=time.time())
    assert watched.ended().outcome == "done"
    (warning,) = watched.events(ev.WarningRaised)
    assert "because of a bug in tputui: ZeroDivisionError: division by zero" in warning.text


def test_sigterm_requests_stop_with_save(bench: Bench) -> None:
    watched = bench.supervise(ON_REQUEST_STOP)
    watched.worker_pid()

    watched.process.terminate()
    ended = watched.ended()

    assert (ended.outcome, ended.exit_code, ended.reason) == ("stopped", 4, "asked by SIGTERM: stop")
    assert watched.process.returncode == 4


def test_second_sigterm_requests_immediate_stop(bench: Bench) -> None:
    watched = bench.supervise("next_request(); print('first'); request = next_request()\n" + "end('stopped', 4)")
    watched.worker_pid()

    watched.process.terminate()
    wait_for(lambda: requests.read_all(watched.run_dir), "the first request")
    watched.process.terminate()
    watched.ended()

    assert [request.kind for request in requests.read_all(watched.run_dir)] == ["stop", "stop_now"]


def test_training_and_children_are_killed_after_grace_time(bench: Bench) -> None:
    watched = bench.supervise(
        """
        child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
        (run_dir / "child").write_text(str(child.pid))
        while True: Event().wait(1)
        """,
        sigterm_grace_s=0.3,
        kill_after_s=0.3,
    )
    watched.worker_pid()
    child = int(wait_for(lambda: _text(watched.run_dir / "child"), "the worker's child"))

    watched.process.terminate()
    ended = watched.ended()

    assert (ended.outcome, ended.exit_code) == ("stopped", 4)
    assert "killed: it did not obey" in ended.reason
    assert [request.kind for request in requests.read_all(watched.run_dir)] == ["stop", "stop_now"]
    assert watched.events(ev.RequestRefused)[0].kind == "stop"
    assert watched.events(ev.RequestApplied)[0].kind == "stop_now"
    wait_for(lambda: not is_running(child), "the end of the worker's child")


def test_child_that_outlives_the_worker_is_killed(bench: Bench) -> None:
    watched = bench.supervise(
        """
        child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
        (run_dir / "child").write_text(str(child.pid))
        os._exit(1)
        """
    )
    watched.ended()

    child = int(_text(watched.run_dir / "child"))
    wait_for(lambda: not is_running(child), "the end of the worker's child")


def test_child_in_its_own_session_is_named_at_the_end(bench: Bench) -> None:
    watched = bench.supervise(
        """
        child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"],
                                 start_new_session=True)
        (run_dir / "child").write_text(str(child.pid))
        next_request()
        end("done", 0)
        """,
        sample_s=0.1,
    )
    try:
        child = int(wait_for(lambda: _text(watched.run_dir / "child"), "the child"))
        sees = lambda: any(p.pid == child for s in watched.events(ev.HostSampled) for p in s.processes)  # noqa: E731
        wait_for(sees, "a sample with the child")
        requests.submit(watched.run_dir, "stop", by="test", now=time.time())
        watched.ended()
        (warned,) = watched.events(ev.WarningRaised)
        assert f"(pid {child})" in warned.text
        assert is_running(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_stop_now_from_any_viewer_is_enforced(bench: Bench) -> None:
    watched = bench.supervise(FOREVER, kill_after_s=0.3)
    watched.worker_pid()

    request = requests.submit(watched.run_dir, "stop_now", by="a test", now=time.time())
    ended = watched.ended()

    assert ended.outcome == "stopped"
    assert watched.events(ev.RequestApplied)[0].request == request.id


def test_hangup_and_ctrl_c_do_not_reach_the_supervisor(bench: Bench) -> None:
    watched = bench.supervise(ON_REQUEST_STOP)
    pid = watched.worker_pid()

    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(watched.process.pid, number)
    watched.process.terminate()

    assert watched.ended().reason == "asked by SIGTERM: stop"
    assert watched.process.pid != pid


def test_unanswered_request_is_rejected_with_reason(bench: Bench) -> None:
    watched = bench.supervise(FOREVER)
    pid = watched.worker_pid()

    request = requests.submit(watched.run_dir, "checkpoint", by="a test", now=time.time())
    os.kill(pid, signal.SIGKILL)
    watched.ended()

    refused = watched.events(ev.RequestRefused)
    assert [event.request for event in refused] == [request.id]
    assert "SIGKILL" in refused[0].why


def test_host_and_processes_are_sampled_once_a_second(bench: Bench) -> None:
    watched = bench.supervise("next_request(); end('stopped', 4)")
    watched.worker_pid()
    # Before its heartbeat, the worker may not even have the memory of an interpreter.
    before = len(watched.events(ev.HostSampled)) + 1
    wait_for(lambda: len(watched.events(ev.HostSampled)) >= before + 2, "two samples")
    requests.submit(watched.run_dir, "stop", by="test", now=time.time())
    ended = watched.ended()

    samples = watched.events(ev.HostSampled)
    assert len(samples) <= ended.t - watched.events(ev.RunStarted)[0].t
    sample = samples[before]
    assert {process.role for process in sample.processes} == {"worker", "supervisor"}
    assert all(process.rss_bytes > 1 << 20 for process in sample.processes)
    assert sample.memory_total_bytes > sample.memory_used_bytes > 0


def test_worker_journals_are_compressed_if_configured(bench: Bench) -> None:
    config = {**recorded.CONFIG, "report": {"interval_s": 1.0, "seal": True}}
    watched = bench.supervise("end('done', 0)", config={"config": config})
    watched.ended()

    names = {path.name for _, path in rundir.journal_paths(watched.run_dir)}
    assert names == {"supervisor-0.jsonl", "worker-0.jsonl.zst"}
    assert not (watched.run_dir / "worker-0.jsonl").exists()


def test_unwritable_journal_is_logged_training_continues(bench: Bench) -> None:
    watched = bench.supervise(
        """
        while "the journal cannot be written" not in (run_dir / "supervisor.log").read_text():
            Event().wait(0.02)
        (run_dir / "trained").touch()
        """,
        file_bytes_max=1700,
        end_record_s=0.5,
        sample_s=0.1,
    )
    watched.process.wait(DEADLINE_S)

    assert "the journal cannot be written" in watched.log()
    assert "the end event could not be written" in watched.log()
    assert (watched.run_dir / "trained").exists()


def test_directory_that_is_not_a_run_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "there is no run.json in it" in capsys.readouterr().err


def test_a_run_is_supervised_once(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise("end('done', 0)")
    watched.ended()

    assert main([str(watched.run_dir)]) == 2
    assert "another supervisor has started it" in capsys.readouterr().err


def test_user_engine_package_does_not_shadow_ours(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("raise RuntimeError('the decoy was imported')")
    program = """
        import engine
        done = subprocess.run([sys.executable, "-c", "import engine; print(engine.__file__)"], text=True,
                              capture_output=True)
        print(engine.__file__); print(done.stdout, done.stderr); end("done", 0)
    """
    watched = bench.supervise(program, env={"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": ""})
    watched.ended()

    log = (watched.run_dir / "worker-0.log").read_text()
    assert log.count(f"engine{os.sep}__init__.py") == 2
    assert "decoy" not in log


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_renamed_run_serves_requests_and_ends_there(bench: Bench) -> None:
    watched = bench.supervise(
        "inbox = requests.Inbox(rundir.held(run_dir)); beat(2); next_request(); end('stopped', 4)"
    )
    watched.worker_pid()
    wait_for(lambda: len(events_in(watched.run_dir, "worker-0", ev.HeartbeatSent)) == 2, "that the worker looks")
    watched.run_dir = watched.run_dir.rename(watched.run_dir.with_name("renamed"))
    requests.submit(watched.run_dir, "stop_now", by="test", now=time.time())

    ended = watched.ended()
    assert (ended.outcome, ended.exit_code) == ("stopped", 4)
    assert [path.name for path in watched.run_dir.parent.glob("run-*") if path.is_dir()] == []
