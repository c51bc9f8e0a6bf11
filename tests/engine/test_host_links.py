"""A host that is cut off is noticed within seconds, and one that is merely busy is not taken for lost.

The hosts are network namespaces, each with an address of its own, joined by a virtual cable.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.parallel.host_links import Address, connect_all
from tests.deadline import DEADLINE_S

ADDRESSES = ("10.213.77.1", "10.213.77.2")
TIMEOUT_S = 2.0


def ip(*words: str) -> None:
    """Runs `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Two namespaces joined by a cable."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    names = [f"tputui-{os.getpid()}-{host}" for host in (0, 1)]
    cables = [f"tp{os.getpid() % 100_000}h{host}" for host in (0, 1)]
    made: list[str] = []
    try:
        for name in names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
            made.append(name)
        ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        for name, cable, address in zip(names, cables, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
        yield names
    finally:
        for name in made:
            ip("netns", "del", name)


def test_host_that_does_not_accept_in_time_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as busy, socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", busy.getsockname()[1], "token")
        # Nothing accepts, so the queue is full.
        waiting = [socket.create_connection(busy.getsockname()) for _ in range(1)]
        with pytest.raises(TimeoutError, match=r"^host 0$"):
            connect_all(1, listener, "token", [address, address], time.monotonic() + 0.2)
        for link in waiting:
            link.close()


def start(namespace: str, host: int) -> subprocess.Popen[str]:
    """Starts one host."""
    command = [sys.executable, "-P", "-m", "tests.engine.linkcheck", str(host), *ADDRESSES, str(TIMEOUT_S)]
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def said(process: subprocess.Popen[str], within_s: float = DEADLINE_S) -> str | None:
    """The next line that a host prints; None if it prints none in that time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], within_s)
    return process.stdout.readline().strip() if ready else None


@pytest.mark.slow
def test_cut_link_is_noticed_by_both_hosts_and_a_stopped_process_is_not(namespaces: list[str]) -> None:
    hosts = [start(name, host) for host, name in enumerate(namespaces)]
    try:
        assert [said(host) for host in hosts] == ["listening", "listening"]
        for host in hosts:
            assert host.stdin is not None
            host.stdin.write("\n")
            host.stdin.flush()
        assert [said(host) for host in hosts] == ["linked", "linked"]
        # As a process that holds the interpreter's lock for long: its kernel still answers.
        hosts[1].send_signal(signal.SIGSTOP)
        assert said(hosts[0], 2 * TIMEOUT_S) is None
        hosts[1].send_signal(signal.SIGCONT)
        cable = f"tp{os.getpid() % 100_000}h0"
        ip("-n", namespaces[0], "link", "set", cable, "down")
        for number, host in enumerate(hosts):
            line = said(host, 4 * TIMEOUT_S)
            assert line is not None, f"host {number} noticed nothing"
            other = 1 - number
            sentence = f"host {other} ({ADDRESSES[other]}) no longer answers: no answer for {TIMEOUT_S:g} s"
            assert line.partition(" ")[2] == sentence
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
