"""Snapshots of runs with a known step time, for tests of the comparison."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec

from tests.ui import made
from tputui.state.chart_data import MemoryPoint, Segment, ThroughputPoint, ThroughputView
from tputui.state.snapshot import PlanView, Snapshot
from tputui.telemetry.events import EpochStarted, MeterReading

CONFIG: dict[str, Any] = {
    "task": "digits",
    "epochs": 4,
    "seed": 0,
    "data": {"batch_per_core": 8, "prefetch_batches": 4},
    "model": {"channels": 32, "dropout": 0.1},
    "optim": {"name": "adam", "lr": 0.0005, "lr_scaling": "linear"},
    "device": {"cores": 8, "strategy": "spmd", "precision": "bf16"},
    "checkpoint": {"every_epochs": 1, "monitor": "loss", "mode": "min"},
}


def step_times(num: int, step_s: float, *, noise: float, seed: int, alike: float = 0.5, warm: int = 6) -> list[float]:
    """Step times of reports: a slow warm-up, then `step_s` with autocorrelated noise."""
    rng, off, times = random.Random(seed), 0.0, []
    for report in range(num):
        off = alike * off + rng.gauss(0, noise * math.sqrt(1 - alike**2))
        times.append(step_s * math.exp(off) * (1 + 2.5 * math.exp(-report / warm * 3) if report < warm else 1))
    return times


def throughput(steps_s: list[float], global_batch: int, *, started: float) -> ThroughputView:
    """The throughput of a snapshot with these step times."""
    points, t = [], started
    for number, step_s in enumerate(steps_s, start=1):
        t += 10 * step_s
        points.append(ThroughputPoint(t=t, step=10 * number, step_s=step_s, examples_per_s=global_batch / step_s))
    middle = sorted(steps_s)[len(steps_s) // 2]
    return ThroughputView(
        examples_per_s=global_batch / steps_s[-1],
        steady_step_s=middle,
        steady_examples_per_s=global_batch / middle,
        step_p50_s=middle,
        step_p95_s=max(steps_s),
        num_reports=len(steps_s),
        history=points,
        eta_epoch_s=None,
    )


def run(
    name: str,
    *,
    step_s: float = 0.0131,
    noise: float = 0.03,
    seed: int = 1,
    reports: int = 120,
    cores: int = 8,
    decay: float = 60.0,
    floor: float = 0.08,
    config: dict[str, dict[str, Any]] | None = None,
    done: bool = True,
    **changes: Any,
) -> Snapshot:
    """A run of four epochs with the given step time, loss curve and configuration changes."""
    base = made.finished() if done else made.running(cores)
    global_batch, started = 8 * cores, made.NOW - 60
    own = {key: {**value, **(config or {}).get(key, {})} if isinstance(value, dict) else value
           for key, value in CONFIG.items()}  # fmt: skip
    own["device"] = {**own["device"], "cores": cores}
    rng = random.Random(seed)
    loss = [_segment(step, (2.3 * math.exp(-step / decay) + floor) * (1 + 0.1 * rng.uniform(-1, 1)), started, step_s)
            for step in range(1, base.steps + 1)]  # fmt: skip
    assert base.topology is not None
    assert isinstance(base.plan, PlanView)
    return msgspec.structs.replace(
        base,
        **{
            "run": name,
            "dir": f"/home/user/runs/{name}",
            "config": own,
            "topology": msgspec.structs.replace(base.topology, num_cores=cores, device="TPU"),
            "plan": msgspec.structs.replace(base.plan, global_batch=global_batch),
            "throughput": throughput(
                step_times(reports, step_s, noise=noise, seed=seed), global_batch, started=started + 5
            ),
            "loss": loss,
            "epoch_starts": [
                EpochStarted(epoch=epoch, first_step=1 + 110 * (epoch - 1), t=started + 5 + 110 * (epoch - 1) * step_s)
                for epoch in range(1, 5)
            ],
            "epochs": [
                msgspec.structs.replace(
                    view, valid={**view.valid, "loss": _reading(floor * 1.2 + decay / 60 / view.epoch**2)}
                )
                for view in base.epochs
            ],
            "memory_history": [
                MemoryPoint(t=started + 9, hbm_used_bytes=None, host_used_bytes=None, rss_bytes=800 << 20)
            ],
            "started": started,
            "cores": [msgspec.structs.replace(core, loss=loss[-1].mean) for core in base.cores[:cores]],
            **changes,
        },
    )


def _segment(step: int, mean: float, started: float, step_s: float) -> Segment:
    return Segment(
        first_step=step,
        last_step=step,
        mean=mean,
        min=mean * 0.9,
        max=mean * 1.1,
        num_values=8,
        num_bad=0,
        t=started + 5 + step * step_s,
    )


def _reading(avg: float) -> MeterReading:
    return MeterReading(val=avg, avg=avg, sum=avg * 360, count=360)


def pair() -> list[Snapshot]:
    """Two runs; the second is slightly faster and has another learning rate."""
    return [
        run("digits-20251009-100000"),
        run("digits-20251009-110000", step_s=0.0122, seed=2, decay=45, floor=0.06, config={"optim": {"lr": 0.001}}),
    ]


def eight() -> list[Snapshot]:
    """Eight runs, the maximum of a comparison, in every state."""
    names = ("base", "fast", "slow", "same", "one-core", "short", "alive", "broken")
    views = [
        run(f"digits-{name}", seed=seed, step_s=0.0131 * pace, decay=30 + 12 * seed, floor=0.05 + 0.02 * seed,
            config={"optim": {"lr": 0.0005 * seed}, "model": {"dropout": 0.1 if seed < 4 else 0.2}})
        for seed, (name, pace) in enumerate(zip(names[:4], (1, 0.9, 1.2, 1.001), strict=True), start=1)
    ]  # fmt: skip
    views.append(run("digits-one-core", cores=1, seed=5, step_s=0.0084, decay=120))
    views.append(run("digits-short", seed=6, reports=12))
    views.append(run("digits-alive", seed=7, done=False))
    views.append(run("digits-broken", seed=8, condition="failed", condition_reason="ValueError at step 331"))
    return views
