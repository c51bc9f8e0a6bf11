"""Exchanges between hosts as threads of one process, over sockets of the loopback device; prints results as JSON."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from engine.errors import PeerLost, Unable
from engine.host_place import HostPlace
from engine.parallel.group import Group, RankSocket
from engine.parallel.host_group import HostGroup
from tests.ports import reserved_port
from tputui.telemetry.requests import Request

NUM_HOSTS = 3
RANKS_EACH = 2
JOIN_TIMEOUT_S = 10.0
"""Seconds in which the hosts of a case meet, also on a busy machine."""


def on_hosts(work: Callable[[HostPlace], Any], num_hosts: int = NUM_HOSTS, absent: int | None = None) -> list[Any]:
    """What `work` returns on each host, all at one time; the text of `PeerLost` or `Unable` if it raises that."""
    port = reserved_port()
    results: list[Any] = [None] * num_hosts

    def run(index: int) -> None:
        try:
            results[index] = work(
                HostPlace(index=index, num_hosts=num_hosts, master_addr="127.0.0.1", master_port=port)
            )
        except (PeerLost, Unable) as error:
            results[index] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=run, args=(index,)) for index in range(num_hosts) if index != absent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def ranks_of(place: HostPlace, work: Callable[[Group, int], Any]) -> list[Any]:
    """What `work` returns in each rank of a host."""
    hosts = HostGroup(place)
    pairs = [socket.socketpair() for _ in range(1, RANKS_EACH)]
    first = place.index * RANKS_EACH
    results: list[Any] = [None] * RANKS_EACH

    def run(offset: int) -> None:
        links = [pairs[offset - 1][1]] if offset else [ours for ours, _ in pairs]
        group = Group(
            RankSocket(
                first + offset,
                RANKS_EACH * place.num_hosts,
                links,
                num_hosts=place.num_hosts,
                hosts=None if offset else hosts,
            )
        )
        results[offset] = work(group, first + offset)

    threads = [threading.Thread(target=run, args=(offset,)) for offset in range(RANKS_EACH)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hosts.close("done", "")
    return results


def exchanged(group: Group, rank: int) -> dict[str, Any]:
    """The result of each collective in one rank."""
    values = torch.linspace(rank, rank + 1, 10_001) / 3
    mean, byte = group.mean(values, 1 << rank)
    gathered = group.gather(np.array([[rank, 10 * rank]], dtype=np.int64), 0)
    wide = group.gather(np.array([[rank], [10 * rank]], dtype=np.int64), 1)
    return {
        "mean": mean.numpy().tobytes().hex()[:4000],
        "error": float((mean - (torch.linspace(0, 1, 10_001) + 2.5) / 3).abs().max()),
        "byte": byte,
        "combined": group.combine(1 << rank),
        "gathered": gathered.tolist(),
        "wide": wide.tolist(),
        "flags": group.gather(np.array([rank % 2 == 0]), 0).tolist(),
        "broadcast": [
            group.broadcast(text.encode()).decode() for text in (f"from {rank}", "", "x" * 70_000 + f"{rank}")
        ],
        "collected": [payload.decode() for payload in group.collect(b"h" * rank)],
    }


def late(place: HostPlace) -> Any:
    """A host that is late, as by a compilation, is waited for: much longer than a lost host would be."""
    hosts = HostGroup(place, link_timeout_s=1.0, join_timeout_s=JOIN_TIMEOUT_S)
    if place.index == 1:
        time.sleep(JOIN_TIMEOUT_S + 0.5)
    waited = hosts.combine(1 << place.index)
    hosts.close("done", "")
    return waited


def gone(place: HostPlace) -> Any:
    """Host 1 fails while the others wait for it; host 2 has learnt of it only from its own wait."""
    hosts = HostGroup(place)
    if place.index == 1:
        hosts.close("failed", "rank 3 (core 3): ValueError: boom")
        return "failed"
    began = time.monotonic()
    try:
        hosts.combine(0)
    except PeerLost as error:
        hosts.close("failed", str(error))
        return [str(error), time.monotonic() - began]
    return "not noticed"


def relayed(place: HostPlace) -> Any:
    """A request that one host passes on."""
    hosts = HostGroup(place)
    if place.index == 1:
        hosts.links.pass_on(Request(id="1", kind="stop_now", t=1.0, by="test"))
        hosts.close("stopped", "ended at once")
        return []
    requests: list[Request] = []
    while not requests:
        requests = hosts.links.passed()
    lost = hosts.links.lost()
    hosts.close("done", "")
    return [[request.id for request in requests], lost is None]


def forgotten(place: HostPlace) -> Any:
    """One host never comes."""
    return HostGroup(place, join_timeout_s=JOIN_TIMEOUT_S)


def main() -> None:
    """Runs every case. Those that wait for a timeout do so at one time."""
    with ThreadPoolExecutor() as threads:
        waiting = {
            "late": threads.submit(on_hosts, late),
            "forgotten": threads.submit(on_hosts, forgotten, absent=2),
            "no_first": threads.submit(on_hosts, forgotten, 2, absent=0),
        }
        results = {
            "exchanged": on_hosts(lambda place: ranks_of(place, exchanged)),
            "gone": on_hosts(gone),
            "relayed": on_hosts(relayed, 2),
        } | {name: future.result() for name, future in waiting.items()}
    sys.stdout.write("\n" + json.dumps(results) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
