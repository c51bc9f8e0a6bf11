"""Puts what the hooks noted in a thread together into training steps. Pure.

A step ends when an optimizer steps. Others that step before it does so again, such as that of a GAN, belong to the same
step, unless they were created since: then a new training begins; or unless they go on by themselves, from the line that
has the loss of that step: then it is their turn, as with one for each fold. Backward passes from one line before it are
parts of one loss: their mean, or their sum if each was divided by their number. A program without an optimizer of torch
updates the weights itself, so each of its backward passes is a step.
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
    num_optimizers: int
    """Optimizers of torch that the program has created by then."""
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


class OptimizerCreated(msgspec.Struct, gc=False):
    """The program created an optimizer."""


class BatchTaken(msgspec.Struct, gc=False):
    """A loader of the training gave a batch."""

    num_examples: int
    waited_s: float
    is_after_break: bool = False
    """Whether it is the first one after an epoch of its loader that was left early."""


class BatchesDropped(msgspec.Struct, gc=False):
    """The newest batches were all that a loader has, and no step followed: `len(list(loader))`."""


Record = BackwardPass | OptimizerStep | OptimizerCreated | BatchTaken | BatchesDropped


class TrainingStep(msgspec.Struct, gc=False):
    losses: dict[CallSite, float] = {}
    """In the order of their first passes."""
    lr: float | None = None
    ended_at: float = 0.0
    num_batches: int = 0
    num_examples: int = 0
    waited_s: float = 0.0


class StepAssembler:
    def __init__(self) -> None:
        self._passes: list[BackwardPass] = []
        self._num_optimizers = 0
        """Those that the program had at the newest backward pass."""
        self._stepped: set[int] = set()
        """Those that stepped in the newest step."""
        self._num_steps = 0
        self._ended: list[TrainingStep] = []
        self._open: TrainingStep | None = None
        """The newest step, if others of its optimizers may follow."""
        self._next = TrainingStep()
        """Has the batches of the next step."""
        self._sites: set[CallSite] = set()
        """Of the losses of the newest step, where there are several optimizers."""
        self._turn: tuple[int, TrainingStep] | None = None
        """What another optimizer made after the newest step, from the line that has its loss, until it is known whether
        that is a step of its own."""
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
                self._num_optimizers = record.num_optimizers
                if len(self._passes) > WAITING_MAX:
                    del self._passes[: WAITING_MAX // 2]
                if not record.num_optimizers:
                    self._end_step(None, record.began_at)
            elif isinstance(record, BatchTaken):
                if record.is_after_break and len(self._batches) == self._num_ahead:
                    # No step has trained on what was fetched ahead.
                    self._batches.clear()
                self._batches.append(record.num_examples)
                self._next.waited_s += record.waited_s
            elif isinstance(record, OptimizerStep):
                self._take_optimizer_step(record)
            elif isinstance(record, BatchesDropped):
                self._batches, self._next.waited_s = [], 0.0
            else:
                self.end_step()
        if is_last:
            self._close_step()
        ended, self._ended = self._ended, []
        return ended

    def end_step(self) -> None:
        """Ends the newest step, whichever optimizers step next."""
        self._close_step()
        self._stepped.clear()

    def num_steps_with(self, records: Iterable[Record]) -> int:
        """The steps of all records so far and of these ones; 0 if no optimizer made them."""
        stepped = set(self._stepped)
        return self._num_steps + sum(_begins_step(stepped, record) for record in records)

    def _take_optimizer_step(self, record: OptimizerStep) -> None:
        if record.ran_closure:
            del self._passes[1:]
        turn = self._turn
        if turn is not None and turn[0] == record.optimizer:
            self._turn = None
            self._close_step()
            self._num_steps += 1
            self._ended.append(turn[1])
        if _begins_step(self._stepped, record):
            self._num_steps += 1
            self._end_step(record.lr, record.ended_at)
        elif any(one.site in self._sites for one in self._passes):
            self._join_turn()
            self._turn = record.optimizer, self._made_step(record.lr, record.ended_at)
        else:
            self._add_passes(self._open if self._open is not None else self._next)

    def _end_step(self, lr: float | None, ended_at: float) -> None:
        self._close_step()
        step = self._made_step(lr, ended_at)
        if self._num_optimizers > 1:
            self._open, self._sites = step, set(step.losses)
        else:
            self._ended.append(step)

    def _made_step(self, lr: float | None, ended_at: float) -> TrainingStep:
        step, self._next = self._next, TrainingStep()
        step.lr, step.ended_at = lr, ended_at
        step.num_batches, step.num_examples = self._take_batches()
        self._add_passes(step)
        return step

    def _join_turn(self) -> None:
        """Makes what another optimizer made a part of the step before."""
        if self._turn is not None:
            step, part = self._open if self._open is not None else self._next, self._turn[1]
            step.losses |= part.losses
            step.num_batches += part.num_batches
            step.num_examples += part.num_examples
            step.waited_s += part.waited_s
            self._turn = None

    def _close_step(self) -> None:
        self._join_turn()
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
        if len(passes) == 1 and passes[0].value is not None and not passes[0].site.group_size:
            step.losses[passes[0].site] = passes[0].value
        elif passes:
            by_site: dict[CallSite, list[BackwardPass]] = {}
            for one in passes:
                if one.value is not None:
                    by_site.setdefault(one.site, []).append(one)
            for site, calls in by_site.items():
                step.losses[site] = _loss_of(site, calls)
        passes.clear()


def _begins_step(stepped: set[int], record: Record) -> bool:
    """Whether a record is the first step of an optimizer in a training step. Keeps `stepped`, the optimizers of it."""
    if isinstance(record, OptimizerCreated):
        stepped.clear()
    if not isinstance(record, OptimizerStep):
        return False
    begins = not stepped or record.optimizer in stepped
    if begins:
        stepped.clear()
    stepped.add(record.optimizer)
    return begins


def _loss_of(site: CallSite, calls: list[BackwardPass]) -> float:
    """The loss of passes from one place: their mean, or their sum if they are shares. Of a group with another number
    than they were divided by, such as the last one of an epoch, the mean as it was before that division."""
    values = [one.value for one in calls if one.value is not None]
    number, parts = len(values), calls[0].parts or []
    if number > 1 and _are_shares(number, parts, site.rows):
        if any(round(part) == number for part in parts):
            site.group_size = number
        return sum(values)
    is_share = site.group_size > 0 and any(round(part) == site.group_size for part in parts)
    return sum(values) / number * (site.group_size if is_share else 1)


def _are_shares(number: int, parts: list[float], rows: int) -> bool:
    """Whether each was divided by their number, or by the examples (tokens) of all of them."""
    return any(round(part) == number or (rows > 0 and round(part / rows) == number) for part in parts)
