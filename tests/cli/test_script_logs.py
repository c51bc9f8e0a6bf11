"""What a user's own command logs, under `tputui run --`: real processes and real writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, only_run, tputui
from tests.supervise.harness import events_in, is_running, wait_for
from tputui.session import session as sessions
from tputui.session.session import Session
from tputui.state.chart_data import LoggedView
from tputui.state.metric_series import MetricSource, metric_series
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev

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

ELSEWHERE = """
import os, sys, tempfile, time
if sys.argv[1] == "observed":
    from tputui.observers import autoload
    autoload.torch_imported()  # as `import torch` calls it
    folder = tempfile.mkdtemp()
else:
    folder = sys.argv[1].partition("=")[2] + "/version_0"
    os.makedirs(folder)
for step in range(1, 21):
    with open(os.path.join(folder, "metrics.csv"), "a") as file:
        file.write("" if step > 1 else "step,loss\\n")
        file.write(f"{step},{1 / step}\\n")
    time.sleep(float(sys.argv[2]))
"""
"""Opens and closes its log for every row, so that it is hardly ever seen open."""

RENAMED = """
import os, sys
folder = sys.argv[1].partition("=")[2]
open("part", "w").write("step,loss\\n1,0.5\\n")
os.rename("part", folder + "/a.csv")
"""

RENAMED_EVENTS = """
import os, socket, sys, tempfile, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

folder = tempfile.mkdtemp()
writer = EventFileWriter(folder)
for step in range(1, 5):
    value = Summary.Value(tag="loss", simple_value=1 / step)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
writer.close()
(name,) = os.listdir(folder)
path = os.path.join(folder, name)
content = open(path, "rb").read()
os.remove(path)
os.makedirs("runs-of-tensorboard")
for pid in (os.getpid(), int(sys.argv[1])):
    path = f"runs-of-tensorboard/events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{pid}.0"
    open("part", "wb").write(content)
    os.rename("part", path)
"""
"""Writes an event file and moves it to where it is found, so that it is never seen open, under two names."""

OTHER = """
import sys, threading, time
with open("other.csv", "w") as file:
    file.write("epoch,step,loss\\n")
    is_asked = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_asked.set())).start()
    step = 0
    while not is_asked.wait(0.05):
        step += 1
        file.write(f"0,{step},0.5\\n")
        file.flush()
"""
"""Writes until its standard input is closed."""

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

PRINTED = """
import time
for step in range(1, 31):
    print({"loss": round(2 / step, 4), "grad_norm": 0.5, "learning_rate": 0.01, "epoch": step / 10}, flush=True)
    if step % 10 == 0:
        print({"eval_loss": 3 / step, "eval_runtime": 0.5, "epoch": step / 10}, flush=True)
    time.sleep(0.03)
"""

TIMED = """
import json, time
with open("train.jsonl", "w") as file:
    for step in range(1, 10_000):
        file.write(json.dumps({"step": step, "loss": 1 / step, "time": time.time()}) + "\\n")
        file.flush()
        time.sleep(0.05)
