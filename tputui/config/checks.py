"""Checks values of a configuration that have the right type: limits, and settings that exclude each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tputui.config.tables import (
    OPTIMIZER_KEYS,
    RDZV_PORT,
    SCHEDULE_KEYS,
    SGD_MOMENTUM,
    LaunchConfig,
    OptimConfig,
    RunConfig,
)

SourceOf = Callable[[str], str]
"""The source of the value of a key, for error messages: the file or `--set ...`."""
DEPTH_MAX = 24
"""Maximum nesting of tables and lists."""
EPOCHS_MAX = 1_000_000
MAXIMUM = {
    "epochs": EPOCHS_MAX,
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
    "launch.nnodes": 4_096,
    "launch.max_restarts": 10_000,
    "launch.join_timeout_s": 7 * 86_400,
    "launch.lost_after_s": 3_600,
}
"""Largest sensible values. Beyond them a typo would exhaust the memory or take years."""


class ConfigError(Exception):
    """The configuration is not valid. The text has a line per problem, which names the file and the key."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def check_values(tables: dict[str, Any], source_of: SourceOf) -> None:
    """Refuses values that are not valid for any key, or that a run could not store. Raises `ConfigError`."""

    def visit(value: Any, key: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise ConfigError(f"{source_of(key)}: {key.partition('.')[0]}: nested too deeply")
        if isinstance(value, dict):
            for name, nested in value.items():
                visit(nested, f"{key}.{name}" if key else name, depth + 1)
        elif isinstance(value, list):
            for nested in value:
                visit(nested, key, depth + 1)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63 and key not in MAXIMUM:
            raise ConfigError(f"{source_of(key)}: {key}: an integer has at most 64 bits")
        elif isinstance(value, str) and any(0xD800 <= ord(letter) < 0xE000 for letter in value):
            raise ConfigError(f"{source_of(key)}: {key}: not valid UTF-8")

    visit(tables, "", 0)


def check(config: RunConfig, source_of: SourceOf) -> None:
    """Refuses values that have the right type but cannot work. Raises `ConfigError`."""
    problems: list[str] = []

    def note(key: str, why: str) -> None:
        problems.append(f"{source_of(key)}: {key}: {why}")

    def refuse(key: str, why: str) -> None:
        raise ConfigError(f"{source_of(key)}: {key}: {why}")

    _check_numbers(config, note)
    if problems:
        raise ConfigError(*problems)
    _check_optim(config, refuse)
    _check_cores(config, refuse)
    _check_batch(config, refuse)
    check_launch(config.launch, refuse)


def number_problem(value: float, *, or_zero: bool = False) -> str | None:
    """Why a number that must be finite and positive is not valid; `or_zero` allows 0."""
    if not math.isfinite(value):
        return f"{value} must be finite"
    if or_zero:
        return None if value >= 0 else f"{value} must be 0 or more"
    return None if value > 0 else f"{value} must be positive"


def _check_numbers(config: RunConfig, refuse: Callable[[str, str], None]) -> None:
    """Checks each number by itself; `refuse` takes the key and the reason, once for each problem."""
    if not config.task or not config.task.isprintable():
        refuse("task", f"{config.task!r} is not a task name: use a built-in task, or module:Class of your own")

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
        "launch.nnodes": config.launch.nnodes,
        "launch.join_timeout_s": config.launch.join_timeout_s,
        "launch.lost_after_s": config.launch.lost_after_s,
    }
    for key, value in positive.items():
        _check_number(key, value, refuse)
    not_negative = {
        "data.workers": config.data.workers,
        "optim.momentum": config.optim.momentum or 0.0,
        "optim.weight_decay": config.optim.weight_decay,
        "optim.min_lr": config.optim.min_lr,
        "optim.warmup_epochs": config.optim.warmup_epochs,
        "optim.warmup_steps": config.optim.warmup_steps,
        "report.pictures": config.report.pictures,
        "launch.max_restarts": config.launch.max_restarts,
    }
    for key, value in not_negative.items():
        _check_number(key, value, refuse, or_zero=True)
    if not 0 <= config.seed < 2**31:
        refuse("seed", f"{config.seed} must be between 0 and {2**31 - 1}")
    if config.report.interval_s > 1:
        refuse(
            "report.interval_s",
            f"{config.report.interval_s:g} exceeds the maximum of 1 s",
        )


def _check_number(key: str, value: float | None, refuse: Callable[[str, str], None], *, or_zero: bool = False) -> None:
    if value is None:
        return
    if problem := number_problem(value, or_zero=or_zero):
        refuse(key, problem)
    elif value > MAXIMUM.get(key, math.inf):
        refuse(key, f"{value} exceeds the maximum of {MAXIMUM[key]:,}")


