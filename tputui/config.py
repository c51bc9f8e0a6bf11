"""The whole configuration of a run as frozen types: parsed strictly, checked in full before anything starts.

Pure: reads text that it is given, touches no device and no clock. Keys under `[model]`, and those under `[data]`
that are not listed here, belong to the task; the engine checks them (`python -m engine.commands.describe`).
"""

from __future__ import annotations

import contextlib
import difflib
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from tputui.field_docs import field_docs

BYTES_MAX = 1 << 20
"""A longer file is no configuration."""
DEPTH_MAX = 24
"""Tables and lists inside of one another."""
Blame = Callable[[str], str]
"""Where the value of a key comes from, by the key."""


class ConfigError(Exception):
    """The configuration cannot be used. Its text says what, where (file and key) and what to do."""


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

MOST = {
    "epochs": 1_000_000,
    "data.batch_per_core": 1_000_000,
    "data.global_batch": 100_000_000,
    "data.prefetch_batches": 1_000,
    "data.workers": 256,
    "data.batches_per_epoch": 1_000_000_000,
    "optim.accumulate": 1_000_000,
    "optim.warmup_epochs": 1_000_000,
    "optim.warmup_steps": 1_000_000_000,
    "report.pictures": 64,
    "device.virtual_cores": 4_096,
}
"""Greatest values that make sense: beyond them a slip of the hand would take the memory or the year."""

BATCH_RIVALS = {"data.batch_per_core": "global_batch", "data.global_batch": "batch_per_core"}
"""Two ways to say one thing: an override of the one replaces the other."""


def load(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Reads and checks a configuration file.

    `overrides` are `key.path=value` strings, the value as TOML or, failing that, as a plain string.
    Raises `ConfigError`.
    """
    try:
        text = _read(path).decode()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {_near_file(path)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{path}: cannot be read: {why}; name a TOML file, such as those in sample_configs/"
        ) from None
    return parse(text, str(path), overrides)


def parse(text: str, source: str, overrides: list[str] | None = None) -> RunConfig:
    """Parses and checks TOML text; `source` names it in errors. Raises `ConfigError`."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid TOML: {_first_words(error)}") from None
    for override in overrides or []:
        _override(tables, override)
    return from_builtins(tables, source, overrides)


def from_builtins(tables: dict[str, Any], source: str, overrides: Sequence[str] | None = None) -> RunConfig:
    """Checks a configuration that is already a dictionary, as a run's manifest keeps it. Raises `ConfigError`.

    `overrides` are those that are in it already: an error in one of them is reported of it, not of `source`.
    """

    def blame(key: str) -> str:
        return blamed(source, key, overrides)

    _refuse_unusable(tables, blame)
    tables = _without_task_keys(tables, blame)
    _refuse_unknown_keys(tables, blame)
    try:
        config = msgspec.convert(tables, RunConfig)
    except msgspec.ValidationError as error:
        key, words = _in_words(str(error))
        raise ConfigError(f"{blame(key)}: {words}") from None
    _check(config, blame)
    return config


def blamed(source: str, key: str, overrides: Sequence[str] | None) -> str:
    """Where the value of a key comes from: `--set ...` of the last of the `overrides` that gave it, else `source`."""
    for override in reversed(overrides or []):
        given = override.partition("=")[0].strip()
        if key and (given == key or key.startswith(f"{given}.") or given.startswith(f"{key}.")):
            return f"--set {override}"
    return source


def to_builtins(config: RunConfig) -> dict[str, Any]:
    """The configuration as a dictionary that `from_builtins` takes, defaults filled in."""
    tables: dict[str, Any] = msgspec.to_builtins(config)
    data = tables["data"]
    data.update(data.pop("options"))
    return tables


def keys_by_name() -> dict[str, str]:
    """Every key that is checked here, by its last part and in full: `lr` and `optim.lr` are both `optim.lr`."""
    keys = [name for name in RunConfig.__struct_fields__ if name not in (*TABLES, *TASK_TABLES)]
    keys += [f"{table}.{name}" for table, cls in TABLES.items() for name in cls.__struct_fields__ if name != "options"]
    return {key.rpartition(".")[2]: key for key in reversed(keys)} | {key: key for key in keys}


