"""Addresses of runs on other machines: `ssh://[user@]HOST[:port]/RUN`, and lists of hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from tputui.telemetry import rundir
from tputui.telemetry.files import read_small

SCHEME = "ssh://"
HOSTS_MAX = 4_096
HOSTS_FILE_BYTES_MAX = 1 << 20
_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
"""Neither a user nor a host begins with a dash, so that ssh takes none for an option."""


class InvalidAddress(ValueError):
    """Text is not an address; the message is one sentence."""


class Host(msgspec.Struct, frozen=True):
    """A machine that ssh connects to. The name may be an alias in the user's ssh configuration."""

    name: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        shown = f"[{self.name}]" if ":" in self.name else self.name
        user = f"{self.user}@" if self.user else ""
        return f"{user}{shown}{f':{self.port}' if self.port is not None else ''}"

    @property
    def destination(self) -> str:
        """`[user@]HOST` for ssh, which takes an IPv6 address without brackets and the port as an option."""
        return f"{self.user}@{self.name}" if self.user else self.name

    def port_words(self, option: str) -> list[str]:
        """The port as words of a command line; none if it is the one of the user's configuration."""
        return [option, str(self.port)] if self.port is not None else []


class RunAddress(msgspec.Struct, frozen=True, kw_only=True):
    hosts: tuple[Host, ...]
    run: str
    """Name of the run, or the absolute path of its directory on the hosts."""
    runs_dir: str | None = None
    """Directory of the runs on the hosts; None for the default there."""

    def __str__(self) -> str:
        if len(self.hosts) == 1:
            return f"{SCHEME}{self.hosts[0]}/{self.run}"
        return f"{self.run} on {len(self.hosts)} hosts"


def is_address(text: str) -> bool:
    """Whether text is meant as an address of a run on another machine."""
    return text.startswith(SCHEME)


def parse_host(text: str) -> Host:
    """Parses `[user@]HOST[:port]`. Raises `InvalidAddress`."""
    match = _HOST.fullmatch(text)
    if match is None or (match["port"] and not 0 < int(match["port"]) <= 65_535):
        raise InvalidAddress(f"{text!r} is not a host; write [user@]HOST[:port]")
    return Host(match["host"].strip("[]"), match["user"], int(match["port"]) if match["port"] else None)


def parse_hosts(text: str, read: Callable[[Path, int], bytes] = read_small) -> tuple[Host, ...]:
    """Parses `a,b,c`, or `@FILE` with a host per line, in which `#` begins a comment. Raises `InvalidAddress`."""
    if text.startswith("@"):
        try:
            content = read(Path(text[1:]), HOSTS_FILE_BYTES_MAX).decode()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidAddress(f"--hosts {text}: the file cannot be read: {why}") from None
        return _all_of((line.partition("#")[0].strip() for line in content.splitlines()), f"--hosts {text}")
    return _all_of((word.strip() for word in text.split(",")), f"--hosts {text}")


def _all_of(names: Iterable[str], where: str) -> tuple[Host, ...]:
    hosts = tuple(dict.fromkeys(parse_host(name) for name in names if name))
    if not hosts:
        raise InvalidAddress(f"{where}: it names no host")
    if len(hosts) > HOSTS_MAX:
        raise InvalidAddress(f"{where}: it names {len(hosts)} hosts, more than the maximum of {HOSTS_MAX}")
    return hosts


def parse_run(text: str) -> str:
    """Checks the name of a run, or the absolute path of its directory on a host. Raises `InvalidAddress`."""
    if text.startswith("/"):
        if "\0" in text or len(text.encode("utf-8", "surrogateescape")) > 4_096:
            raise InvalidAddress("the path of the run on the host is not a path")
        return "/" + text.strip("/")
    if not rundir.is_name(text):
        raise InvalidAddress(
            f"{text!r} is neither the name of a run nor an absolute path; write ssh://HOST/NAME or ssh://HOST//DIR/NAME"
        )
    return text


def parse_address(text: str, runs_dir: str | None = None) -> RunAddress:
    """Parses `ssh://[user@]HOST[:port]/RUN`. Raises `InvalidAddress`."""
    host, slash, run = text.removeprefix(SCHEME).partition("/")
    if not slash or not run.strip("/"):
        raise InvalidAddress(f"{text}: the run is missing; write ssh://HOST/RUN")
    try:
        return RunAddress(hosts=(parse_host(host),), run=parse_run(run.rstrip("/")), runs_dir=runs_dir)
    except InvalidAddress as error:
        raise InvalidAddress(f"{text}: {error}") from None
