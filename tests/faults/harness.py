"""Runs brought to a moment and held there, as `tputui run --no-ui` starts them; none of them is left behind."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Literal

from tests import forked
from tests.cli.helpers import tputui
from tests.faults.gated import BATCH, NUM_CORES, STEPS_PER_EPOCH, GateKeeper
from tests.live import LiveRun
from tests.supervise.harness import events_in, wait_for
from tputui.telemetry import events as ev

Moment = Literal["start", "trace", "compile", "train", "data", "evaluate", "save"]
MOMENTS: tuple[Moment, ...] = ("start", "trace", "compile", "train", "data", "evaluate", "save")
HELD: tuple[Moment, ...] = ("start", "trace", "data", "evaluate", "save")
"""Moments at which the user's own code is held by a gate; in the others it computes."""
TRAINED: tuple[Moment, ...] = ("train", "data", "evaluate", "save")
"""Moments after the first checkpoint of an epoch."""
REPOSITORY = Path(__file__).parents[2]
CONFIG = f"""
task = "tests.faults.gated:Gated"
epochs = 1000000
[data]
batch_per_core = {BATCH // NUM_CORES}
[optim]
name = "sgd"
lr = 0.001
[device]
cores = {NUM_CORES}
[report]
interval_s = 0.2
[stall]
after_s = 1.0
after_steps = 2.0
"""
FREE_STEPS_PER_EPOCH = 64
"""Of a run that is not held: every epoch adds to its journal, which must stay smaller than a checkpoint."""
RECURRENT_STEPS = 12
"""Unrolled, they take a while to compile."""


class Run(LiveRun):
    """A run that is brought to a moment, and its gate."""

    def __init__(self, folder: Path, moment: Moment, *, name: str = "", resume: str = "") -> None:
        self.moment = moment
        self.gate = GateKeeper(folder / "gate")
        self.gate.folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(CONFIG)
        self.steps_per_epoch = FREE_STEPS_PER_EPOCH if moment == "train" else STEPS_PER_EPOCH
        steps = RECURRENT_STEPS if moment == "compile" else 0
        overrides = [f"data.gate={self.gate.folder}", f"data.recurrent_steps={steps}"]
        overrides += [f"data.num_train={self.steps_per_epoch * BATCH}"]
        overrides += [f"data.at={moment}"] if moment in HELD else []
        arguments = [word for override in overrides for word in ("--set", override)]
        arguments += ["--resume", resume] if resume else []
        called = name or moment
        viewer = forked.PipedProcess(
            "tests.forked_tree",
            ["tputui", "run", "config.toml", "--no-ui", "--name", called, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": ""},
            start_new_session=True,
        )
        super().__init__(folder / "runs" / called, viewer)

    def reach(self) -> None:
        """Waits for the moment."""
        wait_for(lambda: self._is_there() or self.viewer.poll() is not None, f"the moment {self.moment}")
        assert self.viewer.poll() is None, self.left()

    def _is_there(self) -> bool:
        if self.moment == "train":
            return self.step() > 2 * self.steps_per_epoch
        if self.moment == "compile":
            return is_compiling(self.dir)
        return self.gate.is_reached

    def show(self) -> str:
        """The output of `show`, with single spaces."""
        return " ".join(tputui("show", self.dir).out.split())


def is_compiling(run_dir: Path) -> bool:
    """Whether a run is inside the compiler, or was."""
    return any(beat.phase == "compiling" for beat in events_in(run_dir, "worker-0", ev.HeartbeatSent))


def last_checkpoint_step(run_dir: Path) -> int | None:
    """Step of the last checkpoint, after reading all of its tensors; None if there is none."""
    import torch

    path = run_dir / "checkpoints" / "last.pt"
    if not path.exists():
        return None
    step: int = torch.load(path, map_location="cpu", weights_only=True)["position"]["step"]
    return step


def stray_files(run_dir: Path) -> list[str]:
    """Files that something half done would leave."""
    return [str(path) for path in run_dir.rglob("*") if path.name.endswith((".tmp", ".part", ".lock"))]


class FullDisk:
    """No file of a process grows beyond its journals, as on a disk that is full; a context manager."""

    def __init__(self, run: Run) -> None:
        self._pid = run.worker_pid
        journal_bytes = max(path.stat().st_size for path in run.dir.glob("*.jsonl"))
        room = journal_bytes + (400 << 10)
        # Less room than a checkpoint takes, although the journals of a run that has trained for long are large.
        saved = [path.stat().st_size - 1 for path in run.dir.glob("checkpoints/step-*.pt")]
        self._bytes_max = max(journal_bytes, min([room, *saved]))

    def __enter__(self) -> None:
        self._before = resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (self._bytes_max, resource.RLIM_INFINITY))

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)
