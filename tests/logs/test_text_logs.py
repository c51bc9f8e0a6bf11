"""CSV, JSON lines and trainer_state.json, as their writers leave them."""

from __future__ import annotations

import csv
import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tputui.logs.formats import open_log
from tputui.logs.growing import LINE_BYTES_MAX
from tputui.logs.rows import LoggedValue, LogReader, UnknownLog
from tputui.ui.base.export import Figures, as_csv

LIGHTNING_ROWS = "epoch,step,train_loss,val_loss\r\n0,9,0.5,\r\n0,9,,0.25\r\n1,19,nan,\r\n"


def all_values(reader: LogReader) -> list[LoggedValue]:
    """Everything that the reader returns until it has nothing new."""
    found: list[LoggedValue] = []
    while values := reader.read():
        found += values
    return found


def written(path: Path, text: str) -> Path:
    path.write_text(text, newline="")
    return path


def same(left: list[LoggedValue], right: list[LoggedValue]) -> bool:
    """Equality in which NaN equals NaN."""
    return repr(left) == repr(right)


def test_sparse_columns_of_lightning_become_one_value_per_cell(tmp_path: Path) -> None:
    reader = open_log(written(tmp_path / "metrics.csv", LIGHTNING_ROWS))
    assert same(
        all_values(reader),
        [
            LoggedValue("train_loss", 9, None, 0.5, 0.0),
            LoggedValue("val_loss", 9, None, 0.25, 0.0),
            LoggedValue("train_loss", 19, None, math.nan, 1.0),
        ],
    )
    assert reader.damage == []


def test_names_that_were_written_as_no_formulas_are_read_back(tmp_path: Path) -> None:
    table = Figures(("step", "=loss", "-2+x", "'=a", "'b", "acc"), [(1, 1.0, 2.0, 3.0, 4.0, -5.0)])
    reader = open_log(written(tmp_path / "panel.csv", as_csv(table)))
    assert [(value.tag, value.value) for value in all_values(reader)] == [
        ("=loss", 1.0),
        ("-2+x", 2.0),
        ("'=a", 3.0),
        ("'b", 4.0),
        ("acc", -5.0),
    ]


def test_rewritten_csv_with_a_new_column_returns_only_new_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "metrics.csv", LIGHTNING_ROWS)
    reader = open_log(path)
    assert len(all_values(reader)) == 3
    rows = list(csv.DictReader(path.read_text().splitlines()))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["a_new_one", "epoch", "step", "train_loss", "val_loss"])
        writer.writeheader()
        file.flush()
        assert all_values(reader) == []  # between the two writes of Lightning
        writer.writerows(rows)
        writer.writerow({"a_new_one": 7.0, "epoch": 2, "step": 29})
    assert all_values(reader) == [LoggedValue("a_new_one", 29, None, 7.0, 2.0)]


def test_file_of_the_next_run_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", "step,loss\n1,0.5\n2,0.25\n")
    reader = open_log(path)
    assert len(all_values(reader)) == 2
    written(path, "step,loss\n1,0.75\n")
    assert all_values(reader) == [LoggedValue("loss", 1, None, 0.75)]


def test_step_epoch_and_time_columns_are_recognised_by_name(tmp_path: Path) -> None:
    text = "Wall time,Step,Epoch,Value,time\n1795367320.5,12.0,0.5,1e-3,0.013\n"
    assert all_values(open_log(written(tmp_path / "a.csv", text))) == [
        LoggedValue("Value", 12, 1795367320.5, 1e-3, 0.5),
        LoggedValue("time", 12, 1795367320.5, 0.013, 0.5),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1795367320", 1795367320.0), ("1795367320500", 1795367320.5), ("2026-11-22T17:08:40+00:00", 1795367320.0)],
)
def test_times_are_read_in_the_usual_forms(tmp_path: Path, text: str, seconds: float) -> None:
    reader = open_log(written(tmp_path / "a.csv", f"timestamp,loss\n{text},1\n"))
    assert all_values(reader) == [LoggedValue("loss", None, seconds, 1.0)]


def test_column_called_time_that_is_a_duration_is_a_metric(tmp_path: Path) -> None:
    reader = open_log(written(tmp_path / "a.csv", "step,time\n1,0.25\n"))
    assert all_values(reader) == [LoggedValue("time", 1, None, 0.25)]


