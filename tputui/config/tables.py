"""The tables of a configuration file as frozen types."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file."""


class DataConfig(Table, frozen=True, kw_only=True):
    """What is trained on, and how it is shared among the cores."""

    batch_per_core: int | None = None
    """Examples a core takes each step. Give this or `global_batch`."""
    global_batch: int | None = None
    """Examples all cores take each step; the number of cores must divide it. Give this or `batch_per_core`."""
    prefetch_batches: int = 4
    """Batches kept ready on the device ahead of the step."""
    workers: int = 0
    """Threads that read the examples of a batch, each a part of it; the batches are the same for any number. 0 takes
    one for each CPU, at most 8, to decode images, and one for the `fetch` of a task of your own: name more if it may be
    called by several threads at once."""
    batches_per_epoch: int | None = None
    """Training batches an epoch, if not all of them; each epoch takes others, since each is shuffled anew."""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """The task's own keys of this table."""


class OptimConfig(Table, frozen=True, kw_only=True):
    """Optimizer and learning rate."""

    name: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    """Which optimizer; each computes what torch's own of that name does."""
    lr: float = 1e-3
    """Learning rate for one core, before scaling."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the learning rate grows with the number of cores N: times N, times the square root of N, or not."""
    momentum: float | None = None
    """Momentum of `sgd` (without a value 0.9) and of `rmsprop` (without a value 0)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the two running means of `adam` and `adamw`."""
    alpha: float = 0.99
    """Decay of the running mean of squared gradients of `rmsprop`."""
    eps: float = 1e-8
    """Added to the denominator of `adam`, `adamw` and `rmsprop`."""
    weight_decay: float = 0.0
    """Weight decay."""
    clip_norm: float | None = None
    """Largest global norm of the gradient: one with a larger norm is scaled down to it before the update. Without a
    value nothing is clipped."""
    accumulate: int = 1
    """Batches whose gradients are averaged for one update of the weights, which then sees that many times the global
    batch. A step stays one batch in all counts, curves and rates. An epoch has a whole number of updates; batches left
    over are dropped. The learning rate is not scaled by it."""
    schedule: Literal["constant", "step", "cosine"] | None = None
    """How the learning rate changes: `constant`; `step` multiplies it by `gamma` every `step_size` epochs; `cosine`
    lowers it along half a cosine to `min_lr` at the end of the last epoch, anew for each update. Without a value it is
    `step` if `step_size` is given, else `constant`."""
    step_size: int | None = None
    """StepLR, the schedule `step`: epochs after which the learning rate is multiplied by `gamma`."""
    gamma: float = 0.1
    """StepLR: the factor."""
    min_lr: float = 0.0
    """Least learning rate of `step` and `cosine`, scaled as `lr` is."""
    warmup_epochs: float = 0.0
    """Epochs, or a part of one, in which the learning rate rises linearly to `lr`, anew for each update. Give this or
    `warmup_steps`."""
    warmup_steps: int = 0
    """The same as a number of updates."""

    @property
    def used_momentum(self) -> float:
        """Momentum in force; 0 with an optimizer that has none."""
        if "momentum" not in OPTIMIZER_KEYS[self.name]:
            return 0.0
        if self.momentum is None:
            return SGD_MOMENTUM if self.name == "sgd" else 0.0
        return self.momentum

    @property
    def used_schedule(self) -> str:
        """Schedule in force."""
        return self.schedule or ("constant" if self.step_size is None else "step")


SGD_MOMENTUM = 0.9


OPTIMIZER_KEYS = {
    "adam": ("betas", "eps"),
    "adamw": ("betas", "eps"),
    "sgd": ("momentum",),
    "rmsprop": ("momentum", "alpha", "eps"),
}
"""Keys of `[optim]` that only some optimizers have."""


SCHEDULE_KEYS = {"constant": (), "step": ("step_size", "gamma", "min_lr"), "cosine": ("min_lr",)}
"""Keys of `[optim]` that only some schedules have."""


