"""Puts Lightning's Trainer together from a plan. Importing it imports torch, the runtime and Lightning."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from engine.checkpoint import checkpoint_files
from engine.checkpoint.checkpoint_files import Checkpoint
from engine.checkpoint.position import Position
from engine.errors import Problem, Refused
from engine.lightning import data_loaders, fake_devices, tied_weights, user_module
from engine.lightning.callback import LoopCallback
from engine.lightning.checkpoint import LightningCheckpointStore
from engine.lightning.device import SpmdStrategy
from engine.lightning.precision import CorePrecision
from engine.lightning.profiler import SectionProfiler
from engine.lightning.reporting import Facts, LightningReporter
from engine.lightning.user_module import LightningData, LightningModel
from engine.loop.artifacts import RunArtifacts
from engine.loop.build import strategy
from engine.loop.checkpoint_manager import CheckpointManager, adopt_best
from engine.loop.run_context import RunContext
from engine.parallel.base import Strategy
from engine.process import hardware
from engine.process.requests import RequestQueue
from engine.task import Plan
from tputui.config import RunConfig
from tputui.telemetry.rundir import RUN_DIR_VARIABLE

__all__ = ["LightningRun", "strategy", "trainer"]


class LightningRun:
    """A LightningModule with everything that trains it."""

    def __init__(
        self,
        plan: Plan,
        cores: Strategy,
        reports: LightningReporter,
        control: RequestQueue,
        resume_from: Path | None,
        resumed: Checkpoint | None,
    ) -> None:
        self._plan = plan
        self._reports = reports
        self._resume_from = resume_from
        assert isinstance(plan.data, LightningData)
        assert isinstance(plan.model, LightningModel)
        self.module, self.datamodule = user_module.make(plan.config, plan.data, plan.model)
        self.follower = LoopCallback(plan, cores, reports, control, tied_weights.of(self.module), resumed)
        self._wrap_loaders(self.follower.at)
        self.trainer = _make_trainer(plan, cores, reports, self.follower)

    def train(self) -> str:
        """Trains every epoch that is left, or until the module has enough, and says so.

        Raises `Stopped` and `NotFinite`.
        """
        path = None if self._resume_from is None else str(self._resume_from)
        self.trainer.fit(self.module, datamodule=self.datamodule, ckpt_path=path, weights_only=True)
        trained, epochs = self.follower.at.epoch - 1, self._plan.config.epochs
        early = "" if trained == epochs else f" of {epochs}: Lightning ended training there, as the module asked"
        return self.follower.saver.conclude(f"{trained} epochs trained{early}{self.follower.best_words}")

    def _wrap_loaders(self, at: Position) -> None:
        """Looks at the training loader as Lightning asks for it: it exists only once the data was set up."""
        owner: Any = self.datamodule or self.module
        ask: Callable[[], Any] = owner.train_dataloader

        def train_dataloader() -> Any:
            loader = ask()
            train = data_loaders.training(loader, self._plan.config, at)
            valid = data_loaders.validation(owner.val_dataloader())
            self.trainer.limit_train_batches = train.batches
            self._note(train, valid)
            return loader

        owner.train_dataloader = train_dataloader

    def _note(self, train: data_loaders.Shape, valid: data_loaders.Shape) -> None:
        config = self._plan.config
        if valid.batches == 0:
            raise Refused([Problem("data", "the validation loader holds no example")])
        if valid.ragged and config.num_cores > 1:
            how = (
                "is shared out like the others" if valid.ragged % config.num_cores == 0 else "goes whole to every core"
            )
            self._reports.warn(
                f"the last validation batch holds {valid.ragged} examples and {how}: each counts once, without "
                "padding, and one more program is compiled for its shape"
            )
        takes_lr = user_module.takes(type(self.module), "lr")
        self.follower.facts = Facts(
            steps_per_epoch=train.batches,
            valid_steps=valid.batches,
            train_examples=train.examples,
            valid_examples=valid.examples,
            num_parameters=sum(p.numel() for p in self.module.parameters() if p.requires_grad),
            lr_rule=config.lr_rule if takes_lr else "the module's own",
        )


def trainer(plan: Plan, cores: Strategy, around: RunContext) -> tuple[LightningRun, LightningReporter]:
    """A trainer of the plan, and what it reports through. Raises `Refused`."""
    run_dir, reporter, progress, control, resume_from, telemetry = around
    resumed = checkpoint_files.load(resume_from, plan) if resume_from is not None else None
    # A TputuiCallback among the module's own finds that this process is told of already.
    os.environ[RUN_DIR_VARIABLE] = str(run_dir.resolve())
    reports = LightningReporter(plan, cores, reporter, progress, telemetry=telemetry)
    # What it says of the machine is said by us, and truly: with the harness it would tell of a TPU.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    if plan.machine.device != "TPU":
        fake_devices.offer_cores(plan.config.device.virtual_cores)
    if plan.config.device.precision in ("16", "fp16", 16):
        reports.warn(
            f"device.precision = {plan.config.device.precision} is trained in bf16, which TPUs compute in; Lightning's "
            "own 16-true would train in fp32 without a word"
        )
    run = LightningRun(plan, cores, reports, control, resume_from, resumed)
    store = LightningCheckpointStore(run_dir, plan, run.trainer)
    run.follower.saver = CheckpointManager(reports, store, run.follower.state)
    run.follower.keepsakes = RunArtifacts(run_dir)
    if resumed is not None and resume_from is not None:
        for note in resumed.notes:
            reports.warn(note)
        run.follower.take_best(adopt_best(store, resumed, resume_from, reports.warn))
    return run, reports


def _make_trainer(plan: Plan, cores: Strategy, reports: LightningReporter, follower: LoopCallback) -> Trainer:
    config = plan.config
    single = config.num_cores == 1
    devices = [hardware.device_index(config, plan.machine)] if single else 1
    return Trainer(
        accelerator="tpu",
        devices=devices,
        strategy="auto" if single else SpmdStrategy(cores),
        plugins=[CorePrecision(cores, bf16=_bf16(config))],
        callbacks=[follower],
        profiler=SectionProfiler(reports.sections, lambda: follower.evaluating),
        max_epochs=config.epochs,
        gradient_clip_val=config.optim.clip_norm,
        # Ours are written and drawn elsewhere; Lightning's would read the device at each step.
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        inference_mode=False,
    )


def _bf16(config: RunConfig) -> bool:
    return config.device.precision != "fp32"
