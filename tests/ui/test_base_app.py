"""Every screen: themes, undo, mouse, dialogs, notices."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest

from tests import recorded
from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tests.ui.monitored import app_of
from tputui.ui import base_app
from tputui.ui.base.preferences import Views
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.terminal.themes import COLOUR_BLIND, DARK, LIGHT, MONO, THEMES, after, draws_characters
from tputui.ui.widgets.dialogs import Confirm, ExportScreen
from tputui.ui.widgets.player_bar import KeyBar

# Themes.


def test_t_cycles_themes_and_saves_the_choice() -> None:
    views = Views()
    app = app_of(views=views)

    async def script(pilot: AppPilot) -> None:
        for theme, title in ((LIGHT, "light"), (COLOUR_BLIND, "colour-blind safe"), (MONO, "mono"), (DARK, "dark")):
            await pilot.press("t")
            assert app.theme == theme.name
            assert views.get("theme", "") == theme.name
            assert f"theme: {title}; u undoes it" in text(app.screen)

    drive(app, script)


def test_theme_is_restored() -> None:
    views = Views()
    views.set("theme", LIGHT.name)
    assert app_of(views=views).theme == LIGHT.name
    views.set("theme", "no such theme")
    assert app_of(views=views).theme == DARK.name


def test_u_undoes_view_changes() -> None:
    app = app_of()

    async def script(pilot: AppPilot) -> None:
        await pilot.press("t", "t", "u")
        assert app.theme == LIGHT.name
        assert "undone: theme colour-blind safe" in text(app.screen)
        await pilot.press("u", "u")
        assert app.theme == DARK.name
        assert "no changes to undo" in text(app.screen)

    drive(app, script)


def test_only_mono_removes_colour() -> None:
    app = app_of()

    async def script(pilot: AppPilot) -> None:
        assert app.output_filter.colour
        await pilot.press("t", "t", "t")
        assert app.theme == MONO.name
        assert not app.output_filter.colour
        assert draws_characters(app)
        await pilot.press("t")
        assert app.output_filter.colour
        assert not draws_characters(app)

    drive(app, script)


def test_no_color_stays_mono(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    views = Views()
    views.set("theme", LIGHT.name)
    app = app_of(views=views)

    async def script(pilot: AppPilot) -> None:
        await pilot.press("t")
        assert app.theme == MONO.name
        assert not app.output_filter.colour
        assert "because NO_COLOR is set" in text(app.screen)
        assert views.get("theme", "") == LIGHT.name

    drive(app, script)


# How colours look to those who see fewer of them: Vienot, Brettel and Mollon (1999), on linear light.
BLINDNESS = {
    "protanopia": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, -0.0), (0.00401, -0.00401, 1.0)),
    "deuteranopia": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, -0.0), (-0.02234, 0.02234, 1.0)),
    "tritanopia": ((1.0, 0.1502, -0.1502), (0.0, 0.8647, 0.1353), (0.0, 0.7709, 0.2291)),
}


def lab(colour: str, seen: str | None = None) -> tuple[float, float, float]:
    """CIE L*a*b* of a colour, as it is seen."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    if seen is not None:
        linear = [max(sum(w * p for w, p in zip(row, linear, strict=True)), 0.0) for row in BLINDNESS[seen]]
    red, green, blue = linear
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("seen", [None, *BLINDNESS])
def test_states_differ_for_every_colour_vision(seen: str | None) -> None:
    theme = COLOUR_BLIND
    states = [theme.success, theme.warning, theme.error]
    assert all(states)
    for index, one in enumerate(states):
        for other in states[index + 1 :]:
            assert math.dist(lab(str(one), seen), lab(str(other), seen)) > 30, (one, other)


@pytest.mark.parametrize("seen", [None, *BLINDNESS])
def test_ends_and_middle_of_the_heat_map_differ_for_every_colour_vision(seen: str | None) -> None:
    theme = COLOUR_BLIND
    below, middle, above = (lab(str(colour), seen) for colour in (theme.primary, theme.background, theme.error))
    assert min(math.dist(below, middle), math.dist(middle, above), math.dist(below, above)) > 30


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    light = sorted((((lab(colour)[0] + 16) / 116) ** 3 for colour in (one, other)), reverse=True)
    return (light[0] + 0.05) / (light[1] + 0.05)


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_every_theme_has_readable_contrast(theme: object) -> None:
    assert isinstance(theme, type(DARK))
    for colour in (theme.primary, theme.secondary, theme.success, theme.warning, theme.error, theme.foreground):
        assert contrast(str(colour), str(theme.background)) >= 4.5, colour


