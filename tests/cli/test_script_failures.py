"""The first failure of a user's command: which one is reported, and with which context."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import only_run, run, script, shown
from tests.supervise.harness import events_in, text_of, wait_for
from tputui.telemetry import events as ev

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_script_that_dies_at_once_leaves_its_output_and_a_report(tmp_path: Path) -> None:
    script(tmp_path, "import sys\nprint('no data', file=sys.stderr)\nsys.exit(9)\n")

    result = run(tmp_path, "--name", "dies", "--", sys.executable, "train.py")

    assert result.code == 3
    page = shown(tmp_path / "runs" / "dies")
    assert (page["state"], page["exit_code"]) == ("failed", 3)
    assert "exited with code 9" in page["state_reason"]
    assert page["failure"]["log"] == ["no data"]
    report = (tmp_path / "runs" / "dies" / "failure.txt").read_text()
    assert "no data" in report
    assert "error: training failed: the command exited with code 9" in result.out
    # No step was read, and nothing reported a phase; the command is one process, which nothing followed.
    assert not {"step", "phase", "followed"} & set(report.replace(",", " ").split()), report
    assert "step 0" not in result.out


FAILS_AT_FIRST = """
import os, sys, time
import tputui
is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
# The supervisor reads the journals a few times a second. What failed in one generation is reported before the next one.
journal = os.path.join(os.environ["TPUTUI_RUN_DIR"], "supervisor-0.jsonl")
while not is_first and b"FailureReported" not in open(journal, "rb").read():
    time.sleep(0.02)
run = tputui.start()
run.step(loss=1.0)
if is_first:
    raise ValueError("shard 7 is cut short")
run.step(loss=0.5)
# Until the journal has the second start, as after more than a moment of training.
while not is_first and (run.dir / "worker-0.jsonl").read_text().count("JournalOpened") < 2:
    time.sleep(0.02)
if len(sys.argv) > 1:
    os._exit(int(sys.argv[1]))
"""

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1")


def test_a_script_that_torchrun_restarts_ends_well(tmp_path: Path) -> None:
    script(tmp_path, FAILS_AT_FIRST)
    result = run(tmp_path, "--name", "again", "--", *TORCHRUN, "train.py")
    assert result.code == 0, result.err
    run_dir = tmp_path / "runs" / "again"
    assert [ended.outcome for ended in events_in(run_dir, "supervisor-0", ev.RunEnded)] == ["done"]
    assert text_of(run_dir / "supervisor.log") == ""
    page = shown(run_dir)
    assert page["failure"] is None
    assert [each["reason"] for each in page["generations"]] == ["", "ValueError: shard 7 is cut short"]


def test_a_script_that_fails_after_its_restart_is_reported_once_more(tmp_path: Path) -> None:
    script(tmp_path, FAILS_AT_FIRST)
    result = run(tmp_path, "--name", "again", "--", *TORCHRUN, "train.py", "9")
    assert result.code == 3
    run_dir = tmp_path / "runs" / "again"
    assert "exited with code 1" in events_in(run_dir, "supervisor-0", ev.RunEnded)[0].reason
    errors = [report.error for report in events_in(run_dir, "supervisor-0", ev.FailureReported)]
    assert errors == ["ValueError", "no error report"]
    assert "exit code 1" in (run_dir / "failure.txt").read_text()


LOSES_A_RANK = """
import os, signal, time
import torch
import torch.distributed as dist
import tputui
dist.init_process_group("gloo")
run = tputui.start()
if dist.get_rank() == 0:
    # torchrun ends this rank as soon as it sees the end of the other, also before its report.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(1, 20):
    if step == 3 and dist.get_rank() == 1:
        count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        # This start is recorded, and what failed before it is reported.
        for name, kind, least in (("worker-1", "JournalOpened", count + 1), ("supervisor-0", "FailureReported", count)):
            journal = run.dir / f"{name}.jsonl"
            while not journal.exists() or journal.read_text().count(kind) < least:
                time.sleep(0.05)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(5)
    dist.all_reduce(torch.ones(1))
    run.step(loss=1.0)
