"""Loads the weights of a finished run into the task's network on the CPU, for predictions and export.

Reads checkpoints, plain state dicts (`.pt`) and `.safetensors`. Must not import the runtime: importing it replaces
layers of torch, and a network created after that runs only on its devices.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from engine import run_plan
from engine.checkpoint import checkpoint_files
from engine.errors import Problem, Refused
from engine.process import user_code
from engine.task import Workload
from tputui.config import RunConfig, from_builtins
from tputui.reporting import RunNotFound, read_manifest, text_of

BEST = "best.pt"
SAFETENSORS = ".safetensors"
LIGHTNING = "lightning"
OWN_PACKAGE = "engine"
"""The package of tputui's own tasks."""
DESCRIPTION_FORMAT = 1

State = dict[str, torch.Tensor]


class Weights(NamedTuple):
    """Parameters and buffers by name, on the CPU, with the metadata of the file."""

    path: Path
    state: State
    step: int | None
    """Training steps of the weights; None if the file has no such record."""
    figure: float | None
    """The value of the run's own validation; None if the file has no such record."""
    fingerprint: dict[str, Any] | None
    """Configuration of the training, by key, if the file is a checkpoint."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The description beside exported weights, `NAME.json`: everything needed to use them."""

    format: int
    config: dict[str, Any]
    """The configuration of the training."""
    cwd: str
    """Directory that the user's modules and relative paths start from."""
    weights: str
    """File that the weights were exported from."""
    step: int | None = None
    monitor: str | None = None
    """Validation meter of `figure`."""
    figure: float | None = None
    """The value of the run's own validation."""


def description_of(path: Path) -> Path:
    return path.with_suffix(".json")


def read(path: Path) -> Weights:
    """The weights in a file. Raises `Refused` if there are none."""
    content = (
        _read_safetensors(path)
        if path.suffix == SAFETENSORS
        else checkpoint_files.read_intact(path, "weights", "file", "weights")
    )
    if isinstance(content, Mapping) and "learner" in content and "fingerprint" in content:
        return _of_checkpoint(path, content)
    if not _is_state(content):
        raise Refused.of("weights", f"{path}: is neither a checkpoint nor a state dict")
    description = read_description(path)
    if description is None:
        return Weights(path, dict(content), None, None, None)
    return Weights(path, dict(content), description.step, description.figure, None)


def _of_checkpoint(path: Path, content: Mapping[str, Any]) -> Weights:
    try:
        # Lightning's own checkpoints store the weights beside an empty state_dict.
        state = content["learner"].get("model") or content["state_dict"]
        fingerprint, step = dict(content["fingerprint"]), content["position"]["step"]
        best = content["best"] if path.name == BEST else None
        is_known = isinstance(step, int) and isinstance(best, int | float | None)
        if not is_known or not all(isinstance(key, str) for key in fingerprint):
            raise TypeError("a value of the checkpoint has another type")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused.of("weights", f"{path}: is a checkpoint of another version, or damaged") from error
    if not _is_state(state):
        raise Refused.of("weights", f"{path}: is a checkpoint without weights")
    return Weights(path, dict(state), step, best, fingerprint)


def _is_state(content: object) -> bool:
    """Whether the value is a dict of tensors by name."""
    if not isinstance(content, Mapping) or not content:
        return False
    return all(isinstance(name, str) and torch.is_tensor(value) for name, value in content.items())


class NetworkNotCreated(Refused):
    """The task cannot create its network because its training files are missing."""


class Origin(NamedTuple):
    """The configuration that weights were trained with; untrusted, like the file it comes from."""

    config: RunConfig
    source: str
    """Name of its origin for messages."""
    cwd: str | None
    """Directory that relative paths start from; no module is imported from there."""
    run_dir: Path | None
    """The run it belongs to; None for a single file of weights."""


def origin(weights: Weights, run_dir: Path | None) -> Origin:
    """The weights' configuration: from the run, else from the checkpoint, else from the description beside them.

    Raises `Refused` or `ConfigError`.
    """
    if run_dir is not None:
        try:
            manifest = read_manifest(run_dir)
        except RunNotFound as error:
            raise Refused.of("run", str(error)) from error
        tables, source, cwd = manifest.config, manifest.config_path, manifest.cwd
    elif weights.fingerprint is not None:
        tables, source, cwd = _from_fingerprint(weights.fingerprint), str(weights.path), None
    else:
        description = read_description(weights.path)
        if description is None:
            message = f"{weights.path}: contains no configuration; name its run, and this file with --weights"
            raise Refused.of("weights", message)
        tables, source, cwd = description.config, str(description_of(weights.path)), description.cwd
    config = from_builtins(tables, source)
    cores = (weights.fingerprint or {}).get("device.cores")
    # "all" was a number on the training machine.
    return Origin(config.on_cores(cores if isinstance(cores, int) and cores > 0 else 1), source, cwd, run_dir)


def workload(weights_origin: Origin, code: Path | None) -> Workload:
    """The task with its options.

    Changes to the directory that the run was started in, if it still exists, so that relative paths of the
    configuration work. User code is imported from `code`, the folder that the user gave; otherwise from the current
    directory, and only for a run. Raises `Refused`.
    """
    if targets := _code_named(weights_origin.config):
        _allow_code(targets, weights_origin, code)
    if weights_origin.cwd is not None and Path(weights_origin.cwd).is_dir():
        os.chdir(weights_origin.cwd)
    config = weights_origin.config
    return run_plan.configured(run_plan.find_task(config.task), config, weights_origin.source)


