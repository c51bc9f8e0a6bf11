"""`tputui doctor` over training processes that hold the device: a real one that was left behind, and others'."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import recorded
from tests.cli.test_end_to_end import Terminal
from tests.deadline import DEADLINE_S
from tests.engine.test_failures import Watched
from tests.engine.workers import LINE, make
from tests.supervise.harness import events_in, is_running, wait_for
from tputui import environment
from tputui.cli import orphans
from tputui.cli.main import main
from tputui.supervise import spawn
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.codec import encode

FOREVER = ["epochs=1000000", "checkpoint.every_epochs=1000000"]
_DOCTOR = """
import fcntl, sys, termios
from pathlib import Path
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from tputui import environment
from tputui.cli.main import main
environment.ROOT = Path(sys.argv[1])
sys.exit(main(["doctor"]))
"""


def tpu_held_by(folder: Path, pid: int) -> Path:
    """The files of a host with a v5e chip that a process holds."""
    device = folder / "sys/bus/pci/devices/0000:00:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1ae0\n")
    (device / "device").write_text("0x0063\n")
    (folder / "dev/vfio").mkdir(parents=True)
    (folder / "dev/vfio/0").touch()
    fds = folder / f"proc/{pid}/fd"
    fds.mkdir(parents=True)
    (fds / "3").symlink_to("/dev/vfio/0")
    (folder / f"proc/{pid}/comm").write_text("python\n")
    return folder


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal window."""
    made = Terminal()
    yield made
    made.close()


class Untouched(Watched):
    """A run whose processes have the command lines of a user's."""

    def _start(self) -> subprocess.Popen[bytes]:
        return spawn.start_supervisor(self.dir)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A run that trains, and its supervisor."""
    made = Untouched(make(tmp_path, "left", FOREVER, text=LINE))
    wait_for(lambda: events_in(made.dir, "worker-0", ev.MetersReported), "training")
    yield made
    made.clean_up()


@pytest.mark.xla
def test_orphaned_worker_is_ended_only_on_request(
    watched: Watched,
    tmp_path: Path,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (started,) = events_in(watched.dir, "supervisor-0", ev.WorkerStarted)
    tree = tpu_held_by(tmp_path / "host", started.pid)
    monkeypatch.setattr(environment, "ROOT", tree)
    assert main(["doctor", "--end-stale"]) == 1
    assert f"which trains your run left\n{'':<17}next: tputui stop {watched.dir}" in capsys.readouterr().out
    assert is_running(started.pid), "its supervisor lives"

    watched.supervisor.kill()
    watched.supervisor.wait()
    assert main(["doctor"]) == 1
    assert "and whose supervisor is gone\n" in (result := capsys.readouterr().out)
    assert "next: tputui doctor --end-stale" in result
    assert is_running(started.pid), "nobody was asked"

    for answer in ("n", "y"):
        drawn = len(terminal.drawn)
        with subprocess.Popen(
            [sys.executable, "-P", "-c", _DOCTOR, str(tree)],
            stdin=terminal.slave,
            stdout=terminal.slave,
            stderr=terminal.slave,
            start_new_session=True,
        ) as doctor:
            wait_for(lambda seen=drawn: "[y/N]" in terminal.drawn[seen:], "the question")  # type: ignore[misc]
            terminal.press(f"{answer}\n")
            doctor.wait(DEADLINE_S)
        assert is_running(started.pid) == (answer == "n")
    wait_for(lambda: "ended after a request to save and stop" in terminal.drawn, "what became of it")
    (ended,) = events_in(watched.dir, "worker-0", ev.TrainingEnded)
    assert ended.outcome == "stopped"
    assert (watched.dir / "checkpoints" / "last.pt").is_file()


def claim(run_dir: Path, pid: int, started: int, *, writer: str = "worker-0", host_id: str | None = None) -> Path:
    """Writes a journal that names a process as its writer; returns the journal."""
    me = rundir.this_process()
    head = ev.JournalOpened(
        t=recorded.T0,
        format=1,
        writer=writer,
        role=writer.partition("-")[0],
        host=me.host,
        host_id=host_id or me.host_id,
        pid=pid,
        pid_started=started,
        version="0",
        blocks="",
    )
    journal = run_dir / f"{writer}.jsonl"
    journal.write_bytes(encode(head, 0))
    return journal


def pretend(run_dir: Path, user: int | None = None) -> subprocess.Popen[bytes]:
    """A process with the command line of a training process."""
    words = ["/bin/sh", "-c", "read _", "-m", "engine.worker", str(run_dir)]
    process = subprocess.Popen(words, cwd="/", stdin=subprocess.PIPE, user=user)
    # The kernel shows the new command line a moment after the new program has begun.
    command_line = Path(f"/proc/{process.pid}/cmdline")
    wait_for(lambda: b"engine.worker" in command_line.read_bytes(), "the command line")
    return process


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run whose supervisor is gone."""
    made = rundir.create(tmp_path, recorded.manifest("made-up"))
    claim(made, os.getpid(), started=1, writer="supervisor-0")
    return made


