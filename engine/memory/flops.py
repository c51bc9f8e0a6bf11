"""Counts the floating-point operations of a training step before the first one, by tracing it with fake tensors.

Only matrix multiplications, convolutions and attention are counted, as is usual for the utilisation of a device; the
forward pass and the gradients, each once: recomputed activations and the optimizer are not useful work in this sense.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from engine.memory import estimate
from engine.memory.estimate import Shapes, Unpredictable
from engine.task import Plan
from tputui.telemetry import events as ev

_MULTIPLYING = frozenset(
    {"rnn", "lstm", "gru", "attention", "conv", "conv1d", "conv2d", "conv3d", "convolution", "matmul", "linear", "mm"}
    | {"bmm", "addbmm", "einsum", "scan", "loop"}
)
"""Words in names of operators that multiply matrices: one of them without a formula makes the sum unknown."""


def emit_flops(plan: Plan, batch: Shapes, emit: Callable[[ev.Event], object]) -> None:
    """Emits the operations of the plan's training step over all cores, or why they cannot be counted."""
    try:
        counted = float(count_flops(plan, batch) * plan.config.num_cores)
        emit(ev.FlopsCounted(t=time.time(), flops_per_step=counted))
    except Unpredictable as error:
        emit(ev.FlopsCounted(t=time.time(), flops_per_step=None, reason=str(error)))


def count_flops(plan: Plan, batch: Shapes) -> int:
    """Operations of a step on one core. Raises `Unpredictable`.

    Fake CPU tensors are used: autograd has no queue for fake devices of another kind.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            return _count(plan, batch)
        except Unpredictable:
            raise
        except Exception as error:  # The task's own code; training reports the error in full.
            raise estimate.tracing_failure(error) from error


def _count(plan: Plan, batch: Shapes) -> int:
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cpu"):
            model = plan.task.model(plan.model, plan.data).train()
        given = estimate.tensors(batch, plan.config.batch_per_core, "cpu")
        with FlopSum() as flops:
            given = plan.task.augment(given)
            plan.task.outcomes(plan.task.predict(model, given), given)["loss"].mean().backward()  # type: ignore[no-untyped-call]
    return flops.total()


class FlopSum:
    """Sums the operations while the context is open."""

    def __init__(self) -> None:
        self._counter = FlopCounterMode(display=False)
        self._seen = _SeenOperators()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._seen)
        # The newest mode is called first: it decomposes operators, so that the other one sees the parts.
        self._open.enter_context(self._counter)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def total(self) -> int:
        """The operations. Raises `Unpredictable` if an operator that multiplies has no formula."""
        unknown = next((name for name in sorted(self._seen.names) if _multiplies(name)), None)
        if unknown is not None:
            raise Unpredictable(f"the number of operations of {unknown} is not known")
        return int(self._counter.get_total_flops())


class _SeenOperators(TorchDispatchMode):
    """Collects the names of the operators without a formula."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(function, "_overloadpacket", None) not in flop_registry:
            self.names.add(str(function))
        return function(*args, **dict(kwargs or {}))


def _multiplies(operator: str) -> bool:
    """By the name of an operator such as `aten.mkldnn_rnn_layer.default`."""
    words = operator.lower().replace(".", "_").split("_")
    return any(word in _MULTIPLYING for word in words)
