"""Values of steps as scripts pass them: numbers, arrays, and tensors that stay on their device until they are fetched.

`host_row` converts what can be read without waiting. `DeviceValues` keeps the rest, detached, and fetches all of them
in one transfer per framework. Imports no framework: a value of one exists only if the script has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tputui.reporting import cuda_memory, jax_runtime

PENDING_MAX = 4096
"""Most values that wait to be fetched, however fast the steps are."""
NAN = float("nan")
INT_MAX = 2**53
"""Larger whole numbers are not exact as floats, and no counts of a training."""
WATCHED = 8
"""Values of a name whose changes after they were passed are noticed at once: a script that changes one changes all."""
_SHOWN_CHARS_MAX = 40
_REPLICATED = 0
"""Sharding type of torch_xla for a tensor that every device holds whole."""
_SNAPSHOT = -1
"""Version of a value that later changes of the tensor do not reach."""
_DONATED = ("deleted or donated", "Trying to access XLA data for tensor")
"""In errors of torch_xla that reads a buffer which a program has reused; the second one if it is sharded."""


UNKNOWN = "unknown"
"""The type of devices that nothing names."""


class Pending(NamedTuple):
    """A value on a device."""

    tag: Any
    """What the value belongs to; returned with it."""
    value: Any
    """Detached tensor or array."""
    version: int
    """Number of in-place changes of the tensor when it was passed, or `_SNAPSHOT`."""


def host_row(value: Any) -> list[float] | None:
    """The elements of a value that can be read without waiting for a device; None if it is on a device.

    Raises `TypeError` or `ValueError` if the value is not a number, nor an array or a sequence of numbers.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if not value.is_cpu:
            return None
        elements = value.tolist()
        return [elements] if type(elements) is float else _flat(elements)
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, list | tuple):
        return None if any(_is_on_device(item) for item in value) else [float(item) for item in value]
    if _is_jax(value):
        return None
    if (elements := getattr(value, "tolist", None)) is not None:
        return _flat(elements())
    return [float(value)]


def host_number(name: str, value: Any) -> float:
    """A number other than the loss, such as `examples`, which is its name. Raises `TypeError` or `ValueError`."""
    try:
        row = host_row(value)
    except (TypeError, ValueError, OverflowError):
        row = []
    if row is None:
        raise TypeError(f"{name} is on a device; pass a Python number, because reading this one would wait")
    if len(row) != 1 or not abs(row[0]) <= INT_MAX:
        raise ValueError(f"{name} is not a number, but {str(value)[:_SHOWN_CHARS_MAX]}")
    return row[0]


def device_kind() -> str:
    """The type of device that the script trains on, as far as its frameworks show without starting a device; `unknown`
    without any of them."""
    xla = sys.modules.get("torch_xla.runtime")
    if xla is not None:
        return str(xla.device_type() or "XLA")
    if jax_devices := jax_runtime.devices():
        return str(jax_devices[0].platform).upper()
    torch = sys.modules.get("torch")
    if torch is None:
        return UNKNOWN
    return cuda_memory.device_name() or "CPU"


def num_devices() -> int:
    """How many devices the program uses, if one process drives them all as one; 0 if its frameworks do not show it."""
    return num_of_spmd() if "torch_xla.runtime" in sys.modules else len(jax_runtime.devices())


def num_of_spmd() -> int:
    """How many devices share each batch of a program of torch_xla; 0 without SPMD."""
    xla = sys.modules.get("torch_xla.runtime")
    return int(xla.global_runtime_device_count()) if xla is not None and xla.is_spmd() else 0


def _is_on_device(value: Any) -> bool:
    return not value.is_cpu if _is_torch(value) else _is_jax(value)


def _flat(elements: Any) -> list[float]:
    if isinstance(elements, list):
        return [number for element in elements for number in _flat(element)]
    return [float(elements)]


