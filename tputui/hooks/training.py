"""Reports what the hooks noted in one thread to the run, as a script that calls `tputui.start` would."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import AbstractContextManager

from tputui.hooks.call_sites import CallSite
from tputui.hooks.loops import EpochNumbers, LoopPosition
from tputui.hooks.notes import ThreadNotes, is_training
from tputui.hooks.steps import StepAssembler, TrainingStep
from tputui.integrations.callbacks import NamedMetrics
from tputui.reporting.run import EpochContext, Run
from tputui.reporting.start import join_unasked, was_asked
from tputui.telemetry.events import LossNamed

ENGINE = "tputui.engine_api"
"""Imported by a process of the engine, which reports itself."""
RECORDS_AT_ONCE = 512
"""Records that are put together at once: if thousands of steps exist at a time, Python's garbage collector visits all
objects of the program, which takes a tenth of a second with torch."""
PASSES_MAX = 8
"""Passes of the outermost loop after which it is not known how long it goes on."""
DRIFT_MAX = 0.02
"""Share of the steps that passes may make more or less than planned, such as those that the loop skips."""
SHORTEST_EPOCH_S = 0.05
"""Shorter epochs of a script without a loader may end too late: to report one takes as long as a step."""
FEW_STEPS = 2
"""With fewer steps between two evaluations, and no batch, a module may be kept in that mode in each step, such as a
teacher: it is an evaluation if something is printed in it."""


class HookedTraining:
    def __init__(self, notes: ThreadNotes, run: Run | None) -> None:
        """Without a run nothing is reported."""
        self._run = run
        self._notes = notes
        self._assembler = StepAssembler()
        self._waiting: list[TrainingStep] = []
        """Steps before it is known which loss is that of the training."""
        self._loss: CallSite | None = None
        """Whose loss is that of the training."""
        self._others: dict[CallSite, tuple[NamedMetrics, str]] = {}
        """The other losses, with their names."""
        self._num_steps = self._num_batches = 0
        self._loops: list[LoopPosition] = []
        self._num_taken = 0
        """Batches of the loader at the newest look at the loops."""
        self._passed_at: tuple[int, int] | None = None
        """Value of the counter of the outermost loop, and the step, at the beginning of a pass."""
        self._num_passes = 0
        """Passes that were compared."""
        self._planned_by: tuple[LoopPosition, int, int] | None = None
        """The loop by whose passes the steps are planned, the steps before its pass, and those of each pass."""
        self._checked_at = 0
        """Steps that were reported at the newest check of that plan."""
        self._epoch: EpochContext | None = None
        self._num_begun = 0
        """Epochs that have begun."""
        self._numbers = EpochNumbers()
        self._num_epochs: int | None = None
        """As the loops of the script tell."""
        self._entered: LoopPosition | None = None
        """The outermost loop at the beginning of the newest epoch, where none counts epochs by name, ..."""
        self._passes_are_epochs = True
        """... and whether each of its passes was an epoch of the loader so far."""
        self._steps_before = self._steps_planned = 0
        """Steps before the epoch, and steps of an epoch as far as known."""
        self._is_estimated = False
        """Whether those are concluded from the length of the loader."""
        self._evaluation: AbstractContextManager[None] | None = None
        self._evaluated_at_step = 0
        self._unsure: tuple[float, int] | None = None
        """When a mode began that may be no evaluation, and the bytes of output before."""

    def report(self, *, is_last: bool = False, decides: bool = False, ends_pass: bool = False) -> None:
        """Reports the steps that were noted, as far as their losses are known. With `is_last` also those whose losses
        wait on a device. `decides`: a part of the training is over, so it is known which losses there are; `ends_pass`:
        after the newest step, so that its pass of the loop counts."""
        run, records = self._run, self._notes.take(is_last=is_last, waits=is_last or decides)
        if run is not None and was_asked():
            run = self._run = None
        if run is None:
            return
        try:
            while self._loss is not None and not ends_pass and len(records) > RECORDS_AT_ONCE:
                steps, records = self._assembler.take(records[:RECORDS_AT_ONCE]), records[RECORDS_AT_ONCE:]
                self._report_steps(run, steps)
            self._waiting += self._assembler.take(records, is_last=is_last or decides)
            if self._loss is None and (len(self._waiting) > 1 or is_last or decides):
                self._loss = _main_loss(self._waiting)
                if self._loss is not None:
                    run.emit(LossNamed(t=time.time(), name=self._loss.name, source=self._loss.place))
            if self._loss is not None or is_last:
                steps, self._waiting = self._waiting, []
                last = self._steps_of_last_pass(len(steps)) if ends_pass else 0
                self._report_steps(run, steps, last)
                for metrics, _ in self._others.values():
                    metrics.write(all_values=is_last)
            self._estimate_steps(run)
        except Exception as error:  # noqa: BLE001, RUF100 - the program does not depend on its observers
            run.warn_of(error, "a report of the hooks")

    def _report_steps(self, run: Run, steps: list[TrainingStep], num_of_last_pass: int = 0) -> None:
        if waited_s := sum(step.waited_s for step in steps):
            run.waited_for_data(waited_s)
        for place, step in enumerate(steps):
            if num_of_last_pass and place == len(steps) - num_of_last_pass:
                self._go_to_last_pass(run, num_of_last_pass)
            self._report_step(run, step)

    def end(self, *, is_done: bool) -> None:
        """Reports the rest; `is_done`: no error and no request ended the training, so that its last epoch is whole."""
        if is_done:
            self.end_evaluation()
        self.report(is_last=True, ends_pass=is_done)
        if self._run is not None and is_done:
            loader, end = self._notes.loader, self._loops[0].end if self._loops else None
            is_counted = end is None or (loader is not None and loader.has_epochs)
            self._leave_epoch(1 if is_counted else (end or 0) - self._loops[0].value)

    def _steps_of_last_pass(self, num_new: int) -> int:
        """How many of the new steps, which are not reported yet, are the last pass of a loop over epochs, if it passed
        several times since the newest look at it; 0 if that is not certain."""
        loop, per_pass = self._loops[0] if self._loops else None, self._steps_planned
        if loop is None or self._epoch is None or not loop.counts_epochs or self._is_estimated or not per_pass:
            return 0
        num_passes, rest = divmod(self._num_steps + num_new - self._steps_before, per_pass)
        is_inside = loop.end is None or loop.value + num_passes <= loop.end
        return per_pass if not rest and num_passes > 1 and is_inside and per_pass <= num_new else 0

    def _go_to_last_pass(self, run: Run, num_steps: int) -> None:
        """Ends the epoch of the passes since the newest look at the loops, except the last pass, whose epoch begins."""
        num_passes = (self._num_steps - self._steps_before) // num_steps
        self._leave_epoch(num_passes)
        self._loops = [self._loops[0]._replace(value=self._loops[0].value + num_passes), *self._loops[1:]]
        self._enter_epoch(run)

    def _report_step(self, run: Run, step: TrainingStep) -> None:
        self._num_steps += 1
        self._num_batches += step.num_batches
        loss = step.losses.pop(self._loss_in(step, self._loss), None) if self._loss is not None else None
        run.step_ended(loss, step.num_examples or None, step.lr, step.ended_at)
        for site, value in step.losses.items():
            if site not in self._others:
                is_taken = any(other.name == site.name for other in self._others)
                name = f"{site.name} {site.place}" if is_taken else site.name
                self._others[site] = NamedMetrics(run, site.place), name
            metrics, name = self._others[site]
            metrics.take({name: value}, run.last_step)

    def _loss_in(self, step: TrainingStep, main: CallSite) -> CallSite:
        """Whose loss is that of the training in a step. In a step without the main one it is one of the same name from
        the same function, such as the other branch of an `if`, unless both were in one step before."""
        if main.code is None or main in step.losses:
            return main
        others = (site for site in step.losses if site.code is main.code and site.name == main.name)
        return next((site for site in others if site not in self._others), main)

    def place(self, loops: list[LoopPosition]) -> float | None:
        """Takes the loops around the newest backward pass: the epoch of the script, and how long it goes on. Returns
        the seconds after which it needs to know when the next pass of the outermost one begins; None if it does not."""
        run, loader, outer = self._run, self._notes.loader, loops[0] if loops else None
        if run is None:
            return None
        has_epochs = loader is not None and loader.has_epochs
        counts_epochs = outer is not None and outer.counts_epochs
        watches_after_s = None
        begins = self._notes.has_new_loader and (not counts_epochs or self._notes.has_new_optimizer)
        self._notes.has_new_loader, num_passes = False, 1
        if outer is not None and counts_epochs:
            num_passes = outer.value - self._loops[0].value if self._loops else 0
            begins = begins or num_passes != 0
        if begins and self._epoch is not None:
            self.begin_epoch(num_passes)
        if counts_epochs:
            watches_after_s = None if has_epochs else SHORTEST_EPOCH_S
        elif outer is not None:
            watches_after_s = self._plan_steps(run, outer)
        self._loops, self._num_taken = loops, loader.num_batches if loader is not None else 0
        if self._epoch is None and (has_epochs or counts_epochs):
            self._enter_epoch(run)
        return watches_after_s

    def _plan_steps(self, run: Run, loop: LoopPosition) -> float | None:
        """Plans the steps of a script whose outermost loop does not count epochs, if those of its passes are always as
        many, and withdraws the plan once they are not. Returns 0 as long as it needs to know of each pass."""
        if self._planned_by is not None:
            if self._checked_at != self._num_steps:
                # After a report few records are to be counted.
                self._checked_at = self._num_steps
                self._check_plan(run, loop, *self._planned_by)
            return None
        if loop.end is None or self._num_passes >= PASSES_MAX:
            return None
        before = self._passed_at
        if before is not None and loop.value == before[0]:
            return 0.0
        num_steps = self._steps_so_far()
        self._passed_at = loop.value, num_steps
        if before is None:
            return 0.0
        self._num_passes += 1
        per_pass, rest = divmod(num_steps - before[1], loop.value - before[0])
        if rest or per_pass <= 0:
            return 0.0
        run.plan(total_steps=num_steps + (loop.end - loop.value) * per_pass, examples=self._num_in_set())
        self._planned_by = loop, num_steps, per_pass
        return None

    def _check_plan(self, run: Run, loop: LoopPosition, planned: LoopPosition, before: int, per_pass: int) -> None:
        if loop.code is not planned.code or loop.name != planned.name or loop.value < planned.value:
            return
        num_steps = self._steps_so_far()
        ahead = num_steps - before - (loop.value - planned.value) * per_pass
        slack = max(per_pass, int(num_steps * DRIFT_MAX))
        if not -slack <= ahead <= per_pass + slack:
            self._planned_by, self._num_passes = None, PASSES_MAX
            run.plan()

    def _steps_so_far(self) -> int:
        return self._assembler.num_steps_with(self._notes.records) or self._notes.num_steps

    def begin_epoch(self, num_passes: int = 1) -> None:
        """Ends the epoch, or several that were too short to be told apart; the next one begins with the next backward
        pass, which shows its number."""
        if self._run is not None:
            self.report(decides=True)
            self._assembler.end_step()
            self._leave_epoch(num_passes)
            self._notes.look_again()

    def _leave_epoch(self, num_passes: int) -> None:
        self.end_evaluation()
        run, epoch, self._epoch = self._run, self._epoch, None
        if epoch is not None and run is not None:
            total = self._num_steps - self._steps_before
            num_steps = -(-total // max(1, num_passes))
            is_whole = total == num_passes * max(num_steps, 0 if self._is_estimated else self._steps_planned)
            if is_whole and self._loops and self._loops[0].counts_epochs:
                epoch.num_ended = max(1, num_passes)
            epoch.__exit__(None, None, None)
            if self._num_epochs and (num_steps > self._steps_planned or self._is_estimated):
                self._steps_planned, self._is_estimated = num_steps, False
                self._plan_epochs(run)

    def _enter_epoch(self, run: Run) -> None:
        self._num_begun += 1
        self._steps_before = self._num_steps
        number = self._num_begun
        around, loop = self._epoch_loops()
        if loop is not None and around is None:
            number = self._numbers.number_of(loop, is_new_training=self._notes.has_new_optimizer)
            self._num_epochs = self._numbers.last_of(loop) or self._num_epochs
        elif loop is not None and around is not None and around.end is not None:
            if loop.start is not None and loop.end is not None:
                # As many for each pass of the loop around it, such as one for each fold.
                num_before = number - 1 - (loop.value - loop.start)
                self._num_epochs = num_before + (around.end - around.value) * (loop.end - loop.start)
        elif loop is None and self._loops:
            self._compare_passes(self._loops[0], number)
        self._notes.has_new_optimizer = False
        if self._num_epochs and self._steps_planned:
            self._plan_epochs(run)
        self._epoch = EpochContext(run, number, self._num_epochs, self._steps_planned or None)
        self._epoch.__enter__()

    def _plan_epochs(self, run: Run) -> None:
        run.plan(epochs=self._num_epochs, steps=self._steps_planned, examples=self._num_in_set())

    def _num_in_set(self) -> int | None:
        """Examples of the data set that it trains on; None if they are not known."""
        loader = self._notes.trained
        return loader.num_in_set if loader is not None else None

    def _epoch_loops(self) -> tuple[LoopPosition | None, LoopPosition | None]:
        """The loop that counts epochs, if one of the two outermost does, and the one around it."""
        around = None
        for loop in self._loops[:2]:
            if loop.counts_epochs:
                return around, loop
            around = loop
        return None, None

    def _compare_passes(self, outer: LoopPosition, number: int) -> None:
        """Concludes how many epochs there are from a loop that goes on with each epoch of the loader."""
        entered, self._entered = self._entered, outer
        if entered is not None and self._passes_are_epochs:
            self._passes_are_epochs = outer.code is entered.code and outer.value == entered.value + 1
            self._num_epochs = number + outer.end - outer.value - 1 if self._passes_are_epochs and outer.end else None

    def _estimate_steps(self, run: Run) -> None:
        """Plans the epochs by the length of the loader, or the loop around its batches if that ends earlier, and the
        batches of each step, until one has ended."""
        loader = self._notes.trained
        if self._steps_planned or not self._num_epochs or loader is None or not loader.length or not self._num_batches:
            return
        around, _ = self._epoch_loops()
        length, inside = loader.length, self._loops[1 if around is None else 2 :]
        inner = inside[0] if inside else None
        if inner is not None and inner.end is not None and inner.start is not None:
            # One may have been fetched ahead; a pass around another loop over the loader has many.
            is_of_batches = self._num_taken <= inner.value - inner.start + 2
            length = min(length, inner.end - inner.start) if is_of_batches else length
        self._steps_planned = -(-length * self._num_steps // self._num_batches)
        self._is_estimated = True
        self._plan_epochs(run)

    def begin_evaluation(self, *, has_batch: bool) -> None:
        """Reports the steps before, and begins the evaluation, unless it runs already."""
        run, self._unsure = self._run, None
        if run is None or self._evaluation is not None:
            return
        is_short = self._notes.num_steps - self._evaluated_at_step < FEW_STEPS
        self._evaluated_at_step = self._notes.num_steps
        if is_short and not has_batch:
            self._unsure = time.time(), run.printed_bytes() or 0
            return
        self.report(decides=True, ends_pass=True)
        self._evaluation = run.phase("evaluate")
        self._evaluation.__enter__()

    def end_evaluation(self) -> None:
        """Training goes on."""
        unsure, self._unsure = self._unsure, None
        if unsure is not None and self._run is not None and (self._run.printed_bytes() or 0) > unsure[1]:
            self.report(decides=True, ends_pass=True)
            self._run.evaluated(*unsure)
            self._notes.look_again()
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is not None:
            evaluation.__exit__(None, None, None)


def _main_loss(steps: list[TrainingStep]) -> CallSite | None:
    """The loss of most steps; of those that are in as many, the last one before the optimizer steps."""
    counts = Counter(site for step in steps for site in step.losses)
    most = max(counts.values(), default=0)
    return next((site for site in reversed(counts) if counts[site] == most), None)


def make(notes: ThreadNotes) -> HookedTraining:
    """Makes the report of the current thread. Of threads that are no cores of torch_xla, only the first is reported."""
    is_first = not is_training()
    run = None
    if ENGINE not in sys.modules:
        run = join_unasked()
    return HookedTraining(notes, run if run is not None and (is_first or run.is_of_core) else None)
