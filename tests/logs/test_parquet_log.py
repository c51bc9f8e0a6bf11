"""Parquet files and folders, as polars writes them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.logs.test_text_logs import all_values
from tputui.logs.formats import open_log
from tputui.logs.rows import LoggedValue, UnknownLog

pl = pytest.importorskip("polars")
T = datetime(2026, 11, 22, 17, 5, 13, tzinfo=UTC)


def neptune_rows(run: str, num_steps: int) -> Any:
    """An export with the columns of Neptune's exporter: attributes with and without steps."""
    rows: list[dict[str, Any]] = [
        {"attribute_path": "params/lr", "attribute_type": "float", "float_value": 0.1},
        {"attribute_path": "params/net", "attribute_type": "string", "string_value": "resnet"},
    ]
    rows += [
        {
            "attribute_path": "train/loss", "attribute_type": "float_series", "step": Decimal(step), "timestamp": T,
            "float_value": 1 / (step + 3),
        }
        for step in range(num_steps)
    ]  # fmt: skip
    schema = {
        "project_id": pl.String, "run_id": pl.String, "attribute_path": pl.String, "attribute_type": pl.String,
        "step": pl.Decimal(18, 6), "timestamp": pl.Datetime("ms", "UTC"), "int_value": pl.Int64,
        "float_value": pl.Float64, "string_value": pl.String, "bool_value": pl.Boolean,
    }  # fmt: skip
    return pl.DataFrame([{"run_id": run, "project_id": "p"} | row for row in rows], schema=schema)


def test_export_of_neptune_is_read_with_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "p" / "run-1").mkdir(parents=True)
    neptune_rows("RUN-1", 3).write_parquet(tmp_path / "p" / "run-1" / "part_0.parquet")
    reader = open_log(tmp_path)
    assert all_values(reader) == [LoggedValue("train/loss", step, T.timestamp(), 1 / (step + 3)) for step in range(3)]
    assert reader.config == {"params/lr": 0.1, "params/net": "resnet"}
    assert reader.damage == []


def test_runs_of_one_export_prefix_their_tags(tmp_path: Path) -> None:
    for run in ("RUN-1", "RUN-2"):
        neptune_rows(run, 1).write_parquet(tmp_path / f"{run}.parquet")
    assert {value.tag for value in all_values(open_log(tmp_path))} == {"RUN-1/train/loss", "RUN-2/train/loss"}


def test_table_with_a_column_per_metric_keeps_float32_exactly(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"step": range(100_000), "loss": [0.1] * 100_000, "acc": [None, *[1.0] * 99_999]},
        schema={"step": pl.Int64, "loss": pl.Float32, "acc": pl.Float64},
    )
    frame.write_parquet(tmp_path / "a.parquet")
    found = all_values(open_log(tmp_path / "a.parquet"))
    assert found[0] == LoggedValue("loss", 0, None, 0.10000000149011612)
    assert [value.step for value in found if value.tag == "loss"] == list(range(100_000))
    assert len(found) == 199_999


def test_damaged_file_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    pl.DataFrame({"step": [1], "loss": [0.5]}).write_parquet(tmp_path / "b.parquet")
    content = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / "c.parquet").write_bytes(content[:8] + bytes(40) + content[48:])
    reader = open_log(tmp_path)
    found = all_values(reader)
    assert LoggedValue("loss", 1, None, 0.5) in found
    assert reader.damage[0].startswith(f"{tmp_path / 'a.parquet'}: not readable as parquet: ")
    (tmp_path / "a.parquet").write_bytes(content)
    assert all_values(reader) == [LoggedValue("loss", 1, None, 0.5)]
    assert not any("a.parquet" in sentence for sentence in reader.damage)


def test_missing_polars_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pl.DataFrame({"step": [1], "loss": [0.5]}).write_parquet(tmp_path / "b.parquet")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnknownLog, match="needs polars; install it with: pip install polars"):
        open_log(tmp_path / "b.parquet")
