"""Picture files are untrusted input: a picture is shown, or replaced by the reason why it cannot be."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tputui.ui.render import image_grid
from tputui.ui.render.image_grid import ImageFiles, Pixels, Unshowable, decode, locate, scaled

RED, GREEN, BLUE, BLACK, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def rgb(width: int, height: int, colours: list[tuple[int, int, int]]) -> Image.Image:
    return Image.frombytes("RGB", (width, height), bytes(part for colour in colours for part in colour))


def colours(pixels: Pixels) -> list[tuple[int, ...]]:
    return [tuple(pixels.rgb[at : at + 3]) for at in range(0, len(pixels.rgb), 3)]


def claiming(width: int, height: int) -> bytes:
    """A valid header that claims a size, without data."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


SMALL = png(rgb(2, 2, [RED, GREEN, BLUE, WHITE]))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run's directory with one picture, and a picture outside of it."""
    run = tmp_path / "run"
    (run / "pictures").mkdir(parents=True)
    (run / "pictures" / "a.png").write_bytes(SMALL)
    (tmp_path / "secret.png").write_bytes(SMALL)
    return run


def reason_for(run_dir: Path, path: str) -> str:
    """Why a picture cannot be shown."""
    shown = ImageFiles(run_dir).read([path])[path]
    assert isinstance(shown, str)
    return shown


def test_a_plain_path_is_read(run_dir: Path) -> None:
    shown = ImageFiles(run_dir).read(["pictures/a.png"])["pictures/a.png"]
    assert isinstance(shown, Pixels)
    assert colours(shown) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "/etc/passwd",
        "../secret.png",
        "pictures/../../secret.png",
        "pictures/../pictures/a.png",
        "//secret.png",
        "..\\secret.png",
        "pictures/a.png\x00",
        "pictures/\x1b[2Ja.png",
    ],
)
def test_unsafe_path_is_rejected(run_dir: Path, path: str) -> None:
    assert reason_for(run_dir, path).startswith("refused: ")


def test_absolute_path_is_rejected_even_inside_the_run(run_dir: Path) -> None:
    assert reason_for(run_dir, str(run_dir / "pictures" / "a.png")).startswith("refused: ")


def test_links_to_outside_are_rejected(run_dir: Path) -> None:
    (run_dir / "out.png").symlink_to(run_dir.parent / "secret.png")
    (run_dir / "folder").symlink_to(run_dir.parent)
    for path in ("out.png", "folder/secret.png"):
        assert reason_for(run_dir, path) == "refused: a link leads out of the run's directory"


def test_a_link_inside_the_run_is_followed(run_dir: Path) -> None:
    (run_dir / "newest.png").symlink_to("pictures/a.png")
    assert locate(run_dir, "newest.png") == (run_dir / "pictures" / "a.png").resolve()
    assert isinstance(ImageFiles(run_dir).read(["newest.png"])["newest.png"], Pixels)


def test_a_run_reached_by_a_link_shows_its_pictures(run_dir: Path) -> None:
    linked = run_dir.parent / "linked"
    linked.symlink_to(run_dir)
    assert isinstance(ImageFiles(linked).read(["pictures/a.png"])["pictures/a.png"], Pixels)


def test_circular_links_are_reported(run_dir: Path) -> None:
    (run_dir / "a").symlink_to("b")
    (run_dir / "b").symlink_to("a")
    assert reason_for(run_dir, "a/x.png")


def test_non_regular_file_is_reported_without_blocking(run_dir: Path) -> None:
    os.mkfifo(run_dir / "pipe.png")
    for path in ("pipe.png", "pictures"):
        assert reason_for(run_dir, path) == "it is not a file"
    assert reason_for(run_dir, "gone.png") == "missing: there is no such file"


def test_damaged_image_is_reported(run_dir: Path) -> None:
    large = png(Image.effect_noise((64, 64), 50))
    cases = {
        "empty": b"",
        "head": large[:20],
        "cut": large[:400],
        "flipped": large[:300] + bytes(50) + large[350:],
        "text": b"GIF89a" + bytes(100),
        "nothing": claiming(0, 9),
    }
    words = {name: _why(run_dir, name, data) for name, data in cases.items()}
    assert words == {
        "empty": "empty: nothing was written to it",
        "head": "damaged or cut: its head is not whole",
        "cut": "damaged or cut: it cannot be decoded",
        "flipped": "damaged or cut: it cannot be decoded",
        "text": "it is not a PNG file",
        "nothing": "damaged: it claims to have no pixels",
    }


