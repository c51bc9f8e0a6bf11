"""Other programs that show a run in a terminal, and the same losses in the form that each of them reads.

They are looked for in a virtual environment of their own, since they pin what this project does not:

    python -m venv peers
    peers/bin/pip install wandb terminalboard 'plotext<6' tensorboard textual-plotext

One that is not there is told of and left out.
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
"""No peer asks the network for anything while it is measured."""


class Peer(NamedTuple):
    """A program beside ours."""

    name: str
    argv: list[str]
    environ: dict[str, str]
    at_step: Callable[[str, int], bool]
    """Whether a screen of it shows that the run was read up to a step."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declares where the peers are, and where what they read is kept."""
    parser.add_argument("--peers", type=Path, default=Path("peers"), help=f"virtual environment made by: {HOW_TO}")
    parser.add_argument(
        "--keep", type=Path, help="folder that keeps the runs, for the next time: writing them takes minutes"
    )


def find(folder: Path, data: Path, values: np.ndarray) -> list[Peer]:
    """The peers that are there, each with its form of `values` [steps, cores] under `data`; says which are not."""
    found: list[Peer] = []
    for name, program, kind, options, at_step in (
        ("wandb leet", "wandb", "wandb", ["leet"], _leet_at),
        ("terminalboard", "terminalboard", "tfevents", [], _terminalboard_at),
    ):
        path = (folder / "bin" / program).absolute()
        if not path.exists():
            print(f"{name} is left out: there is no {path}; {HOW_TO}")
            continue
        target = written(folder, data, kind, values)
        found.append(Peer(name, [str(path), *options, str(target)], QUIET, at_step))
    return found


def written(folder: Path, data: Path, kind: str, values: np.ndarray) -> Path:
    """The folder in which a peer's form of the losses is, written if it is not there."""
    target = (data / f"{kind}-{len(values)}").absolute()
    if not (target / "complete").exists():
        source = data / f"losses-{len(values)}.npy"
        np.save(source, values)
        python = str(folder / "bin" / "python")
        subprocess.run([python, str(WRITER), kind, str(source), str(target)], check=True, stdout=subprocess.DEVNULL)
        (target / "complete").touch()
    return target / "wandb" if kind == "wandb" else target


def plotext_path(folder: Path) -> Path | None:
    """Where textual-plotext can be imported from by this interpreter, or None."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = (folder / "lib" / version / "site-packages").absolute()
    return path if (path / "textual_plotext").is_dir() else None


def _leet_at(screen: str, step: int) -> bool:
    """Its summary names the newest step."""
    return any(line.split("_step")[-1].split()[:1] == [str(step)] for line in screen.splitlines() if "_step" in line)


def _terminalboard_at(screen: str, step: int) -> bool:
    """The right end of its axes is the newest step."""
    return f"{step:.1f}" in screen or f"{step:g}" in screen.split()