class DeviceValues:
    """Values that wait on their devices. `add` and `fetch` are called by the thread that runs the training steps.

    Another thread must not fetch tensors of torch_xla: the runtime ends the process if a tensor is read while its
    buffer is being assigned.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._pending: list[Pending] = []
        self._copies = False
        """Whether values are copied on the device: the script changed or freed one after it had passed it."""
        self._to_watch: dict[str, int] = {}
        """Values to watch before snapshots are taken, per name of values that are tensors of torch_xla."""
        self._torch: Any = None
        """The module, if it can take snapshots."""

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, tag: Any, value: Any, name: str = "") -> None:
        """Keeps a value: a tensor or array on a device, or a list of them with one per core. Does not wait. `name`
        is the same for all values from one place of the script."""
        pending = self._pending
        if pending and not self._copies and _is_changed(pending[-1]):
            self._copy_from_now()
        kept = _kept(value, copy=self._copies)
        pending.append(Pending(tag, kept, _version(kept)))
        if not self._copies and _has_snapshots(value):
            self._torch = sys.modules["torch"]
            self._to_watch[name] = self._to_watch.get(name, WATCHED) - 1

    def add_snapshot(self, tag: Any, value: Any, name: str = "") -> bool:
        """Keeps a tensor of torch_xla as it is now, if earlier ones of this name stayed unchanged; returns whether it
        did, else call `add`.

        It is the tensor inside, which autograd and in-place operations do not know. To detach takes five times as long
        right after a step, when no cache of the CPU holds its code: it passes four layers of torch.
        """
        torch = self._torch
        if torch is None or type(value) is not torch.Tensor or self._to_watch.get(name, 1) > 0:
            return False
        try:
            # Changes made through another view of the same memory are applied first.
            torch._functionalize_sync(value)
            self._pending.append(Pending(tag, torch._from_functional_tensor(value), _SNAPSHOT))
        except RuntimeError:
            # A tensor of another device.
            self._to_watch[name] = sys.maxsize
            return False
        return True

    def fetch(self, *, all_values: bool = False, leave: int = 0) -> list[tuple[Any, list[float]]]:
        """Fetches the values that the device has computed or is computing, in the order in which they were passed, as
        tags and elements: one of a scalar, and as many as there are cores of a value per core.

        A value of torch_xla that is not part of a program yet stays, because reading it would compile one, unless
        `all_values` is true. The newest `leave` values stay.
        """
        taken, self._pending = self._pending, []
        ready = taken if all_values else taken[: _num_ready(taken[: len(taken) - leave])]
        self._pending = taken[len(ready) :]
        try:
            rows = _rows_or_none([pending.value for pending in ready])
        except Exception:
            # Fetched again with the next ones; values that cannot be read must not pile up.
            self._pending = taken if len(taken) < PENDING_MAX else []
            raise
        fetched = []
        for pending, row in zip(ready, rows, strict=True):
            if row is None or _is_changed(pending):
                row = [NAN] * (len(row) if row is not None else _num_elements(pending.value))
                self._copy_from_now()
            fetched.append((pending.tag, row))
        return fetched

    def _copy_from_now(self) -> None:
        """A value was changed or freed after it was passed."""
        if not self._copies:
            self._copies, self._torch = True, None
            self._warn(
                "a tensor changed in place, or was donated, after it was passed to the run; its value is not known. "
                "Later values are copied on the device first"
            )


def _kept(value: Any, *, copy: bool) -> Any:
    if _is_torch(value):
        detached = value.detach() if value.requires_grad else value
        # Replays of a CUDA graph write to the same memory without changing the version of the tensor.
        return detached.clone() if copy or not (value.is_xla or value.is_cpu) else detached
    if isinstance(value, list | tuple):
        return [_kept(item, copy=copy) for item in value]
    if hasattr(value, "copy_to_host_async"):
        if copy:
            value = value.copy()
        value.copy_to_host_async()
    return value


def _version(value: Any) -> int:
    """Number of in-place changes; 0 if the framework does not count them, as for tensors made in inference mode."""
    if isinstance(value, list):
        return sum(map(_version, value))
    if _is_torch(value):
        return 0 if value.is_inference() else int(value._version)
    return 0


def _is_changed(pending: Pending) -> bool:
    _, value, version = pending
    if version == _SNAPSHOT:
        return False
    if _is_torch(value):
        return _version(value) != version
    values = value if isinstance(value, list) else [value]
    return any(getattr(value, "is_deleted", bool)() for value in values) or _version(value) != version


def _has_snapshots(value: Any) -> bool:
    """Whether the value is a tensor of torch_xla whose in-place operations replace a tensor inside it."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and type(value) is torch.Tensor
        and value.is_xla
        and hasattr(torch, "_functionalize_sync")
        and hasattr(torch, "_from_functional_tensor")
        and torch._is_functional_tensor(value)
    )


def _num_elements(value: Any) -> int:
    return sum(tensor.numel() if _is_torch(tensor) else tensor.size for tensor in _tensors(value))


def _num_ready(pending: Sequence[Pending]) -> int:
    """Number of values, from the oldest, that can be read without compiling a program."""
    runtime = _xla_runtime()
    if runtime is None:
        return len(pending)
    for number, item in enumerate(reversed(pending)):
        tensors = [tensor for tensor in _tensors(item.value) if _is_xla(tensor)]
        if not tensors or not any(runtime._check_tensor_need_materialization(tensors)):
            return len(pending) - number
    return 0


