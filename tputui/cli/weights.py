"""Which weights a command is about, and the engine command that uses them in a process of its own.

Torch-free: the engine is started by command line, and tells what it does on a pipe (`engine.commands.protocol`).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from tputui.cli.arguments import find_run
from tputui.cli.console import CommandError, narrate
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.supervise import spawn
from tputui.telemetry import rundir
from tputui.versions import missing_sentence

BEST, LAST = "best", "last"
NEEDED = ("torch", "numpy")
"""Packages without which no weights can be read; the runtime is not among them."""


class Chosen(NamedTuple):
    """Weights, and the run that tells what they belong to."""

    path: Path
    run_dir: Path | None
    """None where the file itself has to tell."""

    @property
    def argv(self) -> list[str]:
        """Arguments of an engine command."""
        run = ["--run-dir", str(self.run_dir.resolve())] if self.run_dir is not None else []
        return ["--weights", str(self.path.absolute()), *run]


class EngineMessage(msgspec.Struct, frozen=True):
    """A line of the engine's; one of these is there."""

    rows: int | None = None
    of: int | None = None
    note: str | None = None
    result: dict[str, Any] | None = None
    error: str | None = None


def choose(name: str, which: str | None, parent: Path) -> Chosen:
    """The weights `which` (`best`, `last`, a file) of the run `name`, or those in the file `name`.

    Without `which`: the best, or the last where no best ones were kept. Raises `CommandError`.
    """
    file = Path(name)
    if file.is_file():
        if which is not None:
            raise CommandError(ExitCode.USAGE, f"--weights {inert(which)}: {inert(name)} is a file of weights already")
        return Chosen(file, _run_around(file))
    run_dir = find_run(name, parent)
    if which is not None and which not in (BEST, LAST):
        if not Path(which).is_file():
            raise CommandError(ExitCode.USAGE, f"--weights {inert(which)}: no such file; write best, last or a path")
        return Chosen(Path(which), run_dir)
    wanted = [which] if which else [BEST, LAST]
    for kept in wanted:
        path = run_dir / rundir.CHECKPOINTS / f"{kept}.pt"
        if path.is_file():
            return Chosen(path, run_dir)
    missing = f"no {which} weights" if which else "no weights"
    words = f"{inert(run_dir.name)}: it has {missing}: there is no {inert(str(path))}"
    raise CommandError(ExitCode.USAGE, words)


def ask_engine(module: str, argv: list[str]) -> dict[str, Any]:
    """Runs an engine command to its end, passes on how far it is, and gives its result. Raises `CommandError`.

    Its standard output is this process's. What libraries print is shown only where it breaks.
    """
    if missing := [package for package in NEEDED if not _is_installed(package)]:
        raise CommandError(ExitCode.ENVIRONMENT, missing_sentence(missing))
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as printed, os.fdopen(reading, "rb") as lines:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *argv, "--tell-fd", str(writing)],
                stdin=subprocess.DEVNULL,
                stderr=printed,
                env=spawn.environment(os.environ),
                pass_fds=(writing,),
            )
        finally:
            os.close(writing)
        with process:
            last = _listen(lines)
        if last is not None and last.result is not None and process.returncode == ExitCode.DONE:
            return last.result
        raise _why(last, process.returncode, printed)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _listen(lines: IO[bytes]) -> EngineMessage | None:
    """Passes on what is told while it is, and gives the last line."""
    last: EngineMessage | None = None
    for line in lines:
        last = msgspec.json.decode(line, type=EngineMessage)
        if last.note is not None:
            narrate(inert(last.note))
        elif last.rows is not None:
            narrate(f"{last.rows:,} of {last.of:,} rows")
    return last


def _why(last: EngineMessage | None, returncode: int, printed: IO[bytes]) -> Exception:
    if returncode == ExitCode.DONE:
        # It ended before its result: the reader of its output has enough.
        return BrokenPipeError()
    if last is not None and last.error is not None and returncode == ExitCode.USAGE:
        return CommandError(ExitCode.USAGE, inert(" ".join(last.error.splitlines())))
    printed.seek(0)
    said = printed.read().decode("utf-8", "replace").strip()
    words = inert(last.error) if last is not None and last.error is not None else f"it ended with code {returncode}"
    trace = "\n".join(inert(line) for line in said.splitlines())
    return CommandError(ExitCode.FAILED, f"{words}\n{trace}" if trace else words)


def _run_around(file: Path) -> Path | None:
    """The run in whose directory a file lies."""
    for folder in list(file.absolute().parents)[:2]:
        if rundir.is_run(folder):
            return folder
    return None
