"""What a run may change when it continues from a checkpoint, and what follows from each change.

The weights and the state of the optimizer always continue. Cores, batch, `[optim]` and the data of the same number of
examples may change; the position is counted in examples then, and `Resumption.notes` says that the run is no longer
exactly the one that was begun. Torch-free, and reads no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from engine.errors import Problem, Refused
from tputui.config import OPTIMIZER_KEYS, SCHEDULE_KEYS, OptimConfig

if TYPE_CHECKING:
    from pathlib import Path

    pass
    from engine.task import Plan


class Position(NamedTuple):
    """How far training is."""

    epoch: int
    """Epoch in training."""
    batch: int
    """Steps of that epoch that are done."""
    step: int
    """Steps of the run that are done."""
    evaluating: bool
    """Whether the epoch's training is done and its evaluation is not."""


FREE = frozenset({"data.max_bad_rows", "data.workers", "data.cache_mb"})
"""Keys that may differ: they say how examples are read and how many may fail, and change none that trains."""
BATCH = frozenset({"data.batch_per_core", "data.batches_per_epoch", "device.cores"})
"""Keys that change which examples a step takes."""
STATE_KEYS = ("optim.name", "optim.centered")
"""Keys that change what the optimizer keeps for each parameter."""
_SOME_HAVE = frozenset(f"optim.{key}" for keys in (*OPTIMIZER_KEYS.values(), *SCHEDULE_KEYS.values()) for key in keys)
"""Keys that not every optimizer or schedule has: without one on both sides it is optimizer or schedule that differs."""
_ABSENT = object()


class Resumption(NamedTuple):
    """How a run continues."""

    position: Position
    """Counted in the steps of the run that continues."""
    new_settings: bool
    """Whether learning rate and other settings of the optimizer are the configuration's, not the checkpoint's."""
    notes: tuple[str, ...]
    """What is not as it was, a sentence each; empty where the run continues exactly."""


def fingerprint(plan: Plan) -> dict[str, Any]:
    """What must be the same for a checkpoint to go on as if nothing had happened, by configuration key."""
    config = plan.config
    options = {f"data.{key}": getattr(plan.data, key) for key in plan.data.__struct_fields__}
    options |= {f"model.{key}": getattr(plan.model, key) for key in plan.model.__struct_fields__}
    return {
        "task": config.task,
        "seed": config.seed,
        "data.batch_per_core": config.batch_per_core,
        "data.batches_per_epoch": config.data.batches_per_epoch,
        **options,
        **_optim_fingerprint(config.optim),
        "device.cores": config.num_cores,
        "device.precision": config.device.precision,
    }


def _optim_fingerprint(optim: OptimConfig) -> dict[str, Any]:
    """What trains, of `[optim]`: no key that the optimizer or the schedule does not have."""
    used = {"momentum": optim.used_momentum, "betas": list(optim.betas), "schedule": optim.used_schedule}
    have = {f"optim.{key}" for key in (*OPTIMIZER_KEYS[optim.name], *SCHEDULE_KEYS[optim.used_schedule])}
    values = {f"optim.{key}": used.get(key, getattr(optim, key)) for key in optim.__struct_fields__}
    return {key: value for key, value in values.items() if key in have or key not in _SOME_HAVE}


