"""Deleting runs: only what certainly is a run that is over, and nothing outside its directory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tputui.session import deletion, session
from tputui.session.deletion import CannotDelete
from tputui.telemetry import events as ev
from tputui.telemetry import rundir


def delete(run_dir: Path) -> deletion.RunSize:
    """Deletes a run as the command and the screen do."""
    size = deletion.examine(run_dir)
    deletion.delete(run_dir)
    return size


def test_run_is_deleted_and_what_its_links_lead_to_is_not(tmp_path: Path) -> None:
    run_dir, outside = recorded.write_run(tmp_path / "runs"), tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    (run_dir / "link").symlink_to(outside)
    (run_dir / "checkpoints" / "last.pt").symlink_to(outside / "kept.txt")
    size = delete(run_dir)
    assert size.num_files >= 4
    assert size.num_bytes > 1_000
    assert list((tmp_path / "runs").iterdir()) == []
    assert (outside / "kept.txt").read_text() == "kept"


def test_size_counts_no_holes(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    before = deletion.examine(run_dir)
    with (run_dir / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    after = deletion.examine(run_dir)
    assert after.num_files == before.num_files + 1
    assert after.num_bytes - before.num_bytes < 1 << 20


def living_run(parent: Path, *, ended: bool) -> tuple[Path, subprocess.Popen[bytes]]:
    """A run with a living process: one that has ended, or one without an end event."""
    run_dir = recorded.write_run(parent) if ended else rundir.create(parent, recorded.manifest())
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    me = rundir.this_process()
    head = recorded.opened(recorded.T0, "rank", host_index=1)
    values = {"host_id": me.host_id, "pid": child.pid, "pid_started": rundir.start_ticks(child.pid)}
    recorded.write_journal(run_dir / "rank-1.jsonl", [msgspec.structs.replace(head, **values)])
    return run_dir, child


def test_run_with_a_living_process_is_refused(tmp_path: Path) -> None:
    run_dir, child = living_run(tmp_path, ended=True)
    try:
        for step in (deletion.examine, deletion.delete):
            with pytest.raises(CannotDelete, match=f"has a process that has not exited yet: rank-1, pid {child.pid}"):
                step(run_dir)
        assert (run_dir / "run.json").exists()
    finally:
        child.kill()
        child.wait()
    delete(run_dir)
    assert not run_dir.exists()


def test_running_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir, child = living_run(tmp_path, ended=False)
    try:
        with pytest.raises(CannotDelete, match=r"is still (stalled|running|starting); stop it first"):
            delete(run_dir)
    finally:
        child.kill()
        child.wait()


def test_link_to_a_run_is_refused(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path / "elsewhere")
    link = tmp_path / "link"
    link.symlink_to(run_dir)
    with pytest.raises(CannotDelete, match="symbolic link"):
        delete(link)
    assert (run_dir / "run.json").exists()


def test_folder_that_only_looks_like_a_run_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "data.jsonl").write_text('{"text": "mine"}\n')
    assert not rundir.is_run(project), "a log of another program"
    (project / "worker-0.jsonl").write_text('{"text": "mine"}\n')
    assert rundir.is_run(project)
    with pytest.raises(CannotDelete, match="may not be a run"):
        delete(project)
    assert (project / "data.jsonl").exists()


def test_damaged_run_can_be_deleted(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "run.json").write_bytes(b"{")
    delete(run_dir)
    assert not run_dir.exists()


def test_folder_with_other_runs_or_the_current_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = recorded.write_run(tmp_path)
    recorded.write_run(outer / "runs", run="inner")
    with pytest.raises(CannotDelete, match="contains another run"):
        delete(outer)
    monkeypatch.chdir(outer / "runs" / "inner")
    with pytest.raises(CannotDelete, match="contains the current directory"):
        delete(Path("."))
    assert (outer / "runs" / "inner" / "run.json").exists()


def test_folder_with_a_run_without_manifest_is_refused(tmp_path: Path) -> None:
    outer = recorded.write_run(tmp_path)
    inner = recorded.write_run(outer, run="inner")
    (inner / "run.json").unlink()
    with pytest.raises(CannotDelete, match="contains another run"):
        delete(outer)
    assert (inner / "worker-0.jsonl").exists()


def test_link_to_a_missing_journal_does_not_keep_a_run(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "old.jsonl").symlink_to(tmp_path / "nowhere")
    delete(run_dir)
    assert not run_dir.exists()


def test_run_that_trains_on_another_host_is_refused_though_one_host_failed(tmp_path: Path) -> None:
    run_dir, now = rundir.create(tmp_path, recorded.manifest()), time.time()
    beat = ev.HeartbeatSent(t=now - 1, phase="executing", phase_s=1.0, step=3, epoch=1)
    heads = [
        msgspec.structs.replace(
            recorded.opened(now - 60, role, host_index=index), host=f"far{index}", host_id=f"far{index}"
        )
        for role, index in (("worker", 0), ("supervisor", 1))
    ]
    recorded.write_journal(run_dir / "worker-0.jsonl", [heads[0], beat])
    end = ev.RunEnded(t=now - 2, outcome="failed", exit_code=3, reason="worker killed")
    recorded.write_journal(run_dir / "supervisor-1.jsonl", [heads[1], end])
    with pytest.raises(CannotDelete, match="has processes on other hosts that may still run: worker-0"):
        delete(run_dir)
    assert (run_dir / "worker-0.jsonl").exists()


def far_head(t: float, role: str, index: int) -> ev.JournalOpened:
    return msgspec.structs.replace(
        recorded.opened(t, role, host_index=index), host=f"far{index}", host_id=f"far{index}"
    )


def test_process_of_another_host_that_starts_while_the_user_is_asked_is_refused(tmp_path: Path) -> None:
    run_dir, now = recorded.write_run(tmp_path), time.time()
    deletion.examine(run_dir)
    beat = ev.HeartbeatSent(t=now, phase="executing", phase_s=1.0, step=3, epoch=1)
    recorded.write_journal(run_dir / "rank-1.jsonl", [far_head(now - 1, "rank", 1), beat])
    with pytest.raises(CannotDelete, match="has processes on other hosts that may still run: rank-1"):
        deletion.delete(run_dir)
    assert (run_dir / "worker-0.jsonl").exists()


def test_process_of_a_host_whose_clock_is_behind_is_refused_though_the_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "WATCH_S", 0.5)
    run_dir, behind = rundir.create(tmp_path, recorded.manifest()), time.time() - 100
    end = ev.RunEnded(t=behind + 90, outcome="failed", exit_code=3, reason="worker killed")
    recorded.write_journal(run_dir / "supervisor-1.jsonl", [far_head(behind, "supervisor", 1), end])
    beats = [ev.HeartbeatSent(t=behind + i, phase="executing", phase_s=1.0, step=3, epoch=1) for i in (1, 2)]
    journal, content = run_dir / "worker-0.jsonl", tmp_path / "content"
    recorded.write_journal(content, [far_head(behind, "worker", 0), *beats])
    recorded.write_journal(journal, [far_head(behind, "worker", 0), beats[0]])

    class Pause:
        """The worker writes while it is watched."""

        def wait(self, _: float) -> None:
            journal.write_bytes(content.read_bytes())

    monkeypatch.setattr(deletion, "Event", Pause)
    with pytest.raises(CannotDelete, match="has processes on other hosts that may still run: worker-0"):
        deletion.examine(run_dir)


def test_process_with_a_late_clock_that_starts_while_the_user_is_asked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "WATCH_S", 0.5)
    run_dir, behind = recorded.write_run(tmp_path), time.time() - 100
    deletion.examine(run_dir)
    beats = [ev.HeartbeatSent(t=behind + i, phase="executing", phase_s=1.0, step=3, epoch=1) for i in (1, 2)]
    journal, content = run_dir / "rank-1.jsonl", tmp_path / "content"
    recorded.write_journal(content, [far_head(behind, "rank", 1), *beats])
    recorded.write_journal(journal, [far_head(behind, "rank", 1), beats[0]])

    class Pause:
        """The rank writes while it is watched."""

        def wait(self, _: float) -> None:
            journal.write_bytes(content.read_bytes())

    monkeypatch.setattr(deletion, "Event", Pause)
    with pytest.raises(CannotDelete, match="has processes on other hosts that may still run: rank-1"):
        deletion.delete(run_dir)
    assert (run_dir / "worker-0.jsonl").exists()


def test_missing_run_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(CannotDelete, match="is no longer there"):
        delete(tmp_path / "gone")


def test_part_that_cannot_be_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = recorded.write_run(tmp_path)

    def full(path: Path) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr("shutil.rmtree", full)
    with pytest.raises(
        CannotDelete, match=r"deleted in part: Input/output error; the rest is in .*\.digits-1\.deleted"
    ):
        delete(run_dir)
    assert rundir.listing(tmp_path) == []


def test_ended_run_of_a_script_that_goes_on_can_be_deleted(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest())
    me = rundir.this_process()
    head = recorded.opened(recorded.T0, "worker")
    values = {"host_id": me.host_id, "pid": me.pid, "pid_started": me.pid_started}
    end = ev.TrainingEnded(t=recorded.T0 + 1, outcome="done", step=1, reason="1 epoch trained")
    recorded.write_journal(run_dir / "worker-0.jsonl", [msgspec.structs.replace(head, **values), end])
    delete(run_dir)
    assert not run_dir.exists()


def test_run_of_another_host_that_still_writes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock is behind, so that its events look old."""
    monkeypatch.setattr(session, "WATCH_S", 0.5)
    run_dir = recorded.write_run(tmp_path, ended=False)
    journal = run_dir / "worker-0.jsonl"
    content = journal.read_bytes()
    lines = content.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-3]))

    class Pause:
        """The run writes while it is watched."""

        def wait(self, _: float) -> None:
            journal.write_bytes(content)

    with monkeypatch.context() as patched:
        patched.setattr(deletion, "Event", Pause)
        with pytest.raises(CannotDelete, match=r"is still (running|stalled); stop it first"):
            deletion.examine(run_dir)
    deletion.examine(run_dir)
