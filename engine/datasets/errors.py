"""Why a set cannot be had, in one sentence for a person. Pure."""

from __future__ import annotations

from tputui.exit_codes import ExitCode


class CannotFetch(Exception):
    """A set cannot be had; the text is one sentence, `code` what the command exits with."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class ToolFailed(CannotFetch):
    """A package manager is missing or could not download: an optional package is then left out."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.ENVIRONMENT, message)
