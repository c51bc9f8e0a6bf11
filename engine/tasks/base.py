"""What a task is: data, network, per-example losses and meters.

A task's module has a torch-free half, which the strict check and the launcher read without importing torch, and
methods that import torch inside. A task of your own is a class like these, named in the configuration as
`task = "module:Class"`; the folder that the run is started in is looked in last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a task in one table of the configuration: give each field a default and a docstring under it."""


class Sizes(NamedTuple):
    """How many examples the splits hold."""

    train: int
    valid: int


class Dataset(Protocol):
    """Examples that are fetched by their indices."""

    def __len__(self) -> int:
        """Number of examples."""
        ...

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """The examples at `indices` as CPU tensors, each with one row an example in that order.

        Called from a thread of its own. Shapes must depend on nothing but the number of indices: every other
        shape is compiled anew. An exception ends training, and is reported with the index of the example.
        """
        ...


class Splits(NamedTuple):
    """The data of a task."""

    train: Dataset
    valid: Dataset


class Task(Protocol):
    """A workload. Only `load`, `model` and `outcomes` may import torch, inside themselves."""

    data_options: ClassVar[type[Options]]
    """The task's own keys of `[data]`."""
    model_options: ClassVar[type[Options]]
    """Keys of `[model]`."""
    meters: ClassVar[tuple[str, ...]]
    """Names of what `outcomes` returns; the first is `loss`."""

    def sizes(self, data: Any) -> Sizes:
        """Number of examples of the splits that `load` will return, known without loading them."""
        ...

    def load(self, data: Any, seed: int) -> Splits:
        """The splits; the same for the same options and seed."""
        ...

    def model(self, options: Any) -> torch.nn.Module:
        """The network on the CPU, its weights drawn from torch's generator, which was seeded before."""
        ...

    def outcomes(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Per-example values, float32 [examples] each, under the names in `meters`. `loss` is differentiated.

        Traced, not run: reading a value here (`.item()`, `print`, `if tensor`) stops the device each step.
        """
        ...
