"""The reporter API in scripts of users, in processes of their own: what `tputui show` prints of their runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import recorded
from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import wait_for
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir
from tputui.telemetry.journal import Tail


def run_script(folder: Path, body: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a folder of its own."""
    (folder / "train.py").write_text(body)
    return subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def show(run_dir: Path) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(tputui("show", run_dir, "--json").out)
    return shown


def the_run(folder: Path) -> Path:
    (run_dir,) = rundir.listing(folder / "runs")
    return run_dir


def read_events(path: Path) -> list[ev.Event]:
    tail, found = Tail(path), []
    while numbered := tail.read():
        found += [each.event for each in numbered]
    tail.close()
    return found


def of_type(events: list[ev.Event], kind: type[ev.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_a_plain_loop_fills_what_show_prints(tmp_path: Path) -> None:
    body = """
import array, sys
import tputui
run = tputui.start(config={"lr": 0.5, "api_key": "a-secret-of-mine", "width": [1, 2]}, epochs=2, total_steps=8)
for epoch in range(2):
    with run.epoch(epoch):
        for batch in range(4):
            with run.phase("data"):
                pass
            loss = [1.0 / (1 + batch) + core for core in range(8)]
            run.step(loss=loss if batch else array.array("d", loss), examples=32 if batch < 3 else 8, lr=0.5)
            run.meter("accuracy", batch / 4, n=32 if batch < 3 else 8)
        with run.phase("evaluate"):
            run.valid({"loss": 2.0 - epoch}, auc=0.75, examples=100)
    run.checkpoint_saved(__file__)
run.text("a line of mine")
assert tputui.start() is run
run.close()
run.step(loss=1.0)
assert tputui.start() is not run, "another run after the end of the first"
assert not {"numpy", "torch", "jax", "textual"} & set(sys.modules)
"""
    done = run_script(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    run_dir = rundir.listing(tmp_path / "runs")[-1]
    shown = show(run_dir)
    assert shown["state"] == "done"
    assert shown["steps"] == 8
    assert [core["loss"] for core in shown["cores"]] == pytest.approx([0.25 + core for core in range(8)])
    assert shown["config"]["lr"] == 0.5
    assert "a-secret-of-mine" not in (run_dir / "run.json").read_text()
    events = read_events(run_dir / "worker-0.jsonl")
    epochs = of_type(events, ev.EpochEnded)
    assert [epoch.epoch for epoch in epochs] == [1, 2]
    means = [1.0 / (1 + batch) + 3.5 for batch in range(4)]
    loss = epochs[0].train["loss"]
    assert loss.count == 104
    assert loss.avg == pytest.approx((32 * sum(means[:3]) + 8 * means[3]) / 104)
    assert epochs[1].train["accuracy"].avg == pytest.approx((32 * (0 + 0.25 + 0.5) + 8 * 0.75) / 104)
    assert [epoch.valid["loss"].avg for epoch in epochs] == [2.0, 1.0]
    assert epochs[1].valid["auc"].avg == 0.75
    assert set(epochs[0].sections_s) >= {"data", "evaluate", "other"}
    (plan,) = of_type(events, ev.TrainingPlanned)
    assert (plan.num_epochs, plan.steps_per_epoch, plan.global_batch, plan.batch_per_core) == (2, 4, 32, 4)
    assert [event.line for event in of_type(events, ev.LogWritten)] == ["a line of mine"]
    assert of_type(events, ev.CheckpointSaved)[0].bytes == len(body)


def test_secrets_in_names_and_texts_of_a_script_are_masked(tmp_path: Path) -> None:
    body = """
import tputui
from PIL import Image
key = ["-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhk", "MIIEvQIBADANBgkqhm", "-----END PRIVATE KEY-----"]
run = tputui.start(config={"api_key": "opensesame", "TOKEN": 1}, epochs=1)
with run.epoch(1):
    with run.phase("password=opensesame"):
        run.step(loss=1.0)
    run.meter("password=opensesame", 1.0)
    run.meter("accuracy", 1.0)
run.image("password=opensesame", Image.new("L", (2, 2)), example="TOKEN")
run.text("\\n".join(key))
open("last.pt", "w").close()
run.checkpoint_saved("last.pt", reason="before https://me:opensesame@host")
raise ValueError("\\n".join(key))
""".replace("TOKEN", f"hf_{'a1' * 12}")
    done = run_script(tmp_path, body)
    assert "ValueError" in done.stderr
    run_dir = the_run(tmp_path)
    events = read_events(run_dir / "worker-0.jsonl")
    assert [path for path in run_dir.rglob("*") if path.is_file() and is_leak(path.read_bytes())] == []
    assert [path for path in run_dir.rglob("*") if "a1a1" in path.name or "opensesame" in path.name] == []
    (epoch,) = of_type(events, ev.EpochEnded)
    assert set(epoch.train) == {"loss", "password=[redacted]", "accuracy"}
    (saved,) = of_type(events, ev.CheckpointSaved)
    assert saved.reason == "before https://[redacted]@host"
    (failure,) = of_type(events, ev.FailureRaised)
    assert failure.message == "\n".join(["[redacted]"] * 4)


def is_leak(content: bytes) -> bool:
    """Whether one of the secrets of the test above is in a file."""
    return any(secret in content for secret in (b"opensesame", b"a1a1a1", b"MIIEvQIB"))


def test_errors_are_reported_once_and_never_reach_the_loop(tmp_path: Path) -> None:
    body = """
import tputui
run = tputui.start()
for step in range(3):
    run.step(loss="not a number")
    run.step(loss=[1.0, 2.0])
    run.step(loss=[1.0, 2.0, 3.0])
    run.meter("accuracy", object())
    run.image("picture", "not a picture")
    run.checkpoint_saved("there-is-no-such-file.pt")
    run.valid(loss=object())
    with run.epoch("no number"):
        pass
print("trained")
"""
    done = run_script(tmp_path, body)
    assert done.returncode == 0
    assert "trained" in done.stdout
    warnings = [event.text for event in of_type(read_events(the_run(tmp_path) / "worker-0.jsonl"), ev.WarningRaised)]
    assert [text.partition(" failed")[0] for text in warnings if "failed" in text] == [
        "run.step",
        "run.meter",
        "run.image",
        "run.checkpoint_saved",
        "run.valid",
        "run.epoch",
    ]
    assert any("3 values" in text and "2 before" in text for text in warnings)
    assert show(the_run(tmp_path))["state"] == "done", "closed when the script exits"


def test_a_failure_is_reported_with_its_traceback(tmp_path: Path) -> None:
    body = """
import tputui
def train(run):
    run.step(loss=0.5)
    raise ValueError("the user's own mistake")
{call}
"""
    for number, call in enumerate(("with tputui.start() as run:\n    train(run)", "train(tputui.start())")):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run_script(folder, body.format(call=call)).returncode == 1
        shown = show(the_run(folder))
        assert shown["state"] == "failed"
        (failure,) = of_type(read_events(the_run(folder) / "worker-0.jsonl"), ev.FailureRaised)
        assert failure.message == "the user's own mistake"
        assert "in train" in failure.traceback
        assert failure.frames[0].function == "train"


def test_disabled_and_unwritable_runs_do_nothing(tmp_path: Path) -> None:
    body = """
import tputui
run = tputui.start(runs_dir="a-file")
with run, run.epoch(0), run.phase("data"):
    for step in range(3):
        run.step(loss=1.0, examples=2)
        run.meter("a", 1.0); run.valid(a=1.0); run.text("a"); run.image("a", None); run.checkpoint_saved("x")
        assert not run.should_stop() and not run.save_if_asked(lambda: 1 / 0)
assert isinstance(run, tputui.Run) and run.dir is None and not run.is_active
print("trained")
"""
    (tmp_path / "a-file").write_text("")
    done = run_script(tmp_path, body)
    assert "trained" in done.stdout, done.stderr
    assert "nothing is reported to tputui: NotADirectoryError" in done.stderr
    quiet = run_script(tmp_path, body, TPUTUI_DISABLED="1")
    assert ("trained" in quiet.stdout, quiet.stderr) == (True, "")
    assert sorted(os.listdir(tmp_path)) == ["a-file", "train.py"]


STOPPABLE = """
import time, sys
import tputui
run = tputui.start()
open("run-dir", "w").write(str(run.dir))
deadline = time.monotonic() + 600
while time.monotonic() < deadline:
    time.sleep(0.01)
    run.step(loss=1.0)
    run.save_if_asked(lambda: open("saved.pt", "w").write("weights") and "saved.pt")
    if {condition} and run.should_stop():
        break
run.close()
print("left after", run._pace.step)
"""


def declared(journal: Path) -> set[str]:
    """The kinds of requests that the script serves so far: each is declared with the first call that serves it."""
    return {kind for event in of_type(read_events(journal), ev.RequestHandlingDeclared) for kind in event.kinds}


@pytest.mark.parametrize("asks", [True, False])
def test_requests_are_served_or_refused_with_an_explanation(tmp_path: Path, asks: bool) -> None:
    body = STOPPABLE.format(condition="True" if asks else "'stop' in sys.argv")
    kinds = {"checkpoint", "stop"} if asks else {"checkpoint"}
    (tmp_path / "train.py").write_text(body)
    process = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        journal = wait_for(lambda: next((tmp_path / "runs").glob("*/worker-0.jsonl"), None), "the journal")
        wait_for(lambda: kinds <= declared(journal), "the first calls that serve requests")
        requests.submit(journal.parent, "checkpoint", by="test", now=time.time())
        wait_for(lambda: of_type(read_events(journal), ev.RequestApplied) or None, "the journal")
        requests.submit(journal.parent, "stop", by="test", now=time.time())
        if asks:
            assert process.wait(DEADLINE_S) == 0
        else:
            wait_for(lambda: of_type(read_events(journal), ev.RequestRefused) or None, "the journal")
    finally:
        process.kill()
        process.communicate()
    events = read_events(journal)
    saved = of_type(events, ev.RequestApplied)[0]
    assert saved.kind == "checkpoint"
    assert saved.path == str(tmp_path / "saved.pt")
    assert saved.bytes == len("weights")
    if asks:
        assert show(journal.parent)["state"] == "stopped"
        assert [event.kind for event in of_type(events, ev.RequestApplied)] == ["checkpoint", "stop"]
        assert [event.reason for event in of_type(events, ev.CheckpointSaved)] == ["request", "request"]
    else:
        assert "does not call run.should_stop()" in of_type(events, ev.RequestRefused)[0].why


def test_a_script_without_a_supervisor_reports_its_stacks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STOPPABLE.format(condition="True"))
    process = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        journal = wait_for(lambda: next((tmp_path / "runs").glob("*/worker-0.jsonl"), None), "the journal")
        wait_for(lambda: of_type(read_events(journal), ev.HeartbeatSent) or None, "a heartbeat")
        done = tputui("stacks", journal.parent, "--wait", str(DEADLINE_S))
        assert done.code == 0, done.err
        assert f"{tmp_path}/train.py:" in done.out
    finally:
        process.kill()
        process.communicate()


EARLY = """
import time
import tputui
from tputui.telemetry import requests
run = tputui.start()
journal = run.dir / "worker-0.jsonl"

def beats(number):
    while journal.read_bytes().count(b'"HeartbeatSent"') < number:
        time.sleep(0.02)

beats(1)
requests.submit(run.dir, "stop", by="test", now=time.time())
# It was polled while the script prepares its first step, as for minutes in a compilation.
beats(4)
run.step(loss=1.0)
while not run.should_stop():
    time.sleep(0.01)
    run.step(loss=1.0)
run.close()
"""


def test_a_stop_before_the_first_step_is_served_by_the_loop(tmp_path: Path) -> None:
    done = run_script(tmp_path, EARLY)
    assert (done.returncode, done.stderr) == (0, "")
    events = read_events(the_run(tmp_path) / "worker-0.jsonl")
    assert of_type(events, ev.RequestRefused) == []
    assert [event.kind for event in of_type(events, ev.RequestApplied)] == ["stop"]
    assert of_type(events, ev.TrainingEnded)[0].outcome == "stopped"


RANKS = """
import multiprocessing, os, sys
import PIL.Image
import tputui

def rank(number):
    os.environ.update(RANK=str(number), WORLD_SIZE="3")
    run = tputui.start()
    with run.epoch(1):
        for step in range(5):
            run.step(loss=float(number), examples=4)
        run.image("rank", PIL.Image.new("L", (2, 2), number))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    {before}
    ranks = [context.Process(target=rank, args=(number,)) for number in range({first}, 3)]
    for process in ranks: process.start()
    for process in ranks: process.join()
    assert not any(process.exitcode for process in ranks)
    {after}
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_rank_has_a_journal_and_is_shown_as_one_core(tmp_path: Path, method: str) -> None:
    body = RANKS.format(before="", after="", first=0).replace("sys.argv[1]", repr(method))
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest("launched"))
    done = run_script(tmp_path, body, TPUTUI_RUN_DIR=str(run_dir))
    assert done.returncode == 0, done.stderr
    shown = show(run_dir)
    assert shown["state"] == "done"
    assert [(core["core"], core["loss"], core["step"]) for core in shown["cores"]] == [
        (n, float(n), 5) for n in range(3)
    ]
    assert shown["topology"]["num_cores"] == 3
    folders = [run_dir / "pictures" / name / "epoch-0001" for name in ("", "rank-1", "rank-2")]
    for number, folder in enumerate(folders):
        (path,) = folder.iterdir()
        assert Image.open(path).getpixel((0, 0)) == number


def test_process_with_the_rank_of_another_warns_that_it_is_not_shown(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest("launched"))
    body = "import tputui\nfor _ in range(2):\n    tputui.start().step(loss=0.5)"
    first, restarted = (run_script(tmp_path, body, TPUTUI_RUN_DIR=str(run_dir)) for _ in range(2))
    assert (first.returncode, first.stderr) == (0, "")
    assert restarted.returncode == 0
    assert "has a journal of rank 0 already; this process is not shown" in restarted.stderr


AGENT = """
import subprocess, sys
for _ in range(int(sys.argv[1])):
    subprocess.run([sys.executable, "-c", "import tputui; tputui.start().step(loss=0.5)"], check=True)
"""


def test_process_that_an_agent_of_torchrun_starts_again_without_counting_continues_the_journal(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path / "runs", recorded.manifest("launched"))
    (tmp_path / "agent.py").write_text(AGENT)

    def run_agent(times: int) -> str:
        env = {**os.environ, "TPUTUI_RUN_DIR": str(run_dir), "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"}
        argv = [sys.executable, "agent.py", str(times)]
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stderr

    assert run_agent(3) == ""
    assert "has a journal of rank 0 already" in run_agent(1), "the agent of another program"
    events = read_events(run_dir / "worker-0.jsonl")
    assert [head.generation for head in of_type(events, ev.JournalOpened)] == [0, 1, 2]
    assert len(of_type(events, ev.TrainingEnded)) == 3


def test_forked_processes_join_the_run_of_their_parent_or_report_nothing(tmp_path: Path) -> None:
    before = "run = tputui.start(); run.step(loss=0.0, examples=4)"
    after = """
    pid = os.fork()
    if not pid:
        run.step(loss=9.0)
        run.step(loss=9.0)
        sys.exit()
    os.waitpid(pid, 0)
    run.step(loss=0.5)
"""
    body = RANKS.format(before=before, after=after, first=1).replace("sys.argv[1]", repr("fork"))
    done = run_script(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("forked from that of the run") == 1
    run_dir = the_run(tmp_path)
    assert sorted(path.name for path in run_dir.glob("*.jsonl")) == [f"worker-{n}.jsonl" for n in range(3)]
    assert [core["loss"] for core in show(run_dir)["cores"]] == [0.5, 1.0, 2.0]


def test_numpy_values_are_read_as_they_are(tmp_path: Path) -> None:
    body = """
import numpy as np
import tputui
run = tputui.start()
loss = np.zeros(4)
for step in range(4):
    loss += [1, 2, 3, 4]  # the same array in every step
    run.step(loss=loss if step % 2 else loss.astype("f4"))
    run.meter("accuracy", np.float32(0.5))
run.image("a gradient", np.linspace(0, 1, 12).reshape(3, 4))
for epoch in np.arange(2):
    with run.epoch(epoch, of=np.int64(2)):
        for step in np.arange(3):
            run.step(loss, np.int64(32), lr=np.float32(0.5), step=5 + 3 * epoch + step)
        run.valid(loss=np.float32(0.25), examples=np.int64(10))
run.checkpoint_saved("train.py", seconds=np.float64(0.5), best=np.bool_(True))
"""
    done = run_script(tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")
    shown = show(the_run(tmp_path))
    assert [core["loss"] for core in shown["cores"]] == [4.0, 8.0, 12.0, 16.0]
    assert shown["state"] == "done"
    events = read_events(the_run(tmp_path) / "worker-0.jsonl")
    progress = of_type(events, ev.ProgressReported)[-1]
    assert (progress.epoch, progress.step, progress.lr) == (2, 10, 0.5)
    assert [epoch.valid["loss"].count for epoch in of_type(events, ev.EpochEnded)] == [10, 10]
    assert of_type(events, ev.CheckpointSaved)[0].best
    (kept,) = of_type(events, ev.PicturesKept)
    assert (the_run(tmp_path) / kept.pictures[0].path).read_bytes().startswith(b"\x89PNG")


def test_steps_counted_anew_in_every_epoch_are_warned_of_once(tmp_path: Path) -> None:
    body = """
import tputui
run = tputui.start({"path": "/data/\\udcff"})
for epoch in range(3):
    for step in range(5):
        run.step(loss=1.0, step=step, examples="many")
"""
    done = run_script(tmp_path, body)
    assert done.returncode == 0
    warnings = [event.text for event in of_type(read_events(the_run(tmp_path) / "worker-0.jsonl"), ev.WarningRaised)]
    assert warnings == [
        "examples is not a number, but many",
        "the step numbers passed to run.step() repeat or went back; pass a number that counts over all epochs, or "
        "leave it out",
    ]


TWO_RANKS = """
import os, subprocess, sys, time
if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, "train.py"], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
             for rank in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))
