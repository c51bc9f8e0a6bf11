"""The interface of a task: data, network, loss, metrics and predictions. Subclass `Task` to train your own.

Name it in the configuration as `task = "module:Class"`; the folder that the run is started in is last on the import
path. The check before a run and the launcher import the module without torch: methods that need torch must import it
inside. Methods marked "Traced" build a program and run nothing: reading a value there (`.item()`, `print`, `if tensor`)
stops the device at every step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import msgspec

from engine.process import hardware
from tputui.config import RunConfig

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch

    from engine.errors import BadExample, Problem


MAX_REPORT_STEPS = 256
"""Most steps in one report: the results of that many are stored on the device."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a task in one table of the configuration: give each field a default and a docstring under it."""


class Sizes(NamedTuple):
    """Number of examples in each split."""

    train: int
    valid: int


class Dataset(Protocol):
    """Examples that are fetched by index."""

    def __len__(self) -> int:
        """Number of examples."""
        ...

    def fetch(self, indices: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """The examples at `indices` [n] as CPU tensors [n, ...] by name, in that order.

        Called from one thread, or with `data.workers` from several, each with a part of a batch; a dataset with the
        attribute `parallel = True` is read by several threads by default. Shapes must depend only on the number of
        indices, because every new shape is compiled. Raise `engine.errors.BadExample` for one example that cannot be
        used: it is left out if the configuration allows that. Any other exception ends training.
        """
        ...


@runtime_checkable
class Identified(Protocol):
    """An optional method of a dataset."""

    def identities(self, indices: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Columns [len(indices)] by name that identify the examples to the user, such as `id` or `file`; written beside
        the predictions."""
        ...


class Splits(NamedTuple):
    train: Dataset
    valid: Dataset
    skipped: tuple[BadExample, ...] = ()
    """Examples of the source that are left out of both splits because they cannot be used."""
    notes: tuple[str, ...] = ()
    """Notes on the data for the user before the start, one sentence each."""
    identity: Mapping[str, str] = MappingProxyType({})
    """Digests of the parts of the data, such as `labels`, to report if a run is resumed on other data."""


class Picture(NamedTuple):
    """A picture of a prediction or a training example, saved with the run."""

    name: str
    """What it shows, such as `input`, `mask`, `depth`; the pictures of one example are shown side by side."""
    example: str
    """The example that it belongs to, with its label if it has one."""
    pixels: npt.NDArray[np.uint8]
    """uint8 [height, width, 3], red, green, blue."""


class Task(ABC):
    """A workload. Class attributes without a value and abstract methods must be defined; the rest is optional."""

    data_options: ClassVar[type[Options]]
    """The task's options in `[data]`. An option `max_bad_rows` limits how many examples may be left out; without it
    none may."""
    model_options: ClassVar[type[Options]]
    """The task's options in `[model]`."""
    meters: ClassVar[tuple[str, ...]]
    """Names of the values that `outcomes` returns; the first must be `loss`. Each is averaged over the split."""
    scores: ClassVar[tuple[str, ...]] = ()
    """Names of the scores that `score` always returns."""
    pictures_legend: ClassVar[str] = ""
    """Meaning of the colours in `pictures`, one sentence shown above them."""
    builder: ClassVar[str] = "engine.loop.build"
    """Module that builds the trainer. Another one has its own loop, which determines sizes and metrics itself."""
    guess_loss: float | None = None
    """After `load`, the loss of a guess by the frequencies of the labels in training: what a run that learns nothing
    stays at. None if it is not known."""

    def configure(self, data: Any, model: Any) -> None:  # noqa: B027 - optional
        """Called once with the options, before any other method: meters and scores may depend on them."""

    @abstractmethod
    def sizes(self, data: Any, seed: int) -> Sizes:
        """Numbers of examples in the splits that `load` will return, without loading them.

        Raises `ValueError` or `OSError` if the data cannot be used, or `engine.errors.Refused`.
        """

    @abstractmethod
    def load(self, data: Any, seed: int) -> Splits:
        """The splits; the same for the same options and seed."""

    @abstractmethod
    def model(self, options: Any, data: Any) -> torch.nn.Module:
        """The network on the CPU, initialised from torch's seeded generator."""

    @abstractmethod
    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The network's outputs [n, ...] for a batch, by name. Traced.

        Must not need labels: `tputui predict` calls it with the batches of `inputs`.
        """

    @abstractmethod
    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Values per example, float32 [n] each, named as in `meters`. Traced.

        The mean of `loss` over the examples is differentiated.
        """

    def augment(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The batch as used in training, such as with random mirroring. Traced; draws from torch's generator on the
        device."""
        return batch

    def blocks(self, model: torch.nn.Module) -> list[torch.nn.Module] | None:
        """Modules of the network to recompute in the backward pass under `device.rematerialise`, not nested; each takes
        and returns tensors. None lets the engine choose."""
        return None

    def judged(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors [n, ...] that `score` needs of each validation example. Traced; copied to the host."""
        return {}

    def score(self, judged: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """Scores of the whole validation split, from the concatenated results of `judged` in order."""
        return {}

    def pictures(self, batch: dict[str, npt.NDArray[Any]], predictions: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """Pictures of a few validation examples, spread over the split, from inputs and predictions on the host."""
        return []

    def examples(self, batch: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """Pictures of a few training examples with their labels, before the first step; `batch` is the result of
        `augment`, on the host."""
        return []

    def num_folds(self, data: Any) -> int:
        """The number of folds; 0 if the task has none. `data.fold` selects one, from 0."""
        return 0

    def problems(self, plan: Plan) -> list[Problem]:
        """Problems that involve more than a single key, found without loading data."""
        return []

    def inputs(self, data: Any, source: Path) -> Dataset:
        """The examples of a user's file for `tputui predict`, called after the network was created and its weights
        loaded. Batches include labels if the file has them; then meters and scores are computed.

        Raises `ValueError` if the file cannot be used.
        """
        raise NotImplementedError

    def test_split(self, data: Any) -> Dataset:
        """The test split, which is used neither for training nor for validation, for `tputui predict --split test`;
        otherwise as `inputs`. Raises `ValueError` if there is none."""
        raise NotImplementedError

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Readable predictions by column of the written table, [n] or [n, values] each."""
        return predictions


@dataclass(frozen=True)
class Workload:
    """A configuration with its task and the checked options of it."""

    config: RunConfig
    task: Task
    data: Options
    """The task's options in `[data]`."""
    model: Options
    """The task's options in `[model]`."""


@dataclass(frozen=True)
class Plan(Workload):
    """A checked configuration, ready to be trained: its `device.cores` is the number of cores of all hosts."""

    machine: hardware.Machine
    sizes: Sizes
    num_hosts: int = 1
    """Number of hosts, each with as many cores."""

    @property
    def steps_per_epoch(self) -> int:
        """Full global batches in the training split, or `data.batches_per_epoch` of them, rounded down to whole
        updates; the rest is dropped, different examples each epoch."""
        whole = self.sizes.train // self.config.global_batch
        steps, accumulate = min(whole, self.config.data.batches_per_epoch or whole), self.config.optim.accumulate
        return steps - steps % accumulate

    def updates(self, batch: int) -> bool:
        """Whether the weights are updated after batch `batch` (from 0) of an epoch."""
        return (batch + 1) % self.config.optim.accumulate == 0

    @property
    def max_bad_rows(self) -> int:
        """How many examples may be left out."""
        return getattr(self.data, "max_bad_rows", 0)

    @property
    def has_own_loop(self) -> bool:
        """Whether the task has a loop of its own, which alone determines sizes and metrics."""
        return self.task.builder != Task.builder

    @property
    def num_processes(self) -> int:
        """Number of training processes of a host."""
        return hardware.num_processes(self.config, self.machine, self.num_hosts)

    @property
    def keeps_norms(self) -> bool:
        """Whether each step computes the norm of its gradient, which only the check for NaN and infinity needs."""
        return self.config.non_finite.policy != "continue"

    @property
    def valid_steps(self) -> int:
        """Number of evaluation batches; the last one is padded."""
        return -(-self.sizes.valid // self.config.global_batch)

    def facts(self) -> dict[str, Any]:
        """Figures of the plan for display and as JSON; None if only a loop of its own determines the value."""
        facts = self._facts()
        unknown = ("steps_per_epoch", "valid_steps", "total_steps", "train_examples", "valid_examples", "meters")
        return {**facts, **dict.fromkeys(unknown)} if self.has_own_loop else facts

    def _facts(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "device": self.machine.device,
            "device_reason": self.machine.reason,
            "device_warning": self.machine.warning,
            "num_hosts": self.num_hosts,
            "num_cores": self.config.num_cores,
            "batch_per_core": self.config.batch_per_core,
            "global_batch": self.config.global_batch,
            "steps_per_epoch": self.steps_per_epoch,
            "valid_steps": self.valid_steps,
            "total_steps": self.steps_per_epoch * self.config.epochs,
            "train_examples": self.sizes.train,
            "valid_examples": self.sizes.valid,
            "lr": self.config.scaled_lr,
            "lr_rule": self.config.lr_rule,
            "meters": list(self.task.meters),
            "scores": list(self.task.scores),
            "num_folds": self.task.num_folds(self.data),
        }