def test_row_with_another_number_of_cells_is_reported_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "step,loss\n1,0.5\n2\n3,0.25\n")
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [1, 3]
    assert reader.damage == [f"{path}:3: 1 cells in a table of 2 columns"]


LOSSES = [(1, 0.5), (2, 1.25)]


def test_blank_lines_with_a_carriage_return_are_skipped(tmp_path: Path) -> None:
    reader = open_log(written(tmp_path / "m.csv", "step,loss\r\n1,0.5\r\n\r\n2,0.25\r\n"))
    assert [(one.step, one.value) for one in all_values(reader)] == [(1, 0.5), (2, 0.25)]
    assert reader.damage == []


def test_quoted_cells_may_contain_delimiters_and_quotes(tmp_path: Path) -> None:
    text = '"note","step","loss"\n"a, b","1","0.5"\n"c ""d""","2","0.25"\n"note","step","acc"\n"e","3","0.75"\n'
    reader = open_log(written(tmp_path / "m.csv", text))
    found = [(one.tag, one.step, one.value) for one in all_values(reader)]
    assert found == [("loss", 1, 0.5), ("loss", 2, 0.25), ("acc", 3, 0.75)]
    assert reader.damage == []


@pytest.mark.parametrize(
    "text",
    [
        "step,loss\n1,0.5\n2,1.25\n",
        "step;loss\n1;0,5\n2;1,25\n",
        "step;loss;\n1;0.5;\n2;1.25;\n",
        'step,loss\n1,"0,5"\n2,"1,25"\n',
        "step\tloss\n1\t0,5\n2\t1,25\n",
        "step loss\n1 0.5\n2 1.25\n",
        "  step    loss\n     1     0.5\n     2    1.25\n",
        "# step loss\n1.0 0.5\n2.0 1.25\n",
        "#step,loss\n1,0.5\n2,1.25\n",
        '#{"t_start": 1.5, "env": "pong"}\nstep,loss\n1,0.5\n2,1.25\n',
        "# written by a tool\n# in two lines\n\nstep,loss\n1,0.5\n# a remark\n2,1.25\n",
        "sep=;\nstep;loss\n1;0,5\n2;1,25\n",
        "Training of a network\nstep,loss\n1,0.5\n2,1.25\n",
        "step,loss\n1,0.5\nstep,loss\n2,1.25\n",
        "step,loss\n1,0.5\nstep,note,loss\n2,restarted,1.25\n",
        '#{"env": 1}\nstep,loss\n1,0.5\n#{"env": 2}\nstep,loss\n2,1.25\n',
        "step,loss\n1,0.5,\n2,1.25,\n",
        "step,loss\n1,np.float64(0.5)\n2,tensor(1.2500)\n",
        "step,loss\n1,tensor(0.5, device='xla:0')\n2,\"tensor(1.25, device='xla:0')\"\n",
        "step;loss\n1;[0.5]\n2;array([1.25], dtype=float32)\n",
        "step loss\n1 tensor(0.5, device='cuda:0')\n2 tensor(1.25, device='cuda:0')\n",
    ],
)
def test_dialects_of_tables_are_read(tmp_path: Path, text: str) -> None:
    reader = open_log(written(tmp_path / "a.csv", text))
    assert [(value.step, value.value) for value in all_values(reader) if value.tag == "loss"] == LOSSES
    assert (reader.damage, reader.incomplete) == ([], "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step;loss\n1;1,234\n", [(1, 1.234)]),
        ("step\tloss\n1\t1,234\n", [(1, 1234.0)]),
        ("step\tloss\n1\t1,234\n2\t0,5\n", [(1, 1.234), (2, 0.5)]),
        ("step;loss\n1,000;0.5\n", [(1000, 0.5)]),
        ("step;loss\n1,000;0,5\n", [(1000, 0.5)]),
        ('step,loss\n"1,000","12,345.5"\n', [(1000, 12345.5)]),
    ],
)
def test_numbers_of_a_table_show_what_its_commas_separate(
    tmp_path: Path, text: str, expected: list[tuple[int, float]]
) -> None:
    reader = open_log(written(tmp_path / "a.csv", text))
    assert [(value.step, value.value) for value in all_values(reader)] == expected


