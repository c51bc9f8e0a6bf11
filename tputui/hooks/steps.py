"""Puts what the hooks noted in a thread together into training steps. Pure.

A step ends when an optimizer steps. Of several optimizers, such as those of a GAN, the one that stepped most counts.
Backward passes from one line before it are parts of one loss: their mean, or their sum if each was divided by their
number. A program without an optimizer of torch updates the weights itself, so each of its backward passes is a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from tputui.hooks.call_sites import CallSite

WAITING_MAX = 4_096
"""Backward passes without a step of an optimizer that are kept."""


class BackwardPass(msgspec.Struct, gc=False):
    """A backward pass: its root is a loss."""

    site: CallSite
    began_at: float
    """When the pass began (`time.perf_counter`)."""
    has_optimizer: bool
    """Whether the program has an optimizer of torch."""
    value: float | None = None
    """The loss; None while it waits on its device, or if the pass has none: its root has several elements, or it
    failed."""
    is_waiting: bool = False
    """Whether the loss is still on its device."""
    parts: list[float] | None = None
    """As of `CallSite`, of this call."""


class OptimizerStep(msgspec.Struct, gc=False):
    """An optimizer changed the weights."""

    optimizer: int
    """`id` of the optimizer."""
    lr: float | None
    """Learning rate of its first group of parameters; None if that is on a device."""
    ended_at: float
    """When the step ended (`time.perf_counter`)."""
    ran_closure: bool
    """Whether it ran backward passes itself, as LBFGS does."""


class BatchTaken(msgspec.Struct, gc=False):
    """A loader of the training gave a batch."""

    num_examples: int
    waited_s: float


Record = BackwardPass | OptimizerStep | BatchTaken


class TrainingStep(msgspec.Struct):
    """What is known of a step."""

    losses: dict[CallSite, float] = {}
    """In the order of their first passes."""
    lr: float | None = None
    ended_at: float = 0.0
    num_batches: int = 0
    num_examples: int = 0
    waited_s: float = 0.0


class StepAssembler:
    """Assembles the steps of one thread. An optimizer that steps as often as the first belongs to the same step."""

    def __init__(self) -> None:
        self._passes: list[BackwardPass] = []
        self._counts: dict[int, int] = {}
        """Steps of each optimizer."""
        self._num_steps = 0
        self._ended: list[TrainingStep] = []
        self._open: TrainingStep | None = None
        """The newest step, if others of its optimizers may follow."""
        self._next = TrainingStep()
        """Has the batches of the next step."""
        self._batches: list[int] = []
        """Examples of the batches that no step has."""
        self._num_ahead: int | None = 0
        """Of them, those that were fetched before the backward passes of the step before; None if a step has several
        batches for a pass."""

    def take(self, records: Iterable[Record], *, is_last: bool = False) -> list[TrainingStep]:
        """The steps that these records complete; with `is_last` also the newest one."""
        for record in records:
            if isinstance(record, BackwardPass):
                self._passes.append(record)
                if len(self._passes) > WAITING_MAX:
                    del self._passes[: WAITING_MAX // 2]
                if not record.has_optimizer and not self._counts:
                    self._end_step(None, record.began_at)
            elif isinstance(record, BatchTaken):
                self._batches.append(record.num_examples)
                self._next.waited_s += record.waited_s
            else:
                self._take_optimizer_step(record)
        if is_last:
            self._close_step()
        ended, self._ended = self._ended, []
        return ended

    def num_steps_with(self, records: Iterable[Record]) -> int:
        """The steps of all records so far and of these ones; 0 if no optimizer made them."""
        counts = Counter(self._counts)
        counts.update(record.optimizer for record in records if isinstance(record, OptimizerStep))
        return max(counts.values(), default=0)

    def _take_optimizer_step(self, record: OptimizerStep) -> None:
        count = self._counts[record.optimizer] = self._counts.get(record.optimizer, 0) + 1
        if record.ran_closure:
            del self._passes[1:]
        if count > self._num_steps:
            self._num_steps = count
            self._end_step(record.lr, record.ended_at)
        else:
            self._add_passes(self._open if self._open is not None else self._next)

    def _end_step(self, lr: float | None, ended_at: float) -> None:
        self._close_step()
        step, self._next = self._next, TrainingStep()
        step.lr, step.ended_at = lr, ended_at
        step.num_batches, step.num_examples = self._take_batches()
        self._add_passes(step)
        if len(self._counts) > 1 or self._num_steps == 1:
            self._open = step
        else:
            self._ended.append(step)

    def _close_step(self) -> None:
        if self._open is not None:
            self._ended.append(self._open)
            self._open = None

    def _take_batches(self) -> tuple[int, int]:
        """The batches and examples of a step. Some programs fetch the next batch before they train on this one; that is
        left for the next step, unless steps need several batches for each pass."""
        batches, ahead = self._batches, self._num_ahead
        num_passes = len(self._passes)
        if num_passes > 1:
            num_passes = max(Counter(one.site for one in self._passes).values())
        if ahead and len(batches) - ahead > num_passes:
            ahead = None
        elif ahead is not None:
            ahead = int(num_passes > 0 and len(batches) == num_passes + 1)
        self._num_ahead = ahead
        end = len(batches) - (ahead or 0)
        self._batches = batches[end:]
        return end, sum(batches[:end])

    def _add_passes(self, step: TrainingStep) -> None:
        passes = self._passes
        if len(passes) == 1 and passes[0].value is not None:
            step.losses[passes[0].site] = passes[0].value
        elif len(passes) > 1:
            by_site: dict[CallSite, list[BackwardPass]] = {}
            for one in passes:
                if one.value is not None:
                    by_site.setdefault(one.site, []).append(one)
            for site, calls in by_site.items():
                step.losses[site] = _loss_of(site, calls)
        passes.clear()


def _loss_of(site: CallSite, calls: list[BackwardPass]) -> float:
    """The loss of passes from one place: their mean, or their sum if they are shares."""
    values = [one.value for one in calls if one.value is not None]
    if len(values) == 1:
        return values[0]
    return sum(values) if _are_shares(len(values), calls[0].parts or [], site.rows) else sum(values) / len(values)


def _are_shares(number: int, parts: list[float], rows: int) -> bool:
    """Whether each was divided by their number, or by the examples (tokens) of all of them."""
    return any(round(part) == number or (rows > 0 and round(part / rows) == number) for part in parts)
