"""The newest values of a run for Prometheus: an HTTP server on loopback, behind a token.

A process of its own that reads the run like any viewer, so it cannot disturb training. `tputui serve --metrics` is this
process; `tputui run --metrics-port` starts it detached: `python -m tputui.cli.metrics_server RUN_DIR`, with the
listening socket as standard input.
"""

from __future__ import annotations

import hmac
import http.server
import os
import secrets
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from tputui.cli.console import UsageError, handling
from tputui.formatting import inert
from tputui.session.session import Session
from tputui.state.run_condition import ENDED
from tputui.supervise import spawn
from tputui.telemetry.files import open_plain
from tputui.text.prometheus import CONTENT_TYPE, exposition

HOST = "127.0.0.1"
PATH = "/metrics"
TOKEN_FILE = "metrics-token"  # noqa: S105, RUF100 - the name of a file
TOKEN_BYTES = 24
_TOKEN_CHARS_MAX = 200
READ_AGAIN_S = 1.0
"""Shortest time between two reads of the run: more frequent requests get the same answer."""
LINGER_S = 60.0
"""Time after the end of the run for which a detached server still answers, so that the final values are scraped."""
_CHECK_S = 5.0
"""Time between two checks of a detached server whether the run has ended."""
_REQUEST_S = 10.0
"""Time that a client has for its request."""


def token_of(run_dir: Path) -> str:
    """The token in the file of the run, which only its owner can read; created if it is missing. Raises
    `CommandError`."""
    path = run_dir / TOKEN_FILE
    try:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return _read_token(path)
        with open(fd, "w") as file:
            token = secrets.token_urlsafe(TOKEN_BYTES)
            file.write(f"{token}\n")
        return token
    except OSError as error:
        raise UsageError(f"{inert(str(path))}: cannot be used: {error.strerror or error}") from None


def _read_token(path: Path) -> str:
    fd = open_plain(path)
    with open(fd, encoding="ascii", errors="replace") as file:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(0, "other users can read or change it; delete it, and a new one is created")
        token = file.read(_TOKEN_CHARS_MAX).strip()
    if len(token) < TOKEN_BYTES or not token.isprintable():
        raise PermissionError(0, "it contains no token; delete it, and a new one is created")
    return token


class RunMetrics:
    """The newest values of a run as text. Thread-safe."""

    def __init__(self, run_dir: Path) -> None:
        self._session = Session.live(run_dir)
        self._lock = threading.Lock()
        self._text = ""
        self._read_at = -READ_AGAIN_S
        self.ended = False
        """Whether the run had ended when it was read."""

    def text(self) -> str:
        """The values, at most `READ_AGAIN_S` old."""
        with self._lock:
            if time.monotonic() >= self._read_at + READ_AGAIN_S:
                self._session.read_all()
                snapshot = self._session.snapshot()
                self._text, self.ended = exposition(snapshot), snapshot.condition in ENDED
                self._read_at = time.monotonic()
            return self._text

    def close(self) -> None:
        with self._lock:
            self._session.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests that have the token."""

    server: MetricsServer
    timeout = _REQUEST_S
    server_version = "tputui"
    sys_version = ""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            self._send(401, "the header `Authorization: Bearer TOKEN` is missing or wrong\n")
        elif self.path.partition("?")[0] != PATH:
            self._send(404, f"the values are at {PATH}\n")
        else:
            self._send(200, self.server.metrics.text(), CONTENT_TYPE)

    def _send(self, status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


class MetricsServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, run_dir: Path, listening: socket.socket, *, linger_s: float | None = None) -> None:
        """Takes the listening socket. `linger_s`: ends that long after the end of the run; None goes on. Raises
        `CommandError`."""
        self.token = token_of(run_dir)
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.metrics = RunMetrics(run_dir)
        self._linger_s = linger_s
        self._check_at = time.monotonic()
        self._ended_at: float | None = None

    def service_actions(self) -> None:
        """Called between requests, at least every half a second: ends the server after the run."""
        now = time.monotonic()
        if self._linger_s is None or now < self._check_at:
            return
        self._check_at = now + _CHECK_S
        self.metrics.text()
        if self.metrics.ended and self._ended_at is None:
            self._ended_at = now
        if self._ended_at is not None and now >= self._ended_at + self._linger_s:
            self.end()

    def end(self) -> None:
        """Ends `serve_forever`; from another thread, since `shutdown` waits for it."""
        threading.Thread(target=self.shutdown).start()

    @property
    def address(self) -> str:
        return address_of(self.socket)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is no error of the server."""


def listen(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 takes a free one. Raises `OSError`."""
    return socket.create_server((HOST, port))


def address_of(listening: socket.socket) -> str:
    return f"http://{HOST}:{listening.getsockname()[1]}{PATH}"


def how_to_ask(run_dir: Path) -> str:
    """`to requests with the token in runs/demo/metrics-token`."""
    return f"to requests with the token in {inert(str(run_dir / TOKEN_FILE))}"


def serve(server: MetricsServer) -> None:
    """Serves until the server is ended, SIGINT or SIGTERM."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.end()

    try:
        with handling(stop, signal.SIGINT, signal.SIGTERM):
            server.serve_forever()
    finally:
        server.server_close()
        server.metrics.close()


def start_detached(run_dir: Path, listening: socket.socket) -> None:
    """Serves in a process of its own, until `LINGER_S` after the end of the run. Raises `OSError`."""
    argv = [sys.executable, "-P", "-m", "tputui.cli.metrics_server", str(run_dir.resolve())]
    spawn.start_beside(argv, run_dir, listening.fileno())


if __name__ == "__main__":
    serve(MetricsServer(Path(sys.argv[1]), socket.socket(fileno=0), linger_s=LINGER_S))
