"""Checkpoints on disks that corrupt data, are full, or fail in the middle of a save."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.checkpoint import checkpoint_files, checkpoint_store, continued
from engine.checkpoint.checkpoint_store import CheckpointStore, SaveFailed
from engine.errors import Refused
from tests import forked
from tests.another_user import another_user, needs_root
from tests.deadline import DEADLINE_S
from tests.engine.test_checkpoint import at_step, names, planned
from tests.engine.workers import HERE, LINE, Run, make
from tputui.telemetry import events as ev
from tputui.telemetry import requests
from tputui.telemetry.reporter import Reporter

KILLS = 8


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    (tmp_path / "checkpoints").mkdir()
    return CheckpointStore(tmp_path, planned())


def flip(path: Path, place: int) -> None:
    """Flips one bit of a file in place, which damages it under all its names."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def broken_fsync(spoil: object) -> object:
    """The system call, with a fault in the checkpoint file before it."""
    real = os.fsync

    def fsync(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.name.startswith(".step-"):
            assert callable(spoil)
            spoil(path)
        real(fd)

    return fsync


def test_digest_list_is_readable_by_sha256sum(store: CheckpointStore, tmp_path: Path) -> None:
    for step in range(1, 6):
        saved = store.save(at_step(step), periodic=True, best=step == 2)
    command = ["sha256sum", "--check", "--strict", checkpoint_files.DIGESTS_NAME]
    done = subprocess.run(command, cwd=tmp_path / "checkpoints", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == names(tmp_path)
    assert saved.sha256 == checkpoint_files.digest_of(tmp_path / saved.path)


def test_read_back_mismatch_rejects_the_checkpoint(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(at_step(1), periodic=True, best=True)
    monkeypatch.setattr(os, "fsync", broken_fsync(lambda path: flip(path, path.stat().st_size // 2)))
    with pytest.raises(SaveFailed, match="the disk returned other bytes than were written"):
        store.save(at_step(2), periodic=True, best=True)
    assert names(tmp_path) == {"step-00000001.pt", "last.pt", "best.pt"}
    assert checkpoint_store.load(tmp_path / "checkpoints" / "last.pt", planned()).position.step == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_late_disk_error_is_reported_with_reason(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(code, os.strerror(code))

    store.save(at_step(1), periodic=True, best=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken_fsync(refuse))
        with pytest.raises(SaveFailed, match=os.strerror(code)):
            store.save(at_step(2), periodic=True, best=True)
    assert names(tmp_path) == {"step-00000001.pt", "last.pt", "best.pt"}
    store.save(at_step(3), periodic=True, best=False)
    assert checkpoint_store.load(tmp_path / "checkpoints" / "last.pt", planned()).position.step == 3
    assert checkpoint_store.load(tmp_path / "checkpoints" / "best.pt", planned()).position.step == 1


def test_listing_error_after_save_is_harmless(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: object) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        saved = store.save(at_step(1), periodic=True, best=True)
    assert checkpoint_store.load(tmp_path / saved.path, planned()).position.step == 1
    store.save(at_step(2), periodic=True, best=False)
    assert checkpoint_store.load(tmp_path / "checkpoints" / "last.pt", planned()).position.step == 2


@pytest.mark.parametrize("name", ["last.pt", "step-00000002.pt"])
def test_changed_bytes_are_rejected_naming_an_intact_one(store: CheckpointStore, tmp_path: Path, name: str) -> None:
    for step in (1, 2):
        store.save(at_step(step), periodic=True, best=step == 1)
    folder = tmp_path / "checkpoints"
    size = (folder / "last.pt").stat().st_size
    for place in range(0, size, size // 16):
        flip(folder / "last.pt", place)
        with pytest.raises(Refused) as refused:
            checkpoint_store.load(folder / name, planned())
        (problem,) = refused.value.problems
        assert problem.sentence == (
            f"resume: {folder / name}: its bytes changed since it was saved, according to its sha256 in SHA256SUMS; "
            f"{folder}/step-00000001.pt is intact: use that one instead"
        )
        flip(folder / "last.pt", place)
    assert checkpoint_store.load(folder / name, planned()).position.step == 2
    flip(folder / "best.pt", size // 2)
    flip(folder / "last.pt", size // 2)
    with pytest.raises(Refused, match="no intact checkpoint is beside it"):
        checkpoint_store.load(folder / name, planned())


def test_checkpoint_replaced_during_read_is_not_damaged(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, planned("checkpoint.keep=1"))
    store.save(at_step(1), periodic=True, best=True)
    best, read, later = tmp_path / "checkpoints" / "best.pt", checkpoint_files.read_digests, iter((2, 3))

    def read_late(folder: Path) -> set[checkpoint_files.FileDigest]:
        for step in later:
            store.save(at_step(step), periodic=True, best=True)
        return read(folder)

    monkeypatch.setattr(checkpoint_files, "read_digests", read_late)
    assert checkpoint_files.verified_digest(best) == checkpoint_files.digest_of(best)
    assert checkpoint_store.load(best, planned()).position.step == 3


def test_damaged_best_checkpoint_is_not_taken_over(store: CheckpointStore, tmp_path: Path) -> None:
    saved = store.save(at_step(1), periodic=True, best=True)
    content = torch.load(tmp_path / saved.path, weights_only=True)
    content["learner"]["model"]["w"] += 1
    torch.save(content, tmp_path / "checkpoints" / "best.pt")
    new = tmp_path / "new"
    (new / "checkpoints").mkdir(parents=True)
    with pytest.raises(SaveFailed, match="its bytes changed since it was saved"):
        CheckpointStore(new, planned()).adopt_best(at_step(2), tmp_path / saved.path)


def test_checkpoint_without_digest_is_read(store: CheckpointStore, tmp_path: Path) -> None:
    saved = store.save(at_step(1), periodic=True, best=True)
    (tmp_path / "checkpoints" / checkpoint_files.DIGESTS_NAME).unlink()
    assert checkpoint_store.load(tmp_path / saved.path, planned()).position.step == 1


def test_non_finite_weights_replace_no_checkpoint(store: CheckpointStore, tmp_path: Path) -> None:
    for step in (1, 2):
        store.save(at_step(step), periodic=True, best=step == 1)
    before = names(tmp_path)
    for step in (3, 4, 5):
        broken = at_step(step)
        broken.training_state["model"]["w"][1] = float("nan")
        saved = store.save(broken, periodic=True, best=True)
        assert (saved.path, saved.unfit, saved.dropped) == ("checkpoints/non-finite.pt", "w", ())
    assert names(tmp_path) == before | {"non-finite.pt"}
    folder = tmp_path / "checkpoints"
    steps = {name: checkpoint_store.load(folder / name, planned()).position.step for name in sorted(names(tmp_path))}
    assert (steps["last.pt"], steps["best.pt"], steps["non-finite.pt"]) == (2, 1, 5)


def test_kill_during_save_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    done = forked.run("tests.engine.killed", str(tmp_path), str(KILLS), timeout=DEADLINE_S, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stderr
    saves, halves = (int(word) for word in done.stdout.replace(",", "").split() if word.isdecimal())
    assert saves >= 4 * KILLS
    assert halves > 0, "some kills fall into a save"


def test_temporary_file_of_a_live_run_is_not_removed(tmp_path: Path) -> None:
    run_dir = make(tmp_path, "living").dir
    half = run_dir / "checkpoints" / ".step-00000001.pt.1.tmp"
    half.touch()
    reporter = Reporter(run_dir, "worker")
    assert reporter.flush()
    continued.remove_partial_writes(run_dir / "checkpoints" / "last.pt")
    assert reporter.close()
    assert half.exists()


@needs_root
def test_checkpoint_in_unlistable_folder_can_be_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "disk" / "mine"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    with another_user(folder):
        with pytest.raises(PermissionError):
            os.listdir(folder.parent)
        continued.remove_partial_writes(folder / "last.pt")


def fill(path: Path) -> None:
    """Fills the disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 12)):
            pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A run directory whose checkpoints are on a file system of 256 KiB."""
    folder = make(tmp_path, "full", ["epochs=1000000", "checkpoint.every_epochs=1000000"], text=LINE).dir
    disk = folder / "checkpoints"
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.xla
def test_full_disk_rejects_request_and_next_one_succeeds(small_disk: Path) -> None:
    run, disk = Run(small_disk), small_disk / "checkpoints"
    try:
        run.start()
        run.wait_for(ev.MetersReported)
        requests.submit(run.dir, "checkpoint", by="test", now=time.time())
        saved = run.wait_for(ev.RequestApplied)
        fill(disk / "filler")
        requests.submit(run.dir, "checkpoint", by="test", now=time.time())
        refused = run.wait_for(ev.RequestRefused)
        assert "No space left on device" in refused.why
        assert "could not be written" in refused.why
        assert checkpoint_files.verified_digest(disk / "last.pt")
        assert torch.load(disk / "last.pt", weights_only=True)["position"]["step"] >= saved.step
        assert not list(disk.glob(".*"))
        (disk / "filler").unlink()
        requests.submit(run.dir, "stop", by="test", now=time.time())
        assert run.finish() == 4, run.log.read_text()
        applied = run.all(ev.RequestApplied)
    finally:
        run.stop_if_alive()
    assert [event.kind for event in applied] == ["checkpoint", "stop"]
    assert checkpoint_files.verified_digest(disk / "last.pt")


@pytest.mark.xla
@pytest.mark.slow
def test_restart_from_a_damaged_checkpoint_names_files_that_the_user_can_find(tmp_path: Path) -> None:
    run = make(tmp_path, "run", ["checkpoint.keep=2"], text=LINE, cwd=HERE)
    run.start()
    assert run.finish() == 0, run.log.read_text()
    last = run.dir / "checkpoints" / "last.pt"
    flip(last, last.stat().st_size // 2)
    run.start({"TORCHELASTIC_RESTART_COUNT": "1"})
    assert run.finish() == 2
    message = run.all(ev.FailureRaised)[-1].message
    assert f"resume: {last}: its bytes changed" in message
    intact = sorted(path for path in last.parent.glob("step-*.pt") if not path.samefile(last))[-1]
    assert f"{intact} is intact: use that one instead" in message
