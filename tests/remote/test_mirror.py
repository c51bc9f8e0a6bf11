"""A mirror has the bytes of the run, whatever happens on the way, and nothing that a host invents."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import recorded
from tests.remote.linked import Linked, equal_journals
from tputui.remote import link
from tputui.remote import protocol as p
from tputui.remote.link import HostLink, Links
from tputui.remote.mirror import Mirror, MirrorLock
from tputui.session.session import load, read_events
from tputui.state.snapshot import Snapshot
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.compressed import seal
from tputui.telemetry.journal import Bookmark, JournalWriter, Tail
from tputui.ui.render.image_grid import ImageFiles


def snapshot_of(run_dir: Path) -> Snapshot:
    """Everything that a view shows of a run, without the place of its directory."""
    snapshot = load(run_dir, lambda: recorded.T0 + 3_600)
    return msgspec.structs.replace(snapshot, dir="")


def test_every_view_of_a_mirror_is_that_of_the_run(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "labels.json").write_text('{"tags": ["good"]}')
    picture = run_dir / "pictures" / "epoch-0001" / "00-a-b.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"png")
    linked = Linked(run_dir, tmp_path / "mirror")
    linked.pump()
    assert equal_journals(run_dir, linked.mirror_dir)
    assert snapshot_of(linked.mirror_dir) == snapshot_of(run_dir)
    for name in ("run.json", "labels.json", "pictures/epoch-0001/00-a-b.png"):
        assert (linked.mirror_dir / name).read_bytes() == (run_dir / name).read_bytes()
    assert not (linked.mirror_dir / "checkpoints").exists()
    again = Linked(run_dir, linked.mirror_dir)
    again.pump()
    assert sorted(again.files) == ["labels.json", "run.json"]


def test_a_live_run_is_followed_in_whole_lines_and_resumed_at_the_byte(tmp_path: Path) -> None:
    run = recorded.Growing(tmp_path)
    linked = Linked(run.run_dir, tmp_path / "mirror")
    run.go_on(3)
    linked.pump()
    half_line = (run.run_dir / "worker-0.jsonl").read_bytes()[:100]
    with (run.run_dir / "rank-1.jsonl").open("wb") as file:
        file.write(half_line)
        file.flush()
        linked.pump()
        assert not (linked.mirror_dir / "rank-1.jsonl").exists()
    (run.run_dir / "rank-1.jsonl").unlink()
    linked.cut()
    had = {path.name: path.stat().st_size for path in linked.mirror_dir.glob("*.jsonl")}
    # A writer of the mirror was killed in the middle of a line.
    with (linked.mirror_dir / "worker-0.jsonl").open("ab") as file:
        file.write(b'{"k":"Hear')
    run.go_on(60)
    resumed = Linked(run.run_dir, linked.mirror_dir)
    resumed.pump()
    assert equal_journals(run.run_dir, linked.mirror_dir)
    assert {f"{data.writer}.jsonl": data.offset for data in reversed(resumed.received)} == had
    run.close()


def test_a_run_that_was_sealed_meanwhile_continues_in_the_plain_copy(tmp_path: Path) -> None:
    run = recorded.Growing(tmp_path)
    linked = Linked(run.run_dir, tmp_path / "mirror")
    run.go_on(6)
    linked.pump()
    had = (linked.mirror_dir / "worker-0.jsonl").read_bytes()
    run.go_on(60)
    whole = [(e.writer, e.seq, e.event.t) for e in read_events(run.run_dir)]
    for name in ("worker-0", "supervisor-0"):
        seal(run.run_dir / f"{name}.jsonl")
    linked.pump()
    assert (linked.mirror_dir / "worker-0.jsonl").read_bytes().startswith(had)
    assert sorted((e.writer, e.seq, e.event.t) for e in read_events(linked.mirror_dir)) == sorted(whole)
    assert snapshot_of(linked.mirror_dir) == snapshot_of(run.run_dir)
    linked.cut()
    again = Linked(run.run_dir, linked.mirror_dir)
    again.pump()
    assert [data.data for data in again.received if data.data] == []
    run.close()


def test_a_sealed_run_arrives_sealed_and_only_once(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    for path in list(run_dir.glob("*.jsonl")):
        seal(path)
    linked = Linked(run_dir, tmp_path / "mirror")
    linked.pump()
    assert equal_journals(run_dir, linked.mirror_dir)
    again = Linked(run_dir, linked.mirror_dir)
    again.pump()
    assert [data.data for data in again.received] == [b"", b""]
    # The connection was lost in the middle of the file.
    sealed = linked.mirror_dir / "worker-0.jsonl.zst"
    part = sealed.read_bytes()[:700]
    sealed.unlink()
    (linked.mirror_dir / ".worker-0.jsonl.zst.part").write_bytes(part)
    third = Linked(run_dir, linked.mirror_dir)
    third.pump()
    assert [data.offset for data in third.received if data.data] == [700]
    assert equal_journals(run_dir, linked.mirror_dir)


def test_a_journal_that_was_replaced_or_cut_is_sent_anew(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    linked = Linked(run_dir, tmp_path / "mirror")
    linked.pump()
    path = run_dir / "worker-0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:9]))
    linked.pump()
    assert equal_journals(run_dir, linked.mirror_dir)
    other = recorded.worker_events(num_epochs=4)
    path.unlink()
    recorded.write_journal(path, [msgspec.structs.replace(other[0], pid=99), *other[1:]])
    linked.pump()
    assert equal_journals(run_dir, linked.mirror_dir)
    linked.cut()
    path.unlink()
    recorded.write_journal(path, [msgspec.structs.replace(other[0], pid=77), *other[1:]])
    Linked(run_dir, linked.mirror_dir).pump()
    assert equal_journals(run_dir, linked.mirror_dir)


def test_a_summary_has_every_event_and_the_last_step_of_every_report(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    linked = Linked(run_dir, tmp_path / "mirror", summary=True)
    linked.pump()
    full, thin = list(read_events(run_dir)), list(read_events(linked.mirror_dir))
    assert [(e.writer, e.seq, e.event.t) for e in thin] == [(e.writer, e.seq, e.event.t) for e in full]
    whole = load(run_dir, lambda: recorded.T0 + 3_600)
    seen = load(linked.mirror_dir, lambda: recorded.T0 + 3_600)
    assert seen.damage.regions == []
    assert (seen.steps, seen.newest_loss, seen.condition) == (whole.steps, whole.newest_loss, whole.condition)
    assert seen.cores == whole.cores
    reports = [e.event for e in thin if isinstance(e.event, ev.StepsRecorded)]
    assert {event.n for event in reports} == {1}
    sizes = [sum(path.stat().st_size for path in each.glob("*.jsonl")) for each in (run_dir, linked.mirror_dir)]
    assert sizes[1] < sizes[0] - 2_000
    # Resumed by the number of the last event, since the bytes differ.
    linked.cut()
    writer = JournalWriter.continued(run_dir / "worker-0.jsonl", _end_of(run_dir / "worker-0.jsonl"))
    writer.append([ev.WarningRaised(t=recorded.T0 + 99, text="late")])
    writer.close()
    Linked(run_dir, linked.mirror_dir, summary=True).pump()
    assert [e.seq for e in read_events(linked.mirror_dir)] == [e.seq for e in read_events(run_dir)]
    assert load(linked.mirror_dir).damage.regions == []


def test_requests_of_others_are_shown_and_those_of_the_viewer_written_once(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    requests.submit(run_dir, "checkpoint", by="another user", now=1.0)
    linked = Linked(run_dir, tmp_path / "mirror")
    linked.pump()
    assert [request.by for request in requests.read_all(linked.mirror_dir)] == ["another user"]
    mine = requests.submit(linked.mirror_dir, "stop", by="screen", now=2.0)
    message = p.Submit(id=mine.id, content=msgspec.json.encode(mine))
    answers = linked._stream.answer([message, message])
    assert [answer.error for answer in answers if isinstance(answer, p.Submitted)] == [None, None]
    assert requests.read_all(run_dir)[-1] == mine
    outside = msgspec.structs.replace(mine, id="../1-1")
    with pytest.raises(p.ProtocolError, match="no valid id"):
        linked._stream.answer([p.Submit(id=outside.id, content=msgspec.json.encode(outside))])
    with pytest.raises(p.ProtocolError, match="another id"):
        linked._stream.answer([p.Submit(id=outside.id, content=msgspec.json.encode(mine))])
    with pytest.raises(p.ProtocolError, match="cannot be read"):
        linked._stream.answer([p.Submit(id=mine.id, content=b'{"kind": "format the disk"}')])


def data(**fields: Any) -> p.Data:
    """A part of a journal as a hostile host might send it."""
    known: dict[str, Any] = {"writer": "worker-0", "form": "plain", "offset": 0, "data": b"x\n", "end": False}
    return p.Data(**{**known, **fields})


def steps(*parts: p.Data) -> Callable[[Mirror], None]:
    """Sends parts of a journal that the viewer wanted."""

    def send(mirror: Mirror) -> None:
        mirror.copy_of("worker-0")
        for part in parts:
            mirror.write(part)

    return send


HOSTILE: dict[str, Callable[[Mirror], object]] = {
    "a path as a name": lambda mirror: mirror.copy_of("../../worker-0"),
    "a journal that was not wanted": steps(data(writer="rank-1")),
    "a gap": steps(data(offset=5)),
    "another form in the middle": steps(data(), data(offset=2, form="sealed")),
    "a file outside": lambda mirror: mirror.write_file(p.File(path="../run.json", content=b"{}")),
    "a file of no view": lambda mirror: mirror.write_file(p.File(path="checkpoints/last.pt", content=b"{}")),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_host_writes_nothing_else(tmp_path: Path, what: str) -> None:
    mirror = Mirror(tmp_path / "mirror")
    with pytest.raises(p.ProtocolError):
        HOSTILE[what](mirror)
    found = {path.name for path in tmp_path.rglob("*")}
    assert found <= {"mirror", "requests", "worker-0.jsonl"}


def test_links_in_a_mirror_are_not_followed(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "mirror" / "worker-0.jsonl").symlink_to(outside / "journal")
    (tmp_path / "mirror" / "pictures").symlink_to(outside)
    mirror.copy_of("worker-0")
    with pytest.raises(OSError, match="symbolic links"):
        mirror.write(data())
    with pytest.raises(p.ProtocolError, match="link"):
        mirror.write_file(p.File(path="pictures/epoch-0001/a.png", content=b"png"))
    assert list(outside.iterdir()) == []


def test_an_invalid_request_of_the_host_is_not_stored(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    content = b'{"id": "2-2", "kind": "stop", "t": 1, "by": ""}'
    assert not mirror.write_file(p.File(path="requests/1-1.json", content=content))
    assert os.listdir(tmp_path / "mirror" / "requests") == []


def test_the_names_of_many_pictures_fit_into_the_message_that_opens_a_run(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    folder = mirror.run_dir / "pictures" / "rank-1234567" / "epoch-123456789"
    folder.mkdir(parents=True)
    for number in range(2_000):
        (folder / f"{number:0120}.png").touch()
    have = mirror.side_files()
    assert 500 < len(have) < 2_000
    opening = p.Open(version=1, run="/" + "r" * 4_000, runs_dir="/" + "d" * 4_000, summary=False, have=have)
    assert p.ViewerFrames().feed(p.pack(opening)) == [opening]


def test_a_large_file_and_a_long_line_are_sent_in_frames_of_their_own(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "model.json").write_bytes(bytes(16 << 20))
    (run_dir / "rank-1.jsonl").write_bytes(b"x" * (3 << 20) + b"\n")
    linked = Linked(run_dir, tmp_path / "mirror")
    linked.pump()
    assert max(linked.read_bytes) <= p.FRAME_BYTES_MAX - 65_536
    assert (linked.mirror_dir / "model.json").stat().st_size == 16 << 20
    assert equal_journals(run_dir, linked.mirror_dir)


def test_a_long_journal_that_the_viewer_has_is_passed_over_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = recorded.write_run(tmp_path)
    linked = Linked(run_dir, tmp_path / "mirror", summary=True)
    linked.pump()
    path = run_dir / "worker-0.jsonl"
    writer = JournalWriter.continued(path, _end_of(path))
    writer.append([ev.WarningRaised(t=recorded.T0 + 99, text="late")])
    writer.close()
    monkeypatch.setattr("tputui.remote.journal_source.DATA_BYTES", 100)
    again = Linked(run_dir, linked.mirror_dir, summary=True)
    again.pump()
    # In between the host hears the viewer, which would give it up after 30 s.
    parts = [part for part in again.received if part.writer == "worker-0"]
    assert [part.data for part in parts[:2]] == [b"", b""]
    assert not parts[0].end
    assert [e.seq for e in read_events(linked.mirror_dir)] == [e.seq for e in read_events(run_dir)]


def test_one_process_at_a_time_writes_a_mirror(tmp_path: Path) -> None:
    first, second = MirrorLock(tmp_path / "mirrors" / "r"), MirrorLock(tmp_path / "mirrors" / "r")
    assert (first.acquire(), second.acquire()) == (True, False)
    first.close()
    assert second.acquire()
    second.close()


def _end_of(path: Path) -> Bookmark:
    tail = Tail(path)
    while tail.read():
        pass
    tail.close()
    return tail.bookmark


def test_a_file_that_is_not_mirrored_is_named_with_the_command_that_copies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mirror = tmp_path / "tputui" / "mirrors" / "digits-1"
    mirror.mkdir(parents=True)
    picture = "pictures/epoch-3/7-input.png"
    assert ImageFiles(mirror).read([picture]) == {picture: "missing: there is no such file"}
    hosts = [
        HostLink(host="me@vm-0:2222", indexes=[0], directory="/data/my runs/digits-1"),
        HostLink(host="[::1]", indexes=[1], directory="/runs/digits-1"),
    ]
    link.write(mirror, Links(process=rundir.this_process(), address="digits-1 on 2 hosts", hosts=hosts))
    links = link.read(mirror)
    assert links is not None
    first = "scp -r -P 2222 'me@vm-0:/data/my runs/digits-1/{}' ."
    assert links.copy_command("traces/step-7") == first.format("traces/step-7")
    assert links.copy_command("traces/step-7-host-1") == "scp -r '[::1]:/runs/digits-1/traces/step-7-host-1' ."
    assert ImageFiles(mirror).read([picture]) == {
        picture: f"not mirrored yet, or too large; to copy it: {first.format(picture)}"
    }
