"""The runs of another machine, by `tputui runs --json` there."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from tputui.formatting import inert
from tputui.remote.address import Host
from tputui.remote.ssh_command import CONNECT_TIMEOUT_S, InvalidProgram, argv_of, failure, not_started
from tputui.state.listed_run import ListedRun

TIMEOUT_S = 60.0 + CONNECT_TIMEOUT_S
LIST_BYTES_MAX = 64 << 20
ERROR_BYTES_MAX = 64 << 10
RUNS_MAX = 10_000
_DIRECTORY = re.compile(r"~?[A-Za-z0-9_./+@%-]{1,4000}")
"""Has no character that a shell interprets but `~`."""

_LIST = re.compile(rb"^\[\s*[{\]]", re.MULTILINE)
"""Start of the list; a login shell may print before it."""


class CannotList(Exception):
    """The runs cannot be listed; the message is one sentence."""


def list_runs(host: Host, runs_dir: str | None, environ: Mapping[str, str]) -> list[ListedRun]:
    """The runs of a host, newest first, with archived ones. Raises `CannotList` and `InvalidProgram`."""
    try:
        rows: list[dict[str, Any]] = msgspec.json.decode(_output(host, runs_dir, environ), type=list[dict[str, Any]])
        runs = [row for row in rows[:RUNS_MAX] if "form" not in row and row.get("state") != "log"]
        return msgspec.convert(runs, type=list[ListedRun])
    except InvalidProgram:
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CannotList(f"{host}: its list of runs cannot be read: {inert(str(error)[:200])}") from None


def _output(host: Host, runs_dir: str | None, environ: Mapping[str, str]) -> bytes:
    if runs_dir is not None and _DIRECTORY.fullmatch(runs_dir) is None:
        raise CannotList(f"--runs-dir {inert(runs_dir)}: only letters, digits and ~_./+@%- are possible with --host")
    directory = f"--runs-dir={runs_dir} " if runs_dir is not None else ""
    argv = argv_of(host, environ, shared=True, command=f"{directory}runs --json --all", persist=True)
    began = time.monotonic()
    try:
        code, out, err = _bounded(argv, {**environ, "LC_ALL": "C"})
    except OSError as error:
        raise CannotList(not_started(host, error)) from None
    if len(out) > LIST_BYTES_MAX:
        raise CannotList(f"{host}: its list of runs is longer than {LIST_BYTES_MAX} bytes")
    if code and time.monotonic() - began >= TIMEOUT_S:
        raise CannotList(f"{host}: it did not answer within {TIMEOUT_S:g} s")
    if code:
        raise CannotList(failure(host, code, err.decode("utf-8", "replace")))
    began_at = _LIST.search(out)
    return out[began_at.start() :] if began_at is not None else out


def _bounded(command: list[str], env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """The exit code and the output of a command, which is killed after `TIMEOUT_S` or if it prints too much.

    Raises `OSError`.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        end = threading.Timer(TIMEOUT_S, process.kill)
        end.start()
        errors, pieces = process.stderr, list[bytes]()
        reader = threading.Thread(target=lambda: pieces.append(errors.read(ERROR_BYTES_MAX)), daemon=True)
        reader.start()
        try:
            out = process.stdout.read(LIST_BYTES_MAX + 1)
            if len(out) > LIST_BYTES_MAX:
                process.kill()
            code = process.wait()
            reader.join()
            return code, out, b"".join(pieces)
        except BaseException:
            process.kill()
            raise
        finally:
            end.cancel()