def _code_named(config: RunConfig) -> list[str]:
    """Each `module:Class` in the configuration that is not part of tputui."""
    targets: list[Any] = [run_plan.KNOWN_TASKS.get(config.task, config.task)]
    if config.task == LIGHTNING:
        targets += [config.model.get("module"), config.data.options.get("module")]
    return [
        target
        for target in targets
        if isinstance(target, str) and ":" in target and target.partition(":")[0].partition(".")[0] != OWN_PACKAGE
    ]


def _allow_code(targets: list[str], weights_origin: Origin, code: Path | None) -> None:
    """Makes the user's own modules importable and imports them. Raises `Refused` if that is not allowed."""
    named = f'{weights_origin.run_dir or weights_origin.source} needs code that is not part of tputui: "{targets[0]}"'
    trust = "that runs the code, so only do it if you trust it"
    if code is None and weights_origin.run_dir is None:
        # A file does not record where its code is, so the current directory is not a choice of the user.
        raise Refused.of("task", f"{named}; name its folder with --code DIR; {trust}")
    folder = Path.cwd() if code is None else code
    if not folder.is_dir():
        raise Refused.of("--code", f"{folder}: no such folder")
    user_code.allow_imports_from(folder, weights_origin.run_dir if code is None else None)
    for target in targets:
        module = target.partition(":")[0]
        try:
            importlib.import_module(module)
        except (user_code.ImportedUserCode, ModuleNotFoundError) as error:
            if isinstance(error, ModuleNotFoundError) and not f"{module}.".startswith(f"{error.name}."):
                continue  # A package that the user's code needs; the error for the task names it.
            why = f"there is no module {module} in {folder}" if error.name else str(error)
            hint = f"run this in the folder of that code, or name the folder with --code DIR; {trust}"
            raise Refused.of("task", f"{named}, and {why}; {hint}") from error
        except (Exception, SystemExit):
            continue  # As above.


def network(work: Workload, weights: Weights) -> torch.nn.Module:
    """The network with the weights, for evaluation. Raises `NetworkNotCreated`, and `Refused` if they do not fit."""
    torch.manual_seed(work.config.seed)
    options = work.model
    if isinstance(getattr(options, "weights", None), str):
        # The initial weights are replaced anyway, and their file may be gone.
        options = msgspec.structs.replace(options, weights="")
    try:
        model = work.task.model(options, work.data)
    except (OSError, ValueError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        raise NetworkNotCreated([Problem("", f"the network cannot be created: {reason}")]) from error
    load_into(model, weights)
    return model.eval()


def load_into(model: torch.nn.Module, weights: Weights) -> None:
    """Loads the weights into the network. Raises `Refused` if they do not fit."""
    try:
        model.load_state_dict(weights.state)
    except RuntimeError as error:
        raise Refused.of("weights", f"{weights.path}: belongs to another network: {_misfit(error)}") from error


def check_fit(weights_origin: Origin, weights: Weights) -> None:
    """Raises `Refused` if the weights are not those of the configured network.

    Imports only tputui's own tasks; for other tasks nothing is checked.
    """
    if weights_origin.config.task not in run_plan.KNOWN_TASKS or weights_origin.config.task == LIGHTNING:
        return
    here = Path.cwd()
    try:
        with contextlib.suppress(NetworkNotCreated):
            network(workload(weights_origin, None), weights)
    finally:
        os.chdir(here)


def has_safetensors() -> bool:
    return importlib.util.find_spec("safetensors") is not None


def safetensors_torch() -> Any:
    """The `safetensors.torch` module. Raises `Refused` if the package is not installed."""
    if not has_safetensors():
        raise Refused.of("weights", f"the package safetensors is not installed, which {SAFETENSORS} files need")
    return importlib.import_module("safetensors.torch")


def _misfit(error: RuntimeError) -> str:
    """The first problem in an error of torch, as one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return lines[1] if len(lines) > 1 else lines[0]


def _read_safetensors(path: Path) -> Any:
    if not path.is_file():
        raise Refused.of("weights", f"{path}: no such file")
    load = safetensors_torch().load_file
    try:
        return load(path)
    except Exception as error:  # The error class of the package derives from Exception only.
        # The first line of its text says what is wrong.
        reason = next(iter(text_of(error).splitlines()), "it is damaged")
        raise Refused.of("weights", f"{path}: cannot be read as weights: {reason}") from error


def read_description(path: Path) -> Description | None:
    """The description beside exported weights, or None. Raises `Refused` if the file is something else."""
    beside = description_of(path)
    try:
        description = msgspec.json.decode(beside.read_bytes(), type=Description)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise Refused.of("weights", f"{beside}: cannot be read as the description of {path.name}: {error}") from error
    if description.format != DESCRIPTION_FORMAT:
        raise Refused.of("weights", f"{beside}: has format {description.format}, expected {DESCRIPTION_FORMAT}")
    return description


def _from_fingerprint(fingerprint: dict[str, Any]) -> dict[str, Any]:
    """A configuration with the keys stored in a checkpoint; the other keys do not matter to its weights."""
    tables: dict[str, Any] = {"task": fingerprint.get("task"), "epochs": 1, "seed": fingerprint.get("seed", 0)}
    tables["data"] = {"batch_per_core": 1}
    tables["model"] = {}
    for key, value in fingerprint.items():
        table, _, name = key.partition(".")
        if table in ("data", "model") and name:
            tables[table][name] = value
    return tables
