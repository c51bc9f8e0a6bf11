"""What hands do on every screen: themes, undo, copy, export, palette, help, mouse, dialogs."""

from __future__ import annotations

import csv
import io
import math
import re
from functools import partial
from pathlib import Path

import msgspec
import pytest
from textual.command import CommandPalette

from tests import recorded
from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base import export, keymap, palette
from tputui.ui.base.preferences import Views
from tputui.ui.help import HelpPanel, HelpScreen, help_lines, matching
from tputui.ui.monitor import arrangement
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.meters import MetersPanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.screen import RunsScreen
from tputui.ui.terminal.capabilities import Capabilities, draws_characters
from tputui.ui.terminal.themes import COLOUR_BLIND, DARK, LIGHT, MONO, THEMES
from tputui.ui.widgets.bars import KeyBar
from tputui.ui.widgets.dialogs import Confirm, ExportScreen
from tputui.ui.widgets.run_requests import REQUEST_ACTIONS

STAMP = "20251009-085500"


def app_of(
    snapshot: Snapshot | None = None,
    *,
    views: Views | None = None,
    looks: Capabilities | None = None,
    to: Path | None = None,
) -> ScreenApp:
    source = made.HandSource(snapshot or made.running())
    app = ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR), looks=looks, views=views, export_to=to)
    app._clock = lambda: made.NOW
    return app


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


# Copy and export.


def test_y_copies_the_selected_panel_as_text() -> None:
    app = app_of()

    async def script(pilot: AppPilot) -> None:
        await pilot.press("3", "y")
        lines = app.clipboard.splitlines()
        assert lines[0].startswith("meters")
        assert any(line.split()[:1] == ["accuracy"] for line in lines)
        assert "\u2502" not in app.clipboard
        assert f"copied meters, {len(lines)} lines" in text(app.screen)

    drive(app, script)


def test_copy_includes_hidden_rows() -> None:
    app = app_of(made.running(64))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("1", "y")
        assert len(app.clipboard.splitlines()) > 5

    drive(app, script, size=(80, 24))


@pytest.mark.parametrize("name", sorted(export.BY_PANEL))
def test_every_panel_exports_parseable_values(name: str) -> None:
    for snapshot in (made.running(), made.starting(), made.diverged(), made.failed(), made.empty()):
        table = export.BY_PANEL[name](snapshot)
        rows = list(csv.reader(io.StringIO(export.as_csv(table))))
        assert tuple(rows[0]) == table.head
        assert len(rows) == len(table.rows) + 1
        assert {len(row) for row in rows} == {len(table.head)}


def test_exported_values_are_not_rounded() -> None:
    snapshot = made.running()
    rows = [row for row in written("loss", snapshot) if row["mean"]]
    assert float(rows[7]["mean"]) == snapshot.loss[7].mean
    assert [int(row["first_step"]) for row in rows] == [segment.first_step for segment in snapshot.loss]


def written(panel: str, snapshot: Snapshot) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export.as_csv(export.BY_PANEL[panel](snapshot)))))


def test_loss_export_is_one_table_by_step_and_cores() -> None:
    loss = [made.segment(step, [0.5, 1.5]) for step in (1, 2, 3)]
    columns = [made.core_column(step, step + wide, 2, {0: 0.5, 1: 1.5}) for step, wide in ((1, 0), (2, 1))]
    rows = written("loss", made.changed(made.running(), loss=loss, core_columns=columns))
    assert [(row["of"], row["first_step"], row["last_step"]) for row in rows] == [
        ("both", "1", "1"),
        ("all cores", "2", "2"),
        ("each core", "2", "3"),
        ("all cores", "3", "3"),
    ]
    assert (rows[0]["mean"], rows[0]["core_1_mean"]) == ("1.0", "1.5")
    assert [row["num_steps_of_cores"] for row in rows] == ["1", "", "2", ""]


def test_epoch_export_matches_the_screen() -> None:
    snapshot = made.running()
    epochs = [
        msgspec.structs.replace(epoch, best=True, sections_s={"compile": 0.5}, trace_s={"model": 0.25})
        for epoch in snapshot.epochs
    ]
    rows = written("epochs", made.changed(snapshot, epochs=epochs))
    assert [row["best"] for row in rows] == [*["False"] * (len(epochs) - 1), "True"]
    assert {row["best_so_far"] for row in rows} == {"True"}
    assert {row["trace_model_s"] for row in rows} == {"0.25"}
    assert float(rows[0]["steady_s"]) == epochs[0].train_s + epochs[0].valid_s - 0.5


@pytest.mark.parametrize(
    ("keys_before", "panel", "column", "kept"),
    [(["7", "v"], "log", "level", {"warning", "error"}), (["8", "f"], "events", "kind", {"warning"})],
    ids=["log", "events"],
)
def test_export_contains_only_filtered_rows_with_notice(
    tmp_path: Path, keys_before: list[str], panel: str, column: str, kept: set[str]
) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        await pilot.press(*keys_before, "e", "c")
        await until(pilot, lambda: ", as shown, written to" in text(app.screen))

    drive(app, script, size=(200, 50))
    [path] = tmp_path.iterdir()
    found = {row[column] for row in csv.DictReader(path.read_text().splitlines())}
    assert f"-{panel}-" in path.name
    assert found
    assert found <= kept


