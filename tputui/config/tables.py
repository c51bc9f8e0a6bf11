"""The tables of a configuration file as frozen types, and the documentation of fields from their docstrings."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import textwrap
from functools import cache
from typing import Any, Literal

import msgspec


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file."""


class DataConfig(Table, frozen=True, kw_only=True):
    """Training data and batches."""

    batch_per_core: int | None = None
    """Examples per core and step. Set this or `global_batch`."""
    global_batch: int | None = None
    """Examples per step over all cores of all hosts, a multiple of their number. Set this or `batch_per_core`."""
    prefetch_batches: int = 4
    """Batches that are loaded to the device ahead of the step."""
    workers: int = 0
    """Threads that read the examples of a batch; the batches do not depend on their number. 0 uses one thread per CPU,
    at most 8, to decode images, and one thread for the `fetch` of your own task: set more if `fetch` is thread-safe."""
    batches_per_epoch: int | None = None
    """Training batches per epoch, if not all of them. Every epoch is shuffled again, so it uses different ones."""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keys of the task in this table."""


class OptimConfig(Table, frozen=True, kw_only=True):
    """Optimizer and learning rate."""

    name: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    """The optimizer; each matches the torch optimizer of that name."""
    lr: float = 1e-3
    """Learning rate for one core, before scaling."""
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    """Scaling of the learning rate with the number of cores N: by N, by the square root of N, or none."""
    momentum: float | None = None
    """Momentum of `sgd` (default 0.9) and `rmsprop` (default 0)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the two running means of `adam` and `adamw`."""
    alpha: float = 0.99
    """Decay of the running mean of squared gradients of `rmsprop`."""
    eps: float = 1e-8
    """Added to the denominator of `adam`, `adamw` and `rmsprop`."""
    weight_decay: float = 0.0
    """Weight decay."""
    clip_norm: float | None = None
    """Maximum global norm of the gradient; a larger gradient is scaled down before the update. Default: no clipping."""
    accumulate: int = 1
    """Batches whose gradients are averaged for one update of the weights. A step is still one batch in all counts,
    curves and rates. An epoch has a whole number of updates; leftover batches are dropped. It does not scale the
    learning rate."""
    schedule: Literal["constant", "step", "cosine"] | None = None
    """How the learning rate changes: `constant`; `step` multiplies it by `gamma` every `step_size` epochs; `cosine`
    lowers it along half a cosine to `min_lr` at the end of the last epoch, at every update. Default: `step` if
    `step_size` is set, else `constant`."""
    step_size: int | None = None
    """For the schedule `step` (StepLR): epochs after which the learning rate is multiplied by `gamma`."""
    gamma: float = 0.1
    """For the schedule `step` (StepLR): the factor."""
    min_lr: float = 0.0
    """Minimum learning rate of `step` and `cosine`, scaled like `lr`."""
    warmup_epochs: float = 0.0
    """Epochs (or a fraction) in which the learning rate rises linearly to `lr`, at every update. Set this or
    `warmup_steps`."""
    warmup_steps: int = 0
    """The length of the warm-up as a number of updates."""

    @property
    def used_momentum(self) -> float:
        """Momentum in use; 0 for an optimizer without momentum."""
        if "momentum" not in OPTIMIZER_KEYS[self.name]:
            return 0.0
        if self.momentum is None:
            return SGD_MOMENTUM if self.name == "sgd" else 0.0
        return self.momentum

    @property
    def used_schedule(self) -> str:
        """Schedule in use."""
        return self.schedule or ("constant" if self.step_size is None else "step")


SGD_MOMENTUM = 0.9


OPTIMIZER_KEYS = {
    "adam": ("betas", "eps"),
    "adamw": ("betas", "eps"),
    "sgd": ("momentum",),
    "rmsprop": ("momentum", "alpha", "eps"),
}
"""Keys of `[optim]` that only some optimizers use."""


SCHEDULE_KEYS = {"constant": (), "step": ("step_size", "gamma", "min_lr"), "cosine": ("min_lr",)}
"""Keys of `[optim]` that only some schedules use."""


class DeviceConfig(Table, frozen=True, kw_only=True):
    """Cores and how they are used."""

    cores: int | list[int] | Literal["all"] = "all"
    """Cores to train on, of each host: `"all"` TPU cores of the host, or all virtual cores without a TPU; a number (8,
    1); or the index of one core (`[5]`)."""
    strategy: Literal["spmd", "replica"] = "spmd"
    """How several cores train one model: `spmd` is one process with the batch sharded over a mesh; `replica` is one
    process per core (on a TPU: per chip) with averaged gradients and BatchNorm per core. Ignored for one core."""
    precision: Literal["fp32", "bf16", "fp16", "16", 16] = "fp32"
    """Number format of the computation; parameters and losses stay in fp32. A LightningModule may set `16` or
    `fp16`, which TPUs do not support: it is trained in bf16, with a warning."""
    rematerialise: bool = False
    """Recompute blocks of the network in the backward pass instead of storing activations: less memory, about a third
    more computation, the same losses. No gain on virtual CPU cores, whose compiler merges the repeated computation."""
    virtual_cores: int = 8
    """Number of virtual CPU cores on a machine without a TPU."""


class CheckpointConfig(Table, frozen=True, kw_only=True):
    """Checkpoints."""

    every_epochs: int = 1
    """Epochs between checkpoints; the last epoch always saves one."""
    keep: int = 2
    """Number of periodic checkpoints to keep, besides the best, the last and requested ones."""
    monitor: str = "loss"
    """Validation meter that selects the best epoch."""
    mode: Literal["min", "max"] = "min"
    """Whether a smaller or larger value is better."""


class ReportConfig(Table, frozen=True, kw_only=True):
    """Reports of the run."""

    interval_s: float = 1.0
    """Seconds between reports, at most 1. Converted to a number of steps by the current step time."""
    every_batches: int | None = None
    """Fixed number of steps between reports; a report is still made when `interval_s` is over."""
    pictures: int = 8
    """Validation examples per epoch whose predictions are saved as pictures, if the task draws them."""
    seal: bool = False
    """Seal the journals of a finished run: about a third smaller, but no longer plain text."""


class NonFiniteConfig(Table, frozen=True, kw_only=True):
    """Handling of NaN or infinite losses and gradients."""

    policy: Literal["continue", "stop", "save-stop"] = "continue"
    """What to do when a report shows the first NaN or infinite loss: `continue` reports where it began and continues;
    `stop` ends training with exit code 3; `save-stop` saves first. `stop` and `save-stop` also check the norm of the
    gradient at every step, which takes some tenths of a millisecond. Under every policy, NaN/inf weights go to
    `checkpoints/non-finite.pt` and never overwrite a good checkpoint, and a run whose final weights are NaN/inf fails
    with exit code 3. Reports come about once a second, so some steps follow the first bad one. For a LightningModule
    only the training loss is checked."""


class StallConfig(Table, frozen=True, kw_only=True):
    """When a run counts as stalled, and what to do then."""

    after_steps: float = 20.0
    """The run counts as stalled after this many median step times without a step, in a phase with steps."""
    after_s: float = 30.0
    """Minimum number of seconds without a step."""
    compile_times: float = 5.0
    """A compilation, or a trace without a following step, counts as a stall after this many times the longest
    compilation so far, and at least a minute. The first compilation never does."""
    policy: Literal["notify", "save-stop", "continue"] = "notify"
    """What the supervisor does about a stall: `notify` reports which process waits where, in the log and on the
    timeline; `save-stop` also requests save and stop, and kills the run after two minutes; `continue` does nothing."""


class AlertsConfig(Table, frozen=True, kw_only=True):
    """Alerts: conditions on the run, and where a message goes when one begins to hold."""

    on: tuple[str, ...] = ()
    """Conditions, such as `"failed"`, `"stalled"`, `"non-finite"`, `"valid.loss > 3"`, `"no improvement for 5 epochs"`
    or `"done"`. Each raises one alert when it begins to hold, and may raise another after it has not held for a
    minute."""
    targets: tuple[str, ...] = ("bell",)
    """Where alerts go: `"bell"` (terminals that show the run), `"command:PROGRAM ARGUMENTS"`, `"https://..."` (a
    webhook that receives JSON), `"env:NAME"` (a webhook whose address is in an environment variable), or
    `"apprise:env:NAME"`."""


class DiagnosisConfig(Table, frozen=True, kw_only=True):
    """Diagnosis: which findings make a run fail."""

    strict: tuple[Literal["recompile", "fallback", "sync"], ...] = ()
    """Findings that make a run end `failed`, with exit code 3, although training succeeded: compilations after warm-up,
    operations on the host CPU, lines that wait for the device. For continuous integration."""


class LaunchConfig(Table, frozen=True, kw_only=True):
    """Several hosts: how their processes are started, and where they meet."""

    engine: Literal["local", "torchrun", "external"] | None = None
    """What starts the training process of each host: `local`, this host alone; `torchrun`, a launcher on each host that
    gives it the environment of torchrun, and like that restarts all of them after a failure; `external`, the same
    without restarts, for a cluster that restarts jobs. Default: `torchrun` for several hosts, else `local`."""
    nnodes: int | None = None
    """Number of hosts. Default: that of `hosts`, or what the cluster has in the environment, or 1."""
    hosts: tuple[str, ...] = ()
    """Names or addresses of the hosts, in the order of their indices. The first is where the hosts meet by default."""
    rdzv_endpoint: str | None = None
    """Address of the first host as `HOST:PORT`, where all hosts meet. Default: the first host, from `hosts` or from the
    environment of the cluster, on port 29400."""
    max_restarts: int = 0
    """How often `torchrun` restarts the training processes of all hosts after a failure, from the last checkpoint."""
    join_timeout_s: float = 600.0
    """Seconds that a host waits for the others before the run fails."""
    lost_after_s: float = 10.0
    """Seconds without an answer after which a host counts as lost."""

    @property
    def num_hosts(self) -> int:
        """Number of hosts, if the environment of the cluster is not needed to find it."""
        return self.nnodes or len(self.hosts) or 1

    @property
    def used_engine(self) -> str:
        """Engine in use."""
        return self.engine or ("torchrun" if self.num_hosts > 1 else "local")


RDZV_PORT = 29400
"""Port where the hosts meet, unless `launch.rdzv_endpoint` names one; torchrun has the same default."""


class RunConfig(Table, frozen=True, kw_only=True):
    """The configuration of a run."""

    task: str
    """The task: a built-in one (`digits`, `image_labels`, `lightning`, `mask_depth`, `sentiment`,
    `tabular`), or `module:Class` of your own."""
    epochs: int
    """Number of epochs to train."""
    seed: int = 0
    """Seed of weights, shuffling and dropout."""
    data: DataConfig
    """Training data and batches."""
    model: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keys of the task for the network."""
    optim: OptimConfig = msgspec.field(default_factory=OptimConfig)
    """Optimizer and learning rate."""
    device: DeviceConfig = msgspec.field(default_factory=DeviceConfig)
    """Cores and how they are used."""
    checkpoint: CheckpointConfig = msgspec.field(default_factory=CheckpointConfig)
    """Checkpoints."""
    report: ReportConfig = msgspec.field(default_factory=ReportConfig)
    """Reports of the run."""
    non_finite: NonFiniteConfig = msgspec.field(default_factory=NonFiniteConfig)
    """Handling of NaN or infinite losses and gradients."""
    stall: StallConfig = msgspec.field(default_factory=StallConfig)
    """When the run counts as stalled, and what to do then."""
    alerts: AlertsConfig = msgspec.field(default_factory=AlertsConfig)
    """Alerts: conditions on the run, and where a message goes when one begins to hold."""
    diagnosis: DiagnosisConfig = msgspec.field(default_factory=DiagnosisConfig)
    """Diagnosis: which findings make a run fail."""
    launch: LaunchConfig = msgspec.field(default_factory=LaunchConfig)
    """Several hosts: how their processes are started, and where they meet."""

    def on_cores(self, num_cores: int) -> RunConfig:
        """A copy with `num_cores` in place of `device.cores = "all"`; itself if the cores are set."""
        if self.device.cores != "all":
            return self
        return msgspec.structs.replace(self, device=msgspec.structs.replace(self.device, cores=num_cores))

    @property
    def num_cores(self) -> int:
        """Number of cores. Raises `ValueError` for "all", as do the properties that depend on it; see `on_cores`."""
        cores = self.device.cores
        if cores == "all":
            raise ValueError('device.cores = "all" has no number until it is resolved by on_cores()')
        return len(cores) if isinstance(cores, list) else cores

    @property
    def core_ids(self) -> list[int]:
        """Indices of the cores."""
        cores = self.device.cores
        return list(cores) if isinstance(cores, list) else list(range(self.num_cores))

    @property
    def batch_per_core(self) -> int:
        """Examples per core and step."""
        return self.data.batch_per_core or (self.data.global_batch or 0) // self.num_cores

    @property
    def global_batch(self) -> int:
        """Examples per step over all cores."""
        return self.batch_per_core * self.num_cores

    @property
    def share_problem(self) -> str | None:
        """Why `data.global_batch` cannot be divided among the cores; None if it can."""
        batch = self.data.global_batch
        if batch is None or batch % self.num_cores == 0:
            return None
        near = max(1, round(batch / self.num_cores)) * self.num_cores
        return f"{batch} is not divisible by {self.num_cores} cores; use {near}"

    @property
    def scaled_lr(self) -> float:
        """Learning rate before its schedule, after scaling by the number of cores."""
        return self.optim.lr * self._lr_factor

    @property
    def scaled_min_lr(self) -> float:
        """Minimum learning rate of a schedule, after scaling by the number of cores."""
        return self.optim.min_lr * self._lr_factor

    @property
    def _lr_factor(self) -> float:
        return {"linear": float(self.num_cores), "sqrt": math.sqrt(self.num_cores), "none": 1.0}[self.optim.lr_scaling]

    @property
    def lr_rule(self) -> str:
        """How the learning rate is derived from `optim.lr`, as text."""
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
    "alerts": AlertsConfig,
    "diagnosis": DiagnosisConfig,
    "launch": LaunchConfig,
}
"""Tables that are checked here; `[model]` belongs to the task."""


