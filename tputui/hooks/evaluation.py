"""When a script evaluates: from `Module.eval()`, or a batch fetched without gradients, to the next backward pass.

It does not end with `Module.train()`: scripts print their results after it. Without gradients alone, a script may as
well collect experience, as in reinforcement learning.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterator
from typing import Any

from tputui.hooks import notes
from tputui.hooks.loops import called_at
from tputui.observers.sinks import process_sink
from tputui.observers.user_frames import user_code, user_frames
from tputui.telemetry.events import EvaluationModeSeen

LOOKS_MAX = 8
"""Batches at which the modules are looked at that evaluate."""
_num_looks = 0


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
            thread.num_evals += not mode
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


def look_at_modules(thread: notes.ThreadNotes, loader: notes.LoaderNotes) -> None:
    """Notes whether the modules that the user's loop calls are in training mode, when it asks for its next batch.

    After the first batch, so that they have been called, and only without gradients, over a loader that does not train.
    A loop that calls `eval()` for each batch may set the mode back after it.
    """
    global _num_looks
    if _num_looks >= LOOKS_MAX or loader.trains or thread.training is None or has_gradients():
        return
    if loader.evals_at_first is None:
        loader.evals_at_first = thread.num_evals
        return
    frame = next(user_frames(sys._getframe(1)), None)
    if frame is None or loader.evals_at_first != thread.num_evals:
        return
    _num_looks += 1
    module_type = sys.modules["torch"].nn.Module
    called = [(module, line) for module, line in called_at(frame) if isinstance(module, module_type)]
    for module, line in called:
        code = frame.f_code
        where = user_code(code.co_filename, line, code.co_name)
        layers = ", ".join(dict.fromkeys(_active_layers(module))) if module.training else ""
        if layers or _num_looks == 1:
            process_sink.emit(EvaluationModeSeen(t=time.time(), layers=layers, user_frame=where))
        if layers:
            _num_looks = LOOKS_MAX
            return


def _active_layers(module: Any) -> Iterator[str]:
    """The kinds of layers in a module that compute something else in training, such as `Dropout`."""
    modules = sys.modules["torch"].nn.modules
    for layer in module.modules():
        drops = isinstance(layer, modules.dropout._DropoutNd) and layer.p > 0
        normalises = isinstance(layer, modules.batchnorm._BatchNorm) and layer.running_mean is not None
        if layer.training and (drops or normalises):
            yield type(layer).__name__
