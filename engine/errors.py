"""Why the engine refuses to train, in words for a person. Pure."""

from __future__ import annotations

from tputui.check_result import Problem

__all__ = [
    "PEER_LOST",
    "THROUGH",
    "BadExample",
    "BadSource",
    "NotFinite",
    "NotImported",
    "OutOfMemory",
    "PeerLost",
    "Problem",
    "Refused",
    "TooManyBad",
    "Unable",
    "printable",
    "text_of",
]
"""`Problem` is part of the interface of tasks: `Task.problems` returns a list of them."""

TEXT_CHARS_MAX = 32_768
"""An exception's message is cut to this many characters: one can be as long as a printed tensor."""


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
THROUGH = 76
"""Exit code of a rank that trained to its regular end: no code that a user's own `sys.exit` or `os._exit` gives."""


class OutOfMemory(Exception):
    """A step needs more memory than there is; the text is a page: what is big, and what would help."""


class NotFinite(Exception):
    """The loss or the gradient is NaN or infinite, and the configuration says to end then; the text says where it
    began, and what was kept."""


class TaskError(Exception):
    """A task does not return what it must; the text says what is wrong."""


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


def text_of(error: BaseException) -> str:
    """`str(error)`, at most `TEXT_CHARS_MAX` characters, encodable as UTF-8. Never raises, even if `__str__` does."""
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001, RUF100 - any exception class of the user's comes through here
        text = f"(its message is not available: __str__ raised {type(broken).__name__})"
    return printable(text, TEXT_CHARS_MAX)


def printable(text: str, chars_max: int) -> str:
    """The text with its middle cut out beyond `chars_max`, and lone surrogates escaped."""
    if len(text) > chars_max:
        half = chars_max // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters are left out here ...\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()
