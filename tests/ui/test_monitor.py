"""Charts, events and player of the monitor, by key and by mouse, on made snapshots and recorded runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual import events as _events

from tests import recorded
from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tputui.cli.open_run import parting
from tputui.session.session import Session
from tputui.state.chart_data import Mark
from tputui.state.snapshot import PlanView, Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base import keymap
from tputui.ui.base.preferences import Views
from tputui.ui.base.reader_thread import PlayerState
from tputui.ui.charts import events_line
from tputui.ui.charts.chart_view import ChartView, Window
from tputui.ui.monitor.body import Body
from tputui.ui.monitor.cores import CoresPanel
from tputui.ui.monitor.epochs import EpochsPanel
from tputui.ui.monitor.events import EventsPanel
from tputui.ui.monitor.header import Behind, Header
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.loss import LossPanel
from tputui.ui.monitor.memory import MemoryPanel
from tputui.ui.monitor.pace import PacePanel
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.monitor.xla import XlaPanel
from tputui.ui.render.lines import width_of
from tputui.ui.widgets.player_bar import PlayerBar, by_step, by_time

WIDE = (160, 45)


def look(pilot: AppPilot) -> ChartView:
    """The view settings of the loss chart."""
    return pilot.app.screen.query_one(LossPanel).look


def shown(pilot: AppPilot) -> str:
    """The text of the screen."""
    return text(pilot.app.screen)


def live_player() -> made.HandPlayer:
    """A player that follows the newest moment until it is moved."""
    player = made.HandPlayer()
    player.start, player.end, player.position, player.live = made.NOW - 60, made.NOW, made.NOW, True
    player.follows = True
    return player


# The keys.


def test_keys_of_the_monitor_are_unique() -> None:
    pressed = [key for entry in keymap.MONITOR for key in entry.keys.split(",")]
    assert len(pressed) == len(set(pressed))


def test_v_goes_through_the_views_and_back() -> None:
    seen = []

    async def script(pilot: AppPilot) -> None:
        for key in ("v", "v", "v", "v", "V", "V"):
            await pilot.press(key)
            seen.append(look(pilot).kind)
            if look(pilot).kind != "band":
                assert look(pilot).kind in shown(pilot)

    drive(monitor(made.outlying()), script, size=WIDE)
    assert seen == ["overlay", "multiples", "heat", "band", "heat", "multiples"]


def test_plus_and_minus_change_smoothing_shown_in_frame() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("plus", "plus", "equals_sign")
        assert "EMA 0.9" in shown(pilot)
        assert "\u2500\u2500 raw" in shown(pilot)
        await pilot.press("minus")
        assert "EMA 0.8" in shown(pilot)
        await pilot.press("minus", "minus", "minus")
        assert "EMA" not in shown(pilot)

    drive(monitor(made.running()), script, size=WIDE)


def test_x_goes_through_the_axes() -> None:
    async def script(pilot: AppPilot) -> None:
        for kind in ("epoch", "time", "examples"):
            await pilot.press("x")
            assert f"by {kind}" in shown(pilot)
        await pilot.press("x")
        assert look(pilot).x == "step"

    drive(monitor(made.running()), script, size=WIDE)


def test_x_skips_unavailable_axes() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("x")
        assert look(pilot).x == "time"
        await pilot.press("x")
        assert look(pilot).x == "step"

    drive(monitor(made.changed(made.running(), plan=None, epoch_starts=[])), script)


def test_l_counts_points_hidden_by_log_axis() -> None:
    loss = [made.segment(1, [-1.0]), *made.segments()[1:]]

    async def script(pilot: AppPilot) -> None:
        await pilot.press("l")
        assert "log axis, 1 points <= 0 not shown" in shown(pilot)

    drive(monitor(made.changed(made.running(), loss=loss)), script, size=WIDE)


def test_zoom_and_pan_and_all() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("i")
        assert look(pilot).window == Window(165, None)
        assert "steps 166 to 330" in shown(pilot)
        await pilot.press("less_than_sign")
        assert look(pilot).bounds(1, 330) == (125, 289)
        await pilot.press("greater_than_sign")
        assert look(pilot).window == Window(165, None)
        await pilot.press("i", "I")
        assert look(pilot).window == Window(164, None)
        await pilot.press("a")
        assert look(pilot).window is None

    drive(monitor(made.running()), script, size=WIDE)


def test_cursor_reads_values_and_can_be_removed() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("comma")
        assert look(pilot).cursor == 330
        assert "step 330  epoch 3.00  1 min 00 s  21,120 examples" in shown(pilot)
        assert f"train {made.segments()[-1].mean:.4f}" in shown(pilot)
        await pilot.press("comma", "comma")
        at = look(pilot).cursor
        assert at is not None
        assert 320 < at < 330
        await pilot.press("full_stop", "full_stop", "full_stop")
        assert look(pilot).cursor == 330
        await pilot.press("2", "2", "escape")
        body = pilot.app.screen.query_one(Body)
        assert (look(pilot).cursor, body.maximised) == (None, True)
        await pilot.press("escape")
        assert not body.maximised

    drive(monitor(made.running()), script, size=WIDE)


def test_header_marks_a_run_and_a_moment_that_are_still_being_read() -> None:
    player = made.LivePlayer()
    source = made.HandSource(made.running(), player)
    source.caught_up = False

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "reading ..." in header(pilot))
        source.caught_up, source.served = True, made.changed(made.running(), lr=0.5)
        await until(pilot, lambda: "reading ..." not in header(pilot))
        source.caught_up, source.served = False, made.changed(made.running(), lr=0.25)
        await until(pilot, lambda: "lr 0.25" in header(pilot))
        assert "reading ..." not in header(pilot), "events that were just written"
        player.live, player.playing, player.position = False, False, player.start
        await until(pilot, lambda: "reading ..." in header(pilot))

    def header(pilot: AppPilot) -> str:
        return "\n".join(shown(pilot).splitlines()[:4])

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=WIDE)


def test_escape_leaves_full_screen_of_another_panel_before_the_cursor() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("comma", "3", "3", "escape")
        body = pilot.app.screen.query_one(Body)
        assert not body.maximised
        assert look(pilot).cursor is not None
        await pilot.press("escape")
        assert look(pilot).cursor is None

    drive(monitor(made.running()), script, size=WIDE)


def test_cursor_scrolls_the_visible_range() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("i", "i", "i", "i", "comma", *["comma"] * 30)
        cursor = look(pilot).cursor
        assert cursor is not None
        assert cursor < 310
        low, high = look(pilot).bounds(1, 330)
        assert low <= cursor <= high

    drive(monitor(made.running()), script)


def test_at_80x24_cursor_and_outlier_share_one_line() -> None:
    async def script(pilot: AppPilot) -> None:
        assert "\u25b4 core 5 +1.81" in shown(pilot)
        await pilot.press("comma")
        assert "step 330 train" in shown(pilot)

    drive(monitor(made.outlying()), script, size=(80, 24))


def test_chart_changes_are_saved_and_can_be_undone() -> None:
    views = Views()
    source = made.HandSource(made.running())

    async def script(pilot: AppPilot) -> None:
        await pilot.press("v", "plus", "l", "x")
        changed = ChartView(kind="overlay", smoothing=1, log=True, x="epoch")
        assert look(pilot) == changed
        assert views.get("loss.view", "") == "overlay"
        assert views.get("loss.smoothing", 0) == 1
        await pilot.press("u", "u")
        assert look(pilot) == changed._replace(log=False, x="step")
        await pilot.press("u", "u")
        assert look(pilot) == ChartView()

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR), views=views), script)
    views.set("loss.view", "heat")

    async def later(pilot: AppPilot) -> None:
        assert look(pilot).kind == "heat"

    drive(ScreenApp(lambda: MonitorScreen(made.HandSource(made.running()), made.RUN_DIR), views=views), later)


def test_zoom_and_pan_bursts_are_undone_at_once() -> None:
    async def script(pilot: AppPilot) -> None:
        panel, now = pilot.app.screen.query_one(LossPanel), [0.0]
        panel.clock = lambda: now[0]
        await pilot.press("l", "i", "i")
        now[0] += 60
        await pilot.press("i", "less_than_sign", "less_than_sign", "comma")
        now[0] += 60
        await pilot.press("a")
        cursor = look(pilot).cursor
        for span, last in ((41, 310), (41, None), (82, None), (None, None)):
            await pilot.press("u")
            window = None if span is None else Window(span, last)
            assert look(pilot) == ChartView(log=True, window=window, cursor=cursor)
        await pilot.press("u")
        assert not look(pilot).log

    drive(monitor(made.running()), script, size=WIDE)


def test_zoom_after_undo_is_a_separate_change() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        now = [0.0]
        panel.clock = lambda: now[0]
        await pilot.press("i")
        now[0] += 60
        await pilot.press("i", "u", "i", "u")
        assert look(pilot).window == Window(165, None)

    drive(monitor(made.running()), script, size=WIDE)


def test_d_shows_skipped_examples() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("d")
        assert "no example was left out" in shown(pilot)
        await pilot.press("d")
        assert isinstance(pilot.app.screen, MonitorScreen)

    drive(monitor(made.running()), script)


# The mouse.


def test_wheel_zooms_at_the_mouse() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        middle = (panel.size.width // 2, 8)
        await pilot._post_mouse_events([_events.MouseScrollUp], panel, middle, button=0)
        low, high = look(pilot).bounds(1, 330)
        assert high - low == pytest.approx(165, abs=1)
        assert low == pytest.approx(80, abs=12)
        await pilot._post_mouse_events([_events.MouseScrollDown], panel, middle, button=0)
        assert look(pilot).window is None

    drive(monitor(made.running()), script, size=WIDE)


def test_click_places_the_cursor_and_drag_moves_it() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(LossPanel)
        await pilot.mouse_down(panel, offset=(60, 8))
        first = look(pilot).cursor
        await pilot.hover(panel, offset=(80, 8))
        second = look(pilot).cursor
        await pilot.mouse_up(panel, offset=(80, 8))
        await pilot.hover(panel, offset=(30, 8))
        assert first is not None
        assert second is not None
        assert second - first == pytest.approx(20 / 103 * 330, abs=6)
        assert look(pilot).cursor == second

    drive(monitor(made.running()), script, size=WIDE)


def test_a_click_into_a_small_chart_reads_its_own_axis() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("v", "v", "2", "enter")
        assert look(pilot).kind == "multiples"
        panel = pilot.app.screen.query_one(LossPanel)
        at = next(
            line.index("core 1 ") for line in shown(pilot).splitlines() if "core 0 " in line and "core 1 " in line
        )
        read = []
        for cell in (12, at + 12, 30, at + 30):
            await pilot.mouse_down(panel, offset=(cell, 8))
            await pilot.mouse_up(panel, offset=(cell, 8))
            step = look(pilot).cursor
            assert step is not None
            read.append(step)
            near = min(range(1, 331, 2), key=lambda first: abs(first - step))
            assert f"core 0 {made.loss_at(near, 0):.4f}" in panel.as_text(), "the titles show what is under the cursor"
        assert read[0] == pytest.approx(read[1], abs=9)
        assert read[2] == pytest.approx(read[3], abs=9)
        assert read[2] - read[0] == pytest.approx(18 / (at - 2) * 330, rel=0.2)

    drive(monitor(made.running()), script, size=WIDE)


def test_map_reads_clicked_and_adjacent_rows() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("V", "2")
        assert look(pilot).kind == "heat"
        panel = pilot.app.screen.query_one(LossPanel)
        lines = shown(pilot).splitlines()
        row = next(at for at, line in enumerate(lines) if " 3\u2524" in line) - panel.region.y
        await pilot.mouse_down(panel, offset=(60, row))
        await pilot.mouse_up(panel, offset=(60, row))
        step = look(pilot).cursor
        assert step is not None
        for key, core in (("", 3), ("down", 4), ("up", 3), ("pageup", 0), ("pagedown", 7)):
            await pilot.press(*filter(None, [key]))
            assert f"core {core} {made.loss_at(step - 1 + step % 2, core):.4f}" in panel.as_text(), "two steps a column"
            assert f"\u276f{core}\u2524" in panel.as_text()
        assert look(pilot).cursor == step
        await pilot.press("escape", "down")
        assert f"core 0 {made.loss_at(329, 0):.4f}" in panel.as_text(), "read at the newest step"

    drive(monitor(made.running()), script, size=WIDE)


def test_row_of_many_cores_shows_the_most_extreme() -> None:
    run = made.running(2048)
    columns = [made.core_column(c.first_step, c.last_step, 2048, {700: 1.9}) for c in run.core_columns]
    panel = LossPanel()
    panel.look = ChartView(kind="heat", cursor=200, core=640)
    drawing = panel.draw(panel.pick(made.changed(run, core_columns=columns)), 120, 30)
    said = "".join(span.text for line in drawing.head for span in line)
    assert "core 700 1.9000  +" in said
    assert "% from the median core, farthest of 640 to 767" in said


def test_player_bar_can_be_dragged() -> None:
    player = made.HandPlayer()

    async def script(pilot: AppPilot) -> None:
        bar = pilot.app.screen.query_one(PlayerBar)
        first, cells = bar._bar
        await pilot.click(bar, offset=(first, 0))
        await until(pilot, lambda: player.position == player.start)
        await pilot.mouse_down(bar, offset=(first + cells // 2, 0))
        await pilot.hover(bar, offset=(first + cells - 1, 0))
        await until(pilot, lambda: player.position == player.end)
        await pilot.mouse_up(bar, offset=(first, 0))

    drive(monitor(made.running(), player=player), script)


# Events.


def test_n_moves_the_cursor_between_events_live() -> None:
    async def script(pilot: AppPilot) -> None:
        visited = []
        for key in ("n", "N", "N", "N", "N", "n"):
            await pilot.press(key)
            visited.append(look(pilot).cursor)
        assert visited == [221, 220, 218, 150, 111, 150]
        assert "! step 150: the host has 2 cores" in shown(pilot)
        await pilot.press("N", "N", "N", "N")
        assert "no earlier event" in shown(pilot)

    drive(monitor(made.running()), script, size=WIDE)


def test_f_filters_events_and_n_follows_the_filter() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(EventsPanel)
        await pilot.press("8", "f")
        assert panel.kind == "warning"
        assert "warning only: 1 of 10" in shown(pilot)
        await pilot.press("f", "f")
        assert panel.kind == "best"
        await pilot.press("n")
        assert look(pilot).cursor == 220
        await pilot.press("N")
        assert look(pilot).cursor == 110
        for _ in range(10):
            await pilot.press("f")
            if panel.kind is None:
                break
        assert panel.kind is None

    drive(monitor(made.running()), script, size=WIDE)


def test_event_can_be_selected_and_visited() -> None:
    async def script(pilot: AppPilot) -> None:
        body, panel = pilot.app.screen.query_one(Body), pilot.app.screen.query_one(EventsPanel)
        await pilot.press("8", "enter")
        assert body.maximised
        await pilot.press("up", "k", "k", "k", "j")
        assert panel.chosen == made.marks()[-3]
        await pilot.press("enter")
        assert look(pilot).cursor == 220
        await pilot.press("z")
        assert not body.maximised
        await pilot.press("home")
        assert panel.chosen == made.marks()[0]
        await pilot.press("end", "G")
        assert panel.chosen is None

    drive(monitor(made.running()), script, size=WIDE)


def test_a_click_goes_to_an_event() -> None:
    async def script(pilot: AppPilot) -> None:
        panel = pilot.app.screen.query_one(EventsPanel)
        await pilot.click(panel, offset=(5, 6))
        await until(pilot, lambda: look(pilot).cursor == made.marks()[5].step)
        assert panel.chosen == made.marks()[5]

    drive(monitor(made.running()), script, size=WIDE)


def test_log_and_cursor_follow_each_other() -> None:
    line = made.running().logs[0]
    logs = [msgspec.structs.replace(line, t=made.step_t(step), text=f"said at {step}") for step in range(10, 331, 10)]

    async def script(pilot: AppPilot) -> None:
        log = pilot.app.screen.query_one(LogPanel)
        await pilot.press("N", "N", "N")
        await until(pilot, lambda: "said at 210" in shown(pilot))
        assert log._chosen_entry is not None
        assert log._chosen_entry.line.text == "said at 210"
        await pilot.press("7", "up")
        await until(pilot, lambda: look(pilot).cursor == 200)

    drive(monitor(made.changed(made.running(), logs=logs)), script, size=WIDE)


def test_events_by_step_and_by_time() -> None:
    marks = made.marks()
    assert by_step([], None, 1) is None
    assert by_step(marks, None, -1) == marks[-1]
    assert by_step(marks, 330, 1) is None
    first, last = marks[0], marks[-1]
    assert by_time(marks, first.t - 1, 1) == first
    assert by_time(marks, first.t, -1) is None
    assert by_time(marks, last.t + 1, -1) == last
    assert by_time(marks, last.t, 1) is None


# Time.


def test_live_view_looks_back_and_returns() -> None:
    player = live_player()
    source = made.HandSource(made.running(), player)
    source.newest_served = made.running()
    past = made.changed(made.running(), now=made.NOW - 40, newest_fact=made.NOW - 40, steps=120, marks=made.marks()[:5])

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "\u25cf live" in shown(pilot))
        assert "looking back" not in shown(pilot)
        player.live, player.position, source.served = False, player.end - 40, past
        await until(pilot, lambda: "viewing 40 s ago (step 120 of 330)" in shown(pilot))
        assert "b: live" in shown(pilot)
        assert "b now" in shown(pilot).splitlines()[-1]
        await pilot.press("n")
        await until(pilot, lambda: player.position == made.marks()[2].t)
        await pilot.press("n")
        await until(pilot, lambda: player.position == made.marks()[4].t)
        source.served = made.running()
        for key in ("b", "end"):
            player.live, player.position = False, player.start
            await pilot.press(key)
            await until(pilot, lambda: player.position == player.end)

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script, size=WIDE)


def test_a_jump_to_an_event_pauses_a_playing_replay(tmp_path: Path) -> None:
    session = Session.replay(recorded.write_run(tmp_path), clock=lambda: 0.0)
    assert session.player.playing

    async def script(pilot: AppPilot) -> None:
        await pilot.press("n")
        await until(pilot, lambda: "\u23f8" in shown(pilot) or "paused" in shown(pilot))
        assert not session.player.playing
        assert session.player.position > session.player.start

    drive(ScreenApp(lambda: MonitorScreen(session, tmp_path / "digits-1")), script, size=WIDE)


def test_jump_between_events_mentions_downsampling() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("N")
        await until(pilot, lambda: "only 10 of 603 events are available" in shown(pilot))

    drive(monitor(made.changed(made.running(), num_marks=603)), script, size=WIDE)

    async def whole(pilot: AppPilot) -> None:
        await pilot.press("N")
        await until(pilot, lambda: "epoch 3 began" in shown(pilot))
        assert "are available" not in shown(pilot)

    drive(monitor(made.running()), whole, size=WIDE)


def test_ctrl_c_shows_how_to_leave() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Ctrl-C does not quit: q leaves this screen, ctrl+q quits" in shown(pilot))
        await pilot.press("7", "slash", "ctrl+c")
        await until(pilot, lambda: "Ctrl-C does not quit" in shown(pilot))
        assert pilot.app.screen.query_one(LogPanel).as_text() is not None
        await pilot.press("escape", "question_mark", "ctrl+c")
        assert pilot.app.is_running

    drive(monitor(made.running()), script)


def test_run_that_ends_while_looking_back_is_reported(tmp_path: Path) -> None:
    """The screen shows it at once, and the result is that of a live view."""
    growing = recorded.Growing(tmp_path)
    growing.go_on(7)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "\u25cf live" in shown(pilot))
        await pilot.press("left")
        await until(pilot, lambda: "looking back" in shown(pilot) and "the run continues" in shown(pilot))
        growing.go_on(60)
        # It says "reading ..." instead until the last of the new events is read.
        await until(pilot, lambda: "run DONE" in shown(pilot) and "reading ..." not in shown(pilot))
        assert "looking back" in shown(pilot)
        assert "the run continues" not in shown(pilot)
        await pilot.press("q")

    left = drive(ScreenApp(lambda: MonitorScreen(growing.session, growing.run_dir)), script, size=WIDE)
    assert left is not None
    assert left.snapshot is not None
    assert (left.snapshot.condition, left.snapshot.exit_code) == ("done", 0)
    assert parting(left.snapshot, growing.run_dir)[0] == "digits-1 done: 3 epochs trained"


def test_requests_work_while_looking_back(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, ended=False)
    player = live_player()

    async def script(pilot: AppPilot) -> None:
        player.live = False
        await until(pilot, lambda: "looking back" in shown(pilot))
        await pilot.press("c")
        await until(pilot, lambda: "checkpoint: requested" in shown(pilot))

    source = made.HandSource(made.running(), player)
    drive(ScreenApp(lambda: MonitorScreen(source, run_dir)), script)


def test_followed_recording_can_look_back(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, ended=False)
    session = Session.live(run_dir, clock=lambda: recorded.T0 + 11)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "\u25cf live" in shown(pilot))
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        await until(pilot, lambda: screen.frame is not None and screen.frame.snapshot.steps > 20)
        now = screen.frame.snapshot.steps if screen.frame is not None else 0
        await pilot.press("left", "left", "left")
        await until(pilot, lambda: "looking back" in shown(pilot))
        await until(pilot, lambda: screen.frame is not None and screen.frame.snapshot.steps < now)
        await pilot.press("b")
        await until(pilot, lambda: "\u25cf live" in shown(pilot) and "looking back" not in shown(pilot))
        await until(pilot, lambda: screen.frame is not None and screen.frame.snapshot.steps == now)

    drive(ScreenApp(lambda: MonitorScreen(session, run_dir)), script, size=WIDE)


def test_event_notice_disappears_with_its_moment(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    session = Session.live(run_dir, clock=lambda: recorded.T0 + 60)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "DONE" in shown(pilot))
        for key in ("home", "end", "b", "left", "space"):
            await pilot.press("home")
            await until(pilot, lambda: "00:00.0 /" in shown(pilot))
            await pilot.press("n")
            await until(pilot, lambda: "\u276f \u2575 step 1: epoch 1 began" in shown(pilot))
            await pilot.press(key)
            assert "\u276f \u2575 step 1" not in shown(pilot), "at once, not after its time"

    drive(ScreenApp(lambda: MonitorScreen(session, run_dir)), script)


def test_home_seeks_to_the_start_of_an_ended_run(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    session = Session.live(run_dir, clock=lambda: recorded.T0 + 60)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "DONE" in shown(pilot))
        await pilot.press("home")
        await until(pilot, lambda: "00:00.0 /" in shown(pilot))
        await pilot.press("end")
        await until(pilot, lambda: "the end" in shown(pilot))

    drive(ScreenApp(lambda: MonitorScreen(session, run_dir)), script)


@pytest.mark.parametrize("plan", [made.running().plan, None])
def test_reason_of_lost_run_is_shown_in_full_once(plan: PlanView | None) -> None:
    why = "no end event; supervisor-0 (pid 9391) and worker-0 (pid 9393) gone for 2 min 18 s, after nothing"

    async def script(pilot: AppPilot) -> None:
        head = " ".join(" ".join(text(pilot.app.screen).splitlines()[:4]).split())
        assert head.count(why) == 1
        assert "\u2026" not in head.removeprefix(made.running().run)

    drive(
        monitor(made.changed(made.running(), condition="lost", condition_reason=why, plan=plan)), script, size=(80, 24)
    )


def test_event_reached_by_playing_is_current_not_previous() -> None:
    player = made.HandPlayer()
    marks = made.marks()
    player.start, player.position = marks[0].t - 10, marks[5].t + 0.4
    before = [mark.t for mark in marks if mark.t < marks[5].t - 0.6]

    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, MonitorScreen)
        await pilot.press("N")
        await until(pilot, lambda: player.position == before[-1])
        player.playing, player.position = False, marks[5].t + 0.4
        await until(pilot, lambda: screen.frame is not None and screen.frame.player == _state(player))
        await pilot.press("N")
        await until(pilot, lambda: player.position == marks[5].t)

    drive(monitor(made.running(), player=player), script)


def test_the_end_of_a_recording_has_one_name() -> None:
    async def script(pilot: AppPilot) -> None:
        footer = text(pilot.app.screen).splitlines()[-1]
        assert "b end" in footer
        assert "b now" not in footer

    drive(monitor(made.running(), player=made.HandPlayer()), script, size=WIDE)


def test_n_visits_events_not_yet_played(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    session = Session.replay(run_dir, clock=lambda: 0.0)
    marks: list[Mark] = _all_marks(run_dir)

    async def script(pilot: AppPilot) -> None:
        for mark in [mark for mark in marks if mark.t > session.player.start][:3]:
            await pilot.press("n")
            await until(pilot, lambda mark=mark: session.player.position == pytest.approx(mark.t))  # type: ignore[misc]
        await pilot.press("N")
        await until(pilot, lambda: session.player.position < marks[-1].t)

    drive(ScreenApp(lambda: MonitorScreen(session, run_dir)), script)


def _all_marks(run_dir: Path) -> list[Mark]:
    session = Session.live(run_dir)
    session.poll()
    found = session.snapshot().marks
    session.close()
    times = sorted({mark.t for mark in found})
    return [next(mark for mark in found if mark.t == t) for t in times]


def test_player_bar_shows_events_speed_and_state() -> None:
    bar = PlayerBar(print, print, id="player")
    player = made.HandPlayer()
    state = _state(player)
    bar.show(state, marks=[Mark(t=player.start + 50, step=1, kind="non_finite", text="x", core=None)])
    line = "".join(span.text for span in bar.paint(120, 1)[0])
    assert events_line.SIGNS["non_finite"].mark in line
    assert "playing x1" in line
    bar.show(state._replace(live=True), replaying=False)
    assert "\u25cf live" in "".join(span.text for span in bar.paint(120, 1)[0])
    bar.show(state._replace(playing=False, position=state.end))
    assert "at the end" in "".join(span.text for span in bar.paint(60, 1)[0])


def _state(player: made.HandPlayer) -> PlayerState:
    return PlayerState(player.start, player.end, player.position, player.speed, player.playing, player.live)


def test_header_shows_age_of_newest_event_also_if_ended() -> None:
    header = Header()
    header.show(made.changed(made.finished(), now=made.NOW + 3599), replaying=False)
    first = "".join(span.text for span in header.paint(120, 4)[0])
    assert "took 59 s, ended 1 h 00 min ago" in first
    header.show(made.running(), replaying=False, behind=Behind(182.0, 1204, condition="running"))
    lines = ["".join(span.text for span in line) for line in header.paint(120, 4)]
    assert "viewing 3 min 02 s ago (step 330 of 1,204)" in lines[3]
    header.show(made.running(), replaying=False, behind=Behind(27.0, 440, condition="done"))
    assert width_of(header.paint(80, 4)[3]) <= 80, "how to come back is read whole"


@pytest.mark.parametrize("state", ["running", "finished"])
def test_header_always_warns_about_an_unused_tpu(state: str) -> None:
    run = made.running() if state == "running" else made.finished()
    assert run.topology is not None
    topology = msgspec.structs.replace(run.topology, device="CPU", device_warning="not training on a TPU: a test")
    header = Header()
    header.show(made.changed(run, topology=topology), replaying=False)
    assert "\u25b2 NOT ON THE TPU" in "".join(span.text for line in header.paint(80, 4) for span in line)


def test_narrow_header_shows_starting_duration() -> None:
    header = Header()
    header.show(made.changed(made.starting(), phase_s=94.0), replaying=False)
    for width, doing in ((80, " preparing 1 min "), (120, " imports, building data and model 1 min ")):
        assert doing in "".join(span.text for span in header.paint(width, 4)[0])


def test_long_name_keeps_the_state_visible() -> None:
    header = Header()
    for name in ("x" * 128, "\u6f22\u5b57" * 40):
        for width in (60, 80, 120):
            header.show(made.changed(made.running(), run=name), replaying=False)
            line = header.paint(width, 4)[0]
            assert "\u25cf RUNNING" in "".join(span.text for span in line)
            assert width_of(line) <= width


def test_tiny_terminal_shows_header_and_one_panel_row() -> None:
    async def script(pilot: AppPilot) -> None:
        lines = shown(pilot).splitlines()
        assert "< 1 s old" in lines[0]
        assert lines[0].startswith(" digits-2025100\u2026  \u25cf RUNNING  ")
        assert "step 330/440" in lines[1]
        assert "75 %  ETA 3 s" in lines[1]
        assert lines[7].startswith("\u2502 0 "), "a row of the map below its head"
        assert "1-0" not in shown(pilot)
        await pilot.resize_terminal(40, 9)
        await pilot.pause()
        assert shown(pilot).splitlines()[6].startswith("\u2502 0 "), "worth more than a whole head"
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        assert not pilot.app.screen.show_vertical_scrollbar

    drive(monitor(made.running()), script, size=(40, 10))


# Panels.


def panel_text(panel: type, snapshot: Snapshot, width: int, height: int) -> str:
    drawing = panel().draw(panel.pick(snapshot), width, height)  # type: ignore[attr-defined]
    return "\n".join("".join(span.text for span in line) for line in [*drawing.head, *drawing.rows])


def test_pace_shows_speed_step_time_and_both_ends() -> None:
    said = panel_text(PacePanel, made.running(), 60, 9)
    for part in (
        "now     4,885 examples/s",
        "steady  4,923 examples/s  of 33 reports",
        "step    p50 13.0 ms  p95 21.8 ms",
        "epoch   ends in < 1 s",
        "run     ends in 3 s  at 08:55:03",
        "examples/s 2,065 to 5,039",
    ):
        assert part in said


def test_pace_draws_a_chart_with_events_if_space() -> None:
    said = panel_text(PacePanel, made.running(), 100, 30)
    assert "\u250c" not in said
    assert events_line.SIGNS["best"].mark in said.splitlines()[-1]
    assert "s" in said.splitlines()[-2]


def test_pace_states_why_an_end_is_unknown() -> None:
    ended = panel_text(PacePanel, made.finished(), 60, 9)
    assert "steady" in ended
    assert not {"now", "ends"} & set(ended.split())
    assert "not known before" in panel_text(PacePanel, made.changed(made.running(), eta_s=None), 60, 9)
    unplanned = made.changed(made.running(), plan=None, eta_s=None)
    assert "ends    number of steps unknown" in panel_text(PacePanel, unplanned, 60, 9)
    assert "no report yet" in panel_text(PacePanel, made.starting(), 90, 9)


def test_memory_shows_its_history() -> None:
    said = panel_text(MemoryPanel, made.running(), 60, 12)
    assert "9.0 GiB to 9.8 GiB" in said
    assert "900 MiB to 959 MiB" in said
    assert "HBM 7" in said


def memory_in_full_screen(run: Snapshot, size: tuple[int, int]) -> str:
    screens: list[str] = []

    async def script(pilot: AppPilot) -> None:
        await pilot.press("6", "enter")
        screens.append(shown(pilot))

    drive(monitor(run), script, size=size)
    return screens[0]


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 45), (200, 50)])
def test_memory_in_full_screen_draws_host_and_device_over_the_run(size: tuple[int, int]) -> None:
    said = memory_in_full_screen(made.running(), size)
    for title in (
        "host CPU 88 %  max 90 %",
        "host memory 3.0 GiB  max 3.0 GiB",
        "processes 981 MiB  max 981 MiB",
        "HBM, fullest core 9.7 GiB  max 9.8 GiB",
        "disk reads 0 B/s  max 40.0 MiB/s",
        "disk writes 30.0 MiB/s  max 30.0 MiB/s",
        "network in 1.7 KiB/s  max 2.1 KiB/s",
        "network out 900 B/s  max 900 B/s",
    ):
        assert title in said
    assert all(f" {end}\u2524" in said for end in ("100 %", "24.0 GiB", "40.0 MiB/s", "0"))
    assert "not recorded" not in said
    blank = sum(not line.strip("\u2502 ") for line in said.splitlines())
    assert blank == 0


def test_memory_in_full_screen_says_which_traffic_was_not_recorded() -> None:
    run = made.running()
    memory = msgspec.structs.replace(run.memory, disk_read_bytes_per_s=None, disk_written_bytes_per_s=None)
    points = [
        msgspec.structs.replace(point, disk_read_bytes_per_s=None, disk_written_bytes_per_s=None)
        for point in run.memory_history
    ]
    said = memory_in_full_screen(made.changed(run, memory=memory, memory_history=points), (120, 36))
    assert "disk traffic: not recorded, by an older version or since the system does not count it" in said
    assert "disk reads" not in said
    assert "network in" in said


def test_memory_in_full_screen_at_the_start_says_what_is_not_known_yet() -> None:
    assert "memory reading" in memory_in_full_screen(made.starting(), (120, 36))


def test_xla_fits_a_narrow_panel() -> None:
    assert all(len(line) <= 28 for line in panel_text(XlaPanel, made.running(), 28, 9).splitlines())


def test_panels_export_their_values_as_tables() -> None:
    async def script(pilot: AppPilot) -> None:
        events, pace = pilot.app.screen.query_one(EventsPanel), pilot.app.screen.query_one(PacePanel)
        assert len(events.figures().rows) == 10
        assert pace.figures().head == ("t", "step", "step_s", "examples_per_s")

    drive(monitor(made.running()), script, size=WIDE)


@pytest.mark.parametrize(("cores", "size"), [(1, (80, 24)), (8, (120, 36)), (2048, (200, 50))])
def test_every_panel_fills_the_screen_and_comes_back(size: tuple[int, int], cores: int) -> None:
    async def script(pilot: AppPilot) -> None:
        for panel in (LossPanel, EpochsPanel, EventsPanel, PacePanel, MemoryPanel, CoresPanel):
            await pilot.press(panel.key, "z")
            assert pilot.app.screen.query_one(panel).size.height == size[1] - 5
            assert f"{panel.key} {panel.name_shown}" in shown(pilot)
            await pilot.press("escape")

    drive(monitor(made.running(cores)), script, size=size)
