"""Attaches our callbacks to the trainers of frameworks, by the plug-in points that they have, or after their import.

Only in a process of `tputui run -- COMMAND` that is observed. An attached callback leaves the run to any other source:
our callback in the script, or `tputui.start`. Imports no framework, and our callbacks when they are used.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import Any

from tputui.observers.autoload import RUN_DIR_VARIABLE, after_import

_attached_in: str | None = None
"""The run directory of the process in which `attach_frameworks` was called. The engine names it only later."""


def attach_frameworks() -> None:
    """Attaches callbacks to the frameworks of this process, each once it is imported, unless the user disabled that."""
    global _attached_in
    from tputui.observers.sinks import is_disabled

    run_dir = os.environ.get(RUN_DIR_VARIABLE)
    if not run_dir or is_disabled() or _attached_in is not None:
        return
    _attached_in = run_dir
    after_import("transformers.trainer", _transformers_imported)
    after_import("keras.src.callbacks.callback_list", _keras_imported)


def lightning_callbacks() -> list[Any]:
    """Entry point of the groups `lightning.pytorch.callbacks_factory` and `pytorch_lightning.callbacks_factory`: the
    callbacks that every Trainer gets."""
    if _attached_in is None:
        return []
    with contextlib.suppress(Exception):
        from tputui.integrations import lightning

        return [_with_losses(lightning.AttachedCallback)()]
    return []


def _with_losses(callback_class: Any) -> Any:
    """The class of a callback, which takes the losses of steps from the hooks of torch from now on."""
    from tputui.hooks.notes import take_step_loss

    if "take_step_loss" not in vars(callback_class):
        callback_class.take_step_loss = staticmethod(take_step_loss)
    return callback_class


def _transformers_imported() -> None:
    from tputui.integrations import huggingface

    # Every Trainer makes a callback of each class in the list.
    sys.modules["transformers.trainer"].DEFAULT_CALLBACKS.append(_with_losses(huggingface.AttachedCallback))


def _keras_imported() -> None:
    callback_list: Any = sys.modules["keras.src.callbacks.callback_list"].CallbackList
    begin = callback_list.__init__

    @functools.wraps(begin)
    def begin_with_ours(self: Any, *args: Any, **given: Any) -> None:
        begin(self, *args, **given)
        with contextlib.suppress(Exception):
            from tputui.integrations import keras

            ours: Any = _with_losses(keras.AttachedCallback)()
            ours.set_model(getattr(self, "_model", None))
            ours.set_params(self.params)
            self.callbacks.append(ours)

    callback_list.__init__ = begin_with_ours