@pytest.fixture
def sleeper(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One of this user's."""
    with pretend(run_dir) as process:
        yield process
        process.kill()


def test_process_is_ours_if_its_journal_names_it(sleeper: subprocess.Popen[bytes], run_dir: Path) -> None:
    assert orphans.find_training_process(sleeper.pid) is None
    claim(run_dir, sleeper.pid, started=1)
    assert orphans.find_training_process(sleeper.pid) is None, "a number that was another's before"
    claim(run_dir, sleeper.pid, rundir.start_ticks(sleeper.pid))
    found = orphans.find_training_process(sleeper.pid)
    assert found is not None
    assert not found.supervised
    claim(run_dir, os.getpid(), rundir.start_ticks(os.getpid()))
    assert orphans.find_training_process(os.getpid()) is None, "no training process by its command line"


def test_same_pid_on_another_host_hides_no_orphan(sleeper: subprocess.Popen[bytes], run_dir: Path) -> None:
    claim(run_dir, sleeper.pid, started=1, host_id="elsewhere")
    claim(run_dir, sleeper.pid, rundir.start_ticks(sleeper.pid), writer="worker-1")
    assert orphans.find_training_process(sleeper.pid) is not None


def test_unknown_supervisor_means_no_orphan(sleeper: subprocess.Popen[bytes], run_dir: Path) -> None:
    claim(run_dir, sleeper.pid, rundir.start_ticks(sleeper.pid))
    journal = claim(run_dir, os.getpid(), rundir.start_ticks(os.getpid()), writer="supervisor-0")
    content = bytearray(journal.read_bytes())
    content[20] ^= 0x01
    journal.write_bytes(content)
    for what in ("its head is damaged", "it is not there"):
        found = orphans.find_training_process(sleeper.pid)
        assert found is not None, what
        assert found.supervised, what
        journal.unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_process_of_another_user_is_never_ours(run_dir: Path) -> None:
    with pretend(run_dir, user=65534) as process:
        claim(run_dir, process.pid, rundir.start_ticks(process.pid))
        assert orphans.find_training_process(process.pid) is None
        process.kill()


def test_unresponsive_orphan_is_killed_and_reported(
    sleeper: subprocess.Popen[bytes], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(sleeper.pid, signal.SIGSTOP)
    # Before that a later signal might reach it first.
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    claim(run_dir, sleeper.pid, rundir.start_ticks(sleeper.pid))
    found = orphans.find_training_process(sleeper.pid)
    assert found is not None
    monkeypatch.setattr(orphans, "ORPHAN_GRACE_S", 0.2)
    assert orphans.end_orphan(found) == "killed: it did not save and stop within 0.2 s"
    assert sleeper.wait(DEADLINE_S) == -signal.SIGKILL
