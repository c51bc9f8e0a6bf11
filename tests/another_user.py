"""Runs code as another user, for tests of permissions; needs root."""

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
    """Becomes another user, who can reach `folder`: the folders above it are made searchable."""
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
    """Removes all permissions of a folder. Root, who ignores permissions, becomes another user who owns it."""
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
    """A run that can be listed and not read: of another user, or (`owned`) of this user, without permissions."""
    run_dir = recorded.write_run(parent)
    parent.chmod(0o755)
    with shut(run_dir) if owned else another_user(run_dir):
        yield run_dir