def _with_optim_defaults(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A fingerprint in which keys of `[optim]` that came later have their defaults."""
    optim = {key.removeprefix("optim."): value for key, value in saved.items() if key.startswith("optim.")}
    known = {key: value for key, value in optim.items() if key in OptimConfig.__struct_fields__}
    others = {key: value for key, value in saved.items() if key.removeprefix("optim.") not in known}
    return {**others, **_optim_fingerprint(msgspec.convert(known, OptimConfig))}


def data_of(plan: Plan, identity: Mapping[str, str]) -> dict[str, Any]:
    """What is kept in a checkpoint of the data: `Splits.identity` and, if known, the sizes of the splits."""
    return {"sizes": None if plan.has_own_loop else list(plan.sizes), "identity": dict(identity)}


def resumption(
    saved: Mapping[str, Any], data: Mapping[str, Any] | None, position: Position, plan: Plan, path: Path
) -> Resumption:
    """How a checkpoint with the fingerprint `saved`, the `data` it keeps and its `position` continues under the plan.

    Raises `Refused` with every key that must not change.
    """
    # A key that came later: what was saved before had its default.
    saved = {"data.batches_per_epoch": None, **_defaults(plan), **_with_optim_defaults(saved)}
    wanted = fingerprint(plan)
    changed = [key for key in saved | wanted if _has_changed(key, saved, wanted)]
    problems = [_refusal(key, saved, wanted, path) for key in changed if not _may_change(key, saved, wanted, plan)]
    if not problems and position.epoch > plan.config.epochs:
        message = f"{path} has all {position.epoch - 1} epochs trained; raise epochs to train on"
        problems = [Problem("epochs", message)]
    sizes = data["sizes"] if data is not None and not plan.has_own_loop else None
    resized = sizes is not None and sizes != list(plan.sizes)
    if not problems and resized and sizes is not None and position.batch and not position.evaluating:
        message = (
            f"{path} was saved in the middle of epoch {position.epoch} of {sizes[0]:,} training examples, and there "
            f"are {plan.sizes.train:,} now, so which of them that epoch has left is not known; restore the data, or "
            "resume a checkpoint of the end of an epoch"
        )
        problems.append(Problem("data", message))
    if problems:
        raise Refused(problems)
    notes = [_changes(changed, saved, wanted)] if changed else []
    if resized and sizes is not None:
        notes.append(
            f"the data changed since the checkpoint: {sizes[0]:,} training and {sizes[1]:,} validation examples then, "
            f"{plan.sizes.train:,} and {plan.sizes.valid:,} now; figures before and after are of different data"
        )
    moved = position
    if not plan.has_own_loop:
        moved = _moved(position, saved, sizes[0] if sizes else plan.sizes.train, plan)
    if moved != position:
        notes.append(_move(position, moved, plan))
    new_settings = any(key.startswith("optim.") or key == "device.cores" for key in changed)
    return Resumption(moved, new_settings, tuple(notes))


def data_note(saved: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """What of the data is not what the checkpoint was trained on, in a sentence; None where nothing is known to be.

    Raises `Refused` where words have other numbers than the weights know.
    """
    changed = [name for name in saved if name in found and saved[name] != found[name]]
    if not changed:
        return None
    if "vocabulary" in changed:
        message = (
            "the training texts changed since the checkpoint, and with them the vocabulary that is made of them, so "
            "the weights know other words; restore the texts, or begin a new run"
        )
        raise Refused([Problem("data", message)])
    return (
        f"the data changed since the checkpoint, with as many examples as before: {' and '.join(changed)} differ; "
        "training continues on the data as they are now"
    )


def _has_changed(key: str, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    old, new = saved.get(key, _ABSENT), wanted.get(key, _ABSENT)
    return old != new and key not in FREE and not (key in _SOME_HAVE and _ABSENT in (old, new))


def _may_change(key: str, saved: Mapping[str, Any], wanted: Mapping[str, Any], plan: Plan) -> bool:
    if plan.has_own_loop or key in STATE_KEYS:
        return False
    if key == "optim.momentum" and wanted.get("optim.name") == "rmsprop":
        # It keeps a buffer only if there is any.
        return bool(saved.get(key)) == bool(wanted.get(key))
    return key in BATCH or key.startswith("optim.")


def _refusal(key: str, saved: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> Problem:
    old, new = saved.get(key, _ABSENT), wanted.get(key, _ABSENT)
    was = "was not there" if old is _ABSENT else f"was {old!r}"
    now = "is not there" if new is _ABSENT else f"is {new!r}"
    if key in STATE_KEYS:
        why = f"the optimizer's state fits that alone; write {key} = {msgspec.json.encode(old).decode()}"
    else:
        why = "only the same can go on"
    return Problem(key, f"it {was} when {path} was saved and {now} now; {why}")


def _changes(changed: list[str], saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    each = ", ".join(f"{key} {_shown(saved.get(key))} -> {_shown(wanted.get(key))}" for key in changed)
    return f"resumed with other settings: {each}; weights and optimizer state continue, but not exactly the same run"


def _shown(value: Any) -> str:
    return "none" if value is None or value is _ABSENT else f"{value}"


def _moved(position: Position, saved: Mapping[str, Any], num_train: int, plan: Plan) -> Position:
    """The position by examples: as many whole batches of the epoch as its examples that were trained on make up.

    Steps are counted as if every epoch had had as many as this run's have.
    """
    batch = saved["data.batch_per_core"] * saved["device.cores"]
    steps = num_train // batch
    steps = min(steps, saved["data.batches_per_epoch"] or steps)
    steps -= steps % saved["optim.accumulate"]
    mine, accumulate = plan.steps_per_epoch, plan.config.optim.accumulate
    if (batch, steps) == (plan.config.global_batch, mine) and position.batch % accumulate == 0:
        return position
    done = mine if position.evaluating else min(position.batch * batch // plan.config.global_batch, mine)
    # Gradients that wait for an update are not kept, so the position is one after an update.
    done -= done % accumulate
    evaluating = position.evaluating or (position.batch > 0 and done == mine)
    return position._replace(batch=done, step=(position.epoch - 1) * mine + done, evaluating=evaluating)


def _move(old: Position, new: Position, plan: Plan) -> str:
    epoch = f"epoch {new.epoch}"
    if new.evaluating:
        where = f"{epoch} continues with its evaluation"
    elif new.batch or old.batch:
        where = f"{epoch} continues after {new.batch} of its {plan.steps_per_epoch} steps, by the examples it has seen"
    else:
        where = f"it continues at the start of {epoch}"
    return f"with {plan.steps_per_epoch} steps an epoch now, {where}, and step {old.step} counts as step {new.step}"


def _defaults(plan: Plan) -> dict[str, Any]:
    """The defaults of the task's own keys, by configuration key."""
    return {
        f"{table}.{field.name}": field.default
        for table, options in (("data", plan.data), ("model", plan.model))
        for field in msgspec.structs.fields(options)
        if field.default is not msgspec.NODEFAULT
    }
