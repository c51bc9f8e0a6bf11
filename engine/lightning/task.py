"""The task `lightning`: a LightningModule of yours, trained by Lightning's own Trainer.

Also finds the user's LightningModule and LightningDataModule by name, checks their arguments, and makes them.

Lightning has its own loop, data and meters, so the methods of other tasks are not used: `engine.lightning.build` builds
the trainer, and sizes are known once Lightning has set up the data. Importing this module does not import torch.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgspec

from engine.errors import NotImported, Problem, Refused
from engine.task import Options, Sizes, Splits, Task
from tputui.config import OptimConfig, RunConfig
from tputui.reporting import one_line

if TYPE_CHECKING:
    import torch
    from lightning.pytorch import LightningDataModule, LightningModule

    from engine.task import Plan

PACKAGE = "lightning"
KINDS = {"model": "LightningModule", "data": "LightningDataModule"}
"""Base class by table of the configuration."""
OWN_OPTIMIZER = tuple(
    key for key in OptimConfig.__struct_fields__ if key not in ("lr", "lr_scaling", "clip_norm", "accumulate")
)
"""Keys of `[optim]` that a LightningModule sets itself, in `configure_optimizers`."""


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


class Lightning(Task):
    """A LightningModule of yours, trained by Lightning's own Trainer."""

    data_options: ClassVar[type[Options]] = LightningData
    model_options: ClassVar[type[Options]] = LightningModel
    meters: ClassVar[tuple[str, ...]] = ("loss",)
    builder: ClassVar[str] = "engine.lightning.build"

    def sizes(self, data: LightningData, seed: int) -> Sizes:
        """Zeros: sizes are not known before Lightning has set up the data."""
        return Sizes(0, 0)

    def problems(self, plan: Plan) -> list[Problem]:
        """Modules that cannot be imported, wrong arguments, and keys that would have no effect."""
        data, model = plan.data, plan.model
        assert isinstance(data, LightningData)
        assert isinstance(model, LightningModel)
        if not model.module:
            return [Problem("model.module", 'missing: name your LightningModule as "package.module:Class"')]
        found = module_problems("model", model.module, model.arguments, ("lr",))
        if data.module is not None:
            found += module_problems("data", data.module, data.arguments, ("batch_size",))
        elif data.arguments:
            found.append(Problem("data.arguments", "there is no data.module that could take them"))
        if not found:
            found += _without_effect(plan.config, find_class("model", model.module))
        return found

    def load(self, data: LightningData, seed: int) -> Splits:
        """Raises `Refused`: the module has its own loaders."""
        _refuse()

    def model(self, options: LightningModel, data: LightningData) -> torch.nn.Module:
        """Raises `Refused`."""
        _refuse()

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Raises `Refused`."""
        _refuse()

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Raises `Refused`."""
        _refuse()


def _without_effect(config: RunConfig, cls: type[Any]) -> list[Problem]:
    """Keys that are set and would be ignored."""
    default = OptimConfig()
    found = [
        Problem(f"optim.{key}", f"{cls.__name__} configures its own optimizer; give it as model.arguments.{key}")
        for key in OWN_OPTIMIZER
        if getattr(config.optim, key) != getattr(default, key)
    ]
    if config.optim.lr != default.lr and not takes_argument(cls, "lr"):
        found.append(Problem("optim.lr", f"{cls.__name__} takes no argument lr, so it would have no effect"))
    if config.data.workers:
        found.append(Problem("data.workers", "the module's own loaders read the data; give its DataLoader num_workers"))
    if config.optim.accumulate != default.accumulate:
        message = "a LightningModule's gradients are not accumulated; raise data.batch_per_core instead"
        found.append(Problem("optim.accumulate", message))
    if config.device.strategy != "spmd":
        found.append(Problem("device.strategy", 'a LightningModule is trained by "spmd" or on one core'))
    return found


def _refuse() -> NoReturn:
    why = "a LightningModule has a loop of its own; load best.pt by its load_from_checkpoint to use it elsewhere"
    raise Refused.of("task", why)


def module_problems(table: str, target: str, arguments: dict[str, Any], offered: Collection[str]) -> list[Problem]:
    """Why the class at `target` cannot be made with these arguments, and with the `offered` ones that it takes."""
    try:
        cls = find_class(table, target)
    except Refused as refused:
        return refused.problems
    return argument_problems(table, cls, arguments, offered)


def find_class(table: str, target: str) -> type[Any]:
    """The class at `module:Class`. Raises `Refused` if it does not exist or has another base class."""
    key, kind = f"{table}.module", KINDS[table]
    module_name, colon, class_name = target.partition(":")
    if not colon:
        raise Refused.of(key, f'"{target}" does not name a class; write it as "package.module:Class"')
    base = getattr(_package(), kind)
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (Exception, SystemExit) as error:  # It is the user's code, and a script may even end the process.
        raise NotImported.of(key, f'"{target}" cannot be imported: {one_line(error)}') from error
    if isinstance(cls, type) and issubclass(cls, base):
        return cls
    other = isinstance(cls, type) and any(parent.__module__.startswith("pytorch_lightning.") for parent in cls.__mro__)
    hint = f"; it derives from pytorch_lightning: import {kind} from lightning.pytorch instead" if other else ""
    raise Refused.of(key, f'"{target}" is not a subclass of lightning.pytorch.{kind}{hint}')


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


def takes_argument(cls: type[Any], name: str) -> bool:
    return name in inspect.signature(cls).parameters


def make_modules(
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
    cls = find_class(table, target)
    given = {name: value for name, value in offered.items() if takes_argument(cls, name)}
    return cls(**{**given, **arguments})


def _package() -> Any:
    try:
        return importlib.import_module(f"{PACKAGE}.pytorch")
    except ImportError as error:
        raise Refused.of("task", f"Lightning cannot be imported ({error}); pip install 'tputui[lightning]'") from error
