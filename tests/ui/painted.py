"""Runs with pictures of predictions, painted by formula into a directory of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.ui import made
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.events import PictureKept

SIDE = 48
NAMES = ("input", "mask", "true mask", "depth")

Shade = Callable[[int, int, int], tuple[int, int, int]]


def _inside(example: int, x: int, y: int) -> bool:
    return (x - 18 - 3 * example) ** 2 + (y - 24) ** 2 < 160


SHADES: dict[str, Shade] = {
    "input": lambda example, x, y: (230 - 40 * example, 90, 40) if _inside(example, x, y) else (2 * x, 60, 5 * y),
    "mask": lambda example, x, y: (200, 200, 200) if _inside(example, x + 2, y) else (0, 0, 0),
    "true mask": lambda example, x, y: (255, 255, 255) if _inside(example, x, y) else (0, 0, 0),
    "depth": lambda example, x, y: (5 * y, 5 * y, 5 * y),
}


def paint(path: Path, shade: Shade, example: int, side: int = SIDE) -> None:
    """Write a picture."""
    data = bytes(part for y in range(side) for x in range(side) for part in shade(example, x, y))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.frombytes("RGB", (side, side), data).save(path)


def view(run_dir: Path, *, epoch: int = 2, examples: int = 3) -> ev.PicturesKept:
    """Paint the pictures of an epoch, and return them as a view."""
    kept = []
    for example in range(examples):
        for name in NAMES:
            path = Path("pictures") / f"epoch-{epoch:04d}" / f"{example}-{name.replace(' ', '_')}.png"
            paint(run_dir / path, SHADES[name], example)
            kept.append(PictureKept(example=f"example {example}", name=name, path=path.as_posix()))
    return ev.PicturesKept(t=0.0, epoch=epoch, step=110 * epoch, pictures=kept)


def pictured(run_dir: Path, *, examples: int = 3) -> Snapshot:
    """A running run with pictures."""
    return made.changed(made.running(), pictures=view(run_dir, examples=examples))
