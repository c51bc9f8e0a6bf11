"""Digests that tell whether a source still holds the examples that a checkpoint was trained on.

Cheap: of files only sizes are looked at, and of many files only some. Must not import torch.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from engine.data.sources import Split

SAMPLES_MAX = 2_000
"""Files whose sizes are looked at, and rows of features that are read, evenly spread over all."""


def of(
    parts: Split, *, features: npt.NDArray[Any] | None = None, vocabulary: Iterable[str] | None = None
) -> dict[str, str]:
    """A digest of each kind of thing that the examples are made of: `ids`, `labels`, `texts`, `files`, `split`, and of
    `features` [rows, ...] and the `vocabulary` where they are given."""
    rows = parts.rows
    found = {"split": _digest([parts.train.tobytes(), b"|", parts.valid.tobytes()])}
    if rows.ids is not None:
        found["ids"] = _of_texts(rows.ids)
    if rows.labels is not None:
        found["labels"] = _digest([np.ascontiguousarray(rows.labels).tobytes(), repr(rows.label_names).encode()])
    if rows.texts is not None:
        found["texts"] = _of_texts(rows.texts)
    paths = [path for name in sorted(rows.files) for path in rows.files[name]]
    if paths:
        spans = rows.spans.tobytes() if rows.spans is not None else b""
        found["files"] = _digest([*_sizes(paths), spans])
    if features is not None:
        sample = features[:: -(-len(features) // SAMPLES_MAX)]
        found["features"] = _digest([repr((features.shape, features.dtype)).encode(), sample.tobytes()])
    if vocabulary is not None:
        found["vocabulary"] = _of_texts(vocabulary)
    return found


def _of_texts(texts: Iterable[str]) -> str:
    return _digest(f"{len(text)}:{text}".encode("utf-8", "surrogatepass") for text in texts)


def _sizes(paths: list[str]) -> Iterable[bytes]:
    """Name and size of each file; its folder may have another name today."""
    each = -(-len(paths) // SAMPLES_MAX)
    for path in paths[::each]:
        try:
            size = os.stat(path).st_size
        except OSError:
            size = -1
        yield f"{os.path.basename(path)}:{size}\n".encode("utf-8", "surrogateescape")


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