def check_launch(launch: LaunchConfig, refuse: Callable[[str, str], None]) -> None:
    """Refuses settings of several hosts that contradict each other; `refuse` raises, with the key and the reason."""
    hosts, nnodes, engine = launch.hosts, launch.nnodes, launch.engine
    if any(not host or not host.isprintable() or " " in host for host in hosts):
        refuse("launch.hosts", "contains a name that is empty or has a space")
    if len(set(hosts)) < len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        refuse("launch.hosts", f"contains {twice} twice; each host has one index")
    if hosts and nnodes is not None and len(hosts) != nnodes:
        refuse("launch.nnodes", f"{nnodes} contradicts the {len(hosts)} hosts of launch.hosts; remove one of them")
    if launch.num_hosts > MAXIMUM["launch.nnodes"]:
        refuse("launch.hosts", f"{launch.num_hosts} hosts exceed the maximum of {MAXIMUM['launch.nnodes']:,}")
    if engine == "local" and launch.num_hosts > 1:
        refuse("launch.engine", f'"local" is one host, but the run has {launch.num_hosts}; write "torchrun"')
    if launch.max_restarts and engine in ("local", "external"):
        refuse("launch.max_restarts", f'{launch.max_restarts} needs engine = "torchrun"; "{engine}" restarts nothing')
    if launch.rdzv_endpoint is not None and endpoint_of(launch.rdzv_endpoint) is None:
        refuse("launch.rdzv_endpoint", f"{launch.rdzv_endpoint!r} is not HOST:PORT, such as 10.0.0.2:{RDZV_PORT}")


def endpoint_of(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT`, `[IPV6]:PORT` or `HOST`; None if the text is none of them."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(RDZV_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not host or not host.isprintable() or " " in host or not (port.isascii() and port.isdigit()):
        return None
    return (host, int(port)) if len(port) <= 5 and 0 < int(port) <= 65_535 else None


def _check_optim(config: RunConfig, refuse: Any) -> None:
    optim, default = config.optim, OptimConfig()
    schedule = optim.used_schedule
    for name, keys_by_choice, chosen in (("name", OPTIMIZER_KEYS, optim.name), ("schedule", SCHEDULE_KEYS, schedule)):
        for key in dict.fromkeys(key for keys in keys_by_choice.values() for key in keys):
            value = getattr(optim, key)
            # Earlier versions recorded the momentum of SGD for every optimizer.
            is_default = value == getattr(default, key) or (key, value) == ("momentum", SGD_MOMENTUM)
            if key not in keys_by_choice[chosen] and not is_default:
                choices = " or ".join(f'"{other}"' for other, keys in keys_by_choice.items() if key in keys)
                refuse(f"optim.{key}", f'has no effect with {name} = "{chosen}"; remove it, or use {choices}')
    if schedule == "step" and optim.step_size is None:
        refuse("optim.step_size", 'missing: the number of epochs between two steps of schedule = "step"')
    for key, value in (("betas", optim.betas[0]), ("betas", optim.betas[1]), ("alpha", optim.alpha)):
        if not 0 <= value < 1:
            refuse(f"optim.{key}", f"{value} must be at least 0 and less than 1")
    if optim.min_lr > optim.lr:
        refuse("optim.min_lr", f"{optim.min_lr:g} exceeds optim.lr ({optim.lr:g})")
    if optim.warmup_epochs and optim.warmup_steps:
        refuse("optim", "set either warmup_epochs or warmup_steps, not both")
    if optim.warmup_epochs > config.epochs:
        refuse("optim.warmup_epochs", f"{optim.warmup_epochs:g} exceeds the {config.epochs} epochs of the run")


def _check_cores(config: RunConfig, refuse: Any) -> None:
    cores = config.device.cores
    if not isinstance(cores, list):
        if cores != "all" and cores < 1:
            refuse("device.cores", f'{cores} must be 1 or more, or "all"')
        return
    if len(cores) != 1:
        refuse(
            "device.cores", f'{cores} must contain one core, such as [5]; for several cores, use their number or "all"'
        )
    if cores[0] < 0:
        refuse("device.cores", f"{cores} must be the index of a core, from 0")


def _check_batch(config: RunConfig, refuse: Any) -> None:
    data = config.data
    if data.batch_per_core is not None and data.global_batch is not None:
        refuse("data", "set either batch_per_core or global_batch, not both")
    if (data.batch_per_core, data.global_batch) == (None, None):
        refuse("data", "batch_per_core is missing: the number of examples per core and step")
    if config.device.cores != "all" and (why := config.share_problem) is not None:
        refuse("data.global_batch", why)
