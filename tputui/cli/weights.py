"""Finds the weights of a run and runs the engine commands that use them; `tputui export`.

Imports no torch: the engine runs in its own process and reports its progress on a pipe (`engine.commands.protocol`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from tputui import formatting as fmt
from tputui.cli.arguments import find_run, parent_of
from tputui.cli.console import CommandError, narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.environment import missing_sentence
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.supervise import spawn
from tputui.telemetry import rundir

EXPORT_DESCRIPTION = """Writes the weights of a run as a plain state dict, for
torch.load(FILE, weights_only=True) and load_state_dict, or as .safetensors if that package is installed. The file is
read back and compared. A JSON file beside it (weights.json for weights.pt) describes what the weights belong to;
`tputui predict FILE INPUT` needs only these two files."""
EXPORT_CODES = exit_codes(
    DONE="written, read back and compared",
    USAGE="no such run, no weights, no such directory, or an existing file that export did not write",
    ENVIRONMENT="torch or numpy is not installed",
)
EXPORT_NAME = "weights.pt"

BEST, LAST = "best", "last"
NEEDED = ("torch", "numpy")
"""Packages that are required to read weights; torch_xla is not."""


class ChosenWeights(NamedTuple):
    """A weights file and its run."""

    path: Path
    run_dir: Path | None
    """None if the file itself must describe its task."""

    @property
    def argv(self) -> list[str]:
        """The arguments of an engine command for these weights."""
        run = ["--run-dir", str(self.run_dir.resolve())] if self.run_dir is not None else []
        return ["--weights", str(self.path.absolute()), *run]


class EngineMessage(msgspec.Struct, frozen=True):
    """A message of the engine: progress, a note, the result or an error."""

    rows: int | None = None
    of: int | None = None
    note: str | None = None
    result: dict[str, Any] | None = None
    error: str | None = None


def choose(name: str, which: str | None, parent: Path) -> ChosenWeights:
    """The weights `which` (`best`, `last` or a file) of the run `name`, or the weights file `name`.

    Without `which`: the best, or the last if there are no best ones. Raises `CommandError`.
    """
    file = Path(name)
    if file.is_file():
        if which is not None:
            raise CommandError(ExitCode.USAGE, f"--weights {inert(which)}: {inert(name)} is already a weights file")
        return ChosenWeights(file, _run_around(file))
    run_dir = find_run(name, parent)
    if which is not None and which not in (BEST, LAST):
        if not Path(which).is_file():
            raise CommandError(ExitCode.USAGE, f"--weights {inert(which)}: no such file; use best, last or a path")
        return ChosenWeights(Path(which), run_dir)
    wanted = [which] if which else [BEST, LAST]
    for kind in wanted:
        path = run_dir / rundir.CHECKPOINTS / f"{kind}.pt"
        if path.is_file():
            return ChosenWeights(path, run_dir)
    missing = f"no {which} weights" if which else "no weights"
    words = f"{inert(run_dir.name)}: the run has {missing}: {inert(str(path))} does not exist"
    raise CommandError(ExitCode.USAGE, words)


def run_engine(module: str, argv: list[str]) -> dict[str, Any]:
    """Runs an engine command, shows its progress, and returns its result. Raises `CommandError`.

    The command shares the stdout of this process. Output of libraries is shown only if the command fails.
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
            last = _relay_messages(lines)
        if last is not None and last.result is not None and process.returncode == ExitCode.DONE:
            return last.result
        raise _error_of(last, process.returncode, printed)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _relay_messages(lines: IO[bytes]) -> EngineMessage | None:
    """Shows messages as they arrive; returns the last one."""
    last: EngineMessage | None = None
    for line in lines:
        last = msgspec.json.decode(line, type=EngineMessage)
        if last.note is not None:
            narrate(inert(last.note))
        elif last.rows is not None:
            narrate(f"{last.rows:,} of {last.of:,} rows")
    return last


def _error_of(last: EngineMessage | None, returncode: int, printed: IO[bytes]) -> Exception:
    if returncode == ExitCode.DONE:
        # It ended before its result because the reader of stdout is gone.
        return BrokenPipeError()
    if last is not None and last.error is not None and returncode == ExitCode.USAGE:
        return CommandError(ExitCode.USAGE, inert(" ".join(last.error.splitlines())))
    printed.seek(0)
    output = printed.read().decode("utf-8", "replace").strip()
    words = inert(last.error) if last is not None and last.error is not None else f"it ended with code {returncode}"
    trace = "\n".join(inert(line) for line in output.splitlines())
    return CommandError(ExitCode.FAILED, f"{words}\n{trace}" if trace else words)


def _run_around(file: Path) -> Path | None:
    """The run whose directory contains a file; None if there is none."""
    for folder in list(file.absolute().parents)[:2]:
        if rundir.is_run(folder):
            return folder
    return None


def _add_export_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="name or directory of a run, or a checkpoint file")
    parser.add_option("--weights", metavar="best|last|PATH", help="which weights of the run (default best, else last)")
    parser.add_option("--to", metavar="FILE", help=f"file to write (default {EXPORT_NAME} in the run directory)")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def _export(args: argparse.Namespace) -> ExitCode:
    chosen = choose(args.run, args.weights, parent_of(args))
    folder = chosen.run_dir if chosen.run_dir is not None else chosen.path.absolute().parent
    to = Path(args.to).absolute() if args.to else folder.absolute() / EXPORT_NAME
    result = run_engine("engine.commands.export", [*chosen.argv, "--to", str(to)])
    if args.json:
        say_json(result, indent=2)
        return ExitCode.DONE
    made = f" of step {result['step']}" if result["step"] is not None else ""
    size = f"{fmt.size(result['bytes'])}, {fmt.count(result['tensors'])} tensors"
    say(fmt.inert(f"{result['path']}: the weights{made} ({size}), read back and compared"))
    return ExitCode.DONE


COMMANDS = {"export": Command(EXPORT_DESCRIPTION, EXPORT_CODES, _add_export_arguments, _export)}