import tputui
run = tputui.start(total_steps=100_000)
for step in range(100_000):
    time.sleep(0.02)
    run.step(loss=1.0, examples=8)
    if run.should_stop():
        break
run.close()
"""


def has_progress(journal: Path) -> bool:
    return journal.exists() and b'"ProgressReported"' in journal.read_bytes()


@pytest.mark.slow
def test_ranks_under_the_launcher_stop_at_the_same_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWO_RANKS)
    command = [sys.executable, "-m", "tputui", "run", "--no-ui", "--name", "two", "--", sys.executable, "train.py"]
    viewer = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run_dir = tmp_path / "runs" / "two"
    try:
        wait_for(lambda: all(has_progress(run_dir / f"worker-{rank}.jsonl") for rank in range(2)) or None, "progress")
        assert tputui("stop", "two", cwd=tmp_path).code == 0
        assert viewer.wait(DEADLINE_S) == 4
    finally:
        tputui("stop", "--now", "two", cwd=tmp_path)
        viewer.kill()
        viewer.wait()
    ends = [of_type(read_events(run_dir / f"worker-{rank}.jsonl"), ev.TrainingEnded)[0] for rank in range(2)]
    assert [end.outcome for end in ends] == ["stopped", "stopped"]
    assert ends[0].step == ends[1].step
    assert show(run_dir)["state"] == "stopped"


@pytest.mark.xla
def test_queued_steps_are_those_of_the_script_and_hold_no_graph(tmp_path: Path) -> None:
    body = """
