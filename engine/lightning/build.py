"""Builds Lightning's Trainer from a plan, with our callback and checkpoints.

Importing this module imports torch, the runtime and Lightning.

Lightning looks for a TPU on the PCI bus and then in the network, and refuses its XLA path without one. The runtime's
CPU devices take that path once both of Lightning's accelerator classes report devices.

Must not sync.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.precision import XLAPrecision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies.single_xla import SingleDeviceXLAStrategy
from torch.utils import _pytree as pytree

from engine.checkpoint import checkpoint_store
from engine.checkpoint.checkpoint_store import CheckpointStore
from engine.checkpoint.continued import adopt_best, retain_earlier
from engine.checkpoint.resume import Checkpoint, Position
from engine.errors import Refused
from engine.lightning import fake_devices
from engine.lightning.callback import WARM_UP_RUNS, LoopCallback
from engine.lightning.data_loaders import LoaderInfo, check_train_loader, check_valid_loaders
from engine.lightning.task import LightningData, LightningModel, make_modules, takes_argument
from engine.loop import network
from engine.loop import optimizer as optim
from engine.loop.artifacts import RunArtifacts
from engine.loop.build import RunContext, strategy
from engine.loop.events import EventEmitter
from engine.parallel.base import Strategy
from engine.process import hardware
from engine.task import Plan
from engine.xla import backend
from tputui.config import RunConfig
from tputui.reporting import RUN_DIR_VARIABLE, SectionTimer
from tputui.reporting import events as ev

__all__ = ["LightningRun", "strategy", "trainer"]

_ACTION_SECTIONS = {
    "[_TrainingEpochLoop].train_dataloader_next": "data",
    "run_training_batch": "trace",
}
"""Our section by the name of Lightning's action."""
_TRANSFER_SUFFIX = ".batch_to_device"


class SpmdStrategy(SingleDeviceXLAStrategy):
    """Lightning's single-device strategy over a mesh: all cores are one device, and each batch is split over them.

    So a module needs no sampler and no change. The compiler inserts the sums of the gradients.
    """

    strategy_name = "spmd"

    def __init__(self, cores: Strategy) -> None:
        # Without an index it is the runtime's one device for all cores.
        super().__init__(device=None)  # type: ignore[arg-type]
        self._cores = cores

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        """Splits the batch over the cores in one transfer; the module's own transfer hooks run after it."""
        return super().batch_to_device(self._split(batch), device, dataloader_idx)

    def _split(self, batch: Any) -> Any:
        """The batch with its tensors, [rows, ...] each, on the cores. A ragged batch stays whole: every core computes
        all of it, and each example counts once without padding."""
        leaves, structure = pytree.tree_flatten(batch)
        rows = {str(index): leaf for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim()}
        sizes = {tensor.size(0) for tensor in rows.values()}
        if len(sizes) != 1 or sizes.pop() % len(self._cores.core_ids):
            return batch
        for index, tensor in self._cores.put(rows).items():
            leaves[int(index)] = tensor
        return pytree.tree_unflatten(leaves, structure)


