"""What JAX knows of a program when it has just compiled it: memory, devices, inputs and donations.

It is read from the calls on the stack once per compilation, so that it costs a step nothing. The names in them change
between versions of JAX: what is not found there is left out.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from tputui.observers.user_frames import callers
from tputui.telemetry.events import CodeFrame, ProgramMemory, ProgramObserved, TensorSpec

FRAMES_MAX = 16
"""Calls between JAX's report of the time and the one that has the inputs."""
SPECS_MAX = 64
_SHORT = {"float": "f", "bfloat": "bf", "int": "s", "uint": "u", "complex": "c"}


def unused_donations(frame: FrameType) -> list[TensorSpec]:
    """Donated inputs of the program that is being lowered for which no result has the same type and shape."""
    for values in _locals(frame):
        if "donated_invars" in values and "in_avals" in values and "out_avals" in values:
            results = Counter((value.shape, value.dtype) for value in _arrays(values["out_avals"]))
            unused: list[TensorSpec] = []
            for value, donated in zip(values["in_avals"], values["donated_invars"], strict=True):
                if donated and hasattr(value, "shape"):
                    key = value.shape, value.dtype
                    results[key] -= 1
                    unused += [_spec(value)] if results[key] < 0 else []
            return unused[:SPECS_MAX]
    return []


def observed(
    frame: FrameType, program: str, line: CodeFrame | None, donations: list[TensorSpec]
) -> ProgramObserved | None:
    """The program that has just been compiled; None if nothing of interest is known of it."""
    memory, num_devices, replicated, all_bytes = None, 1, 0, 0
    for values in _locals(frame):
        if (executable := values.get("xla_executable")) is not None and memory is None:
            memory = _memory(executable)
        if "in_shardings" in values and "global_in_avals" in values:
            for value, sharding in zip(values["global_in_avals"], values["in_shardings"], strict=True):
                devices = len(getattr(sharding, "device_set", ()))
                num_bytes = math.prod(value.shape) * value.dtype.itemsize if hasattr(value, "shape") else 0
                num_devices, all_bytes = max(num_devices, devices), all_bytes + num_bytes
                if devices > 1 and sharding.is_fully_replicated:
                    replicated += num_bytes
            break
    if memory is None and not donations and not replicated:
        return None
    return ProgramObserved(
        t=time.time(), runtime="jax", program=program, inputs=None, matmuls=None, num_operations=None, flops=None,
        user_frame=line, memory=memory, num_devices=num_devices, replicated_bytes=replicated,
        is_replicated=0 < replicated == all_bytes, unused_donations=donations,
    )  # fmt: skip


def _locals(frame: FrameType) -> Iterator[dict[str, Any]]:
    frames = callers(frame, FRAMES_MAX)
    return (caller.f_locals for caller in frames if caller.f_code.co_filename.endswith(("pxla.py", "pjit.py")))


def _arrays(values: Iterable[Any]) -> Iterator[Any]:
    return (value for value in values if hasattr(value, "shape"))


def _spec(value: Any) -> TensorSpec:
    name = str(value.dtype)
    letters = name.rstrip("0123456789")
    return TensorSpec(dtype=_SHORT.get(letters, letters) + name[len(letters) :], shape=[int(n) for n in value.shape])


def _memory(executable: Any) -> ProgramMemory | None:
    stats = executable.get_compiled_memory_stats()
    if stats is None:
        return None
    shared = int(stats.alias_size_in_bytes)
    return ProgramMemory(
        arguments_bytes=max(0, int(stats.argument_size_in_bytes) - shared),
        outputs_bytes=int(stats.output_size_in_bytes),
        temporary_bytes=int(stats.temp_size_in_bytes),
        code_bytes=int(stats.generated_code_size_in_bytes),
    )
