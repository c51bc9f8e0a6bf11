"""Exported runs, read back by the programs that they are for."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tputui.cli.main import main
from tputui.logs.formats import open_log
from tputui.session.session import read_events
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, logged_values
from tputui.telemetry.logged_values import LoggedColumns

Key = tuple[int, int]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A recorded run with a NaN, and values that a script logged."""
    run_dir = recorded.write_run(tmp_path)
    columns = LoggedColumns([0.1, math.nan, 1e300], [5, 10, 15], [recorded.T0, recorded.T0 + 0.125, math.nan], None)
    logged = logged_values.values_logged(recorded.T0, "perplexity", "valid", "eval/ppl", "log.csv", columns)
    block = float_blocks.pack(array("f", [math.nan, 0.1]).tobytes())
    steps = ev.StepsRecorded(
        t=recorded.T0, first=1, n=2, cores=1, mean=0.1, min=0.1, max=0.1, bad=1, metric="grad norm", block=block
    )
    recorded.write_journal(run_dir / "logs-0.jsonl", [logged, steps])
    return run_dir


def losses(run_dir: Path) -> dict[Key, float]:
    """The loss by step and core, from the journal."""
    found: dict[Key, float] = {}
    for entry in read_events(run_dir):
        event = entry.event
        if isinstance(event, ev.StepsRecorded) and event.metric == "loss":
            values = float_blocks.unpack(event.block, event.n * event.cores)
            for index, value in enumerate(values):
                found[event.first + index // event.cores, index % event.cores] = value
    return found


def export(run_dir: Path, form: str, out: Path) -> Path:
    assert main(["export", str(run_dir), "--to", form, "--out", str(out)]) == 0
    return out


def as_number(value: Any) -> float:
    return float(value)


def test_csv_has_every_step_of_every_core_exactly(run_dir: Path, tmp_path: Path) -> None:
    folder = export(run_dir, "csv", tmp_path / "out")
    assert sorted(path.name for path in folder.iterdir()) == [
        "epochs.csv",
        "events.csv",
        "metrics.csv",
        "run.json",
        "steps.csv",
    ]
    with (folder / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(int(r["step"]), int(r["core"])): as_number(r["value"]) for r in rows if r["metric"] == "loss"}
    assert found == losses(run_dir)
    assert len(found) == 66 * 8
    assert [r["value"] for r in rows if r["metric"] == "grad norm"] == ["nan", "0.10000000149011612"]

    with (folder / "metrics.csv").open(newline="") as file:
        logged = [r for r in csv.DictReader(file) if r["name"] == "perplexity"]
    assert [(r["split"], r["step"], r["value"], r["kind"]) for r in logged] == [
        ("valid", "5", "0.1", "log.csv"),
        ("valid", "10", "nan", "log.csv"),
        ("valid", "15", "1e+300", "log.csv"),
    ]
    assert [r["t"] for r in logged] == [str(recorded.T0), str(recorded.T0 + 0.125), ""]
    assert json.loads((folder / "run.json").read_text())["config"] == recorded.CONFIG


def test_every_report_has_its_learning_rate_and_pace(run_dir: Path, tmp_path: Path) -> None:
    reports = [entry.event for entry in read_events(run_dir) if isinstance(entry.event, ev.ProgressReported)]
    assert len(reports) > 2
    folder = export(run_dir, "csv", tmp_path / "out")
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "progress"]
    for name in ("lr", "step_s", "examples_per_s"):
        found = [(int(row["step"]), float(row["value"])) for row in rows if row["name"] == name]
        assert found == [(report.step, getattr(report, name)) for report in reports]


