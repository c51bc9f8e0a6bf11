"""Runs of another machine by the real OpenSSH, against a server on loopback with keys of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests import recorded
from tests.cli.helpers import CommandResult, one_sentence
from tests.deadline import DEADLINE_S
from tests.remote.linked import equal_journals
from tests.remote.sshd import HOST, OTHER_HOST, SAME_HOST, Sshd, running
from tests.supervise.harness import wait_for
from tests.ui.driving import AppPilot, drive, first_frame, text, until
from tputui.remote import link
from tputui.remote.address import Host, parse_address
from tputui.remote.link import HostLink, Links
from tputui.remote.mirror import mirror_dir_of
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.journal import JournalWriter
from tputui.telemetry.reporter import Reporter
from tputui.ui.app import ScreenApp
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.runs.remote_rows import RemoteRuns
from tputui.ui.runs.screen import RunsScreen
from tputui.ui.runs.table import RunsTable


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("remote") / "sshd") as server:
        yield server


@pytest.fixture
def runs(sshd: Sshd, tmp_path: Path) -> Path:
    """The directory of the runs on the server."""
    return sshd.folder.parent / "runs"


def started(sshd: Sshd, cache: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    """A command of a viewer, with a cache of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tputui", *words],
        env={**sshd.environ, "XDG_CACHE_HOME": str(cache), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> CommandResult:
    out, err = process.communicate(timeout=DEADLINE_S)
    return CommandResult(process.returncode, out, err)


def mirror_in(cache: Path) -> Path:
    """The only mirror."""
    [found] = mirrors_in(cache)
    return found


def mirrors_in(cache: Path) -> list[Path]:
    folder = cache / "tputui" / "mirrors"
    return [path for path in folder.iterdir() if path.is_dir()] if folder.exists() else []


def test_a_run_is_shown_and_its_mirror_has_the_same_bytes(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = recorded.write_run(runs, run="shown")
    page = ended(started(sshd, tmp_path, "show", f"ssh://{HOST}/shown"))
    assert page.code == 0, page.err
    assert "3 epochs trained" in page.out
    head = f"run          shown  (ssh://{HOST}/shown; mirrored in {mirror_in(tmp_path)})"
    assert page.out.splitlines()[0] == head
    assert equal_journals(run_dir, mirror_in(tmp_path))
    checked = ended(started(sshd, tmp_path, "check", f"ssh://{HOST}/shown"))
    assert checked.out.startswith(f"ssh://{HOST}/shown: no damage: "), checked
    stopped = ended(started(sshd, tmp_path, "stop", f"ssh://{HOST}/shown"))
    assert stopped.err.splitlines()[-1].startswith(f"tputui: ssh://{HOST}/shown: the run has already ended")
    by_path = ended(started(sshd, tmp_path, "attach", f"ssh://{HOST}/{run_dir}", "--no-ui"))
    assert by_path.code == 0, by_path.err
    assert "training done at step 66" in by_path.out


@pytest.mark.slow
def test_a_cut_connection_resumes_at_the_byte_and_no_event_is_lost(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = recorded.write_run(runs, run="cut", ended=False)
    worker = run_dir / "worker-0.jsonl"
    worker.unlink()
    writer, waiting = JournalWriter(worker), recorded.worker_events()
    writer.append(waiting[:6])
    viewer = started(sshd, tmp_path, "attach", f"ssh://{HOST}/cut", "--json")
    try:
        wait_for(lambda: _copies(run_dir, tmp_path), "the mirror")
        copy = mirror_in(tmp_path) / "worker-0.jsonl"
        inode = copy.stat().st_ino
        for at in range(6, len(waiting), len(waiting) // 2):
            assert sshd.cut() >= 1
            writer.append(waiting[at : at + len(waiting) // 2])
            wait_for(lambda: _copies(run_dir, tmp_path), "the connection after it was cut")
        assert copy.stat().st_ino == inode
        end = recorded.supervisor_events(waiting[-1].t + 0.2)
        (run_dir / "supervisor-0.jsonl").unlink()
        recorded.write_journal(run_dir / "supervisor-0.jsonl", end)
        result = ended(viewer)
    finally:
        viewer.kill()
        viewer.wait()
        writer.close()
    assert result.out.count('"k":"StepsRecorded"') == sum(isinstance(event, ev.StepsRecorded) for event in waiting)
    assert equal_journals(run_dir, mirror_in(tmp_path))


def _copies(run_dir: Path, cache: Path) -> bool:
    return any(equal_journals(run_dir, mirror) for mirror in mirrors_in(cache))


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_named_until_it_is_heard_again(
    sshd: Sshd, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    reporter = Reporter(rundir.create(runs, recorded.manifest("frozen")), "supervisor")
    viewer = started(sshd, tmp_path, "attach", f"ssh://{HOST}/frozen", "--json")

    def trouble() -> str:
        links = link.read(mirror_in(tmp_path)) if mirrors_in(tmp_path) else None
        return (links.trouble(time.time()) or "connected") if links is not None else "nothing"

    try:
        wait_for(lambda: trouble() == "connected", "the connection")
        stream = max(sshd.streams(), key=lambda process: process.create_time())
        stream.suspend()
        wait_for(lambda: "it does not answer, last heard" in trouble(), "the silence")
        stream.resume()
        wait_for(lambda: trouble() == "connected", "the answer")
    finally:
        reporter.close()
        viewer.kill()
        viewer.communicate()


@pytest.mark.slow
def test_requests_reach_the_run_and_receipts_come_back(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = rundir.create(runs, recorded.manifest("steered"))
    writer = JournalWriter(run_dir / "worker-0.jsonl")
    now, this = time.time(), rundir.this_process()
    # The process of the run is this one, so the run is alive.
    head = msgspec.structs.replace(recorded.opened(now, "worker"), **msgspec.structs.asdict(this))
    writer.append([head, ev.HeartbeatSent(t=now, phase="executing", phase_s=0.1, step=22, epoch=1)])
    viewer = started(sshd, tmp_path, "checkpoint", f"ssh://{HOST}/steered", "--wait", "240")
    try:
        wait_for(lambda: requests.read_all(run_dir) or viewer.poll() is not None, "the request")
        [request] = requests.read_all(run_dir)
        assert (request.kind, request.by) == ("checkpoint", "tputui checkpoint")
        seen = ev.RequestSeen(t=now, request=request.id, kind="checkpoint", phase="executing", step=22)
        writer.append([seen, ev.RequestApplied(t=now, request=request.id, kind="checkpoint", step=22)])
        result = ended(viewer)
    finally:
        viewer.kill()
        viewer.wait()
        writer.close()
    assert result.code == 0, result.err
    assert result.out.splitlines()[1:] == ["seen: in phase executing, step 22", "applied: after step 22"]


@pytest.mark.slow
def test_a_request_that_a_viewer_could_not_send_is_sent_by_the_next_one(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = recorded.write_run(runs, run="pending", ended=False)
    address = parse_address(f"ssh://{HOST}/pending")
    mirror = mirror_dir_of(address, {"XDG_CACHE_HOME": str(tmp_path)}, summary=False)
    (mirror / "requests").mkdir(parents=True)
    now = time.time()
    sent, unsent = (requests.submit(mirror, "stop", by="screen", now=now - age_s) for age_s in (90.0, 60.0))
    gone = msgspec.structs.replace(rundir.this_process(), pid_started=1)
    link.write(mirror, Links(process=gone, address=str(address), unsent=[unsent.id]))
    viewer = started(sshd, tmp_path, "attach", str(address), "--json")
    try:
        wait_for(lambda: requests.read_all(run_dir), "the request")
        assert requests.read_all(run_dir) == [unsent]
        assert sent in requests.read_all(mirror)
    finally:
        viewer.kill()
        viewer.communicate()


@pytest.mark.slow
def test_errors_are_one_sentence(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    recorded.write_run(runs, run="locked")
    other_key, unknown_host = tmp_path / "other", tmp_path / "unknown"
    for folder, file, content in (
        (other_key, "user_key", (sshd.folder / "host_key").read_text()),
        (unknown_host, "known_hosts", ""),
    ):
        folder.mkdir()
        config = (sshd.folder / "ssh_config").read_text().replace(f"{sshd.folder}/{file}", f"{folder}/{file}")
        (folder / "ssh_config").write_text(config)
        (folder / file).write_text(content)
        (folder / file).chmod(0o600)
        program = (sshd.folder / "ssh").read_text().replace(f"{sshd.folder}/ssh_config", f"{folder}/ssh_config")
        (folder / "ssh").write_text(program)
        (folder / "ssh").chmod(0o700)
    path = os.environ["PATH"]
    tried = {
        f"`tputui runs --host {HOST}` lists its runs": started(sshd, tmp_path, "show", f"ssh://{HOST}/nothing"),
        "the host is not known": started(sshd, tmp_path, "show", "ssh://no-such-host.invalid/locked"),
        "the connection was refused": started(sshd, tmp_path, "show", f"ssh://{HOST}:1/locked"),
        "permission denied": started(sshd, tmp_path, "show", f"ssh://{HOST}/locked", PATH=f"{other_key}:{path}"),
        "its host key is not known": started(
            sshd, tmp_path, "show", f"ssh://{HOST}/locked", PATH=f"{unknown_host}:{path}"
        ),
        "tputui was not found there": started(
            sshd, tmp_path, "show", f"ssh://{HOST}/locked", TPUTUI_REMOTE_PROGRAM="/no/such/tputui"
        ),
        "version 9 of the protocol": started(
            sshd, tmp_path, "show", f"ssh://{HOST}/locked", TPUTUI_REMOTE_PROGRAM=_program(tmp_path)
        ),
    }
    results = {words: ended(process) for words, process in tried.items()}
    assert {words: result.code for words, result in results.items()} == dict.fromkeys(tried, 2)
    for words, result in results.items():
        # On a slow machine there is a line before that asks for patience.
        lines = [line for line in result.err.splitlines() if not line.startswith("tputui: connecting to ssh://")]
        assert words in one_sentence(CommandResult(result.code, result.out, "\n".join(lines)))
    assert mirrors_in(tmp_path) == []


def _program(folder: Path) -> str:
    """A later version of tputui, after a login shell that prints."""
    path = folder / "stream"
    path.write_text("#!/bin/sh\necho welcome\necho tputui-stream 9 9.0\nread wait\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.slow
def test_a_second_viewer_takes_the_place_of_the_first(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = rundir.create(runs, recorded.manifest("shared"))
    # A process that lives: of a run that looks lost a viewer would not wait for more.
    reporter = Reporter(run_dir, "supervisor")
    viewers = [started(sshd, tmp_path, "attach", f"ssh://{HOST}/shared", "--json") for _ in range(2)]
    try:
        for viewer in viewers:
            assert viewer.stdout is not None
            assert '"k":"JournalOpened"' in viewer.stdout.readline()
        viewers[0].send_signal(signal.SIGINT)
        assert ended(viewers[0]).code == 0
        recorded.write_journal(run_dir / "logs-0.jsonl", [recorded.opened(recorded.T0, "logs")])
        wait_for(lambda: _copies(run_dir, tmp_path), "the bytes that the second viewer gets")
    finally:
        reporter.close()
        for viewer in viewers:
            viewer.kill()
            viewer.communicate()


@pytest.mark.slow
def test_hosts_with_directories_of_their_own_and_with_a_shared_one(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = recorded.write_run(runs, run="pod")
    other = rundir.create(runs.with_name("runs-2"), recorded.manifest("pod"))
    recorded.write_journal(other / "worker-1.jsonl", recorded.worker_events()[:8])
    hosts = f"{HOST},{SAME_HOST},{OTHER_HOST}"
    result = ended(started(sshd, tmp_path, "attach", "pod", "--hosts", hosts, "--json", "--lines", "all"))
    assert result.code == 0, result.err
    mirror = mirror_in(tmp_path)
    for path in (*run_dir.glob("*.jsonl"), *other.glob("*.jsonl")):
        assert (mirror / path.name).read_bytes() == path.read_bytes()
    links = msgspec.json.decode((mirror / "link.json").read_bytes(), type=Links)
    assert sorted(links.hosts[0].indexes + links.hosts[1].indexes) == [0]
    assert links.hosts[2].indexes == [1]
    assert all(host.clock_offset_s is not None and abs(host.clock_offset_s) < 5 for host in links.hosts)


@pytest.mark.slow
def test_one_command_reads_and_steers_a_run_on_several_hosts(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = rundir.create(runs, recorded.manifest("pair"))
    other = rundir.create(runs.with_name("runs-2"), recorded.manifest("pair"))
    now, this = time.time(), rundir.this_process()
    for index, folder in enumerate((run_dir, other)):
        # The processes of the run are this one, so the run is alive.
        head = msgspec.structs.replace(recorded.opened(now, "worker", index), **msgspec.structs.asdict(this))
        beat = ev.HeartbeatSent(t=now, phase="executing", phase_s=0.1, step=22, epoch=1)
        recorded.write_journal(folder / f"worker-{index}.jsonl", [head, beat])
    hosts = ("--hosts", f"{HOST},{OTHER_HOST},no-such-host.invalid")
    page = ended(started(sshd, tmp_path, "show", "pair", *hosts, "--json"))
    assert page.code == 0, page.err
    assert [host["index"] for host in msgspec.json.decode(page.out)["hosts"]] == [0, 1]
    assert "tputui: no-such-host.invalid: the host is not known" in page.err
    stop = started(sshd, tmp_path, "stop", "pair", *hosts[:1], f"{HOST},{OTHER_HOST}", "--wait", "240")
    try:
        wait_for(lambda: requests.read_all(run_dir) and requests.read_all(other), "the requests")
        assert requests.read_all(run_dir) == requests.read_all(other)
    finally:
        stop.kill()
        stop.communicate()


@pytest.mark.slow
def test_a_host_of_the_run_is_seen_over_the_connection_that_brings_its_journals(
    sshd: Sshd, runs: Path, tmp_path: Path
) -> None:
    recorded.write_run(runs, run="passed", ended=False)
    viewer = started(sshd, tmp_path, "attach", "passed", "--hosts", f"{HOST},{SAME_HOST}", "--json")

    def links() -> list[HostLink]:
        with contextlib.suppress(OSError):
            content = (mirror_in(tmp_path) / "link.json").read_bytes()
            return msgspec.json.decode(content, type=Links).hosts
        return []

    try:
        wait_for(
            lambda: mirrors_in(tmp_path) and links() and all(one.is_connected for one in links()), "the connections"
        )
        wait_for(lambda: any(one.indexes for one in links()), "the journals")
        assert {one.directory for one in links()} == {str((runs / "passed").resolve())}
        [owner] = [one.host for one in links() if one.indexes == [0]]
        for process in psutil.Process(viewer.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if owner in words and words[0].endswith("ssh"):
                    process.kill()
        wait_for(lambda: [one.host for one in links() if one.indexes == [0]] not in ([owner], []), "the other one")
        assert sum(one.indexes == [0] for one in links()) == 1
    finally:
        viewer.kill()
        viewer.communicate()


@pytest.mark.slow
def test_a_mirror_that_cannot_be_written_ends_the_command_with_the_reason(
    sshd: Sshd, runs: Path, tmp_path: Path
) -> None:
    recorded.write_run(runs, run="full")
    address = parse_address(f"ssh://{HOST}/full")
    mirror = mirror_dir_of(address, {"XDG_CACHE_HOME": str(tmp_path)}, summary=False)
    (mirror / "worker-0.jsonl").mkdir(parents=True)
    page = ended(started(sshd, tmp_path, "show", str(address)))
    assert "the mirror cannot be written: " in page.err
    assert "Is a directory" in page.err


@pytest.mark.slow
def test_the_runs_of_a_host_are_listed_and_opened(sshd: Sshd, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tputui-") as cache:
        _list_and_open(sshd, runs, Path(cache), monkeypatch)


def _list_and_open(sshd: Sshd, runs: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = recorded.write_run(runs, run="listed")
    table = started(sshd, cache, "runs", "--host", HOST)
    as_json = started(sshd, cache, "--host", HOST, "--runs-dir", str(runs))
    refused = started(sshd, cache, "runs", "--host", HOST, "--runs-dir=/tmp/$(reboot)")
    for process in (table, as_json):
        assert any(line.split()[:4] == ["listed", "done", "3/3", "66"] for line in ended(process).out.splitlines())
    assert "only letters" in one_sentence(ended(refused))
    for name, value in {**sshd.environ, "XDG_CACHE_HOME": str(cache)}.items():
        monkeypatch.setenv(name, value)
    screen = RunsScreen(Path("shown"), remote=RemoteRuns(Host(HOST), None))

    async def script(pilot: AppPilot) -> None:
        rows = screen.query_one(RunsTable)
        await until(pilot, lambda: rows.row is not None)
        assert run_dir in {row.path for row in rows.rows}
        rows.choose(run_dir)
        await until(pilot, lambda: rows.row is not None and rows.row.path == run_dir)
        await pilot.press("c")
        assert requests.read_all(run_dir) == []
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MonitorScreen))
        await first_frame(pilot)
        await until(pilot, lambda: _copies(run_dir, cache))
        assert "took" in text(pilot.app.screen)

    drive(ScreenApp(lambda: screen), script)
    # The connection that the lists and the run shared, which waits for the next list.
    [*sockets] = (cache / "tputui" / "ssh").iterdir()
    assert len(sockets) == 1
    for socket in sockets:
        words = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", HOST]
        subprocess.run(words, env=sshd.environ, capture_output=True, check=True)


@pytest.mark.slow
def test_one_host_with_another_run_of_the_name_is_named(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    recorded.write_run(runs, run="clash")
    other = rundir.create(runs.with_name("runs-2"), recorded.manifest("clash"))
    recorded.write_journal(other / "worker-0.jsonl", [recorded.opened(recorded.T0 + 5, "worker", pid=9)])
    viewer = started(sshd, tmp_path, "attach", "clash", "--hosts", f"{HOST},{OTHER_HOST}", "--json")
    result = ended(viewer)
    assert "the two hosts have different runs of this name" in result.err