class DeviceConfig(Table, frozen=True, kw_only=True):
    """Which cores run the program, and how."""

    cores: int | list[int] | Literal["all"] = "all"
    """Cores to train on: `"all"` of this host's TPU, or of the virtual cores elsewhere; a number of them (8, 1); or one
    core by its index (`[5]`)."""
    strategy: Literal["spmd", "replica"] = "spmd"
    """How several cores train one model: `spmd` is one process with the batch sharded over a mesh; `replica` is a
    process for each (on a TPU: for each chip), with their gradients averaged, where BatchNorm sees a core's own share
    alone. One core needs neither."""
    precision: Literal["fp32", "bf16", "fp16", "16", 16] = "fp32"
    """Number format of the computation; parameters and losses stay in fp32. A LightningModule may ask for `16` or
    `fp16`, which TPUs do not compute in: it is trained in bf16, and a warning says so."""
    rematerialise: bool = False
    """Whether blocks of the network are computed again for the backward pass instead of kept: less memory for
    activations, about a third more computation, the same losses. Virtual CPU cores gain nothing: their compiler
    merges what is computed twice."""
    virtual_cores: int = 8
    """Cores that a machine without a TPU offers: virtual CPU devices of the same runtime."""


class CheckpointConfig(Table, frozen=True, kw_only=True):
    """What is kept of the weights, and when."""

    every_epochs: int = 1
    """Epochs between checkpoints; the last epoch always makes one."""
    keep: int = 2
    """How many periodic checkpoints stay on disk. Those asked for, the best and the last are kept besides."""
    monitor: str = "loss"
    """Validation meter that tells the best epoch."""
    mode: Literal["min", "max"] = "min"
    """Whether less or more of it is better."""


class ReportConfig(Table, frozen=True, kw_only=True):
    """How the run reports."""

    interval_s: float = 1.0
    """Seconds between reports, at most 1. The interval is kept as a number of steps, re-derived from the step time."""
    every_batches: int | None = None
    """Steps between reports, where it shall be a fixed number; a report still falls due when `interval_s` is over."""
    pictures: int = 4
    """Validation examples whose predictions are kept as pictures each epoch, where the task draws some."""
    seal: bool = False
    """Whether the journals of a finished run are sealed: about a third smaller, no longer plain text."""


class NonFiniteConfig(Table, frozen=True, kw_only=True):
    """What is done where the loss or the gradient is NaN or infinite."""

    policy: Literal["continue", "stop", "save-stop"] = "continue"
    """What the run does when a report shows that a loss began to be NaN or infinite: `continue` tells where it began
    and trains on; `stop` ends training, with exit code 3; `save-stop` saves first. With the last two each step works
    out the norm of its gradient too, which counts as a loss does and is told with it: some tenths of a millisecond of
    the host's time. Whatever the policy: weights that are not finite are kept apart as `checkpoints/non-finite.pt`, to
    look into, and never take the place of `last.pt`, `best.pt` or an older checkpoint; and a run whose weights are not
    finite after its last epoch has failed, with exit code 3. A report comes about once a
    second, so some steps follow the first bad one. Of a LightningModule the training loss alone is watched, not its
    gradient or validation."""


class StallConfig(Table, frozen=True, kw_only=True):
    """When a run counts as stalled, and what is done then."""

    after_steps: float = 20.0
    """Median step times without a step after which the run counts as stalled, in a phase in which steps are due."""
    after_s: float = 30.0
    """Seconds without a step that it takes at least."""
    compile_times: float = 5.0
    """Times the longest compilation so far after which another one counts as a stall, once it has taken a minute, or
    tracing that no step follows. The first compilation never does."""
    policy: Literal["notify", "save-stop", "continue"] = "notify"
    """What the supervisor does about a stall: `notify` tells who waits where, in the log and on the timeline;
    `save-stop` asks the run to save and stop besides, and ends it where it does not within two minutes; `continue`
    does nothing."""


