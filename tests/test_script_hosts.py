"""A script on several hosts: all ranks stop and save at the same step, also in run directories of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._C._distributed_c10d import HashStore

from tests import recorded
from tests.deadline import DEADLINE_S
from tests.ports import reserved_port
from tests.supervise.harness import wait_for
from tests.test_reporter_api import declared, of_type, read_events
from tputui.reporting import agreement
from tputui.reporting.agreement import ProgramStore
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir

ALONE = """
import time
import tputui
run = tputui.start()
while True:
    time.sleep(0.01)
    run.step(loss=1.0)
    run.save_if_asked(lambda: None)
    if run.should_stop():
        break
"""
TOGETHER = """
import os
import torch
import torch.distributed as dist
import tputui
dist.init_process_group("gloo")
run = tputui.start()
step = 0
def save():
    path = os.environ["TPUTUI_RUN_DIR"] + "/saved.pt"
    if dist.get_rank() == 0:
        open(path, "w").write("weights")
    # As frameworks do: a rank that saves once more waits here for the other.
    dist.barrier()
    return path
while not run.should_stop():
    # EndingTask with an error after a minute if the other rank has left.
    loss = torch.ones(1)
    dist.all_reduce(loss)
    step += 1
    run.step(step=step, loss=float(loss))
    run.save_if_asked(save)
run.close()
# Without it the threads of gloo may abort a rank that has ended.
dist.destroy_process_group()
print("left after", step)
"""

WITH_JAX = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
import tputui
host = int(os.environ["TPUTUI_HOST_INDEX"])
jax.distributed.initialize(os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"], 2, host)
run = tputui.start()
step = 0
while not run.should_stop():
    # Waits for the other process.
    loss = multihost_utils.process_allgather(jnp.ones(1)).sum()
    step += 1
    run.step(step=step, loss=float(loss))
    run.save_if_asked(lambda: None)
run.close()
print("left after", step)
"""
ENDING = """
from pathlib import Path
from torch._C._distributed_c10d import HashStore
from tputui.reporting import agreement
agreement._POLL_S = 0.0
store = agreement.ProgramStore(
    HashStore(), Path(), 0, 1, leads_host=True, choose=lambda: 1, trains=lambda: True,
    counts_steps=lambda: True
)
store.close()
"""


@contextlib.contextmanager
def script(tmp_path: Path, body: str, run_dirs: list[Path], ranks: list[int]) -> Iterator[list[subprocess.Popen[str]]]:
    """Some ranks of a script that runs on two hosts, one rank on each."""
    (tmp_path / "train.py").write_text(body)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved_port())}
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in ranks:
            place = {"TPUTUI_HOST_INDEX": str(rank), "TPUTUI_NUM_HOSTS": "2"}
            if body != WITH_JAX:
                place |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
            env = {**os.environ, **meeting, **place, "TPUTUI_RUN_DIR": str(run_dirs[rank])}
            command = [sys.executable, "train.py"]
            started.append(subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True))
        journals = [run_dirs[rank] / f"worker-{rank}.jsonl" for rank in ranks]
        wait_for(lambda: all(journal.exists() for journal in journals), "the journals")
        wait_for(lambda: all({"checkpoint", "stop"} <= declared(journal) for journal in journals), "the first calls")
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def directories(tmp_path: Path, *, shared: bool) -> list[Path]:
    """The run directories of two hosts."""
    first = rundir.create(tmp_path / "host-0", recorded.manifest("launched"))
    return [first, first if shared else rundir.create(tmp_path / "host-1", recorded.manifest("launched"))]


@pytest.mark.parametrize(
    ("body", "shared"),
    [pytest.param(TOGETHER, True, marks=pytest.mark.slow), (TOGETHER, False), (WITH_JAX, False)],
    ids=["shared", "apart", "jax"],
)
def test_a_request_to_any_host_is_applied_by_all_at_the_same_step(tmp_path: Path, body: str, shared: bool) -> None:
    run_dirs = directories(tmp_path, shared=shared)
    journals = [run_dirs[rank] / f"worker-{rank}.jsonl" for rank in (0, 1)]
    with script(tmp_path, body, run_dirs, [0, 1]) as ranks:
        requests.submit(run_dirs[1], "checkpoint", by="test", now=time.time())
        wait_for(lambda: all(of_type(read_events(journal), ev.RequestApplied) for journal in journals), "the saves")
        requests.submit(run_dirs[1], "stop", by="test", now=time.time())
        left = {process.communicate(timeout=DEADLINE_S)[0].splitlines()[-1] for process in ranks}
        assert [process.returncode for process in ranks] == [0, 0]
    assert len(left) == 1, "both left after the same step"
    applied = [of_type(read_events(journal), ev.RequestApplied) for journal in journals]
    assert [[each.kind for each in own] for own in applied] == [["checkpoint", "stop"]] * 2
    assert [each.step for each in applied[0]] == [each.step for each in applied[1]]
    saved = [[each.path for each in of_type(read_events(journal), ev.CheckpointSaved)] for journal in journals]
    by_first = ["saved.pt", "saved.pt"] if body == TOGETHER else []
    assert saved == [by_first, []], "rank 0 alone wrote a file, for either request"