import json, weakref
import torch
import tputui

run = tputui.start(epochs=2)
weight = torch.tensor(1.0, requires_grad=True)
losses, held = {}, []
with run.epoch(1, of=2):
    for step in range(1, 3001):
        loss = weight * (0.5 + step % 7)
        if step % 500 == 0:
            loss = float(loss)
        elif step % 50 == 0:
            held.append(weakref.ref(loss))
        losses[step] = float(loss)
        run.step(loss=loss, examples=32 if step < 2000 else 8, lr=1 / step)
    loss = None
    assert run.last_step == 3000
run.step(loss=torch.tensor([1.0, 2.0]))
with run.epoch(2):
    run.step(loss=torch.tensor(2.0), examples=8, step=4000)
    run.step(loss=torch.tensor(3.0), examples=8)
losses |= {4000: 2.0, 4001: 3.0}
run.close()
assert not any(ref() is not None for ref in held)
json.dump(losses, open("losses.json", "w"))
"""
    done = run_script(tmp_path, body)
    assert done.returncode == 0, done.stderr
    losses = {int(step): loss for step, loss in json.loads((tmp_path / "losses.json").read_text()).items()}
    run_dir = the_run(tmp_path)
    exported = tputui("export", run_dir, "--to", "jsonl", "--out", tmp_path / "tables")
    assert exported.code == 0, exported.err
    rows = map(json.loads, (tmp_path / "tables" / "steps.jsonl").read_text().splitlines())
    values = {row["step"]: row["value"] for row in rows if row["metric"] == "loss"}
    del values[3001]  # of a loss of another shape, which is warned of
    assert values == pytest.approx(losses)
    events = read_events(run_dir / "worker-0.jsonl")
    first, second = of_type(events, ev.EpochEnded)
    weights = {step: 32 if step < 2000 else 8 for step in range(1, 3001)}
    mean = sum(losses[step] * weights[step] for step in weights) / sum(weights.values())
    assert (first.step, first.train["loss"].avg) == (3000, pytest.approx(mean))
    assert first.train["loss"].count == sum(weights.values())
    assert (second.step, second.train["loss"].avg) == (4001, pytest.approx(2.5))
    assert [warning for warning in show(run_dir)["warnings"] if "2 values in step 3001" not in warning] == []
    assert first.lr == pytest.approx(1 / 3000)
    assert {planned.lr for planned in of_type(events, ev.TrainingPlanned)} == {1.0}, "that of the first step"
