"""What a view of a mirror shows while the connection to its hosts is lost."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tputui.remote import link
from tputui.remote.link import HostLink, Links, LinkState
from tputui.session.session import Session
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.text.lines import follow

T = recorded.T0


def mirror_of(parent: Path) -> Path:
    """The mirror of a run of another host that wrote last 10 s after its start."""
    run_dir = rundir.create(parent / "tputui" / "mirrors", recorded.manifest("mirrored"))
    beat = ev.HeartbeatSent(t=T + 10, phase="executing", phase_s=1.0, step=44, epoch=2)
    recorded.write_journal(run_dir / "worker-0.jsonl", [*recorded.worker_events()[:9], beat])
    recorded.write_journal(run_dir / "supervisor-0.jsonl", recorded.supervisor_events(None))
    return run_dir


def test_a_lost_connection_is_shown_and_does_not_make_the_run_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run_dir = mirror_of(tmp_path)
    links = Links(process=rundir.this_process(), address="ssh://vm/mirrored", synced=True)
    host = HostLink(host="vm", state="reconnecting", heard=T + 11, reason="vm: no route", indexes=[0])
    links.hosts = [host]
    link.write(run_dir, links)
    session = Session.live(run_dir, lambda: T + 600)
    session.read_all()
    shown = session.snapshot()
    assert shown.troubles == ["vm: reconnecting, last heard 589 s ago; no route"]
    assert (shown.condition, shown.now) == ("running", T + 11)
    assert not session.settled
    host.state, host.reason, host.heard = "connected", None, None
    link.write(run_dir, links)
    back = session.snapshot()
    assert back.troubles == []
    assert back.condition == "lost"
    session.close()


def test_a_host_that_is_connected_and_does_not_answer_is_named_and_the_run_does_not_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run_dir = mirror_of(tmp_path)
    host = HostLink(host="vm", state="connected", heard=T + 11, indexes=[0])
    link.write(run_dir, Links(process=rundir.this_process(), address="ssh://vm/mirrored", synced=True, hosts=[host]))
    session = Session.live(run_dir, lambda: T + 26)
    session.read_all()
    shown = session.snapshot()
    assert shown.troubles == ["vm: it does not answer, last heard 15 s ago"]
    assert (shown.condition, shown.now, shown.hosts[0].link) == ("running", T + 11, shown.troubles[0][4:])
    session.close()


def test_lines_of_a_run_name_a_lost_host_once_and_again_for_another_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run_dir = mirror_of(tmp_path)
    hosts = [HostLink(host=f"vm-{index}", state="connected", indexes=[index]) for index in range(2)]
    links = Links(process=rundir.this_process(), address="mirrored on 2 hosts", synced=True, hosts=hosts)
    states: list[tuple[int, LinkState, float | None, str | None]] = [
        (1, "connecting", None, None),
        (1, "waiting", None, "vm-1: no route"),
        (1, "connecting", None, "vm-1: no route"),
        (1, "connected", None, None),
        (0, "connected", T + 11, None),
        (1, "reconnecting", T + 12, "vm-1: refused"),
    ]

    def wait(_: float) -> None:
        if states:
            index, state, heard, reason = states.pop(0)
            hosts[index].state, hosts[index].heard, hosts[index].reason = state, heard, reason
        link.write(run_dir, links)

    session = Session.live(run_dir, lambda: T + 12)
    out = io.StringIO()
    follow(session, out, as_json=False, earlier=0, wait=wait, stop=lambda: not states)
    session.close()
    assert [line for line in out.getvalue().splitlines() if line.startswith("warning: ")] == [
        "warning: vm-1: no route",
        "warning: vm-0: it does not answer",
    ]


def test_processes_of_a_host_that_is_not_heard_do_not_stall_while_others_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run_dir = mirror_of(tmp_path)
    head, *events = recorded.worker_events()[:9]
    beat = ev.HeartbeatSent(t=T + 10, phase="executing", phase_s=1.0, step=44, epoch=2)
    recorded.write_journal(run_dir / "worker-1.jsonl", [recorded.opened(head.t, "worker", 1), *events, beat])
    hosts = [HostLink(host=f"vm-{index}", state="connected", indexes=[index]) for index in range(2)]
    links = Links(process=rundir.this_process(), address="mirrored on 2 hosts", synced=True, hosts=hosts)
    (run_dir / "worker-0.jsonl").unlink()
    late = msgspec.structs.replace(beat, t=T + 599)
    recorded.write_journal(run_dir / "worker-0.jsonl", [head, *events, late])
    session = Session.live(run_dir, lambda: T + 600)
    states: list[tuple[LinkState, float | None, str, str]] = [
        ("connected", None, "stalled", "worker-1"),
        ("reconnecting", T + 11, "running", ""),
        ("connected", T + 11, "running", ""),
    ]
    for hosts[1].state, hosts[1].heard, condition, stalled in states:
        link.write(run_dir, links)
        session.read_all()
        shown = session.snapshot()
        assert (shown.condition, stalled in shown.condition_reason) == (condition, True)
    assert [host.link for host in shown.hosts] == ["connected", "it does not answer, last heard 589 s ago"]
    session.close()


def test_a_run_of_this_machine_that_is_watched_over_ssh_does_not_stall_while_the_connection_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run_dir = mirror_of(tmp_path)
    for journal in run_dir.glob("*.jsonl"):
        journal.unlink()
    head, *events = recorded.worker_events()[:9]
    beat = ev.HeartbeatSent(t=T + 10, phase="executing", phase_s=1.0, step=44, epoch=2)
    alive = msgspec.structs.replace(head, **msgspec.structs.asdict(rundir.this_process()))
    recorded.write_journal(run_dir / "worker-0.jsonl", [alive, *events, beat])
    links = Links(process=rundir.this_process(), address="ssh://localhost/mirrored", synced=True)
    links.hosts = [HostLink(host="localhost", state="reconnecting", heard=T + 11, indexes=[0])]
    link.write(run_dir, links)
    session = Session.live(run_dir, lambda: T + 600)
    session.read_all()
    assert session.snapshot().condition == "running"
    session.close()


def test_a_mirror_that_nobody_writes_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run_dir = mirror_of(tmp_path)
    gone = rundir.ProcessId(host="here", host_id=rundir.host_id(), pid=4_000_000, pid_started=1)
    host = HostLink(host="vm", state="reconnecting", heard=T + 11)
    link.write(run_dir, Links(process=gone, address="ssh://vm/mirrored", hosts=[host]))
    session = Session.live(run_dir, lambda: T + 600)
    session.read_all()
    assert session.snapshot().troubles == []
    session.close()
