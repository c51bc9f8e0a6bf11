"""A stop of a user's command lets the processes that train save: which processes get its signal, with real ones."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.helpers import CommandResult, script, shown, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import events_in, is_running, text_of, wait_for
from tputui.supervise.supervisor import SIGTERM_TO_ALL_S
from tputui.telemetry import events as ev

WITH_A_LOADER = """
import multiprocessing, queue, signal, sys, threading

def load(batches):
    while True:
        batches.put(1)
        threading.Event().wait(0.02)

def next_batch():
    while True:
        try:
            return batches.get(timeout=0.2)
        except queue.Empty:
            if not worker.is_alive():
                raise RuntimeError("the worker of the loader has exited")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    batches = context.Queue(2)
    worker = context.Process(target=load, args=(batches,), daemon=True)
    worker.start()
    asked = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    step = 0
    while not asked:
        next_batch()
        step += 1
        print("step", step, flush=True)
    for _ in range(6):  # more than were loaded before the signal
        next_batch()
    print("saved after", *asked, flush=True)
"""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


pytestmark = pytest.mark.usefixtures("nothing_left")


def started(folder: Path, *command: str, num_ready: int = 1) -> Path:
    """Starts a run of a command; returns its directory once `num_ready` of its processes have printed `step 3`."""
    words = ", ".join(f'"{word}"' for word in command)
    # So long that a process which does not get the signal does not end within the test.
    (folder / "run.toml").write_text(f"[script]\ncommand = [{words}]\nstop_grace_s = 3600\n")
    # With the programs of this environment, such as accelerate.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = tputui("--runs-dir", "runs", "run", "--detach", "--name", "mine", "run.toml", cwd=folder, PATH=path)
    assert result.code == 0, result.err
    run_dir = folder / "runs" / "mine"
    wait_for(lambda: text_of(run_dir / "worker-0.log").count("step 3\n") >= num_ready, "the first steps")
    return run_dir


def leader_of(run_dir: Path) -> int:
    """Id of the command of a run."""
    return wait_for(lambda: events_in(run_dir, "supervisor-0", ev.WorkerStarted), "the start")[0].pid


def stopped(run_dir: Path) -> CommandResult:
    """Stops the run, and waits for its end."""
    result = tputui("stop", run_dir, "--wait", "200")
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    return result


def reason_of(run_dir: Path) -> str:
    """The reason of a run that was stopped."""
    (ended,) = events_in(run_dir, "supervisor-0", ev.RunEnded)
    assert (ended.outcome, ended.exit_code) == ("stopped", 4)
    return ended.reason


WRAPPER = """
import asyncio, subprocess, sys, threading
command = [sys.executable, "train.py", "fork"]
async def copied():
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    async for line in process.stdout:
        print(line.decode(), end="", flush=True)
    return await process.wait()
if sys.argv[1] == "waits":
    sys.exit(subprocess.run(command).returncode)
if sys.argv[1] == "copies-in-loop":
    sys.exit(asyncio.run(copied()))
process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
def copy():
    for line in process.stdout:
        print(line, end="", flush=True)
if sys.argv[1] == "copies-in-thread":
    thread = threading.Thread(target=copy)
    thread.start()
    while process.poll() is None:
        threading.Event().wait(0.05)
    thread.join()
else:
    copy()
