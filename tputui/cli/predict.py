"""`tputui predict`, and the weights of `tputui export`.

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
from tputui.cli.arguments import find_local_run, parent_of
from tputui.cli.console import CommandError, UsageError, narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes, positive_int
from tputui.environment import missing_sentence
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.supervise import spawn
from tputui.telemetry import rundir

DESCRIPTION = """Predicts on the CPU with the weights of a run, in a process that needs neither a TPU nor torch_xla,
with any batch size. INPUT is a file with examples, for some tasks also a folder of files; --split uses the examples of
the run instead. Writes one row per example, with its id or file name if it has one. If the examples have labels,
prints the meters and scores of validation over all of them; else "No labels in input: metrics skipped". An output file
ending in .npz gets the raw predictions as arrays. For a LightningModule, --split valid and --split test print the
values that its validation_step and test_step log, and write no rows."""
EXIT_CODES = exit_codes(
    DONE="predicted, and the file is complete",
    USAGE="no such run or file, no weights, an unsuitable file, or an existing output",
    FAILED="the code of the task failed",
    ENVIRONMENT="torch or numpy is not installed",
)
STDOUT = "-"
SPLITS = ("train", "valid", "test")
BATCH = 64
FORMS = {".npz": "npz", ".jsonl": "jsonl"}
EXPORT_NAME = "weights.pt"
WEIGHTS_SUFFIXES = (".pt", ".pth", ".bin", ".safetensors")
"""Ends of the names of files of weights that `tputui export` writes."""

BEST, LAST = "best", "last"
NEEDED = ("torch", "numpy")
"""Packages that are required to read weights; torch_xla is not."""


def _add_predict_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN_OR_WEIGHTS", help="name or directory of a run, or a weights file")
    parser.add_argument("input", metavar="INPUT", nargs="?", help="file or folder of examples")
    parser.add_option("--split", choices=SPLITS, help="predict examples of the run instead of INPUT")
    parser.add_option("--labels", metavar="FILE", help="labels of a .npy INPUT, also as .npy")
    parser.add_option("--weights", metavar="best|last|PATH", help="which weights of the run (default best, else last)")
    parser.add_option("--out", metavar="FILE", help="file to write (default predictions.csv); - for stdout")
    parser.add_option("--force", action="store_true", help="overwrite the file if it exists")
    parser.add_option("--batch", type=positive_int, default=BATCH, metavar="N", help=f"batch size (default {BATCH})")
    parser.add_option(
        "--code",
        metavar="DIR",
        help="folder of the task's code (default the current one; required with a weights file)",
    )
    parser.add_option("--json", action="store_true", help="write rows as JSON lines, and print one JSON object")


def _predict(args: argparse.Namespace) -> ExitCode:
    if (args.input is None) == (args.split is None):
        both = "either INPUT or --split, not both" if args.input is not None else "INPUT, or --split valid"
        raise UsageError(f"predict: give {both}")
    chosen = choose(args.run, args.weights, parent_of(args))
    if args.labels is not None and args.input is None:
        raise UsageError("--labels is for INPUT; the examples of the run already have labels")
    examples = ["--split", args.split] if args.split else ["--input", str(_existing(args.input))]
    arguments = [*chosen.argv, *examples, "--form", _form(args.out, as_json=args.json), "--batch", str(args.batch)]
    arguments += ["--labels", str(_existing(args.labels))] if args.labels is not None else []
    arguments += ["--code", args.code] if args.code is not None else []
    arguments += ["--out", args.out] if args.out is not None else []
    arguments += ["--force"] if args.force else []
    _print(run_engine("engine.commands.predict", arguments), to_stdout=args.out == STDOUT, as_json=args.json)
    return ExitCode.DONE


def _form(out: str | None, *, as_json: bool) -> str:
    return FORMS.get(Path(out or "").suffix, "jsonl" if as_json else "csv")


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise UsageError(f"{fmt.inert(name)}: no such file")
    return path.absolute()


def _print(result: dict[str, Any], *, to_stdout: bool, as_json: bool) -> None:
    """Prints the result on stdout, or on stderr if the rows are on stdout."""
    if as_json and not to_stdout:
        say_json(result, indent=2)
        return
    put = narrate if to_stdout else say
    for line in _lines(result):
        put(fmt.inert(line))


def _lines(result: dict[str, Any]) -> list[str]:
    made = f" of step {result['step']}" if result["step"] is not None else ""
    where = "" if result["out"] in (STDOUT, None) else f", written to {result['out']}"
    took = fmt.duration(result["seconds"])
    unit = "rows" if result["out"] is not None else "examples"
    count = f"{fmt.count(result['rows'])} {unit}" if result["rows"] is not None else result["of"]
    lines = [f"{count} in {took} on the CPU{where}", f"weights{made}: {result['weights']}"]
    if result["figures"]:
        lines.append(_figures(result["figures"]))
    elif result["figures_reason"]:
        lines.append(result["figures_reason"])
    if result["own_figure"]:
        own = _figures(result["own_figure"])
        inexact = f" (in {result['trained_precision']})" if result["trained_precision"] != result["precision"] else ""
        lines.append(f"validation of the run: {own}{inexact}")
    return lines


def _figures(figures: dict[str, float | None]) -> str:
    """Metrics by name as text. None stands for NaN, which JSON lacks."""
    return "  ".join(f"{name} {'nan' if value is None else f'{value:.6g}'}" for name, value in figures.items())


class ChosenWeights(NamedTuple):
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
            raise UsageError(f"--weights {inert(which)}: {inert(name)} is already a weights file")
        return ChosenWeights(file, _run_around(file))
    run_dir = find_local_run(name, parent)
    if which is not None and which not in (BEST, LAST):
        if not Path(which).is_file():
            raise UsageError(f"--weights {inert(which)}: no such file; use best, last or a path")
        return ChosenWeights(Path(which), run_dir)
    wanted = [which] if which else [BEST, LAST]
    for kind in wanted:
        path = run_dir / rundir.CHECKPOINTS / f"{kind}.pt"
        if path.is_file():
            return ChosenWeights(path, run_dir)
    missing = f"no {which} weights" if which else "no weights"
    raise UsageError(f"{inert(run_dir.name)}: the run has {missing}: {inert(str(path))} does not exist")


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
                [sys.executable, "-P", "-m", module, *argv, "--report-fd", str(writing)],
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
        return UsageError(inert(" ".join(last.error.splitlines())))
    printed.seek(0)
    output = printed.read().decode("utf-8", "replace").strip()
    message = inert(last.error) if last is not None and last.error is not None else f"it ended with code {returncode}"
    trace = "\n".join(inert(line) for line in output.splitlines())
    return CommandError(ExitCode.FAILED, f"{message}\n{trace}" if trace else message)


def _run_around(file: Path) -> Path | None:
    """The run whose directory contains a file; None if there is none."""
    for folder in list(file.absolute().parents)[:2]:
        if rundir.is_run(folder):
            return folder
    return None


def export_weights(args: argparse.Namespace) -> ExitCode:
    """Writes the weights that `tputui export` was asked for. Raises `CommandError`."""
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


COMMANDS = {"predict": Command(DESCRIPTION, EXIT_CODES, _add_predict_arguments, _predict)}