def test_table_without_numbers_says_which_columns_are_text(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "phase,loss,score\nwarm-up,low,\nmain,high,\n")
    reader = open_log(path)
    assert all_values(reader) == []
    sentence = (
        f"{path}: 0 of 3 columns are numbers, and no metric is among them: phase is 'warm-up' in line 2, "
        "loss is 'low' in line 2"
    )
    assert (reader.damage, reader.incomplete) == ([], sentence)
    path = written(tmp_path / "b.csv", "step,loss\n" + "".join(f"{step},low\n" for step in range(100)))
    reader = open_log(path)
    assert all_values(reader) == []
    assert reader.damage == [
        f"{path}: 1 of 2 columns are numbers, and no metric is among them: loss is 'low' in line 2"
    ]


def test_header_that_is_joined_with_the_first_row_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", '#{"env": "pong"}\nr,l,t-21.0,792,63.4\n-20.0,819,96.5\n')
    with pytest.raises(UnknownLog, match="not a header with column names"):
        open_log(path)


def test_printed_tensors_in_json_strings_are_numbers(tmp_path: Path) -> None:
    text = json.dumps({"step": 1, "loss": "tensor(0.5, device='cuda:0')", "acc": "np.float64(0.25)", "name": "a(1)"})
    reader = open_log(written(tmp_path / "a.jsonl", text + "\n"))
    assert [(value.tag, value.value) for value in all_values(reader)] == [("loss", 0.5), ("acc", 0.25)]


def test_steps_beyond_float64_are_exact(tmp_path: Path) -> None:
    steps = [2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**63) + 1]
    csv = written(tmp_path / "a.csv", "step,loss\n" + "".join(f"{step},0.5\n" for step in steps))
    objects = "".join(f'{{"step": {step}, "loss": 0.5}}\n{{"step": "{step}", "loss": 0.5}}\n' for step in steps)
    assert [found.step for found in all_values(open_log(csv))] == steps
    assert [found.step for found in all_values(open_log(written(tmp_path / "a.jsonl", objects)))][::2] == steps
    assert [found.step for found in all_values(open_log(tmp_path / "a.jsonl"))][1::2] == steps


def test_nested_json_and_lists_are_joined_with_slashes(tmp_path: Path) -> None:
    row = {"global_step": 3, "train": {"loss": 0.5, "deep": {"acc": 1}}, "cores": [1.5, 2.5], "ok": True, "s": "x"}
    reader = open_log(written(tmp_path / "a.jsonl", json.dumps(row) + "\n"))
    assert [(value.tag, value.value) for value in all_values(reader)] == [
        ("train/loss", 0.5), ("train/deep/acc", 1.0), ("cores/0", 1.5), ("cores/1", 2.5),
    ]  # fmt: skip


def test_non_finite_json_numbers_are_read_in_both_spellings(tmp_path: Path) -> None:
    reader = open_log(written(tmp_path / "a.jsonl", '{"a": NaN, "b": -Infinity}\n{"a": "nan", "b": "-inf"}\n'))
    assert [str(value.value) for value in all_values(reader)] == ["nan", "-inf", "nan", "-inf"]


def test_last_json_line_needs_no_newline_and_is_read_once(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"step":1,"loss":1}\n{"step":2,"loss":2}')
    reader = open_log(path)
    assert [value.step for value in all_values(reader)] == [1, 2]
    with path.open("a") as file:
        file.write('\n{"step":3,"loss":3}\n{"step":4,')
    assert [value.step for value in all_values(reader)] == [3]
    assert reader.damage == []


def test_line_that_is_no_object_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"loss": 1}\n[1]\nprose\n' + "[" * 100_000 + '\n{"loss": 2}\n')
    reader = open_log(path)
    assert [value.value for value in all_values(reader)] == [1.0, 2.0]
    assert reader.damage == [f"{path}:2: not a JSON object (2 more like this)"]


def test_endless_line_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"loss": 1}\n' + "x" * (3 * LINE_BYTES_MAX) + '\n{"loss": 2}\n')
    reader = open_log(path)
    assert [value.value for value in all_values(reader)] == [1.0, 2.0]
    assert reader.damage == [f"{path}:2: the line exceeds {LINE_BYTES_MAX:,} bytes and was skipped"]


