"""`tputui export`: weights alone, for use without tputui."""

from __future__ import annotations

import argparse
from pathlib import Path

from tputui import formatting as fmt
from tputui.cli.arguments import parent_of
from tputui.cli.console import say, say_json
from tputui.cli.parser import Parser, exit_codes
from tputui.cli.weights import ask_engine, choose
from tputui.exit_codes import ExitCode

DESCRIPTION = """Writes the weights that a run kept as a plain state dict, which torch.load(FILE, weights_only=True)
and load_state_dict take anywhere, or as .safetensors where that package is installed. The file is read back and
compared. Beside it a file of the same name that ends in .json (weights.json beside weights.pt) says what the weights
belong to; `tputui predict FILE INPUT` works with the two alone."""
EXIT_CODES = exit_codes(
    DONE="written, and it reads as it was written",
    USAGE="no such run, no weights, no such place, or a file there that export did not write",
    ENVIRONMENT="torch or numpy is not installed",
)
DEFAULT_NAME = "weights.pt"


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    parser.add_argument("run", metavar="RUN", help="name of a run, its directory, or a checkpoint file")
    parser.add_option("--weights", metavar="best|last|PATH", help="which weights of the run (best, or else last)")
    parser.add_option("--to", metavar="FILE", help=f"file to write ({DEFAULT_NAME} in the run's directory)")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    """Exports."""
    chosen = choose(args.run, args.weights, parent_of(args))
    folder = chosen.run_dir if chosen.run_dir is not None else chosen.path.absolute().parent
    to = Path(args.to).absolute() if args.to else folder.absolute() / DEFAULT_NAME
    result = ask_engine("engine.commands.export", [*chosen.argv, "--to", str(to)])
    if args.json:
        say_json(result, indent=2)
        return ExitCode.DONE
    made = f" of step {result['step']}" if result["step"] is not None else ""
    size = f"{fmt.size(result['bytes'])}, {fmt.count(result['tensors'])} tensors"
    say(fmt.inert(f"{result['path']}: the weights{made} ({size}), read back and compared"))
    return ExitCode.DONE
