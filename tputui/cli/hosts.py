"""A run on several hosts: which of them this is, where they meet, and the directory that they may share.

`tputui run` is started on every host with the same configuration. What differs, and what nobody wrote down, comes from
options or from the environment that a cluster gives.
"""

from __future__ import annotations

import argparse
import re
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tputui import cluster
from tputui.cli.console import UsageError
from tputui.cli.parser import Parser, positive_int
from tputui.config import RDZV_PORT, LaunchConfig
from tputui.config.checks import endpoint_of
from tputui.config_diff import diff
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.telemetry import redaction, requests, rundir
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.rank_environment import RUN_HOST_INDEX

LAST_CHECKPOINT = "last.pt"
SETTLED_S = 60.0
"""How long the supervisor of this host may take after the run has ended on another one. A cluster that started this
command kills what is left when it returns."""
MANIFEST_WAIT_S = 30.0
"""How long a directory that another host has just created may be without its manifest, on a slow file system."""
_POLL_S = 0.2
_DIFFERENCES_MAX = 3
_OF_HOST = re.compile(
    r"(-[\w-]*(?:rank|index|(?:node|host|worker|machine|process)[-_]?id)(?:=|\", \"))\d+(?=\")", re.IGNORECASE
)
"""The number after an option such as `--node-rank`, in a list of words as JSON."""


class LaunchPlace(NamedTuple):
    """This host among those of a run."""

    host_index: int
    launch: LaunchConfig
    """The table `[launch]` with the number of hosts and the endpoint, equal on all hosts."""
    name: str
    """Name of the run, equal on all hosts and in all attempts of a cluster to run it."""
    is_restarted: bool = False
    """Whether what started this command restarts it when it fails."""
    retries: bool = False
    """Whether the cluster starts this command again on all hosts after any exit code but 0."""
    attempt: int = 0
    """How often the cluster has started this command before; each attempt is a run of its own."""
    may_undercount: bool = False
    """Whether `attempt` may be too low on some hosts."""

    @property
    def run(self) -> str:
        return self.run_of(self.attempt)

    def run_of(self, attempt: int) -> str:
        return f"{self.name}-restart-{attempt}" if attempt else self.name


def add_options(parser: Parser) -> None:
    parser.add_option(
        "--nnodes",
        type=positive_int,
        metavar="N",
        help="number of hosts, each started with this command (launch.nnodes)",
    )
    parser.add_option(
        "--host-index",
        type=_index,
        metavar="I",
        help="index of this host, from 0 (default from SLURM, GKE or torchrun)",
    )
    parser.add_option(
        "--rdzv-endpoint",
        type=_endpoint_text,
        metavar="HOST:PORT",
        help="address of host 0, where the hosts meet (launch.rdzv_endpoint)",
    )


def with_options(table: object, args: argparse.Namespace) -> object:
    """The table `[launch]` of a file with the options in place of its keys; unchanged if it is not a table."""
    given = {"nnodes": args.nnodes, "rdzv_endpoint": args.rdzv_endpoint}
    changed = {key: value for key, value in given.items() if value is not None}
    if not changed or not (table is None or isinstance(table, Mapping)):
        return table
    return {**(table or {}), **changed}


def place_of(
    launch: LaunchConfig, args: argparse.Namespace, environ: Mapping[str, str], *, joins: bool = True
) -> LaunchPlace | None:
    """The place of this host; None for a run on one host that nothing restarts.

    `joins`: whether the hosts meet before they train, as those of the engine do. Raises `CommandError`.
    """
    several = launch.num_hosts > 1
    own_host = None
    if launch.engine != "local" and launch.nnodes != 1:
        try:
            own_host = cluster.find(
                environ, contract=launch.engine == "external" or several or args.host_index is not None
            )
        except cluster.MissingVariable as error:
            if args.host_index is None or launch.num_hosts == 1:
                raise UsageError(f"run: {inert(str(error))}") from None
    if own_host is not None and several and own_host.num_hosts != launch.num_hosts and args.host_index is None:
        key = "--nnodes" if args.nnodes is not None else "launch.nnodes"
        message = f"run: {key} is {launch.num_hosts}, but {own_host.cluster} started this command on "
        message += f"{own_host.num_hosts} hosts ({own_host.count_variable})"
        raise UsageError(message)
    num_hosts = launch.num_hosts if several or own_host is None else own_host.num_hosts
    if num_hosts == 1:
        _check_single(launch, args, environ)
        return None
    index = _own_index(launch, args, own_host, num_hosts)
    endpoint = launch.rdzv_endpoint or _endpoint(launch, own_host)
    if endpoint is None and joins:
        raise UsageError("run: --rdzv-endpoint is missing: the address of host 0 as HOST:PORT, the same on all hosts")
    name = args.name or (own_host.job if own_host is not None else None)
    if name is None:
        message = (
            "run: --name is missing: the hosts of a run need one name (SLURM, a JobSet and torchrun --rdzv-id give it)"
        )
        raise UsageError(message)
    engine = launch.engine or ("external" if own_host is not None and own_host.restarts else "torchrun")
    if engine == "external" and launch.max_restarts:
        message = (
            f"run: launch.max_restarts is {launch.max_restarts}, but an outer torchrun restarts this command; set "
        )
        message += "its --max-restarts instead"
        raise UsageError(message)
    resolved = msgspec.structs.replace(launch, engine=engine, nnodes=num_hosts, rdzv_endpoint=endpoint)
    if own_host is None:
        return LaunchPlace(index, resolved, name)
    return LaunchPlace(
        index, resolved, name, own_host.restarts, own_host.retries, own_host.attempt, own_host.may_undercount
    )


