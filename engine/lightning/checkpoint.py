"""Checkpoints of a Lightning run: what Lightning itself would write, with our position and fingerprint beside it.

So the module's `load_from_checkpoint` reads them, `Trainer(ckpt_path=...)` goes on from them, and our own rules hold:
written whole or not at all, best and last by name, refused under a configuration that does not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

from engine.checkpoint.checkpoint_files import Checkpoint, CheckpointStore
from engine.task import Plan
from engine.xla import backend


class LightningCheckpointStore(CheckpointStore):
    """Keeps Lightning's own state."""

    def __init__(self, run_dir: Path, plan: Plan, trainer: Trainer) -> None:
        super().__init__(run_dir, plan)
        self._trainer = trainer

    def content(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Everything that Lightning needs to go on, on the host. To be asked right after a sync."""
        theirs: dict[str, Any] = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        # What Lightning calls hyperparameters and loops is plain; only tensors are moved.
        return {**super().content(checkpoint), **backend.to_host(theirs)}

    def weights(self, content: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The module's weights in it."""
        found: dict[str, torch.Tensor] = content["state_dict"]
        return found
