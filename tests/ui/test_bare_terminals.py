"""What really reaches a terminal: no colour where none is asked for, ASCII alone where it knows no more."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from pathlib import Path

import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.ui.test_terminal import Terminal

_COLOUR = re.compile(rb"\x1b\[(?:[0-9;:]*[;:])?(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])(?:[;:][0-9;:]*)?m")
_BOLD = re.compile(rb"\x1b\[(?:[0-9;]*;)?1(?:;[0-9;]*)?m")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that ended."""
    return recorded.write_run(tmp_path)


def shown(run_dir: Path, *options: str, keys: str = "t?", **environ: str) -> bytes:
    """Everything that the viewer of a run writes to a terminal until it is left, help and another theme included."""
    argv = [sys.executable, "-P", "-m", "tputui", "attach", str(run_dir), *options]
    terminal = Terminal(argv, {"LANG": "C.UTF-8", **environ})
    terminal.until(lambda so_far: b"DONE" in so_far and b"help" in so_far)
    terminal.type(keys.encode())
    terminal.until(lambda so_far: b"esc close" in so_far)
    terminal.type(b"?q")
    # A program that ends waits until what it wrote was read; then there is nothing more to read, which Linux calls EIO.
    with contextlib.suppress(OSError):
        while select.select([terminal.master], [], [], DEADLINE_S)[0]:
            terminal.shown += os.read(terminal.master, 1 << 16)
    terminal.close()
    assert terminal.program.wait(DEADLINE_S) == 0
    return terminal.shown


def test_colour_and_unicode_are_the_default(run_dir: Path) -> None:
    said = shown(run_dir)
    assert _COLOUR.search(said)
    assert not said.isascii()


def test_no_color_writes_no_colour(run_dir: Path) -> None:
    said = shown(run_dir, NO_COLOR="1")
    assert not _COLOUR.findall(said)
    assert _BOLD.search(said)
    assert "\u2714".encode() in said


@pytest.mark.parametrize("environ", [{"LANG": "C"}, {"LC_ALL": "POSIX"}, {"LANG": "de_DE.ISO-8859-1"}], ids=str)
def test_non_unicode_locale_gets_ascii(run_dir: Path, environ: dict[str, str]) -> None:
    said = shown(run_dir, **environ)
    assert said.isascii()
    assert b"+ DONE" in said


def test_ascii_can_be_requested(run_dir: Path) -> None:
    assert shown(run_dir, "--ascii").isascii()


def test_neither_colour_nor_unicode(run_dir: Path) -> None:
    said = shown(run_dir, LANG="C", NO_COLOR="1")
    assert said.isascii()
    assert not _COLOUR.findall(said)


def test_view_settings_are_restored(run_dir: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    shown(run_dir, keys="ttt?", XDG_STATE_HOME=state)
    assert '"tputui-mono"' in (tmp_path / "state" / "tputui" / "view.json").read_text()
    assert not _COLOUR.findall(shown(run_dir, keys="?", XDG_STATE_HOME=state))
    assert _COLOUR.search(shown(run_dir, "--reset-view", keys="?", XDG_STATE_HOME=state))
    assert "mono" not in (tmp_path / "state" / "tputui" / "view.json").read_text()


def test_a_terminal_of_256_colours_has_grey_grounds(run_dir: Path) -> None:
    """Not navy or black, which rounding each channel makes of dark bluish greys."""
    written = shown(run_dir, keys="?", TERM="tmux-256color", COLORTERM="")
    grounds = {int(number) for number in re.findall(rb"48;5;(\d+)", written)}
    assert {233, 234, 235} <= grounds
    assert grounds.isdisjoint({16, 17})
    assert b"48;2;" not in written
