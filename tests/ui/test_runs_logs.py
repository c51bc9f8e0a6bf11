"""Logs of other programs in the run list: shown, opened and compared, never changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import textual

from tests import recorded
from tests.ui.driving import AppPilot, drive, first_frame, text, until
from tests.ui.test_pictures import DRAWN_BY, Compare
from tests.ui.test_runs import NOW, table_of
from tputui.log_import.place import OpenedLog
from tputui.log_import.scan import Bounds
from tputui.ui.app import ScreenApp
from tputui.ui.compare.screen import CompareScreen
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.logs import LogListing, LogsReader
from tputui.ui.runs.screen import RunsScreen

_TRIES = 3_000
LONG = 300_000
"""Steps of a log that takes seconds to read, so that the next key comes first."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of the runs, with a run and a log, and a configuration that names a folder with two more."""
    recorded.write_run(tmp_path / "runs", run="digits-1")
    write_log(tmp_path / "runs" / "table.csv", 20)
    write_log(tmp_path / "lab" / "one" / "metrics.csv", 30)
    (tmp_path / "lab" / "bad.csv").write_text("1,2\n3,4\n")
    os.utime(tmp_path / "lab" / "bad.csv", (NOW - 120, NOW - 120))
    config = tmp_path / "config.toml"
    config.write_text('[[sources]]\npath = "lab"\n')
    return tmp_path


def write_log(path: Path, num_steps: int, *, first: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if first == 1 else "a") as file:
        if first == 1:
            file.write("step,loss,timestamp\n")
        file.writelines(f"{step},{1 / step},{recorded.T0 + step}\n" for step in range(first, num_steps + 1))
    os.utime(path, (NOW - 60, NOW - 60))


def home(place: Path) -> ScreenApp:
    return ScreenApp(lambda: RunsScreen(place / "runs", user_config=place / "config.toml", clock=lambda: NOW))


async def patiently(pilot: AppPilot, holds: Callable[[], bool]) -> None:
    """As `until`, for as long as a process may take to start on a busy machine."""
    for _ in range(_TRIES):
        if holds():
            return
        await pilot.pause(0.01)
    raise AssertionError(text(pilot.app.screen))


def second_line(pilot: AppPilot) -> str:
    return text(pilot.app.screen).splitlines()[1]


def line_of(pilot: AppPilot, name: str) -> str:
    return next(line for line in table_of(pilot).as_text().splitlines() if name in line)


async def go(pilot: AppPilot, path: Path) -> None:
    await until(pilot, lambda: any(row.path == path for row in table_of(pilot).rows))
    table_of(pilot).choose(path)
    await pilot.pause()


def test_logs_are_listed_with_format_and_found_by_the_filter(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "1 run, 0 running, 3 logs" in text(pilot.app.screen))
        assert "CSV" in line_of(pilot, "lab/one")
        assert line_of(pilot, "lab/one").split()[2:] == ["-", "-", "1m", "-"]
        await go(pilot, place / "lab" / "one")
        assert "lab/one: not read yet, enter reads it; CSV, 1 file" in second_line(pilot)
        for words, names in (
            ("csv -bad", {"table.csv", "one"}),
            ("format=csv lab", {"one", "bad.csv"}),
            ("state=done", {"digits-1"}),
        ):
            await pilot.press("slash", "ctrl+u", *words, "enter")
            assert {row.path.name for row in table_of(pilot).rows} == names

    drive(home(place), script, size=(80, 24))


