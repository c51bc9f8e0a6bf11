"""The steps of optimizers and their learning rates, by the hooks that torch has for all optimizers."""

from __future__ import annotations

import functools
import sys
from time import perf_counter
from typing import Any

from tputui.hooks import backward, notes
from tputui.hooks.steps import OptimizerStep


def hook(module: Any) -> None:
    """Notes every step of an optimizer of torch from now on; `module` is `torch.optim.optimizer`."""

    is_traced = sys.modules["torch"].compiler.is_dynamo_compiling

    def stepped(optimizer: Any, args: Any, options: Any) -> None:
        try:
            if is_traced():
                return
            lr = optimizer.param_groups[0]["lr"]
            if type(lr) is not float:
                # One in a tensor on a device is not read.
                lr = float(lr) if getattr(lr, "is_cpu", True) else None
            # The optimizer itself comes first.
            ran_closure = (len(args) > 1 and args[1] is not None) or "closure" in options
            ended_at = perf_counter()
            thread = notes.of_thread()
            thread.records.append(OptimizerStep(id(optimizer), lr, ended_at, ran_closure))
            thread.stepped(ended_at)
        except Exception:  # noqa: BLE001, RUF100 - it would end the training
            pass

    module.register_optimizer_step_post_hook(stepped)
    real = module.Optimizer.__init__

    @functools.wraps(real)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        backward.num_optimizers += 1
        notes.of_thread().created_optimizer()
        real(self, *args, **options)

    module.Optimizer.__init__ = __init__
