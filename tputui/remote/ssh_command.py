"""The command line of ssh, and why a connection failed in one sentence.

The user's own OpenSSH is used with the user's configuration: keys, agent, known hosts, jump hosts. It never asks. The
command on the host is always the same string: everything else is sent over the connection.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from tputui import user_cache
from tputui.formatting import inert
from tputui.remote.address import Host

SSH = "ssh"
CONNECT_TIMEOUT_S = 15
REMOTE_COMMAND = """exec sh -c 'PATH="$PATH:$HOME/.local/bin"; exec tputui %s'"""
"""The same in every login shell. `pip install --user` puts tputui where shells of ssh often do not search."""
PROGRAM_VARIABLE = "TPUTUI_REMOTE_PROGRAM"
"""Environment variable with the path of tputui on the hosts."""
_PROGRAM = re.compile(r"~?[A-Za-z0-9_./+-]{1,1000}")
_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "Compression=no",
)
_SOCKET_CHARS_MAX = 90
"""A path of a socket has at most 107 bytes, and ssh appends 17 to ours while it makes it."""
_HASH_CHARS = 40
_FOLDER = re.compile(r"[A-Za-z0-9_./+@,:=-]+")
"""Has no character that ssh interprets in an option, such as a blank, `%` or `$`."""
PERSIST_S = 20
"""Seconds for which a connection waits for the next command; the list of runs is read more often."""
_QUERY_S = 5.0
OF_TPUTUI = "tputui: "
"""Begins the sentence in which tputui on a host says what is wrong."""


class InvalidProgram(ValueError):
    """The path of tputui on the hosts is not one."""


def remote_command(environ: Mapping[str, str], command: str = "stream") -> str:
    """The words to run on a host; `command` has no character that a shell interprets. Raises `InvalidProgram`."""
    program = environ.get(PROGRAM_VARIABLE, "")
    if not program:
        return REMOTE_COMMAND % command
    if _PROGRAM.fullmatch(program) is None:
        raise InvalidProgram(f"{PROGRAM_VARIABLE}: {program!r} is not the path of a program")
    # The pattern has no character that `sh` would interpret but `~`. A program that is missing gives exit code 127
    # there; some other login shells give 1.
    return f"exec sh -c 'exec {program} {command}'"


def argv_of(
    host: Host, environ: Mapping[str, str], *, shared: bool, command: str = "stream", persist: bool = False
) -> list[str]:
    """The command line that connects to a host; with `shared` the connection is one that other commands join, with
    `persist` for some seconds after this one has ended.

    Raises `InvalidProgram`.
    """
    options = [*_OPTIONS, *(_sharing(host, environ, persist=persist) if shared else ())]
    argv = [SSH, "-T", *(word for option in options for word in ("-o", option)), *_target(host)]
    return [*argv, remote_command(environ, command)]


def _target(host: Host) -> list[str]:
    return [*host.port_words("-p"), "--", host.destination]


def _shown_target(host: Host) -> str:
    """The same for the user to paste."""
    return " ".join([*host.port_words("-p"), host.destination])


def _sharing(host: Host, environ: Mapping[str, str], *, persist: bool) -> list[str]:
    """Options that share a connection, unless the user's configuration has some of its own."""
    try:
        folder = user_cache.folder_of("ssh", environ)
    except OSError:
        return []
    if len(str(folder)) + 1 + _HASH_CHARS > _SOCKET_CHARS_MAX or _FOLDER.fullmatch(str(folder)) is None:
        return []
    try:
        command = [SSH, "-G", *_target(host)]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_S, stdin=subprocess.DEVNULL)
        # Whoever can write there could answer for the host.
        user_cache.create(folder)
    except (OSError, subprocess.TimeoutExpired):
        return []
    settings = dict(line.partition(" ")[::2] for line in completed.stdout.lower().splitlines())
    if settings.get("controlpath", "none") != "none":
        return []
    return ["ControlMaster=auto", f"ControlPath={folder}/%C", f"ControlPersist={PERSIST_S if persist else 'no'}"]


def not_started(host: Host, error: OSError) -> str:
    """Why ssh could not be started, in one sentence."""
    if isinstance(error, FileNotFoundError):
        return f"{host}: there is no program `{SSH}` on the search path of this machine: install OpenSSH"
    return f"{host}: {SSH} cannot be started: {error.strerror}"


def failure(host: Host, exit_code: int | None, stderr: str) -> str:
    """Why a connection failed, in one sentence, with what to do."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    text = "\n".join(lines)
    last = inert(lines[-1][:300]) if lines else f"ssh ended with exit code {exit_code}"
    if exit_code == 255 or exit_code is None:
        for pattern, explanation in _OF_SSH:
            if pattern in text:
                return f"{host}: {explanation.format(target=_shown_target(host))}"
        return f"{host}: the connection failed: {last}"
    if exit_code in (126, 127):
        return (
            f"{host}: tputui was not found there: install it with `pip install tputui`, "
            f"or set {PROGRAM_VARIABLE} to its path on the host"
        )
    if 'unknown command "stream"' in text:
        return f"{host}: tputui there is too old to stream runs: update it with `pip install -U tputui`"
    if last.startswith(OF_TPUTUI):
        return f"{host}: {last.removeprefix(OF_TPUTUI)}"
    return f"{host}: tputui ended there with exit code {exit_code}{f': {last}' if lines else ''}"


_OF_SSH = (
    ("Could not resolve hostname", "the host is not known; check its name, or add it to ~/.ssh/config"),
    (
        "Host key verification failed",
        "its host key is not known or has changed; connect once with `ssh {target}` to check the key",
    ),
    (
        "Permission denied",
        "permission denied; check the user, load the key with ssh-add, and try `ssh -o BatchMode=yes {target} true`",
    ),
    (
        "Too many authentication failures",
        "permission denied: ssh offered too many keys; set IdentityFile for the host",
    ),
    ("Connection refused", "the connection was refused; check that an ssh server listens there"),
    ("timed out", "the connection timed out; check the network, and that the host is up"),
    ("No route to host", "there is no route to the host; check the network, and that the host is up"),
)
