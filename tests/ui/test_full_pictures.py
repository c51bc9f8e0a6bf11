"""Pictures at full resolution: which protocol a terminal gets, and that what it receives is the picture."""

from __future__ import annotations

import base64
import io
import os
import re
import select
import sys
import termios
from pathlib import Path

import pytest
from PIL import Image

from tests.ui.driving import AppPilot, drive, monitor, text, until
from tests.ui.painted import SHADES, pictured
from tests.ui.test_terminal import Terminal
from tputui.cli.main import main
from tputui.exit_codes import ExitCode
from tputui.ui.monitor.pictures import GalleryPanel
from tputui.ui.render.image_grid import CACHED_BYTES_MAX, CACHED_PX, FULL_PX, UPPER_HALF, Pixels, longest_side, scaled
from tputui.ui.render.picture_codes import CellSize, paletted
from tputui.ui.terminal import picture_protocol
from tputui.ui.terminal.picture_output import PictureOutput, cell_size_of
from tputui.ui.terminal.picture_protocol import PictureProtocol, Pictures, by_answer, detect, query

CELL = CellSize(4, 8)
TOOTHED = Pixels(3, 3, bytes(51 * (value % 6) for value in range(27)))
"""Nine colours. Multiples of 51 are whole percents, as sixels count."""

