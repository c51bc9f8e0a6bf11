"""The run list: its keys, requests and reading thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual import events

from tests import recorded
from tests.another_user import needs_root, shut, shut_run
from tests.ui.driving import AppPilot, drive, text, until
from tputui.telemetry import events as ev
from tputui.telemetry import requests, run_labels
from tputui.telemetry.journal import JournalWriter
from tputui.ui.app import ScreenApp
from tputui.ui.base import keymap
from tputui.ui.base.preferences import Views
from tputui.ui.compare.screen import CompareScreen
from tputui.ui.help import HelpScreen
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.rows import Listing, RowState, RunRow
from tputui.ui.runs.runs_reader import CHECK_MOST_S, MESSAGE_INTERVAL_S, REFRESH_S, RunsReader, message_interval_s
from tputui.ui.runs.screen import RunsScreen
from tputui.ui.runs.sort_order import SortOrder
from tputui.ui.runs.table import Empty, RunsTable
from tputui.ui.widgets.dialogs import ConfirmStop
from tputui.ui.widgets.line_widget import LineInput

NOW = recorded.T0 + 11


def home(runs_dir: Path, *, read_only: bool = False) -> ScreenApp:
    return ScreenApp(lambda: RunsScreen(runs_dir, clock=lambda: NOW, read_only=read_only))


def names(pilot: AppPilot) -> list[str]:
    """Names of the runs in display order."""
    return [word for line in table_of(pilot).as_text().splitlines() for word in line.split() if word.startswith("run-")]


def write_runs(parent: Path, number: int = 3) -> None:
    for index in range(number):
        recorded.write_run(parent, run=f"run-{index:02d}")


async def all_read(pilot: AppPilot, number: int) -> None:
    """Waits until every run is listed with its state."""
    await until(pilot, lambda: f" {number} run" in text(pilot.app.screen) and "loading" not in text(pilot.app.screen))


def table_of(pilot: AppPilot) -> RunsTable:
    return pilot.app.screen.query_one(RunsTable)


def chosen(pilot: AppPilot) -> str:
    path = table_of(pilot).chosen
    return path.name if path is not None else ""


def test_row_shows_the_state_of_a_run(tmp_path: Path) -> None:
    recorded.write_run(tmp_path, run="run-whole")
    recorded.write_run(tmp_path, run="run-alive", ended=False)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 2)
        shown = table_of(pilot).as_text().splitlines()
        whole = next(line for line in shown if "run-whole" in line)
        for part in ("\u2714 done", "66/66", "\u2588", "8"):
            assert part in whole
        assert any("run-alive" in line and "\u25cf running" in line for line in shown)
        assert "2 runs, 1 running" in text(pilot.app.screen).splitlines()[0]

    drive(home(tmp_path), script, size=(80, 24))


def test_enter_opens_ended_run_at_its_end_and_q_returns(tmp_path: Path) -> None:
    write_runs(tmp_path, 2)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 2)
        assert chosen(pilot) == "run-01"
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await until(pilot, lambda: "DONE" in text(pilot.app.screen))
        assert "run-00" in text(pilot.app.screen)
        assert "the end" in text(pilot.app.screen)
        assert "c checkpoint" not in text(pilot.app.screen)
        await pilot.press("left")
        await until(pilot, lambda: "b: to the end" in text(pilot.app.screen))
        await pilot.press("b")
        await until(pilot, lambda: "looking back" not in text(pilot.app.screen))
        await pilot.press("q")
        assert isinstance(pilot.app.screen, RunsScreen)
        assert chosen(pilot) == "run-00"
        await pilot.press("q")

    drive(home(tmp_path), script)


def test_enter_opens_a_running_run_live(tmp_path: Path) -> None:
    recorded.write_run(tmp_path, run="run-00", ended=False)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "running" in text(pilot.app.screen))
        await pilot.press("enter")
        await until(pilot, lambda: "c checkpoint" in text(pilot.app.screen))

    drive(home(tmp_path), script)


def test_empty_directory_finds_runs_added_later(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "No runs in" in text(pilot.app.screen))
        write_runs(tmp_path, 1)
        await pilot.press("f5")
        await until(pilot, lambda: names(pilot) == ["run-00"])

    drive(home(tmp_path), script, size=(80, 24))


def test_damaged_run_is_marked(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)
    (tmp_path / "run-00" / "worker-0.jsonl").write_bytes(b"garbage")

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 1)
        assert "done !" in text(pilot.app.screen)
        assert "damaged region" in text(pilot.app.screen).splitlines()[1]

    drive(home(tmp_path), script, size=(80, 24))


def test_unlistable_directory_states_reason(tmp_path: Path) -> None:
    listings: list[Listing] = []
    with shut(tmp_path):
        RunsReader(tmp_path, listings.append, lambda: NOW).poll()
    assert listings[-1].error == f"{tmp_path}: cannot list runs: Permission denied"


@pytest.mark.parametrize(
    ("owned", "why"),
    [
        pytest.param(False, "another user's; ask them for a copy of its directory", marks=needs_root),
        (True, "yours, but its permissions shut you out; chmod u+rwx opens it"),
    ],
)
def test_unreadable_run_is_listed_with_reason(tmp_path: Path, owned: bool, why: str) -> None:
    listings: list[Listing] = []
    with shut_run(tmp_path, owned=owned) as run_dir:
        RunsReader(tmp_path, listings.append, lambda: NOW).poll()
    row = listings[-1].rows[run_dir]
    assert (row.state, row.reason) == ("unreadable", f"cannot be read: {why}")


def test_cursor_moves_between_runs(tmp_path: Path) -> None:
    write_runs(tmp_path, 30)
    steps = [("end", "00"), ("home", "29"), ("pagedown", "22"), ("k", "23"), ("j", "22"), ("pageup", "29"),
             ("up", "29"), ("down", "28"), ("G", "00"), ("g", "29")]  # fmt: skip

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: chosen(pilot) == "run-29")
        for key, there in steps:
            await pilot.press(key)
            assert chosen(pilot) == f"run-{there}", key

    drive(home(tmp_path), script, size=(80, 12))


def test_filter_shows_count_and_key_to_clear(tmp_path: Path) -> None:
    write_runs(tmp_path, 13)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 13)
        await pilot.press("slash", *"run-0", "space", *"7")
        await until(pilot, lambda: names(pilot) == ["run-07"])
        assert "[1/13]" in text(pilot.app.screen)
        await pilot.press("enter")
        line = text(pilot.app.screen).splitlines()[2]
        assert line.startswith(" / run-0 7 ")
        assert line.endswith("[1/13] esc shows all")
        await pilot.press("escape")
        assert len(names(pilot)) == 13
        assert not pilot.app.screen.query_one(LineInput).display
        assert isinstance(pilot.app.screen, RunsScreen)

    drive(home(tmp_path), script, size=(80, 24))


def test_active_filter_stays_visible_and_takes_no_keys(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("slash", *"run-01", "enter", "ctrl+r")
        await until(pilot, lambda: "reading every run again" in text(pilot.app.screen))
        assert "[1/3] esc shows all" in text(pilot.app.screen)
        await pilot.click(LineInput)
        await pilot.press("o")
        assert pilot.app.screen.query_one(LineInput).text == "run-01"
        assert pilot.app.screen.focused is table_of(pilot)
        await pilot.press("slash", "2", "escape")
        assert len(names(pilot)) == 3

    drive(home(tmp_path), script, size=(80, 24))


def test_the_filter_compares_keys_of_the_configuration(tmp_path: Path) -> None:
    write_runs(tmp_path, 2)
    typed = {"lr>=0.0005": 2, "lr>0.0005": 0, "optim.name=adam": 2, "cores=8": 2, "cores<8": 0, "lr>=x": 2}

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 2)
        for words, number in typed.items():
            await pilot.press("slash", *words)
            await until(pilot, lambda number=number: len(names(pilot)) == number)  # type: ignore[misc]
            if words == "lr>=x":
                assert "needs a number" in text(pilot.app.screen)
            await pilot.press("escape")

    drive(home(tmp_path), script, size=(120, 24))


def test_the_selection_stays_on_its_run_when_rows_move(tmp_path: Path) -> None:
    write_runs(tmp_path)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("down")
        assert chosen(pilot) == "run-01"
        write_runs_later = recorded.write_run(tmp_path, run="run-99")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: write_runs_later.name in names(pilot))
        assert chosen(pilot) == "run-01"
        await pilot.press("o")
        assert "by name" in text(pilot.app.screen)
        assert names(pilot)[0] == "run-00"
        await pilot.press("O")
        assert names(pilot)[0] == "run-99"
        assert chosen(pilot) == "run-01"

    drive(home(tmp_path), script, size=(80, 24))


def test_order_and_filter_can_be_undone_and_order_is_saved(tmp_path: Path) -> None:
    write_runs(tmp_path)
    views = Views()

    def again() -> ScreenApp:
        return ScreenApp(lambda: RunsScreen(tmp_path, clock=lambda: NOW), views=views)

    async def choose(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        usual = names(pilot)
        await pilot.press("o")
        assert names(pilot) == ["run-00", "run-01", "run-02"]
        await pilot.press("slash", *"run-01", "enter")
        assert names(pilot) == ["run-01"]
        await pilot.press("u")
        assert names(pilot) == ["run-00", "run-01", "run-02"]
        assert "undone: filter" in text(pilot.app.screen)
        await pilot.press("u")
        assert names(pilot) == usual
        await pilot.press("o", "O")

    async def look(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        assert names(pilot) == ["run-02", "run-01", "run-00"]
        assert "by name, reversed" in text(pilot.app.screen)

    drive(again(), choose, size=(100, 24))
    drive(again(), look, size=(100, 24))


def test_requests_from_the_list(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, run="run-00", ended=False)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "running" in text(pilot.app.screen))
        await pilot.press("c")
        await until(pilot, lambda: "checkpoint: requested" in text(pilot.app.screen))
        await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmStop))
        await pilot.press("escape")
        await pilot.press("s", "e")
        await until(pilot, lambda: "stop after the epoch: requested" in text(pilot.app.screen))

    drive(home(tmp_path), script, size=(100, 24))
    assert sorted(request.kind for request in requests.read_all(run_dir)) == ["checkpoint", "stop_after_epoch"]


@pytest.mark.parametrize(
    ("read_only", "ended", "why"), [(True, False, "read-only"), (False, True, "already finished (done)")]
)
def test_impossible_requests_state_reason(tmp_path: Path, read_only: bool, ended: bool, why: str) -> None:
    run_dir = recorded.write_run(tmp_path, run="run-00", ended=ended)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 1)
        for key, what in (("c", "checkpoint"), ("s", "stop")):
            await pilot.press(key)
            assert f"run-00: {what}: " in text(pilot.app.screen)
            assert why in text(pilot.app.screen)

    drive(home(tmp_path, read_only=read_only), script, size=(100, 24))
    assert requests.read_all(run_dir) == []


def test_preview_is_shown_if_space(tmp_path: Path) -> None:
    write_runs(tmp_path, 2)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 2)
        assert "0.0005 x 8 cores" in text(pilot.app.screen)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "0.0005 x 8 cores" not in text(pilot.app.screen)

    drive(home(tmp_path), script, size=(120, 36))


def test_help_lists_every_key(tmp_path: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        shown = text(pilot.app.screen)
        for key in keymap.RUNS:
            assert key.shown in shown

    drive(home(tmp_path), script, size=(120, 50))


def test_list_survives_every_size(tmp_path: Path) -> None:
    write_runs(tmp_path, 2)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 2)
        for size in [(20, 5), (80, 24), (1, 1), (200, 50), (59, 40), (120, 36), (300, 12), (100, 24)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert names(pilot)[:2] == ["run-01", "run-00"]

    drive(home(tmp_path), script)


def test_narrow_list_hides_columns_before_names(tmp_path: Path) -> None:
    recorded.write_run(tmp_path, run="digits-lr-0.01")

    async def script(pilot: AppPilot) -> None:
        for width in (40, 46, 60, 68, 72, 80):
            await pilot.resize_terminal(width, 12)
            await until(pilot, lambda: "\u2714 done" in text(pilot.app.screen))
            row = next(line for line in text(pilot.app.screen).splitlines() if "\u2714 done" in line)
            assert "digits-lr-0.01" in row, width

    drive(home(tmp_path), script)


def test_marked_runs_are_compared(tmp_path: Path) -> None:
    write_runs(tmp_path)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("space")
        await pilot.press("C")
        assert "compare: 1 visible run is marked" in text(pilot.app.screen)
        assert isinstance(pilot.app.screen, RunsScreen)
        await pilot.press("space", "space", "space")
        assert "2 marked" in text(pilot.app.screen)
        await pilot.press("C")
        await until(pilot, lambda: isinstance(pilot.app.screen, CompareScreen))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))

    drive(home(tmp_path), script, size=(120, 24))


def test_burst_of_keys_reaches_the_right_screens(tmp_path: Path) -> None:
    write_runs(tmp_path)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        for key, character in (("slash", "/"), ("0", "0"), ("1", "1"), ("enter", None), ("o", "o")):
            pilot.app.post_message(events.Key(key, character))
        await until(pilot, lambda: names(pilot) == ["run-01"])
        await until(pilot, lambda: "by name" in text(pilot.app.screen))
        assert "/ 01" in text(pilot.app.screen)

    drive(home(tmp_path), script, size=(120, 24))


def test_ended_run_is_read_again_only_if_changed(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, run="run-00")
    listings: list[Listing] = []
    reader = RunsReader(tmp_path, listings.append, lambda: NOW)
    reader.poll()
    first = listings[-1].rows[run_dir]
    assert first.state == "done"
    assert first.best == pytest.approx(0.4 / 3)
    reader.poll()
    assert listings[-1].rows[run_dir] is first
    failed = ev.RunEnded(t=NOW, outcome="failed", exit_code=3, reason="x")
    recorded.write_journal(run_dir / "supervisor-1.jsonl", [recorded.opened(NOW, "supervisor", 1), failed])
    reader.poll()
    assert listings[-1].rows[run_dir].state == "failed"


def test_runs_that_are_over_are_checked_rarely_if_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run, a key of the user and the end of the pause show a change at once."""
    monkeypatch.setattr("tputui.ui.runs.runs_reader.CHECK_SHARE", 1e-9)
    run_dir = recorded.write_run(tmp_path, run="run-00")
    listings: list[Listing] = []
    reader = RunsReader(tmp_path, listings.append, lambda: NOW)

    def has_noticed(note: str, event: Callable[[], object] | None = None, num_polls: int = 1) -> bool:
        """Whether a change of the run is noticed within a number of polls, after polls without a change."""
        reader.poll()
        reader.poll()
        run_labels.change(run_dir, note=note)
        if event is not None:
            event()
        for _ in range(num_polls):
            reader.poll()
        return listings[-1].rows[run_dir].labels.note == note

    reader.poll()
    assert not has_noticed("alone")
    assert has_noticed("with a new run", lambda: recorded.write_run(tmp_path, run="run-01"))
    assert has_noticed("with a key", reader.wake)
    assert has_noticed("after the pause", num_polls=int(CHECK_MOST_S / REFRESH_S) + 1)


