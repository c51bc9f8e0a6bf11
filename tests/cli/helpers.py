"""Commands in processes of their own, and what they said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

DEADLINE_S = 240.0


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def tputui(*words: str | Path, cwd: Path | None = None, deadline_s: float = DEADLINE_S, **env: str) -> Said:
    """Runs `tputui WORDS` to its end, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tputui", *map(str, words)],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def one_sentence(said: Said) -> str:
    """The one line on stderr of a command that refused."""
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert "Traceback" not in said.err
    return lines[0]
