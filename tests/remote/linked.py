"""The two sides of a stream in one process, without ssh: what the host would send is written to a mirror."""

from __future__ import annotations

import shutil
from pathlib import Path

from tputui.remote import protocol as p
from tputui.remote.mirror import Mirror
from tputui.remote.stream_server import RunStream


class Linked:
    """A mirror of a run, by a connection that can be cut."""

    def __init__(self, run_dir: Path, mirror_dir: Path, *, summary: bool = False) -> None:
        self.mirror_dir = mirror_dir
        self.received: list[p.Data] = []
        """The parts of journals since the connection began."""
        self._stream = RunStream(run_dir, summary=summary, clock=lambda: 1.0)
        self._mirror = Mirror(mirror_dir)
        self._stream.skip(self._mirror.side_files())
        self.read_bytes: list[int] = []
        """Bytes of files and journals that were sent at once."""
        self.files: list[str] = []
        """The small files that were sent since then."""

    def pump(self) -> None:
        """Moves everything that the run has."""
        waiting: list[p.ToHost] = []
        while True:
            messages = [*self._stream.answer(waiting), *self._stream.read()]
            self.read_bytes.append(
                sum(
                    len(sent.data if isinstance(sent, p.Data) else sent.content)
                    for sent in messages
                    if isinstance(sent, p.Data | p.File)
                )
            )
            waiting = []
            for message in messages:
                if isinstance(message, p.Found):
                    waiting.append(self._mirror.copy_of(message.writer))
                elif isinstance(message, p.Data):
                    self.received.append(message)
                    self._mirror.write(message)
                elif isinstance(message, p.File):
                    self.files.append(message.path)
                    self._mirror.write_file(message)
            if not waiting and not self._stream.is_busy and not messages:
                return

    def cut(self) -> None:
        """EndingTask the connection; the mirror stays."""
        self._stream.close()


def equal_journals(left: Path, right: Path) -> bool:
    """Whether two run directories have the same bytes in the same journals."""
    journals = [
        {path.name: path.read_bytes() for path in run_dir.iterdir() if ".jsonl" in path.name}
        for run_dir in (left, right)
    ]
    return journals[0] == journals[1] != {}


def copied(run_dir: Path, to: Path) -> Path:
    """A copy of a run."""
    shutil.copytree(run_dir, to)
    return to
