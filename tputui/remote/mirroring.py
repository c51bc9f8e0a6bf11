"""Follows a run on its hosts: connects, writes the mirror, sends requests, and connects again after a loss.

Runs in a process of its own, so that unpacking what many hosts send never delays a frame of the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import time
from collections.abc import Mapping

import msgspec

from tputui.formatting import inert
from tputui.remote import link
from tputui.remote.address import Host, RunAddress
from tputui.remote.clock_offset import ClockOffset
from tputui.remote.connection import Connection, ConnectionFailed
from tputui.remote.link import HostLink, Links
from tputui.remote.mirror import Mirror
from tputui.remote.protocol import (
    KEEP_ALIVE_S,
    PROBE_S,
    QUIET_S,
    RUNS_COMMAND,
    VERSION,
    Data,
    File,
    Found,
    Listed,
    Open,
    Opened,
    Ping,
    Pong,
    ProtocolError,
    StreamRefused,
    Submit,
    Submitted,
    ToViewer,
)
from tputui.telemetry import requests, rundir

CONNECTING_MAX = 32
"""Hosts that are connected to at once."""
BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each try to connect again; the last one counts for all later tries."""
STEADY_S = 10.0
"""A connection that lasted so long begins again with the first of them."""
PROBE_POLL_S = 0.5
REQUESTS_POLL_S = 0.2
LINKS_POLL_S = 0.2
CACHE_CPU_SHARE = 0.8
"""Largest share of a CPU core for caching states. A viewer may leave as soon as it has read the run, and what was not
cached until then is read again by the next one."""
RECENT_S = 2.0
"""Younger requests count as not sent when a process takes the place of another one; hosts write each one once."""
DIRECTORY_CHARS_MAX = 4_096
REQUEST_AGE_MAX_S = 600.0
"""A request that could not be sent within this time is dropped: the user would not expect it any more."""


class _HostRun:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.link = HostLink(host=str(host))
        self.connection: Connection | None = None
        self.is_listed = False
        self.behind: set[str] = set()
        """Journals that this host has more of, when it was opened."""
        self.ready = asyncio.Event()
        """Set when the journals of the host are known, or the first connection failed."""
        self.tried = asyncio.Event()
        """Set when everything of the first connection arrived, or it failed."""
        self.was_connected = False
        self.announced: dict[str, tuple[bool, int]] = {}
        """Journals that this host has, also those that are read from another one: whether sealed, and the head."""
        self.unsent: dict[str, tuple[float, Submit]] = {}
        """Requests that the host has not confirmed, with the time at which they were made."""
        self._clock = ClockOffset()
        self._has_answered = False
        """Whether the host has answered a ping, so that its clock is known."""

    def note_connecting(self) -> None:
        """Measures the clock anew, since another process or machine may answer now."""
        self._clock = ClockOffset()

    def note_silence(self, now: float) -> None:
        """Notes since when a connected host was not heard, if it does not answer."""
        if self.connection is not None and self.link.is_connected:
            heard = self.connection.heard
            self.link.heard = heard if now - heard > QUIET_S else None

    def take_pong(self, pong: Pong, now: float) -> None:
        self._has_answered = True
        offset_s = self._clock.measure(pong.t, pong.host_t, now)
        if offset_s is not None:
            # In milliseconds, so that the stored connections do not change with every answer.
            self.link.clock_offset_s = round(offset_s, 3)

    def note_synced(self) -> None:
        """Notes that the mirror has everything that the host had."""
        if self.is_listed:
            self.ready.set()
            # A command that reads the run once needs the clock as well.
            if not self.behind and self._has_answered:
                self.tried.set()


