"""Losses that stay on their device until they are fetched: values, programs compiled and transfers, per framework."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.deadline import DEADLINE_S
from tests.test_reporter_api import read_events, run_script, show, the_run
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks, rundir

STEPS = 30
ONE_DEVICE = """
import json, math, os, weakref
os.environ["PJRT_DEVICE"] = "CPU"
import torch, torch_xla
import torch_xla.debug.metrics as met
import tputui
from tputui.reporting import device_values, step_recorder
step_recorder.FETCH_INTERVAL_S = 0.05

def count(name):
    return (met.metric_data(name) or [0])[0]

device = torch_xla.device()
x = torch.randn(64, 32, device=device)
w = torch.randn(32, 8, device=device, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.01)
expected = []

def train(run, steps, *, before_sync):
    for _ in range(steps):
        optimizer.zero_grad()
        losses = (x @ w).square().mean(0)
        losses.mean().backward()
        optimizer.step()
        if before_sync:
            run.step(loss=losses, examples=64)
        torch_xla.sync()
        if not before_sync:
            run.step(loss=losses, examples=64)
        if run.is_active:
            expected.append(losses.tolist())

run = tputui.start()
counts = []
for before_sync in (False, True):
    train(run, 3, before_sync=before_sync)
    before = count("CompileTime")
    train(run, {steps}, before_sync=before_sync)
    counts.append(count("CompileTime") - before)
total = torch.zeros((), device=device)
step_recorder.PENDING_MAX = 3
for _ in range(6):
    total += 1.0
    torch_xla.sync()
    run.meter("total", total)
counts.append(run._recorder.readings("train")["total"].count)
run.close()

step_recorder.FETCH_INTERVAL_S, step_recorder.PENDING_MAX = 1e9, 4096
run = tputui.start(name="later")
graphs, later = [], []

def report(loss, value):
    run.step(loss=loss)
    later.append(value)

for _ in range(device_values.WATCHED + 2):
    loss = (w * 2).square().sum()
    loss.register_hook(hook := lambda grad: None)
    run.step(loss=loss)
    graphs.append(weakref.ref(hook))
    torch_xla.sync()
    later.append(loss.item())
    del loss, hook
alive = [graph() is not None for graph in graphs]
both = torch.zeros(2, device=device)
one = both[0]
both += 3
report(one, 3.0)
changed = torch.zeros((), device=device)
changed.data.add_(4)
report(changed, 4.0)
before = torch.zeros((), device=device) + 5
report(before, 5.0)
before.add_(2)
for value in (math.nan, 7.0, 7.0):
    donated = torch.zeros((), device=device) + 7
    torch_xla.sync()
    report(donated, value)
    donated.detach().add_(1)
    torch_xla.sync()
    run.valid(score=1.0)
run.close()
json.dump([counts, expected, later, alive], open("expected.json", "w"))
"""
SPMD = """
import json, math, os
os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES="8")
import numpy as np
import torch, torch_xla
import torch_xla.runtime as xr
import torch_xla.debug.metrics as met
import torch_xla.distributed.spmd as xs
import tputui
from tputui.reporting import step_recorder
step_recorder.FETCH_INTERVAL_S = 0.05

xr.use_spmd()
device = torch_xla.device()
mesh = xs.Mesh(np.arange(8), (8,), ("data",))
x = torch.randn(64, 32).to(device)
xs.mark_sharding(x, mesh, ("data", None))
w = torch.randn(32, 8).to(device).requires_grad_()
optimizer = torch.optim.SGD([w], lr=0.01)
run = tputui.start()
kept = []
for step in range({steps}):
    optimizer.zero_grad()
    losses = (x @ w).square().view(8, -1).mean(1)
    losses.mean().backward()
    optimizer.step()
    torch_xla.sync()
    run.step(loss=losses, examples=64)
    kept.append(losses)
    if step == 3:
        before = met.metric_data("CompileTime")[0]
run.valid(score=1.0)
counts = [met.metric_data("CompileTime")[0] - before]
expected = [losses.tolist() for losses in kept]
step_recorder.FETCH_INTERVAL_S = 1e9
run.step(loss=losses)
losses.detach().add_(1)
torch_xla.sync()
expected.append([math.nan] * 8)
run.close()
json.dump([counts, expected], open("expected.json", "w"))
"""
SPMD_MEAN = """
import os
os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES="4")
import torch, torch_xla
import torch_xla.runtime as xr
import tputui

