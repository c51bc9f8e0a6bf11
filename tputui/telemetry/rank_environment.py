"""The rank of a process of a distributed program, read from its environment variables. Opens no files.

Launchers such as torchrun, PJRT, Slurm, MPI and TPU pods number the processes they start in environment variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

RANK_MAX = 1_000_000
"""Larger numbers are not ranks."""
GLOBAL_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
"""Variables with the index of a process over all hosts; the first one that contains a number counts."""
LOCAL_RANK = ("LOCAL_RANK", "PJRT_LOCAL_PROCESS_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""Variables with the index of a process on its host."""
WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
"""Variables with the number of processes over all hosts."""
LOCAL_COUNT = ("LOCAL_WORLD_SIZE", "PJRT_LOCAL_PROCESS_COUNT")
"""Variables with the number of processes on each host."""
HOST_INDEX, HOST_NAMES = "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"
"""Index of the host in its TPU slice, and the names of all its hosts, separated by commas."""
RUN_HOST_INDEX, RUN_NUM_HOSTS = "TPUTUI_HOST_INDEX", "TPUTUI_NUM_HOSTS"
"""Index of the host, and the number of hosts, of the run whose command started this process."""
NODE = (RUN_HOST_INDEX, "GROUP_RANK", "SLURM_NODEID", HOST_INDEX)
"""Variables with the index of the host of a process."""
NUM_NODES = (RUN_NUM_HOSTS, "GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
"""Variables with the number of hosts."""
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""How often torchrun has restarted the processes of the program."""
_DIGITS_MAX = 7


class RankInfo(NamedTuple):
    """What the environment of a process says about its rank; a number is None if it is not known."""

    rank: int | None = None
    """Index over all hosts, from 0."""
    local_rank: int | None = None
    """Index on this host, from 0."""
    world_size: int | None = None
    """Number of processes over all hosts."""
    sources: tuple[str, ...] = ()
    """Names of the variables that these numbers come from."""


def rank_info(environ: Mapping[str, str]) -> RankInfo:
    """The rank of the process with this environment.

    A variable without a number from 0 to `RANK_MAX` is ignored. PJRT numbers the processes of each host, and TPU slices
    and runs number their hosts, so without a variable for the global rank these two give it. The number of the host
    alone means one process per host.
    """
    used: list[str] = []

    def read(names: Sequence[str]) -> int | None:
        for name in names:
            number = _number(environ.get(name, ""))
            if number is not None:
                used.append(name)
                return number
        return None

    rank, local, world = read(GLOBAL_RANK), read(LOCAL_RANK), read(WORLD_SIZE)
    if rank is None or (world is None and local is not None):
        host, count = read([RUN_HOST_INDEX, HOST_INDEX]), read(LOCAL_COUNT)
        if rank is None:
            rank = _global_rank(host, count, local)
        num_hosts = read([RUN_NUM_HOSTS]) or sum(1 for name in environ.get(HOST_NAMES, "").split(",") if name.strip())
        if world is None and rank is not None and (num_hosts or not host):
            world = (num_hosts or 1) * (count or 1) if count or local is None else None
            used += [HOST_NAMES] if num_hosts and RUN_NUM_HOSTS not in used else []
    if world is not None and rank is not None and rank >= world:
        world = None
    if rank is None and local is None and world is None:
        return RankInfo()
    return RankInfo(rank, local, world, tuple(used))


def host_index(environ: Mapping[str, str]) -> int:
    """Index of the host of the process with this environment; 0 if nothing names it."""
    for name in NODE:
        number = _number(environ.get(name, ""))
        if number is not None:
            return number
    info, count = rank_info(environ), _number(environ.get(LOCAL_COUNT[0], ""))
    return info.rank // count if info.rank is not None and count else 0


def num_hosts(environ: Mapping[str, str]) -> int:
    """Number of hosts of the program of the process with this environment; 1 if nothing says that it has more."""
    for name in NUM_NODES:
        number = _number(environ.get(name, ""))
        if number is not None:
            return max(1, number)
    if names := [name for name in environ.get(HOST_NAMES, "").split(",") if name.strip()]:
        return len(names)
    info, count = rank_info(environ), _number(environ.get(LOCAL_COUNT[0], ""))
    return max(1, info.world_size // count) if info.world_size is not None and count else 1


def restarts(environ: Mapping[str, str]) -> int:
    """How often the program of the process with this environment was restarted."""
    return _number(environ.get(RESTARTS, "")) or 0


def is_of_torchrun(environ: Mapping[str, str]) -> bool:
    """Whether an agent of torchrun started the process with this environment."""
    return RESTARTS in environ


def environ_of(content: bytes) -> dict[str, str]:
    """The variables in the content of `/proc/PID/environ`."""
    variables: dict[str, str] = {}
    for entry in content.split(b"\0"):
        name, mark, value = entry.partition(b"=")
        if mark and name:
            variables.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return variables


def _global_rank(host: int | None, count: int | None, local: int | None) -> int | None:
    if local is None:
        return host
    if not host:
        return local
    return host * count + local if count else None


def _number(text: str) -> int | None:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX) or int(text) > RANK_MAX:
        return None
    return int(text)
