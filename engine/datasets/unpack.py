"""Takes the wanted members out of an archive, and nothing that would land elsewhere.

Wheels and .zip, tar of any compression, and .deb through `dpkg-deb`. Links, devices and paths that leave the folder
are refused; other members are never written.
"""

from __future__ import annotations

import contextlib
import fnmatch
import shutil
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from engine.datasets.errors import CannotFetch, ToolFailed
from tputui.exit_codes import ExitCode


def unpack(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    """Writes the members that match a pattern below `into`. Raises `CannotFetch`."""
    try:
        if archive.suffix in (".whl", ".zip"):
            _unzip(archive, wanted, into)
        elif archive.suffix == ".deb":
            _undeb(archive, wanted, into)
        else:
            with tarfile.open(archive) as tar:
                _untar(tar, wanted, into)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        words = f"{archive.name} cannot be unpacked: {str(error) or 'it ends too early'}; nothing of it was kept"
        raise CannotFetch(ExitCode.DAMAGED, words) from None


def _untar(tar: tarfile.TarFile, wanted: tuple[str, ...], into: Path) -> None:
    for member in tar:
        if not member.isdir() and _matches(member.name, wanted):
            safe = tarfile.data_filter(member, str(into))
            if not safe.isreg():
                raise tarfile.ExtractError(f'"{member.name}" is no plain file')
            tar.extract(safe, into, filter="data")


def _unzip(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if member.is_dir() or not _matches(member.filename, wanted):
                continue
            mode = member.external_attr >> 16
            path = PurePosixPath(member.filename)
            if path.is_absolute() or ".." in path.parts or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
                raise zipfile.BadZipFile(f'"{member.filename}" is no plain file inside the folder')
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open(member) as source, target.open("wb") as made:
                shutil.copyfileobj(source, made)


def _undeb(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    with _deb_members(archive) as tar:
        _untar(tar, wanted, into)


@contextlib.contextmanager
def _deb_members(archive: Path) -> Iterator[tarfile.TarFile]:
    """The files of a Debian package as a stream: `dpkg-deb` knows its compression, and writes nothing itself."""
    tool = shutil.which("dpkg-deb")
    if tool is None:
        raise ToolFailed("dpkg-deb is not on this machine; this package comes from Debian")
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