class Mirroring:
    def __init__(self, address: RunAddress, mirror: Mirror, environ: Mapping[str, str], *, summary: bool) -> None:
        self._address = address
        self._mirror = mirror
        self._environ = environ
        self._summary = summary
        self._hosts = [_HostRun(host) for host in address.hosts]
        self._owners: dict[str, _HostRun] = {}
        """The host from which each journal is read."""
        self._slots = asyncio.Semaphore(CONNECTING_MAX)
        self._links = Links(process=rundir.this_process(), address=str(address), hosts=[h.link for h in self._hosts])
        self._stored = b""
        unsent, recent = set(link.unsent_before(mirror.run_dir)), time.time() - RECENT_S
        before = [request for request in requests.read_all(mirror.run_dir) if request.t < recent]
        self._settled_requests = {request.id for request in before if request.id not in unsent}
        """Requests that were sent before, or that others made: they are not sent."""

    async def run(self) -> None:
        """Follows the run until it is cancelled. Raises `MirrorFull` and `OSError`."""
        works = [*map(self._follow_host, self._hosts), self._send_requests(), self._store_links(), self._cache_states()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ready(self) -> None:
        """Waits until the journals of at least one host are known, or no host can be reached."""
        waiting = {asyncio.create_task(host.ready.wait()) for host in self._hosts}
        while waiting and not self.is_reached:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    async def synced(self) -> None:
        """Waits until the mirror has what the hosts had, without those that could not be reached."""
        for host in self._hosts:
            await host.tried.wait()
        self._write_links()

    @property
    def problems(self) -> list[str]:
        """Why hosts are not connected, a sentence each."""
        return [host.link.reason for host in self._hosts if not host.link.is_connected and host.link.reason]

    @property
    def is_reached(self) -> bool:
        """Whether at least one host has the run."""
        return any(host.was_connected and host.ready.is_set() for host in self._hosts)

    def give_up(self, reason: str) -> None:
        """Shows on all viewers why nothing is written any more."""
        for host in self._hosts:
            host.link.state, host.link.reason = "reconnecting", inert(reason)
        self._links.gave_up = True
        with contextlib.suppress(OSError):
            self._write_links()

    async def _follow_host(self, host: _HostRun) -> None:
        num_failed = 0
        while True:
            began = time.monotonic()
            try:
                await self._stay_connected(host)
            except ConnectionFailed as error:
                host.link.reason = inert(str(error))
            finally:
                await self._disconnect(host)
            host.ready.set()
            host.tried.set()
            num_failed = 1 if time.monotonic() - began > STEADY_S else num_failed + 1
            pause_s = BACKOFF_S[min(num_failed, len(BACKOFF_S)) - 1]
            # Many hosts that were lost together do not come back in the same moment.
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))

    async def _stay_connected(self, host: _HostRun) -> None:
        """Connects, and receives until the connection is lost. Raises `ConnectionFailed`."""
        async with self._slots:
            host.link.state = "reconnecting" if host.was_connected else "connecting"
            host.note_connecting()
            shared = len(self._hosts) == 1
            host.connection = connection = await Connection.connect(host.host, self._environ, shared=shared)
        address = self._address
        connection.send(
            Open(
                version=VERSION,
                run=address.run,
                runs_dir=address.runs_dir,
                summary=self._summary,
                have=self._mirror.side_files(),
            )
        )
        keep_alive = asyncio.create_task(_keep_alive(connection))
        try:
            while True:
                for message in await connection.receive():
                    try:
                        self._take(host, connection, message)
                    except ProtocolError as error:
                        raise ConnectionFailed(f"{host.host}: {error}") from None
        finally:
            keep_alive.cancel()

    async def _disconnect(self, host: _HostRun) -> None:
        connection, host.connection = host.connection, None
        host.is_listed = False
        host.behind.clear()
        if host.link.state == "connected" and connection is not None:
            host.link.heard = connection.heard
        host.link.state = "reconnecting" if host.was_connected else "waiting"
        host.announced.clear()
        for writer in [writer for writer, owner in self._owners.items() if owner is host]:
            self._pass_on(writer)
        if connection is not None:
            await connection.close()

    def _pass_on(self, writer: str) -> None:
        """Reads a journal from another host that has it, because the directory is shared."""
        del self._owners[writer]
        for other in self._hosts:
            if writer in other.announced and other.connection is not None:
                self._assign(writer, other)
                other.connection.send(self._mirror.copy_of(writer))
                return

    def _assign(self, writer: str, host: _HostRun) -> None:
        """Reads a journal from a host, over whose connection the host of the run is seen that the journal names."""
        self._owners[writer] = host
        index = _host_index(writer)
        if index is None:
            return
        for other in self._hosts:
            if (other is host) != (index in other.link.indexes):
                other.link.indexes = sorted({*other.link.indexes} ^ {index})

    def _take(self, host: _HostRun, connection: Connection, message: ToViewer) -> None:
        """Handles a message. Raises `ProtocolError`, `ConnectionFailed`, `MirrorFull` and `OSError`."""
        if isinstance(message, Data):
            self._take_data(host, message)
        elif isinstance(message, Found):
            self._take_found(host, connection, message)
        elif isinstance(message, File):
            self._take_file(host, message)
        elif isinstance(message, Pong):
            host.take_pong(message, time.time())
        elif isinstance(message, Submitted):
            host.unsent.pop(message.id, None)
            if message.error is not None:
                host.link.reason = inert(f"{host.host}: {message.error}")
        elif isinstance(message, Opened):
            host.was_connected = True
            host.link.state, host.link.reason, host.link.heard = "connected", None, None
            host.link.directory = message.directory if len(message.directory) <= DIRECTORY_CHARS_MAX else None
            for t, submit in host.unsent.values():
                if time.time() - t < REQUEST_AGE_MAX_S:
                    connection.send(submit)
        elif isinstance(message, StreamRefused):
            raise ConnectionFailed(
                f"{host.host}: {message.reason.replace(RUNS_COMMAND, self._runs_command(host.host))}"
            )
        elif isinstance(message, Listed):
            host.is_listed = True
        host.note_synced()

    def _runs_command(self, host: Host) -> str:
        runs_dir = self._address.runs_dir
        command = ["tputui", "runs", "--host", str(host), *([f"--runs-dir={runs_dir}"] if runs_dir is not None else [])]
        return f"`{shlex.join(command)}`"

    def _take_found(self, host: _HostRun, connection: Connection, journal: Found) -> None:
        copy = self._mirror.copy_of(journal.writer)
        owner = self._owners.get(journal.writer)
        if owner is None:
            self._assign(journal.writer, host)
            owner = host
        host.announced[journal.writer] = head = (journal.sealed, journal.head_crc)
        if owner is not host:
            owner_head = owner.announced.get(journal.writer)
            if owner_head is not None and owner_head[0] == head[0] and owner_head != head:
                raise ConnectionFailed(
                    f"{host.host}: its {journal.writer} is not the one of {owner.host}: "
                    "the two hosts have different runs of this name"
                )
            return
        if not host.is_listed:
            host.behind.add(journal.writer)
        connection.send(copy)

    def _take_data(self, host: _HostRun, data: Data) -> None:
        if self._owners.get(data.writer) is not host:
            return
        self._mirror.write(data)
        if data.end:
            host.behind.discard(data.writer)

    def _take_file(self, host: _HostRun, file: File) -> None:
        if "/" not in file.path and host is not self._first_connected():
            return  # Each host may have a manifest of its own, which differ in the time.
        is_new = self._mirror.write_file(file)
        if is_new and file.path.startswith(f"{rundir.REQUESTS}/"):
            self._settled_requests.add(file.path.removeprefix(f"{rundir.REQUESTS}/").removesuffix(".json"))

    def _first_connected(self) -> _HostRun | None:
        return next((host for host in self._hosts if host.was_connected), None)

    async def _send_requests(self) -> None:
        """Sends the requests that viewers write into the mirror, to every host."""
        inbox = requests.Inbox(self._mirror.run_dir)
        while True:
            for request in inbox.poll():
                if request.id in self._settled_requests:
                    continue
                self._settled_requests.add(request.id)
                if time.time() - request.t > REQUEST_AGE_MAX_S:
                    continue
                submit = Submit(id=request.id, content=msgspec.json.encode(request))
                for host in self._hosts:
                    host.unsent[request.id] = (request.t, submit)
                    if host.connection is not None and host.link.is_connected:
                        host.connection.send(submit)
            await asyncio.sleep(REQUESTS_POLL_S)

    async def _cache_states(self) -> None:
        """Caches states of the copies, so that the next viewer need not read them from the start.

        In a thread, in slices of a few milliseconds, and only once the viewer has what there was. Files of the host
        would be untrusted.
        """
        await self.synced()
        # Imported here so that the connection need not wait for it.
        from tputui.cache.cache_writer import CacheWriter

        cache_writer = CacheWriter(self._mirror.run_dir, cpu_share=CACHE_CPU_SHARE, of_copies=True)
        while True:
            await asyncio.sleep(await asyncio.to_thread(cache_writer.poll))

    async def _store_links(self) -> None:
        while True:
            self._write_links()
            await asyncio.sleep(LINKS_POLL_S)

    def _write_links(self) -> None:
        now = time.time()
        for host in self._hosts:
            host.note_silence(now)
        # Hosts that cannot be reached must not hold up those that can.
        behind = any(host.link.is_connected and not host.tried.is_set() for host in self._hosts)
        self._links.synced = self._links.synced or (self.is_reached and not behind)
        self._links.unsent = sorted({request_id for host in self._hosts for request_id in host.unsent})
        encoded = msgspec.json.encode(self._links)
        if encoded != self._stored:
            self._stored = encoded
            link.write(self._mirror.run_dir, self._links)


async def _keep_alive(connection: Connection) -> None:
    """Pings now and then, and soon after nothing was heard: only the answer shows that the run is silent, and not the
    connection."""
    pause_s = 0.0
    while True:
        if pause_s >= KEEP_ALIVE_S or (pause_s >= PROBE_S and time.time() - connection.heard >= PROBE_S) or not pause_s:
            connection.send(Ping(t=time.time()))
            pause_s = 0.0
        await asyncio.sleep(PROBE_POLL_S)
        pause_s += PROBE_POLL_S


def _host_index(writer: str) -> int | None:
    """The number of the host that a journal names; ranks and observers do not."""
    role, _, index = writer.rpartition("-")
    return int(index) if role in ("supervisor", "worker", "logs") else None