def test_exported_picture_has_no_earlier_notice(tmp_path: Path) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        for number in (1, 2):
            await pilot.press("e", "s")
            await until(pilot, lambda number=number: len(list(tmp_path.iterdir())) == number)  # type: ignore[misc]
            await until(pilot, lambda: "export: written to" in text(app.screen))

    drive(app, script, size=(200, 50))
    for path in tmp_path.iterdir():
        assert "written" not in path.read_text()


def test_every_monitor_panel_exports_values() -> None:
    assert set(arrangement.PANELS) | {arrangement.FAILURE} == set(export.BY_PANEL)


@pytest.mark.parametrize(
    ("key", "form", "wanted"),
    [("t", "txt", "accuracy"), ("c", "csv", "split,meter,epoch"), ("s", "svg", "</svg>")],
)
def test_e_writes_a_file_and_shows_its_path(tmp_path: Path, key: str, form: str, wanted: str) -> None:
    app = app_of(to=tmp_path)
    path = tmp_path / f"digits-20251009-100000-meters-{STAMP}.{form}"

    async def script(pilot: AppPilot) -> None:
        await pilot.press("3", "e")
        assert isinstance(app.screen, ExportScreen)
        await pilot.press(key)
        await until(pilot, lambda: "export: written to" in text(app.screen))

    drive(app, script, size=(200, 50))
    content = path.read_text()
    assert wanted in content
    if form == "svg":
        assert "Write" not in content


def test_the_list_of_runs_can_be_exported(tmp_path: Path) -> None:
    runs, to = tmp_path / "runs", tmp_path / "to"
    recorded.write_run(runs)
    to.mkdir()
    app = ScreenApp(lambda: RunsScreen(runs), export_to=to)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "done" in text(app.screen))
        await pilot.press("e", "c")
        await until(pilot, lambda: any(to.iterdir()))

    drive(app, script)
    [row] = csv.DictReader(next(to.iterdir()).read_text().splitlines())
    assert (row["run"], row["state"], row["steps"]) == (str(runs / "digits-1"), "done", "66")


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    paths = [export.write_new(tmp_path, "a-b.csv", str(number)) for number in range(3)]
    assert [path.name for path in paths] == ["a-b.csv", "a-b-2.csv", "a-b-3.csv"]
    assert [path.read_text() for path in paths] == ["0", "1", "2"]


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    app = app_of(to=tmp_path / "gone")

    async def script(pilot: AppPilot) -> None:
        await pilot.press("e", "t")
        await until(pilot, lambda: "export failed: No such file" in text(app.screen))

    drive(app, script, size=(200, 50))


def test_export_can_be_cancelled(tmp_path: Path) -> None:
    app = app_of(to=tmp_path)

    async def script(pilot: AppPilot) -> None:
        for cancel in ("escape", "q"):
            await pilot.press("e", cancel)
            assert isinstance(app.screen, MonitorScreen)

    drive(app, script)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("run", "panel", "name"),
    [
        ("digits-1", "loss", f"digits-1-loss-{STAMP}.csv"),
        ("../../etc/x y", "left out", f"etc_x_y-left_out-{STAMP}.csv"),
        ("\u4f60", "", f"x-x-{STAMP}.csv"),
    ],
)
def test_file_names_are_harmless(run: str, panel: str, name: str) -> None:
    assert export.file_name(run, panel, "csv", made.NOW) == name


# Palette and help.


async def search_palette(pilot: AppPilot, wanted: str) -> None:
    """Opens the palette and types."""
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))
    await pilot.press(*wanted)


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
        await pilot.pause(0.3)
        await pilot.press("enter")
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


def test_arrows_are_words_if_their_fallbacks_are_keys() -> None:
    player = made.HandPlayer()
    source = made.HandSource(made.running(), player)
    app = ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR), looks=Capabilities(ascii_only=True))

    async def script(pilot: AppPilot) -> None:
        assert "left right seek" in text(app.screen)
        await pilot.press("question_mark")
        help_text = app.screen.query_one(HelpPanel).as_text()
        for key, sentence in (("left", "back in time"), ("down j", "scroll the selected panel down")):
            assert re.search(rf"^ *{key} +{sentence}", help_text, re.MULTILINE)
        assert not set(help_text) & set("\u2190\u2192\u2191\u2193")

    drive(app, script, size=(160, 60))


def test_palette_titles_are_unique() -> None:
    for of_screen in (
        keymap.MONITOR,
        keymap.LOG,
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
        await pilot.pause(0.3)
        await pilot.press("enter")
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
    of_panels = {"LOG", "COMMON", "TYPING"}  # parts of the map of a screen
    assert {"MONITOR", "RUNS", "PICTURES"} <= set(maps)
    for name in set(maps) - of_panels:
        assert set(keymap.COMMON) <= set(maps[name]), name


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


def test_view_settings_are_saved_while_open(tmp_path: Path) -> None:
    path = tmp_path / "view.json"
    app = app_of(views=Views.opened(path))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("t")
        app._autosave()
        await until(pilot, path.exists)

    drive(app, script)
    assert LIGHT.name in path.read_text()


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
