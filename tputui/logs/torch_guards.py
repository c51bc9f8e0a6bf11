"""Parses why torch.compile compiled a function again: the guard of an earlier program that did not hold.

Their words change between versions of torch; a guard that is not recognised is returned as it is written.

A program is compiled once for each mode that it is called in: training or evaluation, with or without gradients. The
first compilations for another mode are therefore warm-up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tputui.telemetry.events import ChangedInput

CHARS_MAX = 200
MODES_MAX = 4
"""Compilations of a function for another mode that are warm-up."""
_FUNCTIONS_MAX = 4_096
_PROGRAM = re.compile(r"^\s*\d+/\d+(?:_\d+)?:\s*")
_TENSOR = re.compile(
    r"^tensor '(?P<name>.+?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<index>\d+))?\.? *"
    r"expected (?P<before>.+?), actual (?P<now>.+)$"
)
_REQUIRES_GRAD = re.compile(r"^tensor '(?P<name>.+?)' requires_grad mismatch\. expected requires_grad=(?P<before>[01])")
_STATE = re.compile(r"^GLOBAL_STATE changed: (?P<names>.+)$")
_EQUALS = re.compile(r"^(?P<name>[^=<>!]+?) == (?P<before>.+)$")
_COMMENT = re.compile(r"\s{2,}#.*$")
_LOCAL = re.compile(r"^[LG]\['(\w+)'\]")
_PART = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")
_OF_TORCH = re.compile(r"the .+ of torch$")
_TRAINING = re.compile(r"(?:not )?[\w.\[\]']*\btraining$")
_GRAD, _KEYS = "requires_grad ", "dispatch key set "
_SHORT = (bool, int, float, str)


def is_limit(failure: str, why: str) -> bool:
    """Whether a compilation failed because the function was compiled too often, by the error's type and message."""
    return "LimitExceeded" in failure or "LimitHit" in failure or "recompile limit exceeded" in why


def parse(reason: str, values: Mapping[str, Any] | None = None) -> list[ChangedInput]:
    """The input that a failed guard names. `values` are the local variables of the call, if they are known."""
    lines = reason.strip()[: 20 * CHARS_MAX].splitlines()
    if not lines:
        return []
    guard = _COMMENT.sub("", _PROGRAM.sub("", lines[0])).strip()
    if grad := _REQUIRES_GRAD.match(guard):
        before, now = ("true", "false") if grad["before"] == "1" else ("false", "true")
        return [_changed(grad["name"], _GRAD + before, _GRAD + now)]
    if state := _STATE.match(guard):
        names = " and ".join(state["names"].split())
        return [_changed(f"the {names} of torch", "one value", "another value")]
    tensor = _TENSOR.match(guard)
    if tensor:
        where = "" if tensor["index"] is None else f" in dimension {tensor['index']}"
        before, now = (f"{tensor['what']} {tensor[side]}{where}" for side in ("before", "now"))
        return [_changed(tensor["name"], before, now)]
    equals = _EQUALS.match(guard)
    if equals:
        name = _LOCAL.sub(r"\1", equals["name"].strip())
        value = (values or {}).get(name)
        return [_changed(name, equals["before"], repr(value) if isinstance(value, _SHORT) else "another value")]
    return [_changed(guard, "true", "false")] if guard else []


def mode_advice(change: ChangedInput) -> str | None:
    """What to do if a mode of the call changes so often that the function is compiled again and again; None if the
    change is none of a mode."""
    if _OF_TORCH.match(change.name):
        return "compile a second function for the other mode, such as evaluation, or call this one in one mode only"
    if _TRAINING.match(change.name):
        return "call train() and eval() on the whole model, not on parts of it, so that it has two modes"
    if change.before.startswith(_GRAD):
        return "set requires_grad before the first step, and detach inputs in all calls or in none"
    if change.before.startswith(_KEYS):
        return "use torch.no_grad() in all evaluations, or torch.inference_mode() in all"
    return None


class Modes:
    """Recognises the first compilations of a function for other modes. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def is_first(self, function: str, changed: Sequence[ChangedInput]) -> bool:
        """Whether a compilation, which is counted, is one of the first of this function for another mode."""
        if not changed or any(mode_advice(change) is None for change in changed):
            return False
        if function not in self._counts and len(self._counts) >= _FUNCTIONS_MAX:
            return False
        self._counts[function] += 1
        return self._counts[function] <= MODES_MAX


def _changed(name: str, before: str, now: str) -> ChangedInput:
    name = _PART.sub(r".\1", _LOCAL.sub(r"\1", name))
    return ChangedInput(name=name[:CHARS_MAX], before=before[:CHARS_MAX], now=now[:CHARS_MAX])
