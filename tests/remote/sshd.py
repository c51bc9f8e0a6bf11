"""A real ssh server on loopback, with throw-away keys and configurations, and an `ssh` that uses nothing else."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import psutil
import pytest

from tests.deadline import DEADLINE_S
from tests.ports import reserved_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
MISSING = (
    None if SSHD and shutil.which("ssh") and shutil.which("ssh-keygen") else "OpenSSH (sshd, ssh) is not installed"
)
HOST = "pod-host"
"""The name of the server in the configuration of the client."""
SAME_HOST = "pod-host-2"
"""A host that shares the directory of runs with the first one."""
OTHER_HOST = "pod-host-3"
"""A host with a directory of its own."""


class Sshd:
    """A running server. The user of the tests logs in with a key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        for name in ("host_key", "user_key"):
            _make_key(folder / name)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        (folder / "authorized_keys").chmod(0o600)
        self.port, self.second_port = reserved_port(), reserved_port()
        key = (folder / "host_key.pub").read_text()
        ports = (self.port, self.second_port)
        (folder / "known_hosts").write_text("".join(f"[127.0.0.1]:{port} {key}" for port in ports))
        self._write_configs()
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a viewer: its `ssh` reads the configuration of this server alone."""
        return {
            **os.environ,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "TPUTUI_REMOTE_PROGRAM": str(self.folder / "tputui"),
        }

    def start(self) -> None:
        """Starts the server, and waits until it listens."""
        assert SSHD is not None
        if os.geteuid() == 0:
            # The service makes this empty directory when it starts, on a file system that a reboot clears.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        command = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if time.monotonic() > deadline or self._server.poll() is not None:
                raise AssertionError((self.folder / "sshd.log").read_text())
            Event().wait(0.02)

    def cut(self) -> int:
        """Kills the processes of all connections, as if the network had broken; returns their number."""
        assert self._server is not None
        children = psutil.Process(self._server.pid).children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, DEADLINE_S)
        return len(children)

    def streams(self) -> list[psutil.Process]:
        """The processes of `tputui stream`."""
        assert self._server is not None
        children = psutil.Process(self._server.pid).children(recursive=True)
        return [child for child in children if child.name() == "tputui"]

    def stop(self) -> None:
        """EndingTask the server and all connections."""
        if self._server is not None:
            server, self._server = self._server, None
            children = psutil.Process(server.pid).children(recursive=True)
            server.kill()
            server.wait()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(children, DEADLINE_S)

    def _write_configs(self) -> None:
        folder = self.folder
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nPort {self.second_port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile {folder}/sshd.pid\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\nPermitRootLogin yes\n"
            "MaxStartups 100:30:200\n"
            # A host with a directory of its own.
            f"Match LocalPort {self.second_port}\n  SetEnv TPUTUI_RUNS={folder.parent}/runs-2\n"
        )
        (folder / "ssh_config").write_text(
            f"Host {OTHER_HOST}\n  Port {self.second_port}\n"
            f"Host {HOST} {SAME_HOST} {OTHER_HOST}\n  HostName 127.0.0.1\n  Port {self.port}\n"
            f"  User {getpass.getuser()}\n  RemoteCommand top\n"
            f"Host *\n  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n  CanonicalizeHostname no\n"
        )
        _write_program(folder / "ssh", f'exec {shutil.which("ssh")} -F {folder}/ssh_config "$@"')
        # sshd passes on no environment, so the directories of the tests are set here.
        kept = " ".join(
            f"{name}='{os.environ[name]}'" for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME") if name in os.environ
        )
        program = Path(sys.executable).with_name("tputui")
        _write_program(
            folder / "tputui", f'{kept} TPUTUI_RUNS=${{TPUTUI_RUNS:-{folder.parent}/runs}} exec {program} "$@"'
        )


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Sshd]:
    """A server that is stopped at the end; skips the test where there is none."""
    if MISSING:
        pytest.skip(MISSING)
    server = Sshd(folder)
    try:
        yield server
    finally:
        server.stop()


def _make_key(path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
    )


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o700)
