"""Streams one run to a viewer: the loop of `tputui stream`, on the host that has the run.

Reads messages of the viewer from one descriptor and writes frames to another. Polls the run's directory, since the
file systems that hosts share do not report changes. Ends when the viewer closes its end or is silent for too long.
"""

from __future__ import annotations

import os
import select
import socket
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from tputui import __version__
from tputui.remote.address import InvalidAddress, parse_run
from tputui.remote.clock_offset import HostRunTime
from tputui.remote.journal_source import JournalSource, SideFiles, open_source
from tputui.remote.protocol import (
    DATA_BYTES,
    GREETING,
    RUNS_COMMAND,
    SILENCE_S,
    VERSION,
    Data,
    Follow,
    Found,
    Listed,
    Open,
    Opened,
    Packer,
    Ping,
    Pong,
    ProtocolError,
    StreamRefused,
    Submit,
    Submitted,
    ToHost,
    ToViewer,
    ViewerFrames,
    is_writer,
)
from tputui.telemetry import requests, rundir
from tputui.telemetry.files import read_at, write_all
from tputui.telemetry.journal import SUFFIX
from tputui.telemetry.rundir import SEALED_SUFFIX

POLL_S = 0.2
LISTING_S = 2.0
"""Seconds after which a directory is listed although its modification time is the same."""
HEAD_BYTES = 4_096
_READ_BYTES = 64 << 10


def serve(read_fd: int, write_fd: int, clock: Callable[[], float] = time.time) -> None:
    """Serves one viewer. Raises `ProtocolError`, and `BrokenPipeError` if the viewer is gone."""
    write_all(write_fd, GREETING % (VERSION, __version__.encode()))
    inbox, packer = _Inbox(read_fd), Packer()
    opened = inbox.wait_for_open()
    if opened is None:
        return
    try:
        run_dir = _find(opened)
    except (rundir.RunNotFound, InvalidAddress, OSError) as error:
        write_all(write_fd, packer.pack([StreamRefused(reason=_sentence(error))]))
        return
    stream = RunStream(run_dir, summary=opened.summary, clock=clock)
    stream.skip(opened.have)
    greeting = Opened(directory=str(run_dir), host=socket.gethostname())
    write_all(write_fd, packer.pack([greeting]))
    try:
        while (messages := inbox.poll(0.0 if stream.is_busy else POLL_S)) is not None:
            answers = [*stream.answer(messages), *stream.read()]
            if answers:
                write_all(write_fd, packer.pack(answers))
    finally:
        stream.close()


def _find(opened: Open) -> Path:
    """The directory of the run. Raises `RunNotFound`, `InvalidAddress` and `OSError`."""
    if opened.version != VERSION:
        raise InvalidAddress(f"the viewer uses version {opened.version} of the protocol, and this host {VERSION}")
    name = parse_run(opened.run)
    if opened.runs_dir is not None and "\0" in opened.runs_dir:
        raise InvalidAddress("the directory of the runs is not a path")
    run_dir = rundir.find(name, rundir.runs_dir(opened.runs_dir, os.environ))
    if why := rundir.why_shut(run_dir):
        raise InvalidAddress(f"{name}: this run is {why}")
    return run_dir.resolve()


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"the run cannot be read: {error.strerror or error}"
    return str(error).replace("`tputui runs` lists those there are", f"{RUNS_COMMAND} lists its runs")


class _Inbox:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._frames = ViewerFrames()
        self._heard = time.monotonic()
        self._early: list[ToHost] = []

    def poll(self, timeout_s: float) -> list[ToHost] | None:
        """The messages that arrived; None if the viewer is gone. Raises `ProtocolError`."""
        if self._early:
            early, self._early = self._early, []
            return early
        if not select.select([self._fd], [], [], timeout_s)[0]:
            return None if time.monotonic() - self._heard > SILENCE_S else []
        data = os.read(self._fd, _READ_BYTES)
        self._heard = time.monotonic()
        return self._frames.feed(data) if data else None

    def wait_for_open(self) -> Open | None:
        """The first message; None if the viewer is gone. Raises `ProtocolError`."""
        while (messages := self.poll(SILENCE_S)) is not None:
            if not messages:
                continue
            first, *self._early = messages
            if not isinstance(first, Open):
                raise ProtocolError("the first message does not open a run")
            return first
        return None