_KITTY = re.compile(r"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\")
_PLACEHOLDERS = re.compile("\x1b\\[38;2;(\\d+);(\\d+);(\\d+)m((?:\U0010eeee..)+)")
_ITERM = re.compile(r"\x1b\]1337;File=([^:]*):([^\x07]*)\x07")
_SIXEL = re.compile(r"\x1bP0;1;0q([^\x1b]*)\x1b\\")


def output(protocol: PictureProtocol, *, in_tmux: bool = False) -> PictureOutput:
    return PictureOutput(protocol, in_tmux=in_tmux, cell_size=lambda: CELL)


def written(shown: PictureOutput, pixels: Pixels, width: int, height: int) -> list[str]:
    """What reaches the terminal for each line of a picture."""
    lines = shown.draw(pixels, width, height)
    return [shown.apply("\x1b[1m" + "".join(span.text for span in line) + "\x1b[0m") for line in lines]


def rgb_of(png: bytes) -> tuple[int, int, bytes]:
    """Width, height and pixels of the opaque part of a PNG file."""
    with Image.open(io.BytesIO(png)) as image:
        opaque = image.crop(image.getchannel("A").getbbox()) if "A" in image.getbands() else image
        return opaque.width, opaque.height, opaque.convert("RGB").tobytes()


def kitty_pictures(data: str) -> dict[int, bytes]:
    """The PNG file of each picture that a kitty terminal has stored at the end."""
    stored: dict[int, bytes] = {}
    number, payload = 0, ""
    for options, piece in _KITTY.findall(data):
        keys = dict(part.split("=") for part in options.split(","))
        assert keys["q"] == "2", "answers would be read as keys"
        if keys.get("a") == "d":
            del stored[int(keys["i"])]
            continue
        if "i" in keys:
            number, payload = int(keys["i"]), ""
            assert (keys["a"], keys["U"], keys["f"]) == ("T", "1", "100")
        assert len(piece) <= 4096
        payload += piece
        if keys["m"] == "0":
            stored[number] = base64.standard_b64decode(payload)
    return stored


def sixel_pixels(data: str) -> tuple[int, int, bytes]:
    """An independent decoder of sixels, with a declared size; pixels that are not set are black."""
    tokens = re.findall(r'"([\d;]+)|#(\d+)(?:;2;(\d+);(\d+);(\d+))?|!(\d+)(.)|([?-~])|(\$)|(-)', data)
    width, height = (int(value) for value in tokens[0][0].split(";")[2:])
    colours: dict[int, tuple[int, ...]] = {}
    canvas = [[(0, 0, 0)] * width for _ in range(height)]
    x, y, colour = 0, 0, 0
    for _, number, red, green, blue, count, repeated, single, home, down in tokens[1:]:
        if number:
            colour = int(number)
            if red:
                colours[colour] = tuple(round(int(value) * 255 / 100) for value in (red, green, blue))
        elif home or down:
            x, y = 0, y + 6 * bool(down)
        else:
            bits = ord(repeated or single) - 63
            for _ in range(int(count or 1)):
                for row in range(6):
                    if bits >> row & 1:
                        canvas[y + row][x] = colours[colour]  # type: ignore[assignment]
                x += 1  # noqa: SIM113 - reset at the end of a line
    return width, height, bytes(part for row in canvas for pixel in row for part in pixel)


def test_kitty_stores_the_picture_once_and_shows_its_rows() -> None:
    shown = output("kitty")
    rows = written(shown, TOOTHED, 6, 6)
    pictures = kitty_pictures("".join(rows))
    assert [rgb_of(png) for png in pictures.values()] == [(24, 24, scaled(TOOTHED, 24, 24).rgb)]
    for row in rows:
        red, green, blue, cells = _PLACEHOLDERS.findall(row)[0]
        assert [(int(red) << 16) + (int(green) << 8) + int(blue)] == list(pictures)
        assert len(cells) == 3 * 6
        assert cells[2::3] == "\u0305\u030d\u030e\u0310\u0312\u033d", "columns 0 to 5"
    assert [row[row.index("\U0010eeee") + 1] for row in rows] == ["\u0305", "\u030d", "\u030e"], "rows 0 to 2"
    again = shown.apply("".join(span.text for span in shown.draw(TOOTHED, 6, 6)[0]))
    assert len(kitty_pictures(again)) == 1


def test_kitty_frees_pictures_that_are_not_shown_any_more() -> None:
    shown = output("kitty")
    first = "".join(written(shown, TOOTHED, 6, 6))
    assert kitty_pictures(first)
    shown.forget()
    assert not kitty_pictures(first + shown.apply("text"))
    assert shown.apply("text") == "text"
    second = "".join(written(shown, TOOTHED, 6, 6))
    assert not kitty_pictures(second + shown.cleanup())


def test_a_picture_is_sent_again_after_the_terminal_was_left() -> None:
    shown = output("kitty")
    line = "".join(span.text for span in shown.draw(TOOTHED, 6, 6)[0])
    before = shown.apply(line) + shown.cleanup()
    assert not kitty_pictures(before)
    assert len(kitty_pictures(before + shown.apply(line))) == 1
    assert not kitty_pictures(shown.apply(line)), "it is sent once"


def test_tmux_passes_kitty_pictures_on() -> None:
    rows = "".join(written(output("kitty", in_tmux=True), TOOTHED, 6, 6))
    passed = re.findall(r"\x1bPtmux;((?:[^\x1b]|\x1b\x1b)*)\x1b\\", rows)
    pictures = kitty_pictures("".join(passed).replace("\x1b\x1b", "\x1b"))
    assert [rgb_of(png) for png in pictures.values()] == [(24, 24, scaled(TOOTHED, 24, 24).rgb)]
    assert len(_PLACEHOLDERS.findall(rows)) == 3, "tmux shows placeholders as text"


def test_iterm_rows_are_the_picture() -> None:
    rows = [_ITERM.findall(row) for row in written(output("iterm"), TOOTHED, 6, 6)]
    assert [len(row) for row in rows] == [1, 1, 1]
    parts = [rgb_of(base64.standard_b64decode(payload)) for ((_, payload),) in rows]
    assert {part[:2] for part in parts} == {(24, 8)}
    assert b"".join(part[2] for part in parts) == scaled(TOOTHED, 24, 24).rgb
    assert all("width=6;height=1" in options for ((options, _),) in rows)


def test_sixel_rows_are_the_picture() -> None:
    rows = [_SIXEL.findall(row) for row in written(output("sixel"), TOOTHED, 6, 6)]
    parts = [sixel_pixels(data) for (data,) in rows]
    assert {part[:2] for part in parts} == {(24, 8)}
    assert b"".join(part[2] for part in parts) == scaled(TOOTHED, 24, 24).rgb


@pytest.mark.parametrize("cell", [CellSize(16, 32), CellSize(24, 48), CellSize(17, 37)])
def test_sixels_fill_large_cells(cell: CellSize) -> None:
    shown = PictureOutput("sixel", cell_size=lambda: cell)
    rows = [sixel_pixels(_SIXEL.findall(row)[0]) for row in written(shown, TOOTHED, 6, 6)]
    assert {row[:2] for row in rows} == {(6 * cell.width, cell.height)}
    assert b"".join(row[2] for row in rows) == scaled(TOOTHED, 6 * cell.width, 3 * cell.height).rgb


def test_pictures_for_large_cells_are_scaled_by_the_terminal() -> None:
    shown = PictureOutput("kitty", cell_size=lambda: CellSize(32, 64))
    (png,) = kitty_pictures("".join(written(shown, TOOTHED, 6, 6))).values()
    assert rgb_of(png) == (96, 96, scaled(TOOTHED, 96, 96).rgb)


def test_sixel_of_many_colours_is_near_the_picture() -> None:
    smooth = Pixels(64, 64, bytes(part for y in range(64) for x in range(64) for part in (4 * x, 4 * y, 2 * (x + y))))
    rows = written(output("sixel"), smooth, 16, 16)
    shown = b"".join(sixel_pixels(_SIXEL.findall(row)[0])[2] for row in rows)
    off = [abs(a - b) for a, b in zip(shown, smooth.rgb, strict=True)]
    assert sum(off) / len(off) < 16
    assert len(set(paletted(smooth).indexes)) > 100


@pytest.mark.parametrize("protocol", ["kitty", "iterm", "sixel"])
def test_an_odd_half_row_ends_where_the_picture_ends(protocol: PictureProtocol) -> None:
    rows = written(output(protocol), TOOTHED, 6, 5)
    assert len(rows) == 3
    last = rows[-1]
    if protocol == "sixel":
        assert sixel_pixels(_SIXEL.findall(last)[0])[1] == 4
        return
    pngs = kitty_pictures("".join(rows)).values() if protocol == "kitty" else [_ITERM.findall(last)[0][1]]
    for png in pngs:
        file = io.BytesIO(png if isinstance(png, bytes) else base64.standard_b64decode(png))
        alpha = Image.open(file).getchannel("A")
        assert alpha.crop((0, alpha.height - 4, alpha.width, alpha.height)).getextrema() == (0, 0)
        assert alpha.crop((0, 0, alpha.width, alpha.height - 4)).getextrema() == (255, 255)


@pytest.mark.parametrize("protocol", ["kitty", "iterm", "sixel"])
def test_a_row_that_is_covered_in_part_is_blank(protocol: PictureProtocol) -> None:
    shown = output(protocol)
    row = "".join(span.text for span in shown.draw(TOOTHED, 6, 6)[1])
    assert shown.apply(f"<{row[:4]}>help<{row[:1]}>") == "<    >help< >"


def test_private_characters_of_other_text_stay() -> None:
    shown = output("kitty")
    shown.draw(TOOTHED, 6, 6)
    assert shown.apply("\U000f4a10 icon") == "\U000f4a10 icon"


def test_a_picture_wider_than_kitty_can_number_is_drawn_in_half_blocks() -> None:
    lines = output("kitty").draw(Pixels(2, 1, bytes(6)), 300, 2)
    assert lines[0][0].text == UPPER_HALF * 300


def test_memory_is_bounded_by_the_number_of_pictures() -> None:
    assert longest_side(1) == FULL_PX
    assert longest_side(512) == CACHED_PX
    for number in (1, 40, 100, 300, 512):
        assert number * 3 * longest_side(number) ** 2 <= max(CACHED_BYTES_MAX, 512 * 3 * CACHED_PX**2)


XTERM = {"TERM": "xterm-256color"}
BY_ENVIRONMENT: list[tuple[dict[str, str], PictureProtocol]] = [
    ({"TERM": "xterm-ghostty"}, "kitty"),
    ({**XTERM, "TERM_PROGRAM": "ghostty"}, "kitty"),
    ({**XTERM, "TERM_PROGRAM": "iTerm.app"}, "iterm"),
    ({**XTERM, "LC_TERMINAL": "iTerm2"}, "iterm"),
    ({**XTERM, "TERM_PROGRAM": "WezTerm"}, "iterm"),
    (XTERM, "blocks"),
    ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, "blocks"),
    ({"TERM": "linux"}, "blocks"),
    ({}, "blocks"),
    ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, "blocks"),
    ({"TERM": "xterm-kitty", "STY": "1.pts-0"}, "blocks"),
    ({"TERM": "xterm-kitty", "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver"}, "blocks"),
]


