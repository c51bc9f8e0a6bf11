"""Several processes that train one model together, each with a core of its own and a copy of the weights.

Each takes its share of every batch; their gradients are averaged before each optimizer step. A layer that looks at
the whole batch sees the core's share here and the whole batch under `spmd`: BatchNorm normalises by the statistics
of one core, and evaluates by the running statistics of the first one. Without such layers both train alike, up to
the order of sums.

On CPU devices the gradients go through the host: the runtime's own collectives do nothing between processes there.
On a TPU they are averaged by the program itself; that half was never run, for want of a TPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.parallel.group import Group, RankSocket
from engine.xla import backend


class Replica:
    """One core of this process, among those of the other processes."""

    name = "replica"
    alone = False

    def __init__(self, place: RankSocket, device_index: int = 0) -> None:
        """Opens the core and waits for the other ranks. Raises `PeerLost`."""
        self.device = backend.device(device_index)
        self.core_ids = list(range(place.num_ranks))
        self.own = range(place.rank, place.rank + 1)
        self._through_host = backend.kind() == "CPU"
        self._group = Group(place)

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Moves the core's own rows to it."""
        return dict(zip(batch, backend.put(list(batch.values()), self.device), strict=True))

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """This process has one core: nothing to say."""
        return tensor

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """One transfer, and one exchange of the columns."""
        return self._group.gather(backend.read(tensor), 1)

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """A transfer and an exchange each."""
        return [self._group.gather(backend.read(tensor), 0) for tensor in tensors]

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """One exchange."""
        return self._group.gather(array, axis)

    def reduce_gradients(
        self, parameters: Sequence[torch.nn.Parameter], run: Callable[[], None], word: int
    ) -> int | None:
        """Averages the gradients, all of them in one exchange."""
        with_gradients = [parameter for parameter in parameters if parameter.grad is not None]
        if not self._through_host:
            backend.reduce_gradients(with_gradients)
            return None
        run()
        gradients = backend.read_all([_gradient(parameter) for parameter in with_gradients])
        flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
        flat, agreed = self._group.mean(flat, word)
        means = torch.split(flat, [gradient.numel() for gradient in gradients])
        shaped = [mean.view(old.shape).to(old.dtype) for mean, old in zip(means, gradients, strict=True)]
        for parameter, gradient in zip(with_gradients, backend.put(shaped, self.device), strict=True):
            parameter.grad = gradient
        return agreed

    def align(self, tensors: Sequence[torch.Tensor]) -> None:
        """Takes the first rank's values over, in one exchange."""
        if not tensors:
            return
        mine = backend.read_all(list(tensors))
        raw = b"".join(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in mine)
        theirs = torch.frombuffer(bytearray(self._group.share(raw)), dtype=torch.uint8)
        parts = torch.split(theirs, [tensor.numel() * tensor.element_size() for tensor in mine])
        # Copied, since a part need not begin where its type wants to.
        aligned = [part.clone().view(old.dtype).view(old.shape) for part, old in zip(parts, mine, strict=True)]
        with torch.no_grad():
            for tensor, value in zip(tensors, backend.put(aligned, self.device), strict=True):
                tensor.data = value

    def agree(self, word: int) -> int:
        """The first rank's word."""
        return self._group.agree(word)

    def share(self, text: bytes) -> bytes:
        """The first rank's text."""
        return self._group.share(text)


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