def test_running_run_is_followed_to_its_end(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path, run="run-00", ended=False)
    listings: list[Listing] = []
    reader = RunsReader(tmp_path, listings.append, lambda: NOW)
    reader.poll()
    assert listings[-1].rows[run_dir].state == "running"
    writer = JournalWriter(run_dir / "supervisor-1.jsonl")
    writer.append(
        [recorded.opened(NOW, "supervisor", 1), ev.RunEnded(t=NOW, outcome="failed", exit_code=3, reason="x")]
    )
    writer.close()
    for _ in range(2):
        reader.poll()
    reader.close()
    assert listings[-1].rows[run_dir].ended


def test_the_cursor_begins_at_the_newest_run_however_late_it_is_sorted(tmp_path: Path) -> None:
    def row(name: str, created: float, state: RowState) -> RunRow:
        return RunRow(tmp_path / name, state, created=created)

    table, order = RunsTable(), SortOrder()
    rows = [row("unread-b", 1.0, "reading"), row("unread-a", 2.0, "reading")]
    table.show(rows, order, frozenset(), NOW, Empty(()))
    table.show([row("unread-a", 2.0, "done"), row("unread-b", 1.0, "done")], order, frozenset(), NOW, Empty(()))
    assert table.chosen == tmp_path / "unread-a"
    table.show([row("new", 3.0, "running"), *table.rows], order, frozenset(), NOW, Empty(()))
    assert table.chosen == tmp_path / "unread-a", "rows that come later do not move it"


