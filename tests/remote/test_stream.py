"""`tputui stream` as ssh starts it, without ssh."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tputui import __version__
from tputui.remote import protocol as p

TIMES = 10_000


class Host:
    """A process that streams; the test is the viewer."""

    def __init__(self, runs: Path, prefix: Sequence[str] = ()) -> None:
        words = [*prefix, sys.executable, "-P", "-m", "tputui", "stream"]
        self.process = subprocess.Popen(
            words,
            env={**os.environ, "TPUTUI_RUNS": str(runs)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._frames = p.HostFrames()

    def send(self, *data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(data))
        self.process.stdin.flush()

    def greeting(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def receive(self, kind: type[p.Message]) -> list[p.ToViewer]:
        """The messages up to the first of a kind."""
        assert self.process.stdout is not None
        messages: list[p.ToViewer] = []
        for _ in range(TIMES):
            self._frames.feed(os.read(self.process.stdout.fileno(), 65_536))
            while (frame := self._frames.next_frame()) is not None:
                messages += frame
            if any(isinstance(message, kind) for message in messages):
                break
        return messages

    def left(self) -> tuple[int, str]:
        """The exit code and stderr, after the viewer has left."""
        _, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, err.decode()


def opening(run: str, version: int = p.VERSION) -> bytes:
    return p.pack(p.Open(version=version, run=run, runs_dir=None, summary=False, have=[]))


def test_a_viewer_gets_the_run_and_the_time_and_leaves(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    host = Host(tmp_path)
    assert host.greeting() == f"tputui-stream {p.VERSION} {__version__}\n".encode()
    host.send(opening("digits-1"), p.pack(p.Ping(t=7.0)))
    messages = host.receive(p.Listed)
    assert isinstance(messages[0], p.Opened)
    assert messages[0].directory == str(run_dir)
    [pong] = [message for message in messages if isinstance(message, p.Pong)]
    assert pong.t == 7.0
    assert {message.writer for message in messages if isinstance(message, p.Found)} == {"worker-0", "supervisor-0"}
    assert [message.path for message in messages if isinstance(message, p.File)] == ["run.json"]
    assert host.left() == (0, "")


@pytest.mark.parametrize(
    ("run", "version", "reason"),
    [
        ("other", p.VERSION, "no such run"),
        ("../digits-1", p.VERSION, "neither the name of a run nor an absolute path"),
        ("digits-1", 99, "the viewer uses version 99 of the protocol"),
    ],
)
def test_a_run_that_cannot_be_streamed_is_refused(tmp_path: Path, run: str, version: int, reason: str) -> None:
    recorded.write_run(tmp_path)
    host = Host(tmp_path)
    host.greeting()
    host.send(opening(run, version))
    [refused] = host.receive(p.StreamRefused)
    assert isinstance(refused, p.StreamRefused)
    assert reason in refused.reason
    assert host.left()[0] == 0


def test_a_summary_of_more_journals_than_the_usual_limit_of_open_files(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    for number in range(1, 60):
        recorded.write_journal(run_dir / f"rank-{number}.jsonl", [recorded.opened(recorded.T0, "rank")])
    host = Host(tmp_path, ("sh", "-c", 'ulimit -Sn 40; exec "$@"', "sh"))
    host.greeting()
    host.send(p.pack(p.Open(version=p.VERSION, run="digits-1", runs_dir=None, summary=True, have=[])))
    writers = [message.writer for message in host.receive(p.Listed) if isinstance(message, p.Found)]
    assert len(writers) == 61
    for writer in writers:
        nothing = p.Follow(writer=writer, form="none", size=0, head_crc=0, tail_crc=0, next_seq=0, journal_id="")
        host.send(p.pack(nothing))
    host.send(p.pack(p.Ping(t=7.0)))
    sent = {message.writer for message in host.receive(p.Pong) if isinstance(message, p.Data)}
    while len(sent) < len(writers):
        more = {message.writer for message in host.receive(p.Data) if isinstance(message, p.Data)}
        assert more
        sent |= more
    assert host.left() == (0, "")


def test_what_is_no_viewer_ends_the_stream_with_a_sentence(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.send(b"GET / HTTP/1.1\r\n\r\n")
    code, err = host.left()
    assert code == 2
    assert err.startswith("tputui: stream: a message of ")
    assert len(err.splitlines()) == 1
