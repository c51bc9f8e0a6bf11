"""Weights of a user's own file for a network: all of them, but for the head. Must not download anything."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.errors import Problem, Refused

KEY = "model.weights"
WRAPPINGS = ("model", "state_dict")
"""Where a checkpoint keeps the weights beside other things; this engine's own, and Lightning's."""
PREFIXES = ("module.", "model.", "_orig_mod.")
"""What DataParallel, a LightningModule and torch.compile put before every name."""
NAMED = 3


def load(model: nn.Module, path: str | Path, head: str, key: str = KEY) -> None:
    """Loads a file of `torch.save` into the network, but for the modules whose names begin with `head`.

    Raises `Refused`, with the configuration's `key`, where the file cannot be read, or holds other weights: every
    name of the network must be there with its shape, and none besides.
    """
    found = _without_prefix(_read(Path(path), key))
    own = model.state_dict()
    kept = {name: value for name, value in found.items() if not name.startswith(head)}
    missing = [name for name in own if name not in kept and not name.startswith(head)]
    unknown = [name for name in kept if name not in own]
    other = [name for name, value in kept.items() if name in own and value.shape != own[name].shape]
    shapes = [f"{name} is {list(kept[name].shape)} where {list(own[name].shape)} fits" for name in other]
    parts = [
        f"{what} {_named(names)}"
        for what, names in (("lack", missing), ("have besides", unknown), ("differ in shape:", shapes))
        if names
    ]
    if parts:
        raise Refused([Problem(key, f"the weights in {path} are of another network: they {', and '.join(parts)}")])
    model.load_state_dict(kept, strict=False)


def _read(path: Path, key: str) -> dict[str, torch.Tensor]:
    """The named tensors of the file."""
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Refused([Problem(key, f"{path} cannot be read: {error.strerror or error}")]) from error
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        message = f"{path} is no file of weights that torch.save wrote; save the network's state_dict()"
        raise Refused([Problem(key, message)]) from error
    for name in WRAPPINGS:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict) or not found or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise Refused([Problem(key, f"{path} holds no weights by name; save the network's state_dict()")])
    return found


def _without_prefix(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights without what a wrapper put before every name."""
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in found):
            found = {name.removeprefix(prefix): value for name, value in found.items()}
    return found


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
