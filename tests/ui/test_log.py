"""The log: folding, filters, search, moments, and older lines from the journals."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.events import MouseScrollUp

from tests import recorded
from tests.ui import made
from tests.ui.driving import AppPilot, drive, monitor, text, until
from tputui.session.session import Session
from tputui.state.snapshot import LogLine, Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.ui.app import ScreenApp
from tputui.ui.base.preferences import Views
from tputui.ui.monitor.log import LogPanel
from tputui.ui.monitor.log_lines import LINES_MAX, LogRows, LogStore, folded, lanes_of, older_lines, split_core
from tputui.ui.monitor.log_search import FilteredLog, LogFilter, filtered
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.widgets.typed_search import TOO_SLOW, compile_search

T = made.NOW - 100


def said(t: float, text: str, source: str = "worker-0", level: str = "info") -> LogLine:
    return LogLine(t=T + t, source=source, level=level, text=text)  # type: ignore[arg-type]


def of_ranks(t: float, text: str, *ranks: int) -> list[LogLine]:
    return [said(t + 0.01 * rank, f"[rank{rank}]: {text}") for rank in ranks]


def eight() -> list[LogLine]:
    """Eight ranks, of which the sixth prints another line."""
    return [
        *of_ranks(0, "data is ready", *range(8)),
        *of_ranks(5, "loss 0.41", 0, 1, 2, 3, 4, 6, 7),
        said(5.02, "[rank5]: loss nan", level="warning"),
        said(9, "epoch 1 ended", source="tputui"),
    ]


def a_run(logs: list[LogLine], **changes: object) -> Snapshot:
    return made.changed(made.running(), logs=logs, **changes)


def many(number: int) -> list[LogLine]:
    return [said(index / 10, f"line {index} of many") for index in range(number)]


# Folding.


@pytest.mark.parametrize(
    ("text", "lane", "rest"),
    [
        ("[rank3]: hello", "rank 3", "hello"),
        ("[default5]:hello", "rank 5", "hello"),
        ("core 7: hello", "core 7", "hello"),
        ("[12] hello", "rank 12", "hello"),
        ("Rank 0 | hello", "rank 0", "hello"),
        ("epoch 3: hello", "", "epoch 3: hello"),
        ("rank 3 is late", "", "rank 3 is late"),
        ("[rank3]", "", "[rank3]"),
        ("\x1b[31m[rank 3]\x1b[0m hello", "rank 3", "hello"),
    ],
)
def test_the_core_that_a_line_names(text: str, lane: str, rest: str) -> None:
    assert split_core(said(0, text)) == (lane, rest)


def test_identical_core_lines_fold_and_the_odd_one_is_named() -> None:
    entries = folded(eight())
    assert [(entry.text, entry.num_lines, entry.missing, entry.odd) for entry in entries] == [
        ("data is ready", 8, (), False),
        ("loss 0.41", 7, ("rank 5",), False),
        ("loss nan", 1, (), True),
        ("epoch 1 ended", 1, (), False),
    ]
    assert entries[2].lanes == ("rank 5",)


def test_line_repeated_later_is_shown_again() -> None:
    lines = [said(0, "saving"), said(1, "saving"), said(60, "saving")]
    assert [entry.num_lines for entry in folded(lines)] == [2, 1]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 7), st.sampled_from("abc")), max_size=60))
def test_no_line_is_lost_by_folding(spoken: list[tuple[int, int, str]]) -> None:
    lines = [said(t, f"[rank{rank}]: {word}") for t, rank, word in sorted(spoken)]
    entries = folded(lines)
    assert sum(entry.num_lines for entry in entries) == len(lines)
    assert [entry.line.t for entry in entries] == sorted(entry.line.t for entry in entries)


def test_processes_come_before_cores_and_cores_by_number() -> None:
    assert lanes_of([*eight(), *of_ranks(10, "x", 10)])[:4] == ["tputui", "worker-0", "rank 0", "rank 1"]
    assert lanes_of([*eight(), *of_ranks(10, "x", 10)])[-1] == "rank 10"


# Filtering.


def test_filter_by_core_level_and_expression() -> None:
    lines = eight()
    texts = functools.partial(shown_texts, lines)
    assert texts(LogFilter(lane="rank 5")) == ["data is ready", "loss nan"]
    assert texts(LogFilter(lane="tputui")) == ["epoch 1 ended"]
    assert texts(LogFilter(level=1)) == ["loss nan"]
    assert texts(LogFilter(level=2)) == []
    assert texts(LogFilter(pattern=compile_search("LOSS [0-9n]")[0])) == []
    assert texts(LogFilter(pattern=compile_search("loss [0-9n]")[0])) == ["loss 0.41", "loss nan"]
    assert filtered(lines, LogFilter(pattern=compile_search("loss")[0]))[1] == 8


def shown_texts(lines: list[LogLine], sieve: LogFilter) -> list[str]:
    return [entry.text for entry in filtered(lines, sieve)[0]]


@given(st.text(max_size=20))
def test_any_text_is_an_expression_or_a_reason(typed: str) -> None:
    pattern, why = compile_search(typed)
    assert (pattern is None) == (why is not None or typed == "")


# Drawing.


@given(
    texts=st.lists(st.text(alphabet="ab \u4f60x", min_size=0, max_size=90), min_size=1, max_size=12),
    width=st.integers(1, 60),
    wrapped=st.booleans(),
)
def test_every_row_belongs_to_an_entry_and_fits(texts: list[str], width: int, wrapped: bool) -> None:
    entries, _ = filtered([said(10 * index, text) for index, text in enumerate(texts)], LogFilter())
    rows = LogRows(entries, width, wrapped=wrapped, with_source=False)
    assert len(rows[:]) == len(rows)
    assert [rows.entry_at(rows.first_row(index)) for index in range(len(entries))] == list(range(len(entries)))
    if wrapped:
        shown = "".join(span.text for row in rows[:] for span in row if ":" not in span.text)
        assert shown.count("x") == sum(text.count("x") for text in texts)


def test_matches_are_highlighted() -> None:
    entries, _ = filtered([said(0, "loss nan at nan")], LogFilter())
    [line] = LogRows(entries, 60, wrapped=True, with_source=False, pattern=compile_search("nan")[0])[:]
    assert [span.text for span in line if span.tone == "hit"] == ["nan", "nan"]


# The store.


def test_lines_that_a_snapshot_no_longer_holds_stay() -> None:
    store, lines = LogStore(), many(3_000)
    for end in range(1_000, 3_001, 250):
        store.take(lines[end - 1_000 : end])
    assert store.lines == lines


def test_seeking_back_removes_lines() -> None:
    store, lines = LogStore(), many(100)
    store.take(lines)
    store.take(lines[:40])
    assert store.lines == lines[:40]
    store.take(lines[:70])
    assert store.lines == lines[:70]
    store.take([])
    assert store.lines == []


def test_older_lines_come_before_and_none_twice() -> None:
    store, lines = LogStore(), many(3_000)
    store.take(lines[2_000:])
    assert store.take_older(lines) == 2_000
    assert store.lines == lines
    assert store.take_older(lines) == 0


@settings(max_examples=8)
@given(st.lists(st.integers(1, 900), max_size=6), st.booleans())
def test_incremental_filter_equals_full_filter(steps: list[int], narrowed: bool) -> None:
    store, sifter, lines = LogStore(), FilteredLog(), many(1_000 + sum(steps))
    sieve = LogFilter(pattern=compile_search("7")[0] if narrowed else None)
    end = 1_000
    for step in [0, *steps]:
        end += step
        store.take(lines[end - 1_000 : end])
        assert sifter.entries_of(store, sieve) == filtered(store.lines, sieve)
    store.take(lines[:500])
    assert sifter.entries_of(store, sieve) == filtered(lines[:500], sieve)


def test_number_of_stored_lines_is_bounded() -> None:
    store, lines = LogStore(), many(LINES_MAX + 3_000)
    for end in range(1_000, len(lines) + 1, 500):
        store.take(lines[end - 1_000 : end])
    assert store.lines == lines[-LINES_MAX:]
    assert store.num_cut == 3_000


# The panel.


def has_taken(panel: LogPanel, line: LogLine) -> bool:
    return panel._store.lines[-1] == line


def opened(pilot: AppPilot) -> LogPanel:
    return pilot.app.screen.query_one(LogPanel)


def test_a_search_narrows_as_it_is_typed() -> None:
    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        await pilot.press("7", "7", "slash", "n", "a")
        assert "[1/17]" in text(screen)
        assert "loss nan" in text(screen)
        assert "data is ready" not in text(screen)
        await pilot.press("(")
        assert "not applied" in text(screen)
        assert "loss nan" in text(screen)
        await pilot.press("backspace", "enter")
        assert "/na/ [1/17]" in text(screen)
        await pilot.press("escape")
        assert "data is ready" in text(screen)
        assert "/na/" not in text(screen)

    drive(monitor(a_run(eight())), script)


def test_n_goes_from_match_to_match_and_shows_the_lines_around() -> None:
    lines = [said(step, f"line {step}") for step in range(120)]

    async def script(pilot: AppPilot) -> None:
        panel, screen = opened(pilot), pilot.app.screen

        def chosen() -> str:
            return "" if panel._chosen_entry is None else panel._chosen_entry.line.text

        await pilot.press("7", "7", "slash", *"line 5[05]$", "enter")
        assert "[2/120]" in text(screen)
        assert "line 49" not in text(screen)
        await pilot.press("n")
        assert chosen() == "line 50"
        assert "line 49" in text(screen)
        assert "line 51" in text(screen)
        await pilot.press("n")
        assert chosen() == "line 55"
        await pilot.press("n")
        assert chosen() == "line 50"
        await pilot.press("N")
        assert chosen() == "line 55"
        await pilot.press("slash", "enter")
        assert "line 49" not in text(screen)
        await pilot.press("escape")
        assert "/line" not in text(screen)

    drive(monitor(a_run(lines)), script)


def test_keys_that_are_typed_do_nothing_else() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "slash", *"qwvfct1")
        assert isinstance(pilot.app.screen, MonitorScreen)
        assert "no lines match /qwvfct1/" in text(pilot.app.screen)
        await pilot.press("escape")
        assert opened(pilot).has_focus

    drive(monitor(a_run(eight())), script, size=(160, 45))


def test_long_run_search_covers_newest_lines_and_states_it() -> None:
    lines = [said(step, f"line {step}") for step in range(1_000)]

    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "7", "slash", *"oom")
        assert "no lines match /oom/: newest 1,000 searched; enter, then a: all" in text(pilot.app.screen)
        await pilot.press("enter")
        assert "no lines match /oom/: newest 1,000 searched; a: all" in text(pilot.app.screen)
        opened(pilot).take_older([said(-1, "killed: oom"), *lines], "all lines: the journals")
        await until(pilot, lambda: "killed: oom" in text(pilot.app.screen))
        assert "[1/1,001]" in text(pilot.app.screen)

    drive(monitor(a_run(lines)), script, size=(160, 45))


def test_lines_of_one_core_and_of_a_level() -> None:
    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        await pilot.press("7", "7", "f")
        assert "tputui \u00b7 [1/17]" in text(screen)
        assert "data is ready" not in text(screen)
        await pilot.press("f")
        assert "worker-0 \u00b7 [16/17]" in text(screen)
        await pilot.press("u", "u")
        assert "[16/17]" not in text(screen)
        assert "epoch 1 ended" in text(screen)
        await pilot.press("v")
        assert "warnings and errors \u00b7 [1/17]" in text(screen)
        await pilot.press("v")
        assert "no lines among errors" in text(screen)
        await pilot.press("v")
        assert "data is ready" in text(screen)

    drive(monitor(a_run(eight())), script)


def test_wrap_setting_is_applied_and_saved() -> None:
    views = Views()
    long = said(0, f"{'word ' * 60}end")
    source = made.HandSource(a_run([long]))

    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "7")
        assert "end" in text(pilot.app.screen)
        await pilot.press("w")
        assert "end" not in text(pilot.app.screen).replace("detach", "")
        assert views.get("log.wrapped", True) is False
        await pilot.press("u")
        assert views.get("log.wrapped", False) is True

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR), views=views), script)


def test_a_selected_line_stays_while_others_come() -> None:
    lines = many(1_500)
    source = made.HandSource(a_run(lines[:1_000]))

    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        await pilot.press("7", "7")
        assert "line 999 of" in text(screen)
        await pilot.press("up", "up", "up", "up", "up", "up")
        assert "\u276f" in next(row for row in text(screen).splitlines() if "line 994 of" in row)
        for _ in range(40):
            await pilot.press("up")
        before = text(screen).splitlines()[5:-2]
        for end in (1_100, 1_300, 1_500):
            source.served = a_run(lines[end - 1_000 : end])
            await until(pilot, functools.partial(has_taken, opened(pilot), lines[end - 1]))
        assert text(screen).splitlines()[5:-2] == before
        await pilot.press("G")
        assert "line 1499 of" in text(screen)

    drive(ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR)), script)


def test_selection_has_a_time_and_a_time_can_be_selected() -> None:
    heard: dict[float, None] = {}

    def note_message(message: object) -> None:
        if isinstance(message, LogPanel.LineSelected):
            heard[message.t] = None

    async def run() -> None:
        app = monitor(a_run(many(200)))
        async with app.run_test(size=(120, 36), message_hook=note_message) as pilot:
            await until(pilot, lambda: "line 199 of" in text(pilot.app.screen))
            await pilot.press("7", "7", "up", "up")
            assert list(heard) == [T + 19.9, T + 19.8]
            opened(pilot).show_moment(T + 5.04)
            await pilot.pause()
            row = next(row for row in text(pilot.app.screen).splitlines() if "\u276f" in row)
            assert "line 50 of" in row
            assert len(heard) == 2
            await pilot.click(LogPanel, offset=(20, 3))
            assert len(heard) == 3

    asyncio.run(run())


def test_home_end_and_pages_move_the_selection() -> None:
    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        await pilot.press("7", "7", "home")
        assert "\u276f" in next(row for row in text(screen).splitlines() if "line 0 of" in row)
        await pilot.press("pagedown", "pageup", "down")
        assert "\u276f" in next(row for row in text(screen).splitlines() if "line 1 of" in row)
        await pilot.press("end")
        assert "following" in text(screen)

    drive(monitor(a_run(many(200))), script)


def test_the_wheel_scrolls_and_selects_nothing() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "7")
        await pilot._post_mouse_events([MouseScrollUp], widget=LogPanel, offset=(5, 5), button=0)
        assert "line 199 of" not in text(pilot.app.screen)
        assert "\u276f" not in text(pilot.app.screen)

    drive(monitor(a_run(many(200))), script)


@pytest.fixture
def long_run(tmp_path: Path) -> Path:
    """A run that printed 3,000 lines."""
    run_dir = rundir.create(tmp_path, recorded.manifest())
    worker = recorded.worker_events()
    recorded.write_journal(run_dir / "worker-0.jsonl", worker)
    supervisor = recorded.supervisor_events(worker[-1].t + 0.2)
    lines = [ev.LogWritten(t=recorded.T0 + 5.3 + index / 1000, line=f"line {index} of it") for index in range(3_000)]
    recorded.write_journal(run_dir / "supervisor-0.jsonl", [*supervisor[:-2], *lines, *supervisor[-2:]])
    (run_dir / "worker-0.log").write_text("")
    return run_dir


def test_older_lines_are_read_from_the_journals(long_run: Path) -> None:
    found = older_lines(long_run)
    texts = [line.text for line in found.lines]
    assert {"line 0 of it", "line 2999 of it"} <= set(texts)
    assert found.where == f"all lines: {long_run}/worker-0.log"
    assert all(line.t <= recorded.T0 + 6 for line in older_lines(long_run, recorded.T0 + 6).lines)
    assert older_lines(long_run / "gone").lines == []
    assert "cannot be read" in older_lines(long_run / "gone").where


def test_a_reads_older_lines_on_the_screen(long_run: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        screen = pilot.app.screen
        await until(pilot, lambda: "line 2999 of it" in text(screen) or "run done" in text(screen))
        await pilot.press("7", "7", "home")
        assert "a: load earlier lines" in text(screen)
        await pilot.press("a")
        await until(pilot, lambda: "earlier lines loaded" in opened(pilot)._older)
        await pilot.press("home")
        assert "digits: 1437 images" in text(screen)
        await pilot.press("slash", *"line 7 of", "enter")
        assert "[1/" in text(screen)

    drive(ScreenApp(lambda: MonitorScreen(Session.live(long_run), long_run)), script, size=(160, 45))


def test_a_short_log_has_nothing_older() -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "7", "a")
        assert "every line is loaded" in text(pilot.app.screen), "the log shows its end"
        await pilot.press("up")
        assert "every line is loaded" not in text(pilot.app.screen)
        await pilot.press("home", "a")
        assert "every line is loaded" in text(pilot.app.screen)

    drive(monitor(a_run(many(50))), script)


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (20, 6), (80, 24), (250, 80)], ids=str)
def test_the_log_survives_every_size(size: tuple[int, int]) -> None:
    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "7", "slash", "l", "up", "enter", "up", "pageup", "home", "w", "down", "f", "v", "end")
        await pilot.resize_terminal(40, 10)
        await pilot.press("up", "up")
        await pilot.resize_terminal(1, 1)
        await pilot.press("up", "escape", "G")

    drive(monitor(a_run([*many(100), *eight()])), script, size=size)


def test_foreign_lines_are_escaped() -> None:
    evil = msgspec.structs.replace(said(0, "x"), text="[rank1]: \x1b[2J[bold]y[/] \u202e", source="\x1b]0;t\x07w")

    async def script(pilot: AppPilot) -> None:
        await pilot.press("7", "7", "slash", "y", "up")
        shown = text(pilot.app.screen)
        assert "[bold]y[/]" in shown
        assert "\x1b" not in shown

    drive(monitor(a_run([evil])), script)


@pytest.mark.parametrize(
    "typed", ["(a+)+$", "(a|aa)*b", "((x*)y)+", r"(?:\d+,?){5,}", "(a+){20}", "([ab]+|c)+", "(.*)*"]
)
def test_unbounded_expression_is_rejected(typed: str) -> None:
    assert compile_search(typed) == (None, TOO_SLOW)


@pytest.mark.parametrize(
    "typed", [r"\(a+\)+", "(abc)+", "a+b*c{2,}", "[(a+)]+", r"[\])]+(x)?", "(nan|inf)", "(a+)?b", "{x}+"]
)
def test_bounded_expression_is_run(typed: str) -> None:
    pattern, why = compile_search(typed)
    assert pattern is not None
    assert not why
