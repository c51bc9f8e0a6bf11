"""Hosts as network namespaces that are cut off or powered off, without a reset of any connection."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.hosts import Host, hosts, pids_alive
from tputui.telemetry import events as ev
from tputui.telemetry.launch_messages import HostFailed

LOST_AFTER_S = 3
ENDED_AFTER_S = 120
"""Far less than the time after which TCP or a timeout of torch gives up, on a machine that is ten times slower too."""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def namespaces(num_hosts: int) -> Iterator[list[str]]:
    """Namespaces with the addresses 10.77.0.1, 10.77.0.2, ..., connected by a switch."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    names = [f"tputui-{os.getpid()}-{index}" for index in range(num_hosts)]
    switch = f"tputui-{os.getpid()}-switch"
    try:
        try:
            for name in (*names, switch):
                _ip("netns", "add", name)
            _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
            _ip("-n", switch, "link", "set", "bridge", "up")
            for index, name in enumerate(names):
                ends = ("peer", "name", f"host{index}", "netns", switch)
                _ip("link", "add", "veth0", "netns", name, "type", "veth", *ends)
                _ip("-n", switch, "link", "set", f"host{index}", "master", "bridge", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
        for index, name in enumerate(names):
            _ip("-n", name, "address", "add", f"10.77.0.{index + 1}/24", "dev", "veth0")
            _ip("-n", name, "link", "set", "veth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in (*names, switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def power_off(host: Host, namespace: str) -> None:
    """Cuts the link of a host, then kills all of its processes, so that none of them can end a connection."""
    pids = [host.process.pid, *(started.pid for started in host.events(ev.WorkerStarted))]
    _ip("-n", namespace, "link", "set", "veth0", "down")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_host_that_lost_its_power_is_named_by_all_others(tmp_path: Path, killed: int) -> None:
    """The first one, which serves the store where the hosts meet, or another one. The engine is torchrun."""
    changes = [f"launch.lost_after_s={LOST_AFTER_S}", "launch.max_restarts=3"]
    with namespaces(3) as names:
        prefixes = [["ip", "netns", "exec", name] for name in names]
        deaf = {f"{index}.0": "deaf" for index in range(3)}
        with hosts(tmp_path, *changes, actions=deaf, num_hosts=3, prefixes=prefixes, address="10.77.0.1") as pod:
            for host in pod:
                host.until(lambda host: host.events(ev.WorkerStarted) and len(host.journal()) > 1)
            others = [host for host in pod if host.index != killed]
            pids = [host.events(ev.WorkerStarted)[0].pid for host in pod]
            power_off(pod[killed], names[killed])
            since = time.monotonic()
            assert [host.wait() for host in others] == [3, 3]
            assert time.monotonic() - since < ENDED_AFTER_S
            assert pids_alive(pids) == []
            for host in others:
                (failed,) = host.of_kind(HostFailed)
                assert (failed.host_index, failed.error, failed.is_final) == (killed, "HostLost", True)
                assert failed.sentence.startswith(f"host {killed} (")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["external", "torchrun"])
def test_both_sides_of_a_dead_link_end_within_seconds(tmp_path: Path, engine: str) -> None:
    changes = [f'launch.engine="{engine}"', f"launch.lost_after_s={LOST_AFTER_S}"]
    changes += ["launch.max_restarts=3"] if engine == "torchrun" else []
    with namespaces(2) as names:
        prefixes = [["ip", "netns", "exec", name] for name in names]
        # They do not notice by themselves, like a process that compiles.
        deaf = {"0.0": "deaf", "1.0": "deaf"}
        with hosts(tmp_path, *changes, actions=deaf, prefixes=prefixes, address="10.77.0.1") as pod:
            for host in pod:
                host.until(lambda host: host.events(ev.WorkerStarted) and len(host.journal()) > 1)
                (joined,) = host.events(ev.HostJoined)
                assert joined.address == f"10.77.0.{host.index + 1}"
            pids = [host.events(ev.WorkerStarted)[0].pid for host in pod]
            _ip("-n", names[1], "link", "set", "veth0", "down")
            cut = time.monotonic()
            assert [host.wait() for host in pod] == [3, 3]
            assert time.monotonic() - cut < ENDED_AFTER_S
            assert pids_alive(pids) == []
            for host, other in zip(pod, (1, 0), strict=True):
                (failed,) = host.of_kind(HostFailed)
                assert (failed.host_index, failed.error) == (other, "HostLost")
                assert failed.message.startswith("has not answered for ")
