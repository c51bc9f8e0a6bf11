"""`tputui run -- COMMAND`: a user's own command as a run, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import DEADLINE_S, CommandResult, one_sentence, tputui
from tests.supervise.harness import events_in, is_running, text_of, wait_for
from tputui.cli import doctor
from tputui.cli.main import main
from tputui.supervise.script import QuietCheck
from tputui.telemetry import events as ev
from tputui.telemetry import rundir, stack_frames


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Kills the commands that a failed test left running; their supervisors then end."""
    yield
    for run_dir in rundir.listing(tmp_path / "runs") if (tmp_path / "runs").exists() else []:
        for head in events_in(run_dir, "logs-0", ev.JournalOpened):
            if rundir.is_alive(rundir.process_of(head)):
                os.killpg(head.pid, signal.SIGKILL)


def run(folder: Path, *words: str, **env: str) -> CommandResult:
    """Runs `tputui run WORDS` in a folder with a directory of runs of its own."""
    return tputui("--runs-dir", folder / "runs", "run", *words, cwd=folder, deadline_s=DEADLINE_S, **env)


def only_run(folder: Path) -> Path:
    """The only run in the folder."""
    (found,) = rundir.listing(folder / "runs")
    return found


def shown(run_dir: Path) -> dict[str, Any]:
    """The object that `tputui show --json` prints."""
    result = tputui("show", run_dir, "--json")
    found: dict[str, Any] = json.loads(result.out)
    return found


def script(folder: Path, text: str, name: str = "train.py") -> str:
    """Writes a script; returns its name."""
    (folder / name).write_text(text)
    return name