xr.use_spmd()
run = tputui.start(total_steps=3)
for step in range(3):
    loss = torch.ones(64, device=torch_xla.device()).mean() * step
    torch_xla.sync()
    run.step(loss=loss, examples=64)
run.close()
"""
THREADS = """
import os, threading
os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES="8")
import torch, torch_xla
import torch_xla.runtime as xr
import tputui

one_at_a_time = threading.Lock()

def train(index):
    run = tputui.start()
    weight = torch.zeros(4, device=torch_xla.device())
    with run.epoch(0, of=1):
        for step in range(6):
            weight = weight + 1.0
            loss = weight.mean() + xr.global_ordinal()
            with one_at_a_time:
                torch_xla.sync()
            run.step(loss=loss, examples=2)
    run.close()

if __name__ == "__main__":
    torch_xla.launch(train, start_method="fork")
"""
THREADS_SAVE = """
import os, threading, time
os.environ.update(PJRT_DEVICE="CPU", CPU_NUM_DEVICES="4")
import torch_xla
import torch_xla.runtime as xr
import tputui
from tputui.telemetry import requests

# As a save in which the cores wait for each other.
all_save = threading.Barrier(4)

def train(index):
    run = tputui.start()
    core = xr.global_ordinal()

    def save():
        all_save.wait(120)
        if core == 0:
            open("weights.pt", "w").write("weights")
        return "weights.pt"

    while not run.should_stop():
        time.sleep(0.01)
        run.step(loss=float(core))
        if core == 0 and run.last_step == 5:
            requests.submit(run.dir, "checkpoint", by="test", now=time.time())
        if run.save_if_asked(save) and core == 0 and not os.path.exists("stopped"):
            open("stopped", "w").close()
            requests.submit(run.dir, "stop", by="test", now=time.time())

if __name__ == "__main__":
    torch_xla.launch(train, start_method="fork")