# Mouse.


def test_click_selects_and_double_click_maximises() -> None:
    async def script(pilot: AppPilot) -> None:
        body = pilot.app.screen.query_one(Body)
        await pilot.click(MetersPanel)
        await until(pilot, lambda: body.selected == "meters")
        await pilot.click(MetersPanel, times=2)
        await until(pilot, lambda: body.maximised)
        await pilot.click(MetersPanel, times=2)
        await until(pilot, lambda: not body.maximised)

    drive(monitor(made.running()), script)


def test_footer_keys_can_be_clicked() -> None:
    async def script(pilot: AppPilot) -> None:
        bar = text(pilot.app.screen).splitlines()[-1]
        await pilot.click(KeyBar, offset=(bar.index("help"), 0))
        assert isinstance(pilot.app.screen, HelpScreen)

    drive(monitor(made.running()), script)


def test_answers_can_be_clicked(tmp_path: Path) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        await pilot.press("e")
        row = next(index for index, line in enumerate(text(app.screen).splitlines()) if "cancel" in line)
        await pilot.click(offset=(60, row))
        assert isinstance(app.screen, MonitorScreen)

    drive(app, script)


# Dialogs and read-only.


def test_destructive_dialogs_default_to_cancel() -> None:
    app = app_of()
    answers: list[bool | None] = []

    async def script(pilot: AppPilot) -> None:
        for pressed in ("enter", "escape", "y"):
            await app.push_screen(
                Confirm("Delete run digits-1?", "delete its directory", note="1.2 GiB"), answers.append
            )
            assert "1.2 GiB" in text(app.screen)
            await pilot.press(pressed)
            await pilot.pause()

    drive(app, script)
    assert answers == [None, None, True]


def test_read_only_view_is_labelled() -> None:
    async def script(pilot: AppPilot) -> None:
        assert "read-only" in text(pilot.app.screen).splitlines()[0]

    drive(monitor(made.running(), read_only=True), script)


def test_bad_view_file_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "view.json"
    path.write_text("{")
    app = app_of(views=Views.opened(path))

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "view settings ignored" in text(app.screen))
        assert app.views.notice == ""

    drive(app, script, size=(160, 45))


def test_view_settings_are_saved_while_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_app, "AUTOSAVE_S", 0.01)
    path = tmp_path / "view.json"
    app = app_of(views=Views.opened(path))

    async def script(pilot: AppPilot) -> None:
        for name in (LIGHT.name, after(LIGHT.name).name):
            await pilot.press("t")
            await until(pilot, lambda: path.exists() and app.views.get("theme", "") in path.read_text())
            assert name in path.read_text()

    drive(app, script)


# Screens over another screen.


@pytest.mark.parametrize("opens", ["p", "X", "d", "question_mark"])
def test_notices_are_shown_over_an_overlay(tmp_path: Path, opens: str) -> None:
    run_dir = recorded.write_run(tmp_path / "runs", ended=False)
    app = monitor(made.running(), run_dir=run_dir)
    app._export_to = tmp_path

    async def script(pilot: AppPilot) -> None:
        await pilot.press(opens)
        await until(pilot, lambda: not isinstance(pilot.app.screen, MonitorScreen))
        above = pilot.app.screen

        def is_shown(sentence: str) -> bool:
            return sentence in text(above).splitlines()[-1]

        for key, sentence in (("y", "copied "), ("t", "theme: light"), ("u", "undone: theme")):
            await pilot.press(key)
            await until(pilot, partial(is_shown, sentence))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExportScreen))
        await pilot.press("c")
        await until(pilot, lambda: is_shown("has no figures"))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExportScreen))
        await pilot.press("t")
        await until(pilot, lambda: is_shown("export: written to "))
        assert pilot.app.screen is above

    drive(app, script, size=(80, 24))
    assert len(list(tmp_path.glob("*.txt"))) == 1