def at_attempt(place: LaunchPlace, parent: Path) -> LaunchPlace:
    """The place with the number of the attempt that all hosts agree on: `parent` has a run of each one before."""
    attempt = place.attempt
    while place.may_undercount and _was_started(parent / place.run_of(attempt), place.host_index):
        attempt += 1
    return place._replace(attempt=attempt)


def earlier_checkpoint(place: LaunchPlace, parent: Path) -> Path | None:
    """The last checkpoint of the attempts before this one, from which it resumes; None if none has saved one."""
    runs = (parent / place.run_of(attempt) for attempt in reversed(range(place.attempt)))
    saved = (run_dir / rundir.CHECKPOINTS / LAST_CHECKPOINT for run_dir in runs)
    return next((path.resolve() for path in saved if path.is_file()), None)


def place_of_command(launch: LaunchConfig, args: argparse.Namespace, environ: Mapping[str, str]) -> LaunchPlace | None:
    """The place of this host in a run of a command of the user; only the options and the file make it one of several,
    since a cluster may start commands that have nothing to do with each other. Raises `CommandError`."""
    if launch.num_hosts == 1 and args.host_index is None:
        return None
    return place_of(launch, args, environ, joins=False)


def exit_code(code: ExitCode, place: LaunchPlace | None, stops: Iterable[str | None]) -> ExitCode:
    """The exit code of this command: a stop on request is no failure for a cluster that would start the hosts again,
    unless the cluster itself has ended one by SIGTERM. `stops`: what requested the run to stop, None if that happened
    on another host."""
    if place is None or code != ExitCode.STOPPED:
        return code
    is_wanted = place.is_restarted or (place.retries and requests.BY_SIGTERM not in stops)
    return ExitCode.DONE if is_wanted else code


def _check_single(launch: LaunchConfig, args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Checks that one host is meant. Raises `CommandError`."""
    if args.host_index:
        raise UsageError(f"run: --host-index is {args.host_index}, but --nnodes is missing: the number of hosts")
    if launch.engine == "external" and launch.nnodes is None and not cluster.is_named(environ):
        # Each host would train a run of its own.
        message = 'run: launch.engine is "external", but the environment names no hosts: none of '
        message += f"{', '.join(cluster.NAMING)} is set; give --nnodes, --host-index and --rdzv-endpoint"
        raise UsageError(message)


def _own_index(
    launch: LaunchConfig, args: argparse.Namespace, own_host: cluster.ClusterHost | None, num_hosts: int
) -> int:
    """The index of this host, from the option, the cluster, or its name in `launch.hosts`. Raises `CommandError`."""
    index: int | None = args.host_index
    if index is None and own_host is not None:
        index = own_host.host_index
    if index is None and launch.hosts:
        full = socket.gethostname()
        names = {full, full.partition(".")[0], socket.getfqdn()}
        matching = [number for number, host in enumerate(launch.hosts) if host in names]
        index = matching[0] if len(matching) == 1 else None
    if index is None:
        message = (
            f"run: --host-index is missing: which of the {num_hosts} hosts this is, from 0; the environment has no "
        )
        raise UsageError(message + cluster.known_variables())
    if index >= num_hosts:
        message = f"run: --host-index {index}: the run has {num_hosts} hosts, with indices from 0 to {num_hosts - 1}"
        raise UsageError(message)
    return index


def _endpoint(launch: LaunchConfig, own_host: cluster.ClusterHost | None) -> str | None:
    """Where the hosts meet by default."""
    if launch.hosts:
        return _with_port(launch.hosts[0], RDZV_PORT)
    return _with_port(own_host.coordinator, own_host.port or RDZV_PORT) if own_host is not None else None


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def join_directory(run_dir: Path, manifest: rundir.Manifest, index: int) -> Path:
    """The directory of a run that another host has created, on a file system that the hosts share.

    Raises `CommandError` if it is that of another run, or if this host has its journal in it already.
    """
    deadline = time.monotonic() + MANIFEST_WAIT_S
    while (theirs := rundir.manifest_if_readable(run_dir)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if theirs is None:
        raise UsageError(f"{inert(str(run_dir))} exists, but it is not a run; choose another --name")
    if _was_started(run_dir, index):
        raise UsageError(
            f"host {index} of the run {inert(run_dir.name)} was already started; choose another --name on all hosts"
        )
    ours: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(redaction.masked(manifest.config)))
    rows = [row for row in diff([ours, theirs.config], 0).rows if not _may_differ(row.key, row.values)]
    if rows:
        parts = [f"{row.key} is {row.values[0]} here and {row.values[1]} there" for row in rows[:_DIFFERENCES_MAX]]
        message = (
            f"the run {run_dir.name} was created by {theirs.host} with another configuration: {'; '.join(parts)}; "
        )
        message += "start all hosts with the same one, or choose another --name"
        if any(row.key == "script.command" for row in rows):
            message += f"; a script finds the number of its host in {RUN_HOST_INDEX}"
        raise UsageError(inert(message))
    return run_dir


def _may_differ(key: str, values: Sequence[str]) -> bool:
    """Whether a key may have these values on two hosts: a command of one's own often has the number of its host."""
    if key != "script.command":
        return False
    # `--node-rank 1` and `--node-rank=1`, as JSON.
    return len({_OF_HOST.sub(r"\1", value) for value in values}) == 1


def _was_started(run_dir: Path, index: int) -> bool:
    """Whether a host has its journal in the directory of a run."""
    journal = run_dir / f"supervisor-{index}{SUFFIX}"
    return journal.exists() or journal.with_name(journal.name + ".zst").exists()


def _endpoint_text(text: str) -> str:
    if endpoint_of(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 10.0.0.2:{RDZV_PORT}")
    return text


def _index(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)