def test_enter_reads_a_log_and_follows_it_and_the_list_then_has_its_values(place: Path) -> None:
    log = place / "lab" / "one" / "metrics.csv"

    async def script(pilot: AppPilot) -> None:
        await go(pilot, log.parent)
        await pilot.press("enter")
        await patiently(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await patiently(pilot, lambda: "step 30" in text(pilot.app.screen))
        # Until the log is read to its end, the header says that instead.
        await patiently(pilot, lambda: "read-only" in text(pilot.app.screen))
        write_log(log, 41, first=31)
        # The newest step is shown when its successor shows that it is complete.
        await patiently(pilot, lambda: "step 40" in text(pilot.app.screen) or "step 41" in text(pilot.app.screen))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        await patiently(pilot, lambda: " 41 " in line_of(pilot, "lab/one"))
        assert "0.0244" in line_of(pilot, "lab/one")

    drive(home(place), script, size=(80, 24))
    assert sorted(path.name for path in (place / "lab").rglob("*")) == ["bad.csv", "metrics.csv", "one"]


def test_log_that_cannot_be_read_is_a_notice(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        await go(pilot, place / "lab" / "bad.csv")
        await pilot.press("enter")
        await patiently(pilot, lambda: "the first line is not a header" in second_line(pilot))
        assert isinstance(pilot.app.screen, RunsScreen)

    drive(home(place), script, size=(200, 50))


def test_another_key_cancels_opening(place: Path) -> None:
    write_log(place / "runs" / "table.csv", LONG)

    async def script(pilot: AppPilot) -> None:
        await go(pilot, place / "runs" / "table.csv")
        await pilot.press("enter", "down")
        assert "cancelled by another key" in second_line(pilot)
        # The process that reads the log ends; nothing opens.
        await patiently(pilot, lambda: not [w for w in pilot.app.workers if w.group == "logs" and not w.is_finished])
        assert isinstance(pilot.app.screen, RunsScreen)

    drive(home(place), script)


def test_enter_on_another_log_opens_that_one_alone(place: Path) -> None:
    write_log(place / "lab" / "one" / "metrics.csv", LONG)

    async def script(pilot: AppPilot) -> None:
        await go(pilot, place / "lab" / "one")
        await pilot.press("enter")
        table_of(pilot).choose(place / "runs" / "table.csv")
        await pilot.press("enter")
        await patiently(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await patiently(pilot, lambda: "table.csv" in text(pilot.app.screen))
        write_log(place / "runs" / "table.csv", 51, first=21)
        await patiently(pilot, lambda: "step 5" in text(pilot.app.screen))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))

    drive(home(place), script)


def test_runs_and_logs_are_compared(place: Path) -> None:
    async def script(pilot: AppPilot) -> None:
        for path in (place / "runs" / "table.csv", place / "runs" / "digits-1", place / "lab" / "one"):
            await go(pilot, path)
            await pilot.press("space")
        await pilot.press("C")
        await patiently(pilot, lambda: isinstance(pilot.app.screen, CompareScreen))
        await patiently(pilot, lambda: "0.0500" in text(pilot.app.screen) and "0.0333" in text(pilot.app.screen))
        await pilot.press("1", "n", "enter")
        await patiently(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        # The run directory of a log takes no requests; until it is read, the header says so in its place.
        await patiently(pilot, lambda: "read-only" in text(pilot.app.screen))
        await pilot.press("q", "q")

    drive(home(place), script, size=(120, 36))


@pytest.mark.parametrize("key", ["asterisk", "number_sign", "A", "D", "s", "c"])
def test_logs_are_never_changed(place: Path, key: str) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in place.rglob("*"))

    async def script(pilot: AppPilot) -> None:
        await go(pilot, place / "runs" / "table.csv")
        await pilot.press(key)
        assert "logs of other programs" in second_line(pilot)
        offered = dict((each.action, why) for each, why in pilot.app.screen.keys_offered())  # type: ignore[attr-defined]
        assert all("logs of other programs" in offered[name] for name in ("stop", "edit('delete')"))
        if key == "D":
            await pilot.press("space")
            await go(pilot, place / "runs" / "digits-1")
            await pilot.press("D")
            assert "unmark table.csv" in second_line(pilot)

    drive(home(place), script, size=(120, 36))
    assert sorted((path, path.stat().st_mtime_ns) for path in place.rglob("*")) == before


def test_problem_of_the_configuration_is_a_notice_and_the_runs_are_listed(place: Path) -> None:
    (place / "config.toml").write_text("[[sources\n")

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "1 run, 0 running, 1 log" in text(pilot.app.screen))
        await until(pilot, lambda: "config.toml: not valid TOML" in second_line(pilot))

    drive(home(place), script, size=(200, 50))


def test_reached_bound_is_in_the_listing(place: Path) -> None:
    listings: list[LogListing] = []
    LogsReader(place / "runs", place / "config.toml", listings.append, bounds=Bounds(logs=1)).poll()
    assert listings[-1].is_cut
    assert listings[-1].notices == (f"{place / 'lab'}: only the newest 1 of 2 logs are listed",)


@pytest.mark.skipif(
    textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}; another may draw otherwise"
)
@pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=str)
def test_picture(snap_compare: Compare, place: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]) -> None:
    monkeypatch.chdir(place)
    with OpenedLog(place / "lab" / "one") as opened:
        assert opened.wait(120)
    app = ScreenApp(lambda: RunsScreen(Path("runs"), user_config=Path("config.toml"), clock=lambda: NOW))

    async def listed(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await until(pilot, lambda: "1 run, 0 running, 3 logs" in text(pilot.app.screen))
        await go(pilot, place / "lab" / "one")

    assert snap_compare(app, terminal_size=size, run_before=listed)