def test_torchtitan_scalars_and_spans_are_values_per_rank(tmp_path: Path) -> None:
    common = {"delta_ms": 1.0, "rank": 2, "step": 5, "time": 1709500000, "time_us": 1709500000250000, "seq_id": 1}
    rows: list[dict[str, Any]] = [
        common | {"log_type_name": "metric_value", "event_name": "train.loss", "value": 2.5},
        common | {"log_type_name": "fwd_bwd_start", "event_name": None},
        common | {"log_type_name": "fwd_bwd_end", "event_name": None, "value": 12.5},
    ]
    reader = open_log(written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert all_values(reader) == [
        LoggedValue("train.loss/rank2", 5, 1709500000.25, 2.5),
        LoggedValue("fwd_bwd_ms/rank2", 5, 1709500000.25, 12.5),
    ]


def trainer_state(num: int) -> str:
    history = [{"epoch": n / 2, "loss": 1.0 / n, "step": 10 * n} for n in range(1, num + 1)]
    return json.dumps({"log_history": history, "max_steps": 40, "stateful_callbacks": {}}, indent=2)


def test_rewritten_trainer_state_returns_only_new_entries(tmp_path: Path) -> None:
    path = written(tmp_path / "trainer_state.json", trainer_state(2))
    reader = open_log(path)
    assert all_values(reader) == [LoggedValue("loss", 10, None, 1.0, 0.5), LoggedValue("loss", 20, None, 0.5, 1.0)]
    assert all_values(reader) == []
    written(path, trainer_state(3))
    assert all_values(reader) == [LoggedValue("loss", 30, None, 1.0 / 3, 1.5)]
    assert reader.config == {"max_steps": 40}


def test_truncated_trainer_state_is_read_up_to_the_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "trainer_state.json", trainer_state(9)[:200])
    reader = open_log(path)
    found = all_values(reader)
    assert found == all_values(open_log(written(tmp_path / "trainer_state.json", trainer_state(9))))[: len(found)]
    assert len(found) >= 2
    assert len(reader.damage) == 1
    assert str(path) in reader.damage[0]


@given(st.data())
def test_every_prefix_reads_as_a_prefix_of_the_values(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    name, text = data.draw(
        st.sampled_from(
            [
                ("a.csv", LIGHTNING_ROWS),
                ("a.jsonl", '{"step":1,"loss":1.25}\n{"step":2,"loss":{"core0":1e3}}\n'),
                ("trainer_state.json", trainer_state(3)),
            ]
        )
    )
    path = tmp_path_factory.getbasetemp() / name
    whole = all_values(open_log(written(path, text)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    reader: LogReader | None = None
    found: list[LoggedValue] = []
    for cut in [*cuts, len(text)]:
        written(path, text[:cut])
        reader = reader or open_log(path)
        found += all_values(reader)
        assert same(found, whole[: len(found)])
    assert len(found) == len(whole)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", "0.5,1.5\n2,3\n", "not a header"),
        ("a.txt", "Some prose.\nMore of it.\n", "unknown format"),
        ("a.bin", "\0\1\2\n", "unknown format"),
        ("empty.txt", "", "unknown format"),
    ],
)
def test_other_files_are_refused_with_their_path(tmp_path: Path, name: str, content: str, reason: str) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(UnknownLog) as refusal:
        open_log(path)
    assert str(path) in str(refusal.value)
    assert reason in str(refusal.value)


def test_missing_path_and_directory_without_a_log_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownLog, match="No such file"):
        open_log(tmp_path / "missing.csv")
    with pytest.raises(UnknownLog, match="contains no log"):
        open_log(tmp_path)


