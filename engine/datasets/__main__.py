"""Lists and fetches data sets, started by `tputui data`: `python -P -m engine.datasets`.

    list           print every set as JSON
    fetch NAME     put a set into the cache, or into the folder given by --to; print its path as JSON

Progress goes to stderr. A failure is one sentence, `{"failure": ...}` on stdout, and an exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from engine.datasets import cache
from engine.datasets.cache import CannotFetch
from engine.datasets.catalog import CATALOGUE, DatasetEntry, find
from engine.datasets.fetch import fetch
from tputui.exit_codes import ExitCode


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -P -m engine.datasets", description=(__doc__ or "").partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    fetching = commands.add_parser("fetch")
    fetching.add_argument("name")
    fetching.add_argument("--to", type=Path)
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _end)
    try:
        answer = _listed() if arguments.command == "list" else _fetched(arguments.name, arguments.to)
    except CannotFetch as failure:
        return _fail(failure.code, str(failure))
    except OSError as error:
        where = error.filename or cache.root(os.environ)
        return _fail(ExitCode.ENVIRONMENT, f"{where}: {error.strerror or error}; incomplete files were removed")
    except KeyboardInterrupt:
        return _fail(ExitCode.INTERRUPTED, "interrupted; incomplete files were removed")
    sys.stdout.write(json.dumps(answer) + "\n")
    return ExitCode.DONE


def describe(entry: DatasetEntry, place: Path) -> dict[str, Any]:
    """The JSON of one set; `path` is None if the set was not fetched."""
    there = cache.is_prepared(entry, place)
    return {
        "name": entry.name,
        "what": entry.what,
        "num_examples": entry.num_examples,
        "download_bytes": entry.download_bytes,
        "licence": entry.licence,
        "restrictions": entry.restrictions,
        "packages": list(dict.fromkeys(f"{package.manager} {package.spec}" for package in entry.packages)),
        "table": entry.table,
        "path": str(place) if there else None,
    }


def _listed() -> list[dict[str, Any]]:
    root = cache.root(os.environ)
    return [describe(entry, root / entry.name) for entry in CATALOGUE]


def _fetched(name: str, to: Path | None) -> dict[str, Any]:
    try:
        entry = find(name)
    except KeyError as error:
        raise CannotFetch(ExitCode.USAGE, error.args[0]) from None
    place = to.expanduser().absolute() if to is not None else cache.root(os.environ) / name
    fetched = fetch(entry, place, _print_progress)
    return {**describe(entry, place), "fetched": fetched}


def _fail(code: ExitCode, sentence: str) -> int:
    sys.stdout.write(json.dumps({"failure": sentence}) + "\n")
    return code


def _print_progress(line: str) -> None:
    sys.stderr.write(" ".join(line.splitlines()) + "\n")
    sys.stderr.flush()


def _end(signum: int, frame: FrameType | None) -> None:
    """Turns SIGTERM into an exception, so that partial files are removed."""
    raise SystemExit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