def test_steps_that_a_restart_trained_again_are_exported_once(tmp_path: Path) -> None:
    """The second generation continues after the first of three epochs, and ends after the second."""
    run_dir = recorded.write_run(tmp_path)
    whole, again_t = recorded.worker_events(3), recorded.T0 + 500
    restarted = [
        replace(event, t=again_t) if isinstance(event, ev.StepsRecorded) else event
        for event in recorded.worker_events(2)
        if isinstance(event, ev.TopologyDeclared | ev.EpochEnded) or getattr(event, "first", 0) > 22
    ]
    plan = replace(next(event for event in whole if isinstance(event, ev.TrainingPlanned)), first_step=23)
    head = replace(recorded.opened(again_t, "worker", pid=4244), generation=1)
    epoch = [event for event in restarted if isinstance(event, ev.EpochEnded) and event.epoch == 2]
    others = [event for event in restarted if not isinstance(event, ev.EpochEnded)]
    journal = run_dir / "worker-0.jsonl"
    journal.unlink()
    recorded.write_journal(journal, [*whole[:-1], head, plan, *others, *epoch])
    folder = export(run_dir, "csv", tmp_path / "out")
    with (folder / "steps.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "loss" and row["core"] == "0"]
    assert [int(row["step"]) for row in rows] == list(range(1, 45))
    assert {float(row["t"]) for row in rows if int(row["step"]) > 22} == {again_t}
    with (folder / "epochs.csv").open(newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"]
    with (folder / "metrics.csv").open(newline="") as file:
        ended = [row["step"] for row in csv.DictReader(file) if row["kind"] == "epoch" and row["name"] == "loss"]
    assert sorted(set(ended)) == ["22", "44"]


def test_jsonl_and_parquet_have_the_same_rows(run_dir: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    lines = export(run_dir, "jsonl", tmp_path / "lines")
    columns = export(run_dir, "parquet", tmp_path / "columns")
    for name in ("steps", "metrics", "epochs", "events"):
        rows = [json.loads(line) for line in (lines / f"{name}.jsonl").read_text().splitlines()]
        frame = polars.read_parquet(columns / f"{name}.parquet")
        assert frame.height == len(rows) > 0
        for row, other in zip(rows, frame.iter_rows(named=True), strict=True):
            numbers = {key: as_number(value) for key, value in row.items() if value in ("NaN", "Infinity")}
            assert {**row, **{key: str(number) for key, number in numbers.items()}} == {
                **{key: other[key] for key in row},
                **{key: str(other[key]) for key in numbers},
            }
    epochs = polars.read_parquet(columns / "epochs.parquet")
    assert epochs["epoch"].to_list() == [1, 2, 3]
    assert "valid.loss" in epochs.columns


def test_tensorboard_reads_the_values_of_every_core(run_dir: Path, tmp_path: Path) -> None:
    readers = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = readers.EventAccumulator(
        str(export(run_dir, "tensorboard", tmp_path / "tb")), size_guidance={"scalars": 0}
    )
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert {f"loss/core{core}" for core in range(8)} <= set(tags)
    found = {(point.step, core): point.value for core in range(8) for point in accumulator.Scalars(f"loss/core{core}")}
    assert found == losses(run_dir)
    points = accumulator.Scalars("valid/perplexity")
    assert [(point.step, point.wall_time) for point in points][:2] == [(5, recorded.T0), (10, recorded.T0 + 0.125)]
    assert math.isnan(points[1].value)
    assert math.isinf(points[2].value)
    assert [point.step for point in accumulator.Scalars("valid/loss")] == [22, 44, 66]
    assert {"progress/lr", "progress/step_s", "progress/examples_per_s"} <= set(tags)


@pytest.mark.parametrize("t", [math.inf, -math.inf, 1e300])
def test_event_files_are_written_whatever_the_times_of_a_log(tmp_path: Path, t: float) -> None:
    run_dir = recorded.write_run(tmp_path)
    logged = logged_values.values_logged(
        recorded.T0, "ppl", "train", "ppl", "log.csv", LoggedColumns([0.5], [1], [t], None)
    )
    recorded.write_journal(run_dir / "logs-0.jsonl", [logged])
    (file,) = export(run_dir, "tensorboard", tmp_path / "tb").glob("events.out.tfevents.*")
    assert {"train/ppl", "loss/core0"} <= {value.tag for value in open_log(file).read()}


def test_default_folder_is_named_after_the_run_also_from_inside_it(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run_dir)
    assert main(["export", ".", "--to", "csv"]) == 0
    assert (run_dir / f"{run_dir.name}-csv" / "steps.csv").exists()


def test_existing_folder_is_not_overwritten_and_an_error_leaves_nothing(run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "work" / "taken").mkdir(parents=True)
    (tmp_path / "work" / "taken" / "mine.txt").write_text("mine")
    for words, sentence in (
        (["--to", "csv", "--out", "taken"], "taken already exists; choose another --out"),
        (["--to", "csv", "--out", "no/where"], "no: no such directory"),
        (["--to", "csv", "--weights", "best"], "--weights is not available with --to csv"),
        (["--out", "x"], "--out needs --to csv, jsonl, parquet, tensorboard or html"),
    ):
        answer = tputui("export", run_dir, *words, cwd=tmp_path / "work")
        assert answer.code == 2
        assert sentence in one_sentence(answer)
    assert os.listdir(tmp_path / "work") == ["taken"]
    assert os.listdir(tmp_path / "work" / "taken") == ["mine.txt"]


@pytest.mark.parametrize(
    ("to", "sentence"),
    [
        ("json", "unknown form json; did you mean jsonl?"),
        ("cvs", "unknown form cvs; did you mean csv?"),
        ("CSV", "unknown form CSV; did you mean csv?"),
        ("xml", "unknown form xml; did you mean html?"),
        ("tb", "unknown form tb; did you mean tensorboard?"),
        ("weights", "unknown form weights; --to is csv, jsonl, parquet, tensorboard, html or a file of weights (.pt, "),
        ("", "the form is empty; --to is csv, "),
        (" ", "the form is empty; --to is csv, "),
        ("data.csv", "--to data.csv: the name of a file of weights ends in .pt, .pth, .bin, .safetensors; for the rec"),
        ("folder/csv", "--to folder/csv: the name of a file of weights ends in "),
        ("page.html", "write --to html --out PATH"),
        (".pt", "--to .pt: the name of a file of weights ends in "),
    ],
)
def test_word_that_is_no_form_is_no_file_of_weights(
    run_dir: Path, tmp_path: Path, to: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "checkpoints").mkdir(exist_ok=True)
    (run_dir / "checkpoints" / "last.pt").write_bytes(b"weights")
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(run_dir), "--to", to]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


FORMULAS = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+cmd", "-2+3", "\t=1+1", "\r=1+1", "-", "'=1", "\uff1d1+1"]
NO_FORMULAS = ["loss", "a=b", "'quoted", "1-2", "-0.5", "+1e5", "-inf", " =1"]


def test_no_text_of_a_csv_export_is_a_formula(run_dir: Path, tmp_path: Path) -> None:
    names = [*FORMULAS, *NO_FORMULAS]
    reading = recorded.reading([-0.5])
    meters = ev.MetersReported(
        t=recorded.T0, epoch=1, step=7, split="train", reduced="", meters=dict.fromkeys(names, reading)
    )
    recorded.write_journal(run_dir / "rank-1.jsonl", [meters])
    folder = export(run_dir, "csv", tmp_path / "out")
    with (folder / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.reader(file) if row[2] == "7" and row[-1] == "report"]
    found = [row[0] for row in rows if row[0].removeprefix("'") in names or row[0] in names]
    assert found == [*(f"'{name}" for name in FORMULAS), *NO_FORMULAS]
    assert {row[4] for row in rows if row[0] == "'@SUM(1)"} == {"-0.5"}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "tensorboard"])
