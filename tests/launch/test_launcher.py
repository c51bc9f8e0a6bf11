"""Launchers of several hosts, with restarts or by the engine `external`, on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests import forked
from tests.deadline import DEADLINE_S
from tests.launch.hosts import catches, hosts, is_listening, pids_alive, reason_of, run_dir_of
from tputui.telemetry import events as ev
from tputui.telemetry.launch_messages import HostFailed, LaunchFailed
from tputui.telemetry.rundir import read_manifest

EXTERNAL = 'launch.engine="external"'


@pytest.mark.parametrize("engine", ['launch.engine="torchrun"', pytest.param(EXTERNAL, marks=pytest.mark.slow)])
def test_hosts_meet_and_each_trains_once_in_its_place(tmp_path: Path, engine: str) -> None:
    with hosts(tmp_path, engine, actions={"0.0": "done", "1.0": "done"}) as pod:
        assert [host.wait() for host in pod] == [0, 0]
        for host in pod:
            (joined,) = host.events(ev.HostJoined)
            assert (joined.host_index, joined.num_hosts, joined.address) == (host.index, 2, "127.0.0.1")
            (started,) = host.events(ev.WorkerStarted)
            (exited,) = host.events(ev.WorkerExited)
            assert (exited.pid, exited.exit_code, exited.signal) == (started.pid, 0, None)
            assert host.of_kind(HostFailed) == []
        (measured,) = pod[1].events(ev.ClockMeasured)
        assert abs(measured.offset_s) <= measured.error_s
        (written,) = [event for event in pod[1].journal() if isinstance(event, ev.LogWritten)]
        contract = json.loads(written.line)
        assert contract["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        assert contract["MASTER_ADDR"] == "127.0.0.1"


@pytest.mark.slow
def test_all_hosts_train_again_after_a_death_and_count_one_generation(tmp_path: Path) -> None:
    actions = {"1.0": "die", "0.1": "done", "1.1": "done"}
    with hosts(tmp_path, "launch.max_restarts=1", actions=actions) as pod:
        assert [host.wait() for host in pod] == [0, 0]
        (died, done) = pod[1].events(ev.WorkerExited)
        assert (died.signal, done.exit_code) == ("SIGKILL", 0)
        (failed,) = pod[0].of_kind(HostFailed)
        assert failed.sentence.startswith("host 1 (")
        assert failed.error == "SIGKILL"
        assert [failure.host_index for failure in pod[1].of_kind(HostFailed)] == [1]
        for host in pod:
            opened = [event.generation for event in host.journal() if isinstance(event, ev.JournalOpened)]
            assert opened == [0, 1]
        again = pod[0].events(ev.WorkerStarted)[1]
        # Stale addresses of the generation before would cost more than a minute.
        assert again.t - died.t < 50


def test_the_first_failure_is_known_on_every_host_although_all_processes_end(tmp_path: Path) -> None:
    with hosts(tmp_path, EXTERNAL, actions={"1.0": "raise"}) as pod:
        assert [host.wait() for host in pod] == [3, 3]
        (failed,) = pod[0].of_kind(HostFailed)
        assert failed.sentence.startswith("host 1 (")
        assert failed.sentence.endswith(": ValueError: shard 7 is cut short")
        assert (failed.process, failed.code, failed.is_final) == ("worker-1", 3, False)


@pytest.mark.slow
def test_a_refusal_ends_all_hosts_without_a_restart(tmp_path: Path) -> None:
    with hosts(tmp_path, "launch.max_restarts=5", actions={"1.0": "refuse"}) as pod:
        pod[1].wait()
        pod[0].wait()
        assert [len(host.events(ev.WorkerStarted)) for host in pod] == [1, 1]
        (failed,) = pod[0].of_kind(HostFailed)
        assert (failed.code, failed.is_final) == (2, True)


@pytest.mark.slow
def test_a_stop_on_sigterm_is_no_failure_that_restarts_the_hosts(tmp_path: Path) -> None:
    with hosts(tmp_path, "launch.max_restarts=5", actions={"0.0": "deaf", "1.0": "deaf"}) as pod:
        for host in pod:
            host.until(lambda host: host.events(ev.WorkerStarted) and len(host.journal()) > 1)
        for host in pod:
            host.process.send_signal(signal.SIGTERM)
        for host in pod:
            host.wait()
            (exited,) = host.events(ev.WorkerExited)
            assert exited.exit_code == 4
            assert host.of_kind(HostFailed) == []


def test_no_other_process_gets_the_port_of_training_before_that_listens(tmp_path: Path) -> None:
    with hosts(tmp_path, EXTERNAL, actions={"0.0": "load", "1.0": "load"}) as pod:
        pod[0].until(lambda host: host.events(ev.WorkerStarted))
        (started,) = pod[0].events(ev.WorkerStarted)
        training = psutil.Process(started.pid)
        # The kernel shows the environment of a new program a moment after the call that started it has returned.
        pod[0].until(lambda host: "MASTER_PORT" in training.environ())
        port = int(training.environ()["MASTER_PORT"])
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))


STOPPED = "stopped on request before training began, at host {}"


@pytest.mark.slow
def test_a_stop_while_hosts_are_missing_stops_the_others_too(tmp_path: Path) -> None:
    with hosts(tmp_path, num_hosts=3, indices=[0, 1]) as pod:
        port = int(str(read_manifest(pod[0].run_dir).config["launch"]["rdzv_endpoint"]).rpartition(":")[2])
        pod[0].until(lambda host: is_listening(port))
        pod[1].until(lambda host: catches(host.process.pid, signal.SIGTERM))
        pod[1].process.send_signal(signal.SIGTERM)
        assert [host.wait() for host in pod] == [4, 4]
        assert [reason_of(host) for host in pod] == [STOPPED.format(1)] * 2


@pytest.mark.slow
def test_a_stop_after_the_hosts_have_joined_stops_the_others_too(tmp_path: Path) -> None:
    with hosts(tmp_path, "launch.lost_after_s=600", num_hosts=3, indices=[0, 1]) as pod:
        third = run_dir_of(tmp_path / "third", [], config=read_manifest(pod[0].run_dir).config)
        waits = forked.Process(
            "tests.launch.registered",
            [str(third), "2"],
            cwd=Path.cwd(),
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            streams=[0, 1, 2],
        )
        try:
            for host in pod:
                host.until(lambda host: host.events(ev.HostJoined))
            pod[0].process.send_signal(signal.SIGTERM)
            assert [host.wait() for host in pod] == [4, 4]
        finally:
            waits.kill()
            waits.wait(DEADLINE_S)
        assert [reason_of(host) for host in pod] == [STOPPED.format(0)] * 2
        assert [host.of_kind(HostFailed) for host in pod] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ['launch.engine="torchrun"', EXTERNAL])
def test_a_stop_while_the_training_process_loads_is_no_failure_of_any_host(tmp_path: Path, engine: str) -> None:
    with hosts(tmp_path, engine, actions={"0.0": "load", "1.0": "load"}) as pod:
        for host in pod:
            host.until(lambda host: host.events(ev.WorkerStarted))
        pod[1].process.send_signal(signal.SIGTERM)
        for host in pod:
            host.wait()
            assert reason_of(host) == STOPPED.format(1)
            assert host.of_kind(HostFailed) == []


@pytest.mark.slow
def test_no_training_process_outlives_its_agent_and_the_other_host_ends(tmp_path: Path) -> None:
    # Longer than this test waits: a launcher that waits for a processor is not lost.
    with hosts(tmp_path, "launch.max_restarts=3", "launch.lost_after_s=2000") as pod:
        for host in pod:
            host.until(lambda host: host.events(ev.WorkerStarted) and len(host.journal()) > 1)
        (started,) = pod[1].events(ev.WorkerStarted)
        pod[1].process.kill()
        pod[1].wait()
        deadline = time.monotonic() + DEADLINE_S
        while pids_alive([started.pid]) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert pids_alive([started.pid]) == []
        assert pod[0].wait() != 0
        (failed,) = pod[0].of_kind(HostFailed)
        assert (failed.host_index, failed.error, failed.is_final) == (1, "HostLost", True)


@pytest.mark.slow
def test_host_0_serves_more_hosts_than_its_soft_limit_of_open_files_allows(tmp_path: Path) -> None:
    # With four connections to each of the two others, it has 35 files.
    limited = ["sh", "-c", 'ulimit -S -n 30; exec "$@"', "sh"]
    actions = {f"{index}.0": "done" for index in range(3)}
    with hosts(tmp_path, actions=actions, num_hosts=3, prefixes=[limited, None, None]) as pod:
        assert [host.wait() for host in pod] == [0, 0, 0]


def test_a_host_that_is_missing_is_named(tmp_path: Path) -> None:
    with hosts(tmp_path, "launch.join_timeout_s=20", num_hosts=4, indices=[0, 1, 3]) as pod:
        assert [host.wait() for host in pod] == [7, 7, 7]
        for host in pod:
            assert reason_of(host).startswith("3 of 4 hosts joined; missing: host 2; gave up after 20 s")


def test_another_program_at_the_endpoint_is_reported_in_one_sentence(tmp_path: Path) -> None:
    def answer(server: socket.socket) -> None:
        while True:
            try:
                with server.accept()[0] as connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        changes = [f"launch.rdzv_endpoint={where}", "launch.lost_after_s=1"]
        # A process that imports torch itself, since messages are turned off by then.
        with hosts(tmp_path, indices=[1], per_host={0: changes}, prefixes=[["env"]]) as (host,):
            assert host.wait() == 7
            assert reason_of(host).startswith(f"what answers at {where} is not host 0 of a run (")
            assert reason_of(host).endswith("check --rdzv-endpoint, and whether another program uses the port")
            lines = host.output.splitlines()
            # Without the calls in C++ that failed.
            assert [line for line in lines if not line.startswith("{")] == [reason_of(host)]
        server.shutdown(socket.SHUT_RDWR)


def test_hosts_of_different_configurations_are_refused_with_both_values(tmp_path: Path) -> None:
    with hosts(tmp_path, per_host={1: ["optim.lr=0.5"]}) as pod:
        assert [host.wait() for host in pod] == [7, 2]
        for host in pod:
            assert "optim.lr is 0.5 on host 1" in reason_of(host)
            assert "and 0.001 on host 0" in reason_of(host)


@pytest.mark.slow
def test_two_hosts_with_one_index_and_runs_of_different_names_are_refused(tmp_path: Path) -> None:
    # Of three hosts, so that those that belong together keep waiting.
    with hosts(tmp_path, num_hosts=3, indices=[0, 1, 1, 2], names={3: "other"}) as pod:
        assert pod[3].wait() == 2
        assert "runs 'pod', but this host was started for 'other'" in reason_of(pod[3])
        deadline = time.monotonic() + DEADLINE_S
        while not (refused := [host for host in pod[1:3] if host.process.poll() is not None]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert refused[0].wait() == 2
        assert "host 1 has already joined from" in reason_of(refused[0])
        assert not pod[0].of_kind(LaunchFailed)


def test_missing_hosts_are_reported_while_a_host_waits_and_a_clock_that_is_ahead_is_measured(tmp_path: Path) -> None:
    changes = ["launch.nnodes=3", "launch.rdzv_endpoint=127.0.0.1:1", "launch.join_timeout_s=150"]
    done = forked.run("tests.launch.checks", str(run_dir_of(tmp_path, changes)), env={"PYTHONPATH": str(Path.cwd())})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    offset_s, error_s = found["offset"]
    assert abs(offset_s - 90) <= error_s < 10
    awaited = [event for event in found["events"] if event["k"] == "HostsAwaited"]
    assert (awaited[0]["num_hosts"], awaited[0]["joined"], awaited[0]["missing"]) == (3, [0], [1, 2])
    # Each is a line of the log that names them.
    assert [round(event["waited_s"]) for event in awaited] == [60, 120]
    assert not [event for event in found["events"] if event["k"] == "WarningRaised"]
    refused = "host 0 does not answer at 127.0.0.1:1 (Connection refused); waiting for {} s"
    assert found["unreachable"] == [refused.format(seconds) for seconds in (60, 120)]
    assert found["reason"].endswith("gave up after 150 s (launch.join_timeout_s)")
    # A host whose own name means its loopback device is reached by the others.
    assert (found["bound"], found["known_as"]) == ("0.0.0.0", "pod-0")