@pytest.mark.parametrize(("environ", "protocol"), BY_ENVIRONMENT, ids=str)
def test_the_environment_decides_without_a_query(environ: dict[str, str], protocol: PictureProtocol) -> None:
    master, slave = os.openpty()
    try:
        assert detect("auto", environ, fd=slave).protocol == protocol
        assert not select.select([master], [], [], 0)[0], "something was written"
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize(
    ("answer", "protocol"),
    [
        ("xterm-kitty RGB,title on", "kitty"),
        ("xterm-ghostty RGB all", "kitty"),
        ("xterm-kitty RGB,title off", "blocks"),
        ("foot 256,RGB,sixel off", "sixel"),
        ("xterm-256color 256,title on", "blocks"),
        ("", "blocks"),
    ],
)
def test_inside_tmux_its_own_answer_decides(answer: str, protocol: PictureProtocol) -> None:
    environ = {"TERM": "tmux-256color", "TMUX": "/tmp/tmux-1/default,1,0", "KITTY_WINDOW_ID": "1"}
    found = detect("auto", environ, fd=0, ask_tmux=lambda: answer)
    assert found.protocol == protocol
    assert found.in_tmux


def test_a_mode_overrides_the_environment_of_a_terminal_only() -> None:
    assert detect("sixel", {"TERM": "xterm-kitty"}, fd=0) == Pictures("sixel", "as requested by --pictures")
    assert detect("blocks", {"TERM": "xterm-kitty"}, fd=0).protocol == "blocks"
    assert detect("kitty", {"TERM": "xterm-kitty"}, fd=None).protocol == "blocks"
    assert detect("kitty", {"TERM": "dumb"}, fd=0).protocol == "blocks"


