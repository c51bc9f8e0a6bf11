"""Logs of other programs become runs: exact, at their own times, and read on where an earlier reader stopped."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.supervise.harness import wait_for
from tputui.cli.main import main
from tputui.log_import import place
from tputui.log_import.opening import OpenedLog
from tputui.logs.values import UnknownLog
from tputui.session import session
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot

WITHIN_S = 240.0
START = 1_700_000_000.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TPUTUI_RUNS", str(tmp_path / "runs"))
    return tmp_path / "cache" / "tputui" / "imports"


def read_whole(log: Path) -> Path:
    """Imports a log; returns its run directory."""
    with OpenedLog(log) as opened:
        assert opened.wait(WITHIN_S)
        return opened.run_dir


def seen_within(follower: Session, holds: Any) -> Snapshot:
    """Polls until a snapshot has a property."""
    for _ in range(int(WITHIN_S / 0.05)):
        follower.poll(0.05)
        snapshot = follower.snapshot()
        if holds(snapshot):
            return snapshot
        subprocess.run(["sleep", "0.05"], check=True)
    raise AssertionError(f"not within {WITHIN_S} s: {snapshot.condition}, step {snapshot.steps}")


def exported(log: Path, folder: Path) -> list[dict[str, str]]:
    """The rows of the metrics table of an export."""
    assert main(["export", str(log), "--to", "csv", "--out", str(folder)]) == 0
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, steps: range, *, mode: str = "w", seed: int = 7) -> None:
    numbers = random.Random(seed)
    with path.open(mode) as file:
        if mode == "w":
            file.write("step,loss,acc,timestamp\n")
        for step in steps:
            file.write(f"{step},{numbers.uniform(0, 9)!r},{numbers.random()!r},{START + 10 * step}\n")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of TensorBoard's own writer with two runs."""
    folder = tmp_path_factory.mktemp("board")
    code = f"""
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto import event_pb2, summary_pb2
import random
numbers = random.Random(1)
for name, every in (("train", 1), ("valid", 25)):
    writer = EventFileWriter({str(folder)!r} + "/" + name)
    for step in range(1, 201, every):
        value = summary_pb2.Summary.Value(tag="loss", simple_value=numbers.uniform(0, 1e-3))
        summary = summary_pb2.Summary(value=[value])
        writer.add_event(event_pb2.Event(wall_time={START} + step, step=step, summary=summary))
    writer.close()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
    return folder


def test_tensorboard_values_are_exact_through_import_and_export(logdir: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    rows = exported(logdir, tmp_path / "out")
    for split in ("train", "valid"):
        events = EventAccumulator(str(logdir / split), size_guidance={"scalars": 0})
        events.Reload()
        expected = [(event.step, event.value, event.wall_time) for event in events.Scalars("loss")]
        found = [
            (int(row["step"]), float(row["value"]), float(row["t"]))
            for row in rows
            if (row["name"], row["split"]) == ("loss", split) and row["kind"] != "epoch"
        ]
        assert found == expected
        assert len(found) == (200 if split == "train" else 8)


def test_looking_back_shows_both_runs_of_a_logdir_at_their_own_times(logdir: Path) -> None:
    run_dir = read_whole(logdir)
    assert session.extent(run_dir)[:2] == (START + 1, START + 200)
    early = session.load_at(run_dir, START + 100.5)
    newest = {(view.name, view.split): view.step for view in early.logged}
    # Slices last a second at first, so the newest value may be that old.
    assert 98 <= newest["loss", "train"] <= 100
    assert newest["loss", "valid"] == 76
    assert early.steps == newest["loss", "train"]
    assert early.condition == "running"
    whole = session.load(run_dir)
    assert (whole.steps, whole.condition, whole.condition_reason) == (200, "done", "log read to its end")


def test_csv_values_have_every_digit_of_the_text(tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    write_csv(log, range(1, 301))
    rows = exported(log, tmp_path / "out")
    with log.open() as file:
        text = list(csv.DictReader(file))
    for name in ("loss", "acc"):
        found = [(row["step"], float(row["value"]), float(row["t"])) for row in rows if row["name"] == name]
        assert found == [(row["step"], float(row[name]), float(row["timestamp"])) for row in text]


def test_grown_log_is_read_on_and_a_replaced_one_anew(tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    write_csv(log, range(1, 101))
    run_dir = read_whole(log)
    journal = run_dir / "logs-0.jsonl"
    first = journal.read_bytes()
    assert read_whole(log) == run_dir
    assert journal.read_bytes() == first, "an unchanged log is not read again"

    write_csv(log, range(101, 151), mode="a")
    assert read_whole(log) == run_dir
    assert journal.read_bytes().startswith(first), "what was read stays"
    snapshot = session.load(run_dir)
    assert (snapshot.steps, snapshot.condition) == (150, "done")
    assert [view.num_values for view in snapshot.logged] == [150, 150]
    assert not snapshot.damage.regions

    write_csv(log, range(1, 31), seed=8)
    read_whole(log)
    snapshot = session.load(run_dir)
    assert snapshot.steps == 30
    assert [view.num_values for view in snapshot.logged] == [30, 30]


def test_reader_that_was_killed_leaves_a_run_that_is_completed_later(tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    write_csv(log, range(1, 51))
    with OpenedLog(log, follow=True) as opened:
        run_dir = opened.run_dir
        follower = Session.live(run_dir)
        seen_within(follower, lambda snapshot: snapshot.steps == 50)
        follower.close()
        state = place.read_state(run_dir)
        opened._process.kill()
    assert state is not None
    with (run_dir / "logs-0.jsonl").open("ab") as file:
        file.write(b'{"half a line')
    snapshot = session.load(run_dir)
    assert (snapshot.condition, snapshot.steps) == ("lost", 50)
    assert "interrupted" in snapshot.condition_reason
    read_whole(log)
    snapshot = session.load(run_dir)
    assert (snapshot.condition, snapshot.steps) == ("done", 50)
    assert not snapshot.damage.regions
    assert [view.num_values for view in snapshot.logged] == [50, 50]


def test_two_viewers_follow_one_growing_log(tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    write_csv(log, range(1, 11))
    with OpenedLog(log, follow=True) as first:
        follower = Session.live(first.run_dir)
        snapshot = seen_within(follower, lambda snapshot: snapshot.steps == 10)
        assert (snapshot.condition, snapshot.now) == ("running", START + 100), "the log ended long ago"
        with OpenedLog(log, follow=True) as second:
            assert second.run_dir == first.run_dir
            write_csv(log, range(11, 21), mode="a")
            seen_within(follower, lambda snapshot: snapshot.steps == 20)
            first.close()
            write_csv(log, range(21, 31), mode="a")
            snapshot = seen_within(follower, lambda snapshot: snapshot.steps == 30)
            assert snapshot.condition == "running", "the second viewer's process reads on"
        seen_within(follower, lambda snapshot: snapshot.condition == "done")
        assert [view.num_values for view in follower.snapshot().logged] == [30, 30]
        assert not follower.snapshot().damage.regions
        follower.close()


def test_damage_is_reported_and_the_rest_is_read(
    logdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "board"
    shutil.copytree(logdir / "train", copy)
    (events,) = copy.iterdir()
    content = bytearray(events.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 0xFF
    events.write_bytes(content[:-5])
    events.chmod(0o444)
    copy.chmod(0o555)
    try:
        assert main(["show", str(copy)]) == 0
    finally:
        copy.chmod(0o755)
    page = capsys.readouterr().out
    assert "done  (log read to its end)" in page
    assert "warning" in page
    assert f"{events}: the last record is incomplete" in page
    assert f"{events}: the record at byte" in page
    num_values = session.load(place.run_dir_of(copy, os.environ)).logged[0].num_values
    assert 190 <= num_values <= 198


def test_tags_of_a_stranger_are_inert_and_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "evil\x1b[2J.jsonl"
    rows = [{"step": 1, "\x1b[31mloss\x07": 0.5}, {"step": 2, **{f"tag{number}": 1.0 for number in range(6_000)}}]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["show", str(log)]) == 0
    assert main(["replay", str(log), "--no-ui"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "too many metrics" in printed
    run_dir = place.run_dir_of(log, os.environ)
    assert run_dir.name.isprintable()
    assert run_dir.stat().st_mode & 0o777 == 0o700
    assert read_whole(log) == run_dir


def test_two_logs_are_compared(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(logdir / "train"), str(logdir / "valid"), "--once"]) == 0
    page = capsys.readouterr().out
    assert page.count("log read to its end") == 2
    assert "200" in page


def test_unknown_formats_are_one_sentence(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n")
    assert main(["replay", str(tmp_path / "notes.txt")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "unknown format" in said
    assert not list(cache.glob("notes*"))
    assert main(["attach", "--follow"]) == 2
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    write_csv(tmp_path / "m.csv", range(1, 3))
    with pytest.raises(UnknownLog, match="cannot be imported: Not a directory"):
        OpenedLog(tmp_path / "m.csv")


def test_log_without_times_is_shown_and_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "metrics.csv"
    log.write_text("step,loss\n1,0.5\n2,0.25\n")
    os.utime(log, (START, START))
    assert main(["wait", str(log), "--until", "loss < 0.3"]) == 0
    assert main(["show", str(log), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert (shown["state"], shown["steps"]) == ("done", 2)
    assert session.extent(place.run_dir_of(log, os.environ))[:2] == (START, START)


def test_logs_in_the_directory_of_the_runs_are_listed(
    logdir: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(logdir, runs / "board")
    write_csv(runs / "metrics.csv", range(1, 3))
    (runs / "notes.txt").write_text("text")
    assert main(["runs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert lines.keys() == {"board", "metrics.csv"}
    assert " log " in lines["board"]
    assert "TensorBoard, 2 files" in lines["board"]
    assert "CSV, 1 file" in lines["metrics.csv"]
    assert main(["runs", "--json"]) == 0
    assert [row["state"] for row in json.loads(capsys.readouterr().out)] == ["log", "log"]
    assert not cache.exists(), "listing imports nothing"


def test_logs_of_the_folders_of_the_user_are_listed_with_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('colour = 1\n[[sources]]\npath = "lab"\nname = "far"\n[[sources]]\npath = "gone"\n')
    monkeypatch.setenv("TPUTUI_CONFIG", str(config))
    log = tmp_path / "lab" / "one" / "metrics.csv"
    log.parent.mkdir(parents=True)
    write_csv(log, range(1, 31))
    assert main(["runs", "--json"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert (row["run"], row["state"], row["format"], row["step"]) == ("far/one", "log", "CSV", None)
    assert err.splitlines() == [
        f"tputui: {config}: colour: unknown key; the only key is [[sources]]",
        f"tputui: {config}: sources[2].path: {tmp_path / 'gone'}: no such folder",
    ]
    assert main(["show", row["dir"]]) == 0
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["step"] == 30
    assert row["loss"] is not None
    write_csv(log, range(31, 33), mode="a")
    assert main(["runs"]) == 0
    assert "changed since it was read" in capsys.readouterr().out
    for command in ("rm", "stop", "checkpoint"):
        for path in (log, log.parent):
            assert main([command, str(path)]) == 2
            assert f"{path}: this is a log of another program" in capsys.readouterr().err
        assert log.exists()


@pytest.mark.parametrize("num_rows", [100, 400_000])
def test_ctrl_c_leaves_a_followed_log_and_no_process_behind(tmp_path: Path, cache: Path, num_rows: int) -> None:
    log = tmp_path / "long.csv"
    log.write_text("step,loss\n" + "".join(f"{step},0.5\n" for step in range(1, num_rows + 1)))
    words = [sys.executable, "-P", "-m", "tputui", "attach", "--follow", "--no-ui", str(log)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as viewer:
        run_dir = place.run_dir_of(log, os.environ)
        # The journal of a long log is still being written.
        wait_for(lambda: place.read_state(run_dir), "the first values")
        (importer,) = psutil.Process(viewer.pid).children()
        viewer.send_signal(signal.SIGINT)
        _, err = viewer.communicate(timeout=WITHIN_S)
    assert viewer.returncode == 0
    assert err.splitlines()[-1] == "tputui: left; the log can be opened again"
    assert not importer.is_running()
    # The importer was not killed: it has written its end.
    assert session.load(run_dir).condition in ("done", "stopped")


def test_path_that_is_not_utf8_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"\xff.csv")
    write_csv(log, range(1, 3))
    with pytest.raises(UnknownLog, match="cannot be imported: its path is not UTF-8"):
        OpenedLog(log)
