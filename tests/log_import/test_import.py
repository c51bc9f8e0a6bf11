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

from tests.deadline import DEADLINE_S
from tests.logs.test_tfevents import EVENTS, HEAD
from tests.supervise.harness import wait_for
from tputui.cli.main import main
from tputui.log_import import place
from tputui.log_import.place import OpenedLog
from tputui.logs.rows import UnknownLog
from tputui.session import session
from tputui.session.session import Session
from tputui.state.snapshot import Snapshot

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
        assert opened.wait(DEADLINE_S)
        return opened.run_dir


def seen_within(follower: Session, holds: Any) -> Snapshot:
    """Polls until a snapshot has a property."""
    for _ in range(int(DEADLINE_S / 0.05)):
        follower.poll(0.05)
        snapshot = follower.snapshot()
        if holds(snapshot):
            return snapshot
        subprocess.run(["sleep", "0.05"], check=True)
    raise AssertionError(f"not within {DEADLINE_S} s: {snapshot.condition}, step {snapshot.steps}")


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


def test_losses_beyond_float32_and_wrapped_steps_are_shown_and_exported_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.csv"
    log.write_text("step,loss\n2147483646,1e308\n2147483647,-1e308\n-2147483648,3.5e38\n-2147483647,1e300\n")
    assert main(["show", str(log)]) == 0
    page = capsys.readouterr().out
    assert "train loss   1e+300  mean of 1 core in step -2,147,483,647  highest 1e+308 on core 0 " in page
    assert "core 0 in step 2,147,483,646" in page
    assert "core 0" in page
    assert "loss 1e+300  step -2,147,483,647" in page
    assert "non-finite" not in page
    assert main(["export", str(log), "--to", "csv", "--out", str(tmp_path / "out")]) == 0
    for name in ("metrics.csv", "steps.csv"):
        with (tmp_path / "out" / name).open() as file:
            assert [float(row["value"]) for row in csv.DictReader(file)] == [1e308, -1e308, 3.5e38, 1e300]
    capsys.readouterr()
    log.write_text("step,loss\n1,0.5\n2,inf\n")
    assert main(["show", str(log)]) == 0
    assert "train loss   inf  mean of 1 core in step 2" in capsys.readouterr().out


