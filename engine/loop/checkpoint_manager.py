"""Saves that fall due or are asked for, alike for every loop: what is kept, and what those who asked are told.

Must not know how training goes on; it is given the state at a boundary where that is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from engine.checkpoint.checkpoint_files import LAST, Checkpoint, CheckpointStore, Saved, SaveFailed
from engine.checkpoint.position import Position
from engine.errors import NotFinite
from engine.loop.events import EventEmitter
from tputui.telemetry import rundir
from tputui.telemetry.merge import head_of
from tputui.telemetry.requests import Request
from tputui.telemetry.rundir import CHECKPOINTS


class Stopped(Exception):
    """Training ended on request; the text says where."""


class CheckpointManager:
    """Keeps the state of a run, and answers those who asked for it."""

    def __init__(self, announcer: EventEmitter, store: CheckpointStore, state: Callable[[], Checkpoint]) -> None:
        """`state` gives what is to be kept, as of now."""
        self._announcer = announcer
        self._store = store
        self._state = state
        self._good_step: int | None = None
        self._unfit = ""
        self.reservation = ""
        """What is wrong with the weights that were saved last, to follow another sentence; empty where nothing is."""

    def serve(self, asked: list[Request], at: Position) -> None:
        """Serves requests in the middle of an epoch, all with one save. Raises `Stopped` where one of them says so."""
        try:
            saved = self._save(_reason(asked), best=False)
        except SaveFailed as error:
            self._refuse(asked, error)
        else:
            self.answer(asked, saved, at, last=False)

    def end_epoch(self, asked: list[Request], *, best: bool, must: bool) -> Saved | None:
        """Saves at the end of an epoch; a failure ends training only where the result would be lost."""
        try:
            return self._save(_reason(asked) if asked else "epoch", best=best)
        except SaveFailed as error:
            self._refuse(asked, error)
            if must:
                raise
            self._announcer.warn(f"{error}; training goes on")
            return None

    def answer(self, asked: list[Request], saved: Saved, at: Position, *, last: bool) -> None:
        """Tells that requests were served by a save at a position.

        Raises `Stopped` where one of them says so and there is more to train, so it is not the `last` epoch's.
        """
        for request in asked:
            self._announcer.applied(request, at, saved)
        if _reason(asked) == "stop" and not last:
            raise Stopped(f"stopped on request after step {at.step}; saved as {saved.path}{self.reservation}")

    def conclude(self, trained: str) -> str:
        """The sentence of a training that reached its end. Raises `NotFinite` if its final weights are NaN or infinite:
        whoever waits for the run must not take it for one with a result."""
        if self._unfit:
            raise NotFinite(f"the final weights are NaN or infinite ({self._unfit}): {trained}; {self._good()}")
        return trained

    def mind(self, found: str | None, policy: str, at: Position, settle: Callable[[Position], None]) -> None:
        """Ends training where loss or gradient were `found` not finite and the policy says so, once `settle` has
        reported every step up to there. Raises `NotFinite`."""
        if found is not None and policy != "continue":
            settle(at)
            self._break_off(found, at, policy)

    def _break_off(self, why: str, at: Position, policy: str) -> NoReturn:
        """Ends training for `why`, as the policy says: at once, or with a save. Raises `NotFinite`."""
        asked = f"{why}; training ended after step {at.step}, as non_finite.policy = {policy} says"
        if policy != "save-stop":
            raise NotFinite(f"{asked}, and nothing was saved for it; {self._good()}")
        try:
            saved = self._save("non-finite", best=False)
        except SaveFailed as error:
            raise NotFinite(f"{asked}; {error}; {self._good()}") from error
        raise NotFinite(f"{asked}; saved as {saved.path}{self.reservation}")

    def _save(self, reason: str, *, best: bool) -> Saved:
        with self._announcer.sections.section("save"):
            state = self._state()
            saved = self._store.save(state, periodic=reason == "epoch", best=best)
        at = state.position
        epoch = at.epoch if at.batch or at.epoch == 1 else at.epoch - 1
        reason = "non-finite" if saved.unfit else reason
        self._announcer.saved(saved, at, epoch=epoch, reason=reason, best=best and not saved.unfit)
        self._note_fitness(saved, at)
        return saved

    def _note_fitness(self, saved: Saved, at: Position) -> None:
        """Says so where the weights are no numbers, once until they are again."""
        self._unfit = saved.unfit
        if not saved.unfit:
            self._good_step, self.reservation = at.step, ""
            return
        first_time = not self.reservation
        why = f"its weights are not finite ({saved.unfit}), so they were kept apart, to look into"
        self.reservation = f"; {why}; {self._good()}"
        if first_time:
            self._announcer.warn(f"the checkpoint of step {at.step} is {saved.path}: {why}; {self._good()}")

    def _good(self) -> str:
        """Where there are weights to go on from."""
        if self._good_step is None:
            return "this run has saved no checkpoint to go on from"
        return f"{CHECKPOINTS}/{LAST} holds step {self._good_step}"

    def _refuse(self, asked: list[Request], error: SaveFailed) -> None:
        for request in asked:
            stop = "" if request.kind == "checkpoint" else "; training goes on, and `stop --now` ends it without a save"
            self._announcer.refused(request, f"{error}{stop}")


def best_words(monitor: str, best: float | None, epoch: int) -> str:
    """The best epoch, to follow another sentence; empty where there is none."""
    return "" if best is None else f"; best {monitor}: {best:.6g} (epoch {epoch})"


def adopt_best(store: CheckpointStore, resumed: Checkpoint, source: Path, warn: Callable[[str], None]) -> Checkpoint:
    """The checkpoint with its best figure where the run now has the weights for it; else without, and that is told."""
    if resumed.best is None:
        return resumed
    try:
        store.adopt_best(resumed, source)
    except SaveFailed as error:
        warn(f"the best weights so far were not found: {error}; the best is chosen anew from here on")
        return resumed._replace(best=None, best_epoch=0)
    return resumed


def tidy(source: Path) -> None:
    """Removes what a run that was killed in a save left half written, before another run goes on from `source`.

    Whatever this host does not know to be gone is left alone.
    """
    run_dir = source.resolve().parent.parent
    try:
        writers = list(rundir.journal_paths(run_dir)) if rundir.is_run(run_dir) else []
    except OSError:
        # A checkpoint may lie behind a link, below what this user cannot list.
        return
    if writers and all(_is_gone(path) for _, path in writers):
        rundir.clear_half_written(run_dir)


def _is_gone(journal: Path) -> bool:
    """Whether the process that a journal's head names is known not to live."""
    try:
        head = head_of(journal)
    except OSError:
        return False
    return head is not None and rundir.is_alive(rundir.process_of(head)) is False


def _reason(asked: list[Request]) -> str:
    """What a save for these requests is for."""
    return "stop" if any(request.kind != "checkpoint" for request in asked) else "request"
