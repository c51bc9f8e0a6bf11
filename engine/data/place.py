"""Where a source lies: a path as it is, or a file of a set that `tputui data fetch` gets. Must not import torch."""

from __future__ import annotations

import os

from engine.data.row_errors import refuse
from engine.datasets import cache, catalog

SCHEME = "set:"


def located(source: str) -> str:
    """`set:NAME/FILE` as a path; anything else as it is. Raises `ValueError` where the set is not there."""
    if not source.startswith(SCHEME):
        return source
    name, _, file = source.removeprefix(SCHEME).partition("/")
    try:
        entry = catalog.find(name)
    except KeyError as error:
        refuse(f"data.source: {error.args[0]}")
    place = cache.root(os.environ) / entry.name
    if not cache.is_there(entry, place):
        refuse(f"data.source: the set {name} is not there; `tputui data fetch {name}` gets it")
    return str(place / file)
