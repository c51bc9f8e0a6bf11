"""Makes the pictures of the README from recorded runs: `python docs/make_screenshots.py RUN RUN [...] [--png]`.

Each RUN is the directory of a finished run, such as `tputui run sample_configs/digits.toml` leaves in `runs/`. The
first one is shown by itself and all of them are compared, so their configurations should differ. The list shows every
run in the directory of the first. `--command RUN` adds pictures of the run of a command, such as
`tputui run -- python train.py` leaves, and `--pod RUN` of a run on many hosts, such as `python -m benchmarks.pod write`
simulates; without them these pictures stay as they are. Some show a recording of the package. Pictures show paths
and the host of the runs: train them in a neutral directory, such as `/tmp/demo`. The launcher asks the engine for the
memory of a step, which needs torch. Pictures are written to `docs/pictures/` as SVG, and with `--png` as PNG too, which
needs `rsvg-convert`. They are unedited screens.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.cells import cell_len
from textual.pilot import Pilot
from textual.screen import Screen

from tputui.cli.launch_service import EngineLaunchService
from tputui.cli.replay import RECORDINGS
from tputui.compare.compare import RUNS_MAX, RUNS_MIN
from tputui.session.session import Session
from tputui.telemetry import rundir
from tputui.ui.app import ScreenApp
from tputui.ui.compare.screen import CompareScreen
from tputui.ui.monitor.screen import MonitorResult, MonitorScreen
from tputui.ui.runs.screen import RunsScreen

PICTURES = Path(__file__).parent / "pictures"

_FONT = "DejaVu Sans Mono"
_SETTLE_S = 0.5
_PATIENCE_S = 300.0
_REPOSITORY = Path(__file__).parents[1]
_TEXT = re.compile(r'(<text [^>]*?)x="([\d.]+)"([^>]*?)textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


class Step(NamedTuple):
    """Keys to press once the screen shows `words`."""

    words: str
    keys: tuple[str, ...]


class Picture(NamedTuple):
    """A picture and how to make it."""

    name: str
    size: tuple[int, int]
    opens: Callable[[Sequence[Path]], Screen[MonitorResult]]
    """Opens the screen for the runs."""
    steps: tuple[Step, ...] = ()
    shows: str = ""
    """Words on the screen when it is ready."""
    of: Literal["runs", "command", "pod", "demo"] = "runs"
    """The runs that it shows: those to compare, that of a command or on many hosts, or a recording of the package."""


def replayed(share: float) -> Callable[[Sequence[Path]], Screen[MonitorResult]]:
    """Returns a function that opens the first run at a share of its duration."""

    def opens(runs: Sequence[Path]) -> Screen[MonitorResult]:
        session = Session.replay(runs[0])
        assert session.player is not None
        session.player.pause()
        session.player.seek(session.player.start + share * (session.player.end - session.player.start))
        return MonitorScreen(session, runs[0], read_only=True)

    return opens


def ended(runs: Sequence[Path]) -> Screen[MonitorResult]:
    """Opens the first run at its end in a live view, which can look back."""
    return MonitorScreen(Session.live(runs[0]), runs[0])


def listed(runs: Sequence[Path]) -> Screen[MonitorResult]:
    """Opens the list of runs with the launcher enabled."""
    return RunsScreen(runs[0].parent, service=EngineLaunchService(runs[0].parent), config_dir=_REPOSITORY)


def compared(runs: Sequence[Path]) -> Screen[MonitorResult]:
    """Opens the comparison."""
    return CompareScreen(runs)


_SIZES = ((80, 24), (120, 36), (160, 45), (200, 50))
_DIALOG_SIZES = ((80, 24), (120, 36), (200, 50))
_LOOKS_BACK = Step("look back", ("left", "left"))
WANTED = (
    Picture("home", (120, 30), listed, (Step("newest first", ("down",)),), "enter to open"),
    *(
        Picture(f"{name}-{width}x{height}", (width, height), listed, (Step("newest first", ("down", *keys)),), shows)
        for name, keys, shows in (
            ("list", (), ""),
            ("tags", ("number_sign", *"baseline lr-sweep"), "lr-sweep"),
            ("delete", ("D",), "elete"),
        )
        for width, height in _DIALOG_SIZES
    ),
    *(
        Picture(f"details-{width}x{height}", (width, height), replayed(1.0), (Step("loss", ("r",)),), "stored in")
        for width, height in _DIALOG_SIZES
    ),
    Picture(
        "launcher",
        (120, 36),
        listed,
        (
            Step("newest first", ("n",)),
            Step("sample_configs/digits.toml", ("enter",)),
            Step("Ready", ("slash", *"optim.lr", "enter", "enter")),
            Step("field", ("ctrl+u", *"0.001", "enter", "escape")),
        ),
        "per core",
    ),
    *(Picture(f"monitor-{width}x{height}", (width, height), replayed(0.9)) for width, height in _SIZES),
    *(
        Picture(f"metrics-{width}x{height}", (width, height), replayed(1.0), (Step("loss", ("m",)),), "metrics")
        for width, height in _SIZES
    ),
    *(
        Picture(f"{name}-{width}x{height}", (width, height), replayed(0.9), (Step("loss", keys),), shows)
        for name, keys, shows in (
            ("hidden", ("5", "H", "9", "H", "2"), "hidden"),
            ("layouts", ("P", "5", "9", "s", *"no compiler", "enter"), "no compiler"),
        )
        for width, height in _DIALOG_SIZES
    ),
    *(
        Picture(f"command-{width}x{height}", (width, height), replayed(0.9), of="command")
        for width, height in _DIALOG_SIZES
    ),
    *(
        Picture(f"hosts-{width}x{height}", (width, height), replayed(0.9), (Step("hosts", keys),), shows, of="pod")
        for width, height, keys, shows in (
            (80, 24, ("down", "enter"), "its log"),
            (120, 36, ("h",), "stand out"),
            (200, 50, (), "stand out"),
        )
    ),
    Picture("starting", (120, 36), replayed(0.1)),
    Picture("loss", (120, 30), replayed(1.0), (Step("loss", ("2", "2", "l")),)),
    Picture("cores", (120, 24), replayed(1.0), (Step("loss", ("2", "2", "v", "v", "v", *[","] * 30)),), "heat"),
    Picture("looking-back", (120, 36), ended, (_LOOKS_BACK,), "looking back"),
    Picture("log", (120, 24), replayed(1.0), (Step("loss", ("7", "z", "slash", *"valid", "enter")),), "/valid/"),
    Picture("compare", (120, 36), compared, (Step("metrics", ()),), "log axis"),
    Picture("memory", (160, 45), replayed(1.0), (Step("loss", ("6", "z")),), "network in", of="demo"),
    Picture("diagnosis", (120, 44), replayed(1.0), (Step("loss", ("W", "W")),), "not checked", of="demo"),
    Picture("predictions", (120, 36), replayed(1.0), (Step("loss", ("p",)),), "predicted", of="demo"),
    Picture("help", (100, 40), replayed(1.0), (Step("loss", ("question_mark",)),)),
)


def main() -> int:
    """Makes every picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directory of a finished run")
    parser.add_argument("--command", type=Path, metavar="RUN", help="directory of a finished run of a command")
    parser.add_argument("--pod", type=Path, metavar="RUN", help="directory of a finished run on many hosts")
    parser.add_argument("--only", metavar="NAME", action="append", help="make only this picture; may be repeated")
    parser.add_argument("--png", action="store_true", help="also write PNG with rsvg-convert")
    arguments = parser.parse_args()
    for path in filter(None, (*arguments.runs, arguments.command, arguments.pod)):
        if not rundir.is_run(path):
            parser.error(f"{path} is not the directory of a run")
    if not RUNS_MIN <= len(arguments.runs) <= RUNS_MAX:
        parser.error(f"a comparison takes {RUNS_MIN} to {RUNS_MAX} runs")
    if arguments.png and shutil.which("rsvg-convert") is None:
        parser.error("rsvg-convert is not installed; on Debian it is in librsvg2-bin")
    # Drawn as in a terminal with all colours, whatever this one can show.
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    PICTURES.mkdir(exist_ok=True)
    runs = {
        "runs": arguments.runs,
        "command": [arguments.command],
        "pod": [arguments.pod],
        "demo": [RECORDINGS / "training"],
    }
    wanted = [each for each in WANTED if not arguments.only or each.name in arguments.only]
    for picture in (each for each in wanted if all(runs[each.of])):
        svg = asyncio.run(take(picture, runs[picture.of]))
        path = PICTURES / f"{picture.name}.svg"
        path.write_text(svg, encoding="utf-8")
        if arguments.png:
            to_png(svg, path.with_suffix(".png"), picture.size[0] * 11)
        sys.stderr.write(f"{path}\n")
    return 0


