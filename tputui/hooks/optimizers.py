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

    def stepped(optimizer: Any, args: Any, options: Any) -> None:
        try:
            if not _is_compiling():
                # The optimizer itself comes first.
                closure = args[1] if len(args) > 1 else options.get("closure")
                note_step(notes.of_thread(), optimizer, ran_closure=closure is not None)
        except Exception:  # noqa: BLE001, RUF100 - it would end the training
            pass

    module.register_optimizer_step_post_hook(stepped)
    real = module.Optimizer.__init__

    @functools.wraps(real)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        backward.num_optimizers += 1
        real(self, *args, **options)

    module.Optimizer.__init__ = __init__


def note_step(thread: notes.ThreadNotes, optimizer: Any, *, ran_closure: bool) -> None:
    """Notes that an optimizer stepped, with the learning rate that it used."""
    lr = optimizer.param_groups[0]["lr"]
    if type(lr) is not float:
        # One in a tensor on a device is not read.
        lr = float(lr) if getattr(lr, "is_cpu", True) else None
    thread.stepped(OptimizerStep(id(optimizer), lr, perf_counter(), ran_closure=ran_closure))


def _is_compiling() -> bool:
    return "torch._dynamo" in sys.modules and bool(sys.modules["torch"].compiler.is_compiling())