TASK_TABLES = ("data", "model")
"""Tables that contain keys of the task."""


def data_keys() -> list[str]:
    """The keys of `[data]` for every task."""
    return [name for name in DataConfig.__struct_fields__ if name != "options"]


def keys_by_name() -> dict[str, str]:
    """Every key that is checked here, by its last part and its full name: `lr` and `optim.lr` map to `optim.lr`."""
    keys = [name for name in RunConfig.__struct_fields__ if name not in (*TABLES, *TASK_TABLES)]
    keys += [f"{table}.{name}" for table, cls in TABLES.items() for name in cls.__struct_fields__ if name != "options"]
    return {key.rpartition(".")[2]: key for key in reversed(keys)} | {key: key for key in keys}


def default_values() -> dict[str, Any]:
    """The default of every key that has one, by its full name, as a JSON value."""
    classes: list[tuple[str, type[Table]]] = [("", RunConfig), *((f"{name}.", cls) for name, cls in TABLES.items())]
    return {
        prefix + field.name: list(field.default) if isinstance(field.default, tuple) else field.default
        for prefix, cls in classes
        for field in msgspec.structs.fields(cls)
        if field.default is not msgspec.NODEFAULT
    }


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Docstring by field name, base classes included, in the order of definition; white space is folded."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        body = ast.parse(source).body
        if body and isinstance(body[0], ast.ClassDef):
            docs.update(_docs_in(body[0].body))
    return docs


def class_doc(cls: type) -> str:
    """Docstring of a class, from its source where the interpreter dropped it (`PYTHONOPTIMIZE=2`); "" without one."""
    if cls.__doc__ is not None:
        return inspect.cleandoc(cls.__doc__)
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError):
        return ""
    return ast.get_docstring(body[0]) or "" if body and isinstance(body[0], ast.ClassDef) else ""


def _docs_in(body: list[ast.stmt]) -> dict[str, str]:
    """Pairs every annotated field with the string expression that follows it."""
    docs: dict[str, str] = {}
    for statement, following in itertools.pairwise(body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            docs[statement.target.id] = " ".join(str(following.value.value).split())
    return docs
