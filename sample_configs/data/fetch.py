"""The command line of every script here: prepares a data set of downloaded packages in a temporary folder, renames it.

A failure is one sentence on stderr with an exit code of `tputui`, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packages import CannotFetch, NotAvailable, fail, report, unpacked
from tputui import data_sets, user_cache
from tputui.data_sets import DataSet
from tputui.exit_codes import ExitCode
from tputui.home_paths import expanded

Prepare = Callable[[Mapping[str, Path], Path], list[str]]
"""Takes the folders of the unpacked packages by name, and the folder to write into; returns what was done."""


def main(prepare: Mapping[str, Prepare], argv: list[str] | None = None) -> int:
    """Fetches the data set that the command line names, by default the first, and prints its folder."""
    parser = argparse.ArgumentParser(description=f"Fetches a data set: {', '.join(prepare)}.")
    parser.add_argument("name", nargs="?", choices=list(prepare), default=next(iter(prepare)))
    parser.add_argument("--to", metavar="DIR", type=Path, help="folder of the data set (default in the cache)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the folder")
    args = parser.parse_args(argv)
    # As an exception, so that incomplete files are removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        place = _place(args.name, args.to)
        was_fetched = fetch(data_sets.catalogue()[args.name], prepare[args.name], place)
    except CannotFetch as failure:
        return fail(failure.code, str(failure))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(ExitCode.ENVIRONMENT, f"{where}{error.strerror or error}; incomplete files were removed")
    except KeyboardInterrupt:
        return fail(ExitCode.INTERRUPTED, "interrupted; incomplete files were removed")
    answer = {"path": str(place), "fetched": was_fetched}
    sys.stdout.write(f"{json.dumps(answer) if args.json else place}\n")
    return ExitCode.DONE


def _place(name: str, to: Path | None) -> Path:
    """The folder of the data set. Raises `CannotFetch`."""
    if to is not None:
        try:
            return expanded(to).absolute()
        except FileNotFoundError as error:
            raise CannotFetch(ExitCode.USAGE, f"--to: {error}") from None
    try:
        root = user_cache.data_folder(os.environ)
    except OSError as error:
        raise NotAvailable(error.strerror or str(error)) from None
    if not os.environ.get("TPUTUI_DATA"):
        user_cache.create_missing(root)
    return root / name


def fetch(data_set: DataSet, prepare: Prepare, place: Path) -> bool:
    """Puts a set at `place`; False if it is there already. Raises `CannotFetch` and `OSError`."""
    if data_set.is_at(place):
        report(f"{data_set.name} is already in {place}; remove that folder to fetch it again")
        return False
    with _staged(place) as work:
        if data_set.is_at(place):
            # Another process fetched it while this one waited.
            return False
        note = f"\nnote: {data_set.restrictions}" if data_set.restrictions else ""
        report(f"{data_set.name}: {data_set.what}\nlicence: {data_set.licence}{note}")
        sources, left_out = {}, []
        for package in (one for one in data_set.packages if one.manager != "installed"):
            try:
                sources[package.name] = unpacked(package, work / package.name)
            except NotAvailable as failure:
                if not package.optional:
                    raise
                left_out.append(f"left out {package.name}: {failure}")
                report(left_out[-1])
        report(f"{data_set.name}: preparing")
        made = work / "made"
        made.mkdir()
        notes = prepare(sources, made) + left_out
        (made / user_cache.SOURCE).write_text(data_set.source_text(notes))
        if place.exists():
            place.rename(work / "old")
        made.rename(place)
    return True


@contextlib.contextmanager
def _staged(place: Path) -> Iterator[Path]:
    """A working folder beside `place`, for one process at a time; one that a killed process left is removed.

    Raises `CannotFetch` if `place` holds other files.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    work = place.with_name(f".{place.name}.part")
    with _locked(place.with_name(f".{place.name}.lock")):
        if (
            place.exists()
            and not (place / user_cache.SOURCE).is_file()
            and (not place.is_dir() or any(place.iterdir()))
        ):
            words = f"{place} contains other files; choose another folder with --to, or move it away"
            raise CannotFetch(ExitCode.USAGE, words)
        shutil.rmtree(work, ignore_errors=True)
        try:
            work.mkdir(mode=0o700)
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock on the file at `path`, which is removed afterwards."""
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # If the holder before removed the file, others lock a new one.
            if os.fstat(lock.fileno()).st_nlink:
                try:
                    yield
                finally:
                    path.unlink()
                return


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Writes a CSV; returns what was done."""
    columns, rows = list(columns), list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    return f"{path.name}: {len(rows)} rows; columns {', '.join(columns)}"
