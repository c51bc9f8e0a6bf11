"""The run directory: created atomically, private to its owner, and the liveness of its processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tputui.telemetry import requests, rundir


def test_new_run_is_private_and_has_a_manifest(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    assert {stat.S_IMODE(path.stat().st_mode) for path in (run_dir, run_dir / "requests")} == {0o700}
    assert stat.S_IMODE((run_dir / "run.json").stat().st_mode) == 0o600
    assert rundir.read_manifest(run_dir) == recorded.manifest()


def test_existing_name_is_rejected_and_leaves_nothing(tmp_path: Path) -> None:
    rundir.create(tmp_path, recorded.manifest())
    with pytest.raises(FileExistsError):
        rundir.create(tmp_path, recorded.manifest())
    assert [path.name for path in tmp_path.iterdir()] == ["digits-1"]


def test_only_runs_are_listed_newest_first(tmp_path: Path) -> None:
    for name in ("20260101-a", "20260301-b", "20260201-c"):
        rundir.create(tmp_path, recorded.manifest(name))
    (tmp_path / "notes").mkdir()
    assert [path.name for path in rundir.listing(tmp_path)] == ["20260301-b", "20260201-c", "20260101-a"]
    assert rundir.listing(tmp_path / "nowhere") == []


def test_a_run_is_found_by_name_and_by_path_and_not_outside(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest())
    assert rundir.find("digits-1", tmp_path / "runs") == run_dir
    assert rundir.find(str(run_dir), tmp_path / "other") == run_dir
    with pytest.raises(rundir.RunNotFound, match="digits-2"):
        rundir.find("digits-2", tmp_path / "runs")


def test_a_directory_with_journals_of_an_observer_alone_is_a_run(tmp_path: Path) -> None:
    for name, content in (("seen/observer-0.jsonl", ""), ("log/metrics.jsonl", '{"loss": 1}')):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
    assert rundir.find("seen", tmp_path) == tmp_path / "seen"
    with pytest.raises(rundir.RunNotFound):
        rundir.find("log", tmp_path)


def test_unreadable_manifest_names_its_path(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(rundir.RunNotFound, match=r"run\.json"):
        rundir.read_manifest(tmp_path)


def test_this_process_is_alive_and_a_killed_one_is_not() -> None:
    assert rundir.is_alive(rundir.this_process()) is True
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    me = rundir.this_process()
    its = msgspec.structs.replace(me, pid=child.pid, pid_started=rundir.start_ticks(child.pid))
    assert rundir.is_alive(its) is True
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert rundir.is_alive(its) is False  # a zombie is not alive
    child.wait()
    assert rundir.is_alive(its) is False


def test_reused_pid_is_not_the_process() -> None:
    me = rundir.this_process()
    assert rundir.is_alive(msgspec.structs.replace(me, pid_started=me.pid_started - 1)) is False


def test_process_on_another_host_is_unknown() -> None:
    assert rundir.is_alive(msgspec.structs.replace(rundir.this_process(), host_id="elsewhere")) is None


def test_requests_are_handed_out_once_in_order(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest())
    inbox = requests.Inbox(run_dir)
    assert inbox.poll() == []
    first = requests.submit(run_dir, "checkpoint", by="test", now=10.0)
    second = requests.submit(run_dir, "stop", by="test", now=11.0)
    assert inbox.poll() == [first, second]
    assert inbox.poll() == []
    assert requests.read_all(run_dir) == [first, second]


def test_non_request_file_is_ignored(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest())
    (run_dir / "requests" / "0-x.json").write_text('{"kind": "format my disk"}')
    request = requests.submit(run_dir, "stop_now", by="test", now=11.0)
    assert requests.Inbox(run_dir).poll() == [request]


def test_an_atomic_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    rundir.write_atomically(path, b"old")
    with pytest.raises(TypeError):
        rundir.write_atomically(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_unreadable_requests_are_ignored(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest())
    (run_dir / "requests").rmdir()
    (run_dir / "requests").write_text("a file where a directory should be")
    assert requests.Inbox(run_dir).poll() == []
    assert requests.read_all(run_dir) == []


def test_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundir, "write_atomically", refuse)
    with pytest.raises(OSError, match="No space"):
        rundir.create(tmp_path, recorded.manifest())
    assert list(tmp_path.iterdir()) == []
