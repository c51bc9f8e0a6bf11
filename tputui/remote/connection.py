"""One connection to a host: the process of ssh, and the messages that arrive through it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping

from tputui import __version__
from tputui.remote.address import Host
from tputui.remote.protocol import (
    GREETED,
    NOISE_BYTES_MAX,
    SILENCE_S,
    VERSION,
    HostFrames,
    ProtocolError,
    ToHost,
    ToViewer,
    pack,
)
from tputui.remote.ssh_command import CONNECT_TIMEOUT_S, argv_of, failure, not_started

GREETING_S = 30.0 + CONNECT_TIMEOUT_S
_READ_BYTES = 256 << 10
_STDERR_CHARS_MAX = 20_000
_END_S = 2.0


class ConnectionFailed(Exception):
    """There is no connection any more; the message is one sentence that names the host."""


class Connection:
    """A running `tputui stream` on a host. Use `connect`."""

    def __init__(self, host: Host, process: asyncio.subprocess.Process) -> None:
        self.heard = time.time()
        """Unix time at which the host was heard last."""
        self._host = host
        self._process = process
        self._frames = HostFrames()
        self._early = b""
        self._stderr = ""
        self._drain = asyncio.create_task(self._read_stderr())

    @classmethod
    async def connect(cls, host: Host, environ: Mapping[str, str], *, shared: bool) -> Connection:
        """Starts ssh, and waits for the greeting. Raises `ConnectionFailed`."""
        argv = await asyncio.to_thread(argv_of, host, environ, shared=shared)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
                # Ctrl-C in the terminal is for the viewer.
                start_new_session=True,
                limit=_READ_BYTES,
            )
        except OSError as error:
            raise ConnectionFailed(not_started(host, error)) from None
        connection = cls(host, process)
        try:
            await asyncio.wait_for(connection._await_greeting(), GREETING_S)
        except TimeoutError:
            await connection.close()
            raise ConnectionFailed(f"{host}: it did not answer within {GREETING_S:g} s") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    def send(self, message: ToHost) -> None:
        """Sends a message. A lost connection shows when the next one is received."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.write(pack(message))

    async def receive(self) -> list[ToViewer]:
        """The messages of the next frame. Raises `ConnectionFailed`."""
        # The other hosts get their turn also while one has much to send.
        await asyncio.sleep(0)
        try:
            while (messages := self._frames.next_frame()) is None:
                self._frames.feed(await self._read())
        except ProtocolError as error:
            raise ConnectionFailed(f"{self._host}: {error}") from None
        return messages

    async def close(self) -> None:
        self._drain.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        for end in (None, self._process.terminate, self._process.kill):
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                if end is not None:
                    end()
                await asyncio.wait_for(self._process.wait(), _END_S)
                break

    async def _read(self) -> bytes:
        assert self._process.stdout is not None
        data, self._early = self._early, b""
        try:
            data = data or await asyncio.wait_for(self._process.stdout.read(_READ_BYTES), SILENCE_S)
        except TimeoutError:
            raise ConnectionFailed(f"{self._host}: nothing was heard for {SILENCE_S:g} s") from None
        if not data:
            raise await self._failure()
        self.heard = time.time()
        return data

    async def _await_greeting(self) -> None:
        assert self._process.stdout is not None
        noise = b""
        while (greeting := GREETED.search(noise)) is None:
            data = await self._process.stdout.read(_READ_BYTES)
            if not data:
                raise await self._failure()
            noise += data
            if len(noise) > NOISE_BYTES_MAX:
                raise ConnectionFailed(f"{self._host}: the login shell prints too much before tputui starts")
        if int(greeting[1]) != VERSION:
            release = greeting[2].decode()
            raise ConnectionFailed(
                f"{self._host}: tputui {release} there uses version {int(greeting[1])} of the protocol, and tputui "
                f"{__version__} here version {VERSION}: install the same version on both"
            )
        self._early = noise[greeting.end() :]

    async def _failure(self) -> ConnectionFailed:
        """The reason why the host closed the connection."""
        code: int | None = None
        with contextlib.suppress(TimeoutError):
            code = await asyncio.wait_for(self._process.wait(), _END_S)
            # Another process that shares the connection may hold this pipe open.
            await asyncio.wait_for(asyncio.shield(self._drain), _END_S / 10)
        if code == 0:
            return ConnectionFailed(f"{self._host}: the connection was closed")
        return ConnectionFailed(failure(self._host, code, self._stderr))

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4_096):
            self._stderr = (self._stderr + data.decode("utf-8", "replace"))[-_STDERR_CHARS_MAX:]