def test_a_request_is_refused_if_a_rank_reports_no_steps(tmp_path: Path) -> None:
    run_dirs = directories(tmp_path, shared=True)
    body = TOGETHER.replace("    run.step(", "    dist.get_rank() or run.step(")
    journal = run_dirs[0] / "worker-0.jsonl"
    with script(tmp_path, body, run_dirs, [0, 1]) as ranks:
        requests.submit(run_dirs[0], "stop", by="test", now=time.time())
        (refused,) = wait_for(lambda: of_type(read_events(journal), ev.RequestRefused), "the refusal")
        assert refused.why == "rank 1 reports no steps; call run.step() in every process"
        assert [process.poll() for process in ranks] == [None, None]


@pytest.mark.parametrize("rank", [0, 1])
def test_without_a_store_a_rank_in_a_directory_of_its_own_refuses_to_stop_alone(tmp_path: Path, rank: int) -> None:
    run_dirs = directories(tmp_path, shared=False)
    journal = run_dirs[rank] / f"worker-{rank}.jsonl"
    with script(tmp_path, ALONE, run_dirs, [rank]) as (process,):
        for kind in ("checkpoint", "stop"):
            requests.submit(run_dirs[rank], kind, by="test", now=time.time())
        refused = wait_for(lambda: of_type(read_events(journal), ev.RequestRefused)[1:] and read_events(journal), "two")
        assert process.poll() is None
    answers = of_type(refused, ev.RequestRefused)
    assert {answer.kind for answer in answers} == {"checkpoint", "stop"}
    assert all("--runs-dir on a file system that all hosts share" in answer.why for answer in answers)
    assert not of_type(refused, ev.RequestApplied)


def test_a_request_that_was_decided_before_a_restart_is_refused(tmp_path: Path) -> None:
    run_dirs = directories(tmp_path, shared=True)
    old = requests.submit(run_dirs[0], "stop", by="test", now=time.time())
    agreement.write(agreement.path_of(run_dirs[0], old.id), 3)
    with script(tmp_path, ALONE, run_dirs, [0]) as (process,):
        journal = run_dirs[0] / "worker-0.jsonl"
        (refused,) = wait_for(lambda: of_type(read_events(journal), ev.RequestRefused), "the refusal")
        requests.submit(run_dirs[0], "checkpoint", by="test", now=time.time())
        wait_for(lambda: of_type(read_events(journal), ev.RequestSeen), "a request after it")
        assert process.poll() is None, "it does not stop for the old request"
    assert (refused.request, refused.why) == (old.id, "training was restarted before this was done")


def test_a_request_that_does_not_reach_a_rank_is_refused_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "ARRIVAL_S", 5.0)
    store = HashStore()
    # Rank 2 of three has not called should_stop yet.
    ranks = [
        ProgramStore(
            store,
            tmp_path,
            rank,
            3,
            leads_host=True,
            choose=lambda: 100,
            trains=lambda: True,
            counts_steps=lambda: True,
        )
        for rank in (0, 1)
    ]
    request = requests.Request(id="1-1", kind="stop", t=0.0, by="test")
    try:
        found = wait_for(
            lambda: (answers := [each.agreed(request) for each in ranks])[0] and answers[1] and answers, ""
        )
    finally:
        for each in ranks:
            each.close()
    assert found == ["it did not reach rank 2 within 5 s"] * 2
    late = ProgramStore(
        store, tmp_path, 2, 3, leads_host=True, choose=lambda: 100, trains=lambda: True, counts_steps=lambda: True
    )
    try:
        assert wait_for(lambda: late.agreed(request), "the decision") == found[0]
    finally:
        late.close()


def test_a_rank_that_asks_the_store_while_it_exits_is_not_aborted() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (ended.returncode, ended.stderr) == (0, "")
