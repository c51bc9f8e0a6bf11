"""`HostPlace`: the place of this host among the hosts of a run, from the environment contract of torchrun.

The launcher of each host starts one worker with these variables (`engine/launch/training.py`). Must not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.errors import Unable

PORT_MAX = 65535


class HostPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a host, and where the hosts meet."""

    index: int = 0
    """Index of this host, from 0; the same after a restart. Host 0 serves the store at `master_addr`."""
    num_hosts: int = 1
    """Number of hosts; each has one leading process."""
    master_addr: str = ""
    """Address of host 0; empty if there is one host."""
    master_port: int = 0
    """Port of host 0 for the process group of this generation; no other process uses it."""
    generation: int = 0
    """How often all workers were restarted before."""

    @property
    def is_first(self) -> bool:
        return self.index == 0


def read_place(environ: Mapping[str, str], index: int, num_hosts: int) -> HostPlace:
    """The place of host `index` of `num_hosts`, from the variables that its launcher set.

    Raises `Unable` with the name of a variable that is missing or contradicts the arguments.
    """
    generation = _number(environ, "TORCHELASTIC_RESTART_COUNT", 0)
    if num_hosts == 1:
        return HostPlace(index=index, num_hosts=1, generation=generation)
    rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    if world != num_hosts:
        raise Unable(f"WORLD_SIZE is {world}, but the run has {num_hosts} hosts with one process each")
    if rank != index:
        raise Unable(f"RANK is {rank}, but this is host {index} of the run")
    address, port = environ.get("MASTER_ADDR", ""), _number(environ, "MASTER_PORT")
    if not address:
        raise Unable("MASTER_ADDR is not set: the address of host 0")
    if not 0 < port <= PORT_MAX:
        raise Unable(f"MASTER_PORT is {port}, which is not a port")
    return HostPlace(index=index, num_hosts=num_hosts, master_addr=address, master_port=port, generation=generation)


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not text:
        raise Unable(f"{name} is not set: the launcher of the hosts sets it")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Unable(f"{name} is {text[:40]!r}, which is not a number")
    return int(text)