@pytest.mark.parametrize("first", [ev.INT_MAX - 1, ev.INT_MAX, -ev.INT_MAX])
def test_steps_beyond_64_bits_are_left_out_of_every_form(
    run_dir: Path, tmp_path: Path, form: str, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    far = ev.StepsRecorded(
        t=recorded.T0, first=first, n=3, cores=1, mean=0.1, min=0.1, max=0.1, metric="far",
        block=float_blocks.pack(array("f", [0.1, 0.2, 0.3]).tobytes()),
    )  # fmt: skip
    recorded.write_journal(run_dir / "rank-1.jsonl", [far])
    export(run_dir, form, tmp_path / "out")
    is_left_out = "1 event cannot be decoded and left out; the first: rank-1: event " in capsys.readouterr().err
    assert is_left_out == (first > 0)


KILLED_WHILE_WRITING = """
import resource, signal, sys
from tputui.cli.main import main
# The kernel kills the process at the first byte beyond the limit, as abruptly as SIGKILL.
# Without -B, Python would write cached bytecode that is cut off there.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "tensorboard", "html"])
def test_export_that_is_killed_leaves_nothing_under_its_name(run_dir: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out" / f"my-{form}"
    out.parent.mkdir()
    words = ["export", str(run_dir), "--to", form, "--out", str(out)]
    killed = subprocess.run(
        [sys.executable, "-P", "-B", "-c", KILLED_WHILE_WRITING, *words],
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert killed.returncode == -signal.SIGXFSZ, killed.stderr
    assert not os.path.lexists(out)
    assert main(words) == 0
    assert out.exists()


def test_damaged_values_are_counted_and_the_rest_is_exported(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = ev.StepsRecorded(
        t=recorded.T0, first=1, n=2, cores=1, mean=0.1, min=0.1, max=0.1, metric="broken", block="z????"
    )
    recorded.write_journal(run_dir / "rank-1.jsonl", [broken, broken])
    folder = export(run_dir, "csv", tmp_path / "out")
    assert "2 events cannot be decoded and left out; the first: rank-1: event " in capsys.readouterr().err
    assert len((folder / "steps.csv").read_text().splitlines()) == 1 + 66 * 8 + 2
