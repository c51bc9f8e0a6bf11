"""Loads weights to start training from: a user's file without its head, or a run's checkpoint with its head.

Must not download anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine import torch_file
from engine.errors import Refused
from tputui.engine_api import expanded

KEY = "model.weights"
WRAPPINGS = ("model", "state_dict")
"""Keys under which other tools store the weights."""
PREFIXES = ("module.", "model.", "_orig_mod.")
"""Prefixes that DataParallel, a LightningModule and torch.compile add to every name."""
NAMED = 3
NEW_HEAD = "tputui_new_head"
"""Attribute of a network whose head was not loaded."""
State = dict[str, torch.Tensor]


def load(model: nn.Module, path: str | Path, head: str, key: str = KEY) -> None:
    """Loads a `torch.save` file into the network, except the modules whose names begin with `head`.

    For a checkpoint of a run the head is loaded too; if its shape differs, it stays new, and `new_head` says so. Raises
    `Refused`, with the configuration's `key`, if the file cannot be read or has other weights: every name of the
    network must be there with its shape, and no others.
    """
    content, from_run = _read(path, key)
    expected = model.state_dict()
    state = _without_prefix(content, expected)
    kept = {name: value for name, value in state.items() if not name.startswith(head)}
    if from_run:
        heads = {name: value for name, value in state.items() if name.startswith(head) and name in expected}
        unlike = [name for name, value in heads.items() if value.shape != expected[name].shape]
        if unlike:
            shapes = _shapes(unlike, heads, expected)
            setattr(
                model,
                NEW_HEAD,
                f"{key}: the last layer of {path} does not fit and is newly initialised: {_named(shapes)}",
            )
        else:
            kept |= heads
    missing = [name for name in expected if name not in kept and not name.startswith(head)]
    unknown = [name for name in kept if name not in expected]
    other = [name for name, value in kept.items() if name in expected and value.shape != expected[name].shape]
    shapes = _shapes(other, kept, expected)
    parts = [
        f"{difference} {_named(names)}"
        for difference, names in (("lack", missing), ("have besides", unknown), ("differ in shape:", shapes))
        if names
    ]
    if parts:
        raise Refused.of(key, f"the weights in {path} are of another network: they {', and '.join(parts)}")
    model.load_state_dict(kept, strict=False)


def new_head(model: nn.Module) -> list[str]:
    """A sentence if `load` did not load the head of a run's checkpoint."""
    notice = getattr(model, NEW_HEAD, None)
    return [notice] if isinstance(notice, str) else []


def _shapes(names: list[str], state: State, expected: State) -> list[str]:
    return [f"{name} is {list(state[name].shape)}, expected {list(expected[name].shape)}" for name in names]


def _read(path: str | Path, key: str) -> tuple[State, bool]:
    """The named tensors of the file, and whether tputui saved it."""
    try:
        content: Any = torch_file.read(expanded(path))
    except OSError as error:
        raise Refused.of(key, f"{path} cannot be read: {error.strerror or error}") from error
    except torch_file.UnreadableFile as error:
        message = f"{path} is not a weights file of torch.save: {error}; save the network's state_dict()"
        raise Refused.of(key, message) from error
    from_run = isinstance(content, dict) and isinstance(content.get("learner"), dict)
    if from_run:
        # Lightning's own state is stored beside an empty state_dict.
        content = content["learner"] or content
    for name in WRAPPINGS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(value, torch.Tensor) for value in content.values())
    ):
        raise Refused.of(key, f"{path} has no named weights; save the network's state_dict()")
    return content, from_run


def _without_prefix(state: State, expected: State) -> State:
    """The weights without the prefix of a wrapper; a LightningModule may use any attribute name for its network."""
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    first = {name.partition(".")[0] for name in state}
    if len(first) == 1 and not first & {name.partition(".")[0] for name in expected}:
        state = {name.partition(".")[2]: value for name, value in state.items()}
    return state


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
