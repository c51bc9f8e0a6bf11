"""The best epoch and the meters of scripts that report themselves, in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import tputui
from tests.deadline import DEADLINE_S
from tests.test_reporter_api import of_type, read_events, run_script, the_run
from tputui.reporting.process import create_run
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry.rundir import RUN_DIR_VARIABLE

BEST = """
import tputui
run = tputui.start(config={config})
for epoch, (loss, accuracy) in enumerate([(0.5, 0.1), (0.25, float("nan")), (float("nan"), 0.9), (0.3, 0.4)]):
    with run.epoch(epoch, of=5, steps=1):
        run.step(loss=loss, examples=8)
        run.valid(loss=loss, accuracy=accuracy)
with run.epoch(4):
    run.step(loss=0.0, examples=8)
"""


@pytest.mark.parametrize(
    ("config", "stars", "said"),
    [
        ({}, [True, True, False, False, False], "best validation loss: 0.25 (epoch 2)"),
        (
            {"checkpoint": {"monitor": "accuracy", "mode": "max"}},
            [True, False, True, False, False],
            "best validation accuracy: 0.9 (epoch 3)",
        ),
    ],
)
def test_the_best_epoch_is_chosen_by_a_validation_metric(
    tmp_path: Path, config: dict[str, Any], stars: list[bool], said: str
) -> None:
    done = run_script(tmp_path, BEST.replace("{config}", repr(config)))
    assert (done.returncode, done.stderr) == (0, "")
    run_dir = the_run(tmp_path)
    events = read_events(run_dir / "worker-0.jsonl")
    assert [epoch.best for epoch in of_type(events, ev.EpochEnded)] == stars
    assert of_type(events, ev.TrainingEnded)[0].reason == f"5 steps trained; {said}"
    page = tputui("show", run_dir).out
    assert said in page
    lines = re.findall(r"^epoch +\d.*", page, re.MULTILINE)
    best = max(index for index, star in enumerate(stars) if star)
    assert [index for index, line in enumerate(lines) if line.split()[2] == "best"] == [best], "only one is the best"


def test_steps_without_a_loss_use_no_more_memory_the_longer_they_go_on(tmp_path: Path) -> None:
    body = """
import tracemalloc
import tputui
run = tputui.start()
run.step(loss=1.0, examples=1)
run.step(loss=3.0, examples=3)
def train(steps):
    for step in range(steps):
        run.step(examples=32 + step % 2)
train(50_000)
tracemalloc.start()
train(50_000)
print(tracemalloc.get_traced_memory()[0] < 2_000_000)
run.step(loss=6.0, examples=2)
"""
    done = run_script(tmp_path, body)
    assert (done.stdout, done.stderr) == ("True\n", "")
    meters = of_type(read_events(the_run(tmp_path) / "worker-0.jsonl"), ev.MetersReported)
    loss = meters[-1].meters["loss"]
    assert (loss.count, loss.sum) == (1 + 3 + 2, 1 + 9 + 12)


ON_TWO_HOSTS = """
import os, time
now = 0.0
time.perf_counter = lambda: now
import tputui
run = tputui.start(total_steps=400)
for step in range(1, 401):
    with run.phase("data"):
        now += 0.005 if os.environ["GROUP_RANK"] == "1" else 0.002
    now += 0.01
    run.step(loss=1.0, examples=8)
    if step % 10 == 0:
        run.report()
run.close()
"""


def test_the_slow_host_of_a_script_on_several_hosts_is_named(tmp_path: Path) -> None:
    run_dir = create_run("pod", tmp_path, {})
    (tmp_path / "train.py").write_text(ON_TWO_HOSTS)
    places = {0: ("0", "0"), 1: ("0", "1"), 2: ("1", "0")}
    ranks = []
    for rank, (host, local) in places.items():
        names = {"RANK": str(rank), "GROUP_RANK": host, "LOCAL_RANK": local}
        env = {**os.environ, **names, "WORLD_SIZE": "3", "GROUP_WORLD_SIZE": "2", RUN_DIR_VARIABLE: str(run_dir)}
        ranks.append(subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, env=env))
    assert [rank.wait(DEADLINE_S) for rank in ranks] == [0, 0, 0]

    paces = {rank: of_type(read_events(run_dir / f"worker-{rank}.jsonl"), ev.HostPaceMeasured) for rank in places}

    assert not paces[1], "one process reports for its host"
    assert sum(pace.steps for pace in paces[2]) == 399, "all steps but the first, which has one-time work"
    assert all(pace.data_s == pytest.approx(0.005) and pace.step_s == pytest.approx(0.015) for pace in paces[2])
    assert {(pace.compute_s, pace.wait_s) for pace in paces[0]} == {(None, None)}, "not known to the reporter"
    slow = session.load(run_dir).slow_host
    assert slow is not None
    assert (slow.index, slow.part, slow.waiting) == (1, "data", 1)
    assert slow.seconds == pytest.approx(0.003)
