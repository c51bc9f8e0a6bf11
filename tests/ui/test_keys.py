"""Every key of the monitor works as described in the help."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tputui.state.snapshot import Snapshot
from tputui.telemetry import requests
from tputui.ui.app import ScreenApp
from tputui.ui.base import keymap
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.body import PANEL_TYPES, Body
from tputui.ui.monitor.screen import MonitorResult, MonitorScreen
from tputui.ui.widgets.dialogs import ConfirmStop
from tputui.ui.widgets.player_bar import next_speed, play_or_pause, seek_by

ENDED = [made.finished(), made.failed(), made.changed(made.running(), condition="lost")]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The directory of a run that accepts requests."""
    return recorded.write_run(tmp_path, ended=False)


def test_q_leaves_with_the_newest_snapshot() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("q")

    assert drive(monitor(made.running()), script) == MonitorResult("quit", made.running())


def test_leaving_closes_the_session() -> None:
    source = made.HandSource(made.running())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("q")

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script)
    assert source.closed


def test_c_writes_a_request_and_reports_it(run_dir: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("c")
        await until(pilot, lambda: "checkpoint: requested" in text(pilot.app.screen))

    drive(monitor(made.running(), run_dir=run_dir), script)
    assert [(request.kind, request.by) for request in requests.read_all(run_dir)] == [("checkpoint", "screen")]


def test_shift_t_requests_a_profile(run_dir: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("T")
        await until(pilot, lambda: "profile: requested" in text(pilot.app.screen))

    drive(monitor(made.running(), run_dir=run_dir), script)
    assert [(request.kind, request.by) for request in requests.read_all(run_dir)] == [("trace", "screen")]


def test_s_asks_how_to_stop_and_writes_the_request(run_dir: Path) -> None:
    ways = {
        ("s", "s"): "stop",
        ("s", "enter"): "stop",
        ("s", "e"): "stop_after_epoch",
        ("s", "down", "enter"): "stop_after_epoch",
        ("s", "n"): "stop_now",
        ("s", "up", "up", "enter"): "stop_now",
    }

    async def script(pilot: AppPilot) -> None:
        for number, pressed in enumerate(ways, start=1):
            await pilot.press(*pressed)
            await until(pilot, lambda number=number: len(requests.read_all(run_dir)) == number)  # type: ignore[misc]
        await until(pilot, lambda: "stop at once: requested" in text(pilot.app.screen))

    drive(monitor(made.running(), run_dir=run_dir), script)
    assert [request.kind for request in requests.read_all(run_dir)] == list(ways.values())


def test_s_can_be_cancelled(run_dir: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        for pressed in (["escape"], ["q"], ["up", "enter"]):
            await pilot.press("s")
            assert isinstance(pilot.app.screen, ConfirmStop)
            await pilot.press(*pressed)
            assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(made.running(), run_dir=run_dir), script)
    assert requests.read_all(run_dir) == []


def refuses(app: ScreenApp, run_dir: Path, why: str) -> None:
    """Both requests are refused with the reason, and nothing is written."""

    async def script(pilot: AppPilot) -> None:
        for key, what in (("c", "checkpoint"), ("s", "stop"), ("T", "profile")):
            await pilot.press(key)
            await until(pilot, lambda what=what: f"{what}: {why}" in text(pilot.app.screen))  # type: ignore[misc]

    drive(app, script)
    assert requests.read_all(run_dir) == []


@pytest.mark.parametrize("snapshot", ENDED, ids=lambda snapshot: snapshot.condition)
def test_an_ended_run_takes_no_request(run_dir: Path, snapshot: Snapshot) -> None:
    refuses(monitor(snapshot, run_dir=run_dir), run_dir, f"the run has ended ({snapshot.condition})")


def test_a_replay_takes_no_request(run_dir: Path) -> None:
    refuses(monitor(made.running(), player=made.HandPlayer(), run_dir=run_dir), run_dir, "not possible in a recording")


def test_a_read_only_view_takes_no_request(run_dir: Path) -> None:
    refuses(monitor(made.running(), run_dir=run_dir, read_only=True), run_dir, "this view is read-only")


def test_unwritable_request_is_reported(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("c")
        await until(pilot, lambda: "the request cannot be written" in text(pilot.app.screen))

    drive(monitor(made.running(), run_dir=tmp_path / "gone"), script, size=(160, 45))


def test_numbers_select_panels_at_80x24() -> None:
    async def script(pilot: AppPilot) -> None:
        for panel in PANEL_TYPES[:-2]:
            await pilot.press(panel.key)
            assert f"{panel.key} {panel.name_shown}" in text(pilot.app.screen)
            assert pilot.app.screen.query_one(panel).has_focus

    drive(monitor(made.running()), script, size=(80, 24))


def test_tab_cycles_panels() -> None:
    async def script(pilot: AppPilot) -> None:
        body = pilot.app.screen.query_one(Body)
        seen = [body.selected]
        for _ in range(10):
            await pilot.press("tab")
            seen.append(body.selected)
        names = ["cores", "loss", "meters", "epochs", "xla", "memory", "log", "events", "pace", "diagnosis"]
        assert seen == [*names, "cores"]
        await pilot.press("shift+tab")
        assert body.selected == "diagnosis"

    drive(monitor(made.running()), script, size=(80, 24))


def test_zero_selects_the_failure_if_any() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("0", "enter")
        assert "Traceback" in text(pilot.app.screen)
        assert "1 cores" not in text(pilot.app.screen)

    drive(monitor(made.failed()), script, size=(80, 24))


def test_zero_does_nothing_without_a_failure() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("0")
        assert pilot.app.screen.query_one(Body).selected == "cores"

    drive(monitor(made.running()), script, size=(80, 24))


def test_enter_toggles_full_screen() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("4")
        for there, back in (("enter", "enter"), ("z", "z"), ("enter", "escape"), ("4", "4")):
            await pilot.press(there)
            await until(pilot, lambda: "1 cores" not in text(pilot.app.screen))
            assert "evaluate" in text(pilot.app.screen)
            await pilot.press(back)
            await until(pilot, lambda: "1 cores" in text(pilot.app.screen))

    drive(monitor(made.running()), script, size=(80, 24))


def test_l_switches_the_axis_and_back() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("l")
        assert "log axis" in text(pilot.app.screen)
        await pilot.press("l")
        assert "log axis" not in text(pilot.app.screen)

    drive(monitor(made.running()), script)


def test_the_log_scrolls_and_follows() -> None:
    line = made.running().logs[0]
    logs = [msgspec.structs.replace(line, text=f"line {number}") for number in range(100)]
    end = "line 99"

    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        await pilot.press("7")
        assert end in text(screen)
        await pilot.press("pageup", "pageup", "pageup")
        assert end not in text(screen)
        await pilot.press("home")
        assert "line 0" in text(screen)
        await pilot.press("pagedown", "down", "j", "k", "G")
        assert end in text(screen)
        await pilot.press("home", "end")
        assert end in text(screen)

    drive(monitor(made.changed(made.running(), logs=logs)), script)


def test_help_lists_every_key_and_panel() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        shown = text(pilot.app.screen)
        for key in keymap.in_force(keymap.MONITOR, replaying=False):
            assert key.shown in shown
        for panel in PANEL_TYPES:
            assert panel.what[:30] in shown
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(made.running()), script, size=(160, 170))


def test_help_scrolls_if_too_long() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("question_mark")
        before = text(pilot.app.screen)
        await pilot.press("down", "pagedown", "pagedown", "up", "pageup", "pagedown", "pagedown")
        assert text(pilot.app.screen) != before
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(made.running()), script, size=(80, 24))


def test_the_footer_names_the_keys_in_force() -> None:
    async def script(pilot: AppPilot) -> None:
        footer = text(pilot.app.screen).splitlines()[-1]
        assert "q detach" in footer
        assert "c checkpoint" in footer
        assert "? help" in footer

    drive(monitor(made.running()), script, size=(80, 24))


def test_the_keys_of_a_replay() -> None:
    player = made.HandPlayer()
    steps = [
        ("space", lambda: not player.playing),
        ("space", lambda: player.playing),
        ("right", lambda: player.position == made.NOW + 50),
        ("left", lambda: player.position == made.NOW + 40),
        ("left_square_bracket", lambda: player.speed == 0.5),
        ("right_square_bracket", lambda: player.speed == 1),
        ("right_square_bracket", lambda: player.speed == 2),
        ("left_square_bracket", lambda: player.speed == 1),
        ("home", lambda: player.position == player.start),
        ("end", lambda: player.position == player.end),
        ("home", lambda: player.position == player.start),
        ("b", lambda: player.position == player.end),
    ]

    async def script(pilot: AppPilot) -> None:
        for key, holds in steps:
            await pilot.press(key)
            await until(pilot, holds)

    drive(monitor(made.running(), player=player), script)


def test_playing_from_the_end_begins_anew() -> None:
    player = made.HandPlayer()
    player.playing, player.position = False, player.end
    play_or_pause(player)
    assert (player.playing, player.position) == (True, player.start)


def test_seeking_moves_5_percent_within_the_recording() -> None:
    player = made.HandPlayer()
    player.end = player.start + 4000
    seek_by(player, 1)
    assert player.position == made.NOW + 240
    seek_by(player, -1)
    seek_by(player, -1)
    assert player.position == player.start


def test_speed_stays_within_bounds() -> None:
    assert next_speed(1000.0, 1) == 1000.0
    assert next_speed(0.1, -1) == 0.1


def test_the_screen_survives_every_size() -> None:
    async def script(pilot: AppPilot) -> None:
        for size in [(20, 5), (80, 24), (1, 1), (200, 50), (59, 40), (120, 36), (300, 12), (80, 24)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "7 log" in text(pilot.app.screen)

    drive(monitor(made.diverged()), script)


def test_a_run_that_ends_while_watched_stays() -> None:
    source = made.HandSource(made.running())

    async def script(pilot: AppPilot) -> None:
        source.served = made.finished()
        await until(pilot, lambda: "DONE" in text(pilot.app.screen))
        assert "exit code" not in text(pilot.app.screen)

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script)


def test_foreign_text_is_escaped() -> None:
    evil = "[bold red]x[/] \x1b[2J\x1b]0;title\x07 \u202etxet [@click=app.quit]y[/]"
    line = msgspec.structs.replace(made.running().logs[0], text=evil, source=evil)
    snapshot = made.changed(made.running(), run=evil, logs=[line], condition_reason=evil)

    async def script(pilot: AppPilot) -> None:
        shown = text(pilot.app.screen)
        assert "[bold red]x[/]" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "title" not in shown

    drive(monitor(snapshot), script, size=(200, 50))


def test_narrow_footer_names_whole_keys_and_always_the_help() -> None:
    for width in (20, 40, 60):

        async def script(pilot: AppPilot) -> None:
            footer = text(pilot.app.screen).splitlines()[-1].rstrip()
            assert footer.startswith(" q detach")
            assert footer.endswith("? help")
            assert "\u2026" not in footer

        drive(monitor(made.running()), script, size=(width, 24))


def test_request_keys_are_hidden_if_read_only_or_ended() -> None:
    for app in (monitor(made.running(), read_only=True), monitor(made.finished())):

        async def script(pilot: AppPilot) -> None:
            footer = text(pilot.app.screen).splitlines()[-1]
            assert "checkpoint" not in footer
            assert "stop" not in footer
            await pilot.press("question_mark")
            assert "ask the run to stop" not in text(pilot.app.screen)

        drive(app, script, size=(160, 60))


def test_footer_shows_input_keys_while_searching() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "slash", "a")
        await until(pilot, lambda: "enter accept" in text(pilot.app.screen).splitlines()[-1])
        assert "detach" not in text(pilot.app.screen).splitlines()[-1]
        assert "panels" not in text(pilot.app.screen).splitlines()[-1], "a digit is part of the search"
        await pilot.press("escape")
        await until(pilot, lambda: "detach" in text(pilot.app.screen).splitlines()[-1])

    drive(monitor(made.running()), script)


