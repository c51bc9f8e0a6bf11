"""Builds the trainer of a plan. Importing this module imports torch and the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from engine.checkpoint import checkpoint_store, resume
from engine.checkpoint.continued import adopt_best, retain_earlier
from engine.checkpoint.resume import Position
from engine.data.feed import BatchFeeds
from engine.errors import Refused, TooManyBad, Unable
from engine.loop import checkpoint_manager, network
from engine.loop.artifacts import RunArtifacts, training_examples
from engine.loop.checkpoint_manager import SharedCheckpointStore
from engine.loop.events import EventEmitter
from engine.loop.train_step import TrainStep
from engine.loop.trainer import Trainer
from engine.memory import advice, flops
from engine.models.scan_lstm import unrolled_modules
from engine.models.weights import new_head
from engine.parallel.base import Strategy
from engine.parallel.group import RankSocket
from engine.parallel.strategies import Replica, Single, Spmd, SpmdOverHosts
from engine.process import hardware
from engine.process.requests import RequestQueue
from engine.task import Dataset, Plan
from tputui.config import to_builtins
from tputui.engine_api import __version__, flatten
from tputui.reporting import Progress, Reporter, RequestServer, one_line

TILE_ROWS = 8
"""Rows of the tiles that a TPU core computes with."""


class RunContext(NamedTuple):
    """What a trainer gets from the process that it runs in."""

    run_dir: Path
    reporter: Reporter
    progress: Progress
    requests: RequestQueue
    resume_from: Path | None = None
    """Checkpoint that training continues from; with several processes, that of the first one counts."""
    telemetry: bool = True
    """False to train without recording steps, which measures what telemetry costs."""
    server: RequestServer | None = None
    """Of the requests that this process has received; by default none has been."""


def strategy(plan: Plan, place: RankSocket | None = None, device_index: int = 0) -> Strategy:
    """Opens the cores of this process, for the calling thread: all of the plan, or with a `place` those of one rank, of
    which it waits for the others. Under `replica` that is the core `device_index`.

    Raises `Unable` if they cannot be opened, and `PeerLost`.
    """
    config = plan.config
    try:
        if place is not None:
            is_replica = config.device.strategy == "replica"
            return Replica(place, device_index) if is_replica else SpmdOverHosts(place, config.num_cores)
        if config.num_cores == 1:
            return Single(config.core_ids[0], hardware.device_index(config, plan.machine))
        return Spmd(config.num_cores)
    except (RuntimeError, IndexError) as error:
        first = str(error).strip().splitlines()[0]
        raise Unable(
            f"the {plan.machine.device} cores cannot be opened; another process may hold them: {first}"
        ) from error


def trainer(plan: Plan, cores: Strategy, context: RunContext) -> Trainer:
    """A trainer of the plan. Raises `Refused` if the data or the checkpoint cannot be used."""
    run_dir = context.run_dir
    require_equal_config(plan, cores)
    resumed, resumed_path = checkpoint_manager.load(context.resume_from, plan, cores) or (None, None)
    splits = plan.task.load(plan.data, plan.config.seed)
    sizes, expected = (len(splits.train), len(splits.valid)), tuple(plan.sizes)
    if sizes != expected:
        raise Refused.of("task", f"load() returned {sizes} examples, but sizes() returned {expected}")
    require_equal_data(splits.identity, cores)
    # Before the train step makes its own network, since the task refers to the newest one.
    predicted = advice.emit_prediction(plan, splits.train, context.reporter.emit) if context.telemetry else None
    if predicted is not None:
        flops.emit_flops(plan, predicted.batch, context.reporter.emit)
    train_step = TrainStep(plan, cores, splits.train)
    if not cores.is_only:
        network.require_equal_weights(train_step.model, cores)
    events = EventEmitter(
        plan, cores, context.reporter, context.progress, telemetry=context.telemetry, server=context.server
    )
    train_step.trace_timer.compiled_s = events.programs.seconds
    identity = splits.identity
    store = (
        checkpoint_store.CheckpointStore(run_dir, plan, identity)
        if cores.is_only
        else SharedCheckpointStore(run_dir, plan, cores, identity)
    )
    artifacts = RunArtifacts(run_dir, are_written=cores.is_first)
    try:
        feeds = BatchFeeds(plan, splits, cores.own, cores.put, events.example_skipped)
    except TooManyBad as error:
        raise Refused.of("data", str(error)) from error
    events.stage_times, events.loader_threads = feeds.times, feeds.workers
    explain = partial(advice.out_of_memory_page, forecast=predicted)
    built = Trainer(plan, feeds, train_step, events, context.requests, store, artifacts, explain)
    for note in (*splits.notes, *_notes(plan), *unrolled_modules(train_step.model), *new_head(train_step.model)):
        events.warn(note)
    if context.telemetry:
        at = resumed.position if resumed is not None else built.position
        _draw_examples(plan, splits.train, artifacts, events, at)
    if resumed is not None and resumed_path is not None:
        data_note = resume.data_note(resumed.identity, identity)
        for note in (*resumed.notes, *([data_note] if data_note else [])):
            events.warn(note)
        built.resume(adopt_best(store, resumed, resumed_path, events.warn))
        retain_earlier(store, context.reporter.path)
    return built


def require_equal_config(plan: Plan, cores: Strategy) -> None:
    """Raises `Refused` if the hosts have different configurations or numbers of examples. Collective."""
    values = {"version": __version__, **flatten(to_builtins(plan.config))}
    # How a host reaches the others may differ.
    values = {key: value for key, value in values.items() if not key.startswith("launch.")}
    if (difference := _difference(values, cores)) is not None:
        host, key, shown = difference
        message = f"host {host} was started with another configuration than host 0: {shown}; use the same on all"
        raise Refused.of(key, message)
    sizes = {"training examples": plan.sizes.train, "validation examples": plan.sizes.valid}
    if (difference := _difference(sizes, cores)) is not None:
        raise Refused.of("data", f"host {difference.host} has other data than host 0: {difference.shown}")


def require_equal_data(identity: Mapping[str, str], cores: Strategy) -> None:
    """Raises `Refused` if parts of the data differ between the hosts. Collective."""
    if (difference := _difference(dict(identity), cores)) is not None:
        raise Refused.of("data", f"host {difference.host} has other data than host 0: {difference.key} differ")


class _Difference(NamedTuple):
    """The first host with other values than host 0."""

    host: int
    key: str
    shown: str
    """The first few values that differ."""


def _difference(values: dict[str, Any], cores: Strategy) -> _Difference | None:
    """The first host with other values than host 0; None if all have the same. Collective."""
    if cores.host.num_hosts == 1:
        return None
    first, *others = (msgspec.json.decode(payload) for payload in cores.collect(msgspec.json.encode(values)))
    for host, other in enumerate(others, 1):
        keys = [key for key in sorted(first.keys() | other.keys()) if first.get(key) != other.get(key)]
        if keys:
            shown = ", ".join(f"{key} {other.get(key)!r} instead of {first.get(key)!r}" for key in keys[:3])
            return _Difference(host, keys[0], shown)
    return None


def _draw_examples(plan: Plan, dataset: Dataset, artifacts: RunArtifacts, events: EventEmitter, at: Position) -> None:
    """Writes pictures of a few training examples as those of epoch 0; training does not depend on them."""
    try:
        drawn = artifacts.pictures(0, training_examples(plan, dataset))
        events.pictures_written(at._replace(epoch=0), drawn)
    except Exception as error:  # The task's own code; an error that matters is raised again in training.
        events.warn(f"the pictures of training examples could not be drawn: {one_line(error)}")


def _notes(plan: Plan) -> list[str]:
    """What the user should know about the plan before the start."""
    batch = plan.config.batch_per_core
    if batch % TILE_ROWS == 0:
        return []
    padded = -(-batch // TILE_ROWS) * TILE_ROWS
    return [
        f"data.batch_per_core: {batch} is no multiple of {TILE_ROWS}, so a TPU core pads each batch to {padded} rows "
        f"and wastes the computation of {padded - batch} of them"
    ]
