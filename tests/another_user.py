"""Being another user for a while, for tests of what is kept from one; only root can."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")


@contextmanager
def another_user(folder: Path) -> Iterator[None]:
    """Is another user, who gets as far as `folder`: what is above it must not be what keeps them out."""
    modes = {above: above.stat().st_mode for above in folder.parents[:-1]}
    try:
        for above, mode in modes.items():
            above.chmod(mode | 0o011)
        os.seteuid(NOBODY)
        yield
    finally:
        os.seteuid(0)
        for above, mode in modes.items():
            above.chmod(mode)