def test_esc_hides_alarms_after_everything_else() -> None:
    async def script(pilot: AppPilot) -> None:
        assert "7 recompiles" in text(pilot.app.screen)
        await pilot.press("z", "escape")
        assert "7 recompiles" in text(pilot.app.screen)
        await pilot.press("escape")
        await until(pilot, lambda: "7 recompiles" not in text(pilot.app.screen).splitlines()[3])

    drive(monitor(made.diverged()), script, size=(160, 45))


def test_only_the_selected_panel_frame_is_highlighted() -> None:
    async def script(pilot: AppPilot) -> None:
        for key in ("4", "7"):
            await pilot.press(key)
        await pilot.pause()
        panels = pilot.app.screen.query_one(Body).panels()
        assert [panel.id for panel in panels if panel._lines and panel._lines[0][0].tone == "accent"] == ["log"]

    drive(monitor(made.running()), script, size=(160, 45))


IDEAS = {
    "all": {"show_all", "older", "show_archived"},
    "back": {"close", "restore", "drop_search", "drop_host", "back", "leave"},
    "cursor left": {"cursor(-1)", "seek(-1)", "turn(-1)"},
    "cursor right": {"cursor(1)", "seek(1)", "turn(1)"},
    "far left": {"cursor(-10)", "pan(-1)"},
    "far right": {"cursor(10)", "pan(1)"},
    "delete": {"reset", "edit('delete')"},
    "down": {"move(1)", "scroll(1)"},
    "end": {"move(1000000)", "scroll(1000000)", "end", "follow"},
    "filter": {"next_lane", "next_kind"},
    "next": {"event(1)", "choose(1)", "match(1)", "epoch(1)"},
    "next metric": {"next_meter(1)", "page(1)"},
    "next part": {"cycle(1)", "table(1)"},
    "open": {"open", "take", "edit", "maximise"},
    "pin": {"pin", "edit('pin')"},
    "previous": {"event(-1)", "choose(-1)", "match(-1)", "epoch(-1)"},
    "previous metric": {"next_meter(-1)", "page(-1)"},
    "previous part": {"cycle(-1)", "table(-1)"},
    "reset": {"reset", "reset_sizes"},
    "search": {"search", "filter", "find"},
    "start": {"move(-1000000)", "scroll(-1000000)", "home"},
    "toggle": {"mark", "hide", "play_or_pause", "turn(1)"},
    "up": {"move(-1)", "scroll(-1)"},
    "view": {"next_view(1)", "next_level", "columns"},
}
"""Actions of different screens that are the same idea, by its name."""

