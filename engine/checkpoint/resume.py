"""Rules for resuming a run: which settings may change, and where training continues.

The weights and the optimizer state always continue. Cores, batch, `[optim]`, and data with the same number of examples
may change; the position is then converted by examples, and `Checkpoint.notes` says that the run is not an exact
continuation. Reads no file and does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from engine.errors import Problem, Refused
from tputui.config import OPTIMIZER_KEYS, SCHEDULE_KEYS, OptimConfig

if TYPE_CHECKING:
    from pathlib import Path

    from engine.task import Plan


class Position(NamedTuple):
    epoch: int
    """The current epoch, from 1."""
    batch: int
    """Steps of the epoch that are done."""
    step: int
    """Steps of the run that are done."""
    evaluating: bool
    """Whether the epoch's training is done and its evaluation is not."""


class Checkpoint(NamedTuple):
    """The state that a run resumes from."""

    position: Position
    training_state: dict[str, Any]
    """State of network, optimizer, scheduler and the host's random number generators."""
    meters: dict[str, list[float]]
    """Training meters of the running epoch."""
    best: float | None
    """Best monitored value so far."""
    best_epoch: int = 0
    """Epoch of the best value; 0 if there is none."""
    losses: tuple[tuple[float, float], ...] = ()
    """Mean training and validation loss of each finished epoch."""
    buffers: frozenset[str] = frozenset()
    """Names of the weights that are not parameters; not in the file."""
    identity: Mapping[str, str] = MappingProxyType({})
    """`Splits.identity` of the training data."""
    new_settings: bool = False
    """Whether optimizer settings such as the learning rate come from the configuration instead of the state; not in the
    file."""
    notes: tuple[str, ...] = ()
    """Differences to the original run, one sentence each; empty if the run continues exactly; not in the file."""

    @property
    def ends_best_epoch(self) -> bool:
        """Whether it was saved at the end of the best epoch so far."""
        at = self.position
        return self.best_epoch > 0 and (at.epoch, at.batch) == (self.best_epoch + 1, 0)


FREE = frozenset({"data.max_bad_rows", "data.workers", "data.cache_mb"})
"""Keys that may differ, because they do not affect training: how examples are read and how many may fail."""
BATCH = frozenset({"data.batch_per_core", "data.batches_per_epoch", "device.cores"})
"""Keys that change which examples a step takes."""
STATE_KEYS = ("optim.name", "optim.centered")
"""Keys that change the optimizer's state per parameter."""
_SOME_HAVE = frozenset(f"optim.{key}" for keys in (*OPTIMIZER_KEYS.values(), *SCHEDULE_KEYS.values()) for key in keys)
"""Keys that only some optimizers or schedules have; if one side lacks the key, the optimizer or schedule differs."""
_ABSENT = object()


def fingerprint(plan: Plan) -> dict[str, Any]:
    """The settings that must be equal for an exact continuation, by configuration key."""
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
    """The settings of `[optim]` that affect training, without keys that the optimizer or schedule does not have."""
    used = {"momentum": optim.used_momentum, "betas": list(optim.betas), "schedule": optim.used_schedule}
    have = {f"optim.{key}" for key in (*OPTIMIZER_KEYS[optim.name], *SCHEDULE_KEYS[optim.used_schedule])}
    values = {f"optim.{key}": used.get(key, getattr(optim, key)) for key in optim.__struct_fields__}
    return {key: value for key, value in values.items() if key in have or key not in _SOME_HAVE}