def test_a_key_leaves_the_cursor_on_its_run_while_runs_are_read(tmp_path: Path) -> None:
    rows = [RunRow(tmp_path / name, "reading") for name in ("one", "two", "three")]
    table = RunsTable()
    table.show(rows, SortOrder(), frozenset(), NOW, Empty(()))
    table.hold_cursor()
    table.show([*reversed(rows)], SortOrder(), frozenset(), NOW, Empty(()))
    assert table.chosen == tmp_path / "one"


def test_rows_come_before_everything_is_read(tmp_path: Path) -> None:
    write_runs(tmp_path, 5)
    listings: list[Listing] = []
    RunsReader(tmp_path, listings.append, lambda: NOW).poll()
    assert [row.state for row in listings[0].rows.values()] == ["reading"] * 5
    assert [row.state for row in listings[-1].rows.values()] == ["done"] * 5


def test_many_run_updates_leave_time_for_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen sorts all runs for each message, so the reader sends few messages until everything is read."""
    assert message_interval_s(20) == MESSAGE_INTERVAL_S
    assert message_interval_s(20_000) >= 1.0
    number = 12
    write_runs(tmp_path, number)
    monkeypatch.setattr("tputui.ui.runs.runs_reader.MESSAGE_INTERVAL_S_PER_ROW", 1e6)
    listings: list[Listing] = []
    reader = RunsReader(tmp_path, listings.append, lambda: NOW)
    reader.poll()
    assert [len(listing.rows) for listing in listings] == [number, number]
    assert {row.state for row in listings[-1].rows.values()} == {"done"}
    reader.close()
