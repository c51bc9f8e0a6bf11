"""The run list: pins, tags, notes, archived and deleted runs, and chosen columns."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import textual

from tests import recorded
from tests.ui.driving import AppPilot, drive, first_frame, text, until
from tests.ui.test_pictures import DRAWN_BY, Compare
from tests.ui.test_runs import NOW, all_read, chosen, home, names, table_of, write_runs
from tputui.session import deletion
from tputui.telemetry import run_labels, rundir
from tputui.telemetry.run_labels import NO_LABELS, RunLabels
from tputui.ui.app import ScreenApp
from tputui.ui.base.preferences import Views
from tputui.ui.render.lines import width_of
from tputui.ui.runs import table
from tputui.ui.runs.edits import LabelsScreen
from tputui.ui.runs.filter import parse_filter, unknown_keys
from tputui.ui.runs.rows import RunRow, metrics_of, value_at
from tputui.ui.runs.screen import COLUMNS_KEY, RunsScreen
from tputui.ui.runs.sort_order import SortOrder, parse_sort_order, sort_rows
from tputui.ui.runs.table import ColumnChoice, completed, layout, parse_columns
from tputui.ui.widgets.dialogs import Confirm
from tputui.ui.widgets.line_widget import EditedText


def labels(tmp_path: Path, number: int) -> RunLabels:
    return run_labels.read(tmp_path / f"run-{number:02d}")


def top(pilot: AppPilot) -> str:
    """The header: counts, then the notice."""
    return "\n".join(text(pilot.app.screen).splitlines()[:2])


def row(name: str, **values: Any) -> RunRow:
    return RunRow(Path(name), "done")._replace(**values)


# Pins, tags, notes.


def test_pinned_run_comes_first_in_every_order_and_undo_unpins_it(tmp_path: Path) -> None:
    write_runs(tmp_path)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("end", "asterisk")
        await until(pilot, lambda: names(pilot) == ["run-00", "run-02", "run-01"])
        assert "run-00: pinned" in top(pilot)
        assert chosen(pilot) == "run-00"
        assert "\u276f\u2605" in table_of(pilot).as_text()
        await pilot.press("o")
        await until(pilot, lambda: names(pilot) == ["run-00", "run-01", "run-02"])
        assert "by name" in top(pilot)
        await pilot.press("u", "u")
        await until(pilot, lambda: names(pilot) == ["run-02", "run-01", "run-00"])
        assert labels(tmp_path, 0) == NO_LABELS

    drive(home(tmp_path), script)


def test_undo_pressed_while_labels_are_written_is_not_dropped(tmp_path: Path) -> None:
    write_runs(tmp_path, 2)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 2)
        await pilot.press("A")
        await until(pilot, lambda: labels(tmp_path, 1).archived)
        await until(pilot, lambda: names(pilot) == ["run-00"])
        with run_labels._writing:
            await pilot.press("asterisk", "u", "u")
            assert labels(tmp_path, 0) == NO_LABELS
        await until(pilot, lambda: not labels(tmp_path, 1).archived)
        await until(pilot, lambda: labels(tmp_path, 0) == NO_LABELS and "run-01: undone: archived" in top(pilot))
        await pilot.press("u")
        assert "no changes to undo" in top(pilot)

    drive(home(tmp_path), script)


def test_change_that_failed_cannot_be_undone(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 1)
        (tmp_path / "run-00" / run_labels.LABELS).write_text("{")
        await pilot.press("asterisk")
        await until(pilot, lambda: "cannot be read" in top(pilot))
        await pilot.press("u")
        assert "no changes to undo" in top(pilot)

    drive(home(tmp_path), script)


def test_dialog_edits_tags_and_note(tmp_path: Path) -> None:
    write_runs(tmp_path)
    run_labels.change(tmp_path / "run-00", tags=("known",))

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("number_sign")
        await until(pilot, lambda: isinstance(pilot.app.screen, LabelsScreen))
        assert "used: known" in text(pilot.app.screen)
        await pilot.press(*"a=b", "enter")
        assert "'a=b' is not a tag" in text(pilot.app.screen)
        await pilot.press("backspace", "backspace", *", paper", "tab", *"q?#", "enter")
        await until(pilot, lambda: labels(tmp_path, 2) == RunLabels(tags=("a", "paper"), note="q?#"))
        await until(pilot, lambda: "a paper" in table_of(pilot).as_text())
        await until(pilot, lambda: "tags and note saved" in top(pilot))
        await pilot.press("number_sign", *" more", "escape", "down")
        await until(pilot, lambda: chosen(pilot) == "run-01")
        assert labels(tmp_path, 2).tags == ("a", "paper")

    drive(home(tmp_path), script)


def test_corrupt_labels_are_an_alarm_and_are_not_replaced(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)
    file = tmp_path / "run-00" / run_labels.LABELS
    file.write_text("{")

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 1)
        assert "done !" in text(pilot.app.screen)
        assert "labels.json cannot be read: " in top(pilot)
        for key in ("asterisk", "number_sign", "A"):
            await pilot.press(key)
            await until(pilot, lambda: "run-00: labels.json cannot be read" in top(pilot))
        assert file.read_text() == "{"

    drive(home(tmp_path), script)


def test_labels_that_change_elsewhere_are_shown(tmp_path: Path) -> None:
    write_runs(tmp_path)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        run_labels.change(tmp_path / "run-01", pinned=True, note="seen")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: names(pilot)[0] == "run-01")

    drive(home(tmp_path), script)


def test_read_only_view_changes_nothing(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 1)
        for key in ("asterisk", "number_sign", "A", "D"):
            await pilot.press(key)
            assert "this view is read-only" in top(pilot)
            await pilot.press("down")
        assert "p pin" not in text(pilot.app.screen)

    drive(home(tmp_path, read_only=True), script)
    assert labels(tmp_path, 0) == NO_LABELS


# Archive and delete.


def test_archived_runs_are_hidden_until_asked_for(tmp_path: Path) -> None:
    write_runs(tmp_path)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("space", "space", "A")
        await until(pilot, lambda: names(pilot) == ["run-00"])
        assert "run-02, run-01: archived" in top(pilot)
        assert "3 runs, 0 running, 2 archived" in top(pilot)
        await pilot.press("a")
        await until(pilot, lambda: len(names(pilot)) == 3)
        await pilot.press("A")
        await until(pilot, lambda: labels(tmp_path, 1) == NO_LABELS)
        await pilot.press("a")
        await until(pilot, lambda: len(names(pilot)) == 3)

    drive(home(tmp_path), script)


def test_list_of_archived_runs_only_says_how_to_see_them(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)
    run_labels.change(tmp_path / "run-00", archived=True)

    async def script(pilot: AppPilot) -> None:
        await until(pilot, lambda: "1 run, all archived. Press a to show them." in text(pilot.app.screen))

    drive(home(tmp_path), script)


def test_delete_names_runs_and_size_and_cancelling_is_preselected(tmp_path: Path) -> None:
    write_runs(tmp_path)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        shown = text(pilot.app.screen)
        assert 'Delete "run-02"?' in shown
        assert "delete it: 3 files, " in shown
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, RunsScreen)
        await pilot.press("space", "space", "D")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        assert 'Delete "run-02", "run-01"?' in text(pilot.app.screen)
        await pilot.press("y")
        await until(pilot, lambda: names(pilot) == ["run-00"])
        assert 'deleted "run-02", "run-01"' in top(pilot)

    drive(home(tmp_path), script)
    assert [path.name for path in tmp_path.iterdir()] == ["run-00"]


@pytest.mark.parametrize("key", ["y", "down", "enter"])
def test_key_pressed_before_the_dialog_cancels_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    write_runs(tmp_path, 2)
    pressed = threading.Event()
    examine = deletion.examine

    def slowly(run_dir: Path) -> deletion.RunSize:
        pressed.wait(120)
        return examine(run_dir)

    monkeypatch.setattr(deletion, "examine", slowly)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 2)
        await pilot.press("D")
        assert 'delete: checking "run-01" ... (any key cancels)' in top(pilot)
        await pilot.press(key)
        pressed.set()
        screen = pilot.app.screen_stack[1]
        assert isinstance(screen, RunsScreen)
        await until(pilot, lambda: screen._notice == "delete: cancelled by another key")
        assert not isinstance(pilot.app.screen, Confirm)

    drive(home(tmp_path), script)
    assert len(list(tmp_path.iterdir())) == 2


def test_living_run_cannot_be_deleted(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)
    me = rundir.this_process()
    head = msgspec.structs.replace(
        recorded.opened(NOW, "rank"), host_id=me.host_id, pid=me.pid, pid_started=me.pid_started
    )
    recorded.write_journal(tmp_path / "run-00" / "rank-1.jsonl", [head])

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 1)
        await pilot.press("D")
        await until(pilot, lambda: "delete: run-00 " in top(pilot))
        assert isinstance(pilot.app.screen, RunsScreen)

    drive(home(tmp_path), script)
    assert (tmp_path / "run-00").exists()


# Columns.


def test_columns_are_completed_shown_sorted_and_remembered(tmp_path: Path) -> None:
    write_runs(tmp_path)
    views = Views()
    app = ScreenApp(lambda: RunsScreen(tmp_path, clock=lambda: NOW), views=views)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        await pilot.press("v", *"optim.l")
        assert "tab: optim.lr optim.lr_scaling" in text(pilot.app.screen)
        assert "optim.l " not in table_of(pilot).as_text()
        await pilot.press("tab")
        assert "optim.lr" in table_of(pilot).as_text()
        await pilot.press("space", *"best.a", "tab", "enter")
        await until(pilot, lambda: "best.accuracy" in table_of(pilot).as_text().splitlines()[0])
        assert "0.0005" in table_of(pilot).as_text()
        assert views.get(COLUMNS_KEY, "") == "optim.lr best.accuracy"
        for _ in range(10):
            await pilot.press("o")
        assert "by optim.lr, lowest first" in top(pilot)
        await pilot.press("v", "ctrl+u", *"nothing", "enter")
        await until(pilot, lambda: "no run has a key called nothing" in top(pilot))
        await pilot.press("v", "ctrl+u", *"-curve", "escape")
        assert views.get(COLUMNS_KEY, "") == "nothing"

    drive(app, script)

    async def again(pilot: AppPilot) -> None:
        await all_read(pilot, 3)
        assert "nothing" in table_of(pilot).as_text().splitlines()[0]
        assert "by optim.lr" not in top(pilot)

    drive(ScreenApp(lambda: RunsScreen(tmp_path, clock=lambda: NOW), views=views), again)


def test_columns_without_room_are_named(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)

    async def script(pilot: AppPilot) -> None:
        await all_read(pilot, 1)
        await pilot.press("v", *"seed optim.name optim.gamma optim.step_size checkpoint.mode", "enter")
        await until(pilot, lambda: "no room for checkpoint.mode; -KEY hides a column" in top(pilot))

    drive(home(tmp_path), script, size=(80, 24))


@pytest.mark.parametrize("width", [40, 60, 80, 92, 120, 160, 200])
@pytest.mark.parametrize("choice", ["", "optim.lr", "took -curve tags", " ".join(f"key.{n}" for n in range(30))])
def test_columns_fit_and_give_way_in_order(width: int, choice: str) -> None:
    parsed, room = parse_columns(choice), width - 18
    found = layout(parsed, [row("a", labels=RunLabels(tags=("x",)))], width, room)
    if choice or width >= 60:
        assert sum(column.width + 1 for column in found) <= room
    keys = [column.key for column in found]
    assert len(keys) == len(set(keys))
    if choice == "optim.lr":
        assert keys[:2] == (["state", "optim.lr"] if "state" in keys else ["optim.lr", "tags"])
    if choice.startswith("took"):
        assert "curve" not in keys
        assert "took" in keys


def test_choice_of_columns_is_parsed() -> None:
    assert parse_columns("a, b.c  a -curve") == ColumnChoice(("a", "b.c"), frozenset({"curve"}))
    assert parse_columns("") == ColumnChoice()
    assert len(parse_columns(" ".join(map(str, range(99)))).shown) == table.CHOSEN_MAX


@pytest.mark.parametrize(
    ("typed", "done"),
    [
        ("opt", "optim.lr"),
        ("lr_", "optim.lr_scaling "),
        ("best.", "best.accuracy "),
        ("x best.", "x best.accuracy "),
        ("zzz", "zzz"),
        ("", ""),
    ],
)
def test_key_is_completed_as_far_as_it_is_clear(typed: str, done: str) -> None:
    keys = ["best.accuracy", "optim.lr", "optim.lr_scaling"]
    assert completed(EditedText.of(typed), keys).text == done


def test_values_of_every_type_are_drawn() -> None:
    config = {"a": True, "b": [1, 2], "c": "x\x1b[2J", "d": 1e-300, "e": 2**62, "f": None}
    shown = row("a", config=config, metrics={"best.loss": float("nan"), "train.loss": 0.123456789})
    cells = {key: table.chosen_cell(shown, table.TableColumn(key, key, 8, 0))[0] for key in (*config, *shown.metrics)}
    assert (cells["a"], cells["b"], cells["f"]) == ("true", "[1, 2]", "-")
    assert "\x1b" not in cells["c"]
    assert cells["train.loss"] == "0.1235"
    assert cells["best.loss"].lower() == "nan"


def test_configuration_key_is_found_by_its_last_part() -> None:
    shown = row("a", config={"optim.lr": 0.1, "model.lr": 0.2}, metrics={"best.auc": 0.9})
    assert (value_at(shown, "optim.lr"), value_at(shown, "lr"), value_at(shown, "best.auc")) == (0.1, 0.1, 0.9)
    assert value_at(shown, "l") is None


def test_rows_are_sorted_by_a_chosen_key() -> None:
    rows = [row("a", config={"k": 2}), row("b", config={"k": "x"}), row("c"), row("d", config={"k": 1.5})]
    order = parse_sort_order("k", ["k"])
    assert [each.path.name for each in sort_rows(rows, order, NOW)] == ["d", "a", "b", "c"]
    assert [each.path.name for each in sort_rows(rows, order.reversed(), NOW)] == ["b", "a", "d", "c"]
    assert parse_sort_order("k") == SortOrder()
    assert SortOrder("task").next(["k"]).key == "k"
    assert SortOrder("k").next(["k"]) == SortOrder()
    assert SortOrder("k").next() == SortOrder()
    assert order.label == "by k, lowest first"


def test_metrics_of_a_row_are_bounded(tmp_path: Path) -> None:
    from tputui.session import session

    epochs = session.load(recorded.write_run(tmp_path)).epochs
    found = metrics_of(epochs)
    assert {"train.loss", "valid.loss", "best.loss", "best.accuracy"} <= found.keys()
    many = msgspec.structs.replace(epochs[-1], scores={f"s{n}": 1.0 for n in range(200)} | {"two words": 1.0})
    assert len(metrics_of([many])) <= 3 * 32
    assert metrics_of([]) == {}


# Filter.


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("tag:paper", ["a"]),
        ("tag=Paper", ["a"]),
        ("tags=paper", ["a"]),
        ("tag!=paper", ["b", "c"]),
        ("tag:pap", []),
        ("tag:lr:0.1", ["b"]),
        ("note:seed", ["b"]),
        ("note=SEED", ["b"]),
        ("note!=seed", ["a", "c"]),
        ("paper", ["a"]),
        ("-paper", ["b", "c"]),
        ("pinned=true", ["c"]),
        ("best.auc>0.5", ["c"]),
        ("best.auc>0.95", []),
    ],
)
def test_filter_by_tag_note_and_metric(wanted: str, found: list[str]) -> None:
    rows = [
        row("a", labels=RunLabels(tags=("paper", "v2"))),
        row("b", labels=RunLabels(tags=("lr:0.1",), note="best seed so far")),
        row("c", labels=RunLabels(pinned=True), metrics={"best.auc": 0.9}),
    ]
    assert [each.path.name for each in rows if parse_filter(wanted).matches(each)] == found
    assert unknown_keys(parse_filter(wanted), rows) == []


def test_tag_without_a_word_is_an_error_with_an_example() -> None:
    assert parse_filter("tag:").error == "tag:: missing value; example: tag:paper"
    assert parse_filter("http://x").error is None


# Pictures.


@pytest.mark.skipif(textual.__version__ != DRAWN_BY, reason=f"the pictures were drawn by Textual {DRAWN_BY}")
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)], ids=str)
@pytest.mark.parametrize(
    "keys", [[], ["v", *"best.a"], ["number_sign"], ["D"]], ids=["list", "columns", "tags", "delete"]
)
def test_picture(
    snap_compare: Compare, size: tuple[int, int], keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_runs(Path("runs"), 4)
    run_labels.change(Path("runs/run-01"), pinned=True, tags=("paper", "seed:3"), note="the best one so far")
    run_labels.change(Path("runs/run-02"), tags=("sweep",))
    run_labels.change(Path("runs/run-03"), archived=True)
    views = Views()
    views.set(COLUMNS_KEY, "optim.lr best.accuracy")

    async def script(pilot: AppPilot) -> None:
        await first_frame(pilot)
        await all_read(pilot, 4)
        await pilot.press("home", *keys)
        if keys == ["D"]:
            await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))

    app = ScreenApp(lambda: RunsScreen(Path("runs"), clock=lambda: NOW), views=views)
    assert snap_compare(app, terminal_size=size, run_before=script)


def test_lines_of_the_dialog_fit_any_width() -> None:
    screen = LabelsScreen("run" * 40, RunLabels(tags=("a" * 32,), note="b" * 900), ["c" * 32] * 9)

    async def script(pilot: AppPilot) -> None:
        pilot.app.push_screen(screen)
        await until(pilot, lambda: screen.is_mounted)
        form = screen.query_one("#labels")
        assert all(width_of(line) <= form.size.width for line in screen._form.paint(*form.size))

    drive(ScreenApp(lambda: RunsScreen(Path("/nowhere"), clock=lambda: NOW)), script, size=(30, 12))
