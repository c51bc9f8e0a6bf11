"""How the cores run one program: what the rest of the engine needs of a strategy.

Cores are counted by their place among the cores of the run, from 0. One process may drive all of them (`Alone`), or
several a part each (`replica`); the processes then train in step, and what is said here to be for every process is to
be called by each of them, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch


class Strategy(Protocol):
    """The cores behind one device."""

    name: str
    """As it stands in the journal: `spmd`, `single`, `replica`."""
    core_ids: list[int]
    """Global indices of the cores of all processes."""
    own: range
    """Places of the cores that this process drives."""
    alone: bool
    """Whether this process drives all the cores: then nobody needs to be asked, and what falls due by the clock may
    be done at once."""
    device: torch.device
    """What tensors live on."""

    def put(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Moves a host batch to the device, its rows shared out among the own cores in order. For any thread."""
        ...

    def shard(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """Says that dimension `dim` holds one entry an own core, each on its core."""
        ...

    def read(self, tensor: torch.Tensor) -> npt.NDArray[np.float32]:
        """Reads what was sharded in its dimension 1, with the columns of all cores; one transfer, which runs and
        compiles nothing. For every process."""
        ...

    def read_rows(self, tensors: list[torch.Tensor]) -> list[npt.NDArray[Any]]:
        """Reads tensors that were sharded in their dimension 0, with the rows of all cores; one transfer. For every
        process."""
        ...

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Joins what every process has on its host along `axis`, in the order of the cores. For every process."""
        ...

    def reduce_gradients(
        self, parameters: Sequence[torch.nn.Parameter], run: Callable[[], None], word: int
    ) -> int | None:
        """Makes every gradient the mean over the processes; `run` runs what was traced, where that is needed. For
        every process. Where the exchange can carry a word besides, gives that of the first process, as `agree` does."""
        ...

    def align(self, tensors: Sequence[torch.Tensor]) -> None:
        """Makes what lies on the device the same as in the first process. For every process, right after a sync."""
        ...

    def agree(self, word: int) -> int:
        """The word, from 0 to 255, of the first process. For every process."""
        ...

    def share(self, text: bytes) -> bytes:
        """The text of the first process. For every process."""
        ...


class Alone:
    """What is simple where one process drives all the cores."""

    alone = True

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """It is all here."""
        return array

    def reduce_gradients(
        self, parameters: Sequence[torch.nn.Parameter], run: Callable[[], None], word: int
    ) -> int | None:
        """The program itself takes the mean over the whole batch."""
        return None

    def align(self, tensors: Sequence[torch.Tensor]) -> None:
        """There is nobody to differ from."""

    def agree(self, word: int) -> int:
        """Nobody else is asked."""
        return word

    def share(self, text: bytes) -> bytes:
        """Nobody else is asked."""
        return text