"""
JAX = """
import json, os
os.environ.update(JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=4")
import jax, jax.numpy as jnp
import tputui

@jax.jit
def step(w):
    return w * 0.9, jnp.square(w)

double = jax.jit(lambda loss: loss * 2, donate_argnums=0)
run = tputui.start()
w, expected = jnp.arange(1.0, 5.0), []
for number in range(20):
    w, loss = step(w)
    expected.append(loss.tolist())
    loss = loss + 0
    run.step(loss=loss, examples=8)
    if number >= 10:
        double(loss)
run.close()
json.dump(expected, open("expected.json", "w"))

from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(jax.devices(), "data")
split = NamedSharding(mesh, PartitionSpec("data"))
rows = jax.device_put(jnp.arange(32.0).reshape(8, 4), split)
per_core = jax.jit(lambda x: jnp.square(x).reshape(4, -1).mean(1), out_shardings=split)
run = tputui.start(name="sharded", total_steps=10)
for number in range(10):
    loss = per_core(rows + number)
    assert len(loss.sharding.device_set) == 4
    run.step(loss=loss, examples=8)
    if number == 0:
        # As the heartbeat does, before a loss was fetched.
        run.report()
    run.meter("mean", loss.mean(), n=8)
run.close()
print(per_core(rows + 9).tolist())
"""


def recorded_losses(run_dir: Path) -> list[list[float]]:
    """The losses in the journal, [steps][cores]."""
    rows: list[list[float]] = []
    for event in read_events(run_dir / "worker-0.jsonl"):
        if isinstance(event, ev.StepsRecorded):
            assert event.first == len(rows) + 1
            values = float_blocks.unpack(event.block, event.n * event.cores).tolist()
            rows += [values[at : at + event.cores] for at in range(0, len(values), event.cores)]
    return rows


def run_forked(folder: Path, body: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    (folder / "train.py").write_text(body.replace("{steps}", str(STEPS)))
    done = forked.run("train", cwd=folder, env={"PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stderr
    path = folder / "expected.json"
    return done, json.loads(path.read_text()) if path.exists() else None


@pytest.mark.xla
def test_xla_losses_are_fetched_without_compiling_a_program(tmp_path: Path) -> None:
    done, (compiled, expected, later, graphs_alive) = run_forked(tmp_path, ONE_DEVICE)
    assert compiled[:2] == [0, 0]
    assert compiled[2] >= 3, "meters are fetched without the loss"
    first, second = sorted(rundir.listing(tmp_path / "runs"), key=lambda run_dir: run_dir.name.endswith("later"))
    rows = recorded_losses(first)
    assert len(rows) == 2 * (STEPS + 3)
    for row, wanted in zip(rows, expected, strict=True):
        assert row == pytest.approx(wanted, rel=1e-6)
    assert done.stderr.count("a tensor changed in place") == 2, "once per run"
    assert not any(graphs_alive), "a value does not keep the graph that computed it"
    losses = [row[0] for row in recorded_losses(second)]
    assert losses == pytest.approx(later, rel=1e-6, nan_ok=True), "a tensor has the value that it had when passed"


@pytest.mark.xla
def test_sharded_losses_are_read_shard_by_shard(tmp_path: Path) -> None:
    done, (compiled, expected) = run_forked(tmp_path, SPMD)
    assert compiled == [0]
    assert "failed" not in done.stderr
    assert done.stderr.count("was donated") == 1
    for row, wanted in zip(recorded_losses(the_run(tmp_path)), expected, strict=True):
        assert row == pytest.approx(wanted, rel=1e-6, nan_ok=True)


@pytest.mark.xla
def test_cores_of_one_sharded_program_share_the_batch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SPMD_MEAN)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE_S)
    events = read_events(the_run(tmp_path) / "worker-0.jsonl")
    (plan,) = (event for event in events if isinstance(event, ev.TrainingPlanned))
    assert (plan.batch_per_core, plan.global_batch) == (16, 64)


@pytest.mark.xla
@pytest.mark.slow
def test_threads_of_torch_xla_launch_are_cores_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(THREADS)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE_S)
    shown = show(the_run(tmp_path))
    assert [core["loss"] for core in shown["cores"]] == [6.0 + core for core in range(8)]
    (epoch,) = (
        event for event in read_events(the_run(tmp_path) / "worker-0.jsonl") if isinstance(event, ev.EpochEnded)
    )
    assert epoch.step == 6
    assert (epoch.train["loss"].count, epoch.train["loss"].avg) == (6 * 8 * 2, 3.5 + 3.5)


@pytest.mark.xla
def test_every_thread_of_torch_xla_launch_saves_before_the_request_is_answered(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(THREADS_SAVE)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    events = read_events(the_run(tmp_path) / "worker-0.jsonl")
    applied = [event for event in events if isinstance(event, ev.RequestApplied)]
    assert [(event.kind, event.bytes) for event in applied] == [("checkpoint", 7), ("stop", None)]
    saved = [event for event in events if isinstance(event, ev.CheckpointSaved)]
    assert [Path(event.path).name for event in saved] == ["weights.pt", "weights.pt"], "one for each request"
    assert "does not exist" not in done.stderr


def test_jax_arrays_are_fetched_and_copied_once_one_was_donated(tmp_path: Path) -> None:
    done = run_script(tmp_path, JAX)
    assert done.returncode == 0, done.stderr
    expected = json.loads((tmp_path / "expected.json").read_text())
    first, sharded = sorted(rundir.listing(tmp_path / "runs"), key=lambda run_dir: run_dir.name.endswith("sharded"))
    rows = recorded_losses(first)
    for number, (row, wanted) in enumerate(zip(rows, expected, strict=True)):
        # The first donated one is lost; the script's later ones are copied.
        assert row == (pytest.approx(wanted) if number != 10 else pytest.approx([float("nan")] * 4, nan_ok=True))
    assert done.stderr.count("donated") == 1
    assert len(recorded_losses(sharded)) == 10
    assert recorded_losses(sharded)[-1] == json.loads(done.stdout)
    assert [core["loss"] for core in show(sharded)["cores"]] == json.loads(done.stdout)
    assert show(sharded)["topology"]["device"] == "CPU"
    plan = show(sharded)["plan"]
    assert (plan["batch_per_core"], plan["global_batch"]) == (2, 8)
