"""The task `lightning`: a LightningModule of yours, trained by Lightning's own Trainer.

Lightning has its own loop, data and meters, so the methods of other tasks are not used: `engine.lightning.build` builds
the trainer, and sizes are known once Lightning has set up the data. Importing this module does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from engine.errors import Problem, Refused
from engine.lightning import user_module
from engine.lightning.user_module import LightningData, LightningModel
from engine.task import Options, Sizes, Splits, Task
from tputui.config import OptimConfig, RunConfig

if TYPE_CHECKING:
    import torch

    from engine.task import Plan

OWN_OPTIMIZER = tuple(
    key for key in OptimConfig.__struct_fields__ if key not in ("lr", "lr_scaling", "clip_norm", "accumulate")
)
"""Keys of `[optim]` that a LightningModule sets itself, in `configure_optimizers`."""


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
        found = user_module.problems("model", model.module, model.arguments, ("lr",))
        if data.module is not None:
            found += user_module.problems("data", data.module, data.arguments, ("batch_size",))
        elif data.arguments:
            found.append(Problem("data.arguments", "there is no data.module that could take them"))
        if not found:
            found += _without_effect(plan.config, user_module.find("model", model.module))
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
    if config.optim.lr != default.lr and not user_module.takes(cls, "lr"):
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
    raise Refused([Problem("task", why)])