def unknown_key(source: str, key: str, known: list[str], others: Mapping[str, Sequence[str]] | None = None) -> str:
    """The sentence that refuses an unknown key: file, key, and the table it belongs to or the nearest known key.

    `known` are the keys of its table; `others` those of a task by table, beside the keys that every task has.
    """
    table, _, name = key.rpartition(".")
    elsewhere = {other: [*keys, *(others or {}).get(other, ())] for other, keys in _common_keys().items()}
    elsewhere |= {other: list(keys) for other, keys in (others or {}).items() if other not in elsewhere}
    elsewhere.pop(table, None)
    where = f"[{table}] has no key" if table else "there is no key"
    owner = next((other for other, keys in elsewhere.items() if name in keys), None)
    if owner is not None:
        hint = f'"{name}" is a key of [{owner}]' if owner else f'"{name}" belongs at the top, before the first table'
    elif near := difflib.get_close_matches(name, known, n=1, cutoff=0.5):
        hint = f'did you mean "{near[0]}"?'
    elif far := [(each, other) for other, keys in elsewhere.items() for each in _alike(name, keys)]:
        hint = f'did you mean "{far[0][0]}"' + (f" of [{far[0][1]}]?" if far[0][1] else ", at the top of the file?")
    else:
        hint = f"known keys: {', '.join(sorted(known))}"
    return f'{source}: {where} "{name}"; {hint}'


