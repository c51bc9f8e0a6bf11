"""The best epoch and the meters of scripts that report themselves, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_reporter_api import of_type, read_events, run_script, the_run
from tputui.telemetry import events as ev

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
    page = subprocess.run(
        [sys.executable, "-m", "tputui", "show", str(run_dir)], capture_output=True, text=True, check=True
    ).stdout
    assert said in page
    lines = [line for line in page.splitlines() if line.startswith("epoch ")]
    assert [line.endswith("best") for line in lines] == stars


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