class RunStream:
    """What a viewer gets of a run."""

    def __init__(self, run_dir: Path, *, summary: bool, clock: Callable[[], float]) -> None:
        self.is_busy = True
        """Whether there may be more to send at once."""
        self._run_dir = run_dir
        self._summary = summary
        self._time = HostRunTime(run_dir, clock)
        self._announced: dict[str, bool] = {}
        """Journals that the viewer knows, and whether they were sealed then."""
        self._sources: dict[str, JournalSource] = {}
        self._listed = (0, 0.0)
        """Modification time of the directory when it was listed, and when that was."""
        self._side_files = SideFiles(run_dir)
        self._is_listed = False

    def skip(self, paths: Iterable[str]) -> None:
        """Does not send small files that the viewer has."""
        for path in paths:
            self._side_files.skip(path)

    def answer(self, messages: list[ToHost]) -> list[ToViewer]:
        """Handles messages of the viewer. Raises `ProtocolError`."""
        answers: list[ToViewer] = []
        for message in messages:
            if isinstance(message, Ping):
                answers.append(Pong(t=message.t, host_t=self._time.now()))
            elif isinstance(message, Submit):
                answers.append(self._submit(message))
            elif isinstance(message, Follow):
                self._follow(message)
            else:
                raise ProtocolError("a run is already open")
        return answers

    def read(self) -> list[ToViewer]:
        """What there is to send now, at most about `DATA_BYTES`, unless an event is longer."""
        files = self._side_files.read()
        answers: list[ToViewer] = [*self._find_journals(), *files]
        if not self._is_listed:
            self._is_listed = True
            answers.append(Listed())
        # A large file and a long line would not fit into one frame.
        room, self.is_busy = DATA_BYTES - sum(len(file.content) for file in files), self._side_files.is_busy
        if room <= 0:
            self.is_busy = True
            return answers
        for writer, source in list(self._sources.items()):
            data = self._read(writer, source)
            if data is None:
                continue
            answers.append(data)
            self.is_busy = self.is_busy or not data.end
            # The next round begins with the journals that had no turn.
            self._sources[writer] = self._sources.pop(writer)
            room -= len(data.data)
            if room <= 0:
                self.is_busy = True
                break
        return answers

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def _read(self, writer: str, source: JournalSource) -> Data | None:
        try:
            return source.read()
        except FileNotFoundError:
            # It was sealed, or removed. The viewer asks for it anew once it was found again.
            self._forget(writer)
        except OSError:
            pass
        return None

    def _forget(self, writer: str) -> None:
        self._drop(writer)
        self._announced.pop(writer, None)
        self._listed = (0, 0.0)

    def _drop(self, writer: str) -> None:
        source = self._sources.pop(writer, None)
        if source is not None:
            source.close()

    def _find_journals(self) -> list[Found]:
        """Journals that the viewer does not know."""
        now = time.monotonic()
        try:
            changed = self._run_dir.stat().st_mtime_ns
            if changed == self._listed[0] and now - self._listed[1] < LISTING_S:
                return []
            self._listed = (changed, now)
            paths = [(writer, path) for writer, path in rundir.journal_paths(self._run_dir) if is_writer(writer)]
        except OSError:
            return []
        journals: list[Found] = []
        for writer, path in paths:
            sealed = path.name.endswith(SEALED_SUFFIX)
            if self._announced.get(writer) == sealed:
                continue
            head_crc = _head_crc(path)
            if head_crc is not None:
                self._drop(writer)
                self._announced[writer] = sealed
                journals.append(Found(writer=writer, head_crc=head_crc, sealed=sealed))
        return journals

    def _follow(self, follow: Follow) -> None:
        if not is_writer(follow.writer):
            raise ProtocolError("a journal has an invalid name")
        self._drop(follow.writer)
        if follow.writer not in self._announced:
            return  # It was removed meanwhile, and is announced again when it is back.
        try:
            self._sources[follow.writer] = open_source(self._run_dir, follow, summary=self._summary)
        except OSError:
            self._forget(follow.writer)
        self.is_busy = True

    def _submit(self, submit: Submit) -> Submitted:
        """Writes a request, once: it may arrive again after the connection was lost, and by several hosts."""
        try:
            request = requests.decode(submit.content)
        except ValueError as error:
            raise ProtocolError(f"a request cannot be read: {error}") from None
        if request.id != submit.id:
            raise ProtocolError("a request has another id than its message")
        self._side_files.skip(f"{rundir.REQUESTS}/{submit.id}.json")
        try:
            requests.pass_on(self._run_dir, request)
        except OSError as error:
            return Submitted(id=submit.id, error=f"the request could not be written: {error.strerror or error}")
        return Submitted(id=submit.id, error=None)


def _head_crc(path: Path) -> int | None:
    """CRC-32 of what a journal begins with; None if it has no complete line yet, or cannot be read."""
    try:
        head = read_at(path, 0, HEAD_BYTES)
    except OSError:
        return None
    if not path.name.endswith(SUFFIX):
        return zlib.crc32(head) if head else None
    line, newline, _ = head.partition(b"\n")
    return zlib.crc32(line) if newline or len(head) == HEAD_BYTES else None
