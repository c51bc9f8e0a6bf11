"""`tputui export`: the recorded data of a run for other programs, or its weights."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tputui import __version__
from tputui import formatting as fmt
from tputui.cli import predict
from tputui.cli.console import CommandError, UsageError, narrate, say, say_json
from tputui.cli.foreign_logs import RUN_OR_LOG, chosen_run_or_log
from tputui.cli.parser import Command, Parser, exit_codes, nearest
from tputui.exit_codes import ExitCode
from tputui.exports import tables, tensorboard
from tputui.exports.rows import RunRows
from tputui.formatting import inert
from tputui.session import session
from tputui.telemetry import files, rundir

DESCRIPTION = """Writes the recorded data of a run for other programs: with --to csv, jsonl or parquet a folder of
tables (every step of every core, every metric, epochs, events), with --to tensorboard a folder for TensorBoard. The
default folder is RUN-FORM in the current directory. Values are exact, and times are those of the run. With --to html
one file, RUN.html, that any browser shows offline: state, charts, tables, failure report and the end of the log.

Otherwise writes the weights of a run as a plain state dict, for torch.load(FILE, weights_only=True) and
load_state_dict, or as .safetensors if that package is installed. The file is read back and compared. A JSON file
beside it (weights.json for weights.pt) describes what the weights belong to; `tputui predict FILE INPUT` needs only
these two files."""
EXIT_CODES = exit_codes(
    DONE="written; weights are read back and compared",
    USAGE="no such run, no weights, no such directory, or an existing file or folder that export did not write",
    ENVIRONMENT="a package is missing: torch or numpy for weights, polars for Parquet",
)
FORMS = ("csv", "jsonl", "parquet", "tensorboard", "html")
OTHER_FORM_NAMES = {"json": "jsonl", "ndjson": "jsonl", "tb": "tensorboard", "tfevents": "tensorboard", "pq": "parquet"}
"""Names that other tools use for our forms, if the spelling does not suggest it."""
MANIFEST = "run.json"


def add_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help=f"{RUN_OR_LOG}; for weights a run or a checkpoint file")
    parser.add_option(
        "--to",
        metavar="FORM|FILE",
        help=f"{', '.join(FORMS)}: the recorded data; otherwise the file of the weights, such as model.pt or "
        f"model.safetensors (default {predict.EXPORT_NAME} in the run directory)",
    )
    parser.add_option(
        "--out", metavar="PATH", help="folder (with html: file) for the recorded data; must not exist, or be empty"
    )
    parser.add_option("--weights", metavar="best|last|PATH", help="which weights of the run (default best, else last)")
    parser.add_option("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> ExitCode:
    if args.to not in FORMS:
        if args.out is not None:
            raise UsageError(f"--out needs --to {', '.join(FORMS[:-1])} or {FORMS[-1]}")
        if args.to is not None:
            _check_weights_name(args.to)
        return predict.export_weights(args)
    if args.weights is not None:
        raise UsageError(f"--weights is not available with --to {args.to}")
    run_dir = chosen_run_or_log(args).resolve()
    if args.to == "html":
        return _write_page(run_dir, Path(args.out or f"{run_dir.name}.html"), as_json=args.json)
    target = Path(args.out) if args.out is not None else Path(f"{run_dir.name}-{args.to}")
    rows = RunRows(run_dir)
    try:
        with _new_folder(target) as folder:
            counts = _write(folder, args.to, run_dir.name, rows)
            if (manifest := rundir.manifest_if_readable(run_dir)) is not None:
                (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    except tables.MissingPackage as error:
        raise CommandError(ExitCode.ENVIRONMENT, str(error)) from None
    except OSError as error:
        message = f"{fmt.inert(str(target))}: cannot be written: {files.reason(error, target.absolute().parent)}"
        raise UsageError(message) from None
    if rows.unreadable is not None:
        number, why = rows.unreadable
        narrate(f"{fmt.counted(number, 'event')} cannot be decoded and left out; the first: {fmt.inert(why)}")
    if args.json:
        say_json({"path": str(target.absolute()), "rows": counts})
    else:
        said = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        say(fmt.inert(f"{target}: {said}"))
    return ExitCode.DONE


def _check_weights_name(to: str) -> None:
    """Raises `CommandError` if `to`, which is no form, is not the name of a file of weights either."""
    suffix = Path(to).suffix
    if suffix in predict.WEIGHTS_SUFFIXES:
        return
    is_word = not {".", "/"} & set(to)
    word = (to if is_word else suffix[1:]).strip().lower()
    near = OTHER_FORM_NAMES.get(word) or nearest(word, FORMS)
    forms, suffixes = ", ".join(FORMS), ", ".join(predict.WEIGHTS_SUFFIXES)
    if not is_word:
        hint = f"for the recorded data write --to {near} --out PATH" if near else f"--to {forms} is the recorded data"
        message = f"--to {inert(to)}: the name of a file of weights ends in {suffixes}; {hint}"
    elif near:
        message = f"unknown form {inert(to)}; did you mean {near}?"
    else:
        problem = f"unknown form {inert(to)}" if word else "the form is empty"
        message = f"{problem}; --to is {forms} or a file of weights ({suffixes})"
    raise UsageError(message)


def _write_page(run_dir: Path, target: Path, *, as_json: bool) -> ExitCode:
    """Writes the run as one HTML file, whole or not at all."""
    from tputui.report.page import page

    content = page(session.load(run_dir), __version__).encode("utf-8", "replace")
    try:
        files.write(target, lambda file: file.write(content), replace=False, only_owner=False)
    except FileExistsError:
        raise UsageError(f"{fmt.inert(str(target))} already exists; choose another --out") from None
    except OSError as error:
        message = f"{fmt.inert(str(target))}: cannot be written: {files.reason(error, target.absolute().parent)}"
        raise UsageError(message) from None
    if as_json:
        say_json({"path": str(target.absolute()), "bytes": len(content)})
    else:
        say(fmt.inert(f"{target}: {fmt.size(len(content))}"))
    return ExitCode.DONE


def _write(folder: Path, form: str, name: str, rows: RunRows) -> dict[str, int]:
    """Number of rows written, by table."""
    if form == "tensorboard":
        return {"scalars": tensorboard.write(folder, name, iter(rows))}
    return tables.write(folder, form, iter(rows))


@contextlib.contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` when everything was written; removed after an error. Raises `OSError`."""
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    taken = f"{fmt.inert(str(target))} already exists; choose another --out"
    if os.path.lexists(target):
        raise UsageError(taken)
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{fmt.inert(str(target.parent))}: no such directory")
    try:
        with files.becoming(target.absolute(), replace=False) as staging:
            staging.mkdir()
            staging.chmod(0o700)
            yield staging
    except FileExistsError:
        raise UsageError(taken) from None


COMMANDS = {"export": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
