"""Reports what a JAX script reads from its device, under the names of its variables and at the place in its loops.

JAX shows no training from inside: a step is a compiled function like any other. But a script that wants to know its
loss reads it in the loop that trains, and the counter of that loop tells which step it is. The first loss that is read
so is that of the training, unless the name of the variable or of the function is that of an evaluation.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tputui.hooks.call_sites import place_of
from tputui.hooks.loops import FRAMES_MAX, EpochNumbers, LoopPosition, left_in_pass, positions_at
from tputui.hooks.notes import is_training
from tputui.integrations.callbacks import NamedMetrics
from tputui.logs.tags import is_test, loss_rank, meaning_of, role_of
from tputui.logs.value_events import planned
from tputui.observers.user_frames import callers, local_variables
from tputui.reporting.run import EpochContext, Run
from tputui.reporting.start import join_unasked, was_asked
from tputui.telemetry.events import LossNamed

SITES_MAX = 256
ITEMS_MAX = 32
"""Items of a dictionary among which an array is looked for."""
_EVALUATES = re.compile(r"(?<!train_and)(?:^|_)(?:test|val|eval)", re.IGNORECASE)


_Place = tuple[CodeType, int]
"""A call in the code."""


class _Site(NamedTuple):
    """A variable at a line of code."""

    name: str
    code: CodeType
    line: int
    place: str
    """File and line."""


class _Read(NamedTuple):
    """A value that was read in a loop."""

    site: _Site
    value: float
    loops: list[LoopPosition]
    epochs: LoopPosition | None
    """The loop that counts epochs."""


class _Items(NamedTuple):
    """A list whose items a call reads one after the other, as `np.mean(losses)` does."""

    place: _Place
    name: str
    held: list[Any]
    values: list[float]
    """The items that were read."""


class ReadValues:
    """The values that the main thread of a script reads."""

    def __init__(self, began_at: float) -> None:
        """`began_at`: when JAX began (`time.perf_counter`)."""
        self._run: Run | None = None
        self._metrics: NamedMetrics | None = None
        self._items: _Items | None = None
        self._reads: dict[_Place, _Read] = {}
        """The newest read of each place in the code."""
        self._loss: _Site | None = None
        """Where that of the training is read, once it is known."""
        self._has_steps = True
        """Whether the loss is that of a step, not of an epoch."""
        self._first: _Read | None = None
        """The first loss in a loop of epochs, until it is known whether there is one in each step."""
        self._lr: float | None = None
        self._epoch: EpochContext | None = None
        self._epochs: LoopPosition | None = None
        """The loop of epochs in the newest one."""
        self._numbers = EpochNumbers()
        self._began_at = self._read_at = began_at
        """When the epoch began, and when its newest value was read."""
        self._newest: list[LoopPosition] = []
        """The loops around the newest loss."""
        self._is_counted = False
        """Whether a loop without a counter is around the loss, so that each one is a step."""
        self._step = self._shift = 0
        """The newest step, and what is added to the counter of a loop since it has begun anew."""
        self._last_step = 0
        """The last step of the epoch, or of a training without epochs; 0 if the loops do not tell."""
        self._loss_step = self._most_between = 0
        """The step of the newest loss, and the most steps from one loss that was read to the next one."""
        self._reached = 0
        """The newest step that the counter of the loop shows at reads of other values."""
        self._is_left = False
        """Whether the loop over the steps was left after that step."""
        self._loss_array: weakref.ref[Any] | None = None
        """The newest loss."""
        self._held: tuple[_Place, weakref.ref[Any]] | None = None
        """Where another value was read last, and what the variable of the loss held there."""
        self._after_step: dict[_Place, bool] = {}
        """Whether a read of another value is after the step of its pass; not there if that is not known."""

    def take(self, frame: FrameType, array: Any, value: Any, *, is_printed: bool) -> None:
        """Takes a value that was read by a call of the user's code; `is_printed`: to be text, so the output has it."""
        if threading.current_thread() is not threading.main_thread() or was_asked():
            return
        place = frame.f_code, frame.f_lasti
        before, number = self._reads.get(place), float(value) if _is_float(value) else None
        read = _next_pass(before, frame, array, number) if before is not None and number is not None else None
        if self._counts_passes and (before is None or before.site != self._loss):
            self._follow(place, frame, array, positions_at(frame) if read is None else read.loops)
        if number is None:
            return
        items = self._items_at(place, frame, array) if read is None else None
        if items is not None:
            items.values.append(number)
            if len(items.values) < len(items.held):
                return
            self._items = None
        if (read := read or _read_at(frame, array, number, items.name if items else "")) is None:
            return
        if len(self._reads) < SITES_MAX or place in self._reads:
            self._reads[place] = read
        epochs, is_loss = read.epochs, self._is_loss(read)
        if self._run is None and (epochs is not None or is_loss):
            self._join()
        run, metrics = self._run, self._metrics
        if run is None or metrics is None:
            return
        if epochs is not None:
            self._enter_epoch(run, epochs, self._read_at if items or not self._newest else None)
        if is_loss:
            self._take_loss(run, read, array, items.values if items else [])
        elif role_of(read.site.name) == "lr":
            self._lr = read.value
        elif not is_printed and items is None:
            self._take_metric(run, metrics, read)
        self._read_at = perf_counter()

    def end(self, *, is_done: bool) -> None:
        """Reports the rest; `is_done`: no error and no request ended the training."""
        if self._metrics is not None:
            self._metrics.write(all_values=True)
        if is_done and self._run is not None:
            if self._counts_passes and self._newest[-1].code.co_name == "<module>":
                self._leave_loop(vars(sys.modules["__main__"]), 0)
            if self._epoch is None and self._counts_passes:
                self._count_unread(self._run)
            self._leave_epoch(self._run)

    @property
    def _counts_passes(self) -> bool:
        """Whether the number of a step is that of a pass of a loop."""
        return bool(self._newest) and self._has_steps and self._first is None and not self._is_counted

    def _is_loss(self, read: _Read) -> bool:
        """Whether a value is the loss of the training: the first one that may be, again in another loop of epochs."""
        epochs, newest = read.epochs, self._epochs
        is_other = epochs is not None and newest is not None and epochs.counter is not newest.counter
        if self._loss is None or (is_other and read.site != self._loss):
            meaning = meaning_of(read.site.name)
            if meaning.split == "valid" or is_test(meaning.name) or loss_rank(meaning) is None:
                return False
            if self._run is not None:
                self._leave_epoch(self._run)
            self._loss, self._newest, self._has_steps, self._is_counted = read.site, [], True, False
            self._loss_step = self._most_between = 0
        return read.site == self._loss

    def _join(self) -> None:
        run = None if is_training() else join_unasked()
        if run is not None:
            self._run, self._metrics = run, NamedMetrics(run, "read")

    def _take_loss(self, run: Run, read: _Read, array: Any, listed: list[float]) -> None:
        """`listed`: the losses of a list of which this is the last one; none if it is in no list."""
        self._loss_array = weakref.ref(array)
        if self._held is not None:
            self._after_step[self._held[0]] = self._held[1]() is array
        if not self._newest:
            run.emit(LossNamed(t=time.time(), name=read.site.name, source=read.site.place))
            if not listed and read.loops[-1].counts_epochs:
                self._first, self._newest = read, read.loops
                return
        if (first := self._first) is not None:
            # Two in one pass of the epochs.
            self._first, self._is_counted = None, True
            self._take_step(run, first)
        if listed:
            self._take_losses(run, read, listed)
        elif self._has_steps:
            self._take_step(run, read)
        else:
            run.meter("loss", read.value)

    def _items_at(self, place: _Place, frame: FrameType, array: Any) -> _Items | None:
        """The list of which a call reads the first item, or the next one."""
        items = self._items
        at = len(items.values) if items is not None and items.place == place else sys.maxsize
        if items is None or len(items.held) <= at or items.held[at] is not array:
            lists = ((name, held) for name, held in local_variables(frame).items() if type(held) is list)
            first = ((name, held) for name, held in lists if len(held) > 1 and held[0] is array)
            self._items = next((_Items(place, name, held, []) for name, held in first), None)
        return self._items

    def _take_losses(self, run: Run, read: _Read, values: list[float]) -> None:
        """Takes the losses that a script kept in a list: each is that of a step."""
        self._newest, self._is_counted = read.loops, True
        step_s = (perf_counter() - self._read_at) / len(values)
        for number, value in enumerate(values, start=1):
            run.step_ended(value, None, self._lr, self._read_at + number * step_s)
        self._step += len(values)

    def _take_step(self, run: Run, read: _Read) -> None:
        loops, before = read.loops, self._step
        self._step = self._step_at(loops)
        total = _passes(loops) if read.epochs is None else _passes(loops[loops.index(read.epochs) + 1 :])
        self._is_left, self._last_step = False, 0
        if total is not None and not self._is_counted:
            if read.epochs is None:
                self._last_step = total + self._shift
                run.plan(total_steps=self._last_step)
            else:
                run.plan(epochs=self._numbers.last_of(read.epochs), steps=total)
                self._last_step = self._shift + total * (read.epochs.value - (read.epochs.start or 0) + 1)
        if self._loss_step:
            self._most_between = max(self._most_between, self._step - self._loss_step)
        self._loss_step = self._step
        if not before and self._step > 1 and loops[-1].start is not None:
            run.step_ended(None, None, None, self._began_at)  # the loss of none of the first steps was read
        if self._step == before + 1:
            run.step_ended(read.value, None, self._lr, perf_counter())
        else:
            run.step(read.value, lr=self._lr, step=self._step)

    def _follow(self, place: _Place, frame: FrameType, array: Any, loops: list[LoopPosition]) -> None:
        """Counts the passes of the loop over the steps that its counter shows at the read of another value."""
        *outer, newest = self._newest
        here = loops[len(outer)] if loops[: len(outer)] == outer and len(loops) > len(outer) else None
        if here is not None and here.counter is newest.counter:
            # The read may come before the step of its pass.
            num_passes = here.value - newest.value
            num_passes -= not self._is_after_step(place, frame, array, has_loss=not num_passes)
            self._reached = max(self._reached, self._step + num_passes)
            if num_passes > 1 and self._run is not None and self._step + num_passes - 1 > self._run.last_step:
                self._run.step(step=self._step + num_passes - 1)
            return
        for caller in callers(frame, FRAMES_MAX):
            if caller.f_code is newest.code:
                return self._leave_loop(local_variables(caller), caller.f_lineno)

    def _is_after_step(self, place: _Place, frame: FrameType, array: Any, *, has_loss: bool) -> bool:
        """Whether a line reads after the step of its pass: whether the variable of the loss held there what was read
        as the loss in the same pass. `has_loss`: that was read before."""
        if self._loss is not None and frame.f_code is self._loss.code:
            held = local_variables(frame).get(self._loss.name)
            if type(held) is type(array):
                self._held = place, weakref.ref(held)
                if has_loss and self._loss_array is not None:
                    self._after_step[place] = held is self._loss_array()
        return self._after_step.get(place, False)

    def _leave_loop(self, variables: Mapping[str, Any], line: int) -> None:
        """Counts the passes of the loop over the steps until it was left; at `line` of its function now."""
        newest, loss = self._newest[-1], self._loss
        read_line = loss.line if loss is not None and loss.code is newest.code else sys.maxsize
        if not self._counts_passes or (left := left_in_pass(newest, variables, line, read_line)) is None:
            return
        value, is_whole = left
        if value >= newest.value:
            last = self._step + value - newest.value
            self._reached = max(self._reached, last if is_whole else last - 1)
            self._is_left = self._reached == last or self._step == last

    def _take_metric(self, run: Run, metrics: NamedMetrics, read: _Read) -> None:
        name, meaning = read.site.name, metrics.meaning_of(read.site.name)
        if meaning is not None and meaning.split == "valid" and read.epochs is not None:
            run.valid({meaning.label: read.value})
        else:
            metrics.take({name: read.value}, self._step)

    def _step_at(self, loops: list[LoopPosition]) -> int:
        """Number of the step in which the loss was read."""
        before, self._newest = self._newest, loops
        self._is_counted = self._is_counted or before == loops
        if self._is_counted:
            return self._step + 1
        inner, earlier = loops[-1], _passes_before(loops)
        step = (earlier or 0) + (inner.value if inner.start is None else inner.value - inner.start + 1)
        if step + self._shift <= self._step or (earlier is None and before and before[:-1] != loops[:-1]):
            if before and self._epoch is None and self._run is not None:
                self._count_unread(self._run)
            self._shift = self._step
        return step + self._shift

    def _enter_epoch(self, run: Run, epochs: LoopPosition, began_at: float | None) -> None:
        before, self._epochs = self._epochs, epochs
        is_other = before is None or before.counter is not epochs.counter
        if self._epoch is not None and before is not None and before.value == epochs.value and not is_other:
            return
        self._leave_epoch(run)
        number = self._numbers.number_of(epochs, is_new_training=is_other)
        last = self._numbers.last_of(epochs)
        if last is not None and (before is None or is_other or epochs.value < before.value):
            run.emit(planned(time.time(), 0, last))
        self._epoch = EpochContext(run, number, last, None)
        run.begin_epoch(self._epoch, began_at)

    def _leave_epoch(self, run: Run) -> None:
        """Ends the epoch, if one is open. It took until its last value was read, from the last one of that before."""
        if (first := self._first) is not None:
            self._first, self._has_steps = None, False
            run.meter("loss", first.value)
        if self._epoch is not None:
            self._count_unread(run)
            run.end_epoch(self._read_at - self._began_at)
            self._epoch, self._began_at = None, self._read_at

    def _count_unread(self, run: Run) -> None:
        """Counts the steps after the newest loss, unless another one would have been read by the end of the loop: then
        the loop was left early, and goes on from there in the next epoch."""
        if self._reached > self._step:
            self._step = self._reached
            run.step(step=self._step)
        num_unread = self._last_step - self._step
        if self._counts_passes and not self._is_left and num_unread:
            usual = self._most_between or (num_unread + 1 if self._epoch is not None else 0)
            if 0 < num_unread < usual:
                self._step = self._last_step
                run.step(step=self._step)
            elif self._most_between != 1:
                run.counts_all_steps = False
        self._shift -= max(0, self._last_step - self._step)


