"""The runs of another machine, by `tputui runs --json` there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from tputui.formatting import inert
from tputui.remote.address import Host
from tputui.remote.ssh_command import CONNECT_TIMEOUT_S, argv_of, failure, not_started

TIMEOUT_S = 60.0 + CONNECT_TIMEOUT_S
LIST_BYTES_MAX = 64 << 20
RUNS_MAX = 10_000
_DIRECTORY = re.compile(r"~?[A-Za-z0-9_./+@%-]{1,4000}")
"""Has no character that a shell interprets but `~`."""


class CannotList(Exception):
    """The runs cannot be listed; the message is one sentence."""


class RemoteRun(msgspec.Struct, kw_only=True):
    """A run in the list of another machine; the fields are those of `tputui runs --json`."""

    run: str
    dir: str
    created: float
    state: str
    why: str = ""
    epoch: int | None = None
    num_epochs: int | None = None
    step: int | None = None
    loss: float | None = None
    num_cores: int | None = None
    config: str | None = None
    pinned: bool | None = None
    archived: bool | None = None
    tags: list[str] | None = None
    note: str | None = None


def list_runs(host: Host, runs_dir: str | None, environ: Mapping[str, str]) -> list[RemoteRun]:
    """The runs of a host, newest first, with archived ones. Raises `CannotList` and `InvalidProgram`."""
    try:
        found: list[dict[str, Any]] = msgspec.json.decode(_output(host, runs_dir, environ), type=list[dict[str, Any]])
        runs = [row for row in found[:RUNS_MAX] if "form" not in row and row.get("state") != "log"]
        return msgspec.convert(runs, type=list[RemoteRun])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CannotList(f"{host}: its list of runs cannot be read: {inert(str(error)[:200])}") from None


def _output(host: Host, runs_dir: str | None, environ: Mapping[str, str]) -> bytes:
    if runs_dir is not None and _DIRECTORY.fullmatch(runs_dir) is None:
        raise CannotList(f"--runs-dir {inert(runs_dir)}: only letters, digits and ~_./+@%- are possible with --host")
    directory = f"--runs-dir={runs_dir} " if runs_dir is not None else ""
    words = argv_of(host, environ, shared=True, command=f"{directory}runs --json --all", persist=True)
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, env={**environ, "LC_ALL": "C"}
        )
    except subprocess.TimeoutExpired:
        raise CannotList(f"{host}: it did not answer within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise CannotList(not_started(host, error)) from None
    if done.returncode:
        raise CannotList(failure(host, done.returncode, done.stderr.decode("utf-8", "replace")))
    if len(done.stdout) > LIST_BYTES_MAX:
        raise CannotList(f"{host}: its list of runs is longer than {LIST_BYTES_MAX} bytes")
    # A login shell may print before it.
    return done.stdout[max(0, done.stdout.find(b"[")) :]
