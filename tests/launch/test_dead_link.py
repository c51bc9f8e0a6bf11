"""Two hosts as network namespaces, whose link is cut without a reset of any connection."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.hosts import hosts, pids_alive
from tputui.telemetry import events as ev
from tputui.telemetry.launch_messages import HostFailed

LOST_AFTER_S = 3


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def namespaces() -> Iterator[list[str]]:
    """Two namespaces with the addresses 10.77.0.1 and 10.77.0.2, connected by a link."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    names = [f"tputui-{os.getpid()}-{index}" for index in range(2)]
    try:
        try:
            for name in names:
                _ip("netns", "add", name)
            _ip("link", "add", "veth0", "netns", names[0], "type", "veth", "peer", "name", "veth0", "netns", names[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
        for index, name in enumerate(names):
            _ip("-n", name, "address", "add", f"10.77.0.{index + 1}/24", "dev", "veth0")
            _ip("-n", name, "link", "set", "veth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["external", "torchrun"])
def test_both_sides_of_a_dead_link_end_within_seconds(tmp_path: Path, engine: str) -> None:
    changes = [f'launch.engine="{engine}"', f"launch.lost_after_s={LOST_AFTER_S}"]
    changes += ["launch.max_restarts=3"] if engine == "torchrun" else []
    with namespaces() as names:
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
            # The limit, the time that a process has to end by itself, and polls.
            assert time.monotonic() - cut < LOST_AFTER_S + 5 + 15
            assert pids_alive(pids) == []
            for host, other in zip(pod, (1, 0), strict=True):
                (failed,) = host.of_kind(HostFailed)
                assert (failed.host_index, failed.error) == (other, "HostLost")
                assert failed.message.startswith("has not answered for ")
