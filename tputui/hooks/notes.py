"""What the hooks note in each thread. Between two reports a hook does little more than append to a list.

Right after a training step no cache of the CPU holds our code or data, so a line here costs about ten times what a loop
over it would suggest. Imports nothing of `reporting`: most programs that import torch never train.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

from tputui.hooks.call_sites import UNKNOWN, CallSite
from tputui.hooks.loops import LoopWatch, positions_at
from tputui.hooks.steps import BackwardPass, BatchTaken, OptimizerCreated, Record
from tputui.observers.loader_batches import LoaderShapes, Shapes

if TYPE_CHECKING:
    from tputui.hooks.training import HookedTraining
    from tputui.reporting.device_values import DeviceValues

REPORT_INTERVAL_S = 1.0
LOOPS_INTERVAL_S = 0.05
"""Seconds between two looks at the loops of a script whose loader shows where its epochs begin."""
LOOPS_INTERVAL_ALONE_S = 0.005
"""The same where only the loops show it; more if a look takes long."""
LOOPS_TIMES = 300
"""The next look is so many times as far away as one takes."""
ENDLESS = 0
"""As the number of batches of an epoch: there are no epochs."""
LOSSES_MAX = 4_096
"""Losses of a device that wait to be read."""
HELD_MAX = 64
"""Batches of an evaluation that are kept until it is known that they are no training."""
RECORDS_MAX = 16_384
"""Most records that wait for a report, however fast the steps are."""


class LoaderNotes:
    """What is known of a loader."""

    def __init__(
        self, length: int | None, shapes: LoaderShapes, batch_size: int | None = None, num_in_set: int | None = None
    ) -> None:
        self.shapes = shapes
        self._batch_size = batch_size
        self.num_in_set = num_in_set
        """Examples of its data set."""
        self._examples_dim: int | None = None
        """The dimension of its arrays that counts examples; None until a batch shows it."""
        self.length = length
        """Batches of an epoch at most; None if unknown, `ENDLESS` of a sampler without end."""
        self.trains = False
        """Whether a backward pass followed one of its batches."""
        self.num_batches = 0
        """Of its current epoch."""
        self.num_steps_before = 0
        """`ThreadNotes.num_steps` when that began."""
        self.has_ended = False
        """Whether it gave all batches of that."""
        self.was_left = False
        """Whether it did not give all batches of the epoch before."""
        self.evals_at_first: int | None = None
        """`ThreadNotes.num_evals` at its first batch without gradients; None before that."""

    @property
    def has_epochs(self) -> bool:
        """Whether it ends and begins again."""
        return self.length != ENDLESS

    def num_examples(self, shapes: Shapes) -> int:
        """The examples of a batch of arrays of these shapes; 0 if there are none. Recurrent networks often have time
        as the first dimension, and the batch as the second."""
        shape = next(filter(None, shapes), (0,))
        size = self._batch_size
        if self._examples_dim is None and size is not None and size > 1:
            is_size = [length == size for length in shape[:2]]
            self._examples_dim = is_size.index(True) if sum(is_size) == 1 else None
        return shape[min(self._examples_dim or 0, len(shape) - 1)]


class LossesOnDevice:
    """Losses of one CUDA device, copied into one tensor there, which is read in one transfer.

    A tensor of the script may be written again before it is read: programs replay CUDA graphs into the same memory.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._values = torch.empty(LOSSES_MAX, dtype=torch.float64, device=device)
        self._passes: list[BackwardPass] = []

    def keep(self, record: BackwardPass, loss: Any) -> None:
        """Copies the loss of a backward pass. Waits only if none was read for long."""
        if len(self._passes) == LOSSES_MAX:
            self.read(0)
        self._values[len(self._passes)].copy_(loss.detach().reshape(()))
        self._passes.append(record)

    def read(self, leave: int) -> None:
        """Reads all but the newest `leave` losses, which the device still computes."""
        if (number := len(self._passes) - leave) <= 0:
            return
        for record, value in zip(self._passes, self._values[:number].tolist(), strict=False):
            record.value, record.is_waiting = value, False
        if leave:
            self._values[:leave] = self._values[number : number + leave].clone()
        del self._passes[:number]