@pytest.mark.parametrize(
    ("answer", "protocol"),
    [
        (b"\x1bP>|XTerm(379)\x1b\\\x1b[?64;1;2;4;22c", "sixel"),
        (b"\x1b[?62;4c", "sixel"),
        (b"\x1bP>|kitty(0.35.2)\x1b\\\x1b[?62;c", "kitty"),
        (b"\x1bP>|kitty(0.26.5)\x1b\\\x1b[?62;c", "blocks"),
        (b"\x1bP>|kitty(1.0.0)\x1b\\\x1b[?62;c", "kitty"),
        (b"\x1bP>|ghostty 1.1.0\x1b\\\x1b[?62;22c", "kitty"),
        (b"\x1bP>|WezTerm 20240203\x1b\\\x1b[?65;4;6;18;22c", "iterm"),
        (b"\x1bP>|iTerm2 3.5.0\x1b\\\x1b[?64;1;2;4c", "iterm"),
        (b"\x1bP>|VTE(7600)\x1b\\\x1b[?65;1;9c", "blocks"),
        (b"\x1b[?4;1c", "blocks"),
        (b"\x1bP>|kitty(0.35.2)", "blocks"),
        (b"", "blocks"),
    ],
)
def test_the_answer_of_the_terminal_decides(answer: bytes, protocol: PictureProtocol) -> None:
    assert by_answer(answer).protocol == protocol