sys.exit(process.wait())
"""


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((sys.executable, "train.py", "fork"), id="fork"),
        pytest.param((sys.executable, "train.py", "spawn"), id="spawn"),
        pytest.param((sys.executable, "train.py", "forkserver"), id="forkserver"),
        pytest.param(("sh", "train.sh"), id="shell"),
        pytest.param((sys.executable, "wrapper.py", "waits"), id="wrapper"),
        pytest.param((sys.executable, "wrapper.py", "copies-output"), id="wrapper-of-output"),
        pytest.param((sys.executable, "wrapper.py", "copies-in-loop"), id="wrapper-in-event-loop"),
        pytest.param((sys.executable, "wrapper.py", "copies-in-thread"), id="wrapper-with-thread"),
        pytest.param(("sh", "-c", f"exec {sys.executable} train.py fork"), id="exec", marks=pytest.mark.slow),
        pytest.param(("accelerate", "launch", "train.py", "fork"), id="accelerate", marks=pytest.mark.slow),
        pytest.param((*TORCHRUN, "train.py", "fork"), id="torchrun", marks=pytest.mark.slow),
    ],
)
def test_a_stop_lets_a_script_with_loader_workers_save(tmp_path: Path, command: tuple[str, ...]) -> None:
    script(tmp_path, WITH_A_LOADER)
    script(tmp_path, WRAPPER, "wrapper.py")
    script(tmp_path, f"{sys.executable} train.py fork\necho end of the shell script\n", "train.sh")
    num_ranks = 2 if command[: len(TORCHRUN)] == TORCHRUN else 1

    run_dir = started(tmp_path, *command, num_ready=num_ranks)
    result = stopped(run_dir)

    log = text_of(run_dir / "worker-0.log")
    assert log.count("saved after 15\n") == num_ranks, log
    assert "exited" not in log
    assert reason_of(run_dir) == "stopped on request"
    assert (result.code, result.out.splitlines()[-1].partition(" after ")[0]) == (0, "applied:")
    assert ("end of the shell script" in log) == (command == ("sh", "train.sh"))


@pytest.mark.slow
def test_a_stop_lets_a_script_with_a_torch_data_loader_save(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import threading
import torch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        threading.Event().wait(0.02)
        return index

loader = iter(torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=2))
step = 0
try:
    while True:
        next(loader)
        step += 1
        print("step", step, flush=True)
except KeyboardInterrupt:
    next(loader)
    print("saved", flush=True)
""",
    )
    run_dir = started(tmp_path, sys.executable, "train.py")
    stopped(run_dir)
    assert text_of(run_dir / "worker-0.log").endswith("saved\n")
    assert reason_of(run_dir) == "stopped on request"