def test_a_command_runs_unchanged_and_is_recorded(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import json, os, signal, sys
keys = ("PYTHONSAFEPATH", "PYTHONPATH", "PYTHONUNBUFFERED", "MY_OWN", "TPUTUI_RUN_DIR")
facts = {key: os.environ.get(key) for key in keys}
facts["sigint"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
facts["leads_session"] = os.getsid(0) == os.getpid()
facts["argv"], facts["cwd"], facts["path"] = sys.argv[1:], os.getcwd(), sys.path[0]
json.dump(facts, open("facts.json", "w"))
print("epoch 1 done")
""",
    )
    os.environ.pop("PYTHONSAFEPATH", None)
    result = run(tmp_path, "--", sys.executable, "train.py", "--lr", "0.1", "--", "x", PYTHONPATH="mine", MY_OWN="é")

    assert result.code == 0, result.err
    assert "epoch 1 done" in result.out
    run_dir = only_run(tmp_path)
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts == {
        "PYTHONSAFEPATH": None,
        "PYTHONPATH": "mine",
        "PYTHONUNBUFFERED": "1",
        "MY_OWN": "é",
        "TPUTUI_RUN_DIR": str(run_dir),
        "sigint": True,
        "leads_session": True,
        "argv": ["--lr", "0.1", "--", "x"],
        "cwd": str(tmp_path),
        "path": str(tmp_path),
    }
    assert run_dir.name.endswith("-train")
    assert (run_dir / "worker-0.log").read_text() == "epoch 1 done\n"
    page = shown(run_dir)
    assert (page["state"], page["exit_code"]) == ("done", 0)
    assert page["config"]["script"]["command"] == [sys.executable, "train.py", "--lr", "0.1", "--", "x"]
    head = events_in(run_dir, "logs-0", ev.JournalOpened)[0]
    assert head.pid == events_in(run_dir, "supervisor-0", ev.WorkerStarted)[0].pid
    assert {beat.phase for beat in events_in(run_dir, "logs-0", ev.HeartbeatSent)} <= {"unknown"}


def test_a_script_that_dies_at_once_leaves_its_output_and_a_report(tmp_path: Path) -> None:
    script(tmp_path, "import sys\nprint('no data', file=sys.stderr)\nsys.exit(9)\n")

    result = run(tmp_path, "--name", "dies", "--", sys.executable, "train.py")

    assert result.code == 3
    page = shown(tmp_path / "runs" / "dies")
    assert (page["state"], page["exit_code"]) == ("failed", 3)
    assert "exit code 9" in page["state_reason"]
    assert page["failure"]["log"] == ["no data"]
    report = (tmp_path / "runs" / "dies" / "failure.txt").read_text()
    assert "no data" in report
    assert "error: training failed: the command ended by exit code 9" in result.out
    # No step was read, and nothing reported a phase; the command is one process, which nothing followed.
    assert not {"step", "phase", "followed"} & set(report.replace(",", " ").split()), report
    assert "step 0" not in result.out


def test_a_command_knows_which_of_several_hosts_it_is_on(tmp_path: Path) -> None:
    script(tmp_path, "import os; print([os.environ.get(f'TPUTUI_{name}') for name in ('HOST_INDEX', 'NUM_HOSTS')])")
    words = ("--name", "several", "--nnodes", "2", "--host-index", "1", "--", sys.executable, "train.py")
    assert "['1', '2']" in run(tmp_path, *words).out
    of_another = {"TPUTUI_HOST_INDEX": "1", "TPUTUI_NUM_HOSTS": "2"}
    assert "[None, None]" in run(tmp_path, "--", sys.executable, "train.py", **of_another).out


FAILS_AT_FIRST = """
import os, sys, time
import tputui
run = tputui.start()
run.step(loss=1.0)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise ValueError("shard 7 is cut short")
for _ in range(50):
    time.sleep(0.02)
    run.step(loss=0.5)
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
    assert "exit code 1" in events_in(run_dir, "supervisor-0", ev.RunEnded)[0].reason
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
for step in range(1, 20):
    if step == 3 and dist.get_rank() == 1:
        count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        journal = run.dir / "worker-1.jsonl"
        while not journal.exists() or journal.read_text().count("JournalOpened") <= count:
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
    assert page["state_reason"].endswith("rank 1 ended by exit code 5 without an error report")
    reports = events_in(run_dir, "supervisor-0", ev.FailureReported)
    assert [(each.process, each.kind) for each in reports] == [("worker-1", "killed"), ("worker-1", "exited")]
    assert reports[0].memory is not None, "whether the kernel killed it for lack of memory"
    report = (run_dir / "failure.txt").read_text()
    assert report.startswith("first failure  worker-1, core 1, ")
    assert "worker-0" in report[report.index("followed") :]
    assert "PeerLost: RuntimeError" in report[report.index("followed") :]


ENDS_BEFORE_IT_REPORTS = """
import os, signal, sys
import torch
import torch.distributed as dist
import tputui
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "raise":
        raise ValueError("no data on this host")
    sys.exit(5)
run = tputui.start()
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reason", "kind"),
    [
        ("kill", "SIGKILL: local rank 1 ended by signal SIGKILL without an error report", "killed"),
        ("raise", "ValueError: no data on this host", "exception"),
        ("exit", "no error report: local rank 1 ended by exit code 5 without an error report", "exited"),
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
    assert page["state_reason"] == f"the command ended by exit code 1: {reason}"
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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--", "no-such-program", "x"], "no-such-program: no such command in PATH"),
        (["--", "./notes.txt"], "./notes.txt: not executable"),
        (["--", "./absent"], "./absent: no such file"),
        (["--"], "there is no command after --"),
        (["--set", "lr=1", "--", "true"], "--set changes a configuration file"),
        (["--resume", "x", "--", "true"], "--resume continues training of the engine"),
        (["a.toml", "--", "true"], "either the configuration a.toml or a command"),
        (["python", "train.py"], "write tputui run -- COMMAND"),
        (["train.py"], "write tputui run -- python train.py"),
        ([], "the configuration file is missing"),
        (["--name", "a/b", "--", "true"], "run names may contain"),
    ],
)
def test_what_cannot_start_is_one_sentence_and_no_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
) -> None:
    (tmp_path / "notes.txt").write_text("not a program")
    monkeypatch.chdir(tmp_path)

    assert main(["--runs-dir", "runs", "run", *words]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line
    assert not (tmp_path / "runs").exists()


def test_a_script_that_handles_interrupts_is_stopped_as_by_ctrl_c(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import signal, subprocess, sys, threading
child = subprocess.Popen(
    [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"], stdout=subprocess.PIPE
)
try:
    # An interrupt while Python starts would end the child with another code.
    child.stdout.readline()
    print("ready", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    print("saved; child ended by", child.wait(), flush=True)
""",
    )
    result = run(tmp_path, "--detach", "--json", "--", sys.executable, "train.py")
    run_dir = Path(json.loads(result.out)["dir"])
    wait_for(lambda: "ready" in text_of(run_dir / "worker-0.log"), "the script's first line")
    wait_for(lambda: shown(run_dir)["state"] == "running", "the first heartbeat")

    refused = tputui("checkpoint", run_dir)
    stopped = tputui("stop", run_dir)

    assert refused.code != 0
    assert "does not report that it saves on request" in refused.out + refused.err
    assert stopped.code == 0, stopped.out + stopped.err
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    page = shown(run_dir)
    assert (page["state"], page["exit_code"]) == ("stopped", 4)
    assert "saved; child ended by -2" in (run_dir / "worker-0.log").read_text()
    assert [(each["kind"], each["state"]) for each in page["requests"]] == [
        ("checkpoint", "refused"),
        ("stop", "applied"),
    ]


@pytest.mark.slow  # a command has ten seconds to obey a request to stop at once
def test_a_script_that_ignores_signals_is_killed_with_its_children(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import os, signal, subprocess, sys, threading
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
while True:
    threading.Event().wait(1)
""",
    )
    (tmp_path / "train.toml").write_text(
        f'[script]\ncommand = ["{sys.executable}", "train.py"]\nstop_grace_s = 0.2\n'
        f'env = {{API_TOKEN = "hf_{"a1" * 12}"}}\n'
    )
    result = run(tmp_path, "--detach", "--name", "deaf", "train.toml")
    assert result.code == 0, result.err
    run_dir = tmp_path / "runs" / "deaf"
    log = run_dir / "worker-0.log"
    child = int(wait_for(lambda: text_of(log).strip(), "the script's first line"))

    stopped = tputui("stop", run_dir, "--wait", "120")

    assert stopped.code == 0, stopped.out + stopped.err
    # The answer to the request is written before the end of the run.
    wait_for(lambda: shown(run_dir)["exit_code"] is not None, "the end of the run")
    page = shown(run_dir)
    assert (page["state"], page["exit_code"]) == ("stopped", 4)
    assert "killed" in page["state_reason"]
    wait_for(lambda: not is_running(child), "the end of the script's child")
    assert page["config"]["script"]["env"] == {"API_TOKEN": "[redacted]"}
    assert b"hf_a1a1" not in b"".join(path.read_bytes() for path in run_dir.rglob("*") if path.is_file())


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


def test_a_foreign_traceback_is_found_among_those_of_launchers() -> None:
    lines = """[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/home/u/train.py", line 3, in main
[rank0]:   File "/home/u/train.py", line 9, in main
[rank1]: ValueError: bad row 7
[rank0]: RuntimeError: Connection closed by peer
Traceback (most recent call last):
  File "/x/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: """.splitlines()

    cause = stack_frames.cause_in(lines)

    assert cause is not None
    assert (cause.error, cause.message, cause.frames[0].line) == ("ValueError", "bad row 7", 3)
    # A rank that lost another one may print first.
    first, second = ([line for line in lines if line.startswith(f"[rank{rank}]")] for rank in (0, 1))
    message = "[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:6539"
    lost = [line.replace("Connection closed by peer", message) for line in first]
    assert stack_frames.cause_in([*lost, *second, *lines[6:]]) == cause._replace(first_line=3)
    # Lines of a log are stripped.
    assert stack_frames.cause_in([line.rstrip() for line in lines]) == cause
    assert stack_frames.cause_in(["Traceback", "Error: x", '  File "x", line 1']) is None


def test_an_exception_in_a_process_of_a_pool_is_found_where_it_was_raised() -> None:
    # As torch_xla.launch prints it.
    lines = """concurrent.futures.process._RemoteTraceback:
\"\"\"
Traceback (most recent call last):
  File "/home/u/train.py", line 18, in main
ValueError: bad row 7
\"\"\"

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/train.py", line 29, in <module>
ValueError: bad row 7""".splitlines()

    cause = stack_frames.cause_in(lines)

    assert cause is not None
    assert [(frame.line, frame.function) for frame in cause.frames] == [(18, "main")]
    assert "line 29" in cause.text


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


RANKS = """
import os, subprocess, sys
worker = "import sys, time\\ndef busy():\\n    sys.stdin.read()\\nbusy()"
ranks = []
for rank in range(2):
    env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    ranks.append(subprocess.Popen([sys.executable, "-c", worker], env=env, stdin=subprocess.PIPE))
# In one write.
print(" ".join(str(each.pid) for each in ranks), flush=True)
try:
    ranks[0].wait()
except KeyboardInterrupt:
    sys.exit(1)
"""


def test_ranks_are_named_and_their_stacks_are_read_from_outside(tmp_path: Path) -> None:
    script(tmp_path, RANKS)
    # Numbers of the launching shell are those of the whole command, not of its ranks.
    env = {"TPU_WORKER_ID": "7"}
    assert run(tmp_path, "--detach", "--name", "ranks", "--", sys.executable, "train.py", **env).code == 0
    run_dir = tmp_path / "runs" / "ranks"
    pids = [int(pid) for pid in wait_for(lambda: text_of(run_dir / "worker-0.log").split(), "the pids")]

    def roles() -> dict[int, str]:
        samples = events_in(run_dir, "supervisor-0", ev.HostSampled)
        return {each.pid: each.role for each in samples[-1].processes} if samples else {}

    named = wait_for(lambda: found if len(found := roles()) == 4 else None, "samples of all processes")
    leader = events_in(run_dir, "supervisor-0", ev.WorkerStarted)[0].pid
    assert [named[pid] for pid in (*pids, leader)] == ["rank 0", "rank 1", "worker"]

    stacks = tputui("stacks", run_dir)
    assert stacks.code == 0, stacks.err
    assert "rank 1" in stacks.out
    assert f"{tmp_path}/train.py:" in stacks.out
    assert tputui("stop", run_dir, "--now").code == 0
    wait_for(lambda: not any(map(is_running, pids)), "the end of the ranks")


def test_stacks_without_a_python_process_are_refused(tmp_path: Path) -> None:
    assert run(tmp_path, "--detach", "--name", "shell", "--", "sh", "-c", "echo up; sleep 600").code == 0
    run_dir = tmp_path / "runs" / "shell"
    wait_for(lambda: text_of(run_dir / "worker-0.log"), "the first line")

    result = tputui("stacks", run_dir)

    assert result.code == 2
    assert "none of its processes runs Python" in one_sentence(result)
    assert tputui("stop", run_dir, "--now").code == 0


def test_run_without_processes_is_lost_exit_5(tmp_path: Path) -> None:
    words = ["run", "--no-ui", "--name", "lost", "--", "sleep", "600"]
    run_dir = tmp_path / "runs" / "lost"
    with subprocess.Popen([sys.executable, "-P", "-m", "tputui", *words], cwd=tmp_path) as viewer:
        (command,) = wait_for(lambda: events_in(run_dir, "supervisor-0", ev.WorkerStarted), "the start of the command")
        for pid in (events_in(run_dir, "supervisor-0", ev.JournalOpened)[0].pid, command.pid):
            os.kill(pid, signal.SIGKILL)
        assert viewer.wait(DEADLINE_S) == 5
    assert shown(run_dir)["state"] == "lost"


def test_a_command_that_lost_its_supervisor_is_found_as_an_orphan(tmp_path: Path) -> None:
    words = ["--detach", "--name", "left", "--", "sh", "-c", "sleep 600 & echo $!; wait"]
    assert run(tmp_path, *words).code == 0
    run_dir = tmp_path / "runs" / "left"
    child = int(wait_for(lambda: text_of(run_dir / "worker-0.log"), "the pid of the child"))
    (started,) = wait_for(lambda: events_in(run_dir, "supervisor-0", ev.WorkerStarted), "the start of the command")
    command = started.pid
    supervisor = events_in(run_dir, "supervisor-0", ev.JournalOpened)[0]
    found = doctor.find_training_process(child)
    assert found is not None
    assert found.supervised

    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_running(supervisor.pid), "the end of the supervisor")
    assert "its supervisor" in shown(run_dir)["state_reason"]
    found = doctor.find_training_process(child)
    assert found is not None
    assert (found.run_dir, found.process.pid, found.worker.pid, found.supervised) == (run_dir, child, command, False)
    assert "ended after a request" in doctor.end_orphan(found)
    wait_for(lambda: not is_running(child) and not is_running(command), "the end of the command")


def test_silence_is_reported_once_and_only_after_long() -> None:
    check = QuietCheck(0.0)
    assert [check.check(lines, float(lines * 30)) for lines in range(20)] == [None] * 20
    reported = [second for second in range(600, 3000) if check.check(19, float(second)) is not None]
    assert reported == [19 * 30 + 600]
    assert check.check(20, 3000.0) is None
    assert "no value for 10 min" in str(check.check(20, 3600.0))


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
    assert page["state_reason"] == "the command ended by exit code 1: ValueError: bad row 7"
    failure = page["failure"]
    assert (failure["error"], failure["frames"][0]["line"]) == ("ValueError", 10)
    assert "ChildFailedError" not in failure["traceback"] + "".join(failure["log"])
    assert sorted(line for line in failure["log"] if line.startswith("rank")) == ["rank 0 of 2", "rank 1 of 2"]


def test_requests_are_left_to_a_script_that_acts_on_them_itself(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
import time, tputui
try:
    with tputui.start(total_steps=1_000_000) as run:
        for step in range(1_000_000):
            run.step(loss=1.0)
            time.sleep(0.01)
            if run.should_stop():
                print("left the loop")
                break
except KeyboardInterrupt:
    print("interrupted")
""",
    )
    assert run(tmp_path, "--detach", "--name", "asked", "--", sys.executable, "train.py").code == 0
    run_dir = tmp_path / "runs" / "asked"
    wait_for(lambda: events_in(run_dir, "worker-0", ev.StepsRecorded), "the first steps")

    stopped = tputui("stop", run_dir)

    assert stopped.code == 0, stopped.out + stopped.err
    wait_for(lambda: events_in(run_dir, "supervisor-0", ev.RunEnded), "the end of the run")
    assert (run_dir / "worker-0.log").read_text() == "left the loop\n"
    assert events_in(run_dir, "supervisor-0", ev.RequestApplied) == []
    page = shown(run_dir)
    assert (page["state"], page["exit_code"], page["requests"][0]["state"]) == ("stopped", 4, "applied")
    assert page["train_loss"] == 1.0
