"""The output of `tputui show`: an object with fixed keys, and a page."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import msgspec

from tests.recorded import T0, losses, opened, steps_recorded, worker_events, write_journal, write_run
from tests.ui import made, measured
from tests.ui.fake_launch_service import MEMORY
from tputui import formatting as fmt
from tputui.session.session import load
from tputui.state.chart_data import LoggedView
from tputui.state.snapshot import MeterView, Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import LoggedColumns, values_logged
from tputui.text.show_page import show_text, to_show

PROMISED = {
    "": {"run", "dir", "state", "config", "topology", "steps", "epochs", "cores", "meters", "xla", "memory",
         "checkpoints", "requests", "non_finite", "damage"},
    "topology": {"strategy", "device", "num_cores", "num_hosts"},
    "epochs": {"epoch", "train", "valid", "train_s", "valid_s", "sections_s"},
    "cores": {"core", "host", "loss", "step"},
    "xla": {"compiles", "compile_s", "executes", "execute_s", "transfers_to_device", "transfers_from_device",
            "fallbacks"},
    "memory": {"host_rss_bytes", "hbm", "hbm_reason"},
    "checkpoints": {"path", "step", "bytes", "seconds", "reason"},
    "requests": {"id", "kind", "state", "seen_phase", "applied_step"},
    "non_finite": {"core", "step", "metric", "value"},
    "damage": {"regions", "lost_records"},
}  # fmt: skip


def loaded(run_dir: Path, *more: ev.Event) -> Snapshot:
    """The recorded run with events of another worker."""
    write_journal(run_dir / "worker-1.jsonl", more)
    return load(run_dir, clock=lambda: T0 + 12)


def troubled(run_dir: Path) -> Snapshot:
    rows = [[math.nan, 1.0, math.inf, -math.inf]]
    return loaded(
        run_dir,
        steps_recorded(T0 + 5, 1, rows),
        ev.RequestSeen(t=T0 + 6, request="1", kind="checkpoint", phase="executing", step=30),
        ev.WarningRaised(t=T0 + 6, text="beware \x1b[2J of this"),
    )


def test_the_object_has_every_promised_key(recorded_run: Path) -> None:
    shown = to_show(troubled(recorded_run))
    for part, keys in PROMISED.items():
        value = shown[part] if part else shown
        for item in value if isinstance(value, list) else [value]:
            assert keys <= set(item), part
    assert set(shown["epochs"][0]["train"]["loss"]) == {"val", "avg", "sum", "count"}
    assert {"name", "split", "val", "avg", "sum", "count", "reduced"} <= set(shown["meters"][0])


def test_object_describes_the_run(recorded_run: Path) -> None:
    shown = to_show(load(recorded_run))
    assert (shown["run"], shown["dir"], shown["state"], shown["steps"]) == ("digits-1", str(recorded_run), "done", 66)
    assert [core["loss"] for core in shown["cores"]] == losses(66)
    assert shown["memory"]["host_rss_bytes"] == (950 + 31) << 20
    assert shown["damage"] == {"regions": [], "lost_records": 0}


def test_the_object_is_strict_json_whatever_the_losses(recorded_run: Path) -> None:
    shown = to_show(troubled(recorded_run))
    json.dumps(shown, allow_nan=False)
    assert [bad["value"] for bad in shown["non_finite"]] == ["NaN", "Infinity", "-Infinity"]
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown


def test_page_describes_the_run_and_is_escaped(recorded_run: Path) -> None:
    page = show_text(troubled(recorded_run))
    assert page.isascii()
    assert all(character.isprintable() or character == "\n" for character in page)
    for words in (
        "done  (3 epochs trained)",
        "epoch 3/3  step 66/66",
        "core 5       tpu-vm-0  loss 0.1495",
        "batch 8 per core, 64 global",
        "22 steps of 64 take a different 1,408 of 1,437 examples each epoch",
        "accuracy     avg 0.9667",
        "4 compiles in 3.5 s",
        "hbm          none: the CPU device does not tell its memory",
        "checkpoints/step-00000066.pt",
        "request      checkpoint  seen  seen while executing",
        "non-finite   loss NaN",
        "beware \\x1b[2J of this",
    ):
        assert words in page


def test_highest_loss_is_that_of_all_printed_values(tmp_path: Path) -> None:
    """A progress bar prints several values of a step, of which the step keeps the last."""
    run_dir = write_run(tmp_path)
    (run_dir / "worker-0.jsonl").unlink()
    columns = LoggedColumns([1.0, 0.5, 0.25, 0.125], [0, 0, 1, 2], [T0 + 1] * 4, None)
    steps = steps_recorded(T0 + 1, 0, [[0.5], [0.25], [0.125]])
    write_journal(
        run_dir / "logs-0.jsonl",
        [opened(T0, "logs"), steps, values_logged(T0 + 1, "loss", "train", "loss", "console", columns)],
    )
    page = show_text(load(run_dir, clock=lambda: T0 + 12))
    (loss,) = [line for line in page.splitlines() if line.startswith("train loss")]
    assert "highest 1.0000 of 4 values" in loss
    assert "0.1250 to 1.0000 in 4 values" in page


def test_printed_validation_value_has_one_line() -> None:
    run = measured.running()
    mean = MeterView(name="loss", split="valid", epoch=2, reading=made.reading(0.4501, 1), reduced="")
    printed = LoggedView(
        name="loss", split="valid", tag="val_loss", source="console", value=mean.reading.val, step=110, t=T0, epoch=2,
        num_values=3, num_bad=0, min=0.4, max=0.9, points=[], x="",
    )  # fmt: skip
    page = show_text(msgspec.structs.replace(run, meters=[mean], logged=[printed]))
    (line,) = [line for line in page.splitlines() if re.match(r"valid +loss ", line)]
    assert "in 3 values  from console" in line


def test_page_of_many_cores_is_short(recorded_run: Path) -> None:
    for path in recorded_run.glob("*.jsonl"):
        path.unlink()
    write_journal(recorded_run / "worker-0.jsonl", worker_events(num_cores=2048))
    page = show_text(load(recorded_run))
    assert page.count("\n") < 60
    assert "2048 of 2048 cores are finite" in page


def test_an_empty_run_has_a_page(tmp_path: Path) -> None:
    page = show_text(load(tmp_path))
    assert "state        lost" in page


def test_the_page_has_the_newest_epochs_and_the_best(recorded_run: Path) -> None:
    snapshot = load(recorded_run)
    (first, *_) = snapshot.epochs
    worse = [msgspec.structs.replace(first, epoch=epoch, best=epoch == 7) for epoch in range(1, 31)]
    snapshot = msgspec.structs.replace(snapshot, epochs=worse)

    def epochs(num_epochs: int | None) -> list[int]:
        rows = show_text(snapshot, num_epochs=num_epochs).splitlines()
        return [int(row.split()[1]) for row in rows if re.match(r"epoch \d", row)]

    assert epochs(3) == [7, 28, 29, 30]
    assert epochs(None) == list(range(1, 31))
    assert "26 of 30 not shown; --epochs all prints them" in show_text(snapshot, num_epochs=3)


def test_page_of_many_epochs_has_tables_of_metrics_and_epochs() -> None:
    run = measured.running()
    page = show_text(run)
    rows = [line.split() for line in page.splitlines()]
    last, best = run.epochs[-1], run.epochs[measured.BEST - 1]
    assert [fmt.number(last.valid["loss"].avg), fmt.number(best.valid["loss"].avg)] == [
        next(row for row in rows if row[:1] == ["loss"])[place] for place in (2, 4)
    ]
    assert ["auc", "-", fmt.number(last.scores["auc"]), "-", fmt.number(best.scores["auc"])] in rows
    assert "metrics by auc  epoch 12 train   valid  best epoch 9 train   valid" in page
    assert [row[:3] for row in rows if row[:1] == ["epoch"]] == [
        ["epoch", "train", "s"],
        ["epoch", "8", "3.40"],
        ["epoch", "9", "best"],
        *(["epoch", str(number), "3.40"] for number in (10, 11, 12)),
    ]
    assert "7 of 12 not shown; --epochs all prints them" in page
    assert max(len(line) for line in page.splitlines() if line.startswith("epoch ")) <= 120
    assert page.isascii()


def test_page_of_any_number_of_epochs_has_a_table_of_them() -> None:
    few, many = measured.running(10), measured.running(11)
    tables = {page: [line for line in page.splitlines() if line.startswith("epoch ")]
              for page in (show_text(few), show_text(many, num_epochs=None))}  # fmt: skip
    assert [len(table) for table in tables.values()] == [11, 12]
    assert all(len({len(line) for line in table}) == 1 for table in tables.values()), "the columns are aligned"
    assert "metrics by" not in show_text(few)
    assert "metrics by" in show_text(many)
    assert "metrics by" not in show_text(many, num_epochs=11)
    assert show_text(many, num_epochs=11) == show_text(many, num_epochs=None)


def test_times_of_epochs_are_printed_if_they_are_asked_for(recorded_run: Path) -> None:
    snapshot = load(recorded_run)
    assert "\ntime " not in show_text(snapshot)
    titles, first, *_ = show_text(snapshot, sections=True).partition("\ntime ")[2].splitlines()
    assert titles.split()[:2] == ["data", "trace"]
    assert first.split()[:6] == ["epoch", "1", "50.0", "ms", "0.20", "s"]


def test_epochs_without_metrics_have_tables_too() -> None:
    run = measured.running()
    bare = [msgspec.structs.replace(epoch, train={}, valid={}, scores={}, best=False) for epoch in run.epochs]
    page = show_text(msgspec.structs.replace(run, epochs=bare))
    assert "metrics  " in page
    assert "epoch 12" in page


def test_object_has_step_and_time_of_every_epoch(recorded_run: Path) -> None:
    shown = to_show(load(recorded_run))
    assert [epoch["step"] for epoch in shown["epochs"]] == [22, 44, 66]
    assert all(epoch["t"] > T0 for epoch in shown["epochs"])


def test_prediction_of_memory_names_its_row_once() -> None:
    run = made.running()
    run = made.changed(run, memory=msgspec.structs.replace(run.memory, predicted=MEMORY))
    (line,) = [line for line in show_text(run).splitlines() if line.startswith("predicted ")]
    assert line.count("predicted") == 1