"""


def test_a_rank_that_is_killed_is_the_first_failure_not_the_rank_that_lost_it(tmp_path: Path) -> None:
    script(tmp_path, LOSES_A_RANK)
    # Without it, gloo of torch 2.9 may connect to the processes before the restart.
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    result = run(tmp_path, "--name", "loses", "--", *TORCHRUN, "--nproc-per-node", "2", "train.py", **env)
    assert result.code == 3
    run_dir = tmp_path / "runs" / "loses"
    page = shown(run_dir)
    assert page["state_reason"].endswith("rank 1 exited with code 5 without an error report")
    reports = events_in(run_dir, "supervisor-0", ev.FailureReported)
    assert [(each.process, each.kind) for each in reports] == [("worker-1", "killed"), ("worker-1", "exited")]
    assert reports[0].memory is not None, "whether the kernel killed it for lack of memory"
    report = (run_dir / "failure.txt").read_text()
    assert report.startswith("first failure  worker-1, core 1, ")
    assert "worker-0" in report[report.index("followed") :]
    assert "PeerLost: RuntimeError" in report[report.index("followed") :]


ENDS_BEFORE_IT_REPORTS = """
import os, pathlib, signal, sys, time
import torch
import torch.distributed as dist
import tputui
dist.init_process_group("gloo")
started = pathlib.Path("rank-0-started")
if dist.get_rank() == 1:
    while not started.exists():
        time.sleep(0.05)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "raise":
        raise ValueError("no data on this host")
    sys.exit(5)
run = tputui.start()
# torchrun ends this rank as soon as it sees the end of the other, also before its report.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
started.touch()
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reason", "kind"),
    [
        ("kill", "SIGKILL: local rank 1 ended by signal SIGKILL without an error report", "killed"),
        ("raise", "ValueError: no data on this host", "exception"),
        ("exit", "no error report: local rank 1 exited with code 5 without an error report", "exited"),
    ],
)
def test_a_rank_that_ends_before_it_reports_anything_is_the_first_failure(
    tmp_path: Path, how: str, reason: str, kind: str
) -> None:
    script(tmp_path, ENDS_BEFORE_IT_REPORTS)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    result = run(tmp_path, "--name", "early", "--", *torchrun, "train.py", how)
    assert result.code == 3
    run_dir = tmp_path / "runs" / "early"
    page = shown(run_dir)
    assert page["state_reason"] == f"the command exited with code 1: {reason}"
    assert page["failure"]["kind"] == kind
    report = (run_dir / "failure.txt").read_text()
    assert "PeerLost: RuntimeError" in report[report.index("followed") :]


def test_the_ranks_of_one_host_of_several_are_named_with_it(tmp_path: Path) -> None:
    agent = """
import sys
print("E1125 21:23:14.7 11402 api.py:882] failed (exitcode: -9) local_rank: 0 (pid: 4711) of binary: python")
sys.exit(1)
"""
    script(tmp_path, agent)
    place = ("--nnodes", "2", "--host-index", "1")
    assert run(tmp_path, "--name", "early", *place, "--", sys.executable, "train.py").code == 3
    (ended,) = events_in(tmp_path / "runs" / "early", "supervisor-1", ev.RunEnded)
    assert ended.reason.endswith("SIGKILL: local rank 0 of host 1 ended by signal SIGKILL without an error report")


def test_a_traceback_is_reported_with_the_own_line_first(tmp_path: Path) -> None:
    script(tmp_path, "def read(path):\n    import json\n    return json.loads('{' + path)\n", "reader.py")
    script(tmp_path, "import reader\nprint('starting')\nreader.read('x')\n")

    result = run(tmp_path, "--name", "fails", "--", sys.executable, "train.py")

    assert result.code == 3
    run_dir = tmp_path / "runs" / "fails"
    page = shown(run_dir)
    assert "json.decoder.JSONDecodeError: Expecting property name" in page["state_reason"]
    failure = page["failure"]
    assert (failure["error"], failure["kind"]) == ("json.decoder.JSONDecodeError", "exception")
    assert [(Path(frame["file"]).name, frame["line"], frame["function"]) for frame in failure["frames"]] == [
        ("reader.py", 3, "read"),
        ("train.py", 3, "<module>"),
    ]
    assert failure["log"] == ["starting"]
    text = (run_dir / "failure.txt").read_text()
    assert text.index("reader.py:3 in read") < text.index("train.py:3 in <module>") < text.index("Traceback")


