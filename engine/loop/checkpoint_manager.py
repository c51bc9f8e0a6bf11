"""When a run saves and what it answers to requests: `CheckpointManager`, and saves of several processes.

The manager does not know how training proceeds; it is given the state at boundaries where that is complete.

Reads the checkpoint that a run continues from, once for all processes: its file need only be on the first host.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.checkpoint import checkpoint_store
from engine.checkpoint.checkpoint_store import LAST, CheckpointStore, SavedCheckpoint, SaveFailed
from engine.checkpoint.resume import Checkpoint, Position
from engine.errors import NotFinite, Problem, Refused, Stopped
from engine.loop.events import EventEmitter
from engine.parallel.base import Strategy
from engine.task import Plan
from tputui.config import RunConfig
from tputui.reporting import CHECKPOINTS, BestEpoch, Request


class CheckpointManager:
    """Saves the state of a run when a save is due or requested, and answers the requests."""

    def __init__(
        self, config: RunConfig, events: EventEmitter, store: CheckpointStore, state: Callable[[], Checkpoint]
    ) -> None:
        """`state` returns the current state."""
        self.best = BestEpoch(config.checkpoint.monitor, config.checkpoint.mode)
        self._config = config
        self._events = events
        self._store = store
        self._state = state
        self._good_step: int | None = None
        """Step of the newest checkpoint with finite weights."""
        self._unfit = ""
        self._unfit_suffix = ""
        """What is wrong with the weights that were saved last, to follow another sentence; empty if they are finite."""

    def serve_requests(self, requests: list[Request], at: Position) -> None:
        """Serves requests in the middle of an epoch, all with one save. Raises `Stopped` if one asks for it."""
        try:
            saved = self._save(_reason(requests), best=False)
        except SaveFailed as error:
            self._refuse(requests, error)
        else:
            self.acknowledge(requests, saved, at)

    def end_epoch(self, epoch: int, requests: list[Request], *, is_best: bool) -> SavedCheckpoint | None:
        """Saves at the end of an epoch if a save is due or requested; None if nothing was saved.

        A failed save ends training only in the last epoch, whose result would be lost. If `is_best` and the weights
        were not saved, or are not finite, `best` is reverted.
        """
        is_last = epoch == self._config.epochs
        is_due = is_last or is_best or epoch % self._config.checkpoint.every_epochs == 0
        saved = self._save_epoch(requests, best=is_best, required=is_last) if is_due or requests else None
        if is_best and (saved is None or saved.unfit):
            self.best.revert()
        return saved

    def acknowledge(self, requests: list[Request], saved: SavedCheckpoint, at: Position) -> None:
        """Reports that requests were served by a save at a position.

        Raises `Stopped` if one of them asks to stop and there is an epoch left to train.
        """
        for request in requests:
            self._events.server.applied(request, at.step, path=saved.path, num_bytes=saved.bytes, seconds=saved.seconds)
        if _reason(requests) == "stop" and at.epoch <= self._config.epochs:
            raise Stopped(f"stopped on request after step {at.step}; saved as {saved.path}{self._unfit_suffix}")

    def conclude(self, trained: str) -> str:
        """Returns the sentence of a training that reached its end, with the best epoch. Raises `NotFinite` if the final
        weights are NaN or infinite, so that the run is not taken for one with a result."""
        trained += self.best.suffix
        if self._unfit:
            raise NotFinite(f"the final weights are NaN or infinite ({self._unfit}): {trained}; {self.good()}")
        return trained

    def good(self) -> str:
        """Which finite weights can be resumed from."""
        if self._good_step is None:
            return "this run has no checkpoint to resume from"
        return f"{CHECKPOINTS}/{LAST} contains step {self._good_step}"

    def enforce_finite(self, not_finite: str | None, at: Position, report: Callable[[Position], None]) -> None:
        """Ends training, if `non_finite.policy` says so, at a loss or a gradient that is NaN or infinite: raises
        `NotFinite`. `not_finite` says which value is. `report` reports every step up to `at` before.
        """
        policy = self._config.non_finite.policy
        if not_finite is None or policy == "continue":
            return
        report(at)
        ended = f"{not_finite}; training ended after step {at.step} (non_finite.policy = {policy})"
        if policy != "save-stop":
            raise NotFinite(f"{ended} without a save; {self.good()}")
        try:
            saved = self._save("non-finite", best=False)
        except SaveFailed as error:
            raise NotFinite(f"{ended}; {error}; {self.good()}") from error
        raise NotFinite(f"{ended}; saved as {saved.path}{self._unfit_suffix}")

    def _save_epoch(self, requests: list[Request], *, best: bool, required: bool) -> SavedCheckpoint | None:
        try:
            return self._save(_reason(requests) if requests else "epoch", best=best)
        except SaveFailed as error:
            self._refuse(requests, error)
            if required:
                raise
            self._events.warn(f"{error}; training goes on")
            return None

    @property
    def ended_by_others(self) -> bool:
        """Whether a checkpoint was written, but another process ended before it could hear of it."""
        return self._store.unshared is not None

    def _save(self, reason: str, *, best: bool) -> SavedCheckpoint:
        with self._events.progress.saving:
            with self._events.sections.section("save"):
                state = self._state()
                try:
                    saved = self._store.save(state, periodic=reason == "epoch", best=best)
                except Exception:
                    if self._store.unshared is not None:
                        # The processes that take the place of these resume from it.
                        self._record(self._store.unshared, state.position, reason, best=best)
                    raise
            self._record(saved, state.position, reason, best=best)
        self._check_weights(saved, state.position)
        return saved

    def _record(self, saved: SavedCheckpoint, at: Position, reason: str, *, best: bool) -> None:
        epoch = at.epoch if at.batch or at.epoch == 1 else at.epoch - 1
        reason = "non-finite" if saved.unfit else reason
        self._events.checkpoint_saved(saved, at, epoch=epoch, reason=reason, best=best and not saved.unfit)

    def _check_weights(self, saved: SavedCheckpoint, at: Position) -> None:
        """Warns of weights that are not finite, once until they are finite again."""
        self._unfit = saved.unfit
        if not saved.unfit:
            self._good_step, self._unfit_suffix = at.step, ""
            return
        is_new = not self._unfit_suffix
        problem = f"contains NaN/inf weights ({saved.unfit}); saved separately for inspection"
        self._unfit_suffix = f"; it {problem}; {self.good()}"
        if is_new:
            self._events.warn(f"the checkpoint of step {at.step}, {saved.path}, {problem}; {self.good()}")

    def _refuse(self, requests: list[Request], error: SaveFailed) -> None:
        for request in requests:
            hint = "" if request.kind == "checkpoint" else "; training goes on, and `stop --now` ends it without a save"
            self._events.server.refused(request, f"{error}{hint}")


class SharedCheckpointStore(CheckpointStore):
    """The checkpoints of a run of several processes: the first one writes them, and all get the same result."""

    def __init__(self, run_dir: Path, plan: Plan, strategy: Strategy, identity: Mapping[str, str]) -> None:
        super().__init__(run_dir, plan, identity)
        self._strategy = strategy

    def save(self, checkpoint: Checkpoint, *, periodic: bool, best: bool) -> SavedCheckpoint:
        """As `CheckpointStore.save`. Collective."""
        saved = self._in_first(partial(CheckpointStore.save, self, checkpoint, periodic=periodic, best=best))
        assert saved is not None
        return saved

    def adopt_best(self, resumed: Checkpoint, source: Path) -> None:
        """As `CheckpointStore.adopt_best`. Collective."""
        self._in_first(partial(CheckpointStore.adopt_best, self, resumed, source))

    def _in_first(self, work: Callable[[], SavedCheckpoint | None]) -> SavedCheckpoint | None:
        """Returns the result of `work` in the first process, or raises its `SaveFailed`, in every process."""
        saved: SavedCheckpoint | None = None
        failed: str | None = None
        if self._strategy.is_first:
            try:
                saved = work()
            except SaveFailed as error:
                failed = str(error)
        self.unshared = saved
        sent = self._strategy.broadcast(msgspec.json.encode((saved, failed)))
        saved, failed = msgspec.json.decode(sent, type=tuple[SavedCheckpoint | None, str | None])
        self.unshared = None
        if failed is not None:
            raise SaveFailed(failed)
        return saved


def _reason(requests: list[Request]) -> str:
    """Why these requests cause a save."""
    return "stop" if any(request.kind != "checkpoint" for request in requests) else "request"


def load(path: Path | None, plan: Plan, cores: Strategy) -> tuple[Checkpoint, Path] | None:
    """The checkpoint at the `path` of the first process, which reads it and sends it to the others, and that path; None
    without one. Raises `Refused` in every process. Collective."""
    if cores.is_only:
        return None if path is None else (checkpoint_store.load(path, plan), path)
    sent = b""
    if cores.is_first and path is not None:
        sent = _encoded(path, plan)
    sent = cores.broadcast(sent)
    if not sent:
        return None
    content: dict[str, Any] = torch.load(io.BytesIO(sent), map_location="cpu", weights_only=True)
    if content["problems"]:
        raise Refused(msgspec.json.decode(content["problems"], type=list[Problem]))
    fields = content["checkpoint"]
    checkpoint = Checkpoint(
        **{
            **fields,
            "position": Position(**fields["position"]),
            "losses": tuple((train, valid) for train, valid in fields["losses"]),
            "buffers": frozenset(fields["buffers"]),
            "notes": tuple(fields["notes"]),
        }
    )
    return checkpoint, Path(content["path"])


def _encoded(path: Path, plan: Plan) -> bytes:
    content: dict[str, Any] = {"problems": "", "checkpoint": None, "path": str(path)}
    try:
        checkpoint = checkpoint_store.load(path, plan)
    except Refused as refused:
        content["problems"] = msgspec.json.encode(refused.problems).decode()
    else:
        content["checkpoint"] = {
            **checkpoint._asdict(),
            "position": checkpoint.position._asdict(),
            "losses": [list(pair) for pair in checkpoint.losses],
            "buffers": sorted(checkpoint.buffers),
            "identity": dict(checkpoint.identity),
            "notes": list(checkpoint.notes),
        }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()
