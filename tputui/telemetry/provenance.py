"""Where a run comes from: host, versions of the software, and the git commit of the working directory.

Recorded once, before the run starts. Never raises: what cannot be found out is recorded as unknown, with the reason.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tputui import __version__
from tputui.environment import installed
from tputui.telemetry import redaction
from tputui.telemetry.origin import GitState, Provenance

GIT_TIMEOUT_S = 2.0
"""Seconds that all git commands together may take."""
NO_REPOSITORY = "not a git repository"
_PACKAGES = ("torch", "torch_xla")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_TEXT_MAX = 256
"""Maximum number of characters of a branch name or a reason."""
_OPTIONS = ("--no-optional-locks", "-c", "core.fsmonitor=false")
"""No files are written to the repository, and no program that its configuration names as a monitor is started."""


def collect(directory: Path) -> Provenance:
    """The provenance of a run that is started now with `directory` as its working directory."""
    return Provenance(host=socket.gethostname(), versions=versions(), git=git_state(directory))


def versions() -> dict[str, str | None]:
    """Versions of Python, tputui, torch and torch_xla by name, from package metadata; None if not installed."""
    base_versions: dict[str, str | None] = {"python": sys.version.partition(" ")[0], "tputui": __version__}
    return base_versions | {package: installed(package) for package in _PACKAGES}


def git_state(directory: Path, environ: Mapping[str, str] = os.environ) -> GitState:
    """The git commit checked out in a directory. Variables such as `GIT_DIR` in `environ` are respected."""
    deadline = time.monotonic() + GIT_TIMEOUT_S
    try:
        head = run_git(["rev-parse", "HEAD", "--abbrev-ref", "HEAD"], directory, environ, deadline)
    except (OSError, subprocess.TimeoutExpired) as error:
        return GitState(why=git_problem(error, directory, GIT_TIMEOUT_S))
    if head.returncode:
        return GitState(why=_reason(head.stderr))
    commit, _, branch = head.stdout.strip().partition("\n")
    if not _COMMIT.fullmatch(commit):
        return GitState(why="git printed no commit id")
    dirty, why = _dirty(directory, environ, deadline)
    return GitState(commit=commit, branch=None if branch in ("", "HEAD") else _shown(branch), dirty=dirty, why=why)


def _dirty(directory: Path, environ: Mapping[str, str], deadline: float) -> tuple[bool | None, str | None]:
    """Whether tracked files were changed; None with the reason if unknown."""
    try:
        status = run_git(
            ["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty"],
            directory,
            environ,
            deadline,
        )
    except subprocess.TimeoutExpired:
        return None, f"git did not compare the files within {GIT_TIMEOUT_S:g} s"
    except OSError as error:
        return None, _not_started(error)
    return (None, _reason(status.stderr)) if status.returncode else (bool(status.stdout), None)


def run_git(
    arguments: Sequence[str], directory: Path, environ: Mapping[str, str], deadline: float
) -> subprocess.CompletedProcess[str]:
    """Runs git. Raises `OSError` if it cannot be started, and `subprocess.TimeoutExpired`."""
    # Messages are matched below. A partial clone must not fetch what it lacks.
    env = {**environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        ["git", *_OPTIONS, *arguments],
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=max(deadline - time.monotonic(), 0.0),
        check=False,
    )


def _may_be_repository(directory: Path) -> bool:
    return any(os.path.lexists(folder / ".git") for folder in (directory, *directory.absolute().parents))


def git_problem(error: OSError | subprocess.TimeoutExpired | str, directory: Path, timeout_s: float) -> str:
    """Why git gave no answer: it could not be started, took too long, or printed this error."""
    if isinstance(error, str):
        return _reason(error)
    if isinstance(error, subprocess.TimeoutExpired):
        return f"git did not answer within {timeout_s:g} s"
    return _not_started(error) if _may_be_repository(directory) else NO_REPOSITORY


def _not_started(error: OSError) -> str:
    missing = isinstance(error, FileNotFoundError)
    return "git is not installed" if missing else f"git cannot be started: {error.strerror or error}"


def _reason(stderr: str) -> str:
    """Why git failed, from its messages."""
    if NO_REPOSITORY in stderr.lower():
        return NO_REPOSITORY
    if "ambiguous argument 'HEAD'" in stderr:
        return "no commit yet"
    lines = stderr.strip().splitlines()
    return _shown(f"git failed: {lines[0]}" if lines else "git failed")


def _shown(text: str) -> str:
    return redaction.masked_text(text)[:_TEXT_MAX]