def _alike(name: str, keys: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(name, keys, n=1, cutoff=0.75)


def _common_keys() -> dict[str, list[str]]:
    """The keys that every task has, by table; those at the top under an empty name."""
    top = [name for name in RunConfig.__struct_fields__ if name not in (*TABLES, *TASK_TABLES)]
    return {"": top} | {
        name: data_keys() if name == "data" else [*cls.__struct_fields__] for name, cls in TABLES.items()
    }


def data_keys() -> list[str]:
    """The keys of `[data]` that every task has."""
    return [name for name in DataConfig.__struct_fields__ if name != "options"]


def _read(path: Path) -> bytes:
    """The content of a plain file. Raises `OSError`, and `ValueError` for what is no file or longer than any."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise ValueError(f"it is longer than {BYTES_MAX:,} bytes, which no configuration is")
    return content


def _near_file(path: Path) -> str:
    """What to name instead of a file that does not exist."""
    there: list[Path] = []
    for folder in (path.parent, Path("sample_configs")):
        with contextlib.suppress(OSError):
            there += sorted(each for each in folder.iterdir() if each.suffix == ".toml")
    by_name = {each.name: each for each in reversed(there)}
    near = difflib.get_close_matches(path.name, by_name, n=1) or difflib.get_close_matches(
        f"{path.name}.toml", by_name, n=1
    )
    return f"did you mean {by_name[near[0]]}?" if near else "name a TOML file, such as those in sample_configs/"


def _first_words(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    words = str(error)
    return "a number has too many digits" if "integer string conversion" in words else words


def _refuse_unusable(tables: dict[str, Any], blame: Blame) -> None:
    """Refuses values that no key can have and that a run could not keep."""

    def look(value: Any, key: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise ConfigError(f"{blame(key)}: {key.partition('.')[0]}: it is nested too deeply")
        if isinstance(value, dict):
            for name, each in value.items():
                look(each, f"{key}.{name}" if key else name, depth + 1)
        elif isinstance(value, list):
            for each in value:
                look(each, key, depth + 1)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63 and key not in MOST:
            raise ConfigError(f"{blame(key)}: {key}: a whole number has at most 63 bits")
        elif isinstance(value, str) and any(0xD800 <= ord(letter) < 0xE000 for letter in value):
            raise ConfigError(f"{blame(key)}: {key}: it is not UTF-8 text")

    look(tables, "", 0)


def _override(tables: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals or not key:
        raise ConfigError(f'--set {override}: write it as key=value, for example "--set optim.lr=0.01"')
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set {override[:60]}: {_first_words(error)}") from None
    *path, name = key.strip().split(".")
    rival, data = BATCH_RIVALS.get(key.strip()), tables.get("data", {})
    if rival is not None and isinstance(data, dict):
        data.pop(rival, None)
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise ConfigError(f'--set {override}: "{part}" is a value, not a table')
    tables[name] = value


def _without_task_keys(tables: dict[str, Any], blame: Blame) -> dict[str, Any]:
    """Moves the task's keys of `[data]` aside, so that the rest can be checked strictly."""
    data = tables.get("data", {})
    if not isinstance(data, dict):
        raise ConfigError(f"{blame('data')}: data must be a table: write [data]")
    known = data_keys()
    options = {key: value for key, value in data.items() if key not in known}
    common = {key: value for key, value in data.items() if key in known}
    return {**tables, "data": {**common, "options": options}}


def _refuse_unknown_keys(tables: dict[str, Any], blame: Blame) -> None:
    top = list(RunConfig.__struct_fields__)
    for key in tables:
        if key not in top:
            raise ConfigError(unknown_key(blame(key), key, top))
    for name, cls in TABLES.items():
        table = tables.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{blame(name)}: {name} must be a table: write [{name}]")
        for key in table:
            if key not in cls.__struct_fields__:
                full = f"{name}.{key}"
                raise ConfigError(unknown_key(blame(full), full, list(cls.__struct_fields__)))


def _in_words(error: str) -> tuple[str, str]:
    """The key that the validator complains of, and a sentence that names it the way the file does."""
    message, _, path = error.partition(" - at `$.")
    key = path.rstrip("`") if path else ""
    if message.startswith("Object missing required field"):
        name = message.split("`")[1]
        full = f"{key}.{name}" if key else name
        return full, f'"{full}" is missing: {_doc(full)}'
    expected = message[:1].lower() + message[1:]
    if message.startswith("Invalid enum value"):
        expected = f"{message.split()[-1]} is not one of {', '.join(_choices(key))}"
    return key, f"{key}: {expected}: {_doc(key)}" if key else expected


def _choices(key: str) -> list[str]:
    """The values that a key of fixed choices takes."""
    table, _, name = key.rpartition(".")
    return [str(choice) for choice in get_args(get_type_hints(TABLES.get(table, RunConfig))[name])]


def _doc(key: str) -> str:
    table, _, name = key.rpartition(".")
    cls = TABLES.get(table, RunConfig)
    return field_docs(cls).get(name, "see the README")


def _check(config: RunConfig, blame: Blame) -> None:
    """Refuses values that are well-typed and still cannot work."""

    def refuse(key: str, why: str) -> None:
        raise ConfigError(f"{blame(key)}: {key}: {why}")

    if not config.task or not config.task.isprintable():
        refuse("task", f"{config.task!r} is no name of a task: write one that ships, or module:Class of your own")

    positive = {
        "epochs": config.epochs,
        "data.batch_per_core": config.data.batch_per_core,
        "data.global_batch": config.data.global_batch,
        "data.prefetch_batches": config.data.prefetch_batches,
        "data.batches_per_epoch": config.data.batches_per_epoch,
        "optim.lr": config.optim.lr,
        "optim.eps": config.optim.eps,
        "optim.clip_norm": config.optim.clip_norm,
        "optim.accumulate": config.optim.accumulate,
        "optim.step_size": config.optim.step_size,
        "optim.gamma": config.optim.gamma,
        "device.virtual_cores": config.device.virtual_cores,
        "checkpoint.every_epochs": config.checkpoint.every_epochs,
        "checkpoint.keep": config.checkpoint.keep,
        "report.interval_s": config.report.interval_s,
        "report.every_batches": config.report.every_batches,
        "stall.after_steps": config.stall.after_steps,
        "stall.after_s": config.stall.after_s,
        "stall.compile_times": config.stall.compile_times,
    }
    for key, value in positive.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            refuse(key, f"{value} must be more than 0")
        if value is not None and value > MOST.get(key, math.inf):
            refuse(key, f"{value} is more than {MOST[key]:,}, which cannot be meant")
    not_negative = {
        "data.workers": config.data.workers,
        "optim.momentum": config.optim.momentum or 0.0,
        "optim.weight_decay": config.optim.weight_decay,
        "optim.min_lr": config.optim.min_lr,
        "optim.warmup_epochs": config.optim.warmup_epochs,
        "optim.warmup_steps": config.optim.warmup_steps,
        "report.pictures": config.report.pictures,
    }
    for key, value in not_negative.items():
        if not (math.isfinite(value) and value >= 0):
            refuse(key, f"{value} must be 0 or more")
        if value > MOST.get(key, math.inf):
            refuse(key, f"{value} is more than {MOST[key]:,}, which cannot be meant")
    if not 0 <= config.seed < 2**31:
        refuse("seed", f"{config.seed} must be from 0 to {2**31 - 1}")
    if config.report.interval_s > 1:
        refuse("report.interval_s", f"{config.report.interval_s:g} is too long: a fact must be on screen within 1.5 s")
    _check_optim(config, refuse)
    _check_cores(config, refuse)
    _check_batch(config, refuse)


def _check_optim(config: RunConfig, refuse: Any) -> None:
    optim, default = config.optim, OptimConfig()
    schedule = optim.used_schedule
    for name, rivals, chosen in (("name", OPTIMIZER_KEYS, optim.name), ("schedule", SCHEDULE_KEYS, schedule)):
        for key in dict.fromkeys(key for keys in rivals.values() for key in keys):
            value = getattr(optim, key)
            # Runs of earlier versions wrote the momentum of SGD down whatever their optimizer was.
            unsaid = value == getattr(default, key) or (key, value) == ("momentum", SGD_MOMENTUM)
            if key not in rivals[chosen] and not unsaid:
                takers = " or ".join(f'"{other}"' for other, keys in rivals.items() if key in keys)
                refuse(f"optim.{key}", f'it has no effect with {name} = "{chosen}"; leave it out, or write {takers}')
    if schedule == "step" and optim.step_size is None:
        refuse("optim.step_size", 'it is missing: after how many epochs schedule = "step" lowers the learning rate')
    for key, value in (("betas", optim.betas[0]), ("betas", optim.betas[1]), ("alpha", optim.alpha)):
        if not 0 <= value < 1:
            refuse(f"optim.{key}", f"{value} must be 0 or more and less than 1")
    if optim.min_lr > optim.lr:
        refuse("optim.min_lr", f"{optim.min_lr:g} is more than optim.lr, {optim.lr:g}; a schedule only lowers it")
    if optim.warmup_epochs and optim.warmup_steps:
        refuse("optim", "warmup_epochs and warmup_steps say the same thing twice; give one of them")
    if optim.warmup_epochs > config.epochs:
        refuse("optim.warmup_epochs", f"{optim.warmup_epochs:g} is more than the {config.epochs} epochs of the run")


def _check_cores(config: RunConfig, refuse: Any) -> None:
    cores = config.device.cores
    if not isinstance(cores, list):
        if cores != "all" and cores < 1:
            refuse("device.cores", f'{cores} must be 1 or more, or "all"')
        return
    if len(cores) != 1:
        refuse("device.cores", f'{cores} must name one core, such as [5]; for several write their number, or "all"')
    if cores[0] < 0:
        refuse("device.cores", f"{cores} must name a core by its index, from 0")


def _check_batch(config: RunConfig, refuse: Any) -> None:
    data = config.data
    if data.batch_per_core is not None and data.global_batch is not None:
        refuse("data", "batch_per_core and global_batch say the same thing twice; give one of them")
    if (data.batch_per_core, data.global_batch) == (None, None):
        refuse("data", "batch_per_core is missing: how many examples a core takes each step")
    if config.device.cores != "all" and (why := config.share_problem) is not None:
        refuse("data.global_batch", why)
