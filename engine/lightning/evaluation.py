"""Evaluates a LightningModule on one of its own splits, by Lightning's Trainer on the CPU, for `tputui predict`.

Must not import the runtime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer

from engine.errors import Refused
from engine.lightning import fake_devices
from engine.lightning.task import LightningData, LightningModel, make_modules
from tputui.config import RunConfig
from tputui.reporting import logged_meters

STEPS = {"valid": "validation_step", "test": "test_step"}


class Evaluated(NamedTuple):
    figures: dict[str, float]
    """What the module logged, under the names of the run's meters."""
    examples: int | None
    """Number of examples; None if a loader has no length."""


class _LoadWeights(Callback):
    """Loads the weights once Lightning has built the module: its `configure_model` may add layers."""

    def __init__(self, load: Callable[[torch.nn.Module], None]) -> None:
        self._load = load

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The module is complete."""
        self._load(pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The module is complete."""
        self._load(pl_module)


def evaluate(
    config: RunConfig, data: LightningData, model: LightningModel, load: Callable[[torch.nn.Module], None], split: str
) -> Evaluated:
    """Evaluates the split `valid` or `test`; `load` loads the weights into the module. Raises `Refused`."""
    if split not in STEPS:
        message = f"a LightningModule is evaluated on {' or '.join(STEPS)}, by its own loaders; not on {split}"
        raise Refused.of("--split", message)
    fake_devices.offer_nothing()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    module, datamodule = make_modules(config, data, model)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        callbacks=[_LoadWeights(load)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    run = trainer.validate if split == "valid" else trainer.test
    try:
        run(module, datamodule=datamodule, verbose=False)
    except MisconfigurationException as error:
        first = str(error).strip().splitlines()[0]
        raise Refused.of(f"--split {split}", f"it needs {STEPS[split]} and a loader for it: {first}") from error
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    found = {name: reading.avg for name, reading in logged_meters(logged, split).items()}
    return Evaluated(found, _examples(trainer.val_dataloaders if split == "valid" else trainer.test_dataloaders))


def _examples(loaders: Any) -> int | None:
    each = loaders if isinstance(loaders, list) else [loaders]
    try:
        return sum(len(loader.sampler) for loader in each)
    except (AttributeError, TypeError):
        return None
