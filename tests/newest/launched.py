"""Runs a script as a user would, with `tputui run`, and reads what other commands print of the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.deadline import DEADLINE_S

NAME = "tried"


class Launched(NamedTuple):
    """A run that has ended."""

    folder: Path
    printed: str

    def shown(self) -> dict[str, Any]:
        """What `tputui show --json` prints."""
        return _json(_tputui(self.folder, "show", NAME, "--json"))

    def verdicts(self) -> list[dict[str, Any]]:
        """What `tputui doctor --json` prints."""
        made: list[dict[str, Any]] = _json(_tputui(self.folder, "doctor", NAME, "--json", codes=(0, 1)))["verdicts"]
        return made

    def losses(self) -> dict[int, float]:
        """The training loss by step, as `tputui export` writes it."""
        folder = self.folder / "tables"
        _tputui(self.folder, "export", NAME, "--to", "jsonl", "--out", str(folder))
        rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        return {row["step"]: row["value"] for row in rows if row["metric"] == "loss"}


def run(folder: Path, script: Path, *arguments: str) -> Launched:
    """Runs a script in an empty directory."""
    return Launched(
        folder, _tputui(folder, "run", "--no-ui", "--name", NAME, "--", sys.executable, str(script), *arguments)
    )


def _tputui(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tputui", "--runs-dir", "runs", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode in codes, f"{arguments}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _json(text: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(text)
    return made
