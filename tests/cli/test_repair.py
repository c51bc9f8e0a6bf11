"""`tputui repair`: a sound copy beside a damaged run, which itself stays as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.supervise.harness import Bench, wait_for
from tests.telemetry.hostile import forged
from tputui.cli.main import main
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry.codec import decode
from tputui.telemetry.compressed import seal
from tputui.telemetry.repair import repair_run

Capture = pytest.CaptureFixture[str]


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage(run_dir: Path) -> Path:
    """One flipped byte in the middle of the worker's journal, and its last line cut."""
    path = run_dir / "worker-0.jsonl"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x08
    path.write_bytes(content[:-7])
    return path


def printed(run_dir: Path, capsys: Capture, command: str = "check") -> dict[str, object]:
    capsys.readouterr()
    main([command, "--json", str(run_dir)])
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_copy_has_every_readable_event_run_is_unchanged(recorded_run: Path, capsys: Capture) -> None:
    lines = (recorded_run / "worker-0.jsonl").read_bytes().splitlines(keepends=True)
    path = damage(recorded_run)
    before = content_of(recorded_run)

    assert main(["repair", str(recorded_run)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith("digits-1-repaired: ")
    assert "1 event lost, and an unknown number in 1 further region" in out[-1]
    assert content_of(recorded_run) == before

    copy = recorded_run.with_name("digits-1-repaired")
    kept = (copy / path.name).read_bytes().splitlines(keepends=True)
    assert kept == [line for line in lines if line in kept]
    assert len(kept) == len(lines) - 2
    assert (copy / "supervisor-0.jsonl").read_bytes() == before["supervisor-0.jsonl"]
    assert (copy / "run.json").read_bytes() == before["run.json"]


def test_only_missing_events_of_the_copy_are_reported(recorded_run: Path, capsys: Capture) -> None:
    damage(recorded_run)
    regions = printed(recorded_run, capsys)["regions"]
    answer = printed(recorded_run, capsys, "repair")
    assert answer["regions"] == regions
    copy = Path(str(answer["copy"]))
    checked = printed(copy, capsys)["regions"]
    assert answer["missing"] == checked
    assert isinstance(checked, list)
    assert {region["reason"] for region in checked} == {"events are missing here", "the end of the journal is missing"}
    assert json.loads((copy / "repair.json").read_text())["regions"] == regions
    snapshot = session.load(copy)
    assert snapshot.damage.lost_records == 1


def test_newer_event_is_copied_byte_for_byte(recorded_run: Path) -> None:
    path = recorded_run / "worker-0.jsonl"
    lines = path.read_bytes().splitlines()
    journal_id = decode(lines[0]).journal_id
    line = forged(b'{"k":"LogWritten","t":1,"line":"a","colour":"red"', str(len(lines)).encode(), journal_id)
    with path.open("ab") as file:
        file.write(line + b"torn")
    assert main(["repair", str(recorded_run)]) == 0
    assert line in (recorded_run.with_name("digits-1-repaired") / path.name).read_bytes()


def test_a_manifest_is_rebuilt_from_the_supervisors_journal(recorded_run: Path, capsys: Capture) -> None:
    (recorded_run / "run.json").write_bytes(b"\0" * 400)
    assert main(["repair", str(recorded_run)]) == 0
    assert "run.json was rebuilt" in capsys.readouterr().out
    copy = recorded_run.with_name("digits-1-repaired")
    assert printed(copy, capsys)["regions"] == []
    snapshot = session.load(copy)
    assert (snapshot.run, snapshot.config, snapshot.troubles) == ("digits-1", recorded.CONFIG, [])


def test_manifest_is_rebuilt_for_any_start_time(tmp_path: Path, capsys: Capture) -> None:
    run_dir = tmp_path / "digits-1"
    run_dir.mkdir()
    started = ev.RunStarted(t=float("nan"), run="digits-1", config={}, argv=[], resumed_from=None)
    recorded.write_journal(run_dir / "supervisor-0.jsonl", [recorded.opened(recorded.T0, "supervisor"), started])
    assert main(["repair", str(run_dir)]) == 0
    assert "run.json was rebuilt" in capsys.readouterr().out
    assert printed(run_dir.with_name("digits-1-repaired"), capsys)["regions"] == []


def test_unrecoverable_manifest_is_reported_lost(recorded_run: Path, capsys: Capture) -> None:
    (recorded_run / "run.json").unlink()
    (recorded_run / "supervisor-0.jsonl").write_bytes(b"")
    assert main(["repair", str(recorded_run)]) == 0
    out = capsys.readouterr().out
    assert "run.json could not be rebuilt" in out
    assert "left out: supervisor-0.jsonl: no event of it can be read" in out
    assert session.load(recorded_run.with_name("digits-1-repaired")).steps == 66


def test_unreadable_run_is_not_copied(recorded_run: Path, capsys: Capture) -> None:
    for path in recorded_run.glob("*.json*"):
        path.write_bytes(b"garbage" * 100)
    assert main(["repair", str(recorded_run)]) == 1
    assert "nothing to copy" in capsys.readouterr().err
    assert [path.name for path in recorded_run.parent.iterdir()] == ["digits-1"]


def test_damaged_compressed_journal_keeps_intact_frames(tmp_path: Path, capsys: Capture) -> None:
    run_dir = recorded.write_run(tmp_path)
    plain = run_dir / "worker-0.jsonl"
    events = [decode(line) for line in plain.read_bytes().splitlines()]
    plain.unlink()
    rows = [recorded.losses(row) for row in range(100)]
    wide = [recorded.steps_recorded(2.0 + n, 100 * n + 1, rows) for n in range(250)]
    recorded.write_journal(plain, [events[0].event, *wide, *[numbered.event for numbered in events[1:]]])
    path = seal(plain)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    assert main(["repair", str(run_dir)]) == 0
    copy = run_dir.with_name("digits-1-repaired")
    regions = printed(copy, capsys)["regions"]
    assert isinstance(regions, list)
    assert [region["reason"] for region in regions] == ["events are missing here"]
    assert (copy / path.name).stat().st_size < path.stat().st_size
    assert session.load(copy).condition == "done"


def test_copy_has_other_files_but_none_from_outside(recorded_run: Path, capsys: Capture) -> None:
    damage(recorded_run)
    (recorded_run / "checkpoints" / "step-00000022.pt").write_bytes(b"weights")
    (recorded_run / "checkpoints" / ".step-00000044.pt.7.tmp").write_bytes(b"half")
    os.symlink("step-00000022.pt", recorded_run / "checkpoints" / "last.pt")
    (recorded_run / "pictures" / "epoch-1").mkdir(parents=True)
    (recorded_run / "pictures" / "epoch-1" / "0.png").write_bytes(b"png")
    (recorded_run / "worker-0.log").write_text("printed\n")
    os.symlink("/etc/passwd", recorded_run / "pictures" / "stolen.png")
    os.symlink("..", recorded_run / "up")
    os.symlink("circle", recorded_run / "circle")
    os.mkfifo(recorded_run / "pipe")
    assert main(["repair", str(recorded_run)]) == 0
    out = capsys.readouterr().out
    copy = recorded_run.with_name("digits-1-repaired")
    kept, whole = content_of(copy), content_of(recorded_run)
    for name in ("checkpoints/step-00000022.pt", "checkpoints/last.pt", "pictures/epoch-1/0.png", "worker-0.log"):
        assert kept[name] == whole[name]
    assert (copy / "checkpoints" / "last.pt").is_symlink()
    assert "checkpoints/.step-00000044.pt.7.tmp" not in kept
    for name in ("pictures/stolen.png", "up", "circle", "pipe"):
        assert f"left out: {name}: it is not a regular file of the run" in out
        assert not os.path.lexists(copy / name)
    (copy / "worker-0.log").write_text("changed")
    assert (recorded_run / "worker-0.log").read_text() == "printed\n"


def test_sparse_file_stays_sparse_in_the_copy(recorded_run: Path) -> None:
    damage(recorded_run)
    with (recorded_run / "worker-0.log").open("wb") as file:
        file.seek(1 << 40)
        file.write(b"end")
    assert main(["repair", str(recorded_run)]) == 0
    found = (recorded_run.with_name("digits-1-repaired") / "worker-0.log").stat()
    assert (found.st_size, found.st_blocks < 1_000) == ((1 << 40) + 3, True)


def test_intact_run_is_reported_and_not_copied(recorded_run: Path, capsys: Capture) -> None:
    assert main(["repair", str(recorded_run)]) == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert [path.name for path in recorded_run.parent.iterdir()] == ["digits-1"]


@pytest.mark.parametrize("there", ["directory", "file", "link"])
def test_nothing_is_overwritten(recorded_run: Path, capsys: Capture, there: str) -> None:
    damage(recorded_run)
    target = recorded_run.with_name("digits-1-repaired")
    if there == "directory":
        target.mkdir()
    elif there == "file":
        target.touch()
    else:
        target.symlink_to("nowhere")
    assert main(["repair", str(recorded_run)]) == 2
    assert "is not overwritten" in capsys.readouterr().err
    assert sorted(path.name for path in recorded_run.parent.iterdir()) == ["digits-1", "digits-1-repaired"]


def test_copy_is_written_to_given_path_never_into_the_run(recorded_run: Path, capsys: Capture) -> None:
    damage(recorded_run)
    assert main(["repair", str(recorded_run), "--to", str(recorded_run / "inside")]) == 2
    assert main(["repair", str(recorded_run), "--to", str(recorded_run / ".." / "digits-1")]) == 2
    assert main(["repair", str(recorded_run), "--to", str(recorded_run.parent / "no" / "such")]) == 2
    assert "the copy cannot be written" in capsys.readouterr().err
    assert main(["repair", str(recorded_run), "--to", str(recorded_run.parent / "sound")]) == 0
    assert sorted(path.name for path in recorded_run.parent.iterdir()) == ["digits-1", "sound"]


def test_a_full_disk_leaves_nothing_of_the_copy(recorded_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(recorded_run)
    real_write, room = os.write, 3_000

    def write_until_full(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        room -= (written := real_write(fd, data[:room]))
        return written

    with monkeypatch.context() as within:
        within.setattr(os, "write", write_until_full)
        with pytest.raises(OSError, match="No space"):
            repair_run(recorded_run, recorded_run.with_name("copy"), b"{}")
    assert [path.name for path in recorded_run.parent.iterdir()] == ["digits-1"]


def test_running_run_is_not_repaired(bench: Bench, capsys: Capture) -> None:
    watched = bench.supervise("reporter.flush()\n(run_dir / 'ready').touch()\nEvent().wait()")
    wait_for((watched.run_dir / "ready").exists, "the worker")
    assert main(["repair", str(watched.run_dir)]) == 2
    assert "still running" in capsys.readouterr().err


def test_journals_of_another_process_or_run_are_left_out_and_named(recorded_run: Path, capsys: Capture) -> None:
    worker = (recorded_run / "worker-0.jsonl").read_bytes()
    (recorded_run / "worker-1.jsonl").write_bytes(worker)
    head = msgspec.structs.replace(recorded.opened(recorded.T0, "rank", 1), run="digits-2")
    recorded.write_journal(recorded_run / "rank-1.jsonl", [head])
    assert main(["repair", str(recorded_run)]) == 0
    out = capsys.readouterr().out
    assert "left out: worker-1.jsonl: it is the journal of worker-0, not of worker-1" in out
    assert "left out: rank-1.jsonl: it is a journal of the run digits-2" in out
    copy = recorded_run.with_name("digits-1-repaired")
    assert sorted(path.name for path in copy.glob("*-*.jsonl")) == ["supervisor-0.jsonl", "worker-0.jsonl"]
    assert printed(copy, capsys)["regions"] == []
