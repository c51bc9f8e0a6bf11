"""A host of which all processes are killed: the others know at once, by the connections of its launcher."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from pathlib import Path

import psutil
import pytest

from tests.launch.hosts import Host, hosts
from tputui.telemetry import events as ev
from tputui.telemetry.launch_messages import HostFailed
from tputui.telemetry.rundir import read_manifest

EXTERNAL = 'launch.engine="external"'
SILENCE = "launch.lost_after_s=600"
"""A host that is silent is named after the patience of the tests."""
DEAF = {f"{index}.0": "deaf" for index in range(3)}
"""The training processes do not notice that another one has ended, as while they compile."""


def until_all_train(pod: list[Host]) -> None:
    """Waits until each training process is connected to the others."""
    for host in pod:
        host.until(lambda host: any(isinstance(event, ev.LogWritten) for event in host.journal()))


def kill(host: Host) -> None:
    """Kills all processes of a host: its launcher first, which would report the end of its training process."""
    for pid in (host.process.pid, host.events(ev.WorkerStarted)[-1].pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_lost(failed: HostFailed, index: int) -> None:
    """The failure is the loss of this host, and was not found by its silence."""
    assert (failed.host_index, failed.error, failed.is_final) == (index, "HostLost", True)
    assert failed.message == "its launcher has ended without a report"


@pytest.mark.parametrize(
    ("engine", "killed"),
    [
        (EXTERNAL, 1),
        (EXTERNAL, 0),
        pytest.param('launch.engine="torchrun"', 1, marks=pytest.mark.slow),
        pytest.param('launch.engine="torchrun"', 0, marks=pytest.mark.slow),
    ],
)
def test_a_killed_host_is_named_while_the_others_compile(tmp_path: Path, engine: str, killed: int) -> None:
    with hosts(tmp_path, engine, SILENCE, actions=DEAF, num_hosts=3) as pod:
        until_all_train(pod)
        kill(pod[killed])
        for host in pod:
            if host is not pod[killed]:
                assert host.wait() == 3
                (failed,) = host.of_kind(HostFailed)
                assert_lost(failed, killed)


@pytest.mark.slow
def test_a_launcher_that_ends_by_itself_is_not_lost(tmp_path: Path) -> None:
    with hosts(tmp_path, EXTERNAL, SILENCE, actions={**DEAF, "1.0": "done"}, num_hosts=3) as pod:
        until_all_train(pod)
        assert pod[1].wait() == 0
        # What is found first is published; so host 1 was not.
        kill(pod[2])
        assert pod[0].wait() == 3
        (failed,) = pod[0].of_kind(HostFailed)
        assert_lost(failed, 2)


@pytest.mark.slow
def test_other_programs_at_the_port_of_the_launcher_are_ignored(tmp_path: Path) -> None:
    with hosts(tmp_path, EXTERNAL, SILENCE, actions=DEAF, num_hosts=3) as pod:
        until_all_train(pod)
        (port,) = launcher_ports(pod[0])
        for words in (b"", b"1\n", b"1", b"0\n", b"\x16\x03\x01" * 9, b"GET / HTTP/1.1\r\n\r\n" * 99, b"\n" * 64):
            for linger in (struct.pack("ii", 0, 0), struct.pack("ii", 1, 0)):
                with socket.create_connection(("127.0.0.1", port)) as other:
                    # With the second value, `close` resets the connection.
                    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    other.sendall(words)
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        kill(pod[2])
        assert pod[0].wait() == 3
        (failed,) = pod[0].of_kind(HostFailed)
        assert_lost(failed, 2)
        for connection in held:
            connection.close()


def launcher_ports(host: Host) -> list[int]:
    """Where the launcher of host 0 listens besides the store."""
    found = psutil.Process(host.process.pid).net_connections("tcp")
    listening = {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
    endpoint = str(read_manifest(host.run_dir).config["launch"]["rdzv_endpoint"])
    return sorted(listening - {int(endpoint.rpartition(":")[2])})


@pytest.mark.slow
def test_a_host_that_is_killed_before_a_restart_is_named(tmp_path: Path) -> None:
    """It no longer comes to the rendezvous of the next generation."""
    with hosts(tmp_path, SILENCE, "launch.max_restarts=3", num_hosts=3) as pod:
        until_all_train(pod)
        # No generation begins meanwhile.
        os.kill(pod[2].process.pid, signal.SIGSTOP)
        os.kill(pod[1].events(ev.WorkerStarted)[0].pid, signal.SIGKILL)
        pod[0].until(lambda host: host.of_kind(HostFailed))
        pod[1].process.kill()
        pod[0].until(lambda host: len(host.of_kind(HostFailed)) == 2)
        os.kill(pod[2].process.pid, signal.SIGCONT)
        assert [pod[index].wait() for index in (0, 2)] == [3, 3]
        first, second = pod[0].of_kind(HostFailed)
        assert (first.process, first.error, first.is_final) == ("worker-1", "SIGKILL", False)
        assert_lost(second, 1)