def _with_optim_defaults(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A fingerprint with defaults for the keys of `[optim]` that were added later."""
    optim = {key.removeprefix("optim."): value for key, value in saved.items() if key.startswith("optim.")}
    current = {key: value for key, value in optim.items() if key in OptimConfig.__struct_fields__}
    others = {key: value for key, value in saved.items() if key.removeprefix("optim.") not in current}
    return {**others, **_optim_fingerprint(msgspec.convert(current, OptimConfig))}


def data_of(plan: Plan, identity: Mapping[str, str]) -> dict[str, Any]:
    """The description of the data stored in a checkpoint: `Splits.identity` and, if known, the sizes of the splits."""
    return {"sizes": None if plan.has_own_loop else list(plan.sizes), "identity": dict(identity)}


def resumed(
    checkpoint: Checkpoint, saved: Mapping[str, Any], data: Mapping[str, Any] | None, plan: Plan, path: Path
) -> Checkpoint:
    """A checkpoint with the fingerprint `saved` and the description `data`, as it continues under the plan: with its
    position in steps of the resumed run.

    Raises `Refused` with every key that must not change.
    """
    position = checkpoint.position
    # A checkpoint from before a key existed had the key's default.
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
            f"are {plan.sizes.train:,} now, so the rest of that epoch is not known; restore the data, or "
            "resume a checkpoint of the end of an epoch"
        )
        problems.append(Problem("data", message))
    if problems:
        raise Refused(problems)
    notes = [_changes(changed, saved, wanted)] if changed else []
    if resized and sizes is not None:
        notes.append(
            f"the data changed since the checkpoint: {sizes[0]:,} training and {sizes[1]:,} validation examples then, "
            f"{plan.sizes.train:,} and {plan.sizes.valid:,} now; values before and after are not comparable"
        )
    moved = position
    if not plan.has_own_loop:
        moved = _moved(position, saved, sizes[0] if sizes else plan.sizes.train, plan)
    if moved != position:
        notes.append(_move(position, moved, plan))
    new_settings = any(key.startswith("optim.") or key == "device.cores" for key in changed)
    return checkpoint._replace(position=moved, new_settings=new_settings, notes=tuple(notes))


def data_note(saved: Mapping[str, str], current: Mapping[str, str]) -> str | None:
    """A sentence on how the data differ from those of the checkpoint; None if no difference is known.

    Raises `Refused` if the vocabulary changed, because the weights assign other numbers to the words.
    """
    changed = [name for name in saved if name in current and saved[name] != current[name]]
    if not changed:
        return None
    if "vocabulary" in changed:
        message = (
            "the training texts changed since the checkpoint, and with them the vocabulary built from them, so "
            "the weights belong to other words; restore the texts, or start a new run"
        )
        raise Refused.of("data", message)
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
        # The optimizer has a momentum buffer only if momentum is not 0.
        return bool(saved.get(key)) == bool(wanted.get(key))
    return key in BATCH or key.startswith("optim.")


def _refusal(key: str, saved: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> Problem:
    old, new = saved.get(key, _ABSENT), wanted.get(key, _ABSENT)
    was = "was not there" if old is _ABSENT else f"was {old!r}"
    now = "is not there" if new is _ABSENT else f"is {new!r}"
    if key in STATE_KEYS:
        why = f"the optimizer's state needs that value; set {key} = {msgspec.json.encode(old).decode()}"
    else:
        why = "a resumed run needs the same value"
    return Problem(key, f"it {was} when {path} was saved and {now} now; {why}")


def _changes(changed: list[str], saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    changes = ", ".join(f"{key} {_shown(saved.get(key))} -> {_shown(wanted.get(key))}" for key in changed)
    return f"resumed with other settings: {changes}; weights and optimizer state continue, but not exactly the same run"


def _shown(value: Any) -> str:
    return "none" if value is None or value is _ABSENT else f"{value}"


def _moved(position: Position, saved: Mapping[str, Any], num_train: int, plan: Plan) -> Position:
    """The position converted by examples: the number of full batches that the examples seen in the epoch make up.

    Steps are counted as if every epoch had had as many steps as in this run.
    """
    batch = saved["data.batch_per_core"] * saved["device.cores"]
    steps = num_train // batch
    steps = min(steps, saved["data.batches_per_epoch"] or steps)
    steps -= steps % saved["optim.accumulate"]
    mine, accumulate = plan.steps_per_epoch, plan.config.optim.accumulate
    if (batch, steps) == (plan.config.global_batch, mine) and position.batch % accumulate == 0:
        return position
    done = mine if position.evaluating else min(position.batch * batch // plan.config.global_batch, mine)
    # Accumulated gradients are not saved, so the position must follow an update.
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
    return f"with {plan.steps_per_epoch} steps per epoch now, {where}, and step {old.step} counts as step {new.step}"


def _defaults(plan: Plan) -> dict[str, Any]:
    """Defaults of the task's options, by configuration key."""
    return {
        f"{table}.{field.name}": field.default
        for table, options in (("data", plan.data), ("model", plan.model))
        for field in msgspec.structs.fields(options)
        if field.default is not msgspec.NODEFAULT
    }
