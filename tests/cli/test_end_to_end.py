"""The commands over the real engine on eight virtual cores, with everything that may be killed being killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import forked
from tests.cli.helpers import CommandResult, tputui
from tests.deadline import DEADLINE_S
from tests.live import LiveRun
from tests.supervise.harness import events_in, is_running, wait_for
from tputui.telemetry import events as ev

pytestmark = pytest.mark.xla

CONFIG = Path(__file__).parents[2] / "sample_configs/digits.toml"
FOREVER = ("--set", "epochs=100000", "--set", "device.cores=2", "--set", "model.channels=4")
"""Two cores and a small network, since these runs are only started, watched and ended."""


_IN_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from tputui.cli.main import main
sys.exit(main())
"""


class Terminal:
    """A terminal of 100x30 whose keys a test presses, and which it may close."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.drawn = ""
        """Everything that was written to it."""
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._master, keys.encode())

    def close(self) -> None:
        """Closes the window: the session in it is hung up."""
        if not self._closing.is_set():
            self._closing.set()
            os.close(self.slave)
            self._reader.join()
            os.close(self._master)

    def _read(self) -> None:
        """Reads the output like a terminal, so that the program does not block."""
        while not self._closing.is_set():
            if select.select([self._master], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    self.drawn += os.read(self._master, 65_536).decode("utf-8", "replace")


class Live(LiveRun):
    """A run of the sample configuration."""

    def shown(self) -> dict[str, object]:
        """The object that `show --json` prints."""
        printed: dict[str, object] = json.loads(tputui("show", self.dir, "--json").out)
        return printed


class Runs:
    """Starts runs in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Live] = []

    def start(self, name: str, *words: str, terminal: Terminal | None = None) -> Live:
        """Starts `tputui run`, perhaps in a terminal, and waits for its first steps."""
        arguments, env = ["run", str(CONFIG), "--name", name, *words], {**os.environ, "TERM": "xterm-256color"}
        viewer: subprocess.Popen[str] | forked.PipedProcess
        if terminal:
            viewer = subprocess.Popen(
                [sys.executable, "-P", "-c", _IN_A_TERMINAL, *arguments],
                cwd=self.folder,
                env=env,
                stdin=terminal.slave,
                stdout=terminal.slave,
                stderr=terminal.slave,
                text=True,
                start_new_session=True,
            )
        else:
            viewer = forked.PipedProcess(
                "tests.forked_tree", ["tputui", *arguments], cwd=self.folder, env=env, start_new_session=True
            )
        live = Live(self.folder / "runs" / name, viewer)
        self.started.append(live)
        wait_for(lambda: live.step() or viewer.poll() is not None, "the first steps")
        assert viewer.poll() is None, viewer.communicate()
        return live


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the runs: a user's repository with an `engine.py` of its own."""
    made = tmp_path_factory.mktemp("repository")
    (made / "engine.py").write_text("raise RuntimeError('the decoy was imported')")
    return made


