"""Runs of another machine by the real OpenSSH, against a server on loopback with keys of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.cli.helpers import CommandResult, one_sentence
from tests.remote.linked import equal_journals
from tests.remote.sshd import HOST, Sshd, running
from tests.supervise.harness import wait_for
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.journal import JournalWriter

PATIENCE_S = 240.0


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
    out, err = process.communicate(timeout=PATIENCE_S)
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
    assert equal_journals(run_dir, mirror_in(tmp_path))
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
        wait_for(lambda: _copies(run_dir, tmp_path), "the mirror", PATIENCE_S)
        copy = mirror_in(tmp_path) / "worker-0.jsonl"
        inode = copy.stat().st_ino
        for at in range(6, len(waiting), len(waiting) // 2):
            assert sshd.cut() >= 1
            writer.append(waiting[at : at + len(waiting) // 2])
            wait_for(lambda: _copies(run_dir, tmp_path), "the connection after it was cut", PATIENCE_S)
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
def test_requests_reach_the_run_and_receipts_come_back(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = rundir.create(runs, recorded.manifest("steered"))
    writer = JournalWriter(run_dir / "worker-0.jsonl")
    now, this = time.time(), rundir.this_process()
    # The process of the run is this one, so the run is alive.
    head = msgspec.structs.replace(recorded.opened(now, "worker"), **msgspec.structs.asdict(this))
    writer.append([head, ev.HeartbeatSent(t=now, phase="executing", phase_s=0.1, step=22, epoch=1)])
    viewer = started(sshd, tmp_path, "checkpoint", f"ssh://{HOST}/steered", "--wait", "240")
    try:
        wait_for(lambda: requests.read_all(run_dir) or viewer.poll() is not None, "the request", PATIENCE_S)
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
def test_errors_are_one_sentence(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    recorded.write_run(runs, run="locked")
    other_key, unknown_host = tmp_path / "other", tmp_path / "unknown"
    for folder, file, text in (
        (other_key, "user_key", (sshd.folder / "host_key").read_text()),
        (unknown_host, "known_hosts", ""),
    ):
        folder.mkdir()
        config = (sshd.folder / "ssh_config").read_text().replace(f"{sshd.folder}/{file}", f"{folder}/{file}")
        (folder / "ssh_config").write_text(config)
        (folder / file).write_text(text)
        (folder / file).chmod(0o600)
        program = (sshd.folder / "ssh").read_text().replace(f"{sshd.folder}/ssh_config", f"{folder}/ssh_config")
        (folder / "ssh").write_text(program)
        (folder / "ssh").chmod(0o700)
    path = os.environ["PATH"]
    tried = {
        "no such run": started(sshd, tmp_path, "show", f"ssh://{HOST}/nothing"),
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
        assert words in one_sentence(result)
    assert mirrors_in(tmp_path) == []


def _program(folder: Path) -> str:
    """A later version of tputui, after a login shell that prints."""
    path = folder / "stream"
    path.write_text("#!/bin/sh\necho welcome\necho tputui-stream 9 9.0\nread wait\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.slow
def test_a_second_viewer_takes_the_place_of_the_first(sshd: Sshd, runs: Path, tmp_path: Path) -> None:
    run_dir = recorded.write_run(runs, run="shared", ended=False)
    viewers = [started(sshd, tmp_path, "attach", f"ssh://{HOST}/shared", "--json") for _ in range(2)]
    try:
        for viewer in viewers:
            assert viewer.stdout is not None
            assert '"k":"JournalOpened"' in viewer.stdout.readline()
        viewers[0].send_signal(signal.SIGINT)
        assert ended(viewers[0]).code == 0
        recorded.write_journal(run_dir / "logs-0.jsonl", [recorded.opened(recorded.T0, "logs")])
        wait_for(lambda: _copies(run_dir, tmp_path), "the bytes that the second viewer gets", PATIENCE_S)
    finally:
        for viewer in viewers:
            viewer.kill()
            viewer.communicate()
