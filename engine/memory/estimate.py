"""Memory of a training step, predicted before the first one: what a core holds, and what is biggest.

The step is walked through with fake tensors, which have shapes and no memory: nothing is allocated, compiled or run.
What autograd keeps for the backward pass is counted as it stands after tracing. The compiler reuses and recomputes, so
that the truth may be less; its working space and fragmentation are left out, so that it may be more.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.data.batch_reader import WrongBatch, checked
from engine.errors import BadExample, Problem, Refused
from engine.memory import remat
from engine.report_interval import DEPTH
from engine.task import Dataset, Plan
from engine.task_registry import reason

BIGGEST = 3
"""How many modules are named."""
TRIES = 16
"""How many examples are tried for one that can be read."""
OPTIMIZER_COPIES = {"adam": 2, "adamw": 2, "sgd": 0, "rmsprop": 1}
"""Values of state for each parameter; `sgd` and `rmsprop` have one more with momentum."""
_LOSS = "loss and metrics"


class Unpredictable(Exception):
    """The memory cannot be predicted; the text says why."""


class Share(NamedTuple):
    """What a module keeps for the backward pass."""

    name: str
    bytes: int


class MemoryEstimate(NamedTuple):
    """Bytes on one core."""

    parameters: int
    """Parameters and buffers."""
    gradients: int
    """Of one batch, and the sum over the batches before it where several make an update."""
    optimizer: int
    """State of the optimizer."""
    activations: int
    """What is kept from the forward for the backward pass, and the block that is recomputed with most of it."""
    inputs: int
    """The batch in use and those that are kept ready."""
    telemetry: int
    """The register of the steps that were not reported yet."""
    biggest: tuple[Share, ...]
    """Modules with most activations."""

    @property
    def total(self) -> int:
        """Everything together."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.inputs + self.telemetry


class TensorShape(NamedTuple):
    """A tensor of a batch without its first dimension."""

    sizes: tuple[int, ...]
    dtype: torch.dtype


Shapes = dict[str, TensorShape]


class Settings(NamedTuple):
    """What a footprint is predicted for."""

    batch: int
    """Examples a core takes each step."""
    bf16: bool
    rematerialise: bool


def settings(plan: Plan) -> Settings:
    """As the configuration says."""
    device = plan.config.device
    return Settings(plan.config.batch_per_core, device.precision == "bf16", getattr(device, "rematerialise", False))


def shapes(dataset: Dataset) -> Shapes:
    """What a batch is made of, by one example. Raises `Unpredictable`, and `Refused` where `fetch` returns no batch."""
    why = "there is no training example"
    for index in range(min(TRIES, len(dataset))):
        try:
            batch = checked(dataset.fetch(np.array([index], dtype=np.int64)), 1)
        except BadExample as error:
            why = str(error)
            continue
        except WrongBatch as error:
            raise Refused([Problem("task", f"load(): the training dataset's {error}")]) from error
        except Exception as error:  # The task's own code; training tells of it in full.
            raise Unpredictable(f"training example {index} cannot be read: {reason(error)}") from error
        return {name: TensorShape(tuple(value.shape[1:]), value.dtype) for name, value in batch.items()}
    raise Unpredictable(why)


def measure(plan: Plan, batch: Shapes, chosen: Settings) -> MemoryEstimate:
    """The footprint of a step under the settings. Raises `Unpredictable`.

    On fake XLA tensors, whose casts in bf16 are the device's; where the network's own code cannot go with them, on
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
            except Exception as error:  # The task's own code; training tells of it in full.
                raise unpredictable(error) from error


def unpredictable(error: Exception) -> Unpredictable:
    """Why a step cannot be walked through, by what the task's own code raised."""
    if "UninitializedParameter" in str(error):
        return Unpredictable("the network has lazy layers; give them their number of inputs")
    return Unpredictable(f"the step cannot be walked through without data: {reason(error)}")


def tensors(shapes: Shapes, batch: int, device: str) -> dict[str, torch.Tensor]:
    """A batch of such shapes; to be called under fake tensors."""
    return {
        name: torch.empty((batch, *shape.sizes), dtype=shape.dtype, device=device) for name, shape in shapes.items()
    }


def _measure(plan: Plan, batch: Shapes, chosen: Settings, device: str) -> MemoryEstimate:
    with FakeTensorMode(allow_non_fake_inputs=True):
        # Made where it is to be: moving fake parameters to another kind of device is not possible.
        with torch.device(device):
            model = plan.task.model(plan.model, plan.data).train()
        given = tensors(batch, chosen.batch, device)
        held = [*model.parameters(), *model.buffers()]
        count = Count([*held, *given.values()])
        found = remat.blocks(plan.task, model)
        if chosen.rematerialise:
            remat.apply(found, count.recomputed)
        with (
            count.by_module(model, [block.name for block in found]),
            torch.autocast(device, dtype=torch.bfloat16, enabled=chosen.bf16),
        ):
            given = plan.task.augment(given)
            plan.task.outcomes(plan.task.predict(model, given), given)["loss"].mean()
    gradients = sum(map(_bytes, (parameter for parameter in model.parameters() if parameter.requires_grad)))
    ready = plan.config.data.prefetch_batches + 1
    return MemoryEstimate(
        parameters=sum(map(_bytes, held)),
        # Those of the batches before stay while a batch is computed.
        gradients=gradients * (2 if plan.config.optim.accumulate > 1 else 1),
        optimizer=gradients * _optimizer_copies(plan),
        activations=count.total,
        inputs=ready * sum(_size(shape, chosen.batch) for shape in batch.values()),
        telemetry=DEPTH * (len(plan.task.meters) + plan.keeps_norms) * torch.float32.itemsize,
        biggest=count.biggest(),
    )


class Count:
    """Counts what autograd keeps, each piece of memory once, by module."""

    def __init__(self, held: Sequence[torch.Tensor]) -> None:
        """`held`: what is counted elsewhere."""
        self._seen = {_memory(tensor) for tensor in held}
        self._kept: list[Any] = []
        """Fake memory that is given up may be given out again under the same identity."""
        self._by_name: dict[str, int] = {}
        self._names = [_LOSS]
        self._again = 0

    @property
    def total(self) -> int:
        """Bytes kept, with the most that one recomputed block takes."""
        return sum(self._by_name.values()) + self._again

    def biggest(self) -> tuple[Share, ...]:
        """Names with most bytes."""
        ranked = sorted(self._by_name.items(), key=lambda pair: (-pair[1], pair[0]))
        return tuple(Share(name, size) for name, size in ranked[:BIGGEST] if size)

    @contextlib.contextmanager
    def by_module(self, model: nn.Module, blocks: list[str]) -> Iterator[None]:
        """Counts while it is open. What is kept inside of a block is put down to the block."""
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
        """Calls a block of which only the arguments are kept; see `remat`."""
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
    """What each module's activations are put down to: the block around it, else itself with its type."""
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
