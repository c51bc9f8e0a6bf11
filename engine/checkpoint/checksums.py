"""Digests of the checkpoints in a folder, in a file that `sha256sum -c` reads too.

A digest is written down before its file gets a name, so at no moment is there a checkpoint whose digest is not there;
until the save is through, the one that had the name before is there too. So a file is what was saved where its digest
is any of those. A file without a digest is checked by the CRC-32 of each of its records instead, which `torch.save`
writes and `torch.load` never looks at. Must not touch a device.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from engine.checkpoint import atomic_write
from tputui.telemetry.safe_open import read_small

NAME = "SHA256SUMS"
BYTES_MAX = 4 << 20
_FOLDER = 0x10
"""Of a record's attributes."""
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")

Sum = tuple[str, str]
"""File name, digest."""


class Misread(Exception):
    """A file is not what was saved under its name; the text is a sentence without its name."""


def read(folder: Path) -> set[Sum]:
    """Every digest that is written down in a folder; none where there is no list, or it cannot be read."""
    try:
        text = read_small(folder / NAME, BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):
        return set()
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {(match[2], match[1]) for match in found if match}


def write(folder: Path, sums: Iterable[Sum]) -> None:
    """Writes the list of a folder anew. Raises `OSError`."""
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(set(sums)))
    atomic_write.write(folder / NAME, lambda file: file.write(text.encode()))


def digest_of(path: Path) -> str:
    """Reads a file to its end. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require(path: Path) -> str:
    """The digest of a file that is what was saved, or of which nothing is written down and whose records are sound.

    Raises `Misread` where it is not, naming the newest one beside it that is, and `OSError`.
    """
    while True:
        with path.open("rb") as file:
            # The file first: the digest of one that is about to have the name is in the list before.
            digest, sums = hashlib.file_digest(file, "sha256").hexdigest(), read(path.parent)
            known = {known for _, known in sums}
            if digest in known:
                return digest
            if path.name not in {name for name, _ in sums}:
                _check_records(file)
                return digest
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        # A run that goes on has given the name to another file meanwhile.
    others = (
        path.parent / name for name in sorted({name for name, _ in sums}, reverse=True) if name.startswith("step-")
    )
    sound = next((other for other in others if other.name != path.name and _is_sound(other, known)), None)
    instead = f"{sound} is sound: name that one instead" if sound else "none beside it is sound"
    raise Misread(f"its bytes are not those that were saved, by their sha256 in {NAME}; {instead}")


def _check_records(file: BinaryIO) -> None:
    """Reads a file of `torch.save` record by record. Raises `Misread` where one of them is not what was written.

    What is no such file holds no checks, and is left to its reader.
    """
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as records:
            wrong = next((each.filename for each in records.infolist() if not _is_plain(each)), None)
            wrong = wrong or records.testzip()
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, ValueError, EOFError) as error:
        raise Misread(f"it is damaged, and there is no {NAME} beside it to tell since when: {error}") from error
    if wrong is not None:
        raise Misread(f"its record {wrong} is not what was written, by its CRC-32; there is no digest in {NAME} for it")


def _is_plain(record: zipfile.ZipInfo) -> bool:
    """Whether a record is stored as it is, and no folder, of which `torch.load` would read nothing into its memory."""
    return record.file_size == record.compress_size and not record.external_attr & _FOLDER


def _is_sound(path: Path, known: set[str]) -> bool:
    try:
        return digest_of(path) in known
    except OSError:
        return False
