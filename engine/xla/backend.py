"""The only module that imports torch_xla: devices, sharding, sync and reads.

Importing it imports the runtime, which reads its environment at that time; `engine` sets the variables before.
Another runtime can be supported by another module with these functions. Holds no state of a run.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
import torch_xla.utils.checkpoint as xc

_AXIS = "cores"
# Most of the runtime is untyped, and some of it is typed incorrectly.
_runtime: Any = vars(torch_xla)["_XLAC"]
_send: Any = xm.send_cpu_data_to_device
_memory_info: Any = xm.get_memory_info
_random: Any = xm
_checkpoint: Any = xc.checkpoint
_model: Any = xm
# The package exports a function under the name of this module.
_scan: Any = importlib.import_module("torch_xla.experimental.scan")
Tensors = tuple[torch.Tensor, ...]
Cell = Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]


class Reads(NamedTuple):
    """Transfers from the device by this module since the start of the process."""

    transfers: int
    seconds: float


class CoreMesh:
    def __init__(self, num_cores: int, devices: Sequence[int] | None = None, *, per_host: bool = False) -> None:
        """`devices` are the devices of the cores, as `own_devices` numbers them; those of the process in order by
        default. With `per_host` each host puts the rows of its own cores only, which never ran, for lack of a TPU.

        Raises `RuntimeError` if the number of devices differs.
        """
        there = xr.global_runtime_device_count()
        if there != num_cores:
            raise RuntimeError(f"the runtime has {there} devices, but {num_cores} cores are configured")
        order = np.arange(num_cores) if devices is None else np.array(devices)
        self._mesh = xs.Mesh(order, (num_cores,), (_AXIS,))
        self._rows = _RowSpec(self._mesh, per_host=per_host)
        self._marks: dict[tuple[int, int], Any] = {}

    def put(self, tensors: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        """Moves host tensors to the device in one transfer, with their first dimension sharded over the cores."""
        return _put(tensors, device, self._rows)

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Shards dimension `dim` of the tensor over the cores.

        The runtime's own `mark_sharding` looks for jax on the disk at every call: 0.4 to 1.3 ms against 0.01.
        """
        key = (tensor.dim(), dim)
        mark = self._marks.get(key)
        if mark is None:
            mark = self._marks[key] = self._mesh.get_op_sharding(_spec(*key))
        _runtime._xla_mark_sharding(tensor, mark)
        return tensor


class _RowSpec:
    """Shards the first dimension of tensors of any rank; the runtime's own class supports one rank only."""

    def __init__(self, mesh: Any, *, per_host: bool) -> None:
        self.minibatch = per_host
        """Read by the runtime: whether a tensor has the rows of this host's devices only, in their order."""
        self._mesh = mesh
        self._by_rank: dict[int, Any] = {}

    def xla_spec(self, tensor: torch.Tensor) -> Any:
        """Called by the runtime for each tensor."""
        rank = tensor.dim()
        if rank not in self._by_rank:
            self._by_rank[rank] = xs.ShardingSpec(self._mesh, _spec(rank, 0), self.minibatch)
        return self._by_rank[rank].xla_spec(tensor)


def _spec(rank: int, dim: int) -> tuple[str | None, ...]:
    return tuple(_AXIS if place == dim else None for place in range(rank))


_own = Reads(0, 0.0)


def use_spmd() -> None:
    """Switches the process to SPMD; must be called before any device is used.

    The runtime's own scan, which its `nn.GRU` uses, asks jax to give gradients the sharding of their tensors, and fails
    without jax, or with a newer one. Here it leaves the sharding to the compiler's propagation.
    """
    xr.use_spmd()
    _scan.shard_as = lambda first, second: (first, second)


def device(index: int | None = None) -> torch.device:
    """The default device, or the one with that index as the calling thread's default. Opens it: may raise."""
    chosen: torch.device = torch_xla.device() if index is None else torch_xla.device(index)
    _runtime._xla_set_default_device(str(chosen))
    return chosen


def own_devices() -> list[int]:
    """The devices that this process drives, in the runtime's order: their numbers, as a mesh names devices. The list of
    all devices may have another order."""
    return [int(name.rpartition(":")[2]) for name in _runtime._xla_get_runtime_devices()]


def kind() -> str:
    """`CPU` or `TPU`."""
    return str(xr.device_type())


def put(tensors: list[torch.Tensor], target: torch.device) -> list[torch.Tensor]:
    """Moves host tensors to one device in one transfer."""
    return _put(tensors, target, None)


def sync() -> None:
    """Compiles the traced program of the calling thread's device if it is new, and starts it."""
    torch_xla.sync()


def wait() -> None:
    """Waits until the devices are idle."""
    xm.wait_device_ops()


def seed(value: int, target: torch.device) -> None:
    """Seeds the device's random numbers. The runtime advances its state at every sync, so it is set at every step."""
    xm.set_rng_state(value, str(target))