"""


def run_script(folder: Path, text: str, *words: str, arguments: Sequence[str | Path] = ()) -> Snapshot:
    (folder / "train.py").write_text(text)
    result = tputui(
        "--runs-dir", folder / "runs", "run", "--no-ui", *words, "--", sys.executable, "train.py", *arguments,
        cwd=folder,
    )  # fmt: skip
    assert result.code == 0, result.err
    return sessions.load(only_run(folder))


def test_csv_is_found_and_becomes_curves(tmp_path: Path) -> None:
    snapshot = run_script(tmp_path, CSV)
    by_name = {(view.name, view.split): view for view in snapshot.logged}
    assert list(by_name) == [("loss", "train"), ("acc", "valid")]
    loss = by_name["loss", "train"]
    assert (loss.value, loss.step, loss.source, loss.num_values) == (1 / 40, 40, "metrics.csv", 40)
    assert [point.mean for point in loss.points] == [1 / step for step in range(1, 41)]
    assert [core.loss for core in snapshot.cores] == pytest.approx([1 / 40])
    assert snapshot.steps == 40
    assert [(epoch.epoch, epoch.step, epoch.figure("acc"), epoch.best) for epoch in snapshot.epochs] == [
        (1, 20, 0.5, True),
        (2, 40, 1.0, True),
    ]
    assert not snapshot.warnings


@pytest.mark.parametrize("pause_s", ["0", "0.1"])
@pytest.mark.parametrize("place", ["observed", "named"])
def test_a_log_elsewhere_that_is_not_seen_open_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, pause_s: str
) -> None:
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    if place == "observed":
        monkeypatch.setenv("TMPDIR", str(elsewhere))
    how = place if place == "observed" else f"--out={elsewhere}"
    snapshot = run_script(folder, ELSEWHERE, arguments=[how, pause_s])
    (loss,) = snapshot.logged
    (log,) = elsewhere.glob("*/metrics.csv")
    assert (loss.name, loss.source, loss.num_values) == ("loss", str(log), 20)
    assert [point.mean for point in loss.points] == [1 / step for step in range(1, 21)]
    assert not snapshot.warnings


def test_a_log_that_another_process_may_have_written_is_not_read(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    words = [sys.executable, "-c", "input()", f"--dir={elsewhere}"]
    other = subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE)
    try:
        snapshot = run_script(folder, RENAMED, arguments=[f"--out={elsewhere}"])
    finally:
        other.communicate(b"\n")
    assert not snapshot.logged
    (warning,) = snapshot.warnings
    assert f"{elsewhere}/a.csv is not read: the command line of process {other.pid} names the same dir" in warning


def test_event_files_that_name_their_process_belong_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    other = subprocess.Popen([sys.executable, "-c", "input()"], cwd=folder, stdin=subprocess.PIPE)
    try:
        snapshot = run_script(folder, RENAMED_EVENTS, arguments=[str(other.pid)])
    finally:
        other.communicate(b"\n")
    (loss,) = snapshot.logged
    assert (loss.name, loss.source, loss.num_values) == ("loss", "runs-of-tensorboard", 4)
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


def test_printed_dictionaries_become_curves_that_are_marked_as_read_from_the_console(tmp_path: Path) -> None:
    snapshot = run_script(tmp_path, PRINTED)
    by_name = {(view.name, view.split): view for view in snapshot.logged}
    loss = by_name["loss", "train"]
    assert (loss.value, loss.num_values, loss.source) == (round(2 / 30, 4), 30, "console")
    assert (by_name["loss", "valid"].value, by_name["loss", "valid"].num_values) == (3 / 30, 3)
    assert [epoch.figure("loss") for epoch in snapshot.epochs] == [3 / 10, 3 / 20, 3 / 30]
    assert "from console" in tputui("show", only_run(tmp_path)).out


def test_values_are_shown_while_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TIMED)
    started = tputui(
        "--runs-dir", tmp_path / "runs", "run", "--detach", "--", sys.executable, "train.py", cwd=tmp_path
    )  # fmt: skip
    assert started.code == 0, started.err
    session = Session.live(only_run(tmp_path))
    try:

        def logged() -> list[LoggedView]:
            session.poll()
            return session.snapshot().logged

        wait_for(lambda: any(view.step >= 20 for view in logged()), "a value")
        (view,) = logged()
        wait_for(lambda: logged()[0].step > view.step, "a newer value")
        assert session.snapshot().condition == "running"
    finally:
        session.close()
        tputui("stop", only_run(tmp_path), "--now")


def test_files_of_another_command_in_the_same_directory_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(OTHER)
    with subprocess.Popen([sys.executable, "other.py"], cwd=tmp_path, stdin=subprocess.PIPE) as other:
        snapshot = run_script(tmp_path, CSV)
        # Until then it runs; a file that another command has closed could be of this one.
        assert other.poll() is None
    assert (tmp_path / "other.csv").stat().st_size > 0
    assert {view.source for view in snapshot.logged} == {"metrics.csv"}


def test_unusable_pattern_is_refused_before_the_start(tmp_path: Path) -> None:
    for key, reason in (("tags", "has no group"), ("console", "has no named group")):
        text = f'[script]\ncommand = ["true"]\n[script.{key}]\npattern = "(?:x)"\n'
        (tmp_path / "a.toml").write_text(text)
        result = tputui("--runs-dir", tmp_path / "runs", "run", "a.toml", cwd=tmp_path)
        assert result.code == 2
        sentence = one_sentence(result)
        assert f"script.{key}.pattern" in sentence
        assert reason in sentence
    assert not (tmp_path / "runs").exists()


LONG = """
with open("metrics.csv", "w") as file:
    file.write("step,loss,acc\\n")
    for first in range(1, 1_000_001, 20_000):
        file.write("".join(f"{step},0.5,0.25\\n" for step in range(first, first + 20_000)))
