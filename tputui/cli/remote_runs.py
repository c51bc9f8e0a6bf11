"""Runs on other machines: the commands that show or steer runs open them by `ssh://HOST/RUN`.

A process of its own mirrors the run into the user's cache. It ends with this one.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tputui.cli.console import UsageError, narrate, usage_errors
from tputui.cli.parser import Parser, add_hosts_option
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.remote.address import (
    Host,
    InvalidAddress,
    RunAddress,
    is_address,
    parse_address,
    parse_host,
    parse_hosts,
    parse_run,
)

if TYPE_CHECKING:
    from tputui.remote.opening import OpenedMirror
    from tputui.state.listed_run import ListedRun
    from tputui.ui.app import ViewOptions

NARRATE_S = 2.0
"""Seconds of waiting after which the user is asked for patience."""
PROBLEMS_NAMED = 5
_words: dict[Path, str] = {}
"""How the user names the run of a mirror that this process opened."""


def add_host_options(parser: Parser) -> None:
    add_hosts_option(parser)
    parser.add_option(
        "--summary",
        action="store_true",
        help="with ssh: get only the last step of every report, for slow links and many hosts",
    )


def address_of(args: argparse.Namespace) -> RunAddress | None:
    """The address that RUN and `--hosts` give; None for a run of this machine. Raises `CommandError`."""
    with usage_errors(InvalidAddress):
        if args.hosts is not None:
            if args.run is None:
                raise InvalidAddress("--hosts needs the name of a run, or its absolute directory on the hosts")
            hosts = parse_hosts(args.hosts)
            if is_address(args.run):
                raise InvalidAddress("--hosts names the hosts; write only the name or directory of the run")
            return RunAddress(hosts=hosts, run=parse_run(args.run), runs_dir=args.runs_dir)
        if args.run is not None and is_address(args.run):
            return parse_address(args.run, args.runs_dir)
    if getattr(args, "summary", False):
        raise UsageError("--summary is for runs of other machines: give ssh://HOST/RUN or --hosts")
    return None


def opened_mirror(address: RunAddress, *, summary: bool = False) -> OpenedMirror:
    """Opens a run on other machines; it is mirrored until this process ends. Raises `CommandError`."""
    from tputui.remote.opening import OpenedMirror, Unreachable

    patience = threading.Timer(NARRATE_S, narrate, [f"connecting to {inert(str(address))} ..."])
    patience.daemon = True
    patience.start()
    try:
        with usage_errors(Unreachable):
            mirror = OpenedMirror(address, summary=summary)
    finally:
        patience.cancel()
    atexit.register(mirror.close)
    hosts = ",".join(map(str, address.hosts))
    text = str(address) if len(address.hosts) == 1 else f"{address.run} --hosts {hosts}"
    _words[mirror.run_dir] = " ".join(map(shlex.quote, text.split(" ")))
    if not mirror.wait(NARRATE_S):
        narrate(f"reading {inert(str(address))} ...")
    return mirror


def show_list(args: argparse.Namespace, options: ViewOptions) -> ExitCode:
    """Shows the runs of the machine of `--host` on the screen. Raises `CommandError`."""
    from tputui.ui.app import run_list
    from tputui.ui.runs.remote_rows import RemoteRuns

    remote = RemoteRuns(host_of(args), args.runs_dir)
    run_list(remote.shown, remote=remote, read_only=args.read_only, options=options)
    return ExitCode.DONE


def runs_of(args: argparse.Namespace) -> list[ListedRun]:
    """The runs of the machine of `--host`. Raises `CommandError`."""
    from tputui.remote.run_list import CannotList, list_runs
    from tputui.remote.ssh_command import InvalidProgram

    with usage_errors(CannotList, InvalidProgram):
        return list_runs(host_of(args), args.runs_dir, os.environ)


def host_of(args: argparse.Namespace) -> Host:
    """The machine of `--host`. Raises `CommandError`."""
    with usage_errors(InvalidAddress, prefix="--host: "):
        return parse_host(args.host)


def mirror_at(text: str, runs_dir: str | None = None) -> Path:
    """The mirror of a run at an address `ssh://HOST/RUN`, as `whole_mirror`. Raises `CommandError`."""
    with usage_errors(InvalidAddress):
        return whole_mirror(parse_address(text, runs_dir))


def whole_mirror(address: RunAddress) -> Path:
    """The mirror of a run, with everything that the hosts have; names those that are not connected. Raises
    `CommandError`."""
    mirror = opened_mirror(address)
    mirror.wait()
    for problem in mirror.problems[:PROBLEMS_NAMED]:
        narrate(problem)
    return mirror.run_dir


def words_of(run_dir: Path) -> str | None:
    """The words for a shell that name the run of a mirror; None if this process opened no mirror there."""
    return _words.get(run_dir)
