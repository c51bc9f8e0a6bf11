"""Run list and launcher without a screen: text editing, filters, sorting, fields, TOML."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import recorded
from tests.ui.fake_launch_service import TOML
from tputui import config
from tputui import formatting as fmt
from tputui.check_result import Option, TaskDescription
from tputui.ui.charts.columns import ChartColumn
from tputui.ui.charts.series_chart import BLOCKS, sparkline
from tputui.ui.launch.field_values import (
    Field,
    FieldError,
    describe_type,
    document,
    format_value,
    inline,
    parse_value,
    type_name,
)
from tputui.ui.launch.form import Form
from tputui.ui.render.lines import width_of
from tputui.ui.runs.filter import RunFilter, parse_filter, unknown_keys
from tputui.ui.runs.rows import Listing, RunRow
from tputui.ui.runs.runs_reader import RunsReader
from tputui.ui.runs.sort_order import SORT_KEYS, SortKey, SortOrder, parse_sort_order, sort_rows
from tputui.ui.runs.table import COLUMNS, cell, empty_text, reason_line, short_age, short_span
from tputui.ui.widgets.line_widget import EditedText, press, spans

TEXTS = st.text(max_size=20)
NUMBERS = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KEYS = ("left", "right", "home", "end", "backspace", "delete", "ctrl+w", "ctrl+u", "ctrl+k", "a", "z", "space")
WORD, SHARE = {"type": "string", "default": ""}, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
COUNT = {"type": "integer", "minimum": 1, "maximum": 1024, "default": 32}
CHOICE = {"enum": [16, "16", "bf16", "fp32"], "default": "fp32"}
LABEL = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "default": "label"}
MAYBE = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None}
SIZE = {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [COUNT, COUNT], "items": False}


def field(schema: dict[str, Any]) -> Field:
    return Field("data.key", schema, "A key.")


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_toml_round_trips(tables: dict[str, Any]) -> None:
    said = {key: value for key, value in tables.items() if value != {}}
    assert tomllib.loads(document(tables, ["from\x00 nowhere"])) == said


def test_value_without_toml_form_is_rejected() -> None:
    with pytest.raises(TypeError):
        inline(object())
    assert [inline(value) for value in (math.inf, -math.inf, 1e-7, 16, "a")] == ["inf", "-inf", "1e-07", "16", '"a"']


@given(st.lists(st.sampled_from(KEYS), max_size=30), TEXTS)
def test_cursor_stays_visible_within_the_text(pressed: list[str], text: str) -> None:
    edited = EditedText.of("").insert(text)
    for key in pressed:
        after = press(edited, key, key if len(key) == 1 else " " if key == "space" else None)
        assert after is not None
        edited = after
        assert 0 <= edited.at <= len(edited.text)
        assert width_of(spans(edited, 300)) <= 300
    assert press(edited, "f1", None) is None


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (COUNT, " 64 ", 64),
        (SHARE, ".5", 0.5),
        (SHARE, "1e-3", 0.001),
        (WORD, "set:ct/tissues.csv", "set:ct/tissues.csv"),
        (WORD, '"quoted"', "quoted"),
        (WORD, "", ""),
        (CHOICE, "16", 16),
        (CHOICE, '"16"', "16"),
        (CHOICE, "bf16", "bf16"),
        (LABEL, "lung", "lung"),
        (LABEL, '["lung", "gas"]', ["lung", "gas"]),
        (MAYBE, "", None),
        (MAYBE, "0", 0),
        (SIZE, "[96, 96]", [96, 96]),
        ({"type": "boolean"}, "true", True),
        ({"type": "object", "additionalProperties": SHARE}, "{ bce = 0.5 }", {"bce": 0.5}),
        ({}, "2", 2),
    ],
)
def test_field_text_and_value_round_trip(schema: dict[str, Any], text: str, value: Any) -> None:
    found = parse_value(field(schema), text)
    assert found == value
    assert type(found) is type(value)
    assert parse_value(field(schema), format_value(field(schema), found)) == value


@pytest.mark.parametrize(
    ("schema", "text", "why"),
    [
        (COUNT, "0", "it must be 1 or more"),
        (COUNT, "4.5", "4.5 is not a whole number from 1 to 1,024"),
        (COUNT, "true", "true is not a whole number"),
        (COUNT, "", "missing value"),
        (SHARE, "1", "it must be less than 1"),
        (SHARE, "nan", "it must be a finite number"),
        (CHOICE, "fp64", 'fp64 is not one of 16, "16", bf16, fp32'),
        (SIZE, "[96]", "it must have 2 values"),
        (SIZE, "[96, 0]", "0 in it: it must be 1 or more"),
        (LABEL, "[1]", "1 in it is not text"),
        ({"type": "object", "additionalProperties": SHARE}, "{ bce = 2 }", "2 in it: it must be less than 1"),
    ],
)
def test_wrong_text_states_the_error(schema: dict[str, Any], text: str, why: str) -> None:
    with pytest.raises(FieldError, match=re.escape(why)):
        parse_value(field(schema), text)


@given(TEXTS)
def test_any_text_round_trips_through_a_field(text: str) -> None:
    for schema in (WORD, LABEL, {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}):
        assert parse_value(field(schema), format_value(field(schema), text)) == text


def test_field_describes_accepted_values() -> None:
    assert type_name(COUNT) == "a whole number from 1 to 1,024"
    assert type_name(SHARE) == "a number more than 0 and less than 1"
    assert describe_type(MAYBE) == "Whole number from 0, optional"
    assert describe_type(LABEL) == "Text, or a list: [...], each text"


def form_of(text: str = TOML) -> Form:
    form = Form(tomllib.loads(text), "small.toml")
    form.set_task(
        TaskDescription(
            "digits",
            "",
            ["loss"],
            {"data": [Option("valid_fraction", SHARE, "x")], "model": [Option("channels", COUNT, "x")]},
        )
    )
    return form


def test_a_form_has_every_field_of_the_configuration() -> None:
    keys = {field.key for field in form_of().fields}
    common = {f"{table}.{name}" for table, cls in config.TABLES.items() for name in cls.__struct_fields__} - {
        "data.options"
    }
    assert keys == {"name", "task", "epochs", "seed", "data.valid_fraction", "model.channels"} | common
    assert all(field.doc for field in form_of().fields)


def test_untouched_form_equals_its_file() -> None:
    form = form_of()
    assert form.tables() == tomllib.loads(TOML)
    assert (form.changed(), form.problems(), form.overrides()) == ([], [], [])


def test_batch_sizes_replace_each_other() -> None:
    form = form_of()
    form.set("data.global_batch", "128")
    assert form.tables()["data"] == {"global_batch": 128, "valid_fraction": 0.2}
    assert form.config().on_cores(8).batch_per_core == 16
    form.reset("data.global_batch")
    assert form.config().batch_per_core == 8
    assert form.changed() == []


def test_value_typed_back_is_not_a_change() -> None:
    form = form_of()
    form.set("optim.lr", "5e-4")
    assert form.changed() == []
    form.set("optim.lr", "0.001")
    assert form.overrides() == ["optim.lr=0.001"]
    assert config.parse(TOML, "small.toml", form.overrides()) == form.config()


def test_unknown_task_keys_stay_until_cleared() -> None:
    form = form_of(TOML + "[model]\nchanels = 3\n")
    assert form.tables()["model"] == {"chanels": 3}
    form.set("model.chanels", "")
    assert "model" not in form.tables()


def row(name: str, **known: Any) -> RunRow:
    return RunRow(Path(name), **{"state": "done", **known})


ROWS = [
    row("ct-1", task="image_labels", loss=0.5, created=3.0, config={"optim.lr": 0.001, "data.flips": "both"}),
    row("imdb-2", task="sentiment", loss=math.nan, created=2.0, config={"optim.lr": 0.01, "report.seal": True}),
    row("ct-3", task="image_labels", state="running", loss=0.25, created=1.0, num_cores=8, config={"optim.lr": 0.1}),
    row("odd-4", state="unreadable"),
]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", "1234"),
        ("ct", "13"),
        ("ct running", "3"),
        ("CT -running", "1"),
        ("lr>=0.01", "23"),
        ("optim.lr<0.01", "1"),
        ("lr=0.010", "2"),
        ("lr!=0.01", "13"),
        ("seal=true", "2"),
        ("flips=both", "1"),
        ("state=done loss<1", "1"),
        ("cores=8", "3"),
        ("nosuch=1", ""),
    ],
)
def test_filter_selects_matching_runs(text: str, kept: str) -> None:
    found = parse_filter(text)
    assert "".join(each.path.name[-1] for each in ROWS if found.matches(each)) == kept


def test_invalid_filter_is_reported_and_matches_all() -> None:
    for text, why in (("lr>=", "missing value"), ("lr>=many", "needs a number")):
        found = parse_filter(text)
        assert found.error is not None
        assert why in found.error
        assert all(found.matches(each) for each in ROWS)
    assert unknown_keys(parse_filter("nosuch=1 lr>0"), ROWS) == ["nosuch"]


@given(TEXTS)
def test_any_filter_text_is_accepted(text: str) -> None:
    found = parse_filter(text)
    assert all(found.matches(each) in (True, False) for each in ROWS)


@given(st.permutations(ROWS), st.sampled_from(SORT_KEYS), st.booleans())
def test_orders_are_stable_and_put_unknown_last(rows: list[RunRow], key: SortKey, backwards: bool) -> None:
    found = sort_rows(rows, SortOrder(key, backwards), 10.0)
    assert found == sort_rows(ROWS, SortOrder(key, backwards), 10.0)
    if key in ("start", "loss"):
        assert found[-1].path.name in ("odd-4", "imdb-2")


@pytest.mark.parametrize("kept", ["", "-", "--loss", "nonsense", "-nonsense"])
def test_invalid_order_falls_back_to_default(kept: str) -> None:
    assert parse_sort_order(kept) == SortOrder()


def test_order_is_saved_as_a_word() -> None:
    orders = [SortOrder(key, backwards) for key in SORT_KEYS for backwards in (False, True)]
    assert [parse_sort_order(order.text) for order in orders] == orders


def test_orders_cycle() -> None:
    order = SortOrder()
    for _ in SORT_KEYS:
        order = order.next()
        assert order.label != order.reversed().label
    assert order == SortOrder()


@given(
    st.lists(
        st.tuples(st.integers(0, 119), st.floats(), st.integers(0, 2)), max_size=30, unique_by=lambda each: each[0]
    ),
    st.integers(0, 50),
)
def test_sparkline_has_its_width_and_shows_non_finite(points: list[tuple[int, float, int]], width: int) -> None:
    columns = [ChartColumn(x, mean, mean, mean, bad) for x, mean, bad in sorted(points)]
    line = sparkline(columns, 120, width)
    assert width_of(line) == width
    assert any(span.tone == "bad" for span in line) == (width > 0 and any(column.bad for column in columns))


def test_a_sparkline_falls_as_the_loss_does() -> None:
    columns = [ChartColumn(x, 120.0 - x, 0, 0, 0) for x in range(120)]
    assert "".join(span.text for span in sparkline(columns, 120, 8)) == BLOCKS[::-1]


def test_duration_is_rounded_as_in_the_header() -> None:
    took = next(column for column in COLUMNS if column.key == "took")
    for seconds, expected in ((48.4, "48s"), (48.6, "49s"), (59.7, "1m00s")):
        text, _ = cell(row("x", started=100.0, end_time=100.0 + seconds), took, 0.0)
        assert text == expected
        assert fmt.duration(seconds).replace(" min ", "m").replace(" s", "s") == expected


def test_long_values_keep_their_columns() -> None:
    for known in ({"steps": 123_456_789, "total_steps": 2_000_000_000}, {"loss": -1.2345e-30, "num_bad": 3}):
        for each in COLUMNS:
            if each.key != "curve":
                assert len(cell(row("x", **known), each, 0.0)[0]) <= each.width
    assert [short_age(seconds) for seconds in (None, 0.3, 59, 61, 7200, 86_400 * 400)] == [
        "-",
        "now",
        "59s",
        "1m",
        "2h",
        "400d",
    ]
    assert [short_span(seconds) for seconds in (None, 3.9, 61, 3_700, 90_000)] == ["-", "3s", "1m01s", "1h01m", "1d01h"]


def test_problems_come_before_the_end_reason() -> None:
    long = row("runs/long", state="stopped", reason="ended at once on request, at step 6886", alarms=("1 recompile",))
    assert "".join(span.text for span in reason_line(long)) == (
        "! 1 recompile  long: ended at once on request, at step 6886"
    )


def test_empty_list_is_a_card_if_there_is_room() -> None:
    empty = empty_text(Path("/runs"), Listing({}, None), RunFilter(), may_start=True)
    for width, height in ((80, 20), (200, 45), (44, 12)):
        lines = ["".join(span.text for span in line) for line in empty.draw(width, height)]
        assert len(lines) <= height
        assert all(len(line) <= width for line in lines)
        assert any("\u256d" in line for line in lines)
    small = ["".join(span.text for span in line) for line in empty.draw(36, 8)]
    assert small[1] == "  No runs in /runs yet."
    read_only = empty_text(Path("/runs"), Listing({}, None), RunFilter(), may_start=False)
    assert read_only.sentences[1] == "Start one with `tputui run CONFIG`."
    assert not read_only.keys


def test_a_list_of_old_runs_is_sent_again_only_if_it_changed(tmp_path: Path) -> None:
    recorded.write_run(tmp_path, run="run-00")
    sent: list[Listing] = []
    reader = RunsReader(tmp_path, sent.append, lambda: recorded.T0 + 86_400.0)
    for _ in range(3):
        reader.poll()
    before = len(sent)
    for _ in range(3):
        reader.poll()
    assert len(sent) == before
    recorded.write_run(tmp_path, run="run-01")
    reader.poll()
    assert len(sent) > before
    assert sent[-1].rows.keys() == {tmp_path / "run-00", tmp_path / "run-01"}
    reader.close()
