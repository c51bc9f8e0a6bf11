"""Runs commands in processes of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tests import forked
from tests.deadline import DEADLINE_S
from tputui.telemetry import rundir


class CommandResult(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


def tputui(*arguments: str | Path, cwd: Path | None = None, **env: str) -> CommandResult:
    """Runs `tputui WORDS` to its end, without a terminal."""
    done = forked.run_tputui(*map(str, arguments), cwd=cwd, env={**os.environ, **env}, timeout=DEADLINE_S)
    return CommandResult(done.returncode, done.stdout, done.stderr)


def one_sentence(result: CommandResult) -> str:
    """The only line on stderr of a command that failed."""
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    assert "Traceback" not in result.err
    return lines[0]


def run(folder: Path, *arguments: str, **env: str) -> CommandResult:
    """Runs `tputui run WORDS` in a folder with a directory of runs of its own."""
    return tputui("--runs-dir", folder / "runs", "run", *arguments, cwd=folder, **env)


def only_run(folder: Path) -> Path:
    """The only run in the folder."""
    (run_dir,) = rundir.listing(folder / "runs")
    return run_dir


def shown(run_dir: Path) -> dict[str, Any]:
    """The object that `tputui show --json` prints."""
    result = tputui("show", run_dir, "--json")
    shown_object: dict[str, Any] = json.loads(result.out)
    return shown_object


def script(folder: Path, text: str, name: str = "train.py") -> str:
    """Writes a script; returns its name."""
    (folder / name).write_text(text)
    return name
