"""When a script evaluates: from `Module.eval()`, or a batch fetched without gradients, to the next backward pass.

It does not end with `Module.train()`: scripts print their results after it. Without gradients alone, a script may as
well collect experience, as in reinforcement learning.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

from tputui.hooks import notes


def hook(torch: Any) -> None:
    """Notes the mode of modules from now on."""
    module_class = torch.nn.Module
    real = module_class.train

    @functools.wraps(real)
    def train(self: Any, mode: bool = True) -> Any:
        # `eval()` calls it, too.
        thread = notes.of_thread()
        if thread.is_setting_mode:
            return real(self, mode)
        thread.is_setting_mode = True
        try:
            if not mode and not thread.is_inside:
                begin(thread)
            return real(self, mode)
        finally:
            thread.is_setting_mode = False

    module_class.train = train


def has_gradients() -> bool:
    """Whether torch records a graph."""
    return bool(sys.modules["torch"].is_grad_enabled())


def begin(thread: notes.ThreadNotes, *, has_batch: bool = False) -> None:
    """An evaluation begins, unless one runs already. `has_batch`: one was fetched for it, so it is certainly one."""
    training = thread.training
    if training is None or (thread.is_evaluating and not has_batch):
        return
    if not thread.is_evaluating:
        thread.evaluate()
    with contextlib.suppress(Exception):
        training.begin_evaluation(has_batch=has_batch)
