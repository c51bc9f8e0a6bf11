"""`tputui check`: sound runs, and journals that are cut, flipped, empty or garbage."""

from __future__ import annotations

import json
import os
import time
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.supervise.harness import Bench, is_running, wait_for
from tputui import formatting as fmt
from tputui.cli.check import examine
from tputui.cli.main import main
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.codec import decode, encode
from tputui.telemetry.compressed import seal
from tputui.telemetry.journal import FOREIGN
from tputui.telemetry.merge import events_of, open_tail
from tputui.telemetry.reporter import Reporter


def _journal(run_dir: Path) -> Path:
    return run_dir / "worker-0.jsonl"


def test_intact_run_is_reported_as_intact(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    num_lines = sum(len(path.read_bytes().splitlines()) for path in recorded_run.glob("*.jsonl"))

    assert main(["check", str(recorded_run)]) == 0
    assert capsys.readouterr().out == f"digits-1: no damage: {num_lines} events in 2 journals\n"


def test_flipped_bytes_are_one_region_with_lost_events(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _journal(recorded_run).read_bytes().splitlines(keepends=True)
    start = sum(map(len, lines[:10]))
    end = start + len(lines[10]) + len(lines[11])
    damaged = bytearray(b"".join(lines))
    damaged[start + 20] ^= 0xFF
    damaged[end - 20] ^= 0xFF
    _journal(recorded_run).write_bytes(damaged)

    assert main(["check", str(recorded_run)]) == 1
    region, totals = capsys.readouterr().out.splitlines()
    assert region == f"worker-0.jsonl, bytes {start} to {end}: its checksum does not match (2 events lost)"
    assert totals.startswith("digits-1: 1 damaged region, 2 events lost; ")


def test_a_cut_journal_is_damaged(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = _journal(recorded_run).read_bytes()
    _journal(recorded_run).write_bytes(whole[:-5])

    assert main(["check", str(recorded_run)]) == 1
    assert "the last line is truncated" in capsys.readouterr().out


def test_an_empty_journal_is_damaged(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _journal(recorded_run).write_bytes(b"")

    assert main(["check", str(recorded_run)]) == 1
    assert "worker-0.jsonl: the end of the journal is missing" in capsys.readouterr().out


def test_an_empty_journal_of_a_supervisor_is_damaged(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recorded_run / "supervisor-0.jsonl").write_bytes(b"")

    assert main(["check", str(recorded_run)]) == 1
    assert "supervisor-0.jsonl: the end of the journal is missing" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rank-1.jsonl", "logs-0.jsonl", "supervisor-1.jsonl"])
def test_journal_of_a_process_killed_before_its_first_event_is_no_damage(
    recorded_run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (recorded_run / name).touch(mode=0o600)

    assert main(["check", str(recorded_run)]) == 0
    assert "no damage" in capsys.readouterr().out
    assert main(["show", str(recorded_run)]) == 0
    assert "damage" not in capsys.readouterr().out


def test_garbage_journal_is_entirely_damaged(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    garbage = bytes(range(256)) * 40
    _journal(recorded_run).write_bytes(garbage)

    assert main(["check", str(recorded_run), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["sound"] is False
    regions = [region for region in printed["regions"] if region["journal"] == "worker-0.jsonl"]
    assert (regions[0]["start"], regions[-1]["end"]) == (0, len(garbage))
    assert sum(region["end"] - region["start"] for region in regions) == len(garbage)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_flipped_bit_of_sealed_journal_costs_one_frame(
    recorded_run: Path, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    frames: list[tuple[int, int]] = []
    sealed = seal(_journal(recorded_run), lambda *frame: frames.append(frame))
    assert main(["check", str(recorded_run)]) == 0
    num_events = int(capsys.readouterr().out.split()[3])
    content = bytearray(sealed.read_bytes())
    offset = int(share * len(content))
    content[offset] ^= 0x01
    sealed.write_bytes(content)
    (start, first), (end, after) = next(pair for pair in pairwise(frames) if offset < pair[1][0])
    lost = "unknown number of events lost" if end == len(content) else f"{fmt.counted(after - first, 'event')} lost"
    damage = f"{sealed.name}, bytes {start} to {end}: a frame does not match its checksum ({lost})"

    assert main(["check", str(recorded_run)]) == 1
    region, *_, totals = capsys.readouterr().out.splitlines()
    assert region == damage
    assert f" damaged region, {lost}; read {num_events - (after - first)} events in 2 journals" in totals
    assert main(["show", str(recorded_run)]) == 0
    assert damage in capsys.readouterr().out
    assert main(["replay", str(recorded_run), "--no-ui"]) == 0
    assert f"damage: {damage}" in capsys.readouterr().out


def test_unreadable_manifest_is_damage(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recorded_run / "run.json").write_text("{")

    assert main(["check", str(recorded_run)]) == 1
    assert capsys.readouterr().out.startswith("run.json, bytes 0 to 1: cannot be read")


def test_json_has_every_journal_and_the_totals(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(recorded_run), "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    keys = {
        "run",
        "dir",
        "sound",
        "journals",
        "places",
        "regions",
        "lost_records",
        "dropped_steps",
        "senseless",
        "without_end",
    }
    assert set(printed) == keys
    assert {journal["journal"]: journal["bytes"] for journal in printed["journals"]} == {
        path.name: path.stat().st_size for path in recorded_run.glob("*.jsonl")
    }
    assert (printed["sound"], printed["regions"], printed["lost_records"]) == (True, [], 0)


def test_partial_line_of_a_live_writer_is_not_damage(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise(
        """
        reporter.flush()
        with (run_dir / "worker-0.jsonl").open("ab") as file:
            file.write(b'{"k":"Half')
        (run_dir / "half").touch()
        Event().wait()
        """
    )
    wait_for((watched.run_dir / "half").exists, "the half line")
    pid = watched.worker_pid()

    assert main(["check", str(watched.run_dir)]) == 0

    watched.process.kill()
    bench.clean_up()
    wait_for(lambda: not is_running(pid), "the end of the worker")
    capsys.readouterr()
    assert main(["check", str(watched.run_dir)]) == 1
    assert "the last line is truncated" in capsys.readouterr().out


def test_dropped_steps_and_contradictions_are_not_damage(
    recorded_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _journal(recorded_run)
    lines = path.read_bytes().splitlines(keepends=True)
    steps = ev.StepsRecorded(t=recorded.T0, first=1, n=-1, cores=8, mean=0, min=0, max=0, block="")
    far = ev.TopologyDeclared(
        t=recorded.T0, strategy="spmd", device="TPU", num_cores=8, num_hosts=1, host_index=0, cores=[1 << 40]
    )
    events = [steps, far, ev.StepsDropped(t=recorded.T0, num_records=3, num_steps=7)]
    journal_id = decode(lines[0]).journal_id
    more = [encode(event, len(lines) + index, journal_id) for index, event in enumerate(events)]
    path.write_bytes(b"".join([*lines, *more]))

    assert main(["check", str(recorded_run)]) == 0
    dropped, senseless, totals = capsys.readouterr().out.splitlines()
    assert dropped == "worker-0.jsonl: the losses of 7 steps were not recorded"
    assert senseless == "worker-0.jsonl: 2 inconsistent events are ignored"
    assert totals.startswith("digits-1: no damage: ")
    main(["check", str(recorded_run), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], found["dropped_steps"], found["senseless"]) == (True, 7, 2)
    main(["show", str(recorded_run)])
    page = " ".join(capsys.readouterr().out.split())
    assert "dropped the losses of 7 steps are in no journal" in page
    assert "left out 2 events that contradict themselves" in page


def test_steps_that_a_restart_trains_again_are_not_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest("again"))
    for generation in range(2):
        # A process that has ended: no other one had its start time.
        process = rundir.ProcessId(host="vm", host_id=rundir.host_id(), pid=os.getpid(), pid_started=1)
        reporter = Reporter(run_dir, "worker", generation=generation, process=process)
        reporter.emit(ev.StepsDropped(t=time.time(), num_records=1, num_steps=9 - 8 * generation, why="it ended"))
        reporter.close()
    assert main(["check", str(run_dir)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "worker-0.jsonl: the losses of 1 step were not recorded"


def of_another_run(parent: Path, journal: Path) -> Path:
    """A journal with the same events in other words, written by another process on another day."""
    events = [numbered.event for numbered in map(decode, journal.read_bytes().splitlines())]
    head, *rest = (msgspec.structs.replace(event, t=event.t + 86_400) for event in events)
    assert isinstance(head, ev.JournalOpened)
    other = parent / "other.jsonl"
    recorded.write_journal(other, [msgspec.structs.replace(head, pid=999), *rest])
    return other


def times(journal: Path) -> list[float]:
    """When the records that are read of a journal were written."""
    tail = open_tail(journal)
    found = [numbered.event.t for numbered in events_of(tail)]
    tail.close()
    return found


def test_line_of_another_run_is_damage_anywhere(recorded_run: Path, tmp_path: Path) -> None:
    journal = _journal(recorded_run)
    lines = journal.read_bytes().splitlines(keepends=True)
    others = of_another_run(tmp_path, journal).read_bytes().splitlines(keepends=True)
    before = times(journal)
    for index in range(len(lines)):
        journal.write_bytes(b"".join([*lines[:index], others[index], *lines[index + 1 :]]))
        _, regions = examine(recorded_run)
        assert FOREIGN in [region.reason for region in regions], index
        assert times(journal) == before[:index] + before[index + 1 :], index


def test_a_frame_of_another_run_is_damage(recorded_run: Path, tmp_path: Path) -> None:
    journal = _journal(recorded_run)
    before = times(journal)
    other = seal(of_another_run(tmp_path, journal)).read_bytes()
    sealed = seal(journal)
    sealed.write_bytes(sealed.read_bytes() + other)
    counts = [region.reason.split(" events in it are ") for region in examine(recorded_run)[1]]
    assert {what for _, what in counts} == {"of another journal"}
    assert sum(int(count) for count, _ in counts) == len(before)
    assert times(sealed) == before


def test_format_1_journal_is_intact_without_foreign_lines(recorded_run: Path) -> None:
    journal = _journal(recorded_run)
    events = [decode(line) for line in journal.read_bytes().splitlines()]
    old = [encode(numbered.event, numbered.seq) for numbered in events]
    assert b'"j":' not in b"".join(old)
    journal.write_bytes(b"".join(old))
    assert examine(recorded_run)[1] == []
    journal.write_bytes(b"".join([*old[:7], encode(events[7].event, 7, "0badcafe"), *old[8:]]))
    assert [region.reason for region in examine(recorded_run)[1]] == [FOREIGN]
    journal.write_bytes(b"".join(old))
    assert times(seal(journal)) == [numbered.event.t for numbered in events]
    assert examine(recorded_run)[1] == []


def test_journal_of_another_run_or_process_is_reported(recorded_run: Path) -> None:
    events = [numbered.event for numbered in map(decode, _journal(recorded_run).read_bytes().splitlines())]
    for change, why in (
        ({"run": "digits-2"}, "it is a journal of the run digits-2"),
        ({"writer": "worker-1"}, "it is the journal of worker-1"),
    ):
        _journal(recorded_run).unlink()
        recorded.write_journal(_journal(recorded_run), [msgspec.structs.replace(events[0], **change), *events[1:]])
        assert [region.reason for region in examine(recorded_run)[1]] == [why]


def test_every_flipped_bit_of_a_manifest_is_found(recorded_run: Path) -> None:
    manifest = recorded_run / rundir.MANIFEST
    content = manifest.read_bytes()
    for index in range(len(content)):
        flipped = bytearray(content)
        flipped[index] ^= 1 << index % 8
        manifest.write_bytes(flipped)
        try:
            found = rundir.read_manifest(recorded_run)
        except rundir.RunNotFound:
            continue
        assert found == recorded.manifest(), index
    manifest.write_bytes(content.replace(b"0.0005", b"0.8005"))
    assert [region.reason for region in examine(recorded_run)[1]] == ["cannot be read: its checksum does not match"]


def test_manifest_without_checksum_is_compared_with_journal(
    recorded_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = recorded_run / rundir.MANIFEST
    old = msgspec.json.format(msgspec.json.encode(recorded.manifest()))
    manifest.write_bytes(old)
    assert main(["check", str(recorded_run)]) == 0
    manifest.write_bytes(old.replace(b"0.0005", b"0.8005"))
    capsys.readouterr()
    assert main(["check", str(recorded_run)]) == 1
    assert "optim.lr is 0.8005, and 0.0005 there" in capsys.readouterr().out
    main(["show", str(recorded_run), "--json"])
    assert json.loads(capsys.readouterr().out)["config"]["optim"]["lr"] == 0.0005


def test_supervisor_journal_without_end_is_reported(recorded_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = recorded_run / "supervisor-0.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-2]))
    assert main(["check", str(recorded_run)]) == 0
    printed, _ = capsys.readouterr().out.splitlines()
    assert printed == "supervisor-0.jsonl: no end event: the supervisor was killed, or the last events are missing"
    main(["check", str(recorded_run), "--json"])
    assert json.loads(capsys.readouterr().out)["without_end"] == ["supervisor-0.jsonl"]
