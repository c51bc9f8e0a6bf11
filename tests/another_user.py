"""Being another user for a while, for tests of what is kept from one; only root can."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import recorded

NOBODY = 65_534
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root, to become another user")


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


@contextmanager
def shut(folder: Path) -> Iterator[None]:
    """Shuts a folder of one's own to oneself. Root, whom no permission keeps out, is meanwhile a user who owns it."""
    before = folder.stat()
    folder.chmod(0)
    try:
        if IS_ROOT:
            os.chown(folder, NOBODY, NOBODY)
            with another_user(folder):
                yield
        else:
            yield
    finally:
        if IS_ROOT:
            os.chown(folder, before.st_uid, before.st_gid)
        folder.chmod(before.st_mode)


@contextmanager
def shut_run(parent: Path, *, owned: bool = False) -> Iterator[Path]:
    """A run that can be listed and not looked into: of another user, or (`owned`) of one's own, who shut it."""
    run_dir = recorded.write_run(parent)
    parent.chmod(0o755)
    with shut(run_dir) if owned else another_user(run_dir):
        yield run_dir