def test_a_query_reads_the_answer_without_echo_and_restores_the_terminal() -> None:
    master, slave = os.openpty()
    try:
        before = termios.tcgetattr(slave)
        os.write(master, b"\x1b[?62;4c")
        os.read(master, 100)  # the echo of what came before the query
        assert query(slave, 120.0) == b"\x1b[?62;4c"
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize(
    "environ",
    [
        {"TERM": "foot"},
        {"TERM": "xterm-kitty"},
        {**XTERM, "KITTY_WINDOW_ID": "1"},
        {**XTERM, "XTERM_VERSION": "XTerm(379)"},
        {**XTERM, "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22"},
    ],
    ids=str,
)
def test_a_terminal_that_does_not_answer_gets_half_blocks_in_time(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    monkeypatch.setattr(picture_protocol, "QUERY_S", 0.05)
    master, slave = os.openpty()
    try:
        before = termios.tcgetattr(slave)
        found = detect("auto", environ, fd=slave)
        assert found.protocol == "blocks"
        assert "did not answer" in found.why
        assert termios.tcgetattr(slave) == before
        assert os.read(master, 100) == b"\x1b[>q\x1b[c"
    finally:
        os.close(master)
        os.close(slave)


def test_cell_size_of_a_terminal_that_reports_none() -> None:
    master, slave = os.openpty()
    assert cell_size_of(slave) is None
    os.close(master)
    os.close(slave)


VIEWER = """
import sys
from pathlib import Path
from tests.ui import made
from tests.ui.painted import pictured
from tputui.ui.app import ViewOptions, run_monitor
from tputui.ui.monitor.pictures import GalleryPanel
run_dir = Path(sys.argv[1])
if sys.argv[2] == "broken":
    def broken(self, rows):
        raise ZeroDivisionError("on purpose")
    GalleryPanel.scroll_rows = broken
run_monitor(lambda: made.HandSource(pictured(run_dir, examples=1)), run_dir, options=ViewOptions(pictures=sys.argv[3]))
"""


def viewer(run_dir: Path, env: dict[str, str], *, how: str = "whole", mode: str = "auto") -> Terminal:
    """A viewer of a run with pictures in a terminal."""
    return Terminal([sys.executable, "-c", VIEWER, str(run_dir), how, mode], {"COLORTERM": "truecolor", **env})


def painted(name: str) -> bytes:
    """The pixels of a painted picture."""
    return bytes(part for y in range(48) for x in range(48) for part in SHADES[name](0, x, y))


def shown_text(terminal: Terminal) -> str:
    return terminal.shown.decode(errors="ignore")


@pytest.mark.parametrize("how", ["whole", "broken"])
def test_kitty_has_the_pictures_until_the_viewer_is_left(tmp_path: Path, how: str) -> None:
    terminal = viewer(tmp_path, {"TERM": "xterm-kitty"}, how=how)
    terminal.until(lambda shown: b"\x1b[>q\x1b[c" in shown)
    terminal.type(b"\x1bP>|kitty(0.35.2)\x1b\\\x1b[?62;c")
    terminal.until(lambda shown: b"pictures" in shown)
    terminal.type(b"p")
    terminal.until(lambda _: len(kitty_pictures(shown_text(terminal))) == 4)
    sizes = set()
    for png, name in zip(kitty_pictures(shown_text(terminal)).values(), SHADES, strict=True):
        width, height, rgb = rgb_of(png)
        sizes.add((width, height))
        assert rgb == scaled(Pixels(48, 48, painted(name)), width, height).rgb
    assert len(sizes) == 1
    terminal.type(b"jq" if how == "broken" else b"qq")
    terminal.until(lambda shown: b"\x1b[?1049l" in shown)
    left = shown_text(terminal)
    assert not kitty_pictures(left[: left.index("\x1b[?1049l")]), "still stored in the terminal"
    terminal.program.wait(120)
    terminal.close()


def test_a_terminal_that_answers_gets_sixels(tmp_path: Path) -> None:
    terminal = viewer(tmp_path, {"TERM": "foot"})
    terminal.until(lambda shown: b"\x1b[>q\x1b[c" in shown)
    terminal.type(b"\x1bP>|foot(1.16.2)\x1b\\\x1b[?62;4;22c")
    terminal.until(lambda shown: b"pictures" in shown)
    terminal.type(b"p")
    terminal.until(lambda _: len(_SIXEL.findall(shown_text(terminal))) >= 8)
    width, height, rgb = sixel_pixels(_SIXEL.findall(shown_text(terminal))[2])
    assert (width % 10, height) == (0, 20)
    assert set(rgb) <= {0, 255}, "the true mask"
    terminal.type(b"qq")
    terminal.until(lambda shown: b"\x1b[?1049l" in shown)
    terminal.program.wait(120)
    terminal.close()


@pytest.mark.parametrize("env", [{"TERM": "xterm-kitty", "NO_COLOR": "1"}, {"TERM": "xterm-256color"}], ids=str)
def test_text_alone_is_written_without_colour_and_without_a_protocol(tmp_path: Path, env: dict[str, str]) -> None:
    terminal = viewer(tmp_path, env)
    terminal.until(lambda shown: b"pictures" in shown)
    terminal.type(b"p")
    terminal.until(lambda shown: b"true mask" in shown)
    terminal.type(b"qq")
    terminal.until(lambda shown: b"\x1b[?1049l" in shown)
    terminal.program.wait(120)
    for code in (b"\x1b_G", b"\x1bP", b"\x1b]1337", b"\x1b[>q", "\U0010eeee".encode()):
        assert code not in terminal.shown
    terminal.close()


def test_doctor_prints_how_pictures_are_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tputui", "--runs-dir", str(tmp_path), "doctor"]
    terminal = Terminal(command, {"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm", "TMUX": ""})
    terminal.until(lambda shown: b"ok    pictures   iterm: TERM_PROGRAM=WezTerm\r\n" in shown)
    terminal.program.wait(120)
    terminal.close()


@pytest.mark.parametrize("words", [["--pictures", "gif"], ["replay", "--pictures", "gif", "run"]], ids=" ".join)
def test_an_unknown_mode_is_rejected_with_the_known_ones(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "--pictures" in error
    assert "'sixel'" in error


def test_pictures_are_text_below_a_dialog_and_in_copies(tmp_path: Path) -> None:
    app = monitor(pictured(tmp_path), run_dir=tmp_path)
    app.output_filter.pictures = output("kitty")

    async def script(pilot: AppPilot) -> None:
        await pilot.press("p")
        await until(pilot, lambda: "\U000f0000" in text(pilot.app.screen))
        panel = pilot.app.screen.query_one(GalleryPanel)
        assert UPPER_HALF in panel.as_text()
        assert not re.search("[\U000f0000-\U000ffffd]", panel.as_text())
        await pilot.press("question_mark")
        await until(pilot, lambda: not re.search("[\U000f0000-\U000ffffd]", text(pilot.app.screen_stack[-2])))
        await pilot.press("escape")
        await until(pilot, lambda: re.search("[\U000f0000-\U000ffffd]", text(pilot.app.screen)) is not None)

    drive(app, script)
