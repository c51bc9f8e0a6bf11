"""Other programs that show a run in a terminal, and the same losses in the format of each.

Their dependencies are pinned, so they need their own virtual environment:

    python -m venv peers
    peers/bin/pip install wandb terminalboard 'plotext<6' tensorboard textual-plotext

Missing ones are reported and skipped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

HOW_TO = "python -m venv peers && peers/bin/pip install wandb terminalboard 'plotext<6' tensorboard textual-plotext"
WRITER = Path(__file__).parent / "screen_peerdata.py"
QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_MODE": "offline"}
"""No peer uses the network while it is measured."""


class Peer(NamedTuple):
    """A program to compare with."""

    name: str
    argv: list[str]
    environ: dict[str, str]
    at_step: Callable[[str, int], bool]
    """Whether its screen shows that the run was read up to a step."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the peers and their data."""
    parser.add_argument("--peers", type=Path, default=Path("peers"), help=f"virtual environment made by: {HOW_TO}")
    parser.add_argument(
        "--keep", type=Path, help="folder for the written runs, reused the next time: writing them takes minutes"
    )


def find(folder: Path, data: Path, values: np.ndarray) -> list[Peer]:
    """Returns the installed peers, each with its form of `values` [steps, cores] under `data`; prints missing ones."""
    found: list[Peer] = []
    for name, program, kind, options, at_step in (
        ("wandb leet", "wandb", "wandb", ["leet"], _leet_at),
        ("terminalboard", "terminalboard", "tfevents", [], _terminalboard_at),
    ):
        path = (folder / "bin" / program).absolute()
        if not path.exists():
            print(f"{name} is left out: {path} does not exist; {HOW_TO}")
            continue
        target = written(folder, data, kind, values)
        found.append(Peer(name, [str(path), *options, str(target)], QUIET, at_step))
    return found


def written(folder: Path, data: Path, kind: str, values: np.ndarray) -> Path:
    """Returns the folder with the losses in the format of a peer, writing it if missing."""
    target = (data / f"{kind}-{len(values)}").absolute()
    if not (target / "complete").exists():
        source = data / f"losses-{len(values)}.npy"
        np.save(source, values)
        python = str(folder / "bin" / "python")
        subprocess.run([python, str(WRITER), kind, str(source), str(target)], check=True, stdout=subprocess.DEVNULL)
        (target / "complete").touch()
    return target / "wandb" if kind == "wandb" else target


def plotext_path(folder: Path) -> Path | None:
    """Returns the path from which this interpreter can import textual-plotext, or None."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = (folder / "lib" / version / "site-packages").absolute()
    return path if (path / "textual_plotext").is_dir() else None


def _leet_at(screen: str, step: int) -> bool:
    """Whether its summary names the step."""
    return any(line.split("_step")[-1].split()[:1] == [str(step)] for line in screen.splitlines() if "_step" in line)


def _terminalboard_at(screen: str, step: int) -> bool:
    """Whether its axes end at the step."""
    return f"{step:.1f}" in screen or f"{step:g}" in screen.split()