"""


def test_sigterm_after_the_end_of_a_command_stops_the_reading_of_its_long_log(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LONG)
    words = ("--runs-dir", tmp_path / "runs", "run", "--detach", "--", sys.executable, "train.py")
    assert tputui(*words, cwd=tmp_path).code == 0
    run_dir = only_run(tmp_path)
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.WorkerExited), "the end of the command")

    supervisor = events_in(run_dir, "supervisor-0", ev.JournalOpened)[0].pid
    os.kill(supervisor, signal.SIGTERM)
    wait_for(lambda: not is_running(supervisor), "the end of the supervisor")

    (ended,) = events_in(run_dir, "supervisor-0", ev.RunEnded)
    (warning,) = events_in(run_dir, "logs-0", ev.WarningRaised)
    assert (ended.outcome, ended.exit_code) == ("done", 0)
    assert "because a stop was requested after the command had ended" in warning.text
    assert sum(event.n for event in events_in(run_dir, "logs-0", ev.ValuesLogged)) < 2_000_000


RANKS = """
import os, subprocess, sys, time
if "RANK" not in os.environ:
    words, env = [sys.executable, "train.py", *sys.argv[1:]], {**os.environ, "WORLD_SIZE": "3"}
    ranks = [subprocess.Popen(words, env={**env, "RANK": str(rank)}) for rank in range(3)]
    sys.exit(max(rank.wait() for rank in ranks))
rank = int(os.environ["RANK"])
prefix = f"rank {rank}: " if sys.argv[1:] else ""
# One that begins seconds later is none of the cores.
open(f"ready-{rank}", "w").close()
while sum(name.startswith("ready-") for name in os.listdir()) < 3:
    time.sleep(0.01)
# One after the other, so that the first lines are mostly read without those of the others.
while rank and not os.path.exists(f"began-{rank - 1}"):
    time.sleep(0.01)
for step in range(1, 31):
    # In one write: a line that another rank interrupts is none.
    sys.stdout.write(f"{prefix}step {step} loss {rank}.5\\n")
    sys.stdout.flush()
    if step == 4:
        open(f"began-{rank}", "w").close()
    time.sleep(0.05)
"""


def test_ranks_that_print_their_rank_are_cores_and_the_others_are_one_series_with_a_warning(tmp_path: Path) -> None:
    for name in ("named", "mixed"):
        (tmp_path / name).mkdir()
    mixed = run_script(tmp_path / "mixed", RANKS)
    (tmp_path / "named" / "train.py").write_text(RANKS)
    words = ("run", "--no-ui", "--", sys.executable, "train.py", "named")
    assert tputui("--runs-dir", tmp_path / "named" / "runs", *words, cwd=tmp_path / "named").code == 0
    named = sessions.load(only_run(tmp_path / "named"))

    assert (mixed.steps, len(mixed.cores)) == (30, 1)
    assert [text for text in mixed.warnings if "3 ranks print metrics without their rank" in text]
    assert [core.loss for core in named.cores] == [0.5, 1.5, 2.5]
    assert named.warnings == []
    # No step is the mean of fewer cores.
    assert all(event.cores == 3 for event in events_in(only_run(tmp_path / "named"), "logs-0", ev.StepsRecorded))
