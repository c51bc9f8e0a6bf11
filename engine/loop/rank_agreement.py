"""What is one thing for all processes of a run: the requests, and the checkpoints that the first one writes.

The others go through the same motions and take over what came of them, so that every process is at the same point.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from engine.checkpoint.checkpoint_files import Checkpoint, CheckpointStore, Saved, SaveFailed
from engine.loop.artifacts import RunArtifacts
from engine.loop.train_step import TaskError, TrainStep
from engine.parallel.base import Strategy
from engine.task import Picture, Plan
from engine.xla import backend
from tputui.telemetry.events import PictureKept
from tputui.telemetry.layer_table import LayerTable
from tputui.telemetry.requests import Request


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of something that the first process did."""

    saved: Saved | None = None
    failed: str | None = None


def requests(strategy: Strategy, mine: list[Request]) -> list[Request]:
    """The requests that the first process has taken."""
    return msgspec.json.decode(strategy.share(msgspec.json.encode(mine)), type=list[Request])


class SharedCheckpointStore(CheckpointStore):
    """The checkpoints of a run of several processes."""

    def __init__(self, run_dir: Path, plan: Plan, strategy: Strategy, identity: Mapping[str, str]) -> None:
        super().__init__(run_dir, plan, identity)
        self._strategy = strategy

    def save(self, checkpoint: Checkpoint, *, periodic: bool, best: bool) -> Saved:
        """Writes in the first process, as `CheckpointStore` does. Every process returns, or raises, the same."""
        saved = self._in_first(partial(CheckpointStore.save, self, checkpoint, periodic=periodic, best=best))
        assert saved is not None
        return saved

    def adopt_best(self, resumed: Checkpoint, source: Path) -> None:
        """The same."""
        self._in_first(partial(CheckpointStore.adopt_best, self, resumed, source))

    def _in_first(self, work: Callable[[], Saved | None]) -> Saved | None:
        mine = _Outcome()
        if self._strategy.own.start == 0:
            try:
                mine = _Outcome(saved=work())
            except SaveFailed as error:
                mine = _Outcome(failed=str(error))
        outcome = msgspec.json.decode(self._strategy.share(msgspec.json.encode(mine)), type=_Outcome)
        if outcome.failed is not None:
            raise SaveFailed(outcome.failed)
        return outcome.saved


class NoArtifacts(RunArtifacts):
    """The first process keeps them."""

    def layers(self, table: LayerTable) -> None:
        """Writes nothing."""

    def losses(self, losses: list[tuple[float, float]]) -> None:
        """Writes nothing."""

    def pictures(self, epoch: int, pictures: list[Picture]) -> list[PictureKept]:
        """Writes nothing."""
        return []


def require_equal_weights(learner: TrainStep, strategy: Strategy) -> None:
    """Raises `TaskError` where the processes begin with different weights."""
    state: dict[str, Any] = backend.to_host(learner.model.state_dict())
    checksum = 0
    for tensor in state.values():
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().tobytes(), checksum)
    sums = strategy.gather(np.array([checksum], dtype=np.int64), 0)
    odd = [core for core, found in enumerate(sums.tolist()) if found != sums[0]]
    if odd:
        raise TaskError(
            f"the weights of core {odd[0]} differ from those of core 0 at the start: model() is to draw them from "
            "torch's generator alone, which is seeded alike in every process"
        )