@pytest.mark.slow
def test_a_stop_reaches_the_ranks_that_a_script_spawns_itself(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import os, signal, threading
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meeting"), rank=rank, world_size=2)
    asked = []
    signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    step, ends = 0, torch.zeros(1)
    while not ends:
        step += 1
        print("step", step, flush=True)
        threading.Event().wait(0.02)
        ends = torch.tensor([float(len(asked))])
        dist.all_reduce(ends)
    print("saved", flush=True)
    dist.barrier()
    dist.destroy_process_group()  # without it torch may abort a rank that has ended

if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
""",
    )
    run_dir = started(tmp_path, sys.executable, "train.py", num_ready=2)
    stopped(run_dir)
    assert text_of(run_dir / "worker-0.log").count("saved\n") == 2
    assert reason_of(run_dir) == "stopped on request"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((sys.executable, "restarts.py"), id="python"),
        pytest.param(("sh", "-c", f"for part in 1 2; do {sys.executable} train.py $part; done"), id="shell"),
    ],
)
def test_a_script_that_a_stop_ended_does_not_train_on_if_it_is_started_again(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    script(tmp_path, "import threading\nprint('step 3', flush=True)\nthreading.Event().wait()\n")
    restarts = "import subprocess, sys\nwhile subprocess.run([sys.executable, 'train.py']).returncode:\n    pass\n"
    script(tmp_path, restarts, "restarts.py")
    run_dir = started(tmp_path, *command)
    stopped(run_dir)
    assert reason_of(run_dir).startswith("stopped on request")


@pytest.mark.slow
def test_a_launcher_does_not_restart_ranks_that_a_stop_ended(tmp_path: Path) -> None:
    script(tmp_path, "import threading\nprint('step 3', flush=True)\nthreading.Event().wait()\n")
    run_dir = started(tmp_path, *TORCHRUN, "--max-restarts", "3", "train.py", num_ready=2)
    stopped(run_dir)
    assert reason_of(run_dir) == ("stopped on request; the command exited with code 1, so its last save may be missing")


def test_a_program_that_a_script_left_by_the_stop_can_save_too(tmp_path: Path) -> None:
    script(tmp_path, WITH_A_LOADER)
    polls = """
import subprocess, sys, threading
process = subprocess.Popen([sys.executable, "train.py", "fork"])
while process.poll() is None:
    threading.Event().wait(0.02)
"""
    script(tmp_path, polls, "wrapper.py")
    run_dir = started(tmp_path, sys.executable, "wrapper.py")
    stopped(run_dir)
    assert "saved after 15\n" in text_of(run_dir / "worker-0.log")
    assert "signal SIGINT, so its last save may be missing" in reason_of(run_dir)


def test_a_command_that_fails_after_a_stop_may_not_have_saved(tmp_path: Path) -> None:
    fails = """
import sys, threading
try:
    print("step 3", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    sys.exit("the disk is full")
"""
    script(tmp_path, fails)
    run_dir = started(tmp_path, sys.executable, "train.py")

    result = stopped(run_dir)

    lack = "the command exited with code 1, so its last save may be missing"
    assert result.code == 0
    assert result.out.rstrip().endswith(f"; {lack}")
    page = shown(run_dir)
    assert (page["state"], page["exit_code"]) == ("stopped", 4)
    assert page["state_reason"] == f"stopped on request; {lack}"
    assert (page["requests"][0]["state"], page["requests"][0]["why"]) == ("applied", lack)
    text = tputui("show", run_dir).out
    assert text.count(lack) == 2, text
    assert lack in tputui("replay", "--no-ui", run_dir).out


def test_a_command_without_python_gets_the_signal_in_all_its_processes(tmp_path: Path) -> None:
    run_dir = started(tmp_path, "sh", "-c", "echo step 3; sleep 3600")
    stopped(run_dir)
    assert "ended by signal SIGINT" in reason_of(run_dir)


SAVES_ON_SIGTERM = """
import signal, sys, threading
asked = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
print("step 3", flush=True)
while not asked.wait(0.02):
    pass
threading.Event().wait(0.5)  # the save, which an interrupt would end
print("saved", flush=True)
sys.exit(int(sys.argv[1]))
"""


def terminated(run_dir: Path, command: tuple[str, ...], order: str) -> int | None:
    """The exit code of `tputui run` after SIGTERM to all processes of the run; None if they did not get it at once,
    as from a cluster, because this process had to wait for a processor."""
    words = [
        "-m",
        "tputui",
        "--runs-dir",
        str(run_dir.parent),
        "run",
        "--name",
        run_dir.name,
        "--no-ui",
        "--",
        *command,
    ]
    folder = run_dir.parent.parent
    with subprocess.Popen([sys.executable, "-P", *words], cwd=folder, stdout=subprocess.DEVNULL) as viewer:
        wait_for(lambda: "step 3" in text_of(run_dir / "worker-0.log"), "the first step")
        leader = leader_of(run_dir)
        pids = [events_in(run_dir, "supervisor-0", ev.JournalOpened)[0].pid, viewer.pid]
        began = time.monotonic()
        for pid in [-leader, *pids] if order == "command first" else [*pids, -leader]:
            os.kill(pid, signal.SIGTERM)
        is_at_once = time.monotonic() - began < SIGTERM_TO_ALL_S
        code = viewer.wait(DEADLINE_S)
    return code if is_at_once else None


@pytest.mark.parametrize("order", ["command first", "supervisor first"])
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param((sys.executable, "train.py", "0"), "stopped on request", id="saves"),
        pytest.param(
            (sys.executable, "train.py", "7"),
            "stopped on request; the command exited with code 7, so its last save may be missing",
            id="fails",
        ),
        pytest.param(
            ("sh", "-c", "echo step 3; sleep 3600"),
            "stopped on request; the command ended by signal SIGTERM, so its last save may be missing",
            id="shell",
        ),
    ],
)
def test_sigterm_to_all_processes_of_a_run_is_a_stop(
    tmp_path: Path, command: tuple[str, ...], reason: str, order: str
) -> None:
    script(tmp_path, SAVES_ON_SIGTERM)
    for attempt in itertools.count():
        run_dir = tmp_path / "runs" / f"mine-{attempt}"
        code = terminated(run_dir, command, order)
        if code is not None:
            break
    assert code == 4
    # The supervisor may interrupt a shell before the other signal arrives.
    interrupted = reason.replace("SIGTERM", "SIGINT")
    assert reason_of(run_dir) in ((reason, interrupted) if order == "supervisor first" else (reason,))
    assert ("saved" in text_of(run_dir / "worker-0.log")) == (command[0] != "sh")


def test_a_stop_lets_a_script_save_that_handles_only_sigterm(tmp_path: Path) -> None:
    script(tmp_path, SAVES_ON_SIGTERM)
    run_dir = started(tmp_path, sys.executable, "train.py", "0")
    stopped(run_dir)
    assert text_of(run_dir / "worker-0.log").endswith("saved\n")
    assert reason_of(run_dir) == "stopped on request"


def test_a_stop_reaches_what_a_shell_script_started_in_the_background(tmp_path: Path) -> None:
    # Such a process ignores SIGINT.
    script(tmp_path, SAVES_ON_SIGTERM)
    run_dir = started(tmp_path, "sh", "-c", f"{sys.executable} train.py 0 & wait")
    stopped(run_dir)
    assert text_of(run_dir / "worker-0.log").endswith("saved\n")
    assert reason_of(run_dir) == "stopped on request"


def test_sigterm_to_the_command_alone_is_a_failure(tmp_path: Path) -> None:
    run_dir = started(tmp_path, "sh", "-c", "echo step 3; exec sleep 3600")
    os.kill(leader_of(run_dir), signal.SIGTERM)
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    page = shown(run_dir)
    assert (page["state"], page["exit_code"]) == ("failed", 3)
    assert "the command ended by signal SIGTERM" in page["state_reason"]


def warnings_of(run_dir: Path) -> list[str]:
    """The warnings of the supervisor."""
    return [warning.text for warning in events_in(run_dir, "supervisor-0", ev.WarningRaised)]


# The shell waits in its own `read`, so that exactly one process is left at any moment.
UPLOADS = "(read line < go; echo uploaded > up) & echo step 3"


@contextmanager
def upload_let_go(folder: Path) -> Iterator[None]:
    """Lets UPLOADS go on in `folder`, whose `go` is a FIFO."""
    # Opened for both ends, which never blocks, and kept open, so that the line waits for a late reader too.
    with (folder / "go").open("r+b", buffering=0) as go:
        go.write(b"go\n")
        yield


def test_a_process_that_a_command_leaves_may_finish(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    run_dir = started(tmp_path, "sh", "-c", UPLOADS)
    # Every view shows what the run waits for.
    wait_for(lambda: "left running" in tputui("replay", "--no-ui", run_dir).out, "the warning")
    assert shown(run_dir)["state"] == "running"
    with upload_let_go(tmp_path):
        wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    assert text_of(tmp_path / "up") == "uploaded\n"
    (waits,) = warnings_of(run_dir)
    assert waits.startswith(
        "the command exited with code 0; waiting up to 1 min 00 s for 1 process that it left running: sh (pid "
    )
    assert shown(run_dir)["state_reason"] == "the command exited with code 0"


def test_a_process_that_does_not_finish_is_named_and_ended(tmp_path: Path) -> None:
    # Before its exec the child still has the name of the shell.
    named = "sleep 3600 & until read name < /proc/$!/comm && test $name = sleep; do :; done; echo $!"
    (tmp_path / "run.toml").write_text(f'[script]\ncommand = ["sh", "-c", "{named}"]\nexit_grace_s = 0.2\n')
    result = tputui("--runs-dir", "runs", "run", "--name", "mine", "run.toml", cwd=tmp_path)
    assert result.code == 0, result.err
    run_dir = tmp_path / "runs" / "mine"
    pid = int(text_of(run_dir / "worker-0.log"))
    wait_for(lambda: not is_running(pid), "the end of the process")
    assert f"warning: ended 1 process that the command left running: sleep (pid {pid})" in result.out


def test_a_stop_ends_the_wait_for_what_a_command_left(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    run_dir = started(tmp_path, "sh", "-c", UPLOADS)
    wait_for(lambda: warnings_of(run_dir), "the warning")
    result = tputui("stop", run_dir)
    assert "refused: the command ended before this was done" in result.out
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    assert shown(run_dir)["state"] == "done"
    assert "that the command left running" in warnings_of(run_dir)[-1]


def test_what_a_stopped_command_leaves_may_finish(tmp_path: Path) -> None:
    saves = f"""
import subprocess, threading
try:
    print("step 3", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    subprocess.Popen(["sh", "-c", {UPLOADS!r}])
"""
    script(tmp_path, saves)
    os.mkfifo(tmp_path / "go")
    run_dir = started(tmp_path, sys.executable, "train.py")
    assert tputui("stop", run_dir, "--wait", "0").code != 2
    wait_for(lambda: warnings_of(run_dir), "the warning")
    with upload_let_go(tmp_path):
        wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    assert text_of(tmp_path / "up") == "uploaded\n"
    assert reason_of(run_dir) == "stopped on request"


def test_a_daemon_of_a_command_is_named_and_goes_on(tmp_path: Path) -> None:
    daemon = """
import os, sys
if os.fork() == 0:
    os.setsid()
    # exec closes the pipe: its end is the sign that the daemon has its own name.
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.execvp("sleep", ["sleep", "3600"])
    os.close(writer)
    os.read(reader, 1)
    print(pid, flush=True)
    os._exit(0)
os.wait()
"""
    script(tmp_path, daemon)
    command = f"{sys.executable} train.py; echo step 3"
    run_dir = started(tmp_path, "sh", "-c", command)
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    pid = int(text_of(run_dir / "worker-0.log").split()[0])
    try:
        assert warnings_of(run_dir) == [
            f"still running: 1 process that left the process group of training: sleep (pid {pid})"
        ]
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
