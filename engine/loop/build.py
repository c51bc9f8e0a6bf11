"""Puts a trainer together from a plan. Importing it imports torch and the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from engine.checkpoint import checkpoint_files, resume
from engine.checkpoint.position import Position
from engine.errors import Problem, Refused, TooManyBad, Unable
from engine.loop import rank_agreement, sample_pictures
from engine.loop.artifacts import RunArtifacts
from engine.loop.batches import BatchFeeds
from engine.loop.checkpoint_manager import adopt_best
from engine.loop.reporting import StepReporter
from engine.loop.run_context import RunContext
from engine.loop.train_step import TrainStep
from engine.loop.trainer import Trainer
from engine.memory import advice
from engine.models.check import unrolled
from engine.models.weights import new_head
from engine.parallel.base import Strategy
from engine.parallel.group import RankSocket
from engine.parallel.replica import Replica
from engine.parallel.single import Single
from engine.parallel.spmd import Spmd
from engine.process import hardware
from engine.task import Dataset, Plan
from engine.task_registry import reason

TILE_ROWS = 8
"""Rows of the tiles that a TPU core computes with."""


def strategy(plan: Plan) -> Strategy:
    """Opens the cores that the plan names, for the calling thread. Raises `Unable` where they cannot be had."""
    config = plan.config
    with _opening(plan):
        if config.num_cores == 1:
            return Single(config.core_ids[0], hardware.device_index(config, plan.machine))
        return Spmd(config.num_cores)


def replica(plan: Plan, place: RankSocket, device_index: int) -> Strategy:
    """Opens one core of this process, for the calling thread, and waits for the other ranks.

    Raises `Unable` where it cannot be had, and `PeerLost`.
    """
    with _opening(plan):
        return Replica(place, device_index)


@contextmanager
def _opening(plan: Plan) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, IndexError) as error:
        first = str(error).strip().splitlines()[0]
        raise Unable(
            f"the {plan.machine.device} cores cannot be opened; another process may hold them: {first}"
        ) from error


def trainer(plan: Plan, cores: Strategy, around: RunContext) -> tuple[Trainer, StepReporter]:
    """A trainer of the plan, and what it reports through. Raises `Refused`."""
    run_dir, reporter, progress, control, resume_from, telemetry = around
    resumed = checkpoint_files.load(resume_from, plan) if resume_from is not None else None
    splits = plan.task.load(plan.data, plan.config.seed)
    found, promised = (len(splits.train), len(splits.valid)), tuple(plan.sizes)
    if found != promised:
        raise Refused([Problem("task", f"load() returned {found} examples where sizes() says {promised}")])
    # Before the learner: it makes a network of its own, and the task knows the newest one.
    predicted = advice.tell(plan, splits.train, reporter.emit) if telemetry else None
    learner = TrainStep(plan, cores, splits.train)
    if not cores.alone:
        rank_agreement.require_equal_weights(learner, cores)
        control.share = partial(rank_agreement.requests, cores)
    reports = StepReporter(plan, learner, reporter, progress, telemetry=telemetry)
    of = splits.identity
    store = (
        checkpoint_files.CheckpointStore(run_dir, plan, of)
        if cores.alone
        else rank_agreement.SharedCheckpointStore(run_dir, plan, cores, of)
    )
    keepsakes = RunArtifacts(run_dir) if cores.own.start == 0 else rank_agreement.NoArtifacts(run_dir)
    try:
        feeds = BatchFeeds(plan, splits, cores.own, cores.put, reports.skipped)
    except TooManyBad as error:
        raise Refused([Problem("data", str(error))]) from error
    built = Trainer(
        plan, feeds, learner, reports, control, store, keepsakes, partial(advice.explain, forecast=predicted)
    )
    for note in (*splits.notes, *_notes(plan), *unrolled(learner.model), *new_head(learner.model)):
        reports.warn(note)
    if telemetry:
        _draw_examples(plan, splits.train, keepsakes, reports, resumed.position if resumed is not None else built.at)
    if resumed is not None and resume_from is not None:
        other_data = resume.data_note(resumed.identity, of)
        for note in (*resumed.notes, *([other_data] if other_data else [])):
            reports.warn(note)
        built.resume(adopt_best(store, resumed, resume_from, reports.warn))
    return built, reports


def _draw_examples(plan: Plan, dataset: Dataset, keepsakes: RunArtifacts, reports: StepReporter, at: Position) -> None:
    """Keeps pictures of a few training examples, as those of epoch 0; training does not depend on them."""
    try:
        reports.kept(at._replace(epoch=0), keepsakes.pictures(0, sample_pictures.draw(plan, dataset)))
    except Exception as error:  # The task's own code; what breaks training is raised there.
        reports.warn(f"the pictures of training examples could not be drawn: {reason(error)}")


def _notes(plan: Plan) -> list[str]:
    """What a user should know of the plan before the start."""
    batch = plan.config.batch_per_core
    if batch % TILE_ROWS == 0:
        return []
    fits = -(-batch // TILE_ROWS) * TILE_ROWS
    return [
        f"data.batch_per_core: {batch} is no multiple of {TILE_ROWS}, so a TPU core pads each batch to {fits} rows and "
        f"computes {fits - batch} of them for nothing"
    ]
