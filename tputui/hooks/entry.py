"""The entry points of tputui in frameworks: start the observers and the hooks in commands of `tputui run --`.

They return at once unless tputui launched the process, and swallow every exception: `import torch` would fail. Imports
nothing at first, because every program in the environment of tputui pays for it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from tputui.observers.autoload import RUN_DIR_VARIABLE

if TYPE_CHECKING:
    from typing import Any

    from tputui.hooks.notes import ThreadNotes
    from tputui.hooks.training import HookedTraining

SEED_VARIABLE = "TPUTUI_TRIAL_SEED"
"""As in `tputui.trial_protocol`."""
_is_hooked = _is_reporting = False


def torch_imported() -> None:
    """Entry point of the group `torch.backends`; runs at the end of `import torch`."""
    if not os.environ.get(RUN_DIR_VARIABLE):
        return
    with contextlib.suppress(Exception, SystemExit):
        from tputui.hooks import frameworks
        from tputui.observers import autoload

        if seed := os.environ.get(SEED_VARIABLE):
            _seed_generators(int(seed))
        if autoload.torch_imported() and not _is_hooked:
            hook_torch()
            frameworks.attach_frameworks()


def _seed_generators(seed: int) -> None:
    """Seeds the generators of Python, numpy and torch, for `tputui try`. A seed that the script sets replaces this."""
    import random

    from tputui.observers.autoload import after_import

    random.seed(seed)
    after_import("numpy.random", lambda: sys.modules["numpy.random"].seed(seed))
    sys.modules["torch"].manual_seed(seed)


def jax_started() -> None:
    """Called by the entry point of the group `jax_plugins`, when the backend of JAX starts."""
    if not os.environ.get(RUN_DIR_VARIABLE):
        return
    with contextlib.suppress(Exception, SystemExit):
        from tputui.hooks import frameworks
        from tputui.observers import autoload

        autoload.jax_started()
        frameworks.attach_frameworks()
        from tputui.observers.sinks import is_disabled

        if not is_disabled():
            _report_values_of_jax()


def _report_values_of_jax() -> None:
    """Reports what the script reads, from the first value on."""
    from time import perf_counter

    from tputui.observers import jax_reads

    began_at = perf_counter()

    def take_first(*read: Any, is_printed: bool) -> None:
        from tputui.hooks.jax_values import ReadValues
        from tputui.reporting.start import before_close

        values = ReadValues(began_at)
        before_close(lambda ending: values.end(is_done=ending.outcome is None and ending.failure is None))
        jax_reads.report_values_to(values.take)
        values.take(*read, is_printed=is_printed)

    jax_reads.report_values_to(take_first)


def hook_torch() -> None:
    """Hooks backward passes, optimizers, loaders and the mode of modules, each once it is imported."""
    global _is_hooked
    _is_hooked = True
    from tputui.hooks import backward, batches, evaluation, notes, optimizers
    from tputui.observers.autoload import after_import

    _look_up_exit_late()
    torch = sys.modules["torch"]
    notes.report_with(_make_training)
    backward.hook(torch)
    evaluation.hook(torch)
    after_import("torch.optim.optimizer", lambda: optimizers.hook(sys.modules["torch.optim.optimizer"]))
    after_import("torch.amp.grad_scaler", lambda: backward.hook_scaler(sys.modules["torch.amp.grad_scaler"]))
    after_import("torch.utils.data.dataloader", lambda: batches.hook(sys.modules["torch.utils.data.dataloader"]))
    xla_loader = "torch_xla.distributed.parallel_loader"
    after_import(xla_loader, lambda: batches.hook_xla(sys.modules[xla_loader]))
    os.register_at_fork(after_in_child=notes.forget)


def _look_up_exit_late() -> None:
    """Has `sys.exit(main())` call the `sys.exit` of the time at which `main` has returned. That is watched once the
    process reports; what watches it is too much to import in each process that imports torch."""
    original = sys.exit

    def exit_late(*args: Any, **given: Any) -> Any:
        now: Any = sys.exit
        return (original if now is exit_late else now)(*args, **given)

    exit_late.__dict__["__tputui_original__"] = original
    sys.exit = exit_late


def _make_training(notes: ThreadNotes) -> HookedTraining:
    from tputui.hooks import training
    from tputui.hooks.notes import end
    from tputui.reporting.start import before_close

    global _is_reporting
    if not _is_reporting:
        _is_reporting = True
        before_close(lambda ending: end(is_done=ending.outcome is None and ending.failure is None))
    return training.make(notes)
