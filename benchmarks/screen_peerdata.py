"""Writes losses in the formats of two peers; runs in the environment of those peers.

    PEERS/bin/python benchmarks/screen_peerdata.py {wandb,tfevents} LOSSES.npy FOLDER

LOSSES.npy is [steps, cores] float32. wandb logs through its own `run.log`, offline; tfevents get one event per
scalar, as every `SummaryWriter.add_scalar` writes them. Imports nothing of this project, which is not installed there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

STEP_S = 0.01
BEGAN = 1_760_000_000.0


def rows(path: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields each step with the losses of its cores by name."""
    import numpy as np

    values = np.load(path, mmap_mode="r")
    names = [f"loss/core{core}" for core in range(values.shape[1])]
    for first in range(0, len(values), 10_000):
        for step, row in enumerate(values[first : first + 10_000].tolist(), start=first + 1):
            yield step, dict(zip(names, row, strict=True))


def write_wandb(path: str, folder: Path) -> None:
    """Writes an offline run."""
    # Only the losses, as in the other formats: no console output and no machine statistics.
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_CONSOLE="off", WANDB_ERROR_REPORTING="false")
    wandb = import_module("wandb")
    settings = wandb.Settings(x_disable_stats=True, x_disable_meta=True, disable_git=True, save_code=False)
    run = wandb.init(dir=str(folder), project="bench", settings=settings)
    for step, row in rows(path):
        run.log(row, step=step)
    run.finish()


def write_tfevents(path: str, folder: Path) -> None:
    """Writes one file of events."""
    event = import_module("tensorboard.compat.proto.event_pb2").Event
    summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
    record_writer = import_module("tensorboard.summary.writer.record_writer").RecordWriter
    with open(folder / "events.out.tfevents.1760000000.bench", "wb") as file:
        writer = record_writer(file)
        writer.write(event(wall_time=BEGAN, file_version="brain.Event:2").SerializeToString())
        for step, row in rows(path):
            for name, loss in row.items():
                value = summary(value=[summary.Value(tag=name, simple_value=loss)])
                writer.write(event(wall_time=BEGAN + step * STEP_S, step=step, summary=value).SerializeToString())


if __name__ == "__main__":
    kind, source, target = sys.argv[1:]
    Path(target).mkdir(parents=True, exist_ok=True)
    {"wandb": write_wandb, "tfevents": write_tfevents}[kind](source, Path(target))
