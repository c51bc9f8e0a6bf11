"""The command that a supervisor starts: its words, environment and directory, and what it promises.

A command of the user goes to the supervisor through its standard input, because the manifest of the run has secrets
masked, and because the supervisor's own environment differs from the user's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import IO, NamedTuple

import msgspec

BYTES_MAX = 16 << 20
AUTOLOAD_VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""With any value but `1`, `import torch` does not call the entry points of other packages."""


class RunCommand(NamedTuple):
    """What to execute: the engine, or any command of the user."""

    words: list[str]
    environ: dict[str, str]
    """Its whole environment."""
    cwd: str
    """Its working directory; empty for that of the supervisor."""
    writer: str | None = None
    """Name of the journal in which it promises to report everything, also how it ended, and to answer every request, as
    the engine does. None if it may report nothing: then the supervisor reads its output and logs, answers requests in
    its place, and judges it by its exit code."""

    @property
    def who(self) -> str:
        """What sentences call it."""
        return "the training process" if self.writer else "the command"

    def as_file(self) -> IO[bytes]:
        """An open file that contains the command, for the standard input of a supervisor; it has no name on disk."""
        file = tempfile.TemporaryFile()  # noqa: SIM115, RUF100 - the caller closes it
        environ = [[_spelt(name), _spelt(value)] for name, value in self.environ.items()]
        file.write(msgspec.json.encode([[_spelt(word) for word in self.words], environ, _spelt(self.cwd)]))
        file.seek(0)
        return file


def read_command(file: IO[bytes]) -> RunCommand:
    """The command that `as_file` wrote. Raises `ValueError`."""
    content = file.read(BYTES_MAX)
    arguments, environ, cwd = msgspec.json.decode(content, type=tuple[list[str], list[tuple[str, str]], str])
    pairs = {_original(name): _original(value) for name, value in environ}
    return RunCommand([_original(word) for word in arguments], pairs, _original(cwd))


def environment(base: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command: `base`, then its `own` variables; its output is not buffered unless they say so."""
    return {"PYTHONUNBUFFERED": "1", **base, **own}


def unobserved_reason(environ: Mapping[str, str]) -> str | None:
    """Why torch does not load the observers in a command with this environment; None if it does."""
    value = environ.get(AUTOLOAD_VARIABLE, "1")
    if value == "1":
        return None
    return (
        f"{AUTOLOAD_VARIABLE} is {value!r} in the environment of the command, so torch loads no extensions: "
        "compilations, reads and fallbacks are observed only if the script calls tputui.start()"
    )


def _spelt(text: str) -> str:
    """Text of the operating system, which need not be valid UTF-8, as text that is."""
    return os.fsencode(text).decode("latin-1")


def _original(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))
