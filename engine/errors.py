"""Why the engine refuses to train, in words for a person. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """A value that cannot be used."""

    key: str
    """Where it stands in the configuration, such as `device.cores`."""
    message: str
    """One sentence: what is wrong, and what would do."""

    @property
    def sentence(self) -> str:
        """The problem with its key."""
        return f"{self.key}: {self.message}" if self.key else self.message


class Refused(Exception):
    """The configuration or the checkpoint cannot be used; nothing was trained."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.sentence for problem in problems))
        self.problems = problems


class NotImported(Refused):
    """A module of the user's that the configuration names does not import; its own error is the cause."""


class BadSource(ValueError):
    """The user's files, or the keys that name them, cannot be used; the text is one sentence in the user's words."""


class Unable(Exception):
    """This machine cannot train: no torch_xla, versions that do not fit, a device that is taken."""


class PeerLost(Exception):
    """Another process of the run is gone, and this one cannot go on; why that one went, it or its parent tells."""


PEER_LOST = 75
"""Exit code of a process whose end is another one's fault."""


class OutOfMemory(Exception):
    """A step needs more memory than there is; the text is a page: what is big, and what would help."""


class NotFinite(Exception):
    """The loss or the gradient is NaN or infinite, and the configuration says to end then; the text says where it
    began, and what was kept."""


class TooManyBad(Exception):
    """More examples cannot be used than may be left out; the text names the last one."""


class BadExample(Exception):
    """One example cannot be used: an unreadable image, a missing file, a label out of range."""

    def __init__(self, index: int, where: str, why: str) -> None:
        """`index` is its place in the dataset, `where` names row and column, `why` says what is wrong."""
        super().__init__(f"{where}: {why}")
        self.index = index
        self.where = where
        self.why = why
