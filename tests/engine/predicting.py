"""Predictions in the test's own process, with untrained weights."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.resume import Checkpoint, Position
from tests.engine.workers import make
from tputui.config import from_builtins
from tputui.telemetry.rundir import read_manifest


def saved(tmp_path: Path, *overrides: str, text: str | None = None, name: str = "run") -> Path:
    """A run directory with a checkpoint of the initial weights."""
    import torch

    from engine import run_plan
    from engine.checkpoint import checkpoint_store
    from engine.process import hardware

    run = make(tmp_path, name, list(overrides), text=text)
    sys.path.append(str(Path(__file__).parent))
    planned = run_plan.make(
        from_builtins(read_manifest(run.dir).config, "test.toml"), hardware.find({"PJRT_DEVICE": "CPU"}), "test.toml"
    )
    planned.task.load(planned.data, planned.config.seed)
    torch.manual_seed(3)
    training_state = {"model": planned.task.model(planned.model, planned.data).state_dict()}
    at = Position(epoch=2, batch=0, step=9, evaluating=False)
    checkpoint_store.CheckpointStore(run.dir, planned).save(
        Checkpoint(at, training_state, {}, 1.5), periodic=True, best=True
    )
    return run.dir


def predicted(run_dir: Path, out: str = "out.csv", form: str = "csv", **arguments: Any) -> dict[str, Any]:
    """The reports of a prediction."""
    from engine.commands import predict
    from engine.commands.protocol import ProgressWriter

    at = {
        "force": True,
        "source": None,
        "split": None,
        "batch": 64,
        "weights": run_dir / "checkpoints" / "best.pt",
        **arguments,
    }
    folder = Path.cwd()
    with pytest.MonkeyPatch.context() as process:
        # A prediction changes these for the rest of its process.
        process.chdir(folder)
        process.setattr(sys, "path", list(sys.path))
        process.setattr(sys, "meta_path", list(sys.meta_path))
        return predict.predict(
            predict.PredictRequest(run_dir=run_dir, out=str(folder / out), form=form, **at),
            ProgressWriter(os.open(os.devnull, os.O_WRONLY)),
        )


def refused(run_dir: Path, **arguments: Any) -> str:
    """Why the engine refuses a prediction."""
    from engine.errors import Refused

    folder, before = Path.cwd(), sorted(Path.cwd().iterdir())
    with pytest.raises(Refused) as caught:
        predicted(run_dir, **arguments)
    os.chdir(folder)
    assert sorted(folder.iterdir()) == before, "something half-written was left"
    assert "\n" not in str(caught.value)
    return str(caught.value)