class RunConfig(Table, frozen=True, kw_only=True):
    """The configuration of a run."""

    task: str
    """The workload: a name that ships with tputui (`digits`, `image_labels`, `lightning`, `mask_depth`, `sentiment`,
    `tabular`), or `module:Class` of your own."""
    epochs: int
    """Epochs to train."""
    seed: int = 0
    """Seed of weights, shuffling and dropout."""
    data: DataConfig
    """What is trained on."""
    model: dict[str, Any] = msgspec.field(default_factory=dict)
    """The task's own keys of the network."""
    optim: OptimConfig = msgspec.field(default_factory=OptimConfig)
    """Optimizer and learning rate."""
    device: DeviceConfig = msgspec.field(default_factory=DeviceConfig)
    """Which cores."""
    checkpoint: CheckpointConfig = msgspec.field(default_factory=CheckpointConfig)
    """What is kept."""
    report: ReportConfig = msgspec.field(default_factory=ReportConfig)
    """How the run reports."""
    non_finite: NonFiniteConfig = msgspec.field(default_factory=NonFiniteConfig)
    """What is done where loss or gradient are no finite numbers."""
    stall: StallConfig = msgspec.field(default_factory=StallConfig)
    """When it counts as stalled, and what is done then."""

    def on_cores(self, num_cores: int) -> RunConfig:
        """The same with `num_cores` in place of `device.cores = "all"`; itself where cores are given."""
        if self.device.cores != "all":
            return self
        return msgspec.structs.replace(self, device=msgspec.structs.replace(self.device, cores=num_cores))

    @property
    def num_cores(self) -> int:
        """How many cores train. Raises `ValueError` for "all", as all that follows from it: see `on_cores`."""
        cores = self.device.cores
        if cores == "all":
            raise ValueError('device.cores = "all" is a number only on a machine')
        return len(cores) if isinstance(cores, list) else cores

    @property
    def core_ids(self) -> list[int]:
        """Which cores train."""
        cores = self.device.cores
        return list(cores) if isinstance(cores, list) else list(range(self.num_cores))

    @property
    def batch_per_core(self) -> int:
        """Examples a core takes each step."""
        return self.data.batch_per_core or (self.data.global_batch or 0) // self.num_cores

    @property
    def global_batch(self) -> int:
        """Examples all cores take each step."""
        return self.batch_per_core * self.num_cores

    @property
    def share_problem(self) -> str | None:
        """Why the cores cannot share `data.global_batch`; None where they can."""
        batch = self.data.global_batch
        if batch is None or batch % self.num_cores == 0:
            return None
        near = max(1, round(batch / self.num_cores)) * self.num_cores
        return f"{batch} cannot be shared by {self.num_cores} cores; {near} can"

    @property
    def scaled_lr(self) -> float:
        """Learning rate before its schedule, after scaling by the number of cores."""
        return self.optim.lr * self._lr_factor

    @property
    def scaled_min_lr(self) -> float:
        """Least learning rate of a schedule, after scaling by the number of cores."""
        return self.optim.min_lr * self._lr_factor

    @property
    def _lr_factor(self) -> float:
        return {"linear": float(self.num_cores), "sqrt": math.sqrt(self.num_cores), "none": 1.0}[self.optim.lr_scaling]

    @property
    def lr_rule(self) -> str:
        """How the learning rate follows from the configured one, in words."""
        factor = {"linear": f" x {self.num_cores} cores", "sqrt": f" x sqrt({self.num_cores} cores)", "none": ""}
        optim = self.optim
        rule = f"{optim.lr:g}{factor[optim.lr_scaling]}"
        if optim.warmup_steps or optim.warmup_epochs:
            length = f"{optim.warmup_steps} updates" if optim.warmup_steps else f"{optim.warmup_epochs:g} epochs"
            rule += f", linear warm-up over {length}"
        least = f"{self.scaled_min_lr:g}"
        if optim.used_schedule == "step":
            rule += f", x {optim.gamma:g} every {optim.step_size} epochs" + (
                f" down to {least}" if optim.min_lr else ""
            )
        elif optim.used_schedule == "cosine":
            rule += f", cosine down to {least}"
        return rule


TABLES: dict[str, type[Table]] = {
    "data": DataConfig,
    "optim": OptimConfig,
    "device": DeviceConfig,
    "checkpoint": CheckpointConfig,
    "report": ReportConfig,
    "non_finite": NonFiniteConfig,
    "stall": StallConfig,
}
"""Tables of the file that are checked here; `[model]` is the task's."""


TASK_TABLES = ("data", "model")
"""Tables that hold keys of the task."""


def data_keys() -> list[str]:
    """The keys of `[data]` that every task has."""
    return [name for name in DataConfig.__struct_fields__ if name != "options"]


def keys_by_name() -> dict[str, str]:
    """Every key that is checked here, by its last part and in full: `lr` and `optim.lr` are both `optim.lr`."""
    keys = [name for name in RunConfig.__struct_fields__ if name not in (*TABLES, *TASK_TABLES)]
    keys += [f"{table}.{name}" for table, cls in TABLES.items() for name in cls.__struct_fields__ if name != "options"]
    return {key.rpartition(".")[2]: key for key in reversed(keys)} | {key: key for key in keys}
