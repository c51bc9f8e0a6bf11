"""The place of this host in a cluster, from the environment variables that the cluster gives to every process.

A cluster starts the same command on every host. Pure: the environment is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class MissingVariable(ValueError):
    """The environment names a cluster, but a variable is missing or cannot be used; the text names it."""


class ClusterHost(NamedTuple):
    """This host among the hosts that a cluster started a command on."""

    cluster: str
    """What started the hosts: `SLURM`, `TPU slice` or `torchrun`."""
    host_index: int
    """Index of this host, from 0."""
    num_hosts: int
    """Number of hosts."""
    count_variable: str
    """The variable with the number of hosts."""
    coordinator: str
    """Name or address of host 0."""
    port: int | None = None
    """A free port of host 0, if the cluster has one; None for the default."""
    job: str | None = None
    """Name of the job, the same on every host and in every attempt; None if the cluster has none."""
    restarts: bool = False
    """Whether what started the hosts also restarts them, so that tputui does not."""
    retries: bool = False
    """Whether the cluster starts the job again after any exit code but 0."""
    attempt: int = 0
    """How often the cluster has started this job before."""
    may_undercount: bool = False
    """Whether `attempt` may be too low, and differ between hosts: each agent of torchrun counts the failures of its own
    process only."""


def find(environ: Mapping[str, str], *, contract: bool = False) -> ClusterHost | None:
    """The place of this host; None outside of a cluster, or on a single host.

    `contract` also accepts `RANK`, `WORLD_SIZE` and `MASTER_ADDR` of any launcher that sets them. Raises
    `MissingVariable`.
    """
    if environ.get("TORCHELASTIC_RUN_ID"):
        host = _by_rank(environ, "torchrun", environ["TORCHELASTIC_RUN_ID"])
    elif environ.get("SLURM_STEP_ID") and environ.get("SLURM_STEP_NUM_NODES", "1") != "1":
        host = _of_slurm(environ)
    elif environ.get("TPU_WORKER_ID", "0") not in ("", "0") or environ.get("TPU_WORKER_HOSTNAMES", "").count(","):
        # A TPU VM that is a host alone also has the id 0, and not always the names.
        host = _of_slice(environ)
    elif contract and (environ.get("RANK") or environ.get("WORLD_SIZE")):
        host = _by_rank(environ, "the launcher of the ranks", None)
    else:
        return None
    return host if host.num_hosts > 1 else None


NAMING = ("SLURM_STEP_ID", "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE")
"""Variables of which a cluster sets one or more on each host."""


def is_named(environ: Mapping[str, str]) -> bool:
    """Whether the environment is that of a cluster, also of one host."""
    return any(environ.get(name) for name in NAMING)


def known_variables() -> str:
    """The variables that name the index of a host, for an error message."""
    return "SLURM_NODEID (srun), TPU_WORKER_ID (a TPU slice, GKE) or RANK (torchrun, Ray)"


def _of_slurm(environ: Mapping[str, str]) -> ClusterHost:
    num_hosts = _number(environ, "SLURM_STEP_NUM_NODES", "SLURM")
    tasks = _number(environ, "SLURM_STEP_NUM_TASKS", "SLURM", num_hosts)
    if tasks != num_hosts:
        raise MissingVariable(
            f"SLURM_STEP_NUM_TASKS is {tasks} on {num_hosts} nodes, but a run needs one task per node: "
            "srun --ntasks-per-node=1"
        )
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    if not nodes:
        raise MissingVariable("SLURM started this command, but SLURM_STEP_NODELIST is not set")
    job = environ.get("SLURM_JOB_ID", "")
    return ClusterHost(
        "SLURM",
        _index(environ, "SLURM_NODEID", "SLURM", num_hosts),
        num_hosts,
        "SLURM_STEP_NUM_NODES",
        first_node(nodes),
        job=_job(f"slurm-{job}.{environ['SLURM_STEP_ID']}" if job else None),
        # A job that was requeued keeps its number.
        attempt=_number(environ, "SLURM_RESTART_COUNT", "SLURM", 0),
    )


def _of_slice(environ: Mapping[str, str]) -> ClusterHost:
    cluster = "a TPU slice"
    names = [name.strip() for name in environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if name.strip()]
    if not names:
        raise MissingVariable(
            f"TPU_WORKER_ID is {environ.get('TPU_WORKER_ID')}, but TPU_WORKER_HOSTNAMES is not set: the names of all "
            "hosts of the slice, separated by commas"
        )
    index = 0 if len(names) == 1 else _index(environ, "TPU_WORKER_ID", cluster, len(names))
    # Of several job indices of a JobSet, each slice trains a run of its own.
    slice_index = environ.get("JOB_INDEX") or environ.get("MEGASCALE_SLICE_ID")
    name = environ.get("JOBSET_NAME")
    if name and slice_index and slice_index != "0":
        name = f"{name}-slice-{slice_index}"
    attempt = _number(environ, "JOBSET_RESTART_ATTEMPT", cluster, 0)
    return ClusterHost(
        "TPU slice",
        index,
        len(names),
        "TPU_WORKER_HOSTNAMES",
        names[0],
        job=_job(name),
        retries=bool(environ.get("JOBSET_RESTART_ATTEMPT")),
        attempt=attempt,
    )


def _by_rank(environ: Mapping[str, str], cluster: str, job: str | None) -> ClusterHost:
    num_hosts = _number(environ, "WORLD_SIZE", cluster)
    if _number(environ, "LOCAL_WORLD_SIZE", cluster, 1) != 1:
        raise MissingVariable(
            f"LOCAL_WORLD_SIZE is {environ['LOCAL_WORLD_SIZE']}, but a run needs one process per host: "
            "torchrun --nproc-per-node=1"
        )
    index = _index(environ, "RANK", cluster, num_hosts)
    coordinator = environ.get("MASTER_ADDR", "")
    if not coordinator:
        raise MissingVariable(f"{cluster} started {num_hosts} processes, but MASTER_ADDR is not set")
    # The agent of an outer torchrun, or the user's own process group, may use the port itself.
    port = _number(environ, "MASTER_PORT", cluster, 0) + 1
    restarts = cluster == "torchrun"
    return ClusterHost(
        cluster,
        index,
        num_hosts,
        "WORLD_SIZE",
        coordinator,
        port if 1 < port <= 65_535 else None,
        # torchrun names a run without an id "none".
        _job(job if job != "none" else None),
        restarts=restarts,
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT", cluster, 0) if restarts else 0,
        may_undercount=restarts and _number(environ, "TORCHELASTIC_MAX_RESTARTS", cluster, 0) > 0,
    )


def first_node(nodes: str) -> str:
    """The first name of a node list of SLURM: `tpu-03` for `tpu-[03-07,9],gpu1`. Raises `MissingVariable`."""
    match = _FIRST_NODE.match(nodes)
    if match is None:
        raise MissingVariable(f"SLURM_STEP_NODELIST is {nodes[:80]!r}, which is not a list of nodes")
    name, bracketed, after = match.groups()
    return f"{name}{bracketed or ''}{after or ''}"


_FIRST_NODE = re.compile(r"([A-Za-z0-9._-]+)(?:\[([0-9]+)[0-9,-]*\]([A-Za-z0-9._-]*))?(?:,|\Z)")


def _job(name: str | None) -> str | None:
    """The name of a job as the name of a run; None if it has no letter or digit."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", name or "").lstrip("._-")[:128]
    return text or None


def _index(environ: Mapping[str, str], name: str, cluster: str, num_hosts: int) -> int:
    index = _number(environ, name, cluster)
    if index >= num_hosts:
        raise MissingVariable(f"{name} is {index}, but there are only {num_hosts} hosts")
    return index


def _number(environ: Mapping[str, str], name: str, cluster: str, default: int | None = None) -> int:
    text = environ.get(name, "").strip()
    if not text:
        if default is not None:
            return default
        raise MissingVariable(f"{cluster} started this command, but {name} is not set")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise MissingVariable(f"{name} is {text[:40]!r}, which is not a number")
    return int(text)
