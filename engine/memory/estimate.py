"""Predicts the memory of a training step per core before the first step.

The step is traced with fake tensors, which have shapes and no memory: nothing is allocated, compiled or run. Tensors
that autograd saves for the backward pass are counted. The compiler reuses and recomputes, so the real figure may be
lower; its working space and fragmentation are not included, so it may be higher.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.data.batch_reader import WrongBatch, one_example
from engine.errors import BadExample, Refused
from engine.memory import remat
from engine.task import MAX_REPORT_STEPS, Dataset, Plan
from tputui.reporting import one_line

BIGGEST = 3
"""Number of modules that are listed."""
TRIES = 16
"""Number of examples that are tried to find a readable one."""
OPTIMIZER_COPIES = {"adam": 2, "adamw": 2, "sgd": 0, "rmsprop": 1}
"""Optimizer state values per parameter; `sgd` and `rmsprop` have one more with momentum."""
_LOSS = "loss and metrics"


class Unpredictable(Exception):
    """The memory cannot be predicted; the text says why."""


class Share(NamedTuple):
    """Activations that a module saves for the backward pass."""

    name: str
    bytes: int


class MemoryEstimate(NamedTuple):
    """Predicted bytes on one core."""

    parameters: int
    """Parameters and buffers."""
    gradients: int
    """Gradients of one batch, and their sum over batches if gradients are accumulated."""
    optimizer: int
    activations: int
    """Activations saved for the backward pass, and the block with the most recomputed ones."""
    inputs: int
    """The current batch and the prefetched ones."""
    telemetry: int
    """The buffer of step results that were not reported yet."""
    biggest: tuple[Share, ...]
    """Modules with the most activations."""

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations + self.inputs + self.telemetry


class TensorShape(NamedTuple):
    """Dtype and shape of a batch tensor without its first dimension."""

    sizes: tuple[int, ...]
    dtype: torch.dtype


Shapes = dict[str, TensorShape]


class Settings(NamedTuple):
    batch: int
    bf16: bool
    rematerialise: bool


def settings(plan: Plan) -> Settings:
    """As in the configuration."""
    device = plan.config.device
    return Settings(plan.config.batch_per_core, device.precision == "bf16", getattr(device, "rematerialise", False))


def shapes(dataset: Dataset) -> Shapes:
    """The tensors of a batch by name, from one example. Raises `Unpredictable`, and `Refused` if `fetch` returns no
    batch."""
    why = "there is no training example"
    for index in range(min(TRIES, len(dataset))):
        try:
            batch = one_example(dataset, index)
        except BadExample as error:
            why = str(error)
            continue
        except WrongBatch as error:
            raise Refused.of("task", f"load(): the training dataset's {error}") from error
        except Exception as error:  # The task's own code; training reports the error in full.
            raise Unpredictable(f"training example {index} cannot be read: {one_line(error)}") from error
        return {name: TensorShape(tuple(value.shape[1:]), value.dtype) for name, value in batch.items()}
    raise Unpredictable(why)


def estimate(plan: Plan, batch: Shapes, chosen: Settings) -> MemoryEstimate:
    """The memory of a step under the settings. Raises `Unpredictable`.

    Uses fake XLA tensors, whose bf16 casts are those of the device; if the network's own code does not support them,
    fake CPU tensors.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            return _measure(plan, batch, chosen, "xla")
        except Exception as on_xla:
            try:
                return _measure(plan, batch, chosen, "cpu")
            except Refused as refused:
                raise Unpredictable(str(refused)) from on_xla
            except Exception as error:  # The task's own code; training reports the error in full.
                raise tracing_failure(error) from error


def tracing_failure(error: Exception) -> Unpredictable:
    """Why a step cannot be traced, from an error of the task's own code."""
    if "UninitializedParameter" in str(error):
        return Unpredictable("the network has lazy layers; give them their number of inputs")
    return Unpredictable(f"the step cannot be traced without data: {one_line(error)}")


def tensors(shapes: Shapes, batch: int, device: str) -> dict[str, torch.Tensor]:
    """A batch with these shapes; must be called under fake tensors."""
    return {
        name: torch.empty((batch, *shape.sizes), dtype=shape.dtype, device=device) for name, shape in shapes.items()
    }