def test_an_exception_behind_a_progress_bar_is_reported(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import sys
for step in range(1, 4):
    sys.stderr.write(f"\\rEpoch 0:  {step}0%|###       | {step}/10 [00:01<00:10,  1.5it/s, loss={1 / step:.3f}]")
sys.stderr.flush()
raise ValueError("the loss is not finite")
""",
    )
    assert run(tmp_path, "--name", "fails", "--", sys.executable, "train.py").code == 3
    page = shown(tmp_path / "runs" / "fails")
    assert page["state_reason"] == "the command exited with code 1: ValueError: the loss is not finite"
    failure = page["failure"]
    assert (failure["kind"], [frame["line"] for frame in failure["frames"]]) == ("exception", [6])


def test_an_exception_that_the_script_handled_is_not_what_killed_it(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import os, signal, traceback
try:
    raise ValueError("bad row 7")
except ValueError:
    traceback.print_exc()
print("step 8", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert run(tmp_path, "--name", "fails", "--", sys.executable, "train.py").code == 3
    page = shown(tmp_path / "runs" / "fails")
    assert page["state_reason"].endswith(" | step 8")  # the last lines that it printed
    failure = page["failure"]
    assert (failure["error"], failure["kind"], failure["log"][-1]) == ("SIGKILL", "killed", "step 8")


def test_a_wrong_argument_of_a_script_is_the_failure(tmp_path: Path) -> None:
    script(tmp_path, "import argparse\nprint('hello')\nargparse.ArgumentParser().parse_args()\n")
    assert run(tmp_path, "--name", "fails", "--", sys.executable, "train.py", "--bogus").code == 3
    page = shown(tmp_path / "runs" / "fails")
    assert page["state_reason"] == "the command exited with code 2: error: unrecognized arguments: --bogus"
    failure = page["failure"]
    assert (failure["kind"], failure["frames"], failure["log"][0]) == ("refused", [], "hello")
    assert failure["log"][-1].startswith("usage: train.py")


CHILDREN = """
import multiprocessing, os, signal, sys
def say(text):
    os.write(1, f"{text}\\n".encode())  # in one piece
def work(rank, how, printed, going_on, done):
    for step in range(3):
        say(f"[rank{rank}]: step {step}")
    # The rank that ends is the one that prints nothing after its end, of those that printed before it.
    printed.wait()
    if rank == 2:
        os._exit(7) if how == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    going_on.wait()
    say(f"[rank{rank}]: step 3")
    done.wait()
if __name__ == "__main__":
    printed, events = multiprocessing.Barrier(5), [multiprocessing.Event() for _ in range(2)]
    ranks = [multiprocessing.Process(target=work, args=(rank, sys.argv[1], printed, *events)) for rank in range(4)]
    for each in ranks:
        each.start()  # asks how the processes ended that have ended
    printed.wait()
    os.waitid(os.P_PID, ranks[2].pid, os.WEXITED | os.WNOWAIT)
    say(f"gone {ranks[2].pid}")
    sys.stdin = open("go")
    sys.stdin.read()
    for each in events:
        each.set()
    for each in ranks:
        each.join()
    sys.exit(1)
"""


@pytest.mark.parametrize(
    ("how", "error", "kind", "end"),
    [
        ("exit", "no error report", "exited", "exited with code 7"),
        ("kill", "SIGKILL", "killed", "ended by signal SIGKILL"),
    ],
)
def test_the_child_process_that_ended_first_is_named(tmp_path: Path, how: str, error: str, kind: str, end: str) -> None:
    script(tmp_path, CHILDREN)
    os.mkfifo(tmp_path / "go")
    assert run(tmp_path, "--detach", "--name", "fails", "--", sys.executable, "train.py", how).code == 0
    run_dir = tmp_path / "runs" / "fails"
    gone = re.compile(r"^gone (\d+)$", re.MULTILINE)
    pid = int(wait_for(lambda: gone.findall(text_of(run_dir / "worker-0.log")), "the end of the child")[0])
    # The supervisor has looked at the processes since: it samples the host less often.
    samples = len(events_in(run_dir, "supervisor-0", ev.HostSampled))
    wait_for(lambda: len(events_in(run_dir, "supervisor-0", ev.HostSampled)) > samples + 1, "later samples")
    (tmp_path / "go").write_text("on")
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    failure = shown(run_dir)["failure"]
    assert (failure["error"], failure["kind"], failure["pid"]) == (error, kind, pid)
    assert failure["message"].startswith(f"rank 2 (pid {pid}) {end} without an error report, ")
    assert failure["message"].endswith("it last printed: [rank2]: step 2")
    assert failure["log"] == [f"[rank2]: step {step}" for step in range(3)]
    report = (run_dir / "failure.txt").read_text()
    assert report.startswith("first failure  a process of the command, ")


NATIVE_END = """
import concurrent.futures, faulthandler, multiprocessing, os, sys
def load(row):
    faulthandler.enable()
    print("F external/xla/xla/service/hlo.cc:7] Check failed: a == b", file=sys.stderr, flush=True)
    os.abort()
if __name__ == "__main__":
    print("starting", flush=True)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(load, [1]))
