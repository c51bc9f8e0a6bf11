"""The loss of every backward pass: the root of `torch.autograd.backward`, by which all of them go.

`Tensor.backward` calls it through its module, and so do accelerate, Fabric, Lightning, transformers, Keras, DDP and
FSDP. A value on the CPU is read at once, one on a device stays there until the report. No graph is kept.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Iterator
from time import perf_counter
from types import FrameType
from typing import Any

from tputui.hooks import notes
from tputui.hooks.call_sites import CallSite, site_of
from tputui.hooks.steps import BackwardPass, OptimizerStep

CHECKED = 4
"""Backward passes of a place in which a division of the loss is looked for."""
GRAPH_NODES_MAX = 40
SCALED_MAX = 8
_scaled: dict[int, tuple[Any, Any]] = {}
"""Losses that a `GradScaler` has scaled: a weak reference to the output, and the input, by `id` of the output."""
num_optimizers = 0
"""Optimizers of torch that the program has created."""


def hook(torch: Any) -> None:
    """Notes every backward pass from now on."""
    real, Tensor = torch.autograd.backward, torch.Tensor

    @functools.wraps(real)
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **options: Any) -> Any:
        thread = notes.of_thread()
        if thread.is_inside:
            return real(tensors, grad_tensors, *args, **options)
        thread.is_inside, record = True, None
        try:
            if grad_tensors is None or getattr(grad_tensors, "shape", None) == ():
                record = _note(thread, tensors, Tensor, sys._getframe(1))
            return real(tensors, grad_tensors, *args, **options)
        except BaseException:
            if record is not None:
                # It trained nothing.
                record.value = None
            raise
        finally:
            thread.is_inside = False

    torch.autograd.backward = backward


def hook_scaler(module: Any) -> None:
    """Shows the losses of `torch.amp.GradScaler` as they are before they are scaled, and counts the steps it skips."""
    scaler = module.GradScaler
    real_scale, real_step = scaler.scale, scaler.step

    @functools.wraps(real_scale)
    def scale(self: Any, outputs: Any) -> Any:
        scaled = real_scale(self, outputs)
        with contextlib.suppress(Exception):
            if scaled is not outputs and hasattr(scaled, "numel"):
                if len(_scaled) >= SCALED_MAX:
                    _scaled.clear()
                # The graph of the loss lives until its backward pass in any case.
                _scaled[id(scaled)] = weakref.ref(scaled), outputs
        return scaled

    @functools.wraps(real_step)
    def step(self: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
        thread = notes.of_thread()
        before = thread.num_steps
        returned = real_step(self, optimizer, *args, **options)
        with contextlib.suppress(Exception):
            if thread.num_steps == before and self.is_enabled():
                # Skipped, since the gradients overflowed.
                ended_at = perf_counter()
                thread.records.append(OptimizerStep(id(optimizer), None, ended_at, False))
                thread.stepped(ended_at)
        return returned

    scaler.scale, scaler.step = scale, step


def _note(thread: notes.ThreadNotes, root: Any, Tensor: Any, caller: FrameType) -> BackwardPass | None:
    """Notes a backward pass, with as few calls as possible: it runs when no cache holds its code."""
    try:
        began_at, frame, site = perf_counter(), caller.f_back, thread.site
        if frame is None or frame.f_code is not site.code or frame.f_lasti != site.offset:
            site = thread.site = site_of(caller)
        if began_at >= thread.goes_on_at:
            thread.go_on(caller, began_at)
        record = BackwardPass(site, began_at, num_optimizers)
        thread.records.append(record)
        if not isinstance(root, Tensor):
            root = _sum_of(root)
        if _scaled and (held := _scaled.pop(id(root), None)) is not None and held[0]() is root:
            root = held[1]
        if root is not None and root.numel() == 1:
            if site.num_checked < CHECKED or site.parts:
                _look_for_division(site, root)
                record.parts = site.parts
            if root.is_cpu:
                record.value = root.item()
                if thread.shares is not None:
                    thread.shares.append((site, record.value))
            elif not (root.is_cuda and sys.modules["torch"].cuda.is_current_stream_capturing()):
                if thread.shares is None:
                    thread.wait_for_loss(record, root)
                else:
                    # A CUDA graph may be replayed into the same memory; of torch_xla, a copy is another program.
                    thread.shares.append((site, root.detach().clone() if root.is_cuda else root.detach()))
        if not num_optimizers:
            thread.stepped(began_at)
        return record
    except Exception:  # noqa: BLE001, RUF100 - the program does not depend on its observers
        return None


def _sum_of(roots: Any) -> Any:
    """What is minimised by a backward pass from several roots: autograd adds up their gradients. None if one of them
    has several elements."""
    parts = [one.detach() for one in roots if one.numel() == 1]
    return sum(parts) if len(parts) == len(roots) else None


def _look_for_division(site: CallSite, root: Any) -> None:
    """Finds the constants by which a loss was divided, and over how many examples it is a mean, in its graph."""
    site.num_checked += 1
    site.parts, product, node = [], 1.0, root.grad_fn
    while node is not None and type(node).__name__ in ("DivBackward0", "MulBackward0"):
        inputs = [one for one, _ in node.next_functions if one is not None]
        factor = _constant(node._saved_other) if len(inputs) == 1 else None
        if not factor:
            break
        product *= factor if type(node).__name__ == "DivBackward0" else 1 / factor
        if product > 1:
            site.parts.append(product)
        node = inputs[0]
    if not site.rows:
        site.rows = next(_rows_of_targets(root.grad_fn), 0)


def _constant(other: Any) -> float | None:
    """The other factor; None if it is on a device, or not one number."""
    if hasattr(other, "is_cpu"):
        return float(other.item()) if other.is_cpu and other.numel() == 1 else None
    return float(other) if isinstance(other, int | float) else None


def _rows_of_targets(root: Any) -> Iterator[int]:
    """The first dimension of the targets of losses in a graph."""
    nodes = [root]
    for node in nodes:
        if node is not None and len(nodes) < GRAPH_NODES_MAX:
            target = getattr(node, "_saved_target", None) if "Nll" in type(node).__name__ else None
            if target is not None and len(target.shape):
                yield int(target.shape[0])
            nodes += [one for one, _ in node.next_functions]