class CorePrecision(XLAPrecision):
    """Computes in fp32 or bf16, with parameters and losses in fp32; leaves the sync to our callback.

    Lightning's own `bf16-true` depends on an environment variable that the runtime is about to drop, and converts
    parameters and losses too. Its `16-true` sets a variable that the runtime ignores, and trains in fp32.
    """

    def __init__(self, cores: Strategy, *, bf16: bool) -> None:
        super().__init__("32-true")
        self._cores = cores
        self._bf16 = bf16

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Lightning enters this context around each step of the module."""
        with torch.autocast("xla", dtype=torch.bfloat16, enabled=self._bf16):
            yield

    def optimizer_step(  # type: ignore[override]  # as Lightning's own does
        self, optimizer: Any, model: LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Traces the step. It runs at the end of the batch, in one program with the values that are reported.

        An optimizer that `engine.loop.optimizer` does not cover takes its own step, with a learning rate above 0.
        """
        whole = partial(self._wrap_closure, model, optimizer, closure)
        if optim.covers(optimizer):
            # Schedulers check this mark to see whether the optimizer stepped before them.
            vars(optimizer)["_opt_called"] = True
            return _step(optimizer, self._send, whole)
        with optim.without_zero(optimizer):
            return optimizer.step(closure=whole, **kwargs)

    def _send(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return backend.put(tensors, self._cores.device)


@torch.optim.Optimizer.profile_hook_step
def _step(optimizer: torch.optim.Optimizer, send: optim.Send, closure: Callable[[], Any]) -> Any:
    """One step of an optimizer, with the hooks that were registered on it."""
    result = closure()
    optim.update(optimizer, send)
    return result


class SectionProfiler(Profiler):
    """Charges the actions of Lightning's loop to our sections."""

    def __init__(self, sections: SectionTimer, evaluating: Callable[[], bool]) -> None:
        """Actions are ignored while `evaluating`, which is one section as a whole."""
        super().__init__()
        self._evaluating = evaluating
        self._sections = sections
        self._running: dict[str, AbstractContextManager[None]] = {}

    def start(self, action_name: str) -> None:
        """Lightning begins an action."""
        name = _ACTION_SECTIONS.get(action_name) or ("data" if action_name.endswith(_TRANSFER_SUFFIX) else None)
        if name is not None and not self._evaluating():
            running = self._running[action_name] = self._sections.section(name)
            running.__enter__()

    def stop(self, action_name: str) -> None:
        """Lightning ends an action."""
        running = self._running.pop(action_name, None)
        if running is not None:
            running.__exit__(None, None, None)


class LightningCheckpointStore(CheckpointStore):
    """Checkpoints as Lightning itself would write them, with our position and fingerprint added.

    So the module's `load_from_checkpoint` reads them and `Trainer(ckpt_path=...)` resumes from them, under the rules of
    `CheckpointStore`.
    """

    def __init__(self, run_dir: Path, plan: Plan, trainer: Trainer) -> None:
        super().__init__(run_dir, plan)
        self._trainer = trainer

    def content(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Everything that Lightning needs to resume, on the host. Call right after a sync."""
        theirs: dict[str, Any] = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        return {**super().content(checkpoint), **backend.to_host(theirs)}

    def weights(self, content: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The module's weights in the content."""
        found: dict[str, torch.Tensor] = content["state_dict"]
        return found


class LightningRun:
    """A LightningModule with everything that trains it."""

    def __init__(
        self, plan: Plan, cores: Strategy, events: EventEmitter, context: RunContext, resumed: Checkpoint | None
    ) -> None:
        self.events = events
        self._plan = plan
        self._resume_from = context.resume_from
        assert isinstance(plan.data, LightningData)
        assert isinstance(plan.model, LightningModel)
        self._module, self._datamodule = make_modules(plan.config, plan.data, plan.model)
        artifacts, ties = RunArtifacts(context.run_dir), network.ties(self._module)
        self._callback = LoopCallback(plan, cores, events, context.requests, artifacts, ties, resumed)
        self._wrap_loaders(self._callback.position)
        self._trainer = _make_trainer(plan, cores, events, self._callback)
        store = LightningCheckpointStore(context.run_dir, plan, self._trainer)
        self._callback.save_to(store)
        if resumed is not None and context.resume_from is not None:
            for note in resumed.notes:
                events.warn(note)
            self._callback.restore_best(adopt_best(store, resumed, context.resume_from, events.warn))
            retain_earlier(store, context.reporter.path)

    def train(self) -> str:
        """Trains every epoch that is left, or until the module ends training, and returns the result in one sentence.

        Raises `Stopped` and `NotFinite`.
        """
        path = None if self._resume_from is None else str(self._resume_from)
        self._trainer.fit(self._module, datamodule=self._datamodule, ckpt_path=path, weights_only=True)
        trained, epochs = self._callback.position.epoch - 1, self._plan.config.epochs
        early = "" if trained == epochs else f" of {epochs}: Lightning ended training there, as the module asked"
        return self._callback.conclude(f"{trained} epoch{'s' if trained != 1 else ''} trained{early}")

    def _wrap_loaders(self, at: Position) -> None:
        """Checks the loaders when Lightning asks for them: they exist only once the data was set up."""
        owner: Any = self._datamodule or self._module
        ask: Callable[[], Any] = owner.train_dataloader

        def train_dataloader() -> Any:
            loader = ask()
            train = check_train_loader(loader, self._plan.config, at)
            valid = check_valid_loaders(owner.val_dataloader())
            self._trainer.limit_train_batches = train.batches
            self._set_plan(train, valid)
            return loader

        owner.train_dataloader = train_dataloader

    def _set_plan(self, train: LoaderInfo, valid: LoaderInfo) -> None:
        config = self._plan.config
        if valid.batches == 0:
            raise Refused.of("data", "the validation loader has no examples")
        if valid.ragged and config.num_cores > 1:
            how = (
                "is split over the cores like the others"
                if valid.ragged % config.num_cores == 0
                else "goes whole to every core"
            )
            self.events.warn(
                f"the last validation batch holds {valid.ragged} examples and {how}: each counts once, without "
                "padding, and one more program is compiled for its shape"
            )
        takes_lr = takes_argument(type(self._module), "lr")
        self._callback.planned = ev.TrainingPlanned(
            t=time.time(),
            num_epochs=config.epochs,
            first_step=1,
            batch_per_core=config.batch_per_core,
            global_batch=config.global_batch,
            task=f"lightning {getattr(self._plan.model, 'module', '')}",
            steps_per_epoch=train.batches,
            valid_steps=valid.batches,
            train_examples=train.examples,
            valid_examples=valid.examples,
            num_parameters=sum(p.numel() for p in self._module.parameters() if p.requires_grad),
            precision="bf16" if _bf16(config) else "fp32",
            lr=float("nan"),
            lr_rule=config.lr_rule if takes_lr else "the module's own",
        )


def trainer(plan: Plan, cores: Strategy, context: RunContext) -> LightningRun:
    """A LightningModule ready to be trained. Raises `Refused`."""
    resumed = checkpoint_store.load(context.resume_from, plan) if context.resume_from is not None else None
    # A TputuiCallback of the module finds here that this run is reported already.
    os.environ[RUN_DIR_VARIABLE] = str(context.run_dir.resolve())
    events = EventEmitter(
        plan,
        cores,
        context.reporter,
        context.progress,
        WARM_UP_RUNS,
        telemetry=context.telemetry,
        server=context.server,
    )
    # What Lightning logs about the machine would be wrong: with fake devices it reports a TPU.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    if plan.machine.device != "TPU":
        fake_devices.offer_cores(plan.config.device.virtual_cores)
    if plan.config.device.precision in ("16", "fp16", 16):
        events.warn(
            f"device.precision = {plan.config.device.precision} is trained in bf16, which TPUs compute in; Lightning's "
            "own 16-true would silently train in fp32"
        )
    return LightningRun(plan, cores, events, context, resumed)


def _make_trainer(plan: Plan, cores: Strategy, events: EventEmitter, callback: LoopCallback) -> Trainer:
    config = plan.config
    single = config.num_cores == 1
    devices = [hardware.device_index(config, plan.machine)] if single else 1
    return Trainer(
        accelerator="tpu",
        devices=devices,
        strategy="auto" if single else SpmdStrategy(cores),
        plugins=[CorePrecision(cores, bf16=_bf16(config))],
        callbacks=[callback],
        profiler=SectionProfiler(events.sections, lambda: callback.is_evaluating),
        max_epochs=config.epochs,
        gradient_clip_val=config.optim.clip_norm,
        # We write and show these; Lightning's own would read the device at each step.
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        inference_mode=False,
    )


def _bf16(config: RunConfig) -> bool:
    return config.device.precision != "fp32"