async def take(picture: Picture, runs: Sequence[Path]) -> str:
    """Returns the picture as SVG."""
    app = ScreenApp(lambda: picture.opens(runs))
    async with app.run_test(size=picture.size) as pilot:
        await pilot.pause(_SETTLE_S)
        for step in picture.steps:
            await _until(pilot, picture, step.words)
            await pilot.press(*step.keys)
        await _until(pilot, picture, picture.shows)
        await pilot.pause(_SETTLE_S)
        return app.export_screenshot(title="tputui")


async def _until(pilot: Pilot[MonitorResult], picture: Picture, words: str) -> None:
    """Waits for words, and in a monitor until the whole run is read."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        screen = pilot.app.screen
        is_read = not isinstance(screen, MonitorScreen) or bool(screen.frame and screen.frame.caught_up)
        if is_read and words in _text(screen):
            return
        await pilot.pause(0.05)
    raise SystemExit(f"{picture.name}: {words!r} did not appear within {_PATIENCE_S:.0f} s:\n{_text(screen)}")


def _text(screen: Screen[Any]) -> str:
    """Returns the text of the screen, without colours."""
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


def to_png(svg: str, path: Path, width: int) -> None:
    """Renders an SVG to `width` pixels."""
    placed = _TEXT.sub(_glyph_by_glyph, svg.replace("Fira Code", _FONT))
    command = ["rsvg-convert", "--width", str(width), "--output", str(path)]
    subprocess.run(command, input=placed.encode(), check=True)


def _glyph_by_glyph(text: re.Match[str]) -> str:
    """Positions every glyph in its cell, because the renderer ignores `textLength`."""
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