def _measure(plan: Plan, batch: Shapes, chosen: Settings, device: str) -> MemoryEstimate:
    with FakeTensorMode(allow_non_fake_inputs=True):
        # Created on the target device: fake parameters cannot be moved to another kind of device.
        with torch.device(device):
            model = plan.task.model(plan.model, plan.data).train()
        given = tensors(batch, chosen.batch, device)
        held = [*model.parameters(), *model.buffers()]
        count = Count([*held, *given.values()])
        blocks = remat.blocks(plan.task, model)
        if chosen.rematerialise:
            remat.apply(blocks, count.recomputed)
        with (
            count.by_module(model, [name for name, *_ in blocks]),
            torch.autocast(device, dtype=torch.bfloat16, enabled=chosen.bf16),
        ):
            given = plan.task.augment(given)
            plan.task.outcomes(plan.task.predict(model, given), given)["loss"].mean()
    gradients = sum(map(_bytes, (parameter for parameter in model.parameters() if parameter.requires_grad)))
    ready = plan.config.data.prefetch_batches + 1
    return MemoryEstimate(
        parameters=sum(map(_bytes, held)),
        # The sum of earlier gradients stays while a batch is computed.
        gradients=gradients * (2 if plan.config.optim.accumulate > 1 else 1),
        optimizer=gradients * _optimizer_copies(plan),
        activations=count.total,
        inputs=ready * sum(_size(shape, chosen.batch) for shape in batch.values()),
        telemetry=MAX_REPORT_STEPS * (len(plan.task.meters) + plan.keeps_norms) * torch.float32.itemsize,
        biggest=count.biggest(),
    )


class Count:
    """Counts the tensors that autograd saves, each storage once, by module."""

    def __init__(self, held: Sequence[torch.Tensor]) -> None:
        """`held`: storages that are counted elsewhere."""
        self._seen = {_memory(tensor) for tensor in held}
        self._kept: list[Any] = []
        """Keeps storages alive: freed fake memory may be reused under the same identity."""
        self._by_name: dict[str, int] = {}
        self._names = [_LOSS]
        self._again = 0

    @property
    def total(self) -> int:
        """Bytes saved, plus the maximum of one recomputed block."""
        return sum(self._by_name.values()) + self._again

    def biggest(self) -> tuple[Share, ...]:
        """The modules with the most bytes."""
        ranked = sorted(self._by_name.items(), key=lambda pair: (-pair[1], pair[0]))
        return tuple(Share(name, size) for name, size in ranked[:BIGGEST] if size)

    @contextlib.contextmanager
    def by_module(self, model: nn.Module, blocks: list[str]) -> Iterator[None]:
        """Counts while the context is open. Tensors saved inside a block are attributed to the block."""
        names = _names(model, blocks)
        handles = []
        for module, name in names.items():
            handles.append(module.register_forward_pre_hook(self._enter(name)))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._keep, _as_it_is):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def recomputed(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """Calls a block that saves only its arguments; see `remat`."""
        for value in given:
            if torch.is_tensor(value):
                self._keep(value)
        inside = Count([])
        inside._seen |= self._seen
        with torch.autograd.graph.saved_tensors_hooks(inside._keep, _as_it_is):
            result = function(*given)
        self._again = max(self._again, inside.total)
        return result

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = _memory(tensor)
        if memory not in self._seen:
            self._seen.add(memory)
            self._kept.append(tensor)
            name = self._names[-1]
            self._by_name[name] = self._by_name.get(name, 0) + tensor.untyped_storage().nbytes()
        return tensor

    def _enter(self, name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: Any) -> None:
            self._names.append(name)

        return hook

    def _leave(self, _module: nn.Module, _args: Any, _result: Any) -> None:
        self._names.pop()


def _names(model: nn.Module, blocks: list[str]) -> dict[nn.Module, str]:
    """The name that each module's activations are attributed to: its block, else the module with its type."""
    names: dict[nn.Module, str] = {}
    for name, module in model.named_modules():
        around = next((block for block in blocks if name == block or name.startswith(f"{block}.") or not block), None)
        kind = type(module if around is None else model.get_submodule(around)).__name__
        names[module] = f"{(name if around is None else around) or 'the network'} ({kind})"
    return names


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _memory(tensor: torch.Tensor) -> int:
    identity: int = tensor.untyped_storage()._cdata
    return identity


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def _size(shape: TensorShape, batch: int) -> int:
    return batch * math.prod(shape.sizes) * shape.dtype.itemsize


def _optimizer_copies(plan: Plan) -> int:
    optim = plan.config.optim
    return OPTIMIZER_COPIES[optim.name] + (optim.used_momentum > 0)
