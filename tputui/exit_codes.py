"""The exit codes of all commands."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `tputui` command."""

    DONE = 0
    """Success; for `run`: every epoch was trained, or the command succeeded."""
    DAMAGED = 1
    """`check`: the run is damaged. `doctor`: this machine cannot train, or the run has findings.
    `rehearse`: the program has findings, with `--baseline` new ones. `compare`: a limit is exceeded. `data`: the
    download is not as expected."""
    USAGE = 2
    """The command line or the configuration is not valid; nothing was started."""
    FAILED = 3
    """Training, or the command of the user, failed."""
    STOPPED = 4
    """The run was stopped on request."""
    LOST = 5
    """The processes of the run died, and none reported how the run ended."""
    UNANSWERED = 6
    """`stop`, `checkpoint`, `stacks`: no answer in time; the request remains pending. `wait`: the time is over, or the
    condition can no longer hold. `alert test`: not delivered. `show --follow`: no change in time. `compare`: a limit
    cannot be decided."""
    ENVIRONMENT = 7
    """This machine cannot train: no torch_xla, wrong versions, or the device is in use. `run` on several hosts: not all
    have joined. `data`: no network, or a missing tool or package."""
    BROKEN = 70
    """A bug in `tputui`; the traceback is on stderr. The run is not affected."""
    INTERRUPTED = 130
    """Ctrl-C ended the command."""
