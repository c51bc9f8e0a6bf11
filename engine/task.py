"""What a task is: data, network, loss, metrics and predictions. A task of your own is a subclass of `Task`.

It is named in the configuration as `task = "module:Class"`; the folder that the run is started in is looked in last.
Its module has a torch-free half, which the strict check and the launcher read without importing torch: methods that
need torch import it inside. What is called "traced" below builds a program and runs nothing: reading a value there
(`.item()`, `print`, `if tensor`) stops the device at each step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import msgspec

from engine import lr_schedule
from engine.process import hardware
from tputui.config import RunConfig

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch

    from engine.errors import BadExample, Problem


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

        Called by one thread of its own, or by several at once under `data.workers`, each for a part of a batch; a
        dataset with the attribute `parallel = True` is read by several without being asked. Shapes must depend on
        nothing but the number of indices: every other shape is compiled anew. `engine.errors.BadExample` tells of
        one example that cannot be used, and it is skipped where the configuration allows that; any other exception
        ends training.
        """
        ...


@runtime_checkable
class Identified(Protocol):
    """What a dataset may have besides."""

    def identities(self, indices: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Columns [len(indices)] by which a user knows the examples again, such as `id` or `file`: they are written
        beside the predictions."""
        ...


class Splits(NamedTuple):
    """The data of a task."""

    train: Dataset
    valid: Dataset
    skipped: tuple[BadExample, ...] = ()
    """Examples of the source that are in neither split because they cannot be used."""
    notes: tuple[str, ...] = ()
    """What a user should know of the data before the start, each in one sentence."""
    identity: Mapping[str, str] = MappingProxyType({})
    """A digest by kind of what the data hold, such as `labels`: a run that is resumed on other data says so."""


class Picture(NamedTuple):
    """A picture of a prediction or of a training example, to be kept beside the run."""

    name: str
    """What it shows, such as `input`, `mask`, `depth`: pictures of one example are shown side by side."""
    example: str
    """Which example it belongs to, with its label if it has one."""
    pixels: npt.NDArray[np.uint8]
    """[height, width, 3] red, green, blue."""


class Task(ABC):
    """A workload. The class attributes and the abstract methods must be given; the rest may be."""

    data_options: ClassVar[type[Options]]
    """The task's own keys of `[data]`. A key `max_bad_rows` limits how many examples may be left out; else none."""
    model_options: ClassVar[type[Options]]
    """Keys of `[model]`."""
    meters: ClassVar[tuple[str, ...]]
    """Names of what `outcomes` returns; the first is `loss`. Each becomes an AverageMeter."""
    scores: ClassVar[tuple[str, ...]] = ()
    """Names of what `score` returns at least."""
    pictures_legend: ClassVar[str] = ""
    """What the colours of `pictures` mean, in one sentence that stands above them."""
    builder: ClassVar[str] = "engine.loop.build"
    """Module that puts the trainer together. Another one brings a loop of its own, which finds out by itself how
    many examples there are and what is measured."""

    def configure(self, data: Any, model: Any) -> None:  # noqa: B027 - may be left out
        """Called once with the options, before anything else: meters and scores may depend on them."""

    @abstractmethod
    def sizes(self, data: Any, seed: int) -> Sizes:
        """Number of examples of the splits that `load` will return, known without loading them.

        Raises `ValueError` or `OSError` where the data cannot be used, or `engine.errors.Refused`.
        """

    @abstractmethod
    def load(self, data: Any, seed: int) -> Splits:
        """The splits; the same for the same options and seed."""

    @abstractmethod
    def model(self, options: Any, data: Any) -> torch.nn.Module:
        """The network on the CPU, its weights drawn from torch's generator, which was seeded before."""

    @abstractmethod
    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the network says of the examples, [examples, ...] under names of the task's own. Traced.

        It must not need labels: `tputui predict` calls it with what `inputs` returned.
        """

    @abstractmethod
    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Per-example values, float32 [examples] each, under the names in `meters`. Traced.

        The mean of `loss` over the examples is differentiated.
        """

    def augment(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The batch as a training step sees it. Traced; draws from torch's generator on the device."""
        return batch

    def blocks(self, model: torch.nn.Module) -> list[torch.nn.Module] | None:
        """Modules of the network that are computed again for the backward pass under `device.rematerialise`, none
        inside of another; each takes and returns tensors. None leaves the choice to the engine."""
        return None

    def judged(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What `score` needs of each validation example, [examples, ...]. Traced; brought to the host."""
        return {}

    def score(self, judged: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """Figures of the whole validation split, from what `judged` gave for each of its examples in order."""
        return {}

    def pictures(self, batch: dict[str, npt.NDArray[Any]], predictions: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """Pictures of a few validation examples, spread over the split, from inputs and predictions on the host."""
        return []

    def examples(self, batch: dict[str, npt.NDArray[Any]]) -> list[Picture]:
        """Pictures of a few training examples with their labels, drawn before the first step: `batch` is what `augment`
        returned for them, on the host."""
        return []

    def num_folds(self, data: Any) -> int:
        """How many folds the data is cut into; 0 where the task knows none. The fold is `data.fold`, from 0."""
        return 0

    def problems(self, plan: Plan) -> list[Problem]:
        """What cannot be used for reasons beyond a single key, found without loading anything."""
        return []

    def inputs(self, data: Any, source: Path) -> Dataset:
        """The examples of a user's file for `tputui predict`, called once `model` has made the network and the weights
        are in it. Batches have labels if the file has them; meters and scores are computed then.

        Raises `ValueError` if the file cannot be used.
        """
        raise NotImplementedError

    def test_split(self, data: Any) -> Dataset:
        """The test split, which neither trains nor validates, for `tputui predict --split test`; as `inputs`
        otherwise. Raises `ValueError` if the data has none."""
        raise NotImplementedError

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Predictions as a user reads them, by column of the written table, [examples] each."""
        return predictions


class Plan(NamedTuple):
    """A configuration that can be trained."""

    config: RunConfig
    """With the number of cores in place of `device.cores = "all"`."""
    task: Task
    data: Options
    """The task's keys of `[data]`."""
    model: Options
    """The task's keys of `[model]`."""
    machine: hardware.Machine
    sizes: Sizes

    @property
    def steps_per_epoch(self) -> int:
        """Whole global batches in the training split, or as many of them as the configuration says, for a whole number
        of updates; what is left over is dropped, another part each epoch."""
        whole = self.sizes.train // self.config.global_batch
        steps, accumulate = min(whole, self.config.data.batches_per_epoch or whole), self.config.optim.accumulate
        return steps - steps % accumulate

    def learning_rate(self, epoch: int, batch: int) -> float:
        """Learning rate of the update that the batch, from 0, of the epoch, from 1, belongs to."""
        return lr_schedule.learning_rate(self.config, self.steps_per_epoch, epoch, batch)

    def updates(self, batch: int) -> bool:
        """Whether the weights are updated by the batch of an epoch, from 0."""
        return (batch + 1) % self.config.optim.accumulate == 0

    @property
    def max_bad_rows(self) -> int:
        """Examples that may be left out."""
        return getattr(self.data, "max_bad_rows", 0)

    @property
    def has_own_loop(self) -> bool:
        """Whether the task is trained by a loop of its own, which alone knows sizes and figures."""
        return self.task.builder != Task.builder

    @property
    def num_processes(self) -> int:
        """How many processes train."""
        return hardware.num_processes(self.config, self.machine)

    @property
    def keeps_norms(self) -> bool:
        """Whether each step works out the norm of its gradient: only where something is done about it."""
        return self.config.non_finite.policy != "continue"

    @property
    def valid_steps(self) -> int:
        """Evaluation batches; the last is padded."""
        return -(-self.sizes.valid // self.config.global_batch)

    def facts(self) -> dict[str, Any]:
        """The plan's figures for a person and for programs; what only a loop of its own will know is None."""
        facts = self._facts()
        unknown = ("steps_per_epoch", "valid_steps", "total_steps", "train_examples", "valid_examples", "meters")
        return {**facts, **dict.fromkeys(unknown)} if self.has_own_loop else facts

    def _facts(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "device": self.machine.device,
            "device_reason": self.machine.reason,
            "device_warning": self.machine.warning,
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
