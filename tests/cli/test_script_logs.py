"""What a user's own command logs, under `tputui run --`: real processes and real writers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.helpers import DEADLINE_S, tputui
from tests.cli.test_own_script import only_run
from tputui.session import session
from tputui.state.metric_series import MetricSource, metric_series
from tputui.state.snapshot import Snapshot

CSV = """
import csv, time
with open("metrics.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["epoch", "step", "loss", "val_acc"])
    for step in range(1, 41):
        writer.writerow([(step - 1) // 20, step, 1 / step, step / 40 if step % 20 == 0 else ""])
        file.flush()
        time.sleep(0.05)
open("predictions.csv", "w").write("id,label\\n1,3\\n2,4\\n")
"""

EVENTS = """
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("logs/a", flush_secs=1)
for step in range(30):
    for core in range(8):
        value = Summary.Value(tag=f"train/loss/core{core}", simple_value=2.0 / (step + core + 1))
        writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    value = Summary.Value(tag="eval/accuracy", simple_value=step / 30)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()
    time.sleep(0.05)
writer.close()
"""


def run_script(folder: Path, text: str, *words: str) -> Snapshot:
    (folder / "train.py").write_text(text)
    result = tputui(
        "--runs-dir", folder / "runs", "run", "--no-ui", *words, "--", sys.executable, "train.py",
        cwd=folder, deadline_s=DEADLINE_S,
    )  # fmt: skip
    assert result.code == 0, result.err
    return session.load(only_run(folder))


def test_csv_is_found_and_becomes_curves(tmp_path: Path) -> None:
    snapshot = run_script(tmp_path, CSV)
    by_name = {(view.name, view.split): view for view in snapshot.logged}
    assert list(by_name) == [("loss", "train"), ("acc", "valid")]
    loss = by_name["loss", "train"]
    assert (loss.value, loss.step, loss.source, loss.num_values) == (1 / 40, 40, "metrics.csv", 40)
    assert [point.mean for point in loss.points] == [1 / step for step in range(1, 41)]
    assert [core.loss for core in snapshot.cores] == pytest.approx([1 / 40])
    assert snapshot.steps == 40
    assert [(epoch.epoch, epoch.step, epoch.scores) for epoch in snapshot.epochs] == [
        (1, 20, {"acc": 0.5}),
        (2, 40, {"acc": 1.0}),
    ]
    assert not snapshot.warnings


def test_tags_of_cores_in_event_files_become_a_loss_per_core(tmp_path: Path) -> None:
    snapshot = run_script(tmp_path, EVENTS)
    assert [(core.core, core.step) for core in snapshot.cores] == [(core, 29) for core in range(8)]
    assert [core.loss for core in snapshot.cores] == pytest.approx([2.0 / (30 + core) for core in range(8)])
    assert snapshot.topology is not None
    assert (snapshot.topology.num_cores, snapshot.topology.device) == (8, "unknown")
    assert [(view.name, view.split, view.source) for view in snapshot.logged] == [("accuracy", "valid", "logs/a")]
    series = {one.name: one for one in metric_series(MetricSource.of(snapshot))}
    assert len(series["loss"].train) == len(series["accuracy"].valid) == 30
