"""Python processes that start with torch imported: copies of a template process, which has imported it once.

The imports of the runtime take 7 s of processor time in each training process, nearly all of it inside torch. The
template imports that part and nothing of ours; a copy of it then runs a module as `python -P -m MODULE` would, with an
environment, a directory and output files of its own. The processes of xdist share one template: the first that needs
a copy starts it, and it ends with the last of them.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_IMPORTS = (
    "torch",
    "torch._dynamo",
    "torch._functorch.config",
    "torch._inductor.fx_passes.post_grad",
    "functorch.compile",
    "sklearn.datasets",
)
"""What `import torch_xla` imports of torch, and the package of the digits. Our own modules are left to the copies."""
SOCKET = "TESTS_TORCH_TEMPLATE"
"""Environment variable with the path of the socket at which the template of a session listens."""
_HEADER_BYTES = 8
_NUM_STREAMS = 3


class Process:
    """A copy of the template, used like `subprocess.Popen`."""

    def __init__(
        self, module: str, arguments: list[str], *, cwd: Path, env: Mapping[str, str], streams: list[int]
    ) -> None:
        """Starts `module` with these arguments; `streams` become its standard input, output and error."""
        message = json.dumps([module, arguments, str(cwd), dict(env)]).encode()
        self._answers, theirs = socket.socketpair()
        with theirs:
            descriptors = array.array("i", [*streams, theirs.fileno()])
            template = _template()
            template.sendmsg(
                [len(message).to_bytes(_HEADER_BYTES, "little")],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)],
            )
            template.sendall(message)
        self.pid = int.from_bytes(self._answers.recv(_HEADER_BYTES, socket.MSG_WAITALL), "little")
        assert self.pid, "the template process has ended"
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, or minus the number of the signal. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            ready, _, _ = select.select([self._answers], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            answer = self._answers.recv(_HEADER_BYTES, socket.MSG_WAITALL)
            assert answer, "the template process has ended"
            self._answers.close()
            self.returncode = int.from_bytes(answer, "little", signed=True)
        return self.returncode

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the end of the process is known."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """EndingTask it at once."""
        self.send_signal(signal.SIGKILL)


def run(
    module: str,
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 600.0,
) -> subprocess.CompletedProcess[str]:
    """Runs a module to its end, as `subprocess.run` does with captured output; `env` is added to the environment."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(_NUM_STREAMS)]
        files[0].write(stdin)
        files[0].seek(0)
        process = Process(
            module,
            [*arguments],
            cwd=cwd or Path.cwd(),
            env={**os.environ, **(env or {})},
            streams=[file.fileno() for file in files],
        )
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess([module, *arguments], code, files[1].read(), files[2].read())


_connected: list[socket.socket] = []
"""The connection to the template, once a copy was asked for."""
_started: list[subprocess.Popen[bytes]] = []
"""The template, if this process started it."""


def _template() -> socket.socket:
    if not _connected:
        path = Path(os.environ[SOCKET])
        connection = socket.socket(socket.AF_UNIX)
        with _locked(path):
            # Without a template there is no file; one that was killed leaves a file at which nobody listens.
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                path.unlink(missing_ok=True)
                _start_template(path)
                connection.connect(str(path))
        _connected.append(connection)
    return _connected[0]


def _start_template(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        command = [sys.executable, "-P", "-m", __name__, str(listener.fileno()), str(path)]
        _started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()]))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """While no other process looks for a template, and none ends."""
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end_template() -> None:
    """Called when all tests of this process have ended. Waits for the end of a template that this process started,
    which serves the other processes of xdist until they have ended too."""
    while _connected:
        _connected.pop().close()
    while _started:
        _started.pop().wait()


class _Template:
    """The template process: makes copies of itself until its connections are closed."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._connections: dict[int, socket.socket] = {}
        """From the processes that ask for copies, by descriptor."""
        self._copies: dict[int, tuple[int, socket.socket]] = {}
        """Process id and connection for the exit code, by the descriptor that is ready once the process has ended."""

    def serve(self) -> None:
        """Returns when the tests have ended; what they left running is theirs to report."""
        self._accept()
        while self._connections or self._is_needed():
            ready, _, _ = select.select([self._listener.fileno(), *self._connections, *self._copies], [], [])
            for descriptor in ready:
                if descriptor in self._copies:
                    self._report(descriptor)
                elif descriptor in self._connections:
                    self._copy(descriptor)
                else:
                    self._accept()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._connections[connection.fileno()] = connection

    def _is_needed(self) -> bool:
        """Whether a process has connected after all others had ended; if not, none can connect any more."""
        with _locked(self._path):
            if select.select([self._listener], [], [], 0.0)[0]:
                return True
            self._path.unlink()
            return False

    def _report(self, ended: int) -> None:
        pid, answers = self._copies.pop(ended)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with answers, contextlib.suppress(BrokenPipeError):
            answers.sendall(code.to_bytes(_HEADER_BYTES, "little", signed=True))

    def _copy(self, asking: int) -> None:
        """Starts one copy, unless none is asked for any more."""
        connection, size = self._connections[asking], _HEADER_BYTES
        header, descriptors, _, _ = socket.recv_fds(connection, size, _NUM_STREAMS + 1, socket.MSG_WAITALL)
        if not header:
            self._connections.pop(asking).close()
            return
        message = connection.recv(int.from_bytes(header, "little"), socket.MSG_WAITALL)
        *streams, answers = descriptors
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            self._close()
            _run(streams, *json.loads(message))
        for descriptor in streams:
            os.close(descriptor)
        answering = socket.socket(fileno=answers)
        answering.sendall(pid.to_bytes(_HEADER_BYTES, "little"))
        self._copies[os.pidfd_open(pid)] = (pid, answering)

    def _close(self) -> None:
        """Closes, in a copy, what belongs to the template."""
        for connection in (self._listener, *self._connections.values()):
            connection.close()
        for ended, (_, answers) in self._copies.items():
            os.close(ended)
            answers.close()


def _run(streams: list[int], module: str, arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Runs the module in a copy, and ends the process as the interpreter ends."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry and entry not in sys.path]
    # The interpreter's own way out: it waits for threads, calls what is registered, and flushes.
    sys.exit(run_as_main(module, arguments))


def run_as_main(module: str, arguments: list[str]) -> Any:
    """Runs a module as `python -m` does; returns what it gives to `sys.exit`."""
    sys.argv[1:] = arguments
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Entry point of the template process."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.set_inheritable(False)
    for name in _IMPORTS:
        importlib.import_module(name)
    # The copies share these pages as long as their garbage collector leaves them alone.
    gc.freeze()
    _Template(listener, Path(sys.argv[2])).serve()


if __name__ == "__main__":
    main()
