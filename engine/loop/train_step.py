"""The network with its optimizer on the device: traces training steps and evaluations, and gives its state away.

Nothing here runs or reads the device; the caller syncs once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from engine.checkpoint.position import Position
from engine.errors import Problem, Refused
from engine.loop import lazy_layers
from engine.loop.optimizer import optimizer, update
from engine.memory import remat
from engine.models import batchnorm
from engine.parallel.base import Strategy
from engine.section_timer import TRACE_PARTS, SectionTimer
from engine.task import Dataset, Plan
from engine.xla import backend

Outcomes = dict[str, torch.Tensor]
Reduce = Callable[[Sequence[nn.Parameter]], None]
"""Makes every gradient the mean over all processes."""
_RANK_STRIDE = 0x9E37_79B9_7F4A_7C15
_SEED_BITS = (1 << 63) - 1
_CLIP_EPS = 1e-6


class TaskError(Exception):
    """The task's `outcomes` are not what a task must return."""


class Evaluation(NamedTuple):
    """What an evaluation step left on the device, every tensor with one row an example."""

    outcomes: Outcomes
    predictions: Outcomes
    judged: Outcomes
    """What the task's scores are made of."""


class TrainStep:
    """What learns."""

    def __init__(self, plan: Plan, strategy: Strategy, examples: Dataset) -> None:
        """Makes the network with the seed's weights and moves it to the device. Lazy layers get their shapes by one of
        the `examples`. Raises `Refused`."""
        self.strategy = strategy
        self.parts = SectionTimer(names=TRACE_PARTS)
        """Where the host's time to trace training steps goes."""
        self._plan = plan
        torch.manual_seed(plan.config.seed)
        model = plan.task.model(plan.model, plan.data)
        lazy_layers.materialise(model, plan.task, examples)
        self.model = to_device(model, strategy.device)
        batchnorm.correct(self.model)
        if plan.config.device.rematerialise:
            remat.apply(remat.blocks(plan.task, self.model), backend.recomputed)
        self._trained = list(self.model.parameters())
        self._optimizer = optimizer(plan.config, self._trained)
        self._bf16 = plan.config.device.precision == "bf16"
        self._norm: torch.Tensor | None = None
        self._sums: list[torch.Tensor] = []
        """Gradients of the batches since the last update, one for each parameter that has any; of no meaning where none
        was computed since."""

    @property
    def num_parameters(self) -> int:
        """Trainable parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)

    def take_gradient_norm(self) -> torch.Tensor | None:
        """Norm over all gradients of the step that was traced last, a number on the device; None where none is kept.
        It is given away, since what is kept at the sync is an output of the program."""
        norm, self._norm = self._norm, None
        return norm

    @property
    def buffers(self) -> frozenset[str]:
        """Names of what the network keeps besides its parameters."""
        return frozenset(name for name, _ in self.model.named_buffers())

    def step(self, tensors: dict[str, torch.Tensor], at: Position, reduce: Reduce) -> Outcomes:
        """Traces the training step that follows the position `at`, and returns its per-example outcomes. `reduce` is
        called where the weights are updated, when there are gradients."""
        optim, updates = self._plan.config.optim, self._plan.updates(at.batch)
        self._seed(at.step + 1)
        with self._precision():
            with self.parts.section("forward"):
                tensors = self._plan.task.augment(tensors)
                predictions = self._plan.task.predict(self.model, tensors)
            with self.parts.section("loss"):
                outcomes = self._checked(self._plan.task.outcomes(predictions, tensors))
        with self.parts.section("backward"):
            loss = outcomes["loss"].mean()
            (loss / optim.accumulate if optim.accumulate > 1 else loss).backward()  # type: ignore[no-untyped-call]
        if optim.accumulate > 1:
            self._add_sums(is_first=at.batch % optim.accumulate == 0)
        if updates:
            reduce(self._trained)
        with self.parts.section("optimizer"):
            norm = _norm(self._trained) if self._plan.keeps_norms or (updates and optim.clip_norm) else None
            self._norm = norm if self._plan.keeps_norms else None
            if updates and optim.clip_norm is not None and norm is not None:
                _clip(self._trained, norm, optim.clip_norm)
            if updates:
                self._update(self._plan.learning_rate(at.epoch, at.batch))
            if not updates:
                self._sums = _gradients(self._trained)
            # Before the sync, so that the gradients are no outputs of the program.
            self._optimizer.zero_grad(set_to_none=True)
        return outcomes

    def _update(self, lr: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        update(self._optimizer, self._send)

    def _add_sums(self, *, is_first: bool) -> None:
        """Adds the gradients of the batches before this one to its own, unless it is the first since an update."""
        with_gradients = [parameter for parameter in self._trained if parameter.grad is not None]
        gradients = _gradients(with_gradients)
        with torch.no_grad():
            # Sent, so that the first batch of a run and of an update is the same program as all others.
            sums = self._sums or self._send([torch.zeros(gradient.shape) for gradient in gradients])
            (kept,) = self._send([torch.tensor(0.0 if is_first else 1.0)])
            totals = torch._foreach_add(gradients, torch._foreach_mul(sums, kept))
        for parameter, total in zip(with_gradients, totals, strict=True):
            parameter.grad = total

    def _send(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return backend.put(tensors, self.strategy.device)

    def begin_evaluation(self) -> None:
        """Evaluates from here on. Running statistics become those of the first process. To be asked after a sync."""
        self.model.eval()
        self.strategy.align(list(self.model.buffers()))

    def evaluate(self, tensors: dict[str, torch.Tensor], number: int) -> Evaluation:
        """Traces an evaluation after the step `number`."""
        self._seed(number)
        task = self._plan.task
        with torch.no_grad(), self._precision():
            predictions = task.predict(self.model, tensors)
            outcomes = self._checked(task.outcomes(predictions, tensors))
            judged = task.judged(predictions, tensors) if task.scores else {}
        return Evaluation(outcomes, predictions, judged)

    def state(self) -> dict[str, Any]:
        """A copy of all that is learned, on the host. To be asked right after the sync of an update."""
        state: dict[str, Any] = backend.to_host(
            {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}
        )
        return {**state, "rng": torch.get_rng_state()}

    def restore(self, state: dict[str, Any], *, new_settings: bool) -> None:
        """Continues from a saved state; with `new_settings` the learning rate and the schedule are the configuration's,
        not the saved ones. Raises `Refused` if it belongs to another network."""
        saved = state["optimizer"]
        if new_settings:
            saved = {**saved, "param_groups": self._optimizer.state_dict()["param_groups"]}
        try:
            self.model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(saved)
        except (RuntimeError, ValueError) as error:
            raise Refused([Problem("task", f"the checkpoint holds another network: {error}")]) from error
        torch.set_rng_state(state["rng"])

    def _seed(self, number: int) -> None:
        """Ties what a step draws to its number alone: a save or a report in between changes nothing."""
        # Other rows want other masks; the first process draws what a process alone would.
        apart = self.strategy.own.start * _RANK_STRIDE
        backend.seed(((self._plan.config.seed << 32) + number) ^ (apart & _SEED_BITS), self.strategy.device)

    def _precision(self) -> torch.autocast:
        return torch.autocast("xla", dtype=torch.bfloat16, enabled=self._bf16)

    def _checked(self, outcomes: Outcomes) -> Outcomes:
        """The outcomes, if they are what a task must return. Raises `TaskError`."""
        meters = self._plan.task.meters
        if set(outcomes) != set(meters):
            raise TaskError(f"outcomes() returned {sorted(outcomes)} where meters says {sorted(meters)}")
        size = self._plan.config.batch_per_core * len(self.strategy.own)
        for name, value in outcomes.items():
            if value.shape != (size,):
                shape = list(value.shape)
                raise TaskError(f'outcomes() returned "{name}" of shape {shape}; one value an example is [{size}]')
        return outcomes


def _gradients(parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _norm(parameters: Sequence[nn.Parameter]) -> torch.Tensor | None:
    """Norm over all gradients; None where there are none."""
    gradients = _gradients(parameters)
    if not gradients:
        return None
    with torch.no_grad():
        # All at once: a call for each of 161 gradients takes 10 ms to trace, and this 1.7.
        norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        return norm


def _clip(parameters: Sequence[nn.Parameter], norm: torch.Tensor, largest: float) -> None:
    """Scales all gradients down to the norm `largest` where theirs, `norm`, is larger, as torch's own
    `clip_grad_norm_` does."""
    with_gradients = [parameter for parameter in parameters if parameter.grad is not None]
    with torch.no_grad():
        factor = torch.clamp(largest / (norm + _CLIP_EPS), max=1.0)
        for parameter, scaled in zip(
            with_gradients, torch._foreach_mul(_gradients(with_gradients), factor), strict=True
        ):
            parameter.grad = scaled


def to_device(model: nn.Module, device: torch.device) -> nn.Module:
    """Moves the model, and ties again what was tied: the move gives every name a parameter of its own."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    model = model.to(device)
    for first, *aliases in names.values():
        for alias in aliases:
            owner, _, attribute = alias.rpartition(".")
            setattr(model.get_submodule(owner), attribute, model.get_parameter(first))
    return model
