"""Which parameters of a module are one and the same, and whether they still are after the move to the device."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn


class TieBroken(Exception):
    """Two names of one parameter have become two parameters; the text names them."""


class Ties(NamedTuple):
    """A module's parameters by name, as they were at one moment."""

    groups: list[list[str]]
    """Names that share a parameter."""
    sizes: dict[str, int]
    """Values of the parameter under each name."""
    num_parameters: int
    """Values in all, each shared one counted once."""


def of(module: nn.Module) -> Ties:
    """The ties of a module."""
    names: dict[int, list[str]] = {}
    sizes: dict[str, int] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        sizes[name] = parameter.numel()
    return Ties([group for group in names.values() if len(group) > 1], sizes, count(module))


def count(module: nn.Module) -> int:
    """Values of all parameters, each shared one counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def check(before: Ties, module: nn.Module) -> None:
    """Raises `TieBroken` where a tie is gone, or where the same names hold another number of values.

    A module that makes layers of its own in `configure_model` has new names, and may.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    after = count(module)
    counts = f"{before.num_parameters:,} parameters before the move to the device, {after:,} after it"
    for first, *others in before.groups:
        for other in others:
            if first in parameters and other in parameters and parameters[first] is not parameters[other]:
                raise TieBroken(
                    f"{first} and {other} were one parameter and are two now ({counts}); tie them again in the "
                    "module's configure_model, after whatever replaced one of them"
                )
    if parameters.keys() == before.sizes.keys() and after != before.num_parameters:
        changed = [name for name, size in before.sizes.items() if parameters[name].numel() != size]
        what = f" in {', '.join(changed)}" if changed else ""
        raise TieBroken(f"the number of parameters changed{what}: {counts}")
