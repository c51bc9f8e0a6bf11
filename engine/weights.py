"""Weights that a run left behind, put back into the task's network on the CPU.

Reads checkpoints, plain state dicts (`.pt`) and `.safetensors`. Must not import the runtime: importing it replaces
layers of torch, and a network made then runs on nothing but its devices.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from engine import sums
from engine.errors import Problem, Refused
from engine.tasks import registry
from engine.tasks.base import Options, Task
from tputui.config import RunConfig, from_builtins
from tputui.telemetry.rundir import RunNotFound, read_manifest

BEST = "best.pt"
SAFETENSORS = ".safetensors"
DESCRIPTION_FORMAT = 1
_UNREADABLE = (OSError, RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError)

State = dict[str, torch.Tensor]


class Workload(NamedTuple):
    """What the weights belong to."""

    config: RunConfig
    task: Task
    data: Options
    model: Options


class Weights(NamedTuple):
    """Parameters and buffers by name, on the CPU, and what the file tells of them."""

    path: Path
    state: State
    step: int | None
    """Training steps that made them; None where the file does not tell."""
    figure: float | None
    """What the run's own validation said of them; None where the file does not tell."""
    fingerprint: dict[str, Any] | None
    """Configuration keys that they were trained under, where the file is a checkpoint."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside exported weights, as `NAME.json`: all that is needed to use them."""

    format: int
    """Version of this description."""
    config: dict[str, Any]
    """The configuration that they were trained under."""
    cwd: str
    """Directory in which a user's own modules and relative paths are looked for."""
    weights: str
    """File that they were taken from."""
    step: int | None = None
    """Training steps that made them."""
    monitor: str | None = None
    """Validation meter that `figure` is of."""
    figure: float | None = None
    """What the run's own validation said of them."""


def description_of(path: Path) -> Path:
    """Where the description of exported weights lies."""
    return path.with_suffix(".json")


def read(path: Path) -> Weights:
    """The weights in a file, refused in one sentence where there are none. Raises `Refused`."""
    content = _read_safetensors(path) if path.suffix == SAFETENSORS else _read_torch(path)
    if isinstance(content, Mapping) and "learner" in content and "fingerprint" in content:
        best = content.get("best") if path.name == BEST else None
        step = content.get("position", {}).get("step")
        return Weights(path, dict(content["learner"]["model"]), step, best, dict(content["fingerprint"]))
    if not isinstance(content, Mapping) or not content or not all(map(torch.is_tensor, content.values())):
        raise Refused([Problem("weights", f"{path}: holds neither a checkpoint nor a state dict")])
    found = described(path)
    if found is None:
        return Weights(path, dict(content), None, None, None)
    return Weights(path, dict(content), found.step, found.figure, None)


def workload(weights: Weights, run_dir: Path | None) -> Workload:
    """What the weights belong to: by the run, else by the checkpoint itself, else by the description beside them.

    Moves to the directory that the run was started in, where it is still there, so that the configuration's own
    paths and a user's modules are found. Raises `Refused` or `ConfigError`.
    """
    if run_dir is not None:
        try:
            manifest = read_manifest(run_dir)
        except RunNotFound as error:
            raise Refused([Problem("run", str(error))]) from error
        return _with_task(manifest.config, manifest.config_path, manifest.cwd)
    if weights.fingerprint is not None:
        return _with_task(_from_fingerprint(weights.fingerprint), str(weights.path), None)
    found = described(weights.path)
    if found is None:
        message = f"{weights.path}: does not tell its configuration; name its run, and this file with --weights"
        raise Refused([Problem("weights", message)])
    return _with_task(found.config, str(description_of(weights.path)), found.cwd)


def network(work: Workload, weights: Weights) -> torch.nn.Module:
    """The task's network with the weights in it, for evaluation. Raises `Refused` where they do not fit."""
    torch.manual_seed(work.config.seed)
    model = work.task.model(work.model, work.data)
    try:
        model.load_state_dict(weights.state)
    except RuntimeError as error:
        raise Refused([Problem("weights", f"{weights.path}: belongs to another network: {_misfit(error)}")]) from error
    return model.eval()


def has_safetensors() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("safetensors") is not None


def safetensors_torch() -> Any:
    """The package's half for torch. Raises `Refused` where it is not installed."""
    if not has_safetensors():
        raise Refused([Problem("weights", f"the package safetensors is not installed, which {SAFETENSORS} files need")])
    return importlib.import_module("safetensors.torch")


def _misfit(error: RuntimeError) -> str:
    """The first thing that torch names, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return lines[1] if len(lines) > 1 else lines[0]


def _read_torch(path: Path) -> Any:
    try:
        sums.require(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise Refused([Problem("weights", f"{path}: no such file")]) from None
    except sums.Misread as error:
        raise Refused([Problem("weights", f"{path}: {error}")]) from None
    except _UNREADABLE as error:
        message = f"{path}: cannot be read as weights: {registry.reason(error)}"
        raise Refused([Problem("weights", message)]) from error


def _read_safetensors(path: Path) -> Any:
    if not path.is_file():
        raise Refused([Problem("weights", f"{path}: no such file")])
    load = safetensors_torch().load_file
    try:
        return load(path)
    except Exception as error:  # The package's own error is a plain Exception.
        message = f"{path}: cannot be read as weights: {registry.reason(error)}"
        raise Refused([Problem("weights", message)]) from error


def described(path: Path) -> Description | None:
    """What stands beside exported weights; None where nothing does. Raises `Refused` where it is something else."""
    beside = description_of(path)
    try:
        found = msgspec.json.decode(beside.read_bytes(), type=Description)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        message = f"{beside}: cannot be read as the description of {path.name}: {error}"
        raise Refused([Problem("weights", message)]) from error
    if found.format != DESCRIPTION_FORMAT:
        message = f"{beside}: is of format {found.format} where {DESCRIPTION_FORMAT} is read"
        raise Refused([Problem("weights", message)])
    return found


def _from_fingerprint(fingerprint: dict[str, Any]) -> dict[str, Any]:
    """A configuration with the keys that a checkpoint keeps; the rest does not matter to its weights."""
    tables: dict[str, Any] = {"task": fingerprint.get("task"), "epochs": 1, "seed": fingerprint.get("seed", 0)}
    tables["data"] = {"batch_per_core": 1}
    tables["model"] = {}
    for key, value in fingerprint.items():
        table, _, name = key.partition(".")
        if table in ("data", "model") and name:
            tables[table][name] = value
    return tables


def _with_task(tables: dict[str, Any], source: str, cwd: str | None) -> Workload:
    config = from_builtins(tables, source)
    if cwd is not None:
        # The user's own modules come last, so that theirs never hide ours.
        sys.path.append(cwd)
        if Path(cwd).is_dir():
            os.chdir(cwd)
    task, data, model = registry.with_options(registry.find(config.task), config, source)
    return Workload(config, task, data, model)
