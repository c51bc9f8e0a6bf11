"""Makes the network and puts it on the device: weights of the seed, lazy layers, tied parameters, BatchNorm."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from engine.data.batch_reader import one_example
from engine.errors import BadExample, Refused, TaskError
from engine.memory import remat
from engine.parallel.base import Strategy
from engine.task import Dataset, Plan, Task
from engine.xla import backend
from tputui.reporting import one_line

MAX_TRIES = 16
"""How many examples are tried in search of one that can be read."""


def uninitialized(model: nn.Module) -> list[str]:
    """Names of the parameters and buffers of lazy layers, such as `nn.LazyLinear`, that have no shape yet."""
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    return [name for name, tensor in tensors if is_lazy(tensor)]


def materialise(model: nn.Module, task: Task, dataset: Dataset) -> None:
    """Predicts one example on the CPU if the model has lazy layers, which sets their shapes. Raises `Refused`."""
    if not uninitialized(model):
        return
    was_training = model.training
    try:
        # In evaluation mode, so that no running statistics change.
        with torch.no_grad():
            task.predict(model.eval(), _readable_example(dataset))
    except Exception as error:  # The task's own code.
        names = ", ".join(uninitialized(model)[:3])
        message = (
            f"model(): {names} has no shape yet (a lazy layer), and predict() of one example on the CPU, which would "
            f"set it, failed: {one_line(error)}; give the layer its number of inputs"
        )
        raise Refused.of("task", message) from error
    finally:
        model.train(was_training)
    if left := uninitialized(model):
        message = (
            f"model(): {left[0]} has no shape yet, and predict() does not use it; give the layer its number of inputs"
        )
        raise Refused.of("task", message)


def _readable_example(dataset: Dataset) -> dict[str, torch.Tensor]:
    """The first example that can be read, [1, ...] each. Raises the error of the last one tried."""
    last = min(MAX_TRIES, len(dataset)) - 1
    for index in range(last):
        with contextlib.suppress(BadExample):
            return one_example(dataset, index)
    return one_example(dataset, last)


class TieBroken(Exception):
    """Two names of one parameter have become two parameters; the text names them."""


def make(plan: Plan, strategy: Strategy, examples: Dataset) -> nn.Module:
    """The network on the device, with the weights of the seed. One of the `examples` gives lazy layers their shapes.

    Raises `Refused`.
    """
    torch.manual_seed(plan.config.seed)
    model = plan.task.model(plan.model, plan.data)
    materialise(model, plan.task, examples)
    model = to_device(model, strategy.device)
    correct_batchnorm(model)
    if plan.config.device.rematerialise:
        remat.apply(remat.blocks(plan.task, model), backend.recomputed)
    return model


def to_device(model: nn.Module, device: torch.device) -> nn.Module:
    """Moves the model and ties again what was tied: the move gives every name a parameter of its own."""
    names = _names_by_parameter(model)
    model = model.to(device)
    for first, *aliases in names:
        for alias in aliases:
            owner, _, attribute = alias.rpartition(".")
            setattr(model.get_submodule(owner), attribute, model.get_parameter(first))
    return model


def require_equal_weights(model: nn.Module, strategy: Strategy) -> None:
    """Raises `TaskError` if the processes have different weights. Collective."""
    state: dict[str, torch.Tensor] = backend.to_host(model.state_dict())
    checksum = 0
    for tensor in state.values():
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().tobytes(), checksum)
    checksums = strategy.gather(np.array([checksum], dtype=np.int64), 0)
    different = [core for core, of_core in enumerate(checksums.tolist()) if of_core != checksums[0]]
    if different:
        raise TaskError(
            f"the weights of core {different[0]} differ from those of core 0 at the start: model() must draw them from "
            "torch's global generator only, which has the same seed in every process"
        )


class Ties(NamedTuple):
    """The parameters of a module by name at one moment."""

    groups: list[list[str]]
    """Names that share a parameter."""
    sizes: dict[str, int]
    """Number of elements of the parameter under each name."""
    num_parameters: int
    """Number of elements in all, each shared one counted once."""


def ties(module: nn.Module) -> Ties:
    sizes = {name: parameter.numel() for name, parameter in module.named_parameters(remove_duplicate=False)}
    groups = [names for names in _names_by_parameter(module) if len(names) > 1]
    return Ties(groups, sizes, _num_parameters(module))


def check_ties(before: Ties, module: nn.Module) -> None:
    """Raises `TieBroken` if tied parameters are no longer tied, or if equal names hold another number of elements.

    A module that makes layers in `configure_model` has new names; that is accepted.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    after = _num_parameters(module)
    counts = f"{before.num_parameters:,} parameters before the move to the device, {after:,} after it"
    for first, *others in before.groups:
        for other in others:
            if first in parameters and other in parameters and parameters[first] is not parameters[other]:
                raise TieBroken(
                    f"{first} and {other} were one parameter and are two now ({counts}); tie them again in the "
                    "module's configure_model, after whatever replaced one of them"
                )
    if parameters.keys() == before.sizes.keys() and after != before.num_parameters:
        changed = [name for name, size in before.sizes.items() if parameters[name].numel() != size]
        where = f" in {', '.join(changed)}" if changed else ""
        raise TieBroken(f"the number of parameters changed{where}: {counts}")


def correct_batchnorm(model: nn.Module) -> None:
    """Makes every BatchNorm of a model on the XLA device store the unbiased variance. Must not be called twice.

    From a batch with n values per channel, torch adds the unbiased variance (divided by n - 1) to `running_var`, the
    runtime the biased one (divided by n), so an evaluation would differ from plain torch by some tenths of a percent.
    The layer updates `running_var = (1 - m) running_var + m variance`. Here the old value is multiplied by (n - 1) / n
    before the update, and the result by n / (n - 1) after it, which gives torch's value. n counts what a layer sees:
    the global batch under `spmd`, one core's share under `replica`.
    """
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            module.register_forward_pre_hook(_before_batchnorm)
            module.register_forward_hook(_after_batchnorm)


def _before_batchnorm(module: nn.Module, arguments: tuple[Any, ...]) -> None:
    count = _values_per_channel(module, arguments)
    if count is not None:
        _scale_variance(module, (count - 1) / count)


def _after_batchnorm(module: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
    count = _values_per_channel(module, arguments)
    if count is not None:
        _scale_variance(module, count / (count - 1))


def _values_per_channel(module: nn.Module, arguments: tuple[Any, ...]) -> int | None:
    """Values per channel in the input; None if the layer does not update its statistics."""
    values = arguments[0] if arguments else None
    if not (module.training and module.track_running_stats and torch.is_tensor(values)):
        return None
    count = values.numel() // values.size(1)
    return count if count > 1 else None


def _scale_variance(module: nn.Module, factor: float) -> None:
    variance = module.running_var
    if isinstance(variance, torch.Tensor):
        # Autograd saved it for the backward pass, which does not read it in training, and would refuse the change.
        with torch.no_grad(), _unsafe_preserve_version_counter(variance):
            variance.mul_(factor)


def _names_by_parameter(module: nn.Module) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return list(names.values())


def _num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