@pytest.fixture
def runs(folder: Path) -> Iterator[Runs]:
    """Starts runs; none outlives the test."""
    made = Runs(folder)
    try:
        yield made
    finally:
        for live in made.started:
            live.clean_up()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal window."""
    made = Terminal()
    yield made
    made.close()


class Done(NamedTuple):
    """A run that trained to its end."""

    dir: Path
    result: CommandResult


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    """Two epochs, printed as events."""
    result = tputui("run", CONFIG, "--json", "--name", "done", "--set", "epochs=2", cwd=folder)
    return Done(folder / "runs" / "done", result)


class Interrupted(NamedTuple):
    """A run that saved a requested checkpoint and was then interrupted by Ctrl-C."""

    live: Live
    requested: CommandResult
    result: CommandResult


@pytest.fixture(scope="module")
def interrupted(folder: Path) -> Iterator[Interrupted]:
    """Requests a checkpoint of a run, then interrupts it once."""
    runs = Runs(folder)
    try:
        live = runs.start("interrupted", "--no-ui", *FOREVER)
        requested = tputui("checkpoint", "interrupted", cwd=folder)
        live.viewer.send_signal(signal.SIGINT)
        yield Interrupted(live, requested, live.left())
    finally:
        for started in runs.started:
            started.clean_up()


def test_finished_run_exits_0_and_prints_events(done: Done) -> None:
    assert done.result.code == 0
    events = [json.loads(line) for line in done.result.out.splitlines()]
    kinds = {event["k"] for event in events}
    assert {"RunStarted", "TopologyDeclared", "StepsRecorded", "EpochEnded", "CheckpointSaved", "RunEnded"} <= kinds
    ended = next(event for event in events if event["k"] == "RunEnded")
    assert (ended["outcome"], ended["exit_code"]) == ("done", 0)


def test_user_engine_package_does_not_shadow_ours(done: Done) -> None:
    assert "decoy" not in (done.dir / "worker-0.log").read_text()
    assert "decoy" not in done.result.err


def test_run_is_private_to_its_owner(done: Done) -> None:
    assert stat.S_IMODE(done.dir.stat().st_mode) == 0o700
    for path in done.dir.rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_show_prints_the_full_status(done: Done) -> None:
    result = tputui("show", done.dir, "--json")
    printed = json.loads(result.out)

    assert result.code == 0
    assert set(printed) >= {
        "run", "dir", "state", "config", "topology", "steps", "epochs", "cores", "meters", "xla", "memory",
        "checkpoints", "requests", "non_finite", "damage",
    }  # fmt: skip
    assert (printed["run"], printed["state"], printed["config"]["epochs"]) == ("done", "done", 2)
    assert printed["topology"]["strategy"] == "spmd"
    assert (printed["topology"]["num_cores"], printed["topology"]["num_hosts"]) == (8, 1)
    assert [epoch["epoch"] for epoch in printed["epochs"]] == [1, 2]
    assert set(printed["epochs"][0]["train"]["loss"]) == {"val", "avg", "sum", "count"}
    assert set(printed["epochs"][0]) >= {"train", "valid", "train_s", "valid_s", "sections_s"}
    assert [core["core"] for core in printed["cores"]] == list(range(8))
    assert all(core["loss"] > 0 and core["step"] == printed["steps"] for core in printed["cores"])
    assert set(printed["xla"]) >= {
        "compiles", "compile_s", "executes", "execute_s", "transfers_to_device", "transfers_from_device", "fallbacks",
    }  # fmt: skip
    assert printed["memory"]["hbm"] is None
    assert printed["memory"]["hbm_reason"]
    assert printed["memory"]["host_rss_bytes"] > 100 << 20
    assert set(printed["checkpoints"][0]) >= {"path", "step", "bytes", "seconds", "reason"}
    assert printed["damage"] == {"regions": [], "lost_records": 0}


def test_finished_run_is_listed_checked_and_replayed(done: Done) -> None:
    listed = json.loads(tputui("runs", "--json", "--runs-dir", done.dir.parent).out)
    replayed = tputui("replay", done.dir, "--no-ui")
    replayed_events = tputui("replay", done.dir, "--json")

    row = next(row for row in listed if row["run"] == "done")
    assert (row["state"], row["epoch"], row["num_cores"]) == ("done", 2, 8)
    assert tputui("check", done.dir).code == 0
    assert replayed.code == 0
    assert len(replayed.out.splitlines()) > 5
    live, again = (sorted(result.out.splitlines()) for result in (done.result, replayed_events))
    assert live == again


def test_attach_to_ended_run_exits_with_its_code(done: Done, interrupted: Interrupted) -> None:
    assert tputui("attach", done.dir, "--no-ui").code == 0
    assert tputui("attach", interrupted.live.dir, "--no-ui").code == 4


def test_attach_without_name_reports_no_running_run(done: Done) -> None:
    result = tputui("attach", cwd=done.dir)

    assert result.code == 2
    assert "no run is running in" in result.err


def test_a_checkpoint_on_request_has_its_receipts(interrupted: Interrupted) -> None:
    assert interrupted.requested.code == 0
    requested, seen, applied = interrupted.requested.out.splitlines()
    assert requested == "requested: checkpoint"
    assert seen.startswith("seen: in phase ")
    path = applied.partition("checkpoints/")[2].partition(",")[0]
    assert (interrupted.live.dir / "checkpoints" / path).is_file()
    assert applied.startswith("applied: after step ")


def test_ctrl_c_saves_and_stops_with_4(interrupted: Interrupted) -> None:
    assert interrupted.result.code == 4
    assert "requested save and stop; press Ctrl-C again to stop at once" in interrupted.result.err
    printed = interrupted.live.shown()
    assert printed["state"] == "stopped"
    request = events_in(interrupted.live.dir, "worker-0", ev.RequestApplied)[-1]
    assert request.kind == "stop"
    assert request.path is not None
    assert (interrupted.live.dir / request.path).is_file()
    assert not is_running(interrupted.live.worker_pid)


@pytest.mark.slow
def test_ctrl_c_with_closed_pipe_reports_the_end_once(runs: Runs) -> None:
    live = runs.start("piped", "--json", *FOREVER)
    assert live.viewer.stdout is not None
    assert live.viewer.stderr is not None
    live.viewer.stdout.close()
    live.viewer.send_signal(signal.SIGINT)
    err = live.viewer.stderr.read()
    live.viewer.stderr.close()
    assert live.viewer.wait(DEADLINE_S) == 4
    _, requested, ended = err.splitlines()
    assert requested.startswith("tputui: requested save and stop;")
    assert ended.startswith("tputui: run piped stopped: stopped on request")


@pytest.mark.slow
def test_resume_from_last_checkpoint_then_ctrl_c_twice(interrupted: Interrupted, runs: Runs) -> None:
    saved = events_in(interrupted.live.dir, "worker-0", ev.CheckpointSaved)[-1]

    live = runs.start("resumed", "--no-ui", "--resume", "interrupted", *FOREVER)
    assert events_in(live.dir, "worker-0", ev.TrainingPlanned)[0].first_step == saved.step + 1
    live.viewer.send_signal(signal.SIGINT)
    wait_for(lambda: len(list((live.dir / "requests").glob("*.json"))) == 1, "the first request")
    live.viewer.send_signal(signal.SIGINT)
    result = live.left()

    assert result.code == 4
    assert live.shown()["state"] == "stopped"


@pytest.mark.slow
def test_training_survives_hangup_and_killed_supervisor(runs: Runs, terminal: Terminal) -> None:
    live = runs.start("orphan", *FOREVER, terminal=terminal)

    terminal.close()
    live.viewer.wait(DEADLINE_S)
    live.trains_on()
    assert live.shown()["state"] == "running"

    os.kill(live.supervisor_pid, signal.SIGKILL)
    wait_for(lambda: not is_running(live.supervisor_pid), "the end of the supervisor")
    live.trains_on()
    assert live.shown()["state"] == "running"

    attached = subprocess.Popen(
        [sys.executable, "-P", "-m", "tputui", "attach", "--json", "--runs-dir", str(live.dir.parent)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert attached.stdout is not None
    assert "JournalOpened" in attached.stdout.readline()
    attached.kill()
    attached.communicate()

    live.trains_on()
    stopped = tputui("stop", live.dir)
    assert (stopped.code, stopped.out.splitlines()[-1].split(":")[0]) == (0, "applied")
    wait_for(lambda: not is_running(live.worker_pid), "the end of training")
    assert live.shown()["state"] == "stopped"


def test_q_detaches_and_supervisor_sigterm_saves_and_stops(runs: Runs, terminal: Terminal) -> None:
    live = runs.start("preempted", *FOREVER, terminal=terminal)

    wait_for(lambda: "RUNNING" in terminal.drawn, "the screen of the run")
    terminal.press("q")
    live.viewer.wait(DEADLINE_S)
    assert live.viewer.returncode == 0
    live.trains_on()

    supervisor_pid = live.supervisor_pid
    os.kill(supervisor_pid, signal.SIGTERM)
    wait_for(lambda: not is_running(supervisor_pid), "the end of the supervisor")

    assert live.shown()["state"] == "stopped"
    saved = events_in(live.dir, "worker-0", ev.CheckpointSaved)[-1]
    assert saved.reason == "stop"
    assert [event.kind for event in events_in(live.dir, "worker-0", ev.RequestApplied)] == ["stop"]


@pytest.mark.slow
def test_killed_worker_exits_3_without_losing_reports(runs: Runs) -> None:
    live = runs.start("killed", "--no-ui", *FOREVER)
    step = live.step()

    os.kill(live.worker_pid, signal.SIGKILL)
    result = live.left()
    printed = live.shown()

    assert result.code == 3
    assert (printed["state"], tputui("check", live.dir).code) == ("failed", 0)
    assert int(str(printed["steps"])) >= step
    assert "SIGKILL" in result.out + result.err


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("device.cores=9", "device.cores"),
        ("optim.lr=-1", "optim.lr"),
        ("optim.lrr=1", 'did you mean "lr"'),
        ("data.global_batch=60", "60 is not divisible by 8 cores"),
        ("data.folder=nowhere", "folder"),
        ("model.chanels=3", "channels"),
        ("task=digit", "task"),
        ("epochs", "expected key=value"),
    ],
)
def test_bad_value_exits_2_and_leaves_nothing(tmp_path: Path, override: str, words: str) -> None:
    result = tputui("run", CONFIG, "--set", override, cwd=tmp_path)

    assert result.code == 2
    assert words in result.err
    assert "Traceback" not in result.err
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    result = tputui("run", "nowhere.toml", cwd=tmp_path)

    assert result.code == 2
    assert "nowhere.toml: no such file" in result.err


def test_existing_name_is_rejected(done: Done) -> None:
    result = tputui("run", CONFIG, "--name", "done", "--runs-dir", done.dir.parent)

    assert result.code == 2
    assert "choose another --name" in result.err


def test_resume_without_checkpoint_is_rejected(tmp_path: Path, recorded_run: Path) -> None:
    result = tputui("run", CONFIG, "--resume", recorded_run, "--runs-dir", tmp_path / "runs")

    assert result.code == 2
    assert "the run saved no checkpoint" in result.err
    assert not (tmp_path / "runs").exists()


def test_resume_rejects_incompatible_configuration(done: Done, tmp_path: Path) -> None:
    result = tputui("run", CONFIG, "--resume", done.dir, "--set", "model.channels=16", cwd=tmp_path)

    assert result.code == 2
    assert result.err.startswith("tputui: --set model.channels=16: model.channels: it was 32 when ")
    assert "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_bare_command_opens_the_list_in_a_terminal(interrupted: Interrupted, terminal: Terminal) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _IN_A_TERMINAL, "--runs-dir", str(interrupted.live.dir.parent)],
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        start_new_session=True,
    ) as process:
        try:
            wait_for(lambda: "interrupted" in terminal.drawn or process.poll() is not None, "the list of runs")
            terminal.press("q")
            assert process.wait(DEADLINE_S) == 0, terminal.drawn
            wait_for(lambda: "\x1b[?1049l" in terminal.drawn, "the shell's screen again")
        finally:
            process.kill()
