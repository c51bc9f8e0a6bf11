"""Writes files of the engine whole or not at all, durably, verified by reading them back, and under several names.

Digests of the checkpoints in a folder, in a file that `sha256sum -c` can check.

A digest is recorded before its file gets a name, so there is never a checkpoint without a digest; until the save is
complete, the digest of the file that had the name before stays. So a file is intact if its digest is any of those. A
file without a digest is checked by the CRC-32 of its records, which `torch.save` writes and `torch.load` never
verifies. Must not touch a device.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from engine import torch_file
from engine.errors import Refused
from tputui.reporting import becoming, open_new, read_small, write_file


def write_checked(path: Path, fill: Callable[[Any], object], note: Callable[[str], None]) -> tuple[int, str]:
    """Writes a file atomically and durably, and reads it back before it gets its name. Returns its bytes and digest.

    `fill` writes to the file it is given, front to end; `note` is called with the digest before the file gets its name.
    The file is read back from the disk, as far as the system drops its cached pages. Raises `OSError`, also if the
    bytes read differ from those written, and what `fill` and `note` raise.
    """
    with becoming(path) as temporary:
        fd = open_new(temporary, os.O_RDWR)
        with os.fdopen(fd, "r+b") as file:
            meant = _Hashed(file)
            meant.fill(fill)
            file.flush()
            os.fsync(fd)
            size = file.tell()
            if sys.platform == "linux":
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != meant.digest:
            raise OSError(f"the disk returned other bytes than were written ({size} bytes)")
        note(digest)
    return size, digest


class _Hashed:
    """A file written front to end, with the digest of its intended content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._failure: OSError | None = None

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def fill(self, fill: Callable[[Any], object]) -> None:
        """Calls `fill`. Raises the error of the disk, which a native writer may replace by one of its own."""
        try:
            fill(self)
        except Exception as error:
            if self._failure is not None and error is not self._failure:
                raise self._failure from error
            raise

    def write(self, content: Any) -> int:
        self._sha256.update(content)
        try:
            return self._file.write(content)
        except OSError as error:
            self._failure = error
            raise

    def flush(self) -> None:
        self._file.flush()


def link(path: Path, name: Path) -> None:
    """Makes `name` another link of the file, atomically replacing what it named before."""
    with becoming(name) as temporary:
        temporary.unlink(missing_ok=True)
        os.link(path, temporary)


def duplicate(path: Path, name: Path) -> None:
    """Makes `name` the same as the file: a link, or a durable copy if the file system has no links."""
    try:
        link(path, name)
    except OSError:
        with (
            becoming(name) as temporary,
            path.open("rb") as source,
            os.fdopen(open_new(temporary, os.O_WRONLY), "wb") as file,
        ):
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Makes the entries of a directory durable."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


DIGESTS_NAME = "SHA256SUMS"
BYTES_MAX = 4 << 20
_FOLDER = 0x10
"""Directory bit of a record's attributes."""
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")

FileDigest = tuple[str, str]
"""File name and digest."""


class DamagedFile(Exception):
    """A file is not what was saved under its name; the text is a sentence without the name."""


def read_digests(folder: Path) -> set[FileDigest]:
    """Every digest recorded in a folder; empty if there is no list or it cannot be read."""
    try:
        text = read_small(folder / DIGESTS_NAME, BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):
        return set()
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return {(match[2], match[1]) for match in matches if match}


def write_digests(folder: Path, sums: Iterable[FileDigest]) -> None:
    """Replaces the list of a folder. Raises `OSError`."""
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(set(sums)))
    write_file(folder / DIGESTS_NAME, lambda file: file.write(text.encode()))


def digest_of(path: Path) -> str:
    """The digest of a whole file. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verified_digest(path: Path) -> str:
    """The digest of an intact file. A file without a recorded digest is intact if its records are.

    Raises `DamagedFile` otherwise, naming the newest intact checkpoint beside it, and `OSError`.
    """
    while True:
        with path.open("rb") as file:
            # The file first: the digest of a file that is about to get the name is recorded before.
            digest, sums = hashlib.file_digest(file, "sha256").hexdigest(), read_digests(path.parent)
            digests = {recorded for _, recorded in sums}
            if digest in digests:
                return digest
            if path.name not in {name for name, _ in sums}:
                _check_records(file)
                return digest
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        # A running run has given the name to another file meanwhile.
    others = (
        path.parent / name for name in sorted({name for name, _ in sums}, reverse=True) if name.startswith("step-")
    )
    sound = next((other for other in others if other.name != path.name and _is_sound(other, digests)), None)
    instead = f"{sound} is intact: use that one instead" if sound else "no intact checkpoint is beside it"
    raise DamagedFile(f"its bytes changed since it was saved, according to its sha256 in {DIGESTS_NAME}; {instead}")


def read_intact(path: Path, key: str, missing: str, kind: str) -> Any:
    """The content of an intact file of `torch.save`. Raises `Refused` under a key: there is no such `missing`, or it
    cannot be read as `kind`."""
    try:
        verified_digest(path)
        return torch_file.read(path)
    except FileNotFoundError:
        raise Refused.of(key, f"{path}: no such {missing}") from None
    except DamagedFile as error:
        raise Refused.of(key, f"{path}: {error}") from None
    except (torch_file.UnreadableFile, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused.of(key, f"{path}: cannot be read as {kind}: {reason}") from error


def _check_records(file: BinaryIO) -> None:
    """Reads a file of `torch.save` record by record. Raises `DamagedFile` if a record is damaged.

    Other files have no checksums and are left to their reader.
    """
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as records:
            wrong = next((record.filename for record in records.infolist() if not _is_plain(record)), None)
            wrong = wrong or records.testzip()
    except OSError:
        raise
    except Exception as error:  # The reader of archives raises many, such as `RuntimeError` for an encrypted record.
        raise DamagedFile(f"it is damaged, and {DIGESTS_NAME} has no digest for it: {error}") from error
    if wrong is not None:
        raise DamagedFile(
            f"its record {wrong} is damaged, according to its CRC-32; {DIGESTS_NAME} has no digest for it"
        )


def _is_plain(record: zipfile.ZipInfo) -> bool:
    """Whether a record is stored uncompressed and not flagged as a folder, which `torch.load` would silently read as
    empty."""
    return record.file_size == record.compress_size and not record.external_attr & _FOLDER


def _is_sound(path: Path, digests: set[str]) -> bool:
    try:
        return digest_of(path) in digests
    except OSError:
        return False
