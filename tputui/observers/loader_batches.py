"""The shapes of the batches that data loaders give, and whether a program compiled again because they changed."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from math import prod
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tputui.observers.user_frames import UserLine, code_of, is_user_file, user_code, user_frames
from tputui.observers.xla_graph import AN_INPUT, shape_of
from tputui.telemetry.events import OF_LOADER, ChangedInput

SHAPES_KEPT = 64
"""Different shapes of batches of a loader that are kept."""
LOADERS_MAX = 64
Shapes = tuple[tuple[int, ...], ...]
"""Those of the arrays of a batch, in its order."""


class MadeAt(NamedTuple):
    """The line of the user at which a loader was made."""

    code: CodeType
    line: int

    @classmethod
    def of(cls, frame: FrameType) -> MadeAt | None:
        """The innermost line of the user's code at a frame or its callers; None if there is none."""
        user = next(user_frames(frame), None)
        return cls(user.f_code, user.f_lineno) if user is not None else None


class LoaderShapes:
    """The shapes of the batches of the loaders that are made at a line, such as one in each epoch."""

    def __init__(self, made_at: MadeAt | None, collate: CodeType | None) -> None:
        self._made_at = made_at
        self._collate = collate
        self._seen: dict[Shapes, None] = {}

    def take(self, shapes: Shapes) -> None:
        """The calling thread took a batch."""
        newest = _thread.newest
        if newest is None or newest[1] != shapes or newest[0] is not self:
            _thread.newest = self, shapes
            if len(self._seen) < SHAPES_KEPT:
                self._seen[shapes] = None

    def explain(self, now: Shapes, changed: Sequence[ChangedInput]) -> tuple[UserLine, list[ChangedInput]] | None:
        """The line to change, and the inputs that are arrays of the newest batch; None unless all changes follow from
        those between an earlier batch and this one."""
        arrays = [_changed_arrays(before, now, changed) for before in reversed(tuple(self._seen))]
        own = max(arrays, key=len, default=[])
        specs = [(shape_of(change.before) or [], shape_of(change.now) or []) for change in own]
        is_number = all(before[1:] == after[1:] for before, after in specs)
        return (self._line(in_collate=not is_number), own) if own else None

    def _line(self, *, in_collate: bool) -> UserLine:
        """The collate function decides on the lengths, the loader on the number of examples."""
        if self._collate is not None and (in_collate or self._made_at is None):
            code, line = self._collate, self._collate.co_firstlineno
        elif self._made_at is not None:
            code, line = self._made_at
        else:
            return UserLine(None, "a library made the loader")
        return UserLine(user_code(code.co_filename, line, code.co_name), None)


class _Thread(threading.local):
    newest: tuple[LoaderShapes, Shapes] | None = None


_thread = _Thread()
_loaders: dict[object, LoaderShapes] = {}


def of_loader(loader: Any, made_at: MadeAt | None) -> LoaderShapes:
    """What is known of the batches of a loader, or of earlier ones from the same line with an equal batch size."""
    collate = getattr(loader, "collate_fn", None)
    while isinstance(collate, functools.partial):
        collate = collate.func
    code = code_of(collate)
    if code is not None and not is_user_file(code.co_filename):
        code = None
    key = made_at, getattr(loader, "batch_size", None), code
    if made_at is None or (key not in _loaders and len(_loaders) >= LOADERS_MAX):
        return LoaderShapes(made_at, code)
    return _loaders.setdefault(key, LoaderShapes(made_at, code))


def explain(changed: Sequence[ChangedInput]) -> tuple[UserLine, list[ChangedInput]] | None:
    """As `LoaderShapes.explain`, for the newest batch of the calling thread."""
    newest = _thread.newest
    return newest[0].explain(newest[1], changed) if newest is not None else None


def _changed_arrays(before: Shapes, now: Shapes, changed: Sequence[ChangedInput]) -> list[ChangedInput]:
    """The inputs that are arrays of a batch; none if one has changed as no array of the batch has."""
    if len(before) != len(now):
        return []
    arrays = {(old, new) for old, new in zip(before, now, strict=True) if old != new and len(old) == len(new)}
    sizes = {sizes for old, new in arrays for sizes in zip(old, new, strict=True)}
    # Those of labels in one dimension.
    sizes |= {(prod(old), prod(new)) for old, new in arrays}
    own: dict[object, ChangedInput] = {}
    for change in changed:
        old, new = (shape_of(spec) for spec in (change.before, change.now))
        is_same_type = change.before.partition("[")[0] == change.now.partition("[")[0]
        if old is None or new is None or not is_same_type or len(old) != len(new):
            return []
        if any(pair not in sizes for pair in zip(old, new, strict=True) if pair[0] != pair[1]):
            return []
        if (array := (tuple(old), tuple(new))) in arrays:
            name = "batch" if change.name == AN_INPUT else change.name
            own.setdefault(array, ChangedInput(name=OF_LOADER + name, before=change.before, now=change.now))
    return [*own.values()]