OWN_KEYS = {
    ("n", "RUNS"): "starts a run; the list has no next event",
    ("p", "PICTURES"): "leaves the pictures that it opened",
}
"""Keys with a meaning of their own on one screen, and why."""


def test_a_key_means_the_same_on_every_screen() -> None:
    meanings: dict[str, set[str]] = {}
    for screen in ("MONITOR", "LOG", "HOSTS", "PICTURES", "RUNS", "COMPARE", "CONFIGS", "LAUNCH"):
        for key in getattr(keymap, screen):
            action = (
                key.action.removesuffix(")").rpartition(", ")[2].strip("'\"")
                if "on_widget" in key.action
                else key.action
            )
            ideas = {name for name, actions in IDEAS.items() if action in actions} or {action}
            for each in key.keys.split(","):
                if (each, screen) not in OWN_KEYS:
                    known = meanings.setdefault(each, ideas)
                    assert known & ideas, f"{each} means {known}, on the screen {screen} {ideas}"
                    meanings[each] = known & ideas


def test_a_screen_binds_a_key_once() -> None:
    for screen in ("MONITOR", "LOG", "HOSTS", "PICTURES", "RUNS", "COMPARE", "CONFIGS", "LAUNCH"):
        bound = [each for key in getattr(keymap, screen) for each in key.keys.split(",")]
        assert len(bound) == len(set(bound)), screen


@pytest.mark.parametrize("action", ["checkpoint", "stop", "app.export_panel", "app.undo_view", "help"])
def test_an_action_has_the_same_key_on_every_screen(action: str) -> None:
    screens = (keymap.MONITOR, keymap.RUNS, keymap.COMPARE, keymap.CONFIGS, keymap.LAUNCH)
    assert len({key.keys for screen in screens for key in screen if key.action == action}) == 1


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
@pytest.mark.parametrize("key", ["", "question_mark", "s", "X", "d", "r", "e", "p", "ctrl+p"])
def test_ctrl_c_says_how_to_leave_every_screen(run_dir: Path, key: str, size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        if key:
            before = pilot.app.screen
            await pilot.press(key)
            await until(pilot, lambda: pilot.app.screen is not before)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Ctrl-C does not quit" in text(pilot.app.screen))
        leave = "q" if key in ("", "p", "ctrl+p") else "esc"
        assert f": {leave} leaves this screen" in text(pilot.app.screen)

    drive(monitor(made.running(), run_dir=run_dir), script, size=size)
