"""Hosts of one run as launchers on this machine, each a real process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests import forked
from tests.deadline import DEADLINE_S
from tests.ports import reserved_port
from tputui.config import parse, to_builtins
from tputui.telemetry import events as ev
from tputui.telemetry import launch_messages as messages
from tputui.telemetry import rundir
from tputui.telemetry.journal import SUFFIX, Tail

CONFIG = 'task = "digits"\nepochs = 1\n[data]\nbatch_per_core = 4\n[launch]\nlost_after_s = 30\n'


class Host:
    """One host: its launcher, and what that reports."""

    def __init__(
        self, run_dir: Path, index: int, environ: dict[str, str], out: IO[bytes], prefix: list[str] | None = None
    ) -> None:
        """`prefix` is a command that runs the launcher, such as in a network namespace."""
        self.run_dir = run_dir
        self.index = index
        self._out = out
        argv = [str(run_dir), "--host", str(index), "--report-fd", "1", "--worker", "tests.launch.stand_in"]
        argv += ["--log", str(run_dir / f"launcher-{index}.log")]
        env = {**os.environ, "PYTHONPATH": str(Path.cwd()), **environ}
        self.process: forked.Process | subprocess.Popen[bytes]
        if prefix is None:
            streams = [out.fileno()] * 3
            self.process = forked.Process("engine.launch", argv, cwd=Path.cwd(), env=env, streams=streams)
        else:
            command = [*prefix, sys.executable, "-P", "-m", "engine.launch", *argv]
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    @property
    def messages(self) -> list[messages.Message]:
        """What the launcher has sent to the supervisor."""
        lines = self.output.split("\n")[:-1]
        return [messages.decode(line.encode()) for line in lines if line.startswith('{"type"')]

    @property
    def output(self) -> str:
        """Everything that the launcher has written, with its messages as lines of JSON."""
        return Path(self._out.name).read_text("utf-8", "replace")

    def events(self, kind: type[ev.Event]) -> list[Any]:
        """The events of a kind that the launcher had the supervisor record."""
        events = [messages.event_of(message) for message in self.messages if isinstance(message, messages.EventEmitted)]
        return [event for event in events if isinstance(event, kind)]

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """The messages of a kind."""
        return [message for message in self.messages if isinstance(message, kind)]

    def journal(self) -> list[ev.Event]:
        """The events of its training processes, of all generations."""
        path = self.run_dir / f"worker-{self.index}{SUFFIX}"
        if not path.exists():
            return []
        with contextlib.closing(Tail(path)) as tail:
            return [numbered.event for numbered in tail.read(1 << 24)]

    def wait(self) -> int:
        """Waits for the end of the launcher; returns its exit code."""
        code: int = self.process.wait(DEADLINE_S)
        return code

    def until(self, condition: Callable[[Host], object]) -> None:
        """Waits until a condition on this host holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self):
            assert time.monotonic() < deadline, self.messages
            time.sleep(0.02)


def is_listening(port: int) -> bool:
    """Whether a process of this machine accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def catches(pid: int, number: int) -> bool:
    """Whether a process has installed a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


def run_dir_of(parent: Path, changes: list[str], name: str = "pod", config: dict[str, Any] | None = None) -> Path:
    """The directory of a run with a changed configuration, or with `config`."""
    manifest = rundir.Manifest(
        run=name,
        created=time.time(),
        version="0",
        config_path="a.toml",
        config=config or to_builtins(parse(CONFIG, "a.toml", changes)),
        argv=[],
        cwd=str(Path.cwd()),
    )
    parent.mkdir(exist_ok=True)
    return rundir.create(parent, manifest)


@contextlib.contextmanager
def hosts(
    folder: Path,
    *changes: str,
    actions: dict[str, str] | None = None,
    num_hosts: int = 2,
    indices: list[int] | None = None,
    per_host: dict[int, list[str]] | None = None,
    names: dict[int, str] | None = None,
    prefixes: Sequence[list[str] | None] = (),
    address: str = "127.0.0.1",
) -> Iterator[list[Host]]:
    """Launchers of a run with separate directories. `per_host` changes the configuration of one of them; `prefixes` run
    them elsewhere, at `address`."""
    endpoint = f"{address}:{reserved_port()}"
    common = [f"launch.nnodes={num_hosts}", f"launch.rdzv_endpoint={endpoint}", *changes]
    started: list[Host] = []
    with contextlib.ExitStack() as stack:
        try:
            for number, index in enumerate(range(num_hosts) if indices is None else indices):
                own = [*common, *(per_host or {}).get(number, [])]
                run_dir = run_dir_of(folder / str(number), own, (names or {}).get(number, "pod"))
                out = stack.enter_context(tempfile.NamedTemporaryFile(dir=folder))
                environ = {"STAND_IN": json.dumps(actions or {})}
                started.append(Host(run_dir, index, environ, out, prefixes[number] if prefixes else None))
            yield started
        finally:
            for host in started:
                host.process.send_signal(signal.SIGKILL)
                host.process.wait(DEADLINE_S)


def reason_of(host: Host) -> str:
    """Why its launcher gave up."""
    failed: messages.LaunchFailed = host.of_kind(messages.LaunchFailed)[-1]
    return failed.reason


def pids_alive(pids: list[int]) -> list[int]:
    """Those of the processes that run."""
    return [pid for pid in pids if rundir.start_ticks(pid)]
