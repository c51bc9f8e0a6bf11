"""`tputui predict`: predicts on the CPU with the weights of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tputui import formatting as fmt
from tputui.cli.arguments import parent_of
from tputui.cli.console import CommandError, narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes, positive_int
from tputui.cli.weights import choose, run_engine
from tputui.exit_codes import ExitCode

DESCRIPTION = """Predicts on the CPU with the weights of a run, in a process that needs neither a TPU nor torch_xla,
with any batch size. INPUT is a file or folder that the task of the run can read; --split uses the examples of the
run instead. Writes one row per example, with its id or file name if it has one. If the examples have labels, prints
the meters and scores of validation over all of them; else "No labels in input: metrics skipped". An output file
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


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
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


def run(args: argparse.Namespace) -> ExitCode:
    if (args.input is None) == (args.split is None):
        both = "either INPUT or --split, not both" if args.input is not None else "INPUT, or --split valid"
        raise CommandError(ExitCode.USAGE, f"tputui predict: give {both}")
    chosen = choose(args.run, args.weights, parent_of(args))
    if args.labels is not None and args.input is None:
        raise CommandError(ExitCode.USAGE, "--labels is for INPUT; the examples of the run already have labels")
    examples = ["--split", args.split] if args.split else ["--input", str(_existing(args.input))]
    words = [*chosen.argv, *examples, "--form", _form(args.out, as_json=args.json), "--batch", str(args.batch)]
    words += ["--labels", str(_existing(args.labels))] if args.labels is not None else []
    words += ["--code", args.code] if args.code is not None else []
    words += ["--out", args.out] if args.out is not None else []
    words += ["--force"] if args.force else []
    _print(run_engine("engine.commands.predict", words), to_stdout=args.out == STDOUT, as_json=args.json)
    return ExitCode.DONE


def _form(out: str | None, *, as_json: bool) -> str:
    return FORMS.get(Path(out or "").suffix, "jsonl" if as_json else "csv")


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise CommandError(ExitCode.USAGE, f"{fmt.inert(name)}: no such file")
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
    what = "rows" if result["out"] is not None else "examples"
    count = f"{fmt.count(result['rows'])} {what}" if result["rows"] is not None else result["of"]
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


COMMANDS = {"predict": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
