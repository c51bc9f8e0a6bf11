"""What the commands exit with: one documented place."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `tputui` command."""

    DONE = 0
    """The command did what was asked; of `run`: every epoch was trained."""
    DAMAGED = 1
    """`check`: the run's journals are damaged. `doctor`: something stands in the way of training here. `data`: what was
    downloaded is not what was expected."""
    USAGE = 2
    """The command line or the configuration cannot be used; nothing was started."""
    FAILED = 3
    """Training failed."""
    STOPPED = 4
    """Training was stopped on request."""
    LOST = 5
    """The run's processes are gone and left no end record."""
    UNANSWERED = 6
    """`stop`, `checkpoint`: no receipt came in time; the request stands."""
    ENVIRONMENT = 7
    """This machine cannot run it: no torch_xla, versions that do not fit, a device that is taken. `data`: no network,
    or a tool or package is missing."""
    BROKEN = 70
    """`tputui` itself broke; the traceback is on stderr and nothing is known to be wrong with the run."""
    INTERRUPTED = 130
    """Ctrl-C ended the command before it was through, as shells count it."""