def _read_at(frame: FrameType, array: Any, number: float, list_name: str) -> _Read | None:
    """A read of a number in the loops around a call; None if there are none, if the array has no name, or in the loop
    over the batches of an evaluation. `list_name`: the list whose last item it is, as which it has a name."""
    name = _name_of(array, frame) or list_name.removesuffix("es")
    if not name or not (loops := positions_at(frame)):
        return None
    if (list_name or loops[-1].code is frame.f_code) and _EVALUATES.search(frame.f_code.co_name):
        return None
    epochs = next((loop for loop in loops if loop.counts_epochs), None)
    return _Read(_Site(name, frame.f_code, frame.f_lineno, place_of(frame)), number, loops, epochs)


def _next_pass(before: _Read, frame: FrameType, array: Any, number: float) -> _Read | None:
    """The read after another one from the same place, if all that has changed is that the innermost loop went on: it
    takes a third of the time of a look at all loops."""
    inner = before.loops[-1]
    if inner.code is not frame.f_code or inner.name not in (variables := local_variables(frame)):
        return None
    value = inner.value + 1
    if variables.get(before.site.name) is not array or variables[inner.name] != value or value == inner.end:
        return None
    loop = inner._replace(value=value)
    epochs = loop if before.epochs is inner else before.epochs
    return _Read(before.site, number, [*before.loops[:-1], loop], epochs)