def scan(cell: Cell, carry: Tensors, xs: Tensors, *, reverse: bool = False) -> tuple[Tensors, Tensors]:
    """Runs `carry, y = cell(carry, x)` for each row `x` of `xs` [rows, ...] as one loop on the device, for any number
    of rows.

    Returns the last carry and the rows `y`, stacked; from the last row to the first with `reverse`. No gradient flows:
    the caller defines it, because the runtime's own saves every part of the carry, including weights, for each row.
    Tensors that the cell needs must be in the carry.
    """

    def flat(now: list[torch.Tensor], row: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        after, out = cell(tuple(now), tuple(row))
        # A tensor that passes unchanged would be input and output of the loop body at once.
        return [torch.clone(new) if any(new is old for old in now) else new for new in after], list(out)

    with torch.no_grad():
        last, ys = _scan._scan_impl_flat(flat, list(carry), list(xs), reverse=reverse)
    return tuple(last), tuple(ys)


def reduce_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Traces the mean of every gradient over all devices of all processes. Never run, for lack of a TPU."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    _model.all_reduce(_model.REDUCE_SUM, gradients, scale=1.0 / xr.world_size())


def drop_temporary_directory() -> None:
    """Removes the empty directory that torch creates for RPC modules while the runtime is imported. Processes of a run
    exit without Python's cleanup, so each would leave one behind."""
    made = getattr(sys.modules.get("torch.distributed.nn.jit.instantiator"), "_TEMP_DIR", None)
    if made is not None:
        made.cleanup()


def launch(train: Callable[[int], None], process: int, num_processes: int) -> None:
    """Calls `train` with the device index in one thread per device of this process, and returns when all have ended.
    `train` must not raise.

    Each process calls it, as `torch_xla.launch` lets its own processes do; started by command line, the processes have
    a parent that sees the first failure and ends the others. On a TPU one process drives one chip. The TPU branch was
    never run, for lack of a TPU.
    """
    if kind() == "CPU":
        train(0)
        return
    import torch_xla._internal.pjrt as pjrt

    def on_this_device() -> None:
        train(int(str(torch_xla.device()).rpartition(":")[2]))

    run_threads: Any = pjrt._run_thread_per_device
    run_threads(process, num_processes, on_this_device, pjrt.initialize_multiprocess)


def recomputed(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Calls `function(*given)` and saves only its arguments for the backward pass, where it is called again with the
    same random draws. At least one argument must require a gradient.

    The runtime's own repetition of random draws uses the default device of the calling thread, and the backward pass
    has its own thread, whose default is the first device.
    """
    target = str(next(value.device for value in given if torch.is_tensor(value)))
    drawn: list[int] = []

    def call(*values: Any) -> Any:
        before = _random.get_rng_state(target)
        if not drawn:
            drawn.append(before)
            return function(*values)
        _random.set_rng_state(drawn[0], target)
        try:
            return function(*values)
        finally:
            _random.set_rng_state(before, target)

    return _checkpoint(call, *given, preserve_rng_state=False)


def read(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Copies a tensor to the host in one transfer. It must be synced and unsharded; see `read_shards`."""
    with _own_read():
        values: npt.NDArray[Any] = tensor.cpu().numpy()
    return values


def read_all(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies synced, unsharded tensors to the host in one transfer."""
    if not tensors:
        return []
    with _own_read():
        copies: list[torch.Tensor] = _runtime._xla_get_cpu_tensors(tensors)
    return copies


def read_shards(tensors: list[torch.Tensor], dim: int) -> list[npt.NDArray[Any]]:
    """Copies synced tensors that are sharded in `dim` to the host in one transfer. A plain read would compile a program
    each time."""
    if not tensors:
        return []
    with _own_read():
        sharded = _runtime._get_local_shards(tensors)
    return [np.concatenate([shard.numpy() for shard, _ in shards], axis=dim) for shards in sharded]


def to_host(state: Any) -> Any:
    """A copy of nested state with every tensor on the host, in one transfer. Right after a sync it compiles nothing."""
    with _own_read():
        return xm._maybe_convert_to_cpu(state)


def reads() -> Reads:
    """The number of transfers from the device by the functions above."""
    return _own


@contextmanager
def _own_read() -> Iterator[None]:
    global _own
    began = time.perf_counter()
    try:
        yield
    finally:
        _own = Reads(_own.transfers + 1, _own.seconds + time.perf_counter() - began)


def memory(target: torch.device) -> dict[str, int]:
    """`bytes_used`, `bytes_limit` and `peak_bytes_used` of one device. Raises `RuntimeError` if not available."""
    info: dict[str, int] = _memory_info(str(target))
    return info


def _put(tensors: list[torch.Tensor], target: torch.device, sharding: _RowSpec | None) -> list[torch.Tensor]:
    moved: list[torch.Tensor] = _send(tensors, target, input_sharding=sharding)
    return moved
