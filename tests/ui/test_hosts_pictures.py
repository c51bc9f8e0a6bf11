"""Pictures of runs on several hosts, compared where Textual is what drew them."""

from __future__ import annotations

import pytest
import textual

from tests.ui import pods
from tests.ui.driving import monitor
from tests.ui.test_base_app_pictures import DRAWN_BY, SIZES, Compare
from tests.ui.test_layouts_pictures import pressing
from tputui.ui.app import ScreenApp
from tputui.ui.terminal.themes import Capabilities

pytestmark = pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)


@pytest.mark.parametrize("size", [*SIZES, (160, 45)], ids=str)
def test_map(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(monitor(pods.troubled(256)), terminal_size=size, run_before=pressing("down", "right"))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_table(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(monitor(pods.troubled(4)), terminal_size=size, run_before=pressing())


def test_map_in_full_screen(snap_compare: Compare) -> None:
    assert snap_compare(monitor(pods.troubled(256)), terminal_size=(120, 36), run_before=pressing("h", "F", "F", "F"))


@pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=str)
def test_host(snap_compare: Compare, size: tuple[int, int]) -> None:
    script = pressing("down", "home", "right", "right", "enter")
    assert snap_compare(monitor(pods.troubled(256)), terminal_size=size, run_before=script)


def test_map_without_colours_in_ascii(snap_compare: Compare) -> None:
    app = monitor(pods.troubled(256))
    plain = ScreenApp(app._open_screen, looks=Capabilities(ascii_only=True, colour=False))
    assert snap_compare(plain, terminal_size=(120, 36), run_before=pressing())
