"""Finds the user's LightningModule and LightningDataModule by name, checks their arguments, and makes them.

Importing this module imports neither torch nor Lightning. Only `make` creates instances.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from engine.errors import NotImported, Problem, Refused
from engine.task import Options
from engine.task_registry import reason
from tputui.config import RunConfig

if TYPE_CHECKING:
    from lightning.pytorch import LightningDataModule, LightningModule


PACKAGE = "lightning"
KINDS = {"model": "LightningModule", "data": "LightningDataModule"}
"""Base class by table of the configuration."""


class LightningData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    module: str | None = None
    """LightningDataModule as `package.module:Class`; none if the LightningModule has its own loaders."""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keyword arguments of the LightningDataModule. If it takes `batch_size`, it is given the global batch."""


class LightningModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    module: str = ""
    """LightningModule as `package.module:Class`."""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keyword arguments of the LightningModule. If it takes `lr`, it is given the scaled learning rate."""


def problems(table: str, target: str, arguments: dict[str, Any], offered: Collection[str]) -> list[Problem]:
    """Why the class at `target` cannot be made with these arguments, and with the `offered` ones that it takes."""
    try:
        cls = find(table, target)
    except Refused as refused:
        return refused.problems
    return argument_problems(table, cls, arguments, offered)


def find(table: str, target: str) -> type[Any]:
    """The class at `module:Class`. Raises `Refused` if it does not exist or has another base class."""
    key, kind = f"{table}.module", KINDS[table]
    module_name, colon, class_name = target.partition(":")
    if not colon:
        raise _refused(key, f'"{target}" does not name a class; write it as "package.module:Class"')
    base = getattr(_package(), kind)
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (Exception, SystemExit) as error:  # It is the user's code, and a script may even end the process.
        raise NotImported([Problem(key, f'"{target}" cannot be imported: {reason(error)}')]) from error
    if isinstance(cls, type) and issubclass(cls, base):
        return cls
    other = isinstance(cls, type) and any(parent.__module__.startswith("pytorch_lightning.") for parent in cls.__mro__)
    hint = f"; it derives from pytorch_lightning: import {kind} from lightning.pytorch instead" if other else ""
    raise _refused(key, f'"{target}" is not a subclass of lightning.pytorch.{kind}{hint}')


def argument_problems(table: str, cls: type[Any], arguments: dict[str, Any], offered: Collection[str]) -> list[Problem]:
    """Arguments that the class does not take, and required ones that are missing."""
    parameters = inspect.signature(cls).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    names = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_POSITIONAL]
    takes = f"it takes {', '.join(names)}" if names else "it takes none"
    found = [
        Problem(f"{table}.arguments.{name}", f"{cls.__name__} has no such argument; {takes}")
        for name in arguments
        if name not in names
    ]
    needed = [name for name in names if parameters[name].default is inspect.Parameter.empty]
    return found + [
        Problem(f"{table}.arguments.{name}", f"{cls.__name__} requires this argument")
        for name in needed
        if name not in arguments and name not in offered
    ]


def takes(cls: type[Any], name: str) -> bool:
    """Whether the class takes an argument of that name."""
    return name in inspect.signature(cls).parameters


def make(
    config: RunConfig, data: LightningData, model: LightningModel
) -> tuple[LightningModule, LightningDataModule | None]:
    """The user's module, with weights drawn by the seed, and data module. Raises `Refused`."""
    _package().seed_everything(config.seed, workers=True, verbose=False)
    module = _made("model", model.module, model.arguments, {"lr": config.scaled_lr})
    if data.module is None:
        return module, None
    return module, _made("data", data.module, data.arguments, {"batch_size": config.global_batch})


def _made(table: str, target: str, arguments: dict[str, Any], offered: dict[str, Any]) -> Any:
    """An instance; offered arguments are passed if the class takes them and the configuration does not set them."""
    cls = find(table, target)
    given = {name: value for name, value in offered.items() if takes(cls, name)}
    return cls(**{**given, **arguments})


def _package() -> Any:
    try:
        return importlib.import_module(f"{PACKAGE}.pytorch")
    except ImportError as error:
        message = f"Lightning cannot be imported ({error}); pip install 'tputui[lightning]'"
        raise _refused("task", message) from error


def _refused(key: str, message: str) -> Refused:
    return Refused([Problem(key, message)])
