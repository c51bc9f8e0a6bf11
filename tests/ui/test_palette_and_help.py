"""The palette and the help of every screen."""

from __future__ import annotations

import re

import pytest
from textual.command import CommandList, CommandPalette

from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tests.ui.monitored import app_of
from tputui.ui.app import ScreenApp
from tputui.ui.base import keymap, palette
from tputui.ui.help import HelpPanel, HelpScreen, help_lines, matching
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.terminal.themes import LIGHT, THEMES, Capabilities
from tputui.ui.widgets.dialogs import REQUEST_ACTIONS


async def search_palette(pilot: AppPilot, wanted: str) -> None:
    """Opens the palette and types."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
    await pilot.press(*wanted)


async def choose(pilot: AppPilot, name: str) -> None:
    """Presses enter once the first result has this name."""
    results = pilot.app.screen.query_one(CommandList)

    def is_first() -> bool:
        return results.option_count > 0 and name in str(results.get_option_at_index(0).prompt).lower()

    await until(pilot, is_first)
    await pilot.press("enter")


def test_the_palette_offers_every_action_of_the_screen() -> None:
    app = app_of()

    async def script(pilot: AppPilot) -> None:
        screen = app.screen
        assert isinstance(screen, palette.Keyed)
        offered = [each.action for each in palette.commands(screen, app.theme)]
        for key in screen.keys_in_force():
            assert key.action in offered or key.action == "app.command_palette", key
        for key in keymap.LOG:
            assert f"in_log({key.action!r})" in offered, key
        for theme in THEMES.values():
            assert f"app.choose_theme({theme.name!r})" in offered
        await search_palette(pilot, "theme: light")
        await choose(pilot, "theme: light")
        await until(pilot, lambda: app.theme == LIGHT.name)

    drive(app, script)


FIRST_FOUND = {
    "detach": "leave",
    "quit": "leave",
    "heat": keymap.on_widget("loss", "next_view(1)"),
    "full screen": keymap.on_widget("body", "open"),
    "log axis": keymap.on_widget("loss", "toggle_log"),
    "stop": "stop",
    "checkpoint": "checkpoint",
    "now": keymap.BACK_TO_NOW,
    "find": "in_log('search')",
    "search": "in_log('search')",
    "level": "in_log('next_level')",
    "memory": keymap.on_widget("body", "select(6)"),
    "theme light": "app.choose_theme('tputui-light')",
}


@pytest.mark.parametrize("replaying", [False, True], ids=["live", "replay"])
def test_palette_ranks_meaning_first(replaying: bool) -> None:
    player = made.HandPlayer()
    player.live = not replaying
    app = monitor(made.running(), player=player)

    async def script(pilot: AppPilot) -> None:
        entries = list(palette.commands(app.screen, app.theme))
        for wanted, action in FIRST_FOUND.items():
            _, first = palette.found(entries, wanted)[0]
            assert first.action == action, wanted
            assert first.why_not == ("not possible in a recording" if replaying and action in REQUEST_ACTIONS else "")

    drive(app, script)


def test_unavailable_actions_of_a_recording_state_reasons() -> None:
    app = monitor(made.running(), player=made.HandPlayer())

    async def script(pilot: AppPilot) -> None:
        await search_palette(pilot, "stop")
        await until(pilot, lambda: "not now: not possible in a recording" in text(app.screen))
        await pilot.press("enter")
        await until(pilot, lambda: "stop: not possible in a recording" in text(app.screen))

    drive(app, script)


def test_the_palette_reaches_the_log_from_any_panel() -> None:
    app = app_of()

    async def script(pilot: AppPilot) -> None:
        await search_palette(pilot, "grep")
        await until(pilot, lambda: "Log: search for a regular expression" in text(app.screen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, MonitorScreen))
        await pilot.press(*"loss")
        await until(pilot, lambda: "/loss" in text(app.screen))
        assert isinstance(app.screen.focused, LogPanel)

    drive(app, script)


def test_the_palette_shows_a_key_that_is_a_bracket() -> None:
    app = monitor(made.running(), player=made.HandPlayer())

    async def script(pilot: AppPilot) -> None:
        await search_palette(pilot, "slower")
        await until(pilot, lambda: "[  time" in text(app.screen))

    drive(app, script)


def test_arrows_are_spelled_if_their_fallbacks_are_keys() -> None:
    player = made.HandPlayer()
    source = made.HandSource(made.running(), player)
    app = ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR), looks=Capabilities(ascii_only=True))

    async def script(pilot: AppPilot) -> None:
        assert "<- -> seek" in text(app.screen)
        await pilot.press("question_mark")
        help_text = app.screen.query_one(HelpPanel).as_text()
        for key, sentence in (("<-", "back in time"), ("down j", "scroll the panel down")):
            assert re.search(rf"^ *{key} +{sentence}", help_text, re.MULTILINE)
        assert not set(help_text) & set("\u2190\u2192\u2191\u2193")

    drive(app, script, size=(160, 60))


def test_palette_titles_are_unique() -> None:
    for of_screen in (
        keymap.MONITOR,
        keymap.LOG,
        keymap.HOSTS,
        keymap.RUNS,
        keymap.PICTURES,
        keymap.COMPARE,
        keymap.CONFIGS,
        keymap.LAUNCH,
    ):
        titles = [key.title or key.help for key in of_screen if not key.shown.isdigit()]
        assert len(titles) == len(set(titles)), sorted(titles)


def test_help_puts_whole_words_first() -> None:
    lines = help_lines(keymap.MONITOR, [])
    found = [line for line in matching(lines, "stop") if line.sentence]
    assert [line.shown for line in found] == ["s", "X"]
    assert matching(lines, "quit")[1].shown == "q"


def test_a_panel_can_be_chosen_in_the_palette() -> None:
    app = app_of()

    async def script(pilot: AppPilot) -> None:
        await search_palette(pilot, "panel meters")
        await choose(pilot, "panel meters")
        await until(
            pilot, lambda: isinstance(app.screen, MonitorScreen) and app.screen.query_one(MetersPanel).has_focus
        )

    drive(app, script)


def test_page_down_in_help_moves_by_one_page() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("question_mark")
        panel = pilot.app.screen.query_one(HelpPanel)
        await pilot.press("pagedown")
        assert panel._first_row() == panel.size.height - 4
        await pilot.press("pageup")
        assert panel._first_row() == 0

    drive(monitor(made.running()), script, size=(120, 36))


def test_help_is_searched_as_one_types() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("question_mark", "slash", *"checkpoint now")
        shown = text(pilot.app.screen)
        assert "[1/" in shown
        assert "save a checkpoint now" in shown
        assert "leave this screen" not in shown
        await pilot.press("enter", "escape")
        assert isinstance(pilot.app.screen, HelpScreen)
        assert "leave this screen" in text(pilot.app.screen)
        await pilot.press("slash", "z", "z", "z")
        assert "no match for 'zzz'" in text(pilot.app.screen)
        await pilot.press("escape", "escape")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(made.running()), script, size=(160, 60))


def test_every_screen_has_the_common_keys() -> None:
    maps = {
        name: value
        for name, value in vars(keymap).items()
        if name.isupper() and name[0] != "_" and isinstance(value, tuple)
    }
    of_panels = {"LOG", "HOSTS", "COMMON", "TYPING"}  # parts of the map of a screen
    assert {"MONITOR", "RUNS", "PICTURES"} <= set(maps)
    common = {(key.keys, key.action) for key in keymap.COMMON}
    for name in set(maps) - of_panels:
        assert common <= {(key.keys, key.action) for key in maps[name]}, name


def test_keys_of_a_screen_are_unique() -> None:
    for of_screen in (keymap.MONITOR, keymap.RUNS, keymap.PICTURES):
        names = [name for key in of_screen for name in key.keys.split(",")]
        assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_help_lists_keys_once_by_task() -> None:
    lines = help_lines(keymap.MONITOR, [("1", "cores: each core")])
    heads = [line.shown for line in lines if not line.sentence]
    assert len(heads) == len(set(heads))
    assert {"run", "panels", "view"} <= set(heads)
    assert [line.shown for line in matching(lines, "view undo") if line.sentence] == ["u"]
    assert matching(lines, "") == list(lines)
