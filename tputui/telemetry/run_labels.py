"""What the user noted about a run: pinned, archived, tags and a note, in `labels.json` of its directory.

The file travels with the run. It may come from an untrusted run, so reading is bounded and strict, and an invalid file
is never replaced.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tputui.telemetry import redaction
from tputui.telemetry.files import read_small
from tputui.telemetry.masking import FieldMasker
from tputui.telemetry.rundir import write_atomically
from tputui.telemetry.secrecy import Exact, Text

LABELS = "labels.json"
LABELS_BYTES_MAX = 1 << 16
TAGS_MAX = 16
TAG_CHARS_MAX = 32
NOTE_CHARS_MAX = 1_000
_TAG = re.compile(rf"\w[\w.+/:@-]{{0,{TAG_CHARS_MAX - 1}}}")
_writing = threading.Lock()


class InvalidLabels(Exception):
    """The labels of a run cannot be read; the message is one sentence."""


class RunLabels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the user noted about a run."""

    pinned: bool = False
    """Listed before other runs."""
    archived: bool = False
    """Not listed unless asked for."""
    tags: tuple[Exact, ...] = ()
    note: Text = ""


NO_LABELS = RunLabels()


def read(run_dir: Path) -> RunLabels:
    """The labels of a run; `NO_LABELS` if there are none. Raises `InvalidLabels`."""
    try:
        labels = msgspec.json.decode(read_small(run_dir / LABELS, LABELS_BYTES_MAX), type=RunLabels)
        _check(labels)
        return labels
    except FileNotFoundError:
        return NO_LABELS
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidLabels(f"{LABELS} cannot be read: {why}; delete it to label the run again") from None


def change(run_dir: Path, **values: Any) -> RunLabels:
    """Changes some labels of a run and returns all of them. Masks secrets in the note.

    Raises `InvalidLabels` if the present file is invalid, `ValueError` for invalid values, and `OSError`.
    """
    _refuse_secrets(values.get("tags", ()))
    with _writing:
        labels = FieldMasker().masked(msgspec.structs.replace(read(run_dir), **values))
        _check(labels)
        if labels == NO_LABELS:
            with contextlib.suppress(FileNotFoundError):
                (run_dir / LABELS).unlink()
        else:
            write_atomically(run_dir / LABELS, msgspec.json.format(msgspec.json.encode(labels)) + b"\n")
    return labels


def parse_tags(text: str) -> tuple[str, ...]:
    """The tags of a text, separated by blanks or commas. Raises `ValueError` with a sentence."""
    tags = tuple(dict.fromkeys(text.replace(",", " ").split()))
    _check_tags(tags)
    _refuse_secrets(tags)
    return tags


def _refuse_secrets(tags: Iterable[str]) -> None:
    """Raises `ValueError` for a tag that is a secret: a masked one would not be a tag."""
    for number, tag in enumerate(tags, start=1):
        if redaction.masked_text(tag) != tag:
            raise ValueError(f"tag {number} looks like a secret, and whoever gets a copy of the run reads its tags")


def _check(labels: RunLabels) -> None:
    _check_tags(labels.tags)
    if len(labels.note) > NOTE_CHARS_MAX:
        raise ValueError(f"the note has {len(labels.note):,} characters; the maximum is {NOTE_CHARS_MAX:,}")


def _check_tags(tags: Iterable[str]) -> None:
    for number, tag in enumerate(tags):
        if number == TAGS_MAX:
            raise ValueError(f"more than {TAGS_MAX} tags")
        if not _TAG.fullmatch(tag):
            rule = f"up to {TAG_CHARS_MAX} letters, digits and _ . + / : @ -, beginning with a letter or digit"
            raise ValueError(f"{tag[:TAG_CHARS_MAX]!r} is not a tag: {rule}")
