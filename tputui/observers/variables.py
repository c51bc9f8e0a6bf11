"""Types and shapes of the tensors in the user's variables, without reading a tensor."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

from tputui.telemetry.events import ChangedInput

TENSORS_MAX = 64
ITEMS_MAX = 16
"""Items of a list or a dictionary that are examined."""
DEPTH_MAX = 2
_SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "s64", "int32": "s32",
    "int16": "s16", "int8": "s8", "uint8": "u8", "bool": "pred",
}  # fmt: skip
Specs = dict[str, str]
"""Type and shape as `f32[8,28]`, by the name of the variable."""


def specs_of(frames: Iterable[FrameType]) -> Specs:
    """The tensors in the variables of calls that need no gradient, such as batches; those of inner calls count.

    Those on XLA devices come first: a program has no other inputs.
    """
    on_device: Specs = {}
    others: Specs = {}
    for frame in frames:
        for name, tensor in _tensors(frame):
            if len(on_device) + len(others) >= TENSORS_MAX:
                break
            if not tensor.requires_grad and name not in on_device and name not in others:
                (on_device if tensor.device.type == "xla" else others)[name] = spec_of(tensor)
    return on_device | others


def xla_tensors(frames: Iterable[FrameType]) -> list[Any]:
    """The tensors on XLA devices in the variables of calls."""
    found = [tensor for frame in frames for _, tensor in _tensors(frame) if tensor.device.type == "xla"]
    return found[:TENSORS_MAX]


def spec_of(tensor: Any) -> str:
    """Type and shape of a tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{_SHORT.get(dtype, dtype)}[{','.join(map(str, tensor.shape))}]"


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[ChangedInput]:
    """The variables that had another type or shape."""
    return [
        ChangedInput(name=name, before=before[name], now=spec)
        for name, spec in now.items()
        if name in before and before[name] != spec
    ]


def _tensors(frame: FrameType) -> Iterator[tuple[str, Any]]:
    tensor_type: Any = sys.modules["torch"].Tensor
    for name, value in list(frame.f_locals.items()):
        if not name.startswith("__"):
            yield from _in_value(name, value, tensor_type, 0)


def _in_value(name: str, value: Any, tensor_type: Any, depth: int) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if issubclass(kind, tensor_type):
        yield name, value
    elif depth < DEPTH_MAX and kind in (list, tuple):
        for place, item in enumerate(value[:ITEMS_MAX]):
            yield from _in_value(f"{name}[{place}]", item, tensor_type, depth + 1)
    elif depth < DEPTH_MAX and kind is dict:
        for key, item in list(value.items())[:ITEMS_MAX]:
            yield from _in_value(
                f"{name}[{key!r}]" if type(key) in (str, int) else f"{name}[...]", item, tensor_type, depth + 1
            )