def _tensors(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _rows_or_none(values: Sequence[Any]) -> list[list[float] | None]:
    """The elements of each value; None for those whose buffers programs have reused."""
    try:
        return [*_rows(values)]
    except RuntimeError as error:
        if not _is_donated(error):
            raise
    if (runtime := _xla_runtime()) is not None:
        # A sharded buffer that a program in flight fills raises the same error.
        runtime._xla_wait_device_ops([])
    return [_row_or_none(value) for value in values]


def _row_or_none(value: Any) -> list[float] | None:
    try:
        return _rows([value])[0]
    except RuntimeError as error:
        if not _is_donated(error):
            raise
        return None


def _is_donated(error: RuntimeError) -> bool:
    return any(text in str(error) for text in _DONATED)


def _rows(values: Sequence[Any]) -> list[list[float]]:
    """The elements of each value, with one transfer for all tensors of a device type."""
    flat = [tensor for value in values for tensor in _tensors(value)]
    by_place: list[list[float]] = [[]] * len(flat)
    for read, is_of in ((_read_xla, _is_xla), (_read_torch, _is_torch)):
        places = [place for place, tensor in enumerate(flat) if not by_place[place] and is_of(tensor)]
        if places:
            for place, row in zip(places, read([flat[place] for place in places]), strict=True):
                by_place[place] = row or [NAN]
    for place, value in enumerate(flat):
        if not by_place[place]:
            by_place[place] = (_read_jax(value) if _is_jax(value) else [float(value)]) or [NAN]
    rows, at = [], 0
    for value in values:
        many = len(_tensors(value))
        rows.append([number for row in by_place[at : at + many] for number in row])
        at += many
    return rows


def _xla_runtime() -> Any:
    module = sys.modules.get("torch_xla")
    return getattr(module, "_XLAC", None)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_xla(value: Any) -> bool:
    return _is_torch(value) and value.device.type == "xla" and _xla_runtime() is not None


def _is_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _read_xla(tensors: list[Any]) -> list[list[float]]:
    """Reads tensors of torch_xla. Sharded ones are read shard by shard: reading one whole would compile a program."""
    runtime = _xla_runtime()
    if sys.modules["torch_xla.runtime"].is_spmd():
        # The sharding of a tensor is not known while its program is in flight.
        runtime._xla_wait_device_ops([])
    is_sharded = [runtime._get_xla_sharding_type(tensor) not in (None, _REPLICATED) for tensor in tensors]
    whole = [tensor for tensor, sharded in zip(tensors, is_sharded, strict=True) if not sharded]
    parts = [tensor for tensor, sharded in zip(tensors, is_sharded, strict=True) if sharded]
    wholes = iter(runtime._xla_get_cpu_tensors(whole) if whole else [])
    read = (runtime._get_local_shards, runtime._get_local_shard_replica_and_indices) if parts else ()
    shards = zip(*(call(parts) for call in read), strict=True)
    return [_joined(*next(shards)) if sharded else _flat(next(wholes).tolist()) for sharded in is_sharded]


def _joined(shards: Sequence[tuple[Any, str]], places: Sequence[tuple[int, Any]]) -> list[float]:
    """The elements of a sharded tensor of this process, each once, in the order of their indices."""
    pieces = []
    for order, ((shard, _), (replica, indices)) in enumerate(zip(shards, places, strict=True)):
        if replica == 0:
            start = [index.start or 0 for index in indices] if isinstance(indices, list | tuple) else [order]
            pieces.append((start, _flat(shard.tolist())))
    return [number for _, piece in sorted(pieces) for number in piece]


def _read_torch(tensors: list[Any]) -> list[list[float]]:
    """Reads tensors of other devices. Those of one shape and type go in one transfer."""
    torch = sys.modules["torch"]
    rows: list[list[float]] = [[]] * len(tensors)
    groups: dict[Any, list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype, tensor.shape), []).append(place)
    for places in groups.values():
        for place, row in zip(places, torch.stack([tensors[place] for place in places]).tolist(), strict=True):
            rows[place] = _flat(row)
    return rows


def _read_jax(array: Any) -> list[float]:
    """Reads an array of JAX, whose transfer was started when it was passed. Donated arrays are NaN."""
    if array.is_deleted():
        return [NAN] * max(1, array.size)
    if not array.is_fully_addressable:
        shards = sorted(
            ([index.start or 0 for index in shard.index], _flat(shard.data.tolist()))
            for shard in array.addressable_shards
            if shard.replica_id == 0
        )
        return [number for _, row in shards for number in row]
    return _flat(array.tolist())
