"""Exceptions of the engine, with messages for the user."""

from __future__ import annotations

from typing import Self

from tputui.engine_api import Problem

__all__ = [
    "PEER_LOST",
    "RANK_FINISHED",
    "BadExample",
    "BadSource",
    "NotFinite",
    "NotImported",
    "OutOfMemory",
    "PeerLost",
    "Problem",
    "Refused",
    "Stopped",
    "TooManyBad",
    "Unable",
]
"""`Problem` is part of the task interface: `Task.problems` returns a list of them."""


class Refused(Exception):
    """The configuration or the checkpoint cannot be used; nothing was trained."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.sentence for problem in problems))
        self.problems = problems

    @classmethod
    def of(cls, key: str, message: str) -> Self:
        """With one problem."""
        return cls([Problem(key, message)])


class NotImported(Refused):
    """A user module named in the configuration cannot be imported; its own error is the cause."""


class BadSource(ValueError):
    """The user's files, or the keys that name them, cannot be used; the text is one sentence for the user."""


class Unable(Exception):
    """This machine cannot train: torch_xla is missing, versions do not match, or a device is in use."""


class PeerLost(Exception):
    """Another process of the run has ended, and this one cannot continue. The process that ended first reports why."""


PEER_LOST = 75
"""Exit code of a process that ended because of another process."""
RANK_FINISHED = 76
"""Exit code of a rank that finished training; unlikely to be used by a user's own `sys.exit` or `os._exit`."""


class OutOfMemory(Exception):
    """A step needs more memory than available; the text is a page with the biggest parts and possible remedies."""


class Stopped(Exception):
    """Training ended on request; the text says where."""


class NotFinite(Exception):
    """The loss or the gradient is NaN or infinite, and the configuration ends the run then; the text says where it
    began and what was saved."""


class TaskError(Exception):
    """A task returned an invalid result; the text says what is wrong."""


class TooManyBad(Exception):
    """More examples cannot be used than may be left out; the text names the last one."""


class BadExample(Exception):
    """One example cannot be used: an unreadable image, a missing file, a label out of range."""

    def __init__(self, index: int, where: str, why: str) -> None:
        """`index` is its index in the dataset, `where` names row and column, `why` is the reason."""
        super().__init__(f"{where}: {why}")
        self.index = index
        self.where = where
        self.why = why
