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
from torch.utils.flop_counter import FlopCounterMode

from engine.memory import estimate
from engine.memory.estimate import Shapes, Unpredictable
from engine.task import Plan
from tputui.reporting import events as ev

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

    Tensors without data are used, of the device `meta`. A network whose own code does not support them is counted with
    fake CPU tensors, which takes three times as long; autograd has no queue for fake devices of another kind.
    """
    with torch.random.fork_rng(devices=[]):
        with contextlib.suppress(Exception):
            return _count(plan, batch, "meta")
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                return _count(plan, batch, "cpu")
        except Unpredictable:
            raise
        except Exception as error:  # The task's own code; training reports the error in full.
            raise estimate.tracing_failure(error) from error


def _count(plan: Plan, batch: Shapes, device: str) -> int:
    with torch.device(device):
        model = plan.task.model(plan.model, plan.data).train()
        given = estimate.tensors(batch, plan.config.batch_per_core, device)
        with FlopSum() as flops:
            given = plan.task.augment(given)
            plan.task.outcomes(plan.task.predict(model, given), given)["loss"].mean().backward()  # type: ignore[no-untyped-call]
    return flops.total()


class FlopSum:
    """Sums the operations while the context is open."""

    def __init__(self) -> None:
        self._counter = _FlopCounter(display=False)

    def __enter__(self) -> Self:
        self._counter.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        self._counter.__exit__(*error)  # type: ignore[no-untyped-call]

    def total(self) -> int:
        """The operations. Raises `Unpredictable` if an operator that multiplies has no formula."""
        unknown = next((name for name in sorted(self._counter.unknown) if _multiplies(name)), None)
        if unknown is not None:
            raise Unpredictable(f"the number of operations of {unknown} is not known")
        return int(self._counter.get_total_flops())


class _FlopCounter(FlopCounterMode):
    """Counts, and collects the names of the operators without a formula."""

    def __init__(self, *, display: bool) -> None:
        super().__init__(display=display)
        self.unknown: set[str] = set()

    def _count_flops(self, packet: Any, out: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if packet not in self.flop_registry:
            self.unknown.add(str(packet))
        return super()._count_flops(packet, out, args, kwargs)  # type: ignore[no-untyped-call]


def _multiplies(operator: str) -> bool:
    """By the name of an operator such as `aten.mkldnn_rnn_layer`."""
    words = operator.lower().replace(".", "_").split("_")
    return any(word in _MULTIPLYING for word in words)
