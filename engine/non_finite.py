"""Finds NaN and infinity: `NonFiniteDetector` in reported losses and gradient norms, `unfit` in weights.

Every process of a run checks the values of all cores, so all find the same in the same report. Must not touch a device
or decide what to do about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tputui.reporting import events as ev

MAX_NORMS = 8
"""Most steps whose gradient norm is reported, up to and including the bad one."""
MAX_NAMED = 3
"""Most cores or weights that are listed by name."""

Losses = npt.NDArray[np.float32]


class NonFiniteStart(NamedTuple):
    """The first value that is not finite."""

    metric: str
    """`loss` or `gradient norm`."""
    row: int
    """Row of the step."""
    columns: list[int]
    """Columns of the cores; all of them if it is the gradient norm."""
    value: float
    others_row: int | None
    """Row of the first step in which the loss of another core is not finite either; None if there is none."""


class NonFiniteDetector:
    """Checks the steps of one split in order, and emits an event when values begin to be not finite."""

    def __init__(self, split: ev.Split, core_ids: Sequence[int], policy: str, emit: Callable[[ev.Event], None]) -> None:
        """`core_ids` are the cores of the columns; `policy` is `non_finite.policy`, for the event."""
        self.found: str | None = None
        """The beginning, in one sentence; None while everything is finite."""
        self._split = split
        self._core_ids = list(core_ids)
        self._policy = policy
        self._emit = emit
        self._norms: list[float] = []

    def look(self, first_step: int, losses: Losses, norms: Sequence[float] = (), *, per_core: bool = True) -> None:
        """Checks `losses` [steps, cores] and the gradient norms, [steps] or empty, of the steps from `first_step` on.

        Without `per_core` the columns are copies of one loss. In an evaluation every row is of the step `first_step`.
        """
        began = beginning(losses, norms)
        if began is not None and self.found is None:
            event = self._event(began, first_step, losses, norms, per_core=per_core)
            self.found = event.text
            self._emit(event)
        elif self.found is not None and losses.size and not _is_bad(losses[-1], norms[-1:]):
            # The values are finite again; the next beginning is reported as well.
            self.found = None
        self._norms = [*self._norms, *norms][-MAX_NORMS:]

    def _event(
        self, began: NonFiniteStart, first_step: int, losses: Losses, norms: Sequence[float], *, per_core: bool
    ) -> ev.NonFiniteFound:
        training = self._split == "train"
        at = [first_step + row if training else first_step for row in range(len(losses))]
        shown_norms = [*self._norms, *norms[: began.row + 1]][-MAX_NORMS:] if len(norms) else []
        several = per_core and len(self._core_ids) > 1 and began.metric == "loss"
        everywhere = len(began.columns) == len(self._core_ids)
        cores = [self._core_ids[column] for column in began.columns] if several else []
        others = at[began.others_row] if began.others_row is not None and several else None
        where = lead = ""
        if several:
            where = " on all cores" if everywhere else f" on {_cores(cores)}"
            if not everywhere and training:
                lead = _lead(others, at[began.row], at[-1])
        when = f"at step {at[began.row]}" if training else f"in the evaluation after step {first_step}"
        shown = ", ".join(f"{norm:.3g}" for norm in shown_norms)
        text = f"the {began.metric} became {began.value:g}{where} {when}{lead}"
        return ev.NonFiniteFound(
            t=time.time(),
            text=f"{text}; gradient norms up to that step: {shown}" if shown else text,
            split=self._split,
            metric=began.metric,
            step=at[began.row],
            cores=cores,
            value=began.value,
            others_step=others,
            until_step=at[-1],
            gradient_norms=shown_norms,
            policy=self._policy,
        )


def beginning(losses: Losses, norms: Sequence[float]) -> NonFiniteStart | None:
    """The first step with a loss, [steps, cores], or gradient norm, [steps] or empty, that is not finite."""
    bad: npt.NDArray[np.bool_] = ~np.isfinite(losses)
    loss_row = _first(bad.any(axis=1))
    norm_row = _first(~np.isfinite(np.array(norms, dtype=np.float32)))
    if norm_row is not None and (loss_row is None or norm_row < loss_row):
        return NonFiniteStart("gradient norm", norm_row, list(range(losses.shape[1])), float(norms[norm_row]), None)
    if loss_row is None:
        return None
    columns: list[int] = np.flatnonzero(bad[loss_row]).tolist()
    others_row = _first(np.delete(bad, columns, axis=1).any(axis=1))
    return NonFiniteStart("loss", loss_row, columns, float(losses[loss_row, columns[0]]), others_row)


def _first(marked: npt.ArrayLike) -> int | None:
    """Index of the first entry that is true."""
    indices = np.flatnonzero(marked)
    return int(indices[0]) if len(indices) else None


def unfit(weights: Mapping[str, object], buffers: Collection[str]) -> list[str]:
    """Names of the weights that contain NaN, or infinity unless they are buffers, where a mask may contain it.

    Values that are not floating-point tensors are ignored.
    """
    return [name for name, value in weights.items() if _is_unfit(value, is_buffer=name in buffers)]


def named(names: Iterable[str]) -> str:
    """`a, b, c and 4 more`."""
    known = list(names)
    more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
    return f"{', '.join(known[:MAX_NAMED])}{more}"


def _is_bad(losses: Losses, norms: Sequence[float]) -> bool:
    return not (np.isfinite(losses).all() and np.isfinite(norms).all())


def _is_unfit(value: object, *, is_buffer: bool) -> bool:
    if not isinstance(value, torch.Tensor) or not torch.is_floating_point(value):
        return False
    if bool(torch.isfinite(value.sum())):
        # A NaN or infinity always shows in the sum, which takes a tenth of the time.
        return False
    bad = torch.isnan(value) if is_buffer else ~torch.isfinite(value)
    return bool(bad.any())


def _cores(cores: list[int]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {named(str(core) for core in cores)}"


def _lead(others: int | None, step: int, until: int) -> str:
    """How much earlier it began on these cores than on others."""
    if others is None:
        return f", and on no other core up to step {until}"
    return f", {others - step} step{'s' if others - step > 1 else ''} before any other core"