def test_directory_of_several_logs_asks_for_one(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", "step,loss\n")
    assert open_log(tmp_path).form == "CSV file"
    written(tmp_path / "b.csv", "step,loss\n")
    with pytest.raises(UnknownLog, match="name one of them, such as"):
        open_log(tmp_path)


def test_folders_of_trainers_open_at_their_newest_log(tmp_path: Path) -> None:
    for step in (8, 16, 128):
        (tmp_path / f"checkpoint-{step}").mkdir()
        written(tmp_path / f"checkpoint-{step}" / "trainer_state.json", trainer_state(step // 8))
    assert len(all_values(open_log(tmp_path))) == 16
    (tmp_path / "lightning" / "version_0").mkdir(parents=True)
    written(tmp_path / "lightning" / "version_0" / "metrics.csv", LIGHTNING_ROWS)
    assert len(all_values(open_log(tmp_path / "lightning"))) == 3


def test_format_is_found_by_content_whatever_the_name(tmp_path: Path) -> None:
    assert open_log(written(tmp_path / "log.txt", '{"loss": 1}\n')).form == "JSON lines file"
    assert open_log(written(tmp_path / "log2.txt", "step\tloss\n1\t2\n")).form == "CSV file"
    assert open_log(written(tmp_path / "log3.txt", "# by a tool\nstep loss\n1 0.5\n")).form == "CSV file"
    with pytest.raises(UnknownLog, match="unknown format"):
        open_log(written(tmp_path / "log4.txt", "Some prose\nand more\n"))
    assert open_log(written(tmp_path / "state.json", trainer_state(1))).form == "Hugging Face trainer state"


PRINTED_LOG = """\
2026-01-02 10:15:01,447 INFO model: 1,234,567 parameters, lr 0.1
2026-01-02 10:15:03,100 INFO step 10 loss 2.5 lr 0.001
2026-01-02 10:15:05,100 INFO step 20 loss 1.5 lr 0.001
"""


def test_printed_text_opens_like_any_other_log_with_the_times_of_its_lines(tmp_path: Path) -> None:
    values = all_values(open_log(written(tmp_path / "train.log", PRINTED_LOG)))
    found = [(value.tag, value.step, value.value) for value in values]
    assert found == [("loss", 10, 2.5), ("lr", 10, 0.001), ("loss", 20, 1.5), ("lr", 20, 0.001)]
    assert [value.t for value in values[:1]] == [datetime(2026, 1, 2, 10, 15, 3, 100_000).timestamp()]
    assert len(all_values(open_log(tmp_path))) == 4, "the folder of the log"
    (tmp_path / "other").mkdir()
    for name, text in (("notes.txt", "The loss of step 10 was high.\n"), ("train.py", PRINTED_LOG)):
        with pytest.raises(UnknownLog):
            open_log(written(tmp_path / "other" / name, text))


def test_a_table_of_blanks_may_have_colours_a_ruler_and_dashes_for_no_value(tmp_path: Path) -> None:
    table = "  epoch   loss  val_loss\n-------  -----  --------\n   1  \x1b[36m0.50\x1b[0m    -\n   2   0.25   0.5\n"
    found = [
        (value.tag, value.epoch, value.value) for value in all_values(open_log(written(tmp_path / "a.log", table)))
    ]
    assert found == [("loss", 1, 0.5), ("loss", 2, 0.25), ("val_loss", 2, 0.5)]


def test_charts_that_were_downloaded_are_named_as_their_metric(tmp_path: Path) -> None:
    tensorboard = written(tmp_path / "run-a-tag-Loss_train.csv", "Wall time,Step,Value\n1790000000.5,3,0.5\n")
    wandb = written(
        tmp_path / "b.csv", '"Step","x-1 - val/loss","x-1 - val/loss__MIN","x-1 - val/loss__MAX"\n3,1,1,1\n'
    )
    (tmp_path / "metrics").mkdir()
    mlflow = written(tmp_path / "metrics" / "train_loss", "1790000000500 0.5 3\n1790000001500 0.25 4\n")
    found = [[(value.tag, value.step) for value in all_values(open_log(path))] for path in (tensorboard, wandb, mlflow)]
    assert found == [[("Loss_train", 3)], [("val/loss", 3)], [("train_loss", 3), ("train_loss", 4)]]


def test_a_row_with_one_of_two_steps_has_the_number_of_its_epoch_instead(tmp_path: Path) -> None:
    rows = '{"iter": 20, "step": 20, "loss": 1}\n{"step": 1, "coco/bbox_mAP": 0.5}\n'
    found = all_values(open_log(written(tmp_path / "scalars.json", rows)))
    assert [(value.tag, value.step) for value in found if value.tag != "iter"] == [
        ("loss", 20),
        ("coco/bbox_mAP", None),
    ]