def _why(run_dir: Path, name: str, data: bytes) -> str:
    (run_dir / name).write_bytes(data)
    return reason_for(run_dir, name)


def test_decompression_bomb_is_not_decoded(run_dir: Path) -> None:
    assert _why(run_dir, "bomb.png", claiming(60_000, 60_000)) == "too large: 60,000 x 60,000 pixels"
    with (run_dir / "huge.png").open("wb") as file:
        file.truncate(image_grid.FILE_BYTES_MAX + 1)
    assert reason_for(run_dir, "huge.png").startswith("too large: 8.0 MiB")


def test_second_png_header_is_not_decoded(run_dir: Path) -> None:
    body = b"IHDR" + struct.pack(">IIBBBBB", 13_000, 13_000, 8, 2, 0, 0, 0)
    second = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    data = NOISE[:33] + second + NOISE[33:]
    assert _why(run_dir, "bomb.png", data) == "damaged: it has a second head"


@settings(max_examples=200)
@given(st.integers(0, 5_000), st.binary(min_size=1, max_size=8), st.booleans())
def test_no_damage_breaks_the_viewer(at: int, put: bytes, cut: bool) -> None:
    data = NOISE[: at % len(NOISE)] if cut else NOISE
    at %= len(data) + 1
    try:
        shown = decode(data[:at] + put + data[at + len(put) :])
    except Unshowable:
        return
    assert len(shown.rgb) == 3 * shown.width * shown.height


NOISE = png(rgb(16, 16, [(x * 7 % 256, x * 13 % 256, x * 29 % 256) for x in range(256)]))


def test_every_kind_of_picture_becomes_three_channels() -> None:
    half = Image.new("RGBA", (1, 1), (255, 255, 255, 128))
    palette = rgb(2, 1, [RED, BLUE]).convert("P")
    deep = Image.new("I;16", (1, 1), 0x8000)
    kinds = {
        "1": (Image.new("1", (1, 1), 1), [WHITE]),
        "L": (Image.new("L", (1, 1), 77), [(77, 77, 77)]),
        "P": (palette, [RED, BLUE]),
        "I;16": (deep, [(128, 128, 128)]),
        "RGBA": (half, [(128, 128, 128)]),
        "LA": (Image.new("LA", (1, 1), (200, 0)), [BLACK]),
    }
    for kind, (image, expected) in kinds.items():
        assert colours(decode(png(image))) == expected, kind


def test_shrinking_averages_areas() -> None:
    four = Pixels(2, 2, bytes([0, 0, 0, 100, 0, 0, 200, 40, 0, 100, 0, 8]))
    assert colours(scaled(four, 1, 1)) == [(100, 10, 2)]
    row = Pixels(4, 1, bytes([0, 0, 0, 20, 20, 20, 100, 0, 0, 200, 0, 0]))
    assert colours(scaled(row, 2, 1)) == [(10, 10, 10), (150, 0, 0)]


def test_growing_repeats_pixels() -> None:
    two = Pixels(2, 1, bytes([*RED, *BLUE]))
    assert colours(scaled(two, 4, 2)) == [RED, RED, BLUE, BLUE] * 2


def test_large_picture_is_downscaled_with_its_aspect() -> None:
    shown = decode(png(Image.new("RGB", (1024, 512), GREEN)))
    assert (shown.width, shown.height) == (image_grid.CACHED_PX, image_grid.CACHED_PX // 2)
    assert set(colours(shown)) == {GREEN}
    assert decode(png(Image.new("L", (1, 2048)))).width == 1


def test_a_file_is_decoded_once_for_each_version(run_dir: Path) -> None:
    shelf, path = ImageFiles(run_dir), "pictures/a.png"
    first = shelf.read([path])[path]
    assert shelf.read([path])[path] is first
    (run_dir / path).write_bytes(png(rgb(2, 2, [BLUE] * 4)))
    os.utime(run_dir / path, ns=(1, 1))
    second = shelf.read([path])[path]
    assert isinstance(second, Pixels)
    assert set(colours(second)) == {BLUE}


def test_a_file_that_comes_later_is_read(run_dir: Path) -> None:
    shelf = ImageFiles(run_dir)
    assert shelf.read(["late.png"]) == {"late.png": "missing: there is no such file"}
    (run_dir / "late.png").write_bytes(SMALL)
    assert isinstance(shelf.read(["late.png"])["late.png"], Pixels)


def test_decoder_is_imported_on_first_picture() -> None:
    code = "import sys, tputui.ui.app; sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
