"""Python processes that start with modules imported: copies of a template process, which has imported them once.

A copy of a template runs a module as `python -P -m MODULE` would, with an environment, a directory and output files of
its own. There are two templates. The imports of the runtime take 7 s of processor time in each training process, nearly
all of it inside torch: one template imports that part and nothing of ours. The other one has the commands of tputui,
whose imports take most of the time of a command. The processes of xdist share the templates: the first that needs a
copy starts one, and it ends with the last of them. What the kernel shows of a copy is the environment of the template,
and its command line unless `set_command_line` is called.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import math
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

TemplateName = Literal["torch", "commands"]
_OF_TORCH = (
    "torch",
    "torch._dynamo",
    "torch._functorch.config",
    "torch._inductor.fx_passes.post_grad",
    "functorch.compile",
    "sklearn.datasets",
)
"""What `import torch_xla` imports of torch, and the package of the digits. Our own modules are left to the copies."""
SOCKET = "TESTS_TORCH_TEMPLATE"
"""Environment variable with how the paths begin of the sockets at which the templates of a session listen."""
_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_")
"""How the names begin of the environment variables that Python reads only as it starts."""
_TESTS = Path(__file__).parents[1]
_STARTS_ENGINE = frozenset({"run", "rehearse", "try", "folds", "predict"})
"""Commands whose copies have torch imported for what they start, unless that is a command of the user."""
_VIEWS = frozenset({"attach", "serve"})
"""Commands in new processes: a supervisor knows viewers by their command line, and most copies have the template's."""
_HEADER_BYTES = 8
_COMMAND_LINE_BYTES = 4096
"""Room for the command lines of copies, besides that of the template."""
_NUM_STREAMS = 3


class Process:
    """A copy of the template, used like `subprocess.Popen`."""

    def __init__(
        self,
        module: str,
        arguments: list[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: list[int],
        of: TemplateName = "torch",
        start_new_session: bool = False,
    ) -> None:
        """Starts `module` with these arguments; `streams` become its standard input, output and error."""
        message = json.dumps([module, arguments, str(cwd), dict(env), start_new_session]).encode()
        self._answers, theirs = socket.socketpair()
        with theirs:
            descriptors = array.array("i", [*streams, theirs.fileno()])
            template = _template(of)
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


class PipedProcess(Process):
    """A copy without input, whose output is read, used like `subprocess.Popen` with pipes and text."""

    def __init__(
        self,
        module: str,
        arguments: list[str],
        *,
        cwd: Path | None,
        env: Mapping[str, str],
        of: TemplateName = "torch",
        start_new_session: bool = False,
    ) -> None:
        (out, into_out), (err, into_err) = os.pipe(), os.pipe()
        self.stdout = os.fdopen(out)
        self.stderr = os.fdopen(err)
        try:
            with open(os.devnull, "rb") as nothing:
                streams = [nothing.fileno(), into_out, into_err]
                super().__init__(
                    module, arguments, cwd=cwd or Path.cwd(), env=env, streams=streams, of=of,
                    start_new_session=start_new_session,
                )  # fmt: skip
        except BaseException:
            self.close()
            raise
        finally:
            os.close(into_out)
            os.close(into_err)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it printed, once it and its output have ended; only once. Raises `subprocess.TimeoutExpired`."""
        deadline = time.monotonic() + timeout if timeout is not None else math.inf
        readable = [stream.fileno() for stream in (self.stdout, self.stderr) if not stream.closed]
        out, err = _read_to_the_end(readable, deadline) if readable else ("", "")
        self.close()
        self.wait(timeout)
        return out, err

    def close(self) -> None:
        """Reads no more of its output."""
        self.stdout.close()
        self.stderr.close()


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


def run_tputui(
    *arguments: str, cwd: Path | None, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Runs a command of tputui to its end and that of its output, as `subprocess.run` does. A copy runs it, unless it
    needs an interpreter of its own. `env` is all of its environment.
    """
    words = ["tputui", *arguments]
    starts_engine = not _STARTS_ENGINE.isdisjoint(arguments)
    is_for_itself = not _VIEWS.isdisjoint(arguments) or (starts_engine and "--" in arguments)
    if is_for_itself or _own(env) != _own(os.environ):
        return subprocess.run(
            [sys.executable, "-P", "-m", *words], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=timeout, check=False,
        )  # fmt: skip
    if starts_engine:
        process = PipedProcess("tests.forked_tree", words, cwd=cwd, env=env)
    else:
        process = PipedProcess("tputui", [*arguments], cwd=cwd, env=env, of="commands")
    try:
        out, err = process.communicate(timeout)
        return subprocess.CompletedProcess(words, process.wait(timeout), out, err)
    finally:
        process.kill()
        process.close()


def _own(env: Mapping[str, str]) -> dict[str, str]:
    """Of an environment, what a copy cannot have; the folder with the tests can be put on its import path."""
    own = {name: value for name, value in env.items() if name.startswith(_OF_THE_INTERPRETER)}
    if own.get("PYTHONPATH") == str(_TESTS):
        del own["PYTHONPATH"]
    return own


def _read_to_the_end(descriptors: list[int], deadline: float) -> list[str]:
    """The texts of pipes, once no process can write to them any more. Raises `subprocess.TimeoutExpired`."""
    chunks: dict[int, list[bytes]] = {descriptor: [] for descriptor in descriptors}
    is_open = set(descriptors)
    while is_open:
        left_s = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([*is_open], [], [], left_s)
        if not ready:
            raise subprocess.TimeoutExpired("tputui", deadline)
        for descriptor in ready:
            chunk = os.read(descriptor, 1 << 16)
            chunks[descriptor].append(chunk)
            if not chunk:
                is_open.remove(descriptor)
    return [io.TextIOWrapper(io.BytesIO(b"".join(read))).read() for read in chunks.values()]


_connected: dict[TemplateName, socket.socket] = {}
"""The connections to the templates, once copies were asked for."""
_started: list[subprocess.Popen[bytes]] = []
"""The templates that this process started."""


def _template(name: TemplateName) -> socket.socket:
    if name not in _connected:
        path = Path(f"{os.environ[SOCKET]}-{name}")
        connection = socket.socket(socket.AF_UNIX)
        with _locked(path):
            # Without a template there is no file; one that was killed leaves a file at which nobody listens.
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                path.unlink(missing_ok=True)
                _start_template(name, path)
                connection.connect(str(path))
        _connected[name] = connection
    return _connected[name]


def _start_template(name: TemplateName, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        command = [sys.executable, "-P", "-m", __name__, name, str(listener.fileno()), str(path)]
        command.append(" " * _COMMAND_LINE_BYTES)
        _started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()]))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """While no other process looks for a template, and none ends."""
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end_template() -> None:
    """Called when all tests of this process have ended. Waits for the end of the templates that this process started,
    which serve the other processes of xdist until they have ended too."""
    while _connected:
        _connected.popitem()[1].close()
    while _started:
        _started.pop().wait()


