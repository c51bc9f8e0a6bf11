"""Makes the pictures of the README from a recorded run: `python docs/make_screenshots.py RUN [--png]`.

RUN is the directory of a run that ended, such as one that `tputui run sample_configs/digits.toml` left in `runs/`. The
pictures are written to `docs/pictures/` as SVG, and with `--png` as PNG too, for which `rsvg-convert` must be
installed. Nothing in them is made up: they are the screens, replayed to a moment and held there.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len
from textual.screen import Screen

from tputui.session import Session
from tputui.telemetry import rundir
from tputui.ui.app import ScreenApp
from tputui.ui.screens.monitor import MonitorResult, MonitorScreen
from tputui.ui.screens.runs import RunsScreen

PICTURES = Path(__file__).parent / "pictures"

_FONT = "DejaVu Sans Mono"
_SETTLE_S = 0.5
_TEXT = re.compile(r'(<text [^>]*?)x="([\d.]+)"([^>]*?)textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


class Picture(NamedTuple):
    """A picture to make."""

    name: str
    size: tuple[int, int]
    moment: float | None
    """Share of the recording after which it is held; None is the list of runs."""
    keys: tuple[str, ...] = ()


WANTED = (
    Picture("monitor-160x45", (160, 45), 0.75),
    Picture("monitor-80x24", (80, 24), 0.75),
    Picture("finished", (120, 36), 1.0),
    Picture("loss", (120, 30), 1.0, ("2", "2", "l")),
    Picture("runs", (100, 16), None),
    Picture("help", (100, 40), 1.0, ("question_mark",)),
)


def main() -> int:
    """Makes every picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="directory of a run that ended")
    parser.add_argument("--png", action="store_true", help="also write PNG, by rsvg-convert")
    arguments = parser.parse_args()
    if not rundir.is_run(arguments.run):
        parser.error(f"{arguments.run}: not a run; name the directory of one, such as runs/...")
    if arguments.png and shutil.which("rsvg-convert") is None:
        parser.error("rsvg-convert is not installed; on Debian it is in librsvg2-bin")
    PICTURES.mkdir(exist_ok=True)
    for picture in WANTED:
        svg = asyncio.run(take(picture, arguments.run))
        path = PICTURES / f"{picture.name}.svg"
        path.write_text(svg, encoding="utf-8")
        if arguments.png:
            to_png(svg, path.with_suffix(".png"), picture.size[0] * 11)
        sys.stderr.write(f"{path}\n")
    return 0


async def take(picture: Picture, run_dir: Path) -> str:
    """The picture as SVG."""
    app = ScreenApp(opener(picture, run_dir))
    async with app.run_test(size=picture.size) as pilot:
        await pilot.pause(_SETTLE_S)
        while isinstance(app.screen, MonitorScreen) and not (app.screen.frame and app.screen.frame.caught_up):
            await pilot.pause(0.05)
        await pilot.press(*picture.keys)
        await pilot.pause(_SETTLE_S)
        return app.export_screenshot(title="tputui")


def opener(picture: Picture, run_dir: Path) -> Callable[[], Screen[MonitorResult]]:
    """What opens the screen of a picture."""
    if picture.moment is None:
        return lambda: RunsScreen(run_dir.parent)
    session = Session.replay(run_dir)
    assert session.player is not None
    session.player.pause()
    session.player.seek(session.player.start + picture.moment * (session.player.end - session.player.start))
    return lambda: MonitorScreen(session, run_dir, read_only=True)


def to_png(svg: str, path: Path, width: int) -> None:
    """Renders an SVG to `width` pixels."""
    placed = _TEXT.sub(_glyph_by_glyph, svg.replace("Fira Code", _FONT))
    command = ["rsvg-convert", "--width", str(width), "--output", str(path)]
    subprocess.run(command, input=placed.encode(), check=True)


def _glyph_by_glyph(text: re.Match[str]) -> str:
    """Places every glyph in its cell, since the renderer does not heed `textLength`."""
    head, x, middle, length, rest, escaped = text.groups()
    glyphs = html.unescape(escaped)
    step, at = float(length) / max(cell_len(glyphs), 1), float(x)
    placed = []
    for glyph in glyphs:
        if not glyph.isspace():
            placed.append(f'{head}x="{at:.1f}"{middle}{rest}>{html.escape(glyph)}</text>')
        at += step * cell_len(glyph)
    return "".join(placed)


if __name__ == "__main__":
    raise SystemExit(main())
