"""Figures of a LightningModule on one of its own splits, by Lightning's own Trainer on the CPU.

Must not import the runtime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer

from engine.errors import Problem, Refused
from engine.lightning import fake_devices, user_module
from engine.lightning import logged_values as figures
from engine.lightning.user_module import LightningData, LightningModel
from tputui.config import RunConfig

STEPS = {"valid": "validation_step", "test": "test_step"}


class Evaluated(NamedTuple):
    """A split, as the module sees it."""

    figures: dict[str, float]
    """What the module logged, under the names of the run's meters."""
    examples: int | None
    """How many; None where a loader does not say."""


class Loading(Callback):
    """Puts weights in the module once Lightning has built it: its `configure_model` may add layers."""

    def __init__(self, load: Callable[[torch.nn.Module], None]) -> None:
        self._load = load

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The module is whole."""
        self._load(pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The module is whole."""
        self._load(pl_module)


def evaluate(
    config: RunConfig, data: LightningData, model: LightningModel, load: Callable[[torch.nn.Module], None], split: str
) -> Evaluated:
    """Figures of the split `valid` or `test`; `load` puts the weights in the module. Raises `Refused`."""
    if split not in STEPS:
        message = f"a LightningModule is evaluated on {' or '.join(STEPS)}, by its own loaders; not on {split}"
        raise Refused([Problem("--split", message)])
    fake_devices.offer_nothing()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    module, datamodule = user_module.make(config, data, model)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        callbacks=[Loading(load)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    run = trainer.validate if split == "valid" else trainer.test
    try:
        run(module, datamodule=datamodule, verbose=False)
    except MisconfigurationException as error:
        said = str(error).strip().splitlines()[0]
        raise Refused([Problem(f"--split {split}", f"it needs {STEPS[split]} and a loader for it: {said}")]) from error
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    found = {name: reading.avg for name, reading in figures.meters(logged, split).items()}
    return Evaluated(found, _examples(trainer.val_dataloaders if split == "valid" else trainer.test_dataloaders))


def _examples(loaders: Any) -> int | None:
    each = loaders if isinstance(loaders, list) else [loaders]
    try:
        return sum(len(loader.sampler) for loader in each)
    except (AttributeError, TypeError):
        return None