"""


def test_the_abort_of_a_process_of_a_pool_is_the_first_failure(tmp_path: Path) -> None:
    script(tmp_path, NATIVE_END)
    assert run(tmp_path, "--name", "fails", "--", sys.executable, "train.py").code == 3
    run_dir = tmp_path / "runs" / "fails"
    failure = shown(run_dir)["failure"]
    assert (failure["error"], failure["kind"], failure["log"]) == ("SIGABRT", "aborted", ["starting"])
    assert failure["message"] == "F external/xla/xla/service/hlo.cc:7] Check failed: a == b"
    assert [frame["line"] for frame in failure["frames"]] == [6, 10]
    assert "BrokenProcessPool" in failure["traceback"]
    assert failure["stack"].startswith("Fatal Python error: Aborted")
    assert "Traceback" not in failure["stack"]
    report = (run_dir / "failure.txt").read_text()
    assert report.index("Check failed") < report.index("train.py:10") < report.index("BrokenProcessPool")


@pytest.mark.slow  # the runtime waits 15 seconds for the other threads
@pytest.mark.xla
def test_launched_threads_that_do_not_meet_are_reported_with_a_way_round(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import torch, torch_xla
import torch_xla.core.xla_model as xm
def train(index):
    values = torch.ones(3, device=torch_xla.device())
    xm.all_reduce("sum", [values])
    print(values.sum().item())
if __name__ == "__main__":
    torch_xla.launch(train)
""",
    )
    devices = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "4"}
    assert run(tmp_path, "--name", "fails", "--", sys.executable, "train.py", **devices).code == 3
    run_dir = tmp_path / "runs" / "fails"
    failure = shown(run_dir)["failure"]
    assert "rendezvous.cc" in failure["message"]
    assert failure["frames"][0]["line"] == 9
    assert "set CPU_NUM_DEVICES=1" in (run_dir / "failure.txt").read_text()


def test_an_exception_aside_does_not_hide_the_one_that_ended_the_command(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
class Odd:
    def __del__(self):
        raise KeyError("ignored")
keep = Odd()
try:
    1 / 0
except ZeroDivisionError as error:
    raise RuntimeError("no steps") from error
""",
    )
    result = run(tmp_path, "--name", "fails", "--", sys.executable, "train.py")

    assert result.code == 3
    failure = shown(tmp_path / "runs" / "fails")["failure"]
    assert (failure["error"], failure["message"], failure["frames"][0]["line"]) == ("RuntimeError", "no steps", 9)
    assert "ZeroDivisionError" in failure["traceback"]


@pytest.mark.slow
def test_the_first_rank_that_fails_under_torchrun_is_reported_not_the_summary(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import os, sys, time
rank = int(os.environ["RANK"])
sys.stdout.write(f"rank {rank} of {os.environ['WORLD_SIZE']}\\n")
sys.stdout.flush()
if rank == 0:
    open("printed", "w").close()
while rank == 0 or not os.path.exists("printed"):
    time.sleep(0.05)
raise ValueError("bad row 7")
""",
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]

    result = run(tmp_path, "--", *torchrun, "train.py")

    assert result.code == 3, result.err
    run_dir = only_run(tmp_path)
    assert run_dir.name.endswith("-train")
    page = shown(run_dir)
    assert page["state_reason"] == "the command exited with code 1: ValueError: bad row 7"
    failure = page["failure"]
    assert (failure["error"], failure["frames"][0]["line"]) == ("ValueError", 10)
    assert "ChildFailedError" not in failure["traceback"] + "".join(failure["log"])
    assert sorted(line for line in failure["log"] if line.startswith("rank")) == ["rank 0 of 2", "rank 1 of 2"]