def test_unknown_times_of_epochs_are_a_dash_and_a_log_without_values_has_no_goodput(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{epoch},0.5,{30 - epoch}\n" for epoch in range(30))
    (tmp_path / "a.csv").write_text(f"epoch,loss,val_loss\n{rows}")
    (tmp_path / "b.csv").write_text("epoch,loss,val_loss\n")
    assert main(["show", str(tmp_path / "a.csv")]) == 0
    page = capsys.readouterr().out
    assert "epoch 30 best        -        -" in page
    assert "NaN" not in page
    assert main(["show", str(tmp_path / "b.csv")]) == 0
    assert "goodput" not in capsys.readouterr().out


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


@pytest.mark.parametrize("name", ["events.out.tfevents.1.h", "a.jsonl"])
def test_bytes_that_arrive_late_are_read_while_a_log_is_followed_and_when_it_is_opened_again(
    tmp_path: Path, name: str
) -> None:
    opened_again, followed = tmp_path / "again" / name, tmp_path / "followed" / name
    rows = [json.dumps({"step": step, "loss": step / 3, "timestamp": START + step}) + "\n" for step in range(1, 40)]
    content = HEAD + b"".join(EVENTS) if "tfevents" in name else "".join(rows).encode()
    late = content[:500] + bytes(600) + content[1100:]
    for path in (opened_again, followed):
        path.parent.mkdir()
        path.write_bytes(late)
    before = session.load(read_whole(opened_again))
    assert 0 < before.logged[0].num_values < 39
    assert any("damaged" in text or "zero bytes in a line" in text for text in before.warnings)
    times = opened_again.stat()
    opened_again.write_bytes(content)
    os.utime(opened_again, ns=(times.st_atime_ns, times.st_mtime_ns))
    whole = session.load(read_whole(opened_again))
    assert whole.logged[0].num_values == 39
    assert not whole.warnings
    with OpenedLog(followed, follow=True) as opened:
        follower = Session.live(opened.run_dir)
        num_before = before.logged[0].num_values
        seen_within(follower, lambda snapshot: snapshot.logged and snapshot.logged[0].num_values == num_before)
        with followed.open("r+b") as file:
            file.write(content)
        seen_within(follower, lambda snapshot: snapshot.logged[0].num_values == 39)
    seen_within(follower, lambda snapshot: snapshot.condition == "done")
    series = follower.snapshot().logged[0]
    assert (series.num_values, series.step, series.value) == (39, 39, whole.logged[0].value)
    assert follower.snapshot().steps == 39
    follower.close()


def test_equal_damage_is_one_warning_with_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text('{"step": 1, "loss": 0.5}\n' + "not an object\n" * 75 + '{"step": 2, "loss": 0.25}\n')
    assert main(["show", str(log)]) == 0
    page = capsys.readouterr().out
    assert page.count("not a JSON object") == 1
    assert f"{log}:2: not a JSON object (74 more like this)" in page


def test_tags_of_untrusted_logs_are_inert_and_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "evil\x1b[2J.jsonl"
    rows = [{"step": 1, "\x1b[31mloss\x07": 0.5}, {"step": 2, **{f"tag{number}": 1.0 for number in range(9_000)}}]
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


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_cache_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    write_csv(tmp_path / "log.csv", range(5))
    base = tmp_path / "home" / "cache"
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "tputui", "show", str(tmp_path / "log.csv")],
        env={**os.environ, "XDG_CACHE_HOME": str(base)}, umask=umask, capture_output=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    folders = [base.parent, base, base / "tputui", base / "tputui" / "imports"]
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o700"] * 4


def test_cache_that_others_can_change_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.csv"
    write_csv(log, range(5))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "tputui" / "imports"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    folder.parent.chmod(0o775)
    assert place.imported(log, os.environ) is None
    assert main(["show", str(log)]) == 0
    assert [oct(each.stat().st_mode & 0o777) for each in (folder.parent, folder)] == ["0o755", "0o755"]
    assert place.imported(log, os.environ) is not None
    folder.chmod(0o757)
    assert place.imported(log, os.environ) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_cache_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    write_csv(log, range(5))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tputui").mkdir(mode=0o755)
    os.chown(tmp_path / "tputui", 12_345, 12_345)
    assert main(["show", str(log)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line == (
        f"tputui: {log}: cannot be imported: other users can change the cache {tmp_path / 'tputui'}; "
        "set XDG_CACHE_HOME to a folder of yours"
    )


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ("relative", "you have no home directory for the cache"),
        ("/proc", "the cache /proc/.cache/tputui/imports cannot be created (No such file or directory)"),
    ],
)
def test_missing_cache_is_explained(tmp_path: Path, home: str, why: str) -> None:
    write_csv(tmp_path / "log.csv", range(5))
    env = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | {"HOME": home}
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "tputui", "show", str(tmp_path / "log.csv")],
        env=env, capture_output=True, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    sentence = f"{why}; set XDG_CACHE_HOME to a folder of yours"
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == f"tputui: {tmp_path / 'log.csv'}: cannot be imported: {sentence}\n"


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
    with pytest.raises(UnknownLog, match=r"cannot be created \(Not a directory\)"):
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
        _, err = viewer.communicate(timeout=DEADLINE_S)
    assert viewer.returncode == 0, err
    assert err.splitlines()[-1] == "tputui: left; the log can be opened again"
    assert not importer.is_running()
    # The importer was not killed: it has written its end.
    assert session.load(run_dir).condition in ("done", "stopped")


def test_path_that_is_not_utf8_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / os.fsdecode(b"\xff.csv")
    write_csv(log, range(1, 3))
    with pytest.raises(UnknownLog, match="cannot be imported: its path is not UTF-8"):
        OpenedLog(log)