def _passes(loops: list[LoopPosition]) -> int | None:
    """How often the innermost of some loops, each inside the one before it, is passed in all; None if not known."""
    total = 1
    for loop in loops:
        if loop.end is None:
            return None
        total *= loop.end - (loop.start or 0)
    return total if loops else None


def _passes_before(loops: list[LoopPosition]) -> int | None:
    """Passes of the innermost loop in earlier passes of those around it; None if not known."""
    passed = 0
    for place, loop in enumerate(loops[:-1], 1):
        if (inside := _passes(loops[place:])) is None:
            return None
        passed += (loop.value - (loop.start or 0)) * inside
    return passed


def _is_float(value: Any) -> bool:
    """Whether a value that was read, as a number or an array of numpy, is one float."""
    if type(value) is float:
        return True
    dtype = getattr(value, "dtype", None)
    return dtype is not None and value.size == 1 and (dtype.kind == "f" or dtype.name == "bfloat16")


def _name_of(array: Any, frame: FrameType) -> str | None:
    """The variable of a call, or the key of a dictionary in one, that has an array; `test_loss` of `test_metrics`."""
    variables = local_variables(frame)
    for name, held in variables.items():
        if held is array:
            return name
    for name, held in variables.items():
        if type(held) is dict and len(held) <= ITEMS_MAX:
            for key, item in held.items():
                newest = item[-1] if type(item) is list and item else item
                if newest is array and type(key) is str:
                    part = _EVALUATES.search(name)
                    return f"{part[0].strip('_')}_{key}" if part else key
    return None