class _Asked(NamedTuple):
    """What a copy runs."""

    streams: list[int]
    module: str
    arguments: list[str]
    cwd: str
    env: dict[str, str]
    starts_new_session: bool


class _Template:
    """The template process: makes copies of itself until its connections are closed."""

    def __init__(self, listener: socket.socket, path: Path) -> None:
        self._listener = listener
        self._path = path
        self._connections: dict[int, socket.socket] = {}
        """From the processes that ask for copies, by descriptor."""
        self._copies: dict[int, tuple[int, socket.socket]] = {}
        """Process id and connection for the exit code, by the descriptor that is ready once the process has ended."""

    def serve(self) -> _Asked | None:
        """Returns None when the tests have ended; what they left running is theirs to report. In a copy, returns what
        it shall run: a program is observed with the loops that are around it, so it must not run inside of this one.
        """
        self._accept()
        while self._connections or self._is_needed():
            ready, _, _ = select.select([self._listener.fileno(), *self._connections, *self._copies], [], [])
            for descriptor in ready:
                if descriptor in self._copies:
                    self._report(descriptor)
                elif descriptor not in self._connections:
                    self._accept()
                elif asked := self._copy(descriptor):
                    return asked
        return None

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

    def _copy(self, asking: int) -> _Asked | None:
        """Starts one copy, unless none is asked for any more; returns in it what it shall run."""
        connection, size = self._connections[asking], _HEADER_BYTES
        header, descriptors, _, _ = socket.recv_fds(connection, size, _NUM_STREAMS + 1, socket.MSG_WAITALL)
        if not header:
            self._connections.pop(asking).close()
            return None
        message = connection.recv(int.from_bytes(header, "little"), socket.MSG_WAITALL)
        *streams, answers = descriptors
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            self._close()
            return _Asked(streams, *json.loads(message))
        for descriptor in streams:
            os.close(descriptor)
        answering = socket.socket(fileno=answers)
        answering.sendall(pid.to_bytes(_HEADER_BYTES, "little"))
        self._copies[os.pidfd_open(pid)] = (pid, answering)
        return None

    def _close(self) -> None:
        """Closes, in a copy, what belongs to the template."""
        for connection in (self._listener, *self._connections.values()):
            connection.close()
        for ended, (_, answers) in self._copies.items():
            os.close(ended)
            answers.close()


def _become(asked: _Asked) -> None:
    """Gives a copy its streams, directory, environment and session."""
    if asked.starts_new_session:
        os.setsid()
    for number, descriptor in enumerate(asked.streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(asked.cwd)
    os.environ.clear()
    os.environ.update(asked.env)
    time.tzset()
    added = asked.env.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [entry for entry in added if entry and entry not in sys.path]


def set_command_line(words: list[str]) -> None:
    """Has the kernel show this as the command line of this copy. Empty words follow it."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    # proc(5): arg_start and arg_end, fields 48 and 49, of which the name in parentheses is the second.
    begin, end = int(fields[45]), int(fields[46])
    text = b"\0".join(map(os.fsencode, words)) + b"\0"
    assert len(text) <= end - begin, f"{len(text)} bytes of command line"
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


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
    """Entry point of a template process."""
    of, descriptor, path = sys.argv[1:4]
    listener = socket.socket(fileno=int(descriptor))
    listener.set_inheritable(False)
    for name in _OF_TORCH if of == "torch" else _of_commands():
        importlib.import_module(name)
    # The copies share these pages as long as their garbage collector leaves them alone.
    gc.freeze()
    asked = _Template(listener, Path(path)).serve()
    if asked is not None:
        _become(asked)
        # The interpreter's own way out: it waits for threads, calls what is registered, and flushes.
        if code := run_as_main(asked.module, asked.arguments):
            sys.exit(code)


def _of_commands() -> list[str]:
    package = importlib.import_module("tputui.cli")
    return [f"tputui.cli.{module.name}" for module in pkgutil.iter_modules(package.__path__)]


if __name__ == "__main__":
    main()
