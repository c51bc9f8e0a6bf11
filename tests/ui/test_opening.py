"""Opening a screen: what is deferred until the first chart is drawn, and that nothing is missing afterwards."""

from __future__ import annotations

import pytest
from rich.style import Style

from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, until
from tputui.ui.monitor.cores import CoresPanel
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.terminal.themes import DARK, THEMES
from tputui.ui.widgets.line_widget import Drawn

WIDE = (160, 45)


def styles(pilot: AppPilot) -> set[Style | None]:
    """The styles on the terminal."""
    strips = pilot.app.screen._compositor.render_strips()
    return {segment.style for strip in strips for segment in strip if segment.text.strip()}


def test_every_style_sheet_is_read_once() -> None:
    async def script(pilot: AppPilot) -> None:
        names = [path.rpartition("/")[2] for path, class_var in pilot.app.stylesheet.source if not class_var]
        assert sorted(names) == ["monitor.tcss", "tones.tcss"]

    drive(monitor(made.running()), script, size=WIDE)


def test_style_sheet_is_queried_only_for_drawn_tones() -> None:
    async def script(pilot: AppPilot) -> None:
        for widget in pilot.app.screen.query(Drawn):  # type: ignore[type-abstract]
            drawn = {f"tone--{span.tone}" for line in widget._lines for span in line} | {"tone--plain"}
            if isinstance(widget, CoresPanel):
                drawn.add("tone--band")  # sparklines, drawn before the panel had its final height
            assert set(widget._component_styles) <= drawn, widget
        assert pilot.app.screen.query_one(LossPanel)._component_styles

    drive(monitor(made.running()), script, size=WIDE)


@pytest.mark.parametrize("name", [theme.name for theme in THEMES.values() if theme.name != DARK.name])
def test_another_theme_is_on_the_terminal_at_once(name: str) -> None:
    async def script(pilot: AppPilot) -> None:
        before = styles(pilot)
        pilot.app.theme = name
        await until(pilot, lambda: styles(pilot) != before)
        there = styles(pilot)
        for widget in pilot.app.screen.query(Drawn):  # type: ignore[type-abstract]
            widget.notify_style_update()
            widget.refresh()
        await pilot.pause()
        assert styles(pilot) == there

    drive(monitor(made.running()), script, size=WIDE)