class ThreadNotes:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.is_inside = False
        """Whether a backward pass runs: those inside it, of checkpointing or a subclass of tensors, are parts of it."""
        self.is_setting_mode = False
        """Whether `Module.train` runs, which calls itself for every part of the module."""
        self.is_evaluating = False
        self.num_evals = 0
        """Calls of `Module.eval`."""
        self.loader: LoaderNotes | None = None
        """That of the newest batch that was fetched with gradients."""
        self.trained: LoaderNotes | None = None
        """The newest of those that train."""
        self.has_new_loader = False
        """Whether another one began to train since the newest look at the loops, when that had given all batches."""
        self.has_new_optimizer = False
        """Whether an optimizer was created after the newest epoch began: for another training, if one begins."""
        self._held: list[BatchTaken] = []
        """The newest batches of that loader, in an evaluation: of the training if a backward pass follows."""
        self.num_steps = 0
        """Steps of all optimizers."""
        self.site: CallSite = UNKNOWN
        """Of the newest backward pass."""
        self.report_due = 0.0
        self.goes_on_at = 0.0
        """When the next backward pass calls `go_on`; 0 once something changes that it has to know."""
        self._loops_due = 0.0
        self._look_s = 0.0
        """Time of the newest look at the loops."""
        self._watch: LoopWatch | None = None
        """Of the outermost loop, if its passes are not shown otherwise."""
        self._watch_due = 0.0
        self.training: HookedTraining | None = None
        """Reports the notes; None before the first backward pass. Its calls may take milliseconds."""
        self._devices: DeviceValues | None = None
        """Losses that wait on their devices, tagged with their backward passes."""
        self._on_cuda: dict[Any, LossesOnDevice] = {}
        """The same for CUDA, by device."""
        self.shares: deque[tuple[CallSite, Any]] | None = None
        """The losses of the newest backward passes, once a callback of a framework takes those of its steps."""
        self._num_newest = self._num_before = 0
        """How many of them are of the newest step, and of the one before."""

    def go_on(self, caller: FrameType, now: float) -> None:
        """A backward pass begins in the call of the user's or a library's code: training begins, or goes on."""
        if self.training is None:
            self.training = _make_training(self)
        if self.is_evaluating:
            self.is_evaluating = False
            self.records += self._held
            self._held = []
            self.training.end_evaluation()
        if (loader := self.loader) is not None and not loader.trains:
            loader.trains = True
            if self.trained is not None and (self.trained.has_ended or self.has_new_optimizer):
                # Some programs make a loader for each epoch, or for each training.
                self.has_new_loader, self._loops_due = True, 0.0
            self.trained = loader
        watch = self._watch
        if now >= self._loops_due or (watch is not None and now >= self._watch_due and watch.has_moved(caller)):
            loops = positions_at(caller)
            watches_after_s = self.training.place(loops)
            if watches_after_s is None:
                self._watch = None
            elif watch is None or watch.loop != loops[0]:
                self._watch, self._watch_due = LoopWatch(caller, loops[0]), now + watches_after_s
            took_s = perf_counter() - now
            # The first one reads the source.
            often_s = max(LOOPS_INTERVAL_ALONE_S, LOOPS_TIMES * min(took_s, self._look_s))
            is_shown_otherwise = self.loader is not None or (bool(loops) and watches_after_s is None)
            self._loops_due = now + (LOOPS_INTERVAL_S if is_shown_otherwise else min(LOOPS_INTERVAL_S, often_s))
            self._look_s = took_s
        self.goes_on_at = self._loops_due if self._watch is None else min(self._loops_due, self._watch_due)

    def look_again(self) -> None:
        """The next backward pass looks at the loops."""
        self.goes_on_at = self._loops_due = 0.0

    def wait_for_loss(self, record: BackwardPass, loss: Any) -> None:
        """Keeps the loss of a backward pass on its device until it is reported."""
        record.is_waiting = True
        self._num_newest += 1
        if loss.is_cuda:
            held = self._on_cuda.get(loss.device)
            if held is None:
                held = self._on_cuda[loss.device] = LossesOnDevice(sys.modules["torch"], loss.device)
            held.keep(record, loss)
            return
        if (devices := self._devices) is None:
            from tputui.reporting.device_values import DeviceValues

            # The script did not pass the tensor to anyone, so it is not told what became of it.
            devices = self._devices = DeviceValues(lambda text: None)
        if not devices.add_snapshot(record, loss, record.site.name):
            devices.add(record, loss, record.site.name)

    def created_optimizer(self) -> None:
        """The program creates an optimizer. Before the training it means nothing."""
        if self.training is not None:
            self.records.append(OptimizerCreated())
            self.has_new_optimizer = True

    def stepped(self, ended_at: float) -> None:
        """A step was noted: of an optimizer, or of a program that has none, whose backward passes are its steps."""
        self.num_steps += 1
        if self._num_newest or self._num_before:
            self._num_before, self._num_newest = self._num_newest, 0
        if ended_at >= self.report_due or len(self.records) > RECORDS_MAX:
            self.report_due = ended_at + REPORT_INTERVAL_S
            if self.training is not None:
                self.training.report()

    def took_batch(self, loader: LoaderNotes, num_examples: int, waited_s: float) -> None:
        """Notes a batch that was fetched with gradients; an evaluation may do so, too."""
        if self.training is None and (loader.num_batches <= 1 or len(self.records) > RECORDS_MAX):
            # Those before are of an evaluation, or were counted, before the training.
            self.records.clear()
        is_first = loader.num_batches == 1
        batch = BatchTaken(num_examples, waited_s, is_first and loader.was_left)
        if not self.is_evaluating:
            self.records.append(batch)
        else:
            if loader is not self.loader or is_first or len(self._held) == HELD_MAX:
                self._held = []
            self._held.append(batch)
        self.loader = loader
        if not loader.trains:
            self.goes_on_at = 0.0

    def evaluate(self) -> None:
        """An evaluation begins. Its first batch may have been fetched before, with gradients."""
        self.is_evaluating, self.goes_on_at = True, 0.0
        newest = self.records[-1] if self.records else None
        if isinstance(newest, BatchTaken):
            self.records.pop()
            self._held = [newest]

    def take(self, *, is_last: bool, waits: bool) -> list[Record]:
        """The notes whose losses are known, oldest first. `waits` for those that a device computes; with `is_last` all,
        also those of torch_xla that no program computes yet."""
        devices, records, number = self._devices, self.records, len(self.records)
        leave = 0 if waits else self._num_newest + self._num_before
        for held in self._on_cuda.values():
            held.read(leave)
        if devices is not None and len(devices):
            for record, row in devices.fetch(all_values=is_last, leave=min(leave, len(devices) // 2)):
                record.value, record.is_waiting = sum(row) / len(row), False
        if not is_last and (devices is not None or self._on_cuda):
            is_waiting = (isinstance(one, BackwardPass) and one.is_waiting for one in records)
            number = next((place for place, waits in enumerate(is_waiting) if waits), number)
        self.records = records[number:]
        return records[:number]


class _Local(threading.local):
    def __init__(self) -> None:
        self.notes = ThreadNotes()
        _all.append(self.notes)


_all: list[ThreadNotes] = []
_local = _Local()
_make_training: Callable[[ThreadNotes], HookedTraining]


def of_thread() -> ThreadNotes:
    """The notes of the current thread."""
    return _local.notes


def take_step_loss() -> tuple[str, str, Any] | None:
    """Name, place and value of the loss of the backward passes in this thread since the last call; None if there is
    none. Those from one line are shares, which are added up, on their device. For a callback of a framework: passes
    before the first call do not count."""
    thread = of_thread()
    shares, thread.shares = thread.shares, deque(maxlen=LOSSES_MAX)
    if not shares:
        return None
    site = shares[-1][0]
    first, *others = [loss for place, loss in shares if place is site]
    return site.name, site.place, sum(others, first)


def report_with(make_training: Callable[[ThreadNotes], HookedTraining]) -> None:
    """Sets what makes the report of a thread at its first backward pass."""
    global _make_training
    _make_training = make_training


def is_training() -> bool:
    """Whether a thread of this process is reported, or was."""
    return any(notes.training is not None for notes in list(_all))


def end(*, is_done: bool) -> None:
    """Reports what all threads have noted, when the process ends; called by its main thread."""
    for notes in list(_all):
        if notes.training is not None:
            notes.training.end(is_done=is_done)


def forget() -> None:
    """Drops all notes: in a forked process they belong to the parent."""
    global _local
    _all.clear()
    _local = _Local()
