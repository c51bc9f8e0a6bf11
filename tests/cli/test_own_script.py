"""`tputui run -- COMMAND`: a user's own command as a run, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, only_run, run, script, shown, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import events_in, is_running, text_of, wait_for
from tputui.cli import orphans
from tputui.cli.main import main
from tputui.supervise.script import QuietCheck
from tputui.telemetry import events as ev

pytestmark = pytest.mark.usefixtures("nothing_left")


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


def test_a_command_knows_which_of_several_hosts_it_is_on(tmp_path: Path) -> None:
    script(tmp_path, "import os; print([os.environ.get(f'TPUTUI_{name}') for name in ('HOST_INDEX', 'NUM_HOSTS')])")
    words = ("--name", "several", "--nnodes", "2", "--host-index", "1", "--", sys.executable, "train.py")
    assert "['1', '2']" in run(tmp_path, *words).out
    of_another = {"TPUTUI_HOST_INDEX": "1", "TPUTUI_NUM_HOSTS": "2"}
    assert "[None, None]" in run(tmp_path, "--", sys.executable, "train.py", **of_another).out


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
import threading
try:
    print("ready", flush=True)
    threading.Event().wait()
except KeyboardInterrupt:
    print("saved", flush=True)
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
    assert "saved" in (run_dir / "worker-0.log").read_text()
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

    stopped = tputui("stop", run_dir, "--wait", f"{DEADLINE_S:g}")

    assert stopped.code == 0, stopped.out + stopped.err
    # The answer to the request is written before the end of the run.
    wait_for(lambda: shown(run_dir)["exit_code"] is not None, "the end of the run")
    page = shown(run_dir)
    assert (page["state"], page["exit_code"]) == ("stopped", 4)
    assert "killed" in page["state_reason"]
    wait_for(lambda: not is_running(child), "the end of the script's child")
    assert page["config"]["script"]["env"] == {"API_TOKEN": "[redacted]"}
    assert b"hf_a1a1" not in b"".join(path.read_bytes() for path in run_dir.rglob("*") if path.is_file())


def files_with(run_dir: Path, *secrets: str) -> list[str]:
    """Names of the files below a directory that contain one of the texts, except the output as it was printed."""
    files = [path for path in run_dir.rglob("*") if path.is_file() and path.name != "worker-0.log"]
    return [path.name for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


def test_secrets_in_a_command_are_masked_in_its_run_and_exports(tmp_path: Path) -> None:
    token = f"hf_{'a1' * 12}"
    words = ["env", "DB_PASSWORD=opensesame1", sys.executable, "-c", "pass", "--api-key", "correcthorse", token]
    result = run(tmp_path, "--no-ui", "--name", "a", "--", *words)
    assert result.code == 0, result.err
    run_dir, exported = tmp_path / "runs" / "a", tmp_path / "tables"
    assert tputui("export", run_dir, "--to", "csv", "--out", exported).code == 0
    listed = tputui("--runs-dir", tmp_path / "runs", "runs", "--json")
    texts = result.out + listed.out + json.dumps(shown(run_dir)) + tputui("show", run_dir).out
    for secret in ("opensesame1", "correcthorse", token):
        assert secret not in texts
        assert files_with(run_dir, secret) + files_with(exported, secret) == []
    assert json.loads((run_dir / "run.json").read_text())["config_path"] == (
        f"env 'DB_PASSWORD=[redacted]' {sys.executable} -c pass --api-key '[redacted]' '[redacted]'"
    )


def test_a_private_key_that_a_command_prints_and_raises_is_masked(tmp_path: Path) -> None:
    body = [f"MIIEvQIBADANBgkqhk{number:02d}x" for number in range(24)]
    script(
        tmp_path,
        f"""
import sys
key = "-----BEGIN PRIVATE KEY-----\\n" + "\\n".join({body}) + "\\n-----END PRIVATE KEY-----"
for line in key.splitlines():
    print(line, flush=True)
    print("epoch 1: reading", file=sys.stderr, flush=True)
raise ValueError("not a key: " + key)
""",
    )
    result = run(tmp_path, "--no-ui", "--name", "a", "--", sys.executable, "train.py")
    assert result.code == 3, result.err
    run_dir, page = tmp_path / "runs" / "a", tmp_path / "run.html"
    assert tputui("export", run_dir, "--to", "html", "--out", page).code == 0
    assert files_with(run_dir, *body) == []
    seen = result.out + result.err + page.read_text() + tputui("show", run_dir).out + json.dumps(shown(run_dir))
    assert [line for line in body if line in seen] == []
    assert "ValueError: not a key: [redacted]" in result.out
    assert result.out.count("worker-0 | epoch 1: reading") == len(body) + 2


def test_values_before_a_flood_of_output_are_kept_with_a_warning(tmp_path: Path) -> None:
    script(tmp_path, "import os\nos.write(1, b'step 1 loss 0.9\\n' + b'x' * (32 << 20))\n")
    assert run(tmp_path, "--name", "floods", "--", sys.executable, "train.py").code == 0
    run_dir = tmp_path / "runs" / "floods"
    assert shown(run_dir)["train_loss"] == pytest.approx(0.9)
    warnings = events_in(run_dir, "logs-0", ev.WarningRaised)
    assert ["prints faster than its metrics can be read" in warning.text for warning in warnings] == [True]


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

    wait_for(lambda: len(roles()) == 4, "samples of all processes")
    leader = events_in(run_dir, "supervisor-0", ev.WorkerStarted)[0].pid
    expected = {pids[0]: "rank 0", pids[1]: "rank 1", leader: "worker"}
    # A process that was seen before its program began is named by the next search.
    wait_for(lambda: expected.items() <= roles().items(), "the names of the ranks")

    stacks = tputui("stacks", run_dir, "--wait", f"{DEADLINE_S:g}")
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
    found = orphans.find_training_process(child)
    assert found is not None
    assert found.supervised

    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_running(supervisor.pid), "the end of the supervisor")
    assert "its supervisor" in shown(run_dir)["state_reason"]
    found = orphans.find_training_process(child)
    assert found is not None
    assert (found.run_dir, found.process.pid, found.worker.pid, found.supervised) == (run_dir, child, command, False)
    assert "ended after a request" in orphans.end_orphan(found)
    wait_for(lambda: not is_running(child) and not is_running(command), "the end of the command")


def test_silence_is_reported_once_and_only_after_long() -> None:
    check = QuietCheck(0.0)
    assert [check.check(lines, float(lines * 30)) for lines in range(20)] == [None] * 20
    reported = [second for second in range(600, 3000) if check.check(19, float(second)) is not None]
    assert reported == [19 * 30 + 600]
    assert check.check(20, 3000.0) is None
    assert "no value for 10 min" in str(check.check(20, 3600.0))


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
