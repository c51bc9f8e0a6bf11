"""Exceptions of the engine, with messages for the user."""

from __future__ import annotations

from tputui.check_result import Problem

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
    "printable",
    "text_of",
]
"""`Problem` is part of the task interface: `Task.problems` returns a list of them."""

TEXT_CHARS_MAX = 32_768
"""Maximum length of a reported exception message: it may contain a whole printed tensor."""


class Refused(Exception):
    """The configuration or the checkpoint cannot be used; nothing was trained."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.sentence for problem in problems))
        self.problems = problems


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


def one_line(error: BaseException) -> str:
    """An exception of user code in one line: its type, and the first line of its message."""
    lines = text_of(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def text_of(error: BaseException) -> str:
    """`str(error)`, at most `TEXT_CHARS_MAX` characters, encodable as UTF-8. Never raises, even if `__str__` does."""
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001, RUF100 - any exception class of the user's comes through here
        text = f"(its message is not available: __str__ raised {type(broken).__name__})"
    return printable(text, TEXT_CHARS_MAX)


def printable(text: str, chars_max: int) -> str:
    """The text, shortened in the middle to `chars_max` characters, with lone surrogates escaped."""
    if len(text) > chars_max:
        half = chars_max // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters omitted ...\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()
